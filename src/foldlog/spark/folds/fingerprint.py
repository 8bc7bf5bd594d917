"""A fingerprint of what a fold does. If it differs from the view's, the view was written by another function.

It covers the analysed plan above the topic's rows, without Spark's expression ids and without columns that are just
passed on (a view grows by those), the session's settings that change what expressions return, and the code of every
Python function in it. Renaming a variable, moving the file or restarting does not change it. Another version of Spark
or Python may, or of this code, so the versions are stored with it.
"""

from __future__ import annotations

import copyreg
import dis
import logging
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from hashlib import blake2b, file_digest
from io import BufferedIOBase, BytesIO
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, Final

import pyspark
from pyspark import SparkContext
from pyspark.cloudpickle import list_registry_pickle_by_value
from pyspark.core.broadcast import _from_id
from pyspark.sql import DataFrame
from pyspark.util import local_connect_and_auth

from foldlog.errors import FoldError, UnlawfulFold
from foldlog.files.paths import opened
from foldlog.limits import FOLD_PLANS_MAX
from foldlog.spark.folds.plans import Path, functions_at, logic_text, python_functions, settings_text
from foldlog.views.bookmark import Bookmark, Logic

_log = logging.getLogger("foldlog")

_FORM: Final = 4
"""Version of the texts made of plans and code. If a view was written with another, a change is only logged."""

_BITS: Final = 60
"""Size of a fingerprint: a Delta table stores it as a 64-bit integer."""

_SETTINGS: Final = re.compile(
    r"\b(?:spark\.sql\.legacy\.[\w.]+"
    r"|spark\.sql\.(?:timestampType|mapKeyDedupPolicy|jsonGenerator\.ignoreNullFields|json\.enablePartialResults"
    r"|decimalOperations\.allowPrecisionLoss))=[^,}]*"
)
"""Settings that change what expressions return, but are not in the plan. The session's time zone is, where it matters.
"""
_ANSI: Final = "spark.sql.ansi.enabled"
_TOLD_BYTES_MAX: Final = 1 << 20
"""Longer byte strings enter the text as a digest."""
_SCALARS: Final = frozenset({int, float, str, bool, type(None)})
_UNSAID: Final = frozenset(
    {"__module__", "__doc__", "__dict__", "__weakref__", "__firstlineno__", "__static_attributes__", "__annotations__"}
)
"""Attributes of a class that do not affect what it does."""
_HAS_DOCSTRING: Final = 0x4000000
"""A flag of code objects, from Python 3.13 on."""


def unsteady(fold: str) -> UnlawfulFold:
    return UnlawfulFold(
        fold,
        "it makes another plan each time it is called",
        "leave the time, random numbers and counters out of it, and look at the record's columns",
    )


class PlanChanged(FoldError):
    """A function returned another plan than before, while the fold was running."""

    def __init__(self, fold: str) -> None:
        super().__init__(
            f"the function of fold {fold!r} gave another plan for the same rows: something that it takes from outside,"
            " such as a list or a setting of Spark, has changed while it ran; nothing of this range was stored. Run the"
            " fold again, and leave alone what it uses"
        )


@dataclass(frozen=True)
class Doing:
    """What a plan does: its `text`, the paths to its Python functions, and a cache of the digests of their code. The
    cache is keyed by the hash code of the command that Spark sends, and by a digest of the unwrapped bytes, since a
    large function is sent under another broadcast each time.
    """

    text: str
    functions: tuple[Path, ...] = ()
    codes: dict[int | bytes, str] = field(default_factory=dict, repr=False)

    def logic(self, result: DataFrame) -> Logic:
        """The fingerprint of a plan with this text."""
        told = [self._code(str(one.name()), one.func()) for one in functions_at(result, self.functions)]
        versions = f"spark {pyspark.__version__} python {sys.version_info.major}.{sys.version_info.minor} code {_FORM}"
        return Logic(_number("\n".join([self.text, *told])), _number(versions))

    def _code(self, name: str, function: Any) -> str:
        number = int(function.command().hashCode())
        if number not in self.codes:
            if len(self.codes) >= 2 * FOLD_PLANS_MAX:
                self.codes.clear()
            self.codes[number] = self._unpacked_code(name, function)
        return self.codes[number]

    def _unpacked_code(self, name: str, function: Any) -> str:
        try:
            packed, broadcasts = _sent_bytes(function)
            sent_as = blake2b(packed).digest()
            if sent_as not in self.codes:
                self.codes[sent_as] = _digest(_function_lines(packed, broadcasts))
            return self.codes[sent_as]
        except Exception as error:  # noqa: BLE001 whatever a user's object does when it is unpacked
            _warn_untold(name, error)
            return f"not unpacked: {type(error).__name__}"  # the plan still has the function's name


