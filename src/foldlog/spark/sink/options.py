"""Options and columns of `df.write` and `df.writeStream`: those of Spark's Kafka sink, and more.

Options: exactly one of `path` and `kafka.bootstrap.servers`; `topic`, which overrides the column of that name;
`compression` (or `kafka.compression.type`); `createTopic`, the number of partitions for topics that do not exist, which
are refused without it; in a batch `txnAppId` with `txnVersion`, as in Delta: rows of a version that was written before
are not written again; and by `kafka.bootstrap.servers` `exactlyOnce` (true), which needs a broker with transactions.

Columns: `value` is required, `key`, `headers`, `topic`, `partition` and `timestamp` are used. `offset` and
`timestampType` are set by the log, and ignored, so that rows that were read can be written. Any other column is
refused, since it would be lost; Spark's Kafka sink drops it silently. All output modes of a stream append, `complete`
the whole result each time, as in Spark's Kafka sink.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from foldlog.errors import InvalidArgument, UnknownTopic, brief_repr
from foldlog.limits import PARTITIONS_MAX, STAGED_TRANSACTION_MS
from foldlog.records.batch import MAX_INT32, Compression
from foldlog.spark.origins.origin import OriginSpec
from foldlog.spark.source.options import origin_spec

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

USED_COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "timestamp")
IGNORED_COLUMNS: Final = ("offset", "timestampType")
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"
_WHOLE_NUMBER: Final = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All options of a writer, checked. `topic` None: the column names it. `compression` is Kafka's number.

    `application` and `version` identify a batch write that may be repeated; both or none. Without `exactly_once` the
    tasks append as they run, which is possible by wire only.
    """

    origin: OriginSpec
    topic: str | None = None
    compression: int = 0
    partitions_of_new_topics: int | None = None
    application: str | None = None
    version: int | None = None
    exactly_once: bool = True

    @property
    def transaction_timeout_ms(self) -> int:
        """How long a commit by wire may take. InvalidArgument if the property is no such number."""
        told = self.origin.properties.get(_TRANSACTION_TIMEOUT, str(STAGED_TRANSACTION_MS)).strip()
        if not _WHOLE_NUMBER.fullmatch(told) or not 1 <= int(told) <= MAX_INT32:
            raise InvalidArgument(
                f"kafka.{_TRANSACTION_TIMEOUT}={brief_repr(told)} is not a whole number from 1 to {MAX_INT32}"
            )
        return int(told)


def sink_options(given: Mapping[str, str], schema: StructType, *, overwrite: bool, is_stream: bool) -> SinkOptions:
    """The checked options. InvalidArgument, in one sentence, if the options, the columns or the mode are wrong."""
    if overwrite and not is_stream:
        raise InvalidArgument(
            "a log is only appended to: use mode('append'); to begin anew, delete the topic or its records first"
        )
    texts = {name.lower(): value for name, value in given.items()}
    topic = _text(texts, "topic")
    check_columns(schema, has_topic=topic is not None)
    application, version = _transaction(texts, is_stream=is_stream)
    origin = origin_spec(given)
    options = SinkOptions(
        origin=origin,
        topic=topic,
        compression=_compression(texts),
        partitions_of_new_topics=_partitions(texts),
        application=application,
        version=version,
        exactly_once=_exactly_once(texts, origin, is_named=application is not None),
    )
    if origin.path is None:
        _ = options.transaction_timeout_ms  # refused before any row is packed
    return options


def _exactly_once(texts: Mapping[str, str], origin: OriginSpec, *, is_named: bool) -> bool:
    text = (_text(texts, "exactlyOnce") or "true").lower()
    if text not in ("true", "false"):
        raise InvalidArgument(f"exactlyOnce={brief_repr(text)} is neither true nor false")
    if text == "true":
        return True
    if origin.path is not None:
        raise InvalidArgument("exactlyOnce=false is for kafka.bootstrap.servers; by path rows are always written once")
    if is_named:
        raise InvalidArgument("txnAppId and txnVersion need exactlyOnce=true: a version is written once, or not at all")
    return False


