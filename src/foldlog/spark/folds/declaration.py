"""What a pipeline is made of: topics with a schema, and folds from them into views. Nothing runs, and nothing connects
but to a schema registry, where the schema is in one.

import foldlog.spark as fl

payments = fl.topic("payments", key="tx_id", schema="merchant STRING, amount_paise BIGINT")

@fl.fold(payments, into=fl.table("shop.db", "payments"))
def mirror(rows): return rows
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from foldlog.client.fold_bulletin import FOLD_GROUP_PREFIX
from foldlog.client.places import parse_points
from foldlog.errors import FoldError, InvalidArgument, UnknownFold, brief_repr
from foldlog.spark.decoders.key_columns import KEY
from foldlog.spark.decoders.record_types import ByField, RecordType, is_record_type
from foldlog.views.contract import META, View
from foldlog.views.local_paths import relative_to
from foldlog.views.topic_lists import listed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

FORMATS: Final = ("json", "avro", "protobuf", "csv", "debezium", "text", "raw")
KEY_FORMATS: Final = ("json", "avro", "protobuf", "debezium")

PIPELINE_MODULE: Final = "foldlog_pipeline_"
"""Prefix of the module names of pipelines that were loaded from files."""

_UNREAD: Final = re.compile(
    r"[\s:<,](?P<type>VARIANT|GEOMETRY|GEOGRAPHY)\s*(?=[,>()]|\bNOT\b|\bCOMMENT\b|$)", re.IGNORECASE
)
"""Matched as types in a DDL; a column may well have such a name."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")

_declared: ContextVar[list[Fold] | None] = ContextVar("_declared", default=None)
"""The folds of the file that is being loaded."""

_topics: ContextVar[dict[str, DeclaredTopic] | None] = ContextVar("_topics", default=None)
"""The topics of the file that is being loaded, which `sql()` may name."""

_all_topics: dict[str, DeclaredTopic] = {}
"""The topics that were declared outside of a file: a name has the last one."""


@dataclass(frozen=True, slots=True)
class DeclaredTopic:
    """A topic as folds read it: the columns that its keys fill, and the schema of its values. `topic()` makes one.

    Users know it as `fl.Topic`; `foldlog.Topic` is a topic in the log's catalog.
    """

    name: str
    keys: tuple[str, ...]
    schema: str | StructType | None
    format: str
    options: Mapping[str, Any] = field(default_factory=dict)
    key_format: str | None = None
    """How keys are parsed into columns; None for one column that is the key."""
    key_options: Mapping[str, Any] = field(default_factory=dict)
    headers: str | StructType | None = None
    """The columns that record headers fill."""
    only: RecordType | None = None
    """Which of its records are read; None for all."""
    names: tuple[str, ...] = ()
    """The topics that are read as one, if it is a list of them."""
    pattern: str | None = None
    """What the names of topics match that are read as one."""

    @property
    def is_several(self) -> bool:
        """Whether it stands for several topics, even if there is one of them just now."""
        return bool(self.names) or self.pattern is not None

    @property
    def key(self) -> str | None:
        """The column that is the record's key; None if there is none, or the key is parsed into columns."""
        return self.keys[0] if self.keys and self.key_format is None else None

    @property
    def record_columns(self) -> tuple[str, ...]:
        """The column that tells records of different keys apart; empty if the topic names no key."""
        if self.key_format is not None:
            return (KEY,)
        return self.keys


class Fold:
    """A deterministic function from records to a change of a view. `fold()` makes one of a function of a DataFrame."""

    def __init__(self, name: str, topic: DeclaredTopic, view: View, function: Callable[[DataFrame], DataFrame]) -> None:
        self.name = name
        self.topic = topic
        self.view = view
        self.function = function
        self.file: str | None = None  # of its declaration, if it was loaded from one
        self.start: str | None = None  # the place where a new view begins; None for the start of the log
        self.__doc__ = function.__doc__

    @property
    def keeps_rows(self) -> bool:
        """Whether its view's rows are replaced by a key of their own: see `View.keeps_rows`."""
        return self.view.keeps_rows(self.topic.keys)

    def __call__(self, rows: DataFrame) -> DataFrame:
        return self.function(rows)

    def __repr__(self) -> str:
        return f"Fold({self.name!r}, {self.topic.name!r} -> {self.view.place!r})"

    @property
    def parts(self) -> Sequence[Fold]:
        """A fold for each topic that it reads: itself, unless it joins several."""
        return (self,)

    @property
    def title(self) -> str:
        """For messages and tables of feeds: its name; with the topic, if it is a part of a join."""
        return self.name

    def close(self) -> None:
        """Close the view's connections; it can be used again afterwards."""
        for part in self.parts:
            part.view.close()

    @property
    def group(self) -> str:
        """The group whose committed offsets show this fold's position to every Kafka tool."""
        return f"{FOLD_GROUP_PREFIX}{self.name}"

    @property
    def dead_letters(self) -> str:
        """The topic for records that do not parse, or that the fold fails at."""
        return f"{self.name}.dead"


