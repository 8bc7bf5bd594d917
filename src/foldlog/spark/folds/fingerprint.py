"""What a fold does, as a number: another number, and its view was made by another function.

It is made of the analysed plan above the topic's rows, without Spark's own numbers and without columns that are just
passed on (a view grows by those), of the session's settings that change what expressions give, and of the code of every
Python function in it. Renaming a variable, moving the file or starting again does not change it. Another version of
Spark or Python may, or another way of ours to make it, so it says which they were.
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
"""Of the texts that plans and code are put into. With another one, a view is not said to be of another function."""

_BITS: Final = 60
"""Of a fingerprint: a table of Delta's keeps it as a number of 64."""

_SETTINGS: Final = re.compile(
    r"\b(?:spark\.sql\.legacy\.[\w.]+"
    r"|spark\.sql\.(?:timestampType|mapKeyDedupPolicy|jsonGenerator\.ignoreNullFields|json\.enablePartialResults"
    r"|decimalOperations\.allowPrecisionLoss))=[^,}]*"
)
"""That change what expressions give and do not stand in them, where they are set. The session's zone does, where it
matters."""
_ANSI: Final = "spark.sql.ansi.enabled"
_TOLD_BYTES_MAX: Final = 1 << 20
"""Of a value in a text: of a longer one the text has a digest."""
_SCALARS: Final = frozenset({int, float, str, bool, type(None)})
_UNSAID: Final = frozenset(
    {"__module__", "__doc__", "__dict__", "__weakref__", "__firstlineno__", "__static_attributes__", "__annotations__"}
)
"""Of a class: where it stands and what it says, not what it does."""
_HAS_DOCSTRING: Final = 0x4000000
"""The flag of a code object; from Python 3.13 on."""


def unsteady(fold: str) -> UnlawfulFold:
    return UnlawfulFold(
        fold,
        "it makes another plan each time it is called",
        "leave the time, random numbers and counters out of it, and look at the record's columns",
    )


class PlanChanged(FoldError):
    """A function gave another plan than before, while it was being run."""

    def __init__(self, fold: str) -> None:
        super().__init__(
            f"the function of fold {fold!r} gave another plan for the same rows: something that it takes from outside,"
            " such as a list or a setting of Spark, has changed while it ran; nothing of this range was stored. Run the"
            " fold again, and leave alone what it uses"
        )


@dataclass(frozen=True)
class Doing:
    """What a plan does. `text` is its own; `functions` says where its Python functions are, and `codes` what each does,
    as a digest: by a number that Java has of what it was sent as, and by a digest of the same, since a large function
    is sent under another name each time.
    """

    text: str
    functions: tuple[Path, ...] = ()
    codes: dict[int | bytes, str] = field(default_factory=dict, repr=False)

    def logic(self, result: DataFrame) -> Logic:
        """Of a plan with this text."""
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
            return f"not unpacked: {type(error).__name__}"  # the function's name, which the plan has, has to do


def doing_of(result: DataFrame) -> Doing:
    """Of what a fold's function returned."""
    text = logic_text(result)
    if text:
        session = result.sparkSession
        set_so = sorted(_SETTINGS.findall(settings_text(session)))
        text = "\n".join([text, f"{_ANSI}={session.conf.get(_ANSI)}", *set_so])
    return Doing(text, tuple(python_functions(result)))


def logic_of(result: DataFrame) -> Logic:
    """Of what a fold's function returned."""
    return doing_of(result).logic(result)


def logic_to_store(fold: str, stored: Bookmark, found: Logic, *, has_rows: bool, accept_change: bool) -> Logic:
    """What the bookmark says from now on of the logic behind its view; FoldError if that has changed and nobody
    accepted it. A view from before logics were kept, or without rows, takes what it is given.
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
            f" is, or a setting of Spark; build the view anew: foldlog fold rebuild {fold}; or go on, with rows of the"
            " old and the new logic side by side: foldlog fold run ... --accept-change"
        )
    _log.warning("fold %s: its function has changed; old and new logic mix in its view until it is rebuilt", fold)
    return Logic(found.plan, found.versions, before.mixes + 1)


def replace_logic(before: Logic, found: Logic) -> Logic:
    """The new one, with what is known of the view's history."""
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
"""What was said of functions that cannot be unpacked: each is looked at for every range."""


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
    """The code of a function that was packed for the workers."""
    sent = _unpacked(packed, broadcasts)
    return _code_lines(sent[0] if isinstance(sent, tuple) else sent, {})


_broadcast_values: dict[bytes, str] = {}
"""What broadcasts are, by their bytes. They may be large, and one that a fold makes itself comes with every range."""


def _broadcast_text(broadcast: SentBroadcast) -> str:
    sent_as = broadcast.digest()
    if sent_as not in _broadcast_values:
        if len(_broadcast_values) >= FOLD_PLANS_MAX:
            _broadcast_values.clear()
        _broadcast_values[sent_as] = _digest(_code_lines(broadcast.value, {}))
    return _broadcast_values[sent_as]


# --- functions as they are sent -------------------------------------------------------------------------------------
# A function is sent to workers as a pickle. Of a broadcast that it uses there is only the number in it, which a worker
# exchanges for the value that Spark has brought there. The driver has no such table: the value is where the JVM has put
# it. A pickle of more than 1 MB (`spark.broadcast.UDFCompressionThreshold`) is put into a broadcast itself, and its
# number is sent.


