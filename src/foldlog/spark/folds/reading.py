"""Ranges of a topic as DataFrames of decoded rows. Planned by the driver, read and decoded by the Python workers.

The workers open the log, gather the columns and decode them to Arrow, so that rows cross into the JVM once, typed, and
only the columns that the fold uses: crossing is what costs, 0.1 us a row and column each way. Where a fold takes its
rows as they are, Spark has nothing to plan and the JVM nothing to look at: whole batches cross as bytes, in a job that
has no plan and less than half the fixed cost. Records that do not parse are counted and left out; a second look at the
same range brings them, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 as everybody calls it
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from foldlog.errors import FoldError
from foldlog.spark.decoders.decoder import Decoder, KeyDecoder, decoder_for, key_decoder
from foldlog.spark.folds.declaration import Topic
from foldlog.spark.folds.ranges import split_for_tasks
from foldlog.spark.folds.spark_errors import brief_spark_error
from foldlog.spark.origins.origin import OffsetRange, OriginSpec, open_origin
from foldlog.spark.workers import packed_for_workers
from foldlog.views.contract import DELETED, META, OFFSET, PARTITION, TIMESTAMP, TOPIC

if TYPE_CHECKING:
    import pyarrow as pa

SMALLEST_TASK: Final = 20_000
"""Offsets below which a second task costs more than it saves."""

NO_KEY: Final = "the record has no key"

_META_TYPES: Final = T.StructType(
    [
        T.StructField(TOPIC, T.StringType(), False),
        T.StructField(PARTITION, T.IntegerType(), False),
        T.StructField(OFFSET, T.LongType(), False),
        T.StructField(TIMESTAMP, T.TimestampType(), False),
        T.StructField(DELETED, T.BooleanType(), False),
    ]
)
_DEAD: Final = T.StructType(
    [
        T.StructField(PARTITION, T.IntegerType(), False),
        T.StructField(OFFSET, T.LongType(), False),
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("reason", T.StringType(), False),
    ]
)


class Seen(NamedTuple):
    """What the tasks of a range met. Hints, not results: a task that ran twice, or ended late, counts too much."""

    records: int = 0
    dead: int = 0
    bytes: int = 0


class _Sum(AccumulatorParam[Seen]):
    """Adds up what tasks have met."""

    def zero(self, value: Seen) -> Seen:
        return Seen()

    def addInPlace(self, value1: Seen, value2: Seen) -> Seen:  # noqa: N802 Spark's name
        return Seen(*(one + other for one, other in zip(value1, value2, strict=True)))


@dataclass(frozen=True)
class RangeReader:
    """What one task does; travels to the workers. `look` says which records it gives: see `TopicFrames`."""

    spec: OriginSpec
    topic_id: str
    tasks: Sequence[Sequence[OffsetRange]]
    key: str | None
    keys: KeyDecoder | None
    values: Decoder
    needs_key: bool
    schema: pa.Schema
    look: Literal["rows", "dead"]
    seen: Accumulator[Seen] | None = field(default=None)

    def read(self, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """The records of the tasks with these numbers."""
        origin = open_origin(self.spec)
        try:
            for number in numbers:
                for wanted, records in origin.read_all(self.tasks[number], self._columns(), topic_id=self.topic_id):
                    found = self._decoded(records, wanted)
                    if found.num_rows:
                        yield found
        finally:
            origin.close()

    def _columns(self) -> list[str]:
        """What has to be gathered of the log for the columns that are wanted."""
        columns = ["value"]  # a value that does not parse is noticed even if nothing of it is used
        if self.keys is not None or self.look == "dead":
            columns.append("key")
        columns += [name for column, name in ((OFFSET, "offset"), (TIMESTAMP, "timestamp")) if self._wants(column)]
        return columns

    def _wants(self, column: str) -> bool:
        return column in self.schema.names

    def _decoded(self, records: pa.RecordBatch, wanted: OffsetRange) -> pa.RecordBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        values = records.column("value")
        arrays, reasons = self.values.decode(values)
        columns = dict(zip(self.values.schema.names, arrays, strict=True))
        if self.key is not None and self.keys is not None:
            columns[self.key], reasons = self._key(records.column("key"), reasons)
        if self.look == "dead":
            return self._dead(records, wanted, reasons)
        deleted = pc.is_null(values)
        if self.seen is not None:
            dead = 0 if reasons is None else len(reasons) - reasons.null_count
            self.seen.add(Seen(records.num_rows, dead, records.nbytes))
        columns[DELETED] = deleted
        if self._wants(PARTITION):
            columns[PARTITION] = pa.repeat(pa.scalar(wanted.partition, pa.int32()), records.num_rows)
        if self._wants(TOPIC):
            columns[TOPIC] = pa.repeat(pa.scalar(wanted.topic, pa.string()), records.num_rows)
        if self._wants(OFFSET):
            columns[OFFSET] = records.column("offset")
        if self._wants(TIMESTAMP):
            columns[TIMESTAMP] = records.column("timestamp").cast(pa.timestamp("us", tz="UTC"))
        found = pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)
        keep = None if reasons is None else pc.is_null(reasons)
        return found if keep is None else found.filter(keep)

    def _key(self, keys: pa.Array, reasons: pa.StringArray | None) -> tuple[pa.Array, pa.StringArray | None]:
        import pyarrow.compute as pc

        if self.keys is None:
            raise FoldError("a topic without a key column has no keys to decode")
        decoded, key_reasons = self.keys.decode(keys)
        if self.needs_key and keys.null_count:
            missing = pc.if_else(pc.is_null(keys), NO_KEY, None)
            key_reasons = missing if key_reasons is None else pc.coalesce(missing, key_reasons)
        if key_reasons is None:
            return decoded, reasons
        return decoded, key_reasons if reasons is None else pc.coalesce(key_reasons, reasons)

    def _dead(self, records: pa.RecordBatch, wanted: OffsetRange, reasons: pa.StringArray | None) -> pa.RecordBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = records.num_rows
        columns = [
            pa.repeat(pa.scalar(wanted.partition, pa.int32()), rows),
            records.column("offset"),
            records.column("key"),
            records.column("value"),
            pa.nulls(rows, pa.string()) if reasons is None else reasons,
        ]
        dead = pc.is_valid(columns[-1])
        kept = [column.filter(dead) for column in columns]
        return pa.RecordBatch.from_arrays(kept, schema=self.schema)


class TopicFrames:
    """Makes DataFrames of ranges of one topic. The driver's; one thread at a time."""

    def __init__(self, spark: SparkSession, topic: Topic, spec: OriginSpec, topic_id: str) -> None:
        self._spark = spark
        self._spec = spec
        self._topic_id = topic_id
        self._key = topic.key
        given = _parsed(topic)
        self._values, fields = _value_columns(topic, given)
        columns = list(fields)
        self._keys: KeyDecoder | None = None
        if topic.key is not None:
            typed = next((one.dataType for one in given or () if one.name == topic.key), T.StringType())
            one_column = T.StructType([T.StructField(topic.key, typed)])
            self._keys = key_decoder(to_arrow_schema(one_column, timezone="UTC").field(0).type)
            columns.insert(0, one_column[0])
        clash = sorted({one.name for one in columns} & set(META))
        if clash:
            raise FoldError(f"topic {topic.name!r} has a column {clash[0]!r}, which every row has anyway; rename it")
        self._seen = spark.sparkContext.accumulator(Seen(), _Sum())
        self.schema = T.StructType([*columns, *_META_TYPES])
        """What a fold is given."""

    def rows(
        self,
        ranges: Sequence[OffsetRange],
        seen: Accumulator[Seen] | None,
        *,
        needs_key: bool,
        used: frozenset[str] | None = None,
    ) -> DataFrame:
        """The rows of these ranges. Columns that are not `used` are null and cost nothing."""
        schema = self.schema if used is None else T.StructType([one for one in self.schema if one.name in used])
        if not schema.fields:
            schema = T.StructType([one for one in self.schema if one.name == DELETED])
        frame = self._frame(ranges, schema, "rows", needs_key, seen)
        if len(schema) == len(self.schema):
            return frame
        return frame.select(
            *(
                F.col(f"`{one.name}`") if one.name in schema.names else F.lit(None).cast(one.dataType).alias(one.name)
                for one in self.schema
            )
        )

    def table(self, ranges: Sequence[OffsetRange], seen: Accumulator[Seen] | None, *, needs_key: bool) -> pa.Table:
        """All columns of these ranges, past Spark's rows: for folds that take them as they are."""
        return self._table(ranges, self.schema, seen, needs_key=needs_key)

    def keys(self, ranges: Sequence[OffsetRange]) -> pa.Table:
        """The key and META of every record of these ranges that parses and has a key."""
        names = {*META, *([self._key] if self._key else [])}
        schema = T.StructType([one for one in self.schema if one.name in names])
        return self._table(ranges, schema, None, needs_key=True)

    def _table(
        self, ranges: Sequence[OffsetRange], schema: T.StructType, seen: Accumulator[Seen] | None, *, needs_key: bool
    ) -> pa.Table:
        import pyarrow as pa

        reader = self._reader(ranges, schema, "rows", needs_key, seen)
        count = len(reader.tasks)
        packed = self._spark.sparkContext.parallelize(range(count), count).mapPartitions(_packing(reader)).collect()
        batches = [pa.ipc.read_record_batch(pa.py_buffer(data), reader.schema) for data in packed]
        return pa.Table.from_batches(batches, schema=reader.schema)

    def empty(self) -> DataFrame:
        """No rows, of the same columns: to see what a fold makes of them."""
        return self._frame([], self.schema, "rows", False, None)

    def dead(self, ranges: Sequence[OffsetRange], *, needs_key: bool) -> pa.Table:
        """What does not parse, with the reason: columns _partition, _offset, key, value, reason."""
        return self._frame(ranges, _DEAD, "dead", needs_key, None).toArrow()

    def count(self) -> Accumulator[Seen]:
        """The count, begun anew for one range. There is one for all: Spark's Python never forgets one that was made."""
        self._seen.value = Seen()
        return self._seen

    def _frame(
        self,
        ranges: Sequence[OffsetRange],
        schema: T.StructType,
        look: Literal["rows", "dead"],
        needs_key: bool,
        seen: Accumulator[Seen] | None,
    ) -> DataFrame:
        reader = self._reader(ranges, schema, look, needs_key, seen)
        count = len(reader.tasks)
        return self._spark.range(0, count, 1, count).mapInArrow(_reading(reader), schema)

    def _reader(
        self,
        ranges: Sequence[OffsetRange],
        schema: T.StructType,
        look: Literal["rows", "dead"],
        needs_key: bool,
        seen: Accumulator[Seen] | None,
    ) -> RangeReader:
        return RangeReader(
            spec=self._spec,
            topic_id=self._topic_id,
            tasks=split_for_tasks(ranges, self._spark.sparkContext.defaultParallelism, SMALLEST_TASK),
            key=self._key,
            keys=self._keys,
            values=self._values,
            needs_key=needs_key,
            schema=to_arrow_schema(schema, timezone="UTC"),
            look=look,
            seen=seen,
        )


