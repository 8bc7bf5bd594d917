"""How far behind a group is, counted in one way for all that show it. Pure.

A group has a lag in every partition that it has committed in or that a member is assigned. Without a commit, the lag
counts from where its member begins if that is known, as for members in the broker's own process that begin at the end;
else from the log start: `auto.offset.reset` is a setting of the client, and no record since the start is accounted for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from foldlog.broker.groups.committed import TopicPartition


class PartitionLag(NamedTuple):
    """One partition of a group. `committed` is None without a commit; `start` and `end` are None if they are not known:
    the topic was deleted, or the partition is damaged."""

    topic: str
    partition: int
    committed: int | None
    start: int | None
    end: int | None
    begins: int | None = None
    """Where its member begins without a commit, if that is known to be the former end of the log."""
    done: int = 0
    """Of a share group, whose `committed` is its start: the offsets from there on that are done already."""

    @property
    def is_uncommitted(self) -> bool:
        """Whether there is no commit, so that the lag counts from elsewhere."""
        return self.committed is None

    @property
    def counted_from(self) -> str | None:
        """Where the lag counts from without a commit; None with one."""
        if self.committed is not None:
            return None
        return "log start" if self.begins is None else "log end (auto_offset_reset=latest)"

    @property
    def next_offset(self) -> int | None:
        """The first offset that counts as lag; None if it is not known."""
        if self.committed is not None:
            return self.committed
        return self.start if self.begins is None else self.begins

    @property
    def lag(self) -> int | None:
        """Offsets to the end, as Kafka's tools count: including those that compaction or retention removed."""
        at = self.next_offset
        return None if at is None or self.end is None else max(0, self.end - at - self.done)


def partition_lags(
    committed: Mapping[TopicPartition, int],
    assigned: Iterable[TopicPartition],
    bounds: Mapping[TopicPartition, tuple[int | None, int | None]],
    begins: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> list[PartitionLag]:
    """The partitions of a group, in order. `bounds` are start and end of partitions, `begins` the start offsets of
    members that begin at the end.

    >>> partition_lags({("a", 0): 7}, [("a", 0), ("a", 1)], {("a", 0): (0, 9), ("a", 1): (2, 6)})[1].lag
    4
    """
    known = {place: offset for place, offset in committed.items() if offset >= 0}  # Kafka's -1 is no offset
    return [
        PartitionLag(*place, known.get(place), *bounds.get(place, (None, None)), begins.get(place))
        for place in sorted({*known, *assigned})
    ]


def share_lags(
    offsets: Mapping[TopicPartition, tuple[int, int]],
    bounds: Mapping[TopicPartition, tuple[int | None, int | None]],
) -> list[PartitionLag]:
    """The partitions of a share group, in order; `offsets` are where it is, and its lag there.

    >>> share_lags({("a", 0): (3, 4)}, {("a", 0): (0, 9)})[0].lag
    4
    """
    found = []
    for place, (at, lag) in sorted(offsets.items()):
        start, end = bounds.get(place, (None, None))
        found.append(PartitionLag(*place, at, start, end, done=0 if end is None else max(0, end - at - lag)))
    return found


def total_lag(found: Iterable[PartitionLag]) -> int | None:
    """The sum over all partitions whose lag is known; None if there are none."""
    lags = [one.lag for one in found if one.lag is not None]
    return sum(lags) if lags else None