def doing_of(result: DataFrame, more: object = None) -> Doing:
    """What the plan of a fold's result does, and `more`: what its view makes of the rows, in functions of Python's."""
    text = logic_text(result)
    if more is not None:
        text = f"{text}\n{_digest(_code_lines(more, {}))}"
    if text:
        session = result.sparkSession
        set_so = sorted(_SETTINGS.findall(settings_text(session)))
        text = "\n".join([text, f"{_ANSI}={session.conf.get(_ANSI)}", *set_so])
    return Doing(text, tuple(python_functions(result)))


def logic_of(result: DataFrame) -> Logic:
    """The fingerprint of a fold's result."""
    return doing_of(result).logic(result)


def logic_to_store(fold: str, stored: Bookmark, found: Logic, *, has_rows: bool, accept_change: bool) -> Logic:
    """The logic to store in the bookmark from now on; FoldError if it has changed and `accept_change` is not set. A
    view without rows, or without a stored logic, takes the new one.
    """
    before = stored.logic
    if before is None or not has_rows or before.plan == found.plan:
        return found if before is None or not has_rows else replace_logic(before, found)
    if before.versions != found.versions:
        _log.warning(
            "fold %s: Spark, Python or foldlog is of another version than when its view was written, and reads the"
            " function otherwise; whether it has changed cannot be told: foldlog fold verify %s",
            fold,
            fold,
        )
        return replace_logic(before, found)
    if not accept_change:
        raise FoldError(
            f"the function of fold {fold!r} is another one than its view was made with, or what it takes from outside"
            f" is, or a setting of Spark; rebuild the view: foldlog fold rebuild {fold}; or go on, with rows of the"
            " old and the new logic side by side: foldlog fold run ... --accept-change"
        )
    _log.warning("fold %s: its function has changed; old and new logic mix in its view until it is rebuilt", fold)
    return Logic(found.plan, found.versions, before.mixes + 1)


def replace_logic(before: Logic, found: Logic) -> Logic:
    """The new logic, with the view's count of mixes."""
    return found._replace(mixes=before.mixes)


def with_logic(bookmark: Bookmark, logic: Logic) -> Bookmark:
    return bookmark if bookmark.logic == logic else replace(bookmark, logic=logic)


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> (64 - _BITS)


def _digest(lines: Iterable[str]) -> str:
    found = blake2b(digest_size=32)
    for line in lines:
        found.update(line.encode("utf-8", "surrogatepass"))
        found.update(b"\n")
    return found.hexdigest()


_untold: set[tuple[str, str]] = set()
"""Functions that could not be unpacked and were logged: each is seen again with every range."""


def _warn_untold(name: str, error: Exception) -> None:
    said = (name, type(error).__name__)
    if said in _untold:
        return
    if len(_untold) >= FOLD_PLANS_MAX:
        _untold.clear()
    _untold.add(said)
    _log.warning(
        "the Python function %r of a fold cannot be unpacked on the driver (%s): whether it is the one that its view"
        " was made with cannot be told; if you change it, rebuild the view",
        name,
        f"{type(error).__name__}: {error}".partition("\n")[0],
    )


def _function_lines(packed: bytes, broadcasts: Mapping[int, SentBroadcast]) -> Iterator[str]:
    """The code of a function that was pickled for the workers, as lines."""
    sent = _unpacked(packed, broadcasts)
    return _code_lines(sent[0] if isinstance(sent, tuple) else sent, {})


_broadcast_values: dict[bytes, str] = {}
"""Digests of broadcast values, by their bytes: a value may be large, and be broadcast anew for every range."""


def _broadcast_text(broadcast: SentBroadcast) -> str:
    sent_as = broadcast.digest()
    if sent_as not in _broadcast_values:
        if len(_broadcast_values) >= FOLD_PLANS_MAX:
            _broadcast_values.clear()
        _broadcast_values[sent_as] = _digest(_code_lines(broadcast.value, {}))
    return _broadcast_values[sent_as]


