"""Ranges of a topic as DataFrames of decoded rows. Planned by the driver, read and decoded by the Python workers.

The workers open the log, gather the columns and decode them to Arrow, so that rows cross into the JVM once, typed.
Crossing costs 0.1 us per row and column each way: columns that a plan certainly does not use cross as nulls, if the job
names the used ones (`TopicFrames.narrowed`). The frame itself always has all of them, as a function may look into it.
If a fold returns its rows unchanged, there is nothing to plan and nothing for the JVM to look at: whole batches cross
as bytes, in a job without a plan and with less than half the fixed cost. Records that do not parse are left out of the
rows; the tasks report them, with the reasons, along with their counts. If a task's report is lost or too large, its
part of the range is read a second time.
"""

from __future__ import annotations

import json
import pickle
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Protocol

from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 as everybody calls it
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from foldlog.errors import FoldError
from foldlog.limits import FOLD_LETTERS_BYTES
from foldlog.spark.decoders.decoder import Decoder, decoder_for, key_decoder, parsed_key_decoder
from foldlog.spark.decoders.headers import HeaderColumns
from foldlog.spark.decoders.key_columns import KEY, KeyColumns
from foldlog.spark.decoders.record_types import RecordType
from foldlog.spark.driver_rows import local_frame
from foldlog.spark.folds.declaration import DeclaredTopic
from foldlog.spark.folds.plans import ROWS_FUNCTION, cache_of
from foldlog.spark.folds.ranges import beyond, split_for_tasks
from foldlog.spark.folds.spark_errors import brief_spark_error
from foldlog.spark.origins.origin import OffsetRange, Origin, OriginSpec, open_origin
from foldlog.spark.workers import packed_for_workers
from foldlog.views.contract import DELETED, META, OFFSET, PARTITION, TIMESTAMP, TOPIC
from foldlog.views.staging import Report, Staging
from foldlog.views.storable import LAST_US
from foldlog.views.topic_lists import located

if TYPE_CHECKING:
    import pyarrow as pa

SMALLEST_TASK: Final = 20_000
"""With fewer offsets, a second task costs more than it saves."""

NO_KEY: Final = "the record has no key"
NO_KEY_AND_VALUE: Final = "the record has no value, and its topic names no key, so nobody knows what it deletes"
_TOO_LATE: Final = " ms, after the year 9999; its writer perhaps counts in a smaller unit"

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


_UNFILLED: Final = re.compile(r"(char|varchar|time|interval|void)\b")
"""Types that no decoder produces."""


def named(column: str) -> Column:
    """A column by its literal name: a dot in it does not select a field of a struct."""
    return F.col(quoted(column))


def quoted(column: str) -> str:
    """A column's literal name in SQL.

    >>> quoted("a`b.c")
    '`a``b.c`'
    """
    return "`" + column.replace("`", "``") + "`"


Packed = bytes
"""A serialized Arrow batch."""


class Seen(NamedTuple):
    """What the tasks of a range counted. Hints, not results: a task that ran twice, or ended late, counts too much."""

    records: int = 0
    dead: int = 0
    bytes: int = 0
    letters: tuple[Packed, ...] = ()
    """The dead records, as batches of `_DEAD`."""
    looked: tuple[OffsetRange, ...] = ()
    """The ranges whose dead records are all among the letters."""

    def with_more(self, other: Seen) -> Seen:
        """Merge two possibly incomplete counts of the same range."""
        counts = (max(self.records, other.records), max(self.dead, other.dead), max(self.bytes, other.bytes))
        return Seen(*counts, self.letters + other.letters, self.looked + other.looked)


Look = Literal["rows", "dead", "tombstones"]


class _Sum(AccumulatorParam[Seen]):
    """Adds up the counts of tasks."""

    def zero(self, value: Seen) -> Seen:
        return Seen()

    def addInPlace(self, value1: Seen, value2: Seen) -> Seen:  # noqa: N802 Spark's name
        one, other = value1, value2
        counts = (one.records + other.records, one.dead + other.dead, one.bytes + other.bytes)
        return Seen(*counts, one.letters + other.letters, one.looked + other.looked)


class Count(Protocol):
    """Adds up what was seen: Spark's accumulator, or the driver's own."""

    @property
    def value(self) -> Seen: ...

    def add(self, term: Seen) -> None: ...


