"""What a reader sees of transactions: every record as soon as it is readable, or only those of committed ones.

`CommittedPartition` is a partition of a directory as a reader of committed records sees it: consumers, `Log.read`,
`Log.read_arrow` and Spark's source read it in the place of the partition itself.
"""

from __future__ import annotations

from foldlog.broker.storage import ISOLATION_LEVELS as ISOLATION_LEVELS
from foldlog.broker.storage import READ_COMMITTED as READ_COMMITTED
from foldlog.client.consumer.arrivals import AnyPartition
from foldlog.errors import InvalidArgument, brief_repr
from foldlog.log.checkpoint import StartReason
from foldlog.log.reading import FetchedBatches, without_aborted


def checked_isolation(isolation: object) -> bool | None:
    """Whether only committed records are read; None leaves it to how the log was opened.

    >>> checked_isolation("read_committed"), checked_isolation("read_uncommitted"), checked_isolation(None)
    (True, False, None)
    """
    if isolation is None:
        return None
    if isolation not in ISOLATION_LEVELS:
        known = " or ".join(map(repr, ISOLATION_LEVELS))
        raise InvalidArgument(f"isolation={brief_repr(isolation)} is not known; it is {known}")
    return isolation == READ_COMMITTED


class CommittedPartition:
    """A partition that ends at its last stable offset, without the batches of aborted transactions. Any thread."""

    __slots__ = ("label", "partition")

    def __init__(self, partition: AnyPartition) -> None:
        self.partition = partition
        self.label = partition.label

    @property
    def log_start_offset(self) -> int:
        return self.partition.log_start_offset

    @property
    def start_reason(self) -> StartReason:
        return self.partition.start_reason

    @property
    def high_watermark(self) -> int:
        """What may be read is below: the last stable offset."""
        return self.partition.last_stable_offset

    @property
    def leader_epoch(self) -> int:
        return self.partition.leader_epoch

    @property
    def decompressed_limit(self) -> int:
        return self.partition.decompressed_limit

    @property
    def size_bytes(self) -> int:
        return self.partition.size_bytes

    def acknowledged_end(self) -> int:
        """The last stable offset, with all that was acknowledged before the call."""
        self.partition.acknowledged_end()
        return self.partition.last_stable_offset

    def read(self, offset: int, max_bytes: int, into: bytearray | None = None) -> FetchedBatches:
        """Batches of committed transactions and of none, from `offset` on; none if only aborted ones are left before
        the end, with `next_offset` behind them."""
        while True:
            found = without_aborted(self.partition.read(offset, max_bytes, into, committed=True))
            if found.data or found.next_offset == offset:
                return found
            offset = found.next_offset

    def offset_at_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        return self.partition.offset_at_time(timestamp_ms, committed=True)


ReadablePartition = AnyPartition | CommittedPartition


def readable(partition: AnyPartition, committed: bool | None) -> ReadablePartition:
    """The partition, as a reader of that isolation sees it."""
    return CommittedPartition(partition) if committed else partition


def plain(partition: ReadablePartition) -> AnyPartition:
    """The partition itself."""
    return partition.partition if isinstance(partition, CommittedPartition) else partition


def held_end(partition: ReadablePartition) -> int:
    """Where the log ends, undecided transactions included: a reader of committed records may stand behind the last
    stable offset, and waits there."""
    return plain(partition).acknowledged_end()
