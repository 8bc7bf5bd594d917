"""Names for partitions and positions of readers, and checks of such arguments."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, Protocol, TypeGuard

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.errors import InvalidArgument, brief_repr
from foldlog.log.checkpoint import StartReason, out_of_range
from foldlog.records.batch import MAX_INT64

Place = int | Literal["start", "end"]
"""An offset, or a name for the present start or end of the log."""


REPLICAS_MAX = 32_767
"""The largest number in the protocol."""

_TIMEOUT_MAX_S = threading.TIMEOUT_MAX / 2
"""Longer waits overflow what a lock can wait for; half of it, so that no rounding gets there. It is a lifetime."""


class TopicPartition(NamedTuple):
    """One partition of a topic; equal to the plain tuple, which every method takes as well.

    >>> TopicPartition("orders", 0) == ("orders", 0)
    True
    """

    topic: str
    partition: int


class GroupOffsets(NamedTuple):
    """Offsets to commit for a group, and the member that does: none, for one that reads without the group's assignment.
    `library`: librdkafka's description of the member, for a cluster."""

    group: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
    library: object = None


class Bounded(Protocol):
    """The start and end of a partition."""

    @property
    def label(self) -> tuple[str, int]: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def start_reason(self) -> StartReason: ...

    def acknowledged_end(self) -> int: ...


def checked_partitions(partitions: Iterable[object]) -> list[TopicPartition]:
    """Pairs of topic and number, as TopicPartitions, each once.

    >>> checked_partitions([("orders", 0), ("orders", 0)])
    [TopicPartition(topic='orders', partition=0)]
    """
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Iterable):
        raise InvalidArgument(f"{brief_repr(partitions)} does not hold pairs of topic and partition number")
    found: dict[TopicPartition, None] = {}
    for pair in partitions:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str) or type(pair[1]) is not int:
            raise InvalidArgument(f"{brief_repr(pair)} is not a pair of topic and partition number")
        found[TopicPartition(*pair)] = None
    return list(found)


def checked_offset(offset: object, what: str = "offset") -> int:
    """
    >>> checked_offset(14)
    14
    """
    if type(offset) is int and 0 <= offset <= MAX_INT64:
        return offset
    raise InvalidArgument(f"{what} {brief_repr(offset)} is not an offset: an int from 0 to 2**63 - 1")


def checked_replication_factor(value: object) -> int | None:
    """How many brokers should have each record; None leaves it to the log."""
    if value is None or (type(value) is int and 0 < value <= REPLICAS_MAX):
        return value
    raise InvalidArgument(f"replication_factor={brief_repr(value)} is not a whole number from 1 to {REPLICAS_MAX}")


def check_one_replica(replication_factor: object) -> None:
    """Raises InvalidArgument unless it is 1 or None, for a directory."""
    if checked_replication_factor(replication_factor) not in (None, 1):
        raise InvalidArgument(
            f"a replication factor of {replication_factor} needs a cluster, and a directory has each record once; use"
            " 1, or leave it out"
        )


def checked_count(what: str, count: object) -> int:
    """
    >>> checked_count("max_records", 500)
    500
    """
    if type(count) is int and 1 <= count <= MAX_INT64:
        return count
    raise InvalidArgument(f"{what}={brief_repr(count)} is not a count: an int of 1 or more, and below 2**63")


def checked_timeout_ms(timeout_ms: object) -> float | None:
    """How long to wait, None for no limit; what is longer than a lock can wait is cut to that.

    >>> checked_timeout_ms(250), checked_timeout_ms(None)
    (250, None)
    """
    return _checked_timeout(timeout_ms, "timeout_ms", "milliseconds", _TIMEOUT_MAX_S * 1000)


def checked_timeout_s(timeout: object) -> float | None:
    """How long to wait in seconds.

    >>> checked_timeout_s(0.5)
    0.5
    """
    return _checked_timeout(timeout, "timeout", "seconds", _TIMEOUT_MAX_S)


def is_time(value: object) -> TypeGuard[float]:
    """Whether it is a number of 0 or more, which NaN is not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _checked_timeout(timeout: object, what: str, unit: str, longest: float) -> float | None:
    if timeout is None:
        return None
    if is_time(timeout):
        return min(timeout, longest)
    raise InvalidArgument(f"{what}={brief_repr(timeout)} is not a time: {unit} of 0 or more, or None for no limit")


def resolve_place(log: Bounded, place: object, what: str) -> int:
    """The present offset of `place` in this partition. Raises OffsetOutOfRange if the log does not hold it."""
    if place == "start":
        return log.log_start_offset
    if place == "end":
        return log.acknowledged_end()
    if isinstance(place, str):
        raise InvalidArgument(f"{what}={place!r} is not an offset, 'start' or 'end'")
    offset = checked_offset(place, what)
    start, end = log.log_start_offset, log.high_watermark
    if offset > end:
        end = log.acknowledged_end()
    if start <= offset <= end:
        return offset
    raise out_of_range(log.label, offset, start, end, log.start_reason)


def commit_entries(
    offsets: Mapping[tuple[str, int], int | OffsetAndMetadata], metadata: str
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The arguments of `commit`, with `metadata` for the offsets that have none of their own."""
    entries: dict[TopicPartition, OffsetAndMetadata] = {}
    for pair, given in offsets.items():
        (partition,) = checked_partitions([pair])
        if isinstance(given, OffsetAndMetadata):
            entries[partition] = given
        else:
            entries[partition] = OffsetAndMetadata(checked_offset(given), metadata=metadata)
    return entries
