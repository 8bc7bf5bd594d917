"""Arrow tables to and from a cluster that only librdkafka can log in to: it hands out objects, so record by record."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from foldlog.client.bulk import check_table, pyarrow_for
from foldlog.client.handle_types import SendFuture
from foldlog.client.kafka.producer import KafkaProducer
from foldlog.client.kafka.reading import Slice
from foldlog.client.kafka.topics import KafkaTopic
from foldlog.client.partitioners import checked_partition
from foldlog.records.batch import MAX_INT32
from foldlog.records.loops import Record, decode

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 10_000
"""Rows that become columns together: their records need not all be held at once."""


def read_table(slices: Sequence[Slice], columns: Sequence[str]) -> pa.Table:
    """One table of all slices, in their order, with the types that a directory's have."""
    pa = pyarrow_for("read_arrow()")
    from foldlog.records.arrow import schema

    wanted = schema(columns)
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array(_column(name, rows), type=wanted.field(name).type) for name in wanted.names], schema=wanted
        )
        for one in slices
        for rows in _chunks(one.records())
    ]
    if not wanted.names:
        return pa.table({})
    return pa.Table.from_batches(batches, schema=wanted)


def _chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    rows: list[Record] = []
    for record in records:
        rows.append(record)
        if len(rows) == _ROWS:
            yield rows
            rows = []
    if rows:
        yield rows


def _column(name: str, rows: Sequence[Record]) -> list[Any]:
    if name == "timestamp":
        return [row.timestamp_ms for row in rows]
    if name == "headers":
        return [[{"key": key, "value": value} for key, value in row.headers] for row in rows]
    return [getattr(row, name) for row in rows]


def append_table(
    topic: KafkaTopic, table: pa.Table | pa.RecordBatch, producer: KafkaProducer
) -> dict[int, tuple[int, int]]:
    """Send every row; per partition the first offset and one past the last."""
    from foldlog.records.arrow import pack_arrow, route

    check_table(table, topic.name, is_compacted=topic.config.log.compact)
    sent: list[SendFuture] = []
    now_ms = time.time_ns() // 1_000_000
    for chunk in [table] if not hasattr(table, "to_batches") else table.to_batches(max_chunksize=_ROWS):
        for number, rows in route(chunk, topic.partition_count):
            partition = None if number < 0 else checked_partition(topic.name, number, topic.partition_count)
            # Packed and unpacked again, so that columns of all types become what they become in a directory.
            for packed in pack_arrow(rows, now_ms=now_ms, max_batch_bytes=MAX_INT32):
                records, _ = decode(bytes(packed.buffer), topic.name, max(number, 0))
                sent.extend(
                    producer.send(topic.name, one.value, one.key, one.headers, partition, one.timestamp_ms)
                    for one in records
                )
    producer.flush()
    appended: dict[int, tuple[int, int]] = {}
    for future in sent:
        place = future.result()
        first, last = appended.get(place.partition, (place.offset, place.offset))
        appended[place.partition] = (min(first, place.offset), max(last, place.offset))
    return {number: (first, last + 1) for number, (first, last) in sorted(appended.items())}