class JoinFold(Fold):
    """A fold of two topics, whose function returns `fl.join(left, right, ...)`. Its parts are ordinary folds of one
    topic each, into that topic's side of the join; `topic` and `view` are the left one's.
    """

    def __init__(
        self, name: str, topics: tuple[DeclaredTopic, DeclaredTopic], into: View, function: Callable[..., Any]
    ) -> None:
        left, right = topics
        sides = into.joined((bool(left.keys), bool(right.keys)))
        if sides is None:
            raise InvalidArgument(
                f"a fold of two topics keeps both sides of its join beside it, in one transaction, which"
                f" {into.place} cannot; give a table of SQLite or PostgreSQL, into=fl.table('shop.db', '{name}'), or a"
                f" topic, into=fl.changes('{name}'), and fold that topic into the view that you want"
            )
        super().__init__(name, left, sides[0], function)
        self._parts = (JoinPart(self, 0, left, sides[0]), JoinPart(self, 1, right, sides[1]))

    @property
    def parts(self) -> tuple[JoinPart, JoinPart]:
        return self._parts

    @property
    def topics(self) -> tuple[DeclaredTopic, ...]:
        return tuple(part.topic for part in self._parts)

    def __call__(self, rows: DataFrame) -> DataFrame:
        raise FoldError(f"fold {self.name!r} joins two topics, so it is called with the rows of both")

    def __repr__(self) -> str:
        return f"JoinFold({self.name!r}, {', '.join(repr(one.name) for one in self.topics)} -> {self.view.place!r})"


class JoinPart(Fold):
    """One topic of a join: a function of its rows to the rows of its side."""

    def __init__(self, whole: JoinFold, number: int, source: DeclaredTopic, view: View) -> None:
        super().__init__(whole.name, source, view, whole.function)
        self.whole = whole
        self.number = number
        self.no_rows: DataFrame | None = None  # of its topic: see `foldlog.spark.joins`

    @property
    def title(self) -> str:
        return f"{self.name}/{self.topic.name}"

    def __call__(self, rows: DataFrame) -> DataFrame:
        from foldlog.spark.joins import side_of

        return side_of(self, rows)


def topic(
    name: str | Sequence[str] | None = None,
    *,
    pattern: str | None = None,
    key: str | Sequence[str] | None = None,
    schema: str | StructType | None = None,
    format: str = "json",  # noqa: A002 as Spark's own readers call it
    key_format: str | None = None,
    key_options: Mapping[str, Any] | None = None,
    headers: str | StructType | None = None,
    only: RecordType | None = None,
    **options: Any,
) -> DeclaredTopic:
    """A topic to fold.

    `key` names the column that the record's key fills, as STRING unless the schema gives it another type; tombstones
    have it too. `schema` is Spark's DDL, or a StructType. `format` is "json" (the default), "avro", "protobuf", "csv"
    or "debezium" (see docs/decoders.md for their options), "text" (the value as the STRING column `value`) or "raw" (as
    BINARY). With schema="registry" both come from the schema registry at `registry`, which is asked now: see
    docs/registry.md.

    With `key_format` ("json", "avro", "protobuf" or "debezium", with its `key_options`), keys are parsed into the
    columns that `key` lists.

    `headers` is a DDL, or a StructType, of columns that record headers of these names fill. With `only`, records of
    other types are left out: `fl.by_field("type", "order")`, `fl.by_header(...)` or `fl.by_schema(...)`.

    A list of names, or a `pattern` that whole names match, reads several topics as one: see docs/several_topics.md.

    >>> topic("payments", key="tx_id", schema="amount_paise BIGINT").format
    'json'
    """
    name, names = _checked_names(name, pattern)
    if format not in FORMATS:
        raise InvalidArgument(f"format={brief_repr(format)} of topic {name!r} is not one of {', '.join(FORMATS)}")
    if schema == "registry":
        from foldlog.spark.decoders.registered import taken_schema

        schema, format, options = taken_schema(name, options)  # noqa: A001 as above
    if schema is not None and not isinstance(schema, str) and type(schema).__name__ != "StructType":
        raise InvalidArgument(
            f"the schema of topic {name!r} is Spark's DDL, such as 'merchant STRING, amount_paise BIGINT', or a"
            f" StructType, not {brief_repr(schema)}"
        )
    unread = _UNREAD.search(schema) if isinstance(schema, str) else None
    if unread is not None:
        way_out = (
            "take out what you need in the fold: variant_get(parse_json(...), ...), or name its fields: STRUCT<...>"
        )
        raise InvalidArgument(
            f"the schema of topic {name!r} has a {unread['type'].upper()}, which no format fills; declare it as STRING"
            " if the values have it in a text" + (f", and {way_out}" if unread["type"].upper() == "VARIANT" else "")
        )
    if format in ("json", "csv", "debezium") and not schema:
        raise InvalidArgument(
            f"topic {name!r} needs a schema, such as schema='merchant STRING, amount_paise BIGINT';"
            " or format='text' for values as they are"
        )
    if format in ("text", "raw") and schema:
        raise InvalidArgument(
            f"topic {name!r} has format={format!r}, whose one column is 'value'; leave the schema out"
        )
    if format == "debezium" and key is not None and key_format is None:
        key_format = "debezium"  # its keys are objects, of one field or more
    keys = _checked_keys(name, key, key_format, key_options)
    _check_headers_and_type(name, format, headers, only)
    made = DeclaredTopic(
        name, keys, schema, format, options, key_format, dict(key_options or {}), headers, only, names, pattern
    )
    declared_topics()[name] = made
    return made