def _reading(reader: RangeReader) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Spark wants a plain function of the iterator. Its name stands in the plan: `law` knows the topic's rows by it."""

    unpacked = packed_for_workers(reader)

    def foldlog_rows(batches: Iterator[Any]) -> Iterator[Any]:
        return unpacked().read(number for batch in batches for number in batch.column(0).to_pylist())

    return foldlog_rows


def _packing(reader: RangeReader) -> Callable[[Iterable[int]], Iterator[bytes]]:
    """Whole batches as bytes."""
    unpacked = packed_for_workers(reader)

    def foldlog_batches(numbers: Iterable[int]) -> Iterator[bytes]:
        return (batch.serialize().to_pybytes() for batch in unpacked().read(numbers))

    return foldlog_batches


def _parsed(topic: Topic) -> T.StructType | None:
    """The topic's schema; FoldError if Spark cannot read it."""
    if not topic.schema:
        return None
    try:
        parsed = T.StructType.fromDDL(topic.schema)
    except Exception as error:
        raise FoldError(f"the schema of topic {topic.name!r} cannot be read: {brief_spark_error(error)}") from error
    if not isinstance(parsed, T.StructType):
        raise FoldError(f"the schema of topic {topic.name!r} names no columns; write it as 'merchant STRING, ...'")
    return parsed


def _value_columns(topic: Topic, given: T.StructType | None) -> tuple[Decoder, list[T.StructField]]:
    """The decoder of a topic's values, and the columns it fills. The key's column is filled from the key instead."""
    fields = [one for one in given or () if one.name != topic.key]
    arrow = to_arrow_schema(T.StructType(fields), timezone="UTC") if given is not None else None
    decoder = decoder_for(topic.format, arrow, **topic.options)
    filled = [one for one in from_arrow_schema(decoder.schema) if one.name != topic.key]
    return decoder, [T.StructField(one.name, one.dataType, True) for one in filled]