class _NearCount:
    """What the driver has counted itself."""

    def __init__(self) -> None:
        self.value = Seen()

    def add(self, term: Seen) -> None:
        self.value = _Sum().addInPlace(self.value, term)


class _Letters:
    """The dead records of one task, or none of them if they are too large to report."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.bytes = 0

    def add(self, dead: pa.RecordBatch) -> None:
        if self.bytes <= FOLD_LETTERS_BYTES:
            self.bytes += dead.nbytes
            self.parts = [*self.parts, dead.serialize().to_pybytes()] if self.bytes <= FOLD_LETTERS_BYTES else []

    @property
    def are_all(self) -> bool:
        return self.bytes <= FOLD_LETTERS_BYTES


@dataclass(frozen=True)
class RangeDecoder:
    """The work of one task; pickled to the workers. `look` selects the records it returns: see `TopicFrames`."""

    spec: OriginSpec
    topic_id: str
    tasks: Sequence[Sequence[OffsetRange]]
    keys: KeyColumns | None
    headers: HeaderColumns | None
    only: RecordType | None
    values: Decoder
    needs_key: bool
    schema: pa.Schema
    look: Look
    seen: Count | None = field(default=None)
    name: str = ""
    """The local property in which the job names the columns that it uses."""
    used: frozenset[str] | None = None
    """The columns that are filled; None for all."""

    def narrowed(self) -> RangeDecoder:
        """On a worker: limited to the columns that the job names."""
        context = TaskContext.get()
        told = None if context is None else context.getLocalProperty(self.name)
        return self if told is None else replace(self, used=frozenset(json.loads(told)))

    def read(self, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """The records of the tasks with these numbers."""
        origin = open_origin(self.spec)
        try:
            yield from self.read_from(origin, numbers)
        finally:
            origin.close()

    def read_from(self, origin: Origin, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """`read`, from an origin that is open already."""
        for number in numbers:
            letters = _Letters()
            for wanted, records in origin.read_all(self.tasks[number], self._columns(), topic_id=self.topic_id):
                found = self._decoded(records, wanted, letters)
                if found.num_rows:
                    yield found
            if self.seen is not None and letters.are_all:
                self.seen.add(Seen(letters=tuple(letters.parts), looked=tuple(self.tasks[number])))

    def _columns(self) -> list[str]:
        """The log's columns that are needed for the wanted ones."""
        of_type = () if self.only is None else self.only.columns
        if self.look == "tombstones":
            return sorted({"value", "offset", *of_type})
        # A value that does not parse, or a time out of range, makes a dead letter even if the column is not used.
        columns = ["value", "timestamp"]
        tells_dead = self.look == "dead" or self.seen is not None
        if self.keys is not None or tells_dead:
            columns.append("key")
        if self._wants(OFFSET) or tells_dead:
            columns.append("offset")
        if self.headers is not None or "headers" in of_type:
            columns.append("headers")
        return columns

    def _wants(self, column: str) -> bool:
        return column in self.schema.names and (self.used is None or column in self.used)

    def _filled(self, columns: dict[str, Any], rows: int) -> list[Any]:
        """The schema's columns; those that are not wanted are nulls or constants."""
        return [columns[one.name] if self._wants(one.name) else _unused_column(one, rows) for one in self.schema]

    def _decoded(self, records: pa.RecordBatch, wanted: OffsetRange, letters: _Letters) -> pa.RecordBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.only is not None:
            records = records.filter(self.only.of(records))
        values = records.column("value")
        if self.look == "tombstones":
            return self._tombstones(records, wanted)
        arrays, reasons = self.values.decode(values)
        columns = dict(zip(self.values.schema.names, arrays, strict=True))
        if self.keys is not None:
            found, reasons = self._key(self.keys, records.column("key"), reasons)
            columns.update(found)
        elif self.needs_key and values.null_count:
            missing = pc.if_else(pc.is_null(values), NO_KEY_AND_VALUE, None)
            reasons = missing if reasons is None else pc.coalesce(missing, reasons)
        if self.headers is not None:
            found, why = self.headers.decode(records.column("headers"))
            columns.update(found)
            if why is not None:
                reasons = why if reasons is None else pc.coalesce(reasons, why)
        times, reasons = self._times(records, reasons)
        if self.look == "dead":
            return _dead(records, wanted, reasons)
        deleted = _deletions(values, columns)
        if self.seen is not None:
            dead = 0 if reasons is None else len(reasons) - reasons.null_count
            self.seen.add(Seen(records.num_rows, dead, records.nbytes))
            if dead:
                letters.add(_dead(records, wanted, reasons))
        columns[DELETED] = deleted
        if self._wants(PARTITION):
            columns[PARTITION] = pa.repeat(pa.scalar(wanted.partition, pa.int32()), records.num_rows)
        if self._wants(TOPIC):
            topic, _ = located(wanted.topic, wanted.partition)
            columns[TOPIC] = pa.repeat(pa.scalar(topic, pa.string()), records.num_rows)
        if self._wants(OFFSET):
            columns[OFFSET] = records.column("offset")
        if self._wants(TIMESTAMP):
            columns[TIMESTAMP] = times
        found = pa.RecordBatch.from_arrays(self._filled(columns, records.num_rows), schema=self.schema)
        keep = None if reasons is None else pc.is_null(reasons)
        return found if keep is None else found.filter(keep)

    def _tombstones(self, records: pa.RecordBatch, wanted: OffsetRange) -> pa.RecordBatch:
        """The coordinates of records that delete."""
        import pyarrow as pa

        values, names = records.column("value"), self.values.schema.names
        columns = dict(zip(names, self.values.decode(values)[0], strict=True)) if DELETED in names else {}
        numbers = {PARTITION: pa.repeat(pa.scalar(wanted.partition, pa.int32()), records.num_rows)}
        found = pa.RecordBatch.from_pydict({**numbers, OFFSET: records.column("offset")}, schema=self.schema)
        return found.filter(_deletions(values, columns))

    def _key(
        self, columns: KeyColumns, keys: pa.Array, reasons: pa.StringArray | None
    ) -> tuple[dict[str, pa.Array], pa.StringArray | None]:
        import pyarrow.compute as pc

        decoded, key_reasons = columns.decode(keys)
        if self.needs_key and keys.null_count:
            missing = pc.if_else(pc.is_null(keys), NO_KEY, None)
            key_reasons = missing if key_reasons is None else pc.coalesce(missing, key_reasons)
        if key_reasons is None:
            return decoded, reasons
        return decoded, key_reasons if reasons is None else pc.coalesce(key_reasons, reasons)

    def _times(self, records: pa.RecordBatch, reasons: pa.StringArray | None) -> tuple[pa.Array, pa.StringArray | None]:
        """The records' timestamps. Those after the year 9999, as from a producer that sends nanoseconds for
        milliseconds, are a reason for a dead letter. A tombstone with a key deletes whatever its time.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        times = records.column("timestamp").cast(pa.int64())
        last_ms = LAST_US // 1000
        late = pc.greater(times, last_ms)
        if not pc.any(late, min_count=0).as_py():
            return _as_times(times), reasons
        if self.needs_key:
            late = pc.and_(late, pc.is_valid(records.column("value")))
        told = pc.binary_join_element_wise("its timestamp is ", times.cast(pa.string()), _TOO_LATE, "")
        more = pc.if_else(late, told, None)
        held = _as_times(pc.min_element_wise(times, pa.scalar(last_ms)))
        return held, more if reasons is None else pc.coalesce(reasons, more)


def _deletions(values: pa.Array, columns: Mapping[str, Any]) -> pa.Array:
    """Which records delete: those without a value, and those whose decoder says so."""
    import pyarrow.compute as pc

    said = columns.get(DELETED)
    return pc.is_null(values) if said is None else pc.or_(pc.is_null(values), pc.fill_null(said, False))


def _dead(records: pa.RecordBatch, wanted: OffsetRange, reasons: pa.StringArray | None) -> pa.RecordBatch:
    """The records with a reason, as `_DEAD`."""
    import pyarrow as pa

    schema = to_arrow_schema(_DEAD, timezone="UTC")
    if reasons is None:
        return pa.RecordBatch.from_pylist([], schema=schema)
    dead = reasons.is_valid()
    kept = [column.filter(dead) for column in (*map(records.column, ("offset", "key", "value")), reasons)]
    where = pa.repeat(pa.scalar(wanted.partition, pa.int32()), len(kept[0]))
    return pa.RecordBatch.from_arrays([where, *kept], schema=schema)


def _once(letters: pa.Table, ranges: Sequence[OffsetRange]) -> pa.Table:
    """Each record of these ranges once, in order: a task may have reported twice, or for an earlier range."""
    import pyarrow as pa

    coordinates = zip(letters[PARTITION].to_pylist(), letters[OFFSET].to_pylist(), strict=True)
    numbers = {
        (partition, offset): number
        for number, (partition, offset) in enumerate(coordinates)
        if any(one.partition == partition and one.start <= offset < one.stop for one in ranges)
    }
    return letters.take(pa.array([numbers[one] for one in sorted(numbers)], pa.int64()))


def _new_name() -> str:
    return f"foldlog.columns.{uuid.uuid4().hex}"


def _as_times(times_ms: Any) -> Any:
    import pyarrow as pa

    return times_ms.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))


class TopicFrames:
    """Makes DataFrames of ranges of one topic. On the driver; one thread at a time."""

    is_near: ClassVar[bool] = False
    """Whether the driver has the rows, which are few: a frame computed twice reads nothing twice."""

    def __init__(self, spark: SparkSession, topic: DeclaredTopic, spec: OriginSpec, topic_id: str) -> None:
        self._spark = spark
        self._spec = spec
        self._topic_id = topic_id
        self._name = _new_name()
        self._record_columns = topic.record_columns
        self._only = topic.only
        self._values, self._keys, self._headers, self.schema = _columns_of(topic)
        self._seen = spark.sparkContext.accumulator(Seen(), _Sum())

    @cached_property
    def aside(self) -> TopicFrames:
        """Frames of this topic for a second thread: they count, and are narrowed, by themselves."""
        other = copy(self)
        other._name = _new_name()
        other._seen = self._spark.sparkContext.accumulator(Seen(), _Sum())
        return other

    def rows(
        self,
        ranges: Sequence[OffsetRange],
        seen: Count | None,
        *,
        needs_key: bool,
        first: Sequence[OffsetRange] = (),
    ) -> DataFrame:
        """The rows of these ranges, with all columns. A task reads `first`, which is a part of them, by itself."""
        return self._frame(ranges, self.schema, "rows", needs_key, seen, first)

    @contextmanager
    def narrowed(self, used: frozenset[str] | None) -> Iterator[None]:
        """While active, frames of this topic that this thread computes fill only these columns; all with None."""
        context = self._spark.sparkContext
        context.setLocalProperty(self._name, None if used is None else json.dumps(sorted(used)))  # type: ignore[arg-type]
        try:
            yield
        finally:
            context.setLocalProperty(self._name, None)  # type: ignore[arg-type]

    def forget(self, rows: DataFrame) -> None:
        """Remove from Spark's cache what a function has cached of these rows."""
        manager = cache_of(rows)
        if not manager.isEmpty():
            manager.uncacheQuery(rows._jdf, True, False)

    def table(self, ranges: Sequence[OffsetRange], seen: Count | None, *, needs_key: bool) -> pa.Table:
        """All columns of these ranges, without going through Spark's rows: for folds that return them unchanged."""
        return self._table(ranges, self.schema, "rows", seen, needs_key=needs_key)

    def stage(
        self,
        ranges: Sequence[OffsetRange],
        seen: Count | None,
        stagings: Sequence[Staging],
        *,
        needs_key: bool,
    ) -> list[list[Report]]:
        """Have the executors write the rows of `table` to each of these places; what they report, by place."""
        return self._stage(self._reader(ranges, self.schema, "rows", needs_key, seen), stagings)

    def stage_deletions(self, ranges: Sequence[OffsetRange], staging: Staging) -> list[Report]:
        """Have the executors write a deletion for each record of `keys` to a place; what they report."""
        reader = self._reader(ranges, self._key_schema(), "rows", True, None)
        (found,) = self._stage(reader, [staging])
        return found

    def _stage(self, reader: RangeDecoder, stagings: Sequence[Staging]) -> list[list[Report]]:
        most = min((one.stage.tasks_max for one in stagings if one.stage.tasks_max is not None), default=None)
        count = len(reader.tasks)
        numbers = self._spark.sparkContext.parallelize(range(count), min(count, most or count))
        found = numbers.mapPartitions(_staging(reader, stagings)).collect()
        return [[report for one in found for report in one[place]] for place in range(len(stagings))]

    def reader(self, ranges: Sequence[OffsetRange], seen: Count | None, *, needs_key: bool) -> RangeDecoder:
        """The work of the tasks of `table`."""
        return self._reader(ranges, self.schema, "rows", needs_key, seen)

    def keys(self, ranges: Sequence[OffsetRange]) -> pa.Table:
        """The key and META of every record of these ranges that parses and has a key."""
        return self._table(ranges, self._key_schema(), "rows", None, needs_key=True)

    def tombstones(self, ranges: Sequence[OffsetRange]) -> pa.Table:
        """The coordinates of the records without a value: _partition and _offset. Nothing is decoded."""
        schema = T.StructType([one for one in self.schema if one.name in (PARTITION, OFFSET)])
        return self._table(ranges, schema, "tombstones", None, needs_key=False)

    def records(self, ranges: Sequence[OffsetRange], *, needs_key: bool = True) -> pa.Table:
        """The rows of `keys`, read by the driver itself; without `needs_key` also of records without a key."""
        return self._read_here(ranges, self._key_schema(), needs_key)

    def _key_schema(self) -> T.StructType:
        names = {*META, *self._record_columns}
        return T.StructType([one for one in self.schema if one.name in names])

    def sample(self, ranges: Sequence[OffsetRange], *, needs_key: bool) -> pa.Table:
        """All columns of these ranges, read by the driver itself."""
        return self._read_here(ranges, self.schema, needs_key)

    def local(self, rows: pa.Table) -> DataFrame:
        """A frame of rows that the driver has, with all columns."""
        return local_frame(self._spark, rows, self.schema)

    def near(self, ranges: Sequence[OffsetRange], origin: Origin, *, needs_key: bool) -> NearFrames:
        """Frames of these ranges, which the driver reads now, from this origin. For short ranges."""
        return NearFrames(self, ranges, origin, needs_key=needs_key)

    def _read_here(self, ranges: Sequence[OffsetRange], schema: T.StructType, needs_key: bool) -> pa.Table:
        import pyarrow as pa

        reader = self._reader(ranges, schema, "rows", needs_key, None)
        return pa.Table.from_batches(reader.read(range(len(reader.tasks))), schema=reader.schema)

    def _table(
        self,
        ranges: Sequence[OffsetRange],
        schema: T.StructType,
        look: Look,
        seen: Count | None,
        *,
        needs_key: bool,
    ) -> pa.Table:
        import pyarrow as pa

        reader = self._reader(ranges, schema, look, needs_key, seen)
        count = len(reader.tasks)
        packed = self._spark.sparkContext.parallelize(range(count), count).mapPartitions(_packing(reader)).collect()
        batches = [pa.ipc.read_record_batch(pa.py_buffer(data), reader.schema) for data in packed]
        return pa.Table.from_batches(batches, schema=reader.schema)

    def empty(self) -> DataFrame:
        """A frame without rows and with all columns: to check a fold's plan."""
        return self._frame([], self.schema, "rows", False, None)

    def dead(self, ranges: Sequence[OffsetRange], *, needs_key: bool) -> pa.Table:
        """The records that do not parse, with the reason: columns _partition, _offset, key, value, reason."""
        return self._frame(ranges, _DEAD, "dead", needs_key, None).toArrow()

    def met_dead(self, ranges: Sequence[OffsetRange], met: Seen, *, needs_key: bool) -> pa.Table | None:
        """The dead letters of these ranges; only ranges that no task has reported are read again."""
        import pyarrow as pa

        if not met.dead:
            return None
        schema = to_arrow_schema(_DEAD, timezone="UTC")
        told = [pa.ipc.read_record_batch(pa.py_buffer(data), schema) for data in met.letters]
        unsure = list(beyond(ranges, met.looked))
        more = [self.dead(unsure, needs_key=needs_key).cast(schema)] if unsure else []
        return _once(pa.concat_tables([pa.Table.from_batches(told, schema=schema), *more]), ranges)

    def letters(self, wanted: Sequence[OffsetRange], reasons: Mapping[tuple[int, int], str]) -> pa.Table:
        """The records of these ranges that have a reason, in the form of `dead`; read by the driver."""
        import pyarrow as pa

        rows: list[dict[str, object]] = []
        origin = open_origin(self._spec)
        try:
            for one, batch in origin.read_all(wanted, ["offset", "key", "value"], topic_id=self._topic_id):
                for row in batch.to_pylist():
                    reason = reasons.get((one.partition, row["offset"]))
                    if reason is not None:
                        coordinates = {PARTITION: one.partition, OFFSET: row["offset"]}
                        rows.append({**coordinates, "key": row["key"], "value": row["value"], "reason": reason})
        finally:
            origin.close()
        return pa.Table.from_pylist(rows, to_arrow_schema(_DEAD, timezone="UTC"))

    def count(self) -> Count:
        """The counter, reset for one range. There is only one: PySpark never releases an accumulator."""
        self._seen.value = Seen()
        return self._seen

    def _frame(
        self,
        ranges: Sequence[OffsetRange],
        schema: T.StructType,
        look: Look,
        needs_key: bool,
        seen: Count | None,
        first: Sequence[OffsetRange] = (),
    ) -> DataFrame:
        reader = self._reader(ranges, schema, look, needs_key, seen, first)
        count = len(reader.tasks)
        return self._spark.range(0, count, 1, count).mapInArrow(_reading(reader), schema)

    def _reader(
        self,
        ranges: Sequence[OffsetRange],
        schema: T.StructType,
        look: Look,
        needs_key: bool,
        seen: Count | None,
        first: Sequence[OffsetRange] = (),
    ) -> RangeDecoder:
        rest = list(beyond(ranges, first)) if first else ranges
        tasks = split_for_tasks(rest, self._spark.sparkContext.defaultParallelism, SMALLEST_TASK)
        return RangeDecoder(
            spec=self._spec,
            topic_id=self._topic_id,
            tasks=[first, *tasks] if first else tasks,
            keys=self._keys,
            headers=self._headers,
            only=self._only,
            values=self._values,
            needs_key=needs_key,
            schema=to_arrow_schema(schema, timezone="UTC"),
            look=look,
            seen=seen,
            name=self._name,
        )


