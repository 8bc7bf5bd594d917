"""Finds out which records a stream has lost, and where it can continue. The planner raises or logs the losses.

A stream has a next offset in every partition. Between two triggers, or while the query was stopped, retention may have
overtaken it; records or a topic may have been deleted, or a topic created again under its name; a broker that lost its
disk may have truncated the log. Each is a `Loss` with its cause. A gap left by compaction is not a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from foldlog.errors import RecordsMissing
from foldlog.spark.origins.origin import Bounds
from foldlog.spark.source.offsets import Assigned
from foldlog.spark.source.options import TopicPartition
from foldlog.spark.source.stream_offset import StreamOffset
from foldlog.views.bookmark import Position

Missing = Callable[[str, str | None, int, int, int], str | None]
"""`Origin.missing`: topic, its id, partition, offset, leader epoch; the cause, or None."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A stream cannot continue from `offset` of a partition.

    `resume` is where it can, None if nothing is left of the partition. `skipped` counts the offsets in between that the
    stream never read; the contents of a deleted topic are unknown, and not counted.
    """

    topic: str
    partition: int
    offset: int
    resume: int | None
    cause: str
    why: str
    skipped: int = 0

    @property
    def advice(self) -> str:
        way_on = "without it" if self.resume is None else f"from offset {self.resume}"
        return (
            "start the query with a new checkpointLocation to choose anew where it begins,"
            f" or set failOnDataLoss=false to go on {way_on}"
        )

    def error(self, others: int = 0) -> RecordsMissing:
        """The error for the query; `others` is the number of further partitions with a loss."""
        also = f" (partitions of the query that have lost something too: {others})" if others else ""
        wanted = (self.offset, self.offset + self.skipped)
        return RecordsMissing(self.topic, self.partition, wanted, self.cause, self.why + also, self.advice)

    def __str__(self) -> str:
        """The text to log if the query continues."""
        way_on = "goes on without it" if self.resume is None else f"goes on from offset {self.resume}"
        return f"{self.topic}-{self.partition} at offset {self.offset}: {self.why}; the stream {way_on}"


class Resumed(NamedTuple):
    """The position of every partition, including new ones, and the losses."""

    positions: dict[TopicPartition, Position]
    losses: list[Loss]


def resume(start: StreamOffset, now: Assigned, missing: Missing, topics: Callable[[], list[str]]) -> Resumed:
    """Where a stream at `start` continues. `topics` returns all topics of the log, not only the query's."""
    positions: dict[TopicPartition, Position] = {}
    losses: list[Loss] = []
    for topic_partition, at in sorted(start.positions.items()):
        topic, bounds = topic_partition[0], now.bounds.get(topic_partition)
        if bounds is None:
            losses.append(_gone(topic_partition, at.offset, topic in now.topics, topics))
            continue
        loss = _lost(topic_partition, at, start.topic_ids.get(topic), now.topics[topic].topic_id, bounds, missing)
        if loss is None or loss.resume is None:
            positions[topic_partition] = at
        else:
            positions[topic_partition] = Position(loss.resume, bounds.leader_epoch)
            losses.append(loss)
    for topic_partition, bounds in sorted(now.bounds.items()):
        if topic_partition not in start.positions:
            positions[topic_partition] = Position(bounds.start, bounds.leader_epoch)
            if bounds.start > 0:
                losses.append(_missed(topic_partition, bounds.start))
    return Resumed(positions, losses)


def lost_of_batch(begin: Resumed, end: StreamOffset, now: Assigned) -> Iterator[Loss]:
    """What a batch that was planned earlier, and has to be read again, has lost at its end.

    `resume` is where its partition ends now.
    """
    for topic_partition, stop in sorted(end.positions.items()):
        topic, partition = topic_partition
        bounds, at = now.bounds.get(topic_partition), begin.positions.get(topic_partition)
        if bounds is None or at is None or stop.offset <= at.offset:
            continue  # nothing to read, or already reported as gone
        planned_id = end.topic_ids.get(topic)
        if planned_id is not None and planned_id != now.topics[topic].topic_id:
            why = "the topic was deleted and made again since the batch was planned"
            yield Loss(topic, partition, at.offset, at.offset, "recreated", why)
        elif stop.offset > bounds.end:
            why = f"the batch was planned up to offset {stop.offset}, and the log was cut back to {bounds.end} since"
            kept = max(at.offset, bounds.end)
            yield Loss(topic, partition, kept, kept, "truncated", why, skipped=stop.offset - kept)


def _gone(topic_partition: TopicPartition, offset: int, is_read: bool, topics: Callable[[], list[str]]) -> Loss:
    if is_read:
        why = "the topic no longer has this partition, or the query no longer reads it"
    elif topic_partition[0] in topics():
        why = "the query read this topic before, and does not any more"
    else:
        why = "the topic was deleted"
    return Loss(*topic_partition, offset, None, "deleted", why)


def _missed(topic_partition: TopicPartition, first: int) -> Loss:
    """The loss of a new partition whose first records are gone: it would have been read from its first record."""
    why = f"the partition is new to this query, and begins at offset {first}: what was before was removed unread"
    return Loss(*topic_partition, 0, first, "expired", why, skipped=first)


def _lost(
    topic_partition: TopicPartition, at: Position, old_id: str | None, new_id: str, bounds: Bounds, missing: Missing
) -> Loss | None:
    topic, partition = topic_partition
    if old_id is not None and old_id != new_id:
        why = f"the topic was deleted and made again: its id was {old_id} and is {new_id}"
        return Loss(topic, partition, at.offset, bounds.start, "recreated", why)
    is_within = bounds.start <= at.offset <= bounds.end
    if is_within and (at.leader_epoch < 0 or at.leader_epoch == bounds.leader_epoch):
        return None  # no other leader has written since, so nothing was truncated
    cause = missing(topic, old_id, partition, at.offset, at.leader_epoch)
    if cause == "recreated":  # it happened between the two requests
        return Loss(topic, partition, at.offset, bounds.start, cause, "the topic was deleted and made again")
    if at.offset < bounds.start:
        cause = "deleted" if cause == "deleted" else "expired"
        taken = "were deleted" if cause == "deleted" else "were removed by retention"
        why = f"the records before offset {bounds.start} {taken}"
        return Loss(topic, partition, at.offset, bounds.start, cause, why, skipped=bounds.start - at.offset)
    if cause is None and is_within:
        return None
    # The stream was at this offset before, so "unwritten" means that the log has become shorter.
    kept = _kept(topic_partition, old_id, at, bounds, missing)
    why = f"the log was cut back to offset {kept}, and what the stream has read from there on is no longer in it"
    return Loss(topic, partition, at.offset, kept, "truncated", why)


def _kept(topic_partition: TopicPartition, topic_id: str | None, at: Position, bounds: Bounds, missing: Missing) -> int:
    """Where the history that the stream has read ends in the log: the first offset with another record now."""
    topic, partition = topic_partition
    low, high = bounds.start, min(at.offset, bounds.end)
    while at.leader_epoch >= 0 and low < high:
        middle = (low + high + 1) // 2
        if missing(topic, topic_id, partition, middle, at.leader_epoch) in ("truncated", "unwritten"):
            high = middle - 1
        else:
            low = middle
    return high
