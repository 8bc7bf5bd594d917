"""What librdkafka has no call for, asked over our own connections: members made to leave, committed offsets deleted, or
read with notes that it cannot hand on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foldlog.broker.bookmarks import OffsetAndMetadata
from foldlog.client import cluster_groups as requests
from foldlog.client.descriptions import not_empty
from foldlog.client.kafka.groups import HAS_MEMBERS
from foldlog.client.kafka.url import KafkaUrl
from foldlog.client.kafka.wire import wired
from foldlog.client.positions import TopicPartition
from foldlog.limits import EVICTION_TRIES_MAX


def move_evicting(url: KafkaUrl, group: str, places: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Make all members leave, and commit before they are back; again, if one was quicker.

    They notice when they next ask the group, join it anew, and read on from what is committed here.
    """
    with wired(url) as links:
        for tries in range(1, EVICTION_TRIES_MAX + 1):
            requests.evict_members(links, group)
            try:
                requests.commit_places(links, group, places)
            except HAS_MEMBERS as error:
                if tries == EVICTION_TRIES_MAX:
                    raise not_empty(group, requests.describe_group(links, group).members) from error
            else:
                return


def delete_offsets(url: KafkaUrl, group: str, partitions: Sequence[TopicPartition]) -> None:
    """Forget what a group committed in these partitions."""
    with wired(url) as links:
        requests.delete_offsets(links, group, partitions)


def committed(url: KafkaUrl, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a group has committed."""
    with wired(url) as links:
        return requests.committed_places(links, group)
