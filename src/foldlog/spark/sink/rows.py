"""Rows of one task as packed batches, by topic and partition: Arrow in, RecordBatch v2 out, no Python object per row.

Rows keep their order within a partition. A row goes to its `partition`, else by its key as Java clients hash it; rows
with neither go in large pieces to one partition after the other, from a random one on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from foldlog.errors import InvalidArgument, RecordTooLarge, SerializationError, UnknownPartition
from foldlog.limits import STAGED_BATCH_BYTES, STAGED_PACK_BYTES
from foldlog.spark.sink.options import IGNORED_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.client.backends.served.resumable import TopicLimits
    from foldlog.records.columns import PackedBatch

FindLimits = Callable[[str], "TopicLimits"]
"""The limits of a topic by its name; raises the error for the user if there is no such topic."""


class Packed(NamedTuple):
    """One batch, and the partition it goes to."""

    topic: str
    partition: int
    record_count: int
    buffer: bytearray


class RowPacker:
    """Packs the rows of one attempt of a task. Used once, by one thread. Memory: a few times STAGED_PACK_BYTES."""

    def __init__(
        self,
        find_limits: FindLimits,
        *,
        topic: str | None,
        compression: int,
        now_ms: int,
        first_keyless: int | None = None,
    ) -> None:
        """`topic`: for all rows; None if the column names it. `now_ms`: the timestamp of rows without one.
        `first_keyless`: the first partition for rows without a key; random if it is not given."""
        self._find_limits = find_limits
        self._topic = topic
        self._compression = compression
        self._now_ms = now_ms
        self._first_keyless = random.getrandbits(16) if first_keyless is None else first_keyless
        self._limits: dict[str, TopicLimits] = {}
        self._keyless: dict[str, int] = {}

    @property
    def limits(self) -> dict[str, TopicLimits]:
        """The limits of the topics seen so far."""
        return self._limits

    def pack(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Packed]:
        for rows in gathered(batches, STAGED_PACK_BYTES):
            for topic, rows_of_topic in self._by_topic(rows):
                yield from self._pack_topic(topic, rows_of_topic)

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        rows = rows.drop_columns([name for name in IGNORED_COLUMNS if name in rows.schema.names])
        if self._topic is not None:
            yield self._topic, rows.drop_columns(["topic"]) if "topic" in rows.schema.names else rows
            return
        import pyarrow.compute as pc

        column = rows.column("topic")
        if column.null_count:
            raise SerializationError("the column 'topic' is null in a row; fill it, or set the option 'topic'")
        rows = rows.drop_columns(["topic"])
        encoded = column.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if len(names) == 1:
            yield names[0], rows
            return
        order = pc.array_sort_indices(encoded.indices)  # stable: rows of a topic keep their order
        counts = {entry["values"]: entry["counts"] for entry in pc.value_counts(encoded.indices).to_pylist()}
        sorted_rows, start = rows.take(order), 0
        for index, name in enumerate(names):
            yield name, sorted_rows.slice(start, counts[index])
            start += counts[index]

    def _pack_topic(self, topic: str, rows: pa.RecordBatch) -> Iterator[Packed]:
        from foldlog.records.arrow import pack_arrow, route

        limits = self._limits_of(topic)
        _check_rows(topic, limits, rows)
        is_routed = limits.partition_count > 1 or "partition" in rows.schema.names
        for number, routed in route(rows, limits.partition_count) if is_routed else [(0, rows)]:
            partition = self._next_keyless(topic, limits.partition_count) if number < 0 else number
            packed = pack_arrow(
                routed,
                now_ms=self._now_ms,
                compression=self._compression,
                max_batch_bytes=min(STAGED_BATCH_BYTES, limits.max_message_bytes, limits.segment_bytes),
            )
            for batch in packed:
                _check_size(limits, batch)
                yield Packed(topic, partition, batch.record_count, batch.buffer)

    def _limits_of(self, topic: str) -> TopicLimits:
        if topic not in self._limits:
            self._limits[topic] = self._find_limits(topic)
        return self._limits[topic]

    def _next_keyless(self, topic: str, count: int) -> int:
        number = self._keyless.get(topic, self._first_keyless)
        self._keyless[topic] = number + 1
        return number % count


def _check_rows(topic: str, limits: TopicLimits, rows: pa.RecordBatch) -> None:
    names = rows.schema.names
    if limits.is_compacted and ("key" not in names or rows.column("key").null_count):
        raise InvalidArgument(f"topic {topic!r} is compacted: every row needs a key")
    if "partition" in names and rows.column("partition").null_count < rows.num_rows:
        import pyarrow.compute as pc

        found = pc.min_max(rows.column("partition")).as_py()
        for number in (found["min"], found["max"]):
            if not 0 <= number < limits.partition_count:
                raise UnknownPartition(topic, number, limits.partition_count)


def _check_size(limits: TopicLimits, batch: PackedBatch) -> None:
    if len(batch.buffer) > limits.max_message_bytes:
        raise RecordTooLarge(len(batch.buffer), limits.max_message_bytes)


def gathered(batches: Iterable[pa.RecordBatch], size_bytes: int) -> Iterator[pa.RecordBatch]:
    """Rows in batches of about that size, so that each partition's share is worth a batch."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            waiting_bytes += batch.nbytes
        if waiting_bytes >= size_bytes:
            yield _joined(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