class NearFrames(TopicFrames):
    """Frames of short ranges that the driver has read itself, and of parts of them. Spark has the rows in its plan, so
    most functions need no task, and what was read once is not read again.
    """

    is_near = True

    def __init__(self, frames: TopicFrames, ranges: Sequence[OffsetRange], origin: Origin, *, needs_key: bool) -> None:
        """Use `TopicFrames.near`."""
        import pyarrow as pa

        vars(self).update(vars(frames))
        self._count = _NearCount()
        reader = replace(self._reader(ranges, self.schema, "rows", needs_key, self._count), tasks=[list(ranges)])
        self._rows = pa.Table.from_batches(reader.read_from(origin, [0]), schema=reader.schema)

    def count(self) -> Count:
        """What was counted when the ranges were read: not less than what a part of them holds."""
        return self._count

    def rows(
        self,
        ranges: Sequence[OffsetRange],
        seen: Count | None,
        *,
        needs_key: bool,
        first: Sequence[OffsetRange] = (),
    ) -> DataFrame:
        # By this name the plan's readers know the topic's rows from the user's own frames.
        return self.local(self._within(ranges)).alias(ROWS_FUNCTION)

    @contextmanager
    def narrowed(self, used: frozenset[str] | None) -> Iterator[None]:
        yield  # the rows have all columns

    def table(self, ranges: Sequence[OffsetRange], seen: Count | None, *, needs_key: bool) -> pa.Table:
        return self._within(ranges)

    def keys(self, ranges: Sequence[OffsetRange]) -> pa.Table:
        return self._within(ranges).select([*self._record_columns, *META])

    def tombstones(self, ranges: Sequence[OffsetRange]) -> pa.Table:
        rows = self._within(ranges)
        return rows.filter(rows[DELETED]).select([PARTITION, OFFSET])

    def _within(self, ranges: Sequence[OffsetRange]) -> pa.Table:
        return rows_within(self._rows, ranges)