def _checked_names(name: object, pattern: object) -> tuple[str, tuple[str, ...]]:
    """What a topic is called in messages, and the names that it stands for, if it is a list."""
    if pattern is not None:
        if name is not None:
            raise InvalidArgument("a topic is given by its name, a list of names, or a pattern: one of them")
        try:
            re.compile(pattern if isinstance(pattern, str) and pattern else "(")
        except re.error as error:
            why = error if isinstance(pattern, str) and pattern else "give a text"
            raise InvalidArgument(
                f"pattern={brief_repr(pattern)} is not a regular expression, such as 'orders-.*': {why}"
            ) from None
        return f"/{pattern}/", ()
    if isinstance(name, list | tuple):
        wrong = next((one for one in name if not _is_name(one) or "," in one), None)
        if wrong is not None or not name or len(set(name)) < len(name):
            raise InvalidArgument(f"{brief_repr(name)} is not a list of different names of topics")
        return listed(name), tuple(name)
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a topic is named by a string, not by {brief_repr(name)}")
    return name, ()


def declared_topics() -> dict[str, DeclaredTopic]:
    """The topics that were declared, by name, the last of each: of the file that is being loaded, or outside of one."""
    loading = _topics.get()
    return _all_topics if loading is None else loading


def _check_headers_and_type(topic: str, value_format: str, headers: object, only: object) -> None:
    if headers is not None and not (isinstance(headers, str) and headers) and type(headers).__name__ != "StructType":
        raise InvalidArgument(
            f"headers of topic {topic!r} are columns, as in headers='trace_id STRING', not {brief_repr(headers)}"
        )
    if only is not None and not is_record_type(only):
        raise InvalidArgument(
            f"only={brief_repr(only)} of topic {topic!r} is not a type of records: give fl.by_field('type', 'order'),"
            " fl.by_header(...) or fl.by_schema(...)"
        )
    if isinstance(only, ByField) and value_format != "json":
        raise InvalidArgument(
            f"topic {topic!r} has format={value_format!r}, and by_field() reads JSON; use by_schema() or by_header(),"
            " or filter in the fold"
        )


def _checked_keys(topic: str, key: object, key_format: str | None, key_options: object) -> tuple[str, ...]:
    """The columns of the key; InvalidArgument if they, or how they are parsed, make no sense."""
    names = (key,) if isinstance(key, str) or key is None else key
    if not isinstance(names, list | tuple) or not names or len(set(map(str, names))) < len(names):
        raise InvalidArgument(f"key={brief_repr(key)} of topic {topic!r} is not a column, or a list of columns")
    for one in names:
        if one is not None and (not _is_name(one) or one in (*META, KEY)):
            raise InvalidArgument(f"key={brief_repr(one)} of topic {topic!r} is not a name for a column")
    _check_key_format(topic, len(names), key is not None, key_format, key_options)
    return tuple(one for one in names if one is not None)


