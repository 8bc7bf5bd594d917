"""Arrow tables to and from a cluster in bulk, over our own connections: no Python object per record on either way.

Reading fetches the partitions side by side, each with the next answer always under way. Writing packs one chunk while
the brokers have the one before it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from foldlog.client.backends.cluster.handles import Handles
from foldlog.client.bulk import check_table, chunks_of, one_ahead, pyarrow_for, read_threads
from foldlog.client.descriptions import Topic
from foldlog.client.outgoing import checked_partition, emptiest
from foldlog.client.wire.admin import list_offsets
from foldlog.client.wire.produce import ClusterProducer
from foldlog.client.wire.questions import LATEST
from foldlog.client.wire.ranges import fetch_range

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.client.wire.links import ClusterLinks


class TableRange(NamedTuple):
    """Offsets of one partition to read: start inclusive, stop exclusive."""

    topic: str
    partition: int
    start: int
    stop: int


def read_table(
    handles: Handles, ranges: Sequence[TableRange], columns: Sequence[str], committed: bool | None
) -> pa.Table:
    """One table of all ranges, in their order."""
    pa = pyarrow_for("read_arrow()")
    from foldlog.records.arrow import schema

    wanted = schema(columns)
    filled = [one for one in ranges if one.start < one.stop]
    if len(filled) <= 1:
        batches = [batch for one in filled for batch in _read_range(handles, one, columns, committed)]
    else:
        with ThreadPoolExecutor(min(read_threads(), len(filled)), thread_name_prefix="foldlog-arrow") as pool:
            found = pool.map(lambda one: _read_range(handles, one, columns, committed), filled)
            batches = [batch for batches_of_one in found for batch in batches_of_one]
    if not wanted.names:
        return pa.Table.from_batches(batches) if batches else pa.table({})
    return pa.Table.from_batches(batches, schema=wanted)


def _read_range(
    handles: Handles, wanted: TableRange, columns: Sequence[str], committed: bool | None
) -> list[pa.RecordBatch]:
    """With connections of its own: they are not for several threads."""
    from foldlog.records.arrow import arrow_batches

    topic, number, offset, stop = wanted
    batches: list[pa.RecordBatch] = []
    with handles.wire(committed) as links, closing(fetch_range(links, topic, number, offset, stop)) as answers:
        for fetched in answers:
            end = min(stop, fetched.next_offset)
            for piece in fetched.pieces:
                batches.extend(
                    arrow_batches(
                        piece, topic=topic, partition=number, start_offset=offset, end_offset=end, columns=columns
                    )
                )
            offset = fetched.next_offset
    return batches


def append_table(
    handles: Handles, topic: Topic, table: pa.Table | pa.RecordBatch, compression: int, batch_bytes: int
) -> dict[int, tuple[int, int]]:
    """Send every row: on return all in-sync replicas have it. Per partition the first offset, and one past its last."""
    check_table(table, topic.name, is_compacted=topic.config.log.compact)
    limit_bytes = min(batch_bytes, topic.config.log.max_message_bytes)
    with handles.wire() as links, ClusterProducer(links) as producer:
        packed = _packed(links, topic, table, compression, limit_bytes)
        with ThreadPoolExecutor(1, thread_name_prefix="foldlog-pack") as packer:
            for batches in one_ahead(packer, packed):
                producer.send_all((topic.name, number, batch) for number, batch in batches)
        producer.flush()
        return {number: span for (_, number), span in sorted(producer.appended.items())}


def _packed(
    links: ClusterLinks, topic: Topic, table: pa.Table | pa.RecordBatch, compression: int, batch_bytes: int
) -> Iterator[list[tuple[int, bytearray]]]:
    """The rows as batches, chunk by chunk, each with the partition that it goes to.

    Rows without key or partition go chunk by chunk, beginning with the partition that is emptiest now.
    """
    from foldlog.records.arrow import pack_arrow, route

    count = topic.partition_count
    ends = list_offsets(links, topic.name, dict.fromkeys(range(count), LATEST))
    keyless = emptiest([ends[number].offset for number in range(count)])
    now_ms = time.time_ns() // 1_000_000
    for chunk in chunks_of(table):
        batches: list[tuple[int, bytearray]] = []
        for number, rows in route(chunk, count):
            chosen = keyless if number < 0 else checked_partition(topic.name, number, count)
            packed = pack_arrow(rows, now_ms=now_ms, compression=compression, max_batch_bytes=batch_bytes)
            batches += [(chosen, batch.buffer) for batch in packed]
        yield batches
        keyless = (keyless + 1) % count