def rows_within(rows: pa.Table, ranges: Sequence[OffsetRange]) -> pa.Table:
    """The rows of these ranges."""
    import pyarrow.compute as pc

    partitions, offsets = rows[PARTITION], rows[OFFSET]
    parts = [
        pc.and_(
            pc.equal(partitions, one.partition),
            pc.and_(pc.greater_equal(offsets, one.start), pc.less(offsets, one.stop)),
        )
        for one in ranges
    ]
    return rows.filter(reduce(pc.or_, parts)) if parts else rows.slice(0, 0)


def _reading(reader: RangeDecoder) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Spark wants a plain function of the iterator. Its name is in the plan: plans.py finds the topic's rows by it."""

    unpacked = packed_for_workers(reader)

    def foldlog_rows(batches: Iterator[Any]) -> Iterator[Any]:
        return unpacked().narrowed().read(number for batch in batches for number in batch.column(0).to_pylist())

    return foldlog_rows


def _unused_column(column: pa.Field, rows: int) -> pa.Array:
    """A filler for a column that is not used. Spark takes META columns to be never null."""
    import pyarrow as pa

    if column.name not in META:
        return pa.nulls(rows, column.type)
    if pa.types.is_boolean(column.type):
        return pa.repeat(pa.scalar(False), rows)
    return pa.repeat(pa.scalar("" if pa.types.is_string(column.type) else 0, column.type), rows)