def _check_key_format(topic: str, columns: int, has_key: bool, key_format: str | None, key_options: object) -> None:
    if key_format is not None and key_format not in KEY_FORMATS:
        raise InvalidArgument(
            f"key_format={brief_repr(key_format)} of topic {topic!r} is not one of {', '.join(KEY_FORMATS)}; without"
            " one, the key is one column: a text, bytes or a number"
        )
    if key_format is not None and not has_key:
        raise InvalidArgument(f"topic {topic!r} has a key_format, and names no columns to fill: key=['region', 'id']")
    if key_format is None and columns > 1:
        raise InvalidArgument(
            f"the key of topic {topic!r} is to fill {columns} columns, so say how to parse it: key_format='json'"
        )
    if key_options is not None and (key_format is None or not isinstance(key_options, Mapping)):
        raise InvalidArgument(f"key_options of topic {topic!r} are a dict of options of its key_format")


def _is_name(given: object) -> bool:
    return isinstance(given, str) and bool(given)


def fold(
    *sources: DeclaredTopic, into: View, name: str | None = None, start: str | int | None = None
) -> Callable[[Callable[..., Any]], Fold]:
    """Make a fold of a function from decoded rows to the rows of the view.

    The rows have the topic's columns and `_topic, _partition, _offset, _timestamp, _deleted`. The function may filter,
    explode, join static frames and use any row-wise function of Spark; aggregation belongs into the view's measures.
    The fold has the function's name, unless `name` is given. With two topics, the function gets the rows of both, and
    returns their `fl.join` or `fl.join_asof`.

    `start` is where a new view begins: "latest", "earliest" (the default), or a place (docs/places.md), such as an
    offset, "0=1200,1=900" or "@2026-01-15T10:30Z".
    """
    _check_sources(sources, into)
    begins = _checked_start(start)

    def declare(function: Callable[..., Any]) -> Fold:
        if not callable(function):
            raise InvalidArgument(f"a fold is made of a function of a DataFrame, not of {brief_repr(function)}")
        chosen = name if name is not None else getattr(function, "__name__", "")
        if not isinstance(chosen, str) or not _NAME.fullmatch(chosen):
            raise InvalidArgument(
                f"{brief_repr(chosen)} is not a name for a fold: letters, digits, '.', '_' and '-'; give name='...'"
            )
        made = (
            Fold(chosen, sources[0], _grown(sources[0], into), function)
            if len(sources) == 1
            else JoinFold(chosen, (sources[0], sources[1]), into, function)
        )
        for part in made.parts:
            part.start = begins
        declared = _declared.get()
        if declared is not None:
            declared.append(made)
        return made

    return declare


def _grown(source: DeclaredTopic, into: View) -> View:
    """The view, with columns for fields that the topic's schema does not name, if the topic says so."""
    if source.options.get("on_new_column") != "add":
        return into
    from foldlog.views.growing import GrowingView

    return GrowingView(into)


def _check_reduction(source: DeclaredTopic, into: View) -> None:
    if into.reduction is None:
        return
    if source.key is None:
        raise InvalidArgument(
            f"a state is kept by one column that is the record's key, and the key of topic {source.name!r} is parsed"
            f" into {', '.join(source.keys)}; declare it as one column: fl.topic({source.name!r}, key='id')"
        )
    key = into.reduction.key
    if key is not None and key != source.key:
        raise InvalidArgument(
            f"a state is kept for each key of its topic, {source.key!r} of {source.name!r}, and not for {key!r}: its"
            " records may lie in several partitions, which have no order; write them to a topic with that key, or count"
            " with fl.counters(), where the order does not matter"
        )


def _check_sources(sources: tuple[DeclaredTopic, ...], into: View) -> None:
    for source in sources:
        if not isinstance(source, DeclaredTopic):
            raise InvalidArgument(f"a fold reads a topic made by fl.topic(), not {brief_repr(source)}")
    if not isinstance(into, View):
        raise InvalidArgument(
            f"into={brief_repr(into)} is not a view; give fl.table(), fl.search(), fl.counters(), ..."
        )
    if len(sources) == 1 and into.follows_keys and not sources[0].keys and not into.keeps_rows(()):
        own = {
            "table": "; or give rows a key of their own, fl.table(..., key='...'), or keep them all, mode='append'",
            "lake": "; or keep all rows: mode='append'",
        }.get(into.kind, "")
        raise InvalidArgument(
            f"a {into.kind} view addresses its rows by key, and topic {sources[0].name!r} names none;"
            f" say which column the record's key fills: fl.topic({sources[0].name!r}, key='...'){own}"
        )
    if not 1 <= len(sources) <= 2:
        raise InvalidArgument(f"a fold reads one topic, or joins two, not {len(sources)}")
    if len({source.name for source in sources}) < len(sources):
        raise InvalidArgument(f"a fold joins two topics, and {sources[0].name!r} is one; it cannot be joined to itself")
    if len(sources) > 1 and any(source.options.get("on_new_column") == "add" for source in sources):
        raise InvalidArgument(
            "on_new_column='add' adds columns to the table or lake of one topic, and this fold joins two; use 'keep'"
        )
    if into.reduction is not None and len(sources) > 1:
        raise InvalidArgument("a state follows the records of one topic, and this fold joins two; reduce one of them")
    _check_reduction(sources[0], into)
    _check_several(sources, into)


