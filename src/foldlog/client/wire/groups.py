"""What is asked of a cluster about the members of a group, over our own connections; see cluster_requests.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from foldlog.broker.groups import messages as group_messages
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.client.backends.served import requests as remote_requests
from foldlog.client.descriptions import GroupDescription, described_group
from foldlog.client.positions import TopicPartition
from foldlog.client.wire import group_members
from foldlog.client.wire.links import ClusterLinks, TopicMetadata
from foldlog.client.wire.refusals import Passing, check_code
from foldlog.client.wire.requests import COMMIT_BY_NAME, coordinator
from foldlog.errors import CoordinatorUnavailable, MalformedBytes, RefusedByBroker
from foldlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from foldlog.wire.messages.describe_groups import DescribeGroupsResponse
from foldlog.wire.messages.leave_group import LeaveGroupResponse
from foldlog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

Done = TypeVar("Done")

_FETCH_BY_NAME: Final = 9
"""The last version of OffsetFetch that names topics; later ones have their ids."""


def describe_group(links: ClusterLinks, group: str) -> GroupDescription:
    """UnknownGroup if the cluster knows nothing of it."""
    found = _described(links, group)
    if found.state is group_messages.GroupState.DEAD:
        newer = _described_by_newer_protocol(links, group)
        if newer is not None:
            return newer
    return described_group(found)


def _described_by_newer_protocol(links: ClusterLinks, group: str) -> GroupDescription | None:
    """A group in which the brokers share out partitions (KIP-848): the older question does not know of it."""

    def attempt() -> GroupDescription | None:
        request = ConsumerGroupDescribeRequest(group_ids=[group])
        try:
            answer = links.call(coordinator(links, group), request, ConsumerGroupDescribeResponse)
        except RefusedByBroker:
            return None  # a broker without it, such as ours
        return _unless_passing(lambda: group_members.read_newer_description(answer, group))

    return links.retried(attempt)


def _described(links: ClusterLinks, group: str) -> group_messages.GroupDescription:
    def attempt() -> group_messages.GroupDescription:
        request = group_members.describe_request(group)
        answer = links.call(coordinator(links, group), request, DescribeGroupsResponse)
        return _unless_passing(lambda: group_members.read_description(answer, group))

    return links.retried(attempt)


def evict_members(links: ClusterLinks, group: str) -> None:
    """Have everybody leave who is in the group now."""

    def attempt() -> None:
        members = _described(links, group).members
        if members:
            request = group_members.leave_request(group, members)
            answer = links.call(coordinator(links, group), request, LeaveGroupResponse)
            _unless_passing(lambda: group_members.check_left(answer, group))

    links.retried(attempt)


def commit_places(links: ClusterLinks, group: str, places: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Store a group's offsets as nobody's member; a GroupError if it has members."""

    def attempt() -> None:
        topics: dict[str, TopicMetadata] = {one.topic: links.topic(one.topic) for one in places}
        topic_ids = {name: topic.topic_id for name, topic in topics.items()}
        question = remote_requests.commit(group, dict(places.items()), topic_ids, "", -1, None)
        limits = [topic.version_limit(COMMIT_BY_NAME) for topic in topics.values()]
        limit = min((one for one in limits if one is not None), default=None)
        answer = links.call(coordinator(links, group), question.request, question.answer, limit)
        if len(answer.topics) != len(topics):
            raise MalformedBytes("OffsetCommit response", "it is not about the topics that were committed", 0)
        _unless_passing(lambda: question.read(answer))

    links.retried(attempt)


def committed_places(links: ClusterLinks, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """All that a group has committed, with the notes; nothing, if there is no such group."""

    def attempt() -> dict[TopicPartition, OffsetAndMetadata]:
        # Older versions have the group in the request itself, newer ones a list; the null asks for all topics.
        wanted = OffsetFetchRequestGroup(group_id=group, topics=None)
        request = OffsetFetchRequest(group_id=group, topics=None, groups=[wanted])
        answer = links.call(coordinator(links, group), request, OffsetFetchResponse, _FETCH_BY_NAME)
        told = answer.groups[0] if answer.groups else answer
        check_code(told.error_code, group=group)
        return {
            TopicPartition(topic.name, one.partition_index): OffsetAndMetadata(
                one.committed_offset, one.committed_leader_epoch, one.metadata or ""
            )
            for topic in told.topics
            for one in topic.partitions
            if not one.error_code and one.committed_offset >= 0
        }

    return links.retried(attempt)


def delete_offsets(links: ClusterLinks, group: str, partitions: Sequence[TopicPartition]) -> None:
    """GroupNotEmpty while the group reads them."""

    def attempt() -> None:
        question = remote_requests.delete_offsets(group, partitions)
        answer = links.call(coordinator(links, group), question.request, question.answer)
        _unless_passing(lambda: question.read(answer))

    links.retried(attempt)


def _unless_passing(read: Callable[[], Done]) -> Done:
    """A coordinator that is just loading, or elsewhere by now, is asked again."""
    try:
        return read()
    except CoordinatorUnavailable as error:
        raise Passing(error) from error
