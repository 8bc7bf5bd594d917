"""What a capture is: a name, a database, its tables, and the form of records. Nothing is connected to here."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from threading import Event
from typing import Final, Literal, get_args

from foldlog.broker.topics.names import check_topic_name
from foldlog.capture.database import CapturedDatabase
from foldlog.capture.records import Keys, RecordForm, Values
from foldlog.errors import CaptureError, FoldlogError, InvalidArgument, brief_repr
from foldlog.files.paths import absolute, is_file

Numeric = Literal["string", "number"]
"""How exact numbers are written: as text, or as numbers of JSON with all their digits."""

Tables = Iterable[str] | Mapping[str, str] | None

_NAME: Final = re.compile(r"[a-z0-9_]{1,48}")

MakeSource = Callable[["Capture", Callable[[str], None], Event], CapturedDatabase]

_declared: ContextVar[list[Capture] | None] = ContextVar("foldlog_captures", default=None)


@dataclass(frozen=True, slots=True)
class Capture:
    """A database to capture. Make one with `postgres`, `mysql` or `sqlite`."""

    name: str
    url: str
    tables: tuple[str, ...]
    """Empty: all that have a primary key."""
    topics: Mapping[str, str]
    form: RecordForm
    numeric: Numeric
    partitions: int
    topic_config: Mapping[str, str]
    together: int
    """How many transactions of the database's one of the log may hold, while the capture is behind."""
    make: MakeSource = field(repr=False)

    def source(self, tell: Callable[[str], None], stop: Event) -> CapturedDatabase:
        """The database; connects on first use. `stop` ends a wait in it."""
        return self.make(self, tell, stop)


def declare(
    make: MakeSource,
    name: object,
    url: str,
    tables: Tables,
    *,
    values: Values,
    keys: Keys | None,
    numeric: Numeric,
    partitions: object,
    topic_config: Mapping[str, str] | None,
    together: object = 1,
) -> Capture:
    """Check the arguments, and note the capture where a file is loaded that declares some."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"{brief_repr(name)} is not a name for a capture: 1 to 48 of a to z, 0 to 9 and '_'; give name='...'"
        )
    if isinstance(tables, str):
        raise InvalidArgument(f"tables={brief_repr(tables)} is not a list; give tables=[{tables!r}]")
    chosen = tuple(tables or ())
    topics = {name: topic for name, topic in tables.items() if topic} if isinstance(tables, Mapping) else {}
    listed: tuple[object, ...] = chosen
    for one in listed:
        if not isinstance(one, str) or not one:
            raise InvalidArgument(f"tables has {brief_repr(one)}, which is not the name of a table")
    for topic in topics.values():
        check_topic_name(topic)
    if numeric not in get_args(Numeric):
        raise InvalidArgument(f"numeric={brief_repr(numeric)} is not 'string' or 'number'")
    capture = Capture(
        name,
        url,
        chosen,
        topics,
        RecordForm(values, keys),
        numeric,
        _count("partitions", partitions),
        dict(topic_config or {}),
        _count("together", together),
        make,
    )
    declared = _declared.get()
    if declared is not None:
        declared.append(capture)
    return capture


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(f"{name}={brief_repr(value)} is not a whole number, 1 or more")
    return value


def fitting_name(text: str) -> str:
    """
    >>> fitting_name("Shop-2")
    'shop_2'
    """
    return re.sub(r"[^a-z0-9_]", "_", text.lower())[:48]


def load_captures(path: str) -> list[Capture]:
    """Run a Python file, and return the captures that it declares. CaptureError, in one sentence, if it cannot be."""
    if not is_file(path):
        raise InvalidArgument(f"there is no file {path}; a capture is a URL, or a Python file that declares one")
    spec = spec_from_file_location("foldlog_captures", absolute(path))
    if spec is None or spec.loader is None:
        raise InvalidArgument(f"{path} is not a Python file")
    module = module_from_spec(spec)
    found: list[Capture] = []
    token = _declared.set(found)
    before = list(sys.path)
    try:
        sys.path.insert(0, absolute(path).rpartition("/")[0])
        spec.loader.exec_module(module)
    except FoldlogError as error:
        raise CaptureError(f"{path}: {error}") from error
    except Exception as error:
        raise CaptureError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        _declared.reset(token)
        sys.path[:] = before
    if not found:
        raise InvalidArgument(f"{path} declares no capture; say: shop = foldlog.capture.postgres('postgresql://…')")
    return found
