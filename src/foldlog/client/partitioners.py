"""Which partition a record goes to: the one named, else by its key, else the keyless rule.

By key: `murmur2(key) % partitions`, as Java clients do, so that embedded and remote producers agree. Keyless records
stick to one partition until its batch closes (large batches are cheap), or go round-robin record by record when asked.
A callable `(topic, key, partition_count) -> partition` replaces both rules; a named partition still wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foldlog.errors import InvalidArgument, UnknownPartition, brief_repr
from foldlog.records.loops import murmur2

Partitioner = Callable[[str, bytes | None, int], int]


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Where Java clients would send this key.

    >>> partition_for_key(b"tx_001", 1)
    0
    """
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def checked_partition(topic: str, partition: int, partition_count: int) -> int:
    """`partition` if the topic has it; UnknownPartition otherwise, for negatives, bools and other types too.

    >>> checked_partition("orders", 2, 3)
    2
    """
    if type(partition) is int and 0 <= partition < partition_count:
        return partition
    raise UnknownPartition(topic, partition, partition_count)


def keyless_rule(partitioner: Partitioner | str | None) -> tuple[Partitioner | None, bool]:
    """What `partitioner=` means: the caller's own callable, and whether keyless records go round-robin.

    "roundrobin" is Kafka's spelling of the assignor; a name that works in one place works in the other.

    >>> keyless_rule(None), keyless_rule("round_robin"), keyless_rule("roundrobin")
    ((None, False), (None, True), (None, True))
    """
    if partitioner is None or partitioner == "sticky":
        return None, False
    if partitioner in ("round_robin", "roundrobin"):
        return None, True
    if callable(partitioner):
        return partitioner, False
    raise InvalidArgument(
        f"no partitioner {brief_repr(partitioner)};"
        " give 'sticky', 'round_robin' or a callable(topic, key, partition_count)"
    )


def emptiest(end_offsets: Sequence[int]) -> int:
    """Where keyless records begin: the partition with the lowest end offset, the first of several.

    Deterministic, and short-lived producers that each send a little still fill all partitions.

    >>> emptiest([5, 2, 2])
    1
    """
    return min(range(len(end_offsets)), key=end_offsets.__getitem__)