# --- functions as they are sent -------------------------------------------------------------------------------------
# A function is sent to workers as a pickle. A broadcast that it uses is in the pickle by number only; a worker replaces
# the number by the value that Spark has shipped. The driver has no such table: it reads the value from the JVM's file.
# A pickle of more than 1 MB (`spark.broadcast.UDFCompressionThreshold`) is put into a broadcast itself, and only its
# number is sent.


@dataclass(frozen=True, eq=False)
class SentBroadcast:
    """Stands for a broadcast in an unpickled function. The value is read on each access."""

    opened: Callable[[], BufferedIOBase]

    @property
    def value(self) -> Any:
        with self.opened() as file:
            return pickle.load(file)

    def digest(self) -> bytes:
        """A digest of the bytes that were sent. An equal value may have other bytes in another process."""
        with self.opened() as file:
            return file_digest(file, "blake2b").digest()


def _sent_bytes(function: Any) -> tuple[bytes, Mapping[int, SentBroadcast]]:
    """The pickle that the JVM would send for a function, and its broadcasts by number."""
    broadcasts = {int(one.id()): SentBroadcast(partial(_opened, one)) for one in function.broadcastVars()}
    packed = bytes(function.command().unsafeArray())
    if broadcasts:
        sent = _unpacked(packed, broadcasts)
        if isinstance(sent, SentBroadcast):
            packed = sent.value
    return packed, broadcasts


def _unpacked(packed: bytes, broadcasts: Mapping[int, SentBroadcast]) -> Any:
    """Unpickle a function. Raises what a user's object raises when it is unpickled."""
    return _Unpickler(packed, broadcasts).load()


class _Unpickler(pickle.Unpickler):
    """Unpickles as a worker does, with the given broadcasts."""

    def __init__(self, packed: bytes, broadcasts: Mapping[int, SentBroadcast]) -> None:
        super().__init__(BytesIO(packed))
        self._broadcasts = broadcasts

    def find_class(self, module: str, name: str, /) -> Any:
        if module == _from_id.__module__ and name == _from_id.__name__:
            return self._broadcasts.__getitem__
        return super().find_class(module, name)


def _opened(broadcast: Any) -> BufferedIOBase:
    """The bytes of a broadcast. With `spark.io.encryption.enabled` only the JVM can read the file."""
    held = broadcast.value()
    context = SparkContext._active_spark_context
    if context is None or not context._encryption_enabled:
        return opened(held.path())
    address, secret = held.setupDecryptionServer()
    stream, _ = local_connect_and_auth(address, secret)
    with stream:
        decrypted = BytesIO(stream.read())
    held.waitTillBroadcastDataSent()
    return decrypted


# --- the code of functions ------------------------------------------------------------------------------------------


def _code_lines(value: object, seen: dict[int, tuple[int, object]]) -> Iterator[str]:
    """The code of a function as lines, without its location: its bytecode, and the values it uses from outside. `seen`
    numbers the objects met and keeps a reference to each, so that no id is reused.
    """
    if id(value) in seen:
        yield f"^{seen[id(value)][0]}"
        return
    if isinstance(value, CodeType):
        yield f"{value.co_argcount} {value.co_kwonlyargcount} {value.co_flags & ~_HAS_DOCSTRING}"
        parts: Iterable[object] = _steps(value)
    elif type(value) is bytes and len(value) > _TOLD_BYTES_MAX:
        yield f"{len(value)} bytes {blake2b(value).hexdigest()}"
        return
    elif value is None or (isinstance(value, str | bytes | int | float | complex) and _is_library(type(value))):
        yield repr(value)
        return
    elif isinstance(value, set | frozenset):
        yield f"{{{', '.join(sorted(_member(one, seen) for one in value))}}}"
        return
    else:
        if not isinstance(value, tuple):  # Python may or may not share equal ones
            seen[id(value)] = (len(seen), value)
        yield f"{type(value).__module__}.{type(value).__qualname__}"
        parts = _inside(value)
    for part in parts:
        if type(part) in _SCALARS:  # inlined for speed: lookup tables have many
            yield repr(part)
        else:
            yield from _code_lines(part, seen)
    yield "."  # end marker: [[a], b] differs from [[a, b]]


def _member(value: object, seen: dict[int, tuple[int, object]]) -> str:
    """A set has no order, so no member may see the numbers that another member assigned."""
    return repr(value) if type(value) in _SCALARS else " ".join(_code_lines(value, dict(seen)))