def _packing(reader: RangeDecoder) -> Callable[[Iterable[int]], Iterator[bytes]]:
    """A plain function that serializes whole batches."""
    unpacked = packed_for_workers(reader)

    def foldlog_batches(numbers: Iterable[int]) -> Iterator[bytes]:
        return (batch.serialize().to_pybytes() for batch in unpacked().read(numbers))

    return foldlog_batches


def _staging(
    reader: RangeDecoder, stagings: Sequence[Staging]
) -> Callable[[Iterable[int]], Iterator[list[list[Report]]]]:
    """A plain function that writes what a task reads."""
    unpacked = packed_for_workers((reader, tuple(stagings)))

    def foldlog_stage(numbers: Iterable[int]) -> Iterator[list[list[Report]]]:
        reading, places = unpacked()
        from foldlog.spark.folds.reading import try_label
        from foldlog.views.staging import write_all

        yield write_all(places, reading.read(numbers), try_label())

    return foldlog_stage


def staging_frame(rows: DataFrame, staging: Staging) -> list[Report]:
    """Have the executors write the rows of a frame to a place; what they report."""
    unpacked = packed_for_workers(staging)

    def foldlog_stage(batches: Iterator[Any]) -> Iterator[Any]:
        place = unpacked()
        import pickle

        import pyarrow as pa

        from foldlog.spark.folds.reading import try_label
        from foldlog.views.staging import write_all

        (reports,) = write_all([place], batches, try_label())
        yield pa.RecordBatch.from_pydict({"reports": [pickle.dumps(reports)]})

    if staging.stage.tasks_max is not None:
        rows = rows.coalesce(staging.stage.tasks_max)
    told = rows.mapInArrow(foldlog_stage, "reports binary").toArrow()["reports"].to_pylist()
    return [report for one in told for report in pickle.loads(one)]