def _text(texts: Mapping[str, str], name: str) -> str | None:
    given = texts.get(name.lower())
    if given is not None and not given.strip():
        raise InvalidArgument(f"{name} is empty; give it a value, or leave it out")
    return None if given is None else given.strip()


def _compression(texts: Mapping[str, str]) -> int:
    """The sink's own option overrides the property of Kafka's producer."""
    name = "compression" if "compression" in texts else "kafka.compression.type"
    text = _text(texts, name)
    return int(Compression.NONE if text is None else Compression.named(text.lower()))


def _partitions(texts: Mapping[str, str]) -> int | None:
    text = _text(texts, "createTopic")
    if text is None:
        return None
    if not _WHOLE_NUMBER.fullmatch(text) or not 1 <= int(text) <= PARTITIONS_MAX:
        raise InvalidArgument(
            f"createTopic={brief_repr(text)} is not a number of partitions; it is a whole number from 1 to"
            f" {PARTITIONS_MAX}"
        )
    return int(text)


def _transaction(texts: Mapping[str, str], *, is_stream: bool) -> tuple[str | None, int | None]:
    application, version = _text(texts, "txnAppId"), _text(texts, "txnVersion")
    if application is None and version is None:
        return None, None
    if is_stream:
        raise InvalidArgument("txnAppId and txnVersion are for batch writes; a stream has its query and batch ids")
    if application is None or version is None:
        raise InvalidArgument("txnAppId and txnVersion go together: who writes, and which of its writes this is")
    if not _WHOLE_NUMBER.fullmatch(version):
        raise InvalidArgument(f"txnVersion={brief_repr(version)} is not a whole number from 0 on")
    return application, int(version)


def with_create_option(error: UnknownTopic) -> UnknownTopic:
    """The error, with the sink's option createTopic in its advice."""
    error.args = (f"{error}, or let the sink make it with the option createTopic=<number of partitions>",)
    return error


def check_columns(schema: StructType, *, has_topic: bool) -> None:
    """InvalidArgument unless rows of that schema can be records."""
    names = schema.names
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidArgument(f"there are {names.count(twice[0])} columns {twice[0]!r}; drop all but one")
    if "value" not in names:
        raise InvalidArgument(
            f"there is no column 'value' to write; there are {', '.join(names) or 'none'}; make one, such as"
            " to_json(struct('*')) AS value"
        )
    for name in names:
        if name not in USED_COLUMNS and name not in IGNORED_COLUMNS:
            raise InvalidArgument(
                f"column {name!r} would be lost: a record has {', '.join(USED_COLUMNS)};"
                " put it into the value, or drop it"
            )
    if "topic" not in names and not has_topic:
        raise InvalidArgument("no topic was given: set the option 'topic', or have a column 'topic'")
    for field in schema.fields:
        allowed = _refused_type(field.name, field.dataType)
        if allowed is not None:
            raise InvalidArgument(
                f"column {field.name!r} is {field.dataType.simpleString()}; it has to be {allowed}; cast it first"
            )


def _refused_type(name: str, kind: DataType) -> str | None:
    """The type that the column should have; None if it has it."""
    from pyspark.sql import types

    text = (types.StringType, types.CharType, types.VarcharType)
    if name in ("key", "value"):
        return None if isinstance(kind, (*text, types.BinaryType, types.NullType)) else "string or binary"
    if name == "topic":
        return None if isinstance(kind, text) else "string"
    if name == "partition":
        whole = (types.ByteType, types.ShortType, types.IntegerType, types.NullType)
        return None if isinstance(kind, whole) else "int"
    if name == "timestamp":
        return None if isinstance(kind, (types.TimestampType, types.NullType)) else "timestamp"
    if name == "headers":
        return None if _are_headers(kind) else _HEADERS
    return None


def _are_headers(kind: DataType) -> bool:
    from pyspark.sql import types

    if isinstance(kind, types.NullType):
        return True
    if not isinstance(kind, types.ArrayType) or not isinstance(kind.elementType, types.StructType):
        return False
    fields = {field.name: field.dataType for field in kind.elementType.fields}
    return (
        list(fields) == ["key", "value"]
        and isinstance(fields["key"], types.StringType)
        and isinstance(fields["value"], types.BinaryType)
    )
