"""A cluster's groups, asked over our own connections.

librdkafka has no call that makes members leave, and aborts the process when a coordinator is lost while an admin call
waits for it (2.16; https://github.com/confluentinc/librdkafka/issues/4605).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from foldlog.broker.bookmarks import OffsetAndMetadata
from foldlog.client import cluster_groups, cluster_requests
from foldlog.client.descriptions import GroupDescription
from foldlog.client.kafka.handles import Handles
from foldlog.client.positions import TopicPartition


def describe_group(handles: Handles, group: str) -> GroupDescription:
    """UnknownGroup if the cluster knows nothing of it."""
    with handles.wire() as links:
        return cluster_groups.describe_group(links, group)


def committed(handles: Handles, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a group has committed; nothing, if there is no such group."""
    with handles.wire() as links:
        places = cluster_groups.committed_places(links, group)
    # confluent-kafka 2.16 commits the byte that ends a string in C as part of the note.
    return {one: replace(place, metadata=place.metadata.removesuffix("\0")) for one, place in places.items()}


def commit(handles: Handles, group: str, places: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """As nobody's member; one of `evictions.HAS_MEMBERS` while there are some."""
    with handles.wire() as links:
        cluster_groups.commit_places(links, group, places)


def delete_group(handles: Handles, group: str) -> None:
    with handles.wire() as links:
        cluster_requests.delete_group(links, group)


def delete_offsets(handles: Handles, group: str, partitions: Sequence[TopicPartition]) -> None:
    """Forget what a group committed in these partitions."""
    with handles.wire() as links:
        cluster_groups.delete_offsets(links, group, partitions)


def evict_members(handles: Handles, group: str) -> None:
    """Make all members leave. InvalidConfig where only librdkafka can log in."""
    with handles.wire() as links:
        cluster_groups.evict_members(links, group)