def try_label() -> str:
    """On a worker: a name for this try of this task, in the order of the tasks."""
    context = TaskContext.get()
    return f"{0 if context is None else context.partitionId():05d}-{uuid.uuid4().hex[:12]}"


def _parsed(topic: DeclaredTopic, schema: str | T.StructType | None) -> T.StructType | None:
    """A schema of the topic; FoldError if Spark cannot read it."""
    if not schema:
        return None
    try:
        parsed = schema if isinstance(schema, T.StructType) else T.StructType.fromDDL(schema)
    except Exception as error:
        raise FoldError(f"the schema of topic {topic.name!r} cannot be read: {brief_spark_error(error)}") from error
    if not isinstance(parsed, T.StructType):
        raise FoldError(f"the schema of topic {topic.name!r} names no columns; write it as 'merchant STRING, ...'")
    for one in parsed:
        unfilled = next((kind for kind in _kinds_in(one.dataType) if _UNFILLED.match(kind) is not None), None)
        if unfilled is not None:
            raise FoldError(
                f"column {one.name!r} of topic {topic.name!r} is {unfilled.upper()}, which no format fills; declare it"
                " as STRING, or as what the values hold, and make of it in the fold what you need"
            )
    return parsed


def _kinds_in(of: T.DataType) -> Iterator[str]:
    """The types in a type, as a DDL spells them."""
    if isinstance(of, T.StructType):
        for one in of:
            yield from _kinds_in(one.dataType)
    elif isinstance(of, T.ArrayType):
        yield from _kinds_in(of.elementType)
    elif isinstance(of, T.MapType):
        yield from (*_kinds_in(of.keyType), *_kinds_in(of.valueType))
    else:
        yield of.simpleString()