@dataclass(frozen=True, eq=False)
class SentBroadcast:
    """What a function has of a broadcast once it is unpacked. It is read when it is asked for, each time."""

    opened: Callable[[], BufferedIOBase]

    @property
    def value(self) -> Any:
        with self.opened() as file:
            return pickle.load(file)

    def digest(self) -> bytes:
        """Of the bytes that were sent. Those of an equal value may be others in another process."""
        with self.opened() as file:
            return file_digest(file, "blake2b").digest()


def _sent_bytes(function: Any) -> tuple[bytes, Mapping[int, SentBroadcast]]:
    """What the JVM would send of a function, and its broadcasts, by their numbers."""
    broadcasts = {int(one.id()): SentBroadcast(partial(_opened, one)) for one in function.broadcastVars()}
    packed = bytes(function.command().unsafeArray())
    if broadcasts:
        sent = _unpacked(packed, broadcasts)
        if isinstance(sent, SentBroadcast):
            packed = sent.value
    return packed, broadcasts


def _unpacked(packed: bytes, broadcasts: Mapping[int, SentBroadcast]) -> Any:
    """Raises what a user's object raises when it is unpacked."""
    return _Unpickler(packed, broadcasts).load()


class _Unpickler(pickle.Unpickler):
    """As a worker unpacks, but that broadcasts are those it is given."""

    def __init__(self, packed: bytes, broadcasts: Mapping[int, SentBroadcast]) -> None:
        super().__init__(BytesIO(packed))
        self._broadcasts = broadcasts

    def find_class(self, module: str, name: str, /) -> Any:
        if module == _from_id.__module__ and name == _from_id.__name__:
            return self._broadcasts.__getitem__
        return super().find_class(module, name)


def _opened(broadcast: Any) -> BufferedIOBase:
    """The bytes of a broadcast of the JVM's. With `spark.io.encryption.enabled` only the JVM can read the file."""
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


# --- what they do ---------------------------------------------------------------------------------------------------


def _code_lines(value: object, seen: dict[int, tuple[int, object]]) -> Iterator[str]:
    """What a function does, without where it stands: its bytecode, and what it takes from around it. `seen` numbers
    what it has met, and keeps it, so that an id stands for one object only.
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
        if not isinstance(value, tuple):  # Python shares equal ones, or does not
            seen[id(value)] = (len(seen), value)
        yield f"{type(value).__module__}.{type(value).__qualname__}"
        parts = _inside(value)
    for part in parts:
        if type(part) in _SCALARS:  # here as well: tables that functions look things up in have many
            yield repr(part)
        else:
            yield from _code_lines(part, seen)
    yield "."  # where it ends: [[a], b] is not [[a, b]]


def _member(value: object, seen: dict[int, tuple[int, object]]) -> str:
    """Of a set, which is in no order: what one member has met is not known to the next."""
    return repr(value) if type(value) in _SCALARS else " ".join(_code_lines(value, dict(seen)))


def _steps(code: CodeType) -> Iterator[object]:
    """The instructions, with the constants and names that they use, but not with the numbers that those have: what is
    in no instruction, as a docstring is, changes nothing, nor does it push the others aside.
    """
    steps = list(dis.get_instructions(code))
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if following is not None and following.opname == "STORE_NAME" and following.argval in _UNSAID:
            continue  # of a class inside: what it says, and where
        yield step.opname
        if step.opcode in dis.hasconst:
            yield step.argval
        elif step.opcode in dis.hasname:
            yield str(step.argval)
        elif step.arg is not None:
            yield step.arg


def _inside(value: object) -> Iterable[object]:
    """What an object is made of, as far as it is the user's. What is installed is named: it does not travel with the
    function, and what it keeps for itself, such as the patterns that it has met, is another in each process.
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
    # One that was made in a function cannot be imported, so it travels as well.
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
    if hasattr(value, "__wrapped__"):  # such as what lru_cache or staticmethod gives
        return [value.__wrapped__]
    return _state(value)


def _state(value: object) -> Iterable[object]:
    """What an object would be pickled as. Spark's own are no values: they have numbers that each start counts anew."""
    if type(value).__module__.startswith("pyspark."):
        return ()
    try:
        registered = copyreg.dispatch_table.get(type(value))  # such as that of a pattern
        reduced = value.__reduce_ex__(2) if registered is None else registered(value)
    except (TypeError, AttributeError, ValueError, RuntimeError, pickle.PickleError):
        return ()  # it cannot be pickled: its type has to do
    if isinstance(reduced, str):
        return [reduced]
    made, state = reduced[:3], [list(more) for more in reduced[3:5] if more is not None]
    return [*made, *state]


def _is_library(value: Any) -> bool:
    """Whether a function or a class is Python's own or of an installed package, and not the user's."""
    return _is_installed(getattr(value, "__module__", None) or "builtins")


def _is_installed(module: str) -> bool:
    if module == "__main__" or module not in sys.modules or module in list_registry_pickle_by_value():  # type: ignore[no-untyped-call]
        return False  # sent to the workers with the function: the pipeline's, and what is beside it
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules[module], "__file__", None)
    return file is None or "site-packages" in file or "dist-packages" in file or top in ("foldlog", "pyspark")


def _given(function: FunctionType) -> list[Any]:
    """What a function got when it was made."""
    return [function.__defaults__, function.__kwdefaults__, *_cells(function)]


def _cells(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            yield None  # not filled yet


def _globals(function: FunctionType, code: CodeType) -> Iterator[Any]:
    """What a function and those inside it use of their module, and of modules beside it; what Python has by itself is
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