def _check_several(sources: tuple[DeclaredTopic, ...], into: View) -> None:
    several = next((source for source in sources if source.is_several), None)
    if several is None:
        return
    if len(sources) > 1:
        raise InvalidArgument(
            f"{several.name} is several topics, and a join knows the rows of a side by the keys of one; write them into"
            " one topic first, into=fl.changes(...), and join that"
        )
    if into.reduction is not None:
        raise InvalidArgument(
            f"a state follows the records of a key in their order, and {several.name} is several topics, which have no"
            " order; write them to one topic, or count with fl.counters(), where the order does not matter"
        )


def _checked_start(start: object) -> str | None:
    """The place as docs/places.md spells it; InvalidArgument if it is none."""
    if start is None or start == "earliest":
        return None
    if isinstance(start, bool) or not isinstance(start, str | int):
        raise InvalidArgument(
            f"start={brief_repr(start)} is not a place in a topic; give 'latest', an offset or '@-6h'"
        )
    place = "end" if start == "latest" else str(start)
    try:
        return parse_points(place).portable  # as it is meant on this machine, wherever it runs later
    except InvalidArgument as error:
        raise InvalidArgument(f"start={brief_repr(start)}: {error}") from error


def load_folds(path: str | Path) -> list[Fold]:
    """Run a file and return the folds it declares, in order. FoldError, in one sentence, if it cannot be run."""
    file = Path(path)
    if not file.is_file():
        raise InvalidArgument(f"there is no file {file}; a pipeline is a Python file that declares folds")
    name = f"{PIPELINE_MODULE}{file.stem}"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InvalidArgument(f"{file} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module  # pickling looks functions up by their module
    found: list[Fold] = []
    token = _declared.set(found)
    topics_token = _topics.set({})
    try:
        # The file can import the modules beside it, as if it were run as a script.
        sys.path.insert(0, str(file.resolve().parent))
        with relative_to(str(file.resolve().parent)):
            spec.loader.exec_module(module)
    except FoldError:
        raise
    except InvalidArgument as error:
        raise FoldError(f"{_where(file, error)}: {error}") from error
    except Exception as error:
        raise FoldError(f"{_where(file, error)} cannot be run: {_told(error)}") from error
    finally:
        _declared.reset(token)
        _topics.reset(topics_token)
    if not found:
        raise InvalidArgument(f"{file} declares no folds; decorate a function with @fl.fold(topic, into=view)")
    check_distinct(found)
    check_order(found)
    for one in found:
        one.file = str(file.resolve())
    return found


def _where(file: Path, error: BaseException) -> str:
    """The file and the line in it that failed."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file.absolute()):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{file}, line {line}" if line else str(file)


def _told(error: Exception) -> str:
    # PySpark reports a missing session with an error of its own, or with an assertion without a message.
    if "SESSION_OR_CONTEXT_NOT_EXISTS" in str(error) or _is_asserted_by_spark(error):
        return "it uses Spark while it is loaded, before there is a session; do that inside the function of the fold"
    return f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"


def _is_asserted_by_spark(error: Exception) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return isinstance(error, AssertionError) and where.partition(".")[0] == "pyspark"


def check_distinct(folds: Sequence[Fold]) -> None:
    """InvalidArgument if two folds share a name or a view."""
    names: set[str] = set()
    owners: dict[str, str] = {}
    for one in folds:
        if one.name in names:
            raise InvalidArgument(f"two folds are named {one.name!r}; give one of them name='...'")
        names.add(one.name)
        other = owners.setdefault(one.view.place, one.name)
        if other != one.name:
            raise InvalidArgument(
                f"folds {other!r} and {one.name!r} both write {one.view.place}; give each its own view"
            )


def check_order(folds: Sequence[Fold]) -> None:
    """FoldError if a fold reads what it writes, also by way of others."""
    from foldlog.spark.change_topics.pipelines import graph_of

    graph_of(folds)


def chosen_folds(folds: Sequence[Fold], names: Sequence[str]) -> list[Fold]:
    """The folds with these names; all of them if none is given."""
    known = {one.name: one for one in folds}
    for name in names:
        if name not in known:
            raise UnknownFold(name, known)
    return [one for one in folds if not names or one.name in names]