def topic_schema(topic: DeclaredTopic) -> T.StructType:
    """The columns that a fold of this topic is given."""
    return _columns_of(topic)[3]


def _columns_of(topic: DeclaredTopic) -> tuple[Decoder, KeyColumns | None, HeaderColumns | None, T.StructType]:
    """What decodes a topic's values, keys and headers, and the columns that a fold is given."""
    given = _parsed(topic, topic.schema)
    values, fields = _value_columns(topic, given)
    keys, key_fields = _key_columns(topic, given)
    headers, header_fields = _header_columns(topic, [*key_fields, *fields])
    columns = [*key_fields, *fields, *header_fields]
    clash = sorted({one.name for one in columns} & set(META))
    if clash:
        raise FoldError(f"topic {topic.name!r} has a column {clash[0]!r}, which every row has anyway; rename it")
    return values, keys, headers, T.StructType([*columns, *_META_TYPES])


def _key_columns(topic: DeclaredTopic, given: T.StructType | None) -> tuple[KeyColumns | None, list[T.StructField]]:
    """What decodes a topic's keys, and the columns that it fills: STRING, unless the schema says otherwise."""
    if not topic.keys:
        return None, []
    types = {one.name: one.dataType for one in given or ()}
    fields = [T.StructField(name, types.get(name, T.StringType())) for name in topic.keys]
    arrow = to_arrow_schema(T.StructType(fields), timezone="UTC")
    if topic.key_format is None:
        return KeyColumns(topic.keys[0], key_decoder(arrow.field(0).type)), fields
    if topic.key_format in ("json", "debezium"):
        decoder = parsed_key_decoder(topic.key_format, arrow, **topic.key_options)
    else:
        # Their own schemas have the types.
        decoder = decoder_for(topic.key_format, None, **topic.key_options)
        found = {one.name: one for one in from_arrow_schema(decoder.schema)}
        for one in fields:
            if one.name not in found:
                raise FoldError(
                    f"the keys of topic {topic.name!r} have no field {one.name!r}; they have {', '.join(found)}"
                )
            if one.name in types and found[one.name].dataType != one.dataType:
                raise FoldError(
                    f"the field {one.name!r} in the keys of topic {topic.name!r} is"
                    f" {found[one.name].dataType.simpleString()}, and its schema says {one.dataType.simpleString()}"
                )
        fields = [T.StructField(name, found[name].dataType) for name in topic.keys]
    return KeyColumns(KEY, None, decoder), [*fields, T.StructField(KEY, T.BinaryType())]


