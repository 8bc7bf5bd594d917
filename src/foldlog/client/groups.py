"""Groups that are not read with, but looked after: foldlog's own, and one with members that is to be moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.eviction import HAS_MEMBERS as HAS_MEMBERS
from foldlog.broker.groups.messages import check_group_name
from foldlog.client.positions import Place, TopicPartition, checked_partitions, resolve_place
from foldlog.errors import InvalidArgument, brief_repr

if TYPE_CHECKING:
    from foldlog.client.backends.backend import Backend

COPY_GROUP: Final = "foldlog-copy"
"""Its committed offsets are the ends of copies; their notes say of what."""

CHECK_GROUP: Final = "foldlog-copy-check"
"""Its committed offsets are how far copies have been compared with their sources; their notes say with which."""

OWN_GROUPS: Final = frozenset({COPY_GROUP, CHECK_GROUP})
"""In which copies note how far they are. Nobody reads with them, so they are not listed among those that people do."""


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
