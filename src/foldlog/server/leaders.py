"""Who leads which partition, as answers about topics tell it: this broker does, unless a partition is not to be had.

A leader epoch is only known of an open partition (an unclean open raises it), and clients compare epochs; so what is
asked about is opened first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.broker.catalog import Topic
from foldlog.broker.topic_names import OFFSETS_TOPIC
from foldlog.errors import FoldlogError, StorageError
from foldlog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from foldlog.broker.open_partitions import Key
    from foldlog.server.node import Node

_NOBODY: Final = -1
_NO_EPOCH: Final = -1

_INTERNAL: Final = frozenset({OFFSETS_TOPIC, "__transaction_state"})


class Leader(NamedTuple):
    """A partition as metadata has it."""

    error_code: int
    partition: int
    leader_id: int
    leader_epoch: int
    offline_replicas: Sequence[int]


def is_internal_to_kafka(name: str) -> bool:
    """Whether clients should take it for the broker's own. Kafka names these two; any other name is a user's."""
    return name in _INTERNAL


async def leaders_of(node: Node, wanted: Iterable[tuple[Topic, range]]) -> list[list[Leader]]:
    """For each topic the leaders of the partitions asked for. Waits for partitions to open, but for no long recovery.

    One that is still being recovered, and one that is damaged, have no leader: clients ask again. The replica of a
    damaged one is offline, as Kafka says of a partition whose directory failed.
    """
    wanted = list(wanted)
    failed = await node.openings.open((topic.name, number) for topic, numbers in wanted for number in numbers)
    return [[_leader(node, topic.name, number, failed) for number in numbers] for topic, numbers in wanted]


def _leader(node: Node, topic: str, number: int, failed: Mapping[Key, FoldlogError]) -> Leader:
    partition = node.broker.opened_partition(topic, number)
    if partition is not None:
        return Leader(ErrorCode.NONE, number, node.settings.node_id, partition.leader_epoch, ())
    is_damaged = isinstance(failed.get((topic, number)), StorageError)
    offline = (node.settings.node_id,) if is_damaged else ()
    return Leader(ErrorCode.LEADER_NOT_AVAILABLE, number, _NOBODY, _NO_EPOCH, offline)