def _header_columns(
    topic: DeclaredTopic, others: Sequence[T.StructField]
) -> tuple[HeaderColumns | None, list[T.StructField]]:
    """What decodes a topic's headers, and the columns that they fill."""
    given = _parsed(topic, topic.headers)
    if given is None:
        return None, []
    twice = next((one.name for one in given if one.name in {other.name for other in others}), None)
    if twice is not None:
        raise FoldError(
            f"topic {topic.name!r} has the column {twice!r} from its values or keys, and from a header, too"
        )
    fields = [T.StructField(one.name, one.dataType) for one in given]
    return HeaderColumns(to_arrow_schema(T.StructType(fields), timezone="UTC")), fields


def _value_columns(topic: DeclaredTopic, given: T.StructType | None) -> tuple[Decoder, list[T.StructField]]:
    """The decoder of a topic's values, and the columns it fills. The key's column is filled from the key instead."""
    fields = [one for one in given or () if one.name not in topic.keys]
    selects = given is not None and (bool(fields) or topic.format == "json")
    arrow = to_arrow_schema(T.StructType(fields), timezone="UTC") if selects else None
    decoder = decoder_for(topic.format, arrow, **topic.options)
    filled = [one for one in from_arrow_schema(decoder.schema) if one.name not in (*topic.keys, DELETED)]
    return decoder, [T.StructField(one.name, one.dataType, True) for one in filled]
