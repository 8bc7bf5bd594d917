"""Group names of foldlog itself, what kind a group is, and the errors of moving one that has members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.eviction import HAS_MEMBERS as HAS_MEMBERS
from foldlog.broker.groups.messages import GroupType, check_group_name
from foldlog.client.positions import Place, TopicPartition, checked_partitions, resolve_place
from foldlog.errors import InconsistentProtocol, InvalidArgument, UnknownGroup, brief_repr

if TYPE_CHECKING:
    from foldlog.client.backends.backend import Backend

COPY_GROUP: Final = "foldlog-copy"
"""Its committed offsets are the ends of copies; their metadata says of what."""

CHECK_GROUP: Final = "foldlog-copy-check"
"""Its committed offsets are how far copies were compared with their sources; their metadata says with which."""

OWN_GROUPS: Final = frozenset({COPY_GROUP, CHECK_GROUP})
"""Groups in which copies note their progress. No consumer uses them, so they are not listed with the others."""


def resolve_offsets(
    backend: Backend, group: str, offsets: Mapping[tuple[str, int], Place]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What is committed for a group that is moved to these offsets."""
    check_group_name(group)
    if not isinstance(offsets, Mapping):
        raise InvalidArgument(
            f"a group is moved to a dict such as {{('orders', 0): 'start'}}, not to {brief_repr(offsets)}"
        )
    partitions = checked_partitions(offsets)
    backend.check_partitions(partitions)
    bounds = backend.bounds(partitions)
    return {
        one: OffsetAndMetadata(resolve_place(bounds[one], offsets[one], "offset"), bounds[one].leader_epoch)
        for one in partitions
    }


def is_of_a_queue(backend: Backend, group: str) -> bool | None:
    """Whether it is a share group; None if there is no such group."""
    try:
        return backend.describe_group(group).group_type == GroupType.SHARE
    except UnknownGroup:
        return None


def not_of_a_queue(group: str) -> InconsistentProtocol:
    return InconsistentProtocol(
        f"group {brief_repr(group)} is a group of consumers, not of a queue; choose another name"
    )


def not_of_consumers(group: str) -> InconsistentProtocol:
    return InconsistentProtocol(
        f"group {brief_repr(group)} is a queue's, not a group of consumers; choose another name"
    )