def _steps(code: CodeType) -> Iterator[object]:
    """The instructions, with the constants and names they use instead of indexes into tables: a constant that no
    instruction uses, such as a docstring, changes nothing, and does not shift the indexes of others.
    """
    steps = list(dis.get_instructions(code))
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if following is not None and following.opname == "STORE_NAME" and following.argval in _UNSAID:
            continue  # of an inner class: its docstring, or its location
        yield step.opname
        if step.opcode in dis.hasconst:
            yield step.argval
        elif step.opcode in dis.hasname:
            yield str(step.argval)
        elif step.arg is not None:
            yield step.arg


def _inside(value: object) -> Iterable[object]:
    """The parts of an object, as far as they are the user's. Installed code is only named: it does not travel with the
    function, and its internal state, such as a cache of patterns, differs between processes.
    """
    if isinstance(value, FunctionType | BuiltinFunctionType | MethodType):
        return _inside_function(value)
    if isinstance(value, type):
        own = {} if _is_library(value) and "<locals>" not in value.__qualname__ else vars(value)
        said = [part for name, part in own.items() if name not in _UNSAID]
        return ["" if own else value.__module__, value.__qualname__, *value.__bases__, *said]
    if isinstance(value, ModuleType):
        return [value.__name__]
    if isinstance(value, tuple | list):
        return value
    if isinstance(value, dict | MappingProxyType):
        return [part for item in value.items() for part in item]
    return _inside_object(value)


def _inside_function(value: FunctionType | BuiltinFunctionType | MethodType) -> Iterable[object]:
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    name = f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, BuiltinFunctionType):
        bound = value.__self__
        return [name] if bound is None or isinstance(bound, ModuleType) else [name, bound]
    if not _is_library(value):
        return [value.__code__, *_given(value), *_globals(value, value.__code__)]
    # A function made inside another function cannot be imported, so its code travels as well.
    return [name, value.__code__, *_given(value)] if "<" in value.__qualname__ else [name]


def _inside_object(value: Any) -> Iterable[object]:
    if isinstance(value, SentBroadcast):
        return [_broadcast_text(value)]
    if isinstance(value, re.Pattern):
        return [value.pattern, value.flags]
    if isinstance(value, Enum):
        return [type(value), value.name, value.value]
    if isinstance(value, property):
        return [value.fget, value.fset]
    if hasattr(value, "__wrapped__"):  # the wrappers of lru_cache, staticmethod and others
        return [value.__wrapped__]
    return _state(value)


def _state(value: object) -> Iterable[object]:
    """What an object would be pickled as. Objects of Spark's are left out: they hold ids that differ in each run."""
    if type(value).__module__.startswith("pyspark."):
        return ()
    try:
        registered = copyreg.dispatch_table.get(type(value))  # a pattern's, for example
        reduced = value.__reduce_ex__(2) if registered is None else registered(value)
    except (TypeError, AttributeError, ValueError, RuntimeError, pickle.PickleError):
        return ()  # it cannot be pickled, so only its type counts
    if isinstance(reduced, str):
        return [reduced]
    made, state = reduced[:3], [list(more) for more in reduced[3:5] if more is not None]
    return [*made, *state]


def _is_library(value: Any) -> bool:
    """Whether a function or a class is Python's own or of an installed package, and not the user's."""
    return _is_installed(getattr(value, "__module__", None) or "builtins")


def _is_installed(module: str) -> bool:
    if module == "__main__" or module not in sys.modules or module in list_registry_pickle_by_value():  # type: ignore[no-untyped-call]
        return False  # sent to the workers with the function: the pipeline's module, and its neighbours
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules[module], "__file__", None)
    return file is None or "site-packages" in file or "dist-packages" in file or top in ("foldlog", "pyspark")


def _given(function: FunctionType) -> list[Any]:
    """The defaults and the closure of a function."""
    return [function.__defaults__, function.__kwdefaults__, *_cells(function)]


def _cells(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            yield None  # not filled yet


def _globals(function: FunctionType, code: CodeType) -> Iterator[Any]:
    """The globals that a function and its inner functions use, and attributes of the user's own modules. Builtins are
    left out.
    """
    for name in code.co_names:
        if name in function.__globals__:
            found = function.__globals__[name]
            yield found
            if isinstance(found, ModuleType) and not _is_installed(found.__name__):
                yield from (getattr(found, one) for one in code.co_names if one in vars(found))
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _globals(function, const)
