"""What librdkafka has no call for, asked over our own connections: members made to leave, committed offsets deleted, or
read with notes that it cannot hand on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foldlog.broker.bookmarks import OffsetAndMetadata
from foldlog.client import cluster_groups as requests
from foldlog.client.cluster_links import ClusterLinks
from foldlog.client.cluster_properties import ClusterProperties
from foldlog.client.descriptions import not_empty
from foldlog.client.kafka.groups import HAS_MEMBERS
from foldlog.client.kafka.url import KafkaUrl
from foldlog.client.positions import TopicPartition
from foldlog.limits import EVICTION_TRIES_MAX


def _links(url: KafkaUrl) -> ClusterLinks:
    return ClusterLinks(url.addresses, ClusterProperties.parse(url.properties))


def move_evicting(url: KafkaUrl, group: str, places: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Make all members leave, and commit before they are back; again, if one was quicker.

    They notice when they next ask the group, join it anew, and read on from what is committed here.
    """
    links = _links(url)
    try:
        links.open(has_answered=True)
        for tries in range(1, EVICTION_TRIES_MAX + 1):
            requests.evict_members(links, group)
            try:
                requests.commit_places(links, group, places)
            except HAS_MEMBERS as error:
                if tries == EVICTION_TRIES_MAX:
                    raise not_empty(group, requests.describe_group(links, group).members) from error
            else:
                return
    finally:
        links.close()


def delete_offsets(url: KafkaUrl, group: str, partitions: Sequence[TopicPartition]) -> None:
    """Forget what a group committed in these partitions."""
    links = _links(url)
    try:
        links.open(has_answered=True)
        requests.delete_offsets(links, group, partitions)
    finally:
        links.close()


def committed(url: KafkaUrl, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a group has committed."""
    links = _links(url)
    try:
        links.open(has_answered=True)
        return requests.committed_places(links, group)
    finally:
        links.close()
