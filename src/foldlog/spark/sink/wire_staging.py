"""Batches that tasks have packed and that are not appended yet, by wire: in a topic of the cluster they are meant for.

The topic is `__foldlog_staged`. It is made with the first write, and its records expire by themselves. One packed batch
is one record:

    key      16 bytes that name the attempt of the task, and uint32, the number of the batch in it
    value    RecordBatch v2, without producer numbers: these are filled in when it is appended
    headers  topic and partition that it goes to; the partition in decimal digits

An attempt writes all of its batches, in order, to one partition. They count only if a commit names the attempt, with
the number of its batches. So what attempts staged that failed, ran twice or were killed does no harm.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from foldlog.client.wire.cluster import STAGED_TOPIC, Cluster
from foldlog.client.wire.ranges import WantedRange
from foldlog.errors import FoldlogError, OffsetOutOfRange, StorageError
from foldlog.limits import (
    STAGED_BATCH_BYTES,
    STAGED_MESSAGE_BYTES,
    STAGED_PARTITIONS,
    STAGED_RETENTION_MS,
    STAGED_SEGMENT_BYTES,
)
from foldlog.records.loops import Record, decode, pack
from foldlog.records.stamping import offset_span
from foldlog.spark.sink.rows import Packed

STAGED_CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": str(STAGED_RETENTION_MS),
    "segment.bytes": str(STAGED_SEGMENT_BYTES),
    "max.message.bytes": str(STAGED_MESSAGE_BYTES),
}
_KEY: Final = Struct(">16sI")
_TOPIC: Final = "topic"
_PARTITION: Final = "partition"
_OVERHEAD_BYTES: Final = 512
"""More than a batch grows by being staged: its key, its headers with a name of at most 249 characters, a header."""


@dataclass(frozen=True, slots=True)
class StagedAttempt:
    """What one attempt of a task has staged: `batch_count` batches among the offsets `first` to before `stop`. `topics`
    has the id of each topic that they go to."""

    attempt: bytes = b""
    partition: int = 0
    first: int = 0
    stop: int = 0
    batch_count: int = 0
    record_count: int = 0
    topics: Mapping[str, str] = field(default_factory=dict)


def ensure_staging(cluster: Cluster) -> None:
    """Make the topic unless it exists."""
    cluster.ensure_topic(STAGED_TOPIC, STAGED_PARTITIONS, STAGED_CONFIG)


def largest_staged_bytes(cluster: Cluster) -> int:
    """How large a batch may be that is staged. For a client that may not ask: as large as the sink makes the topic."""
    try:
        config = cluster.topic_config(STAGED_TOPIC, ["max.message.bytes"])
    except FoldlogError:
        config = {}
    return int(config.get("max.message.bytes", STAGED_MESSAGE_BYTES)) - _OVERHEAD_BYTES


def stage_batches(
    cluster: Cluster, batches: Iterable[Packed], task_number: int, topic_ids: Mapping[str, str], now_ms: int
) -> StagedAttempt:
    """In a task: write the batches to the staging topic. Acknowledged by all in-sync replicas on return.

    `topic_ids` has each topic's id by the time its first batch comes.
    """
    attempt, count, record_count = uuid.uuid4().bytes, 0, 0
    waiting: list[tuple[int, bytes, bytearray, tuple[tuple[str, bytes], ...]]] = []
    waiting_bytes = 0
    partition = task_number % cluster.partition_count(STAGED_TOPIC)
    with cluster.producer() as producer:
        for one in batches:
            # Small ones go together: a request takes one batch of each partition.
            size_bytes = len(one.buffer) + _OVERHEAD_BYTES
            if waiting and waiting_bytes + size_bytes > STAGED_BATCH_BYTES:
                producer.send(STAGED_TOPIC, partition, pack(waiting))
                waiting, waiting_bytes = [], 0
            headers = ((_TOPIC, one.topic.encode()), (_PARTITION, str(one.partition).encode()))
            waiting.append((now_ms, _KEY.pack(attempt, count), one.buffer, headers))
            waiting_bytes += size_bytes
            count, record_count = count + 1, record_count + one.record_count
        if waiting:
            producer.send(STAGED_TOPIC, partition, pack(waiting))
        producer.flush()
        first, stop = producer.appended.get((STAGED_TOPIC, partition), (0, 0))
    return StagedAttempt(attempt, partition, first, stop, count, record_count, dict(topic_ids))


def staged_batches(cluster: Cluster, attempts: Iterable[StagedAttempt]) -> Iterator[Packed]:
    """On the driver: all batches of these attempts, those of an attempt in its order. A few megabytes are in memory at
    a time. StorageError if one is not there any more."""
    wanted = {one.attempt: one for one in attempts if one.batch_count}
    next_numbers = dict.fromkeys(wanted, 0)
    topic_id = cluster.topic(STAGED_TOPIC).topic_id
    ranges = [WantedRange(STAGED_TOPIC, *one, topic_id=topic_id) for one in _merged(wanted.values())]
    try:
        for asked, fetched in cluster.fetch_ranges(ranges):
            for piece in fetched.pieces:
                for record in decode(piece, STAGED_TOPIC, asked.partition)[0]:
                    attempt, number = _KEY.unpack(record.key or b"") if _is_staged(record) else (b"", -1)
                    # A lower number is a repetition; a higher one means that one is missing, which is found below.
                    if next_numbers.get(attempt) == number:
                        next_numbers[attempt] += 1
                        yield _packed(record)
    except OffsetOutOfRange as error:
        raise _lost(str(error)) from error
    for attempt, one in wanted.items():
        if next_numbers[attempt] != one.batch_count:
            found = f"of {one.batch_count} batches in partition {one.partition} {next_numbers[attempt]} were found"
            raise _lost(found)


def _is_staged(record: Record) -> bool:
    """Others may write to a topic, too."""
    return record.key is not None and len(record.key) == _KEY.size and record.value is not None


def _packed(record: Record) -> Packed:
    headers = dict(record.headers)
    batch = bytearray(record.value or b"")
    topic, partition = headers[_TOPIC] or b"", headers[_PARTITION] or b""
    return Packed(topic.decode(), int(partition), offset_span(batch), batch)


def _merged(attempts: Iterable[StagedAttempt]) -> Iterator[tuple[int, int, int]]:
    """(partition, first, stop) of ranges that do not overlap: attempts that ran at the same time lie among each other,
    and are read together.

    >>> at = lambda first, stop: StagedAttempt(b"", 0, first, stop)
    >>> list(_merged([at(10, 20), at(0, 5), at(15, 30)]))
    [(0, 0, 5), (0, 10, 30)]
    """
    last: tuple[int, int, int] | None = None
    for partition, first, stop in sorted((one.partition, one.first, one.stop) for one in attempts):
        if last is not None and last[0] == partition and first <= last[2]:
            last = (partition, last[1], max(last[2], stop))
            continue
        if last is not None:
            yield last
        last = (partition, first, stop)
    if last is not None:
        yield last


def _lost(why: str) -> StorageError:
    return StorageError(
        f"rows that were staged in topic {STAGED_TOPIC!r} are not there any more: {why}; nothing was written; a job may"
        " take as long as the topic's retention.ms lets it: raise that, and run it again"
    )
