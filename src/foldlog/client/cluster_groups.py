"""What is asked of a cluster about the members of a group, over our own connections; see cluster_requests.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from foldlog.broker import group_messages
from foldlog.broker.bookmarks import OffsetAndMetadata
from foldlog.client import group_questions, remote_requests
from foldlog.client.cluster_links import ClusterLinks, ClusterTopic
from foldlog.client.cluster_patience import Passing
from foldlog.client.cluster_requests import COMMIT_BY_NAME, coordinator
from foldlog.client.descriptions import GroupDescription, described_group
from foldlog.client.positions import TopicPartition
from foldlog.errors import CoordinatorUnavailable, MalformedBytes
from foldlog.wire.messages.describe_groups import DescribeGroupsResponse
from foldlog.wire.messages.leave_group import LeaveGroupResponse

Done = TypeVar("Done")


def describe_group(links: ClusterLinks, group: str) -> GroupDescription:
    """UnknownGroup if the cluster knows nothing of it."""
    return described_group(_described(links, group))


def _described(links: ClusterLinks, group: str) -> group_messages.GroupDescription:
    def attempt() -> group_messages.GroupDescription:
        request = group_questions.describe_request(group)
        answer = links.call(coordinator(links, group), request, DescribeGroupsResponse)
        return _unless_passing(lambda: group_questions.read_description(answer, group))

    return links.retried(attempt)


def evict_members(links: ClusterLinks, group: str) -> None:
    """Have everybody leave who is in the group now."""

    def attempt() -> None:
        members = _described(links, group).members
        if members:
            request = group_questions.leave_request(group, members)
            answer = links.call(coordinator(links, group), request, LeaveGroupResponse)
            _unless_passing(lambda: group_questions.check_left(answer, group))

    links.retried(attempt)


def commit_places(links: ClusterLinks, group: str, places: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Store a group's offsets as nobody's member; a GroupError if it has members."""

    def attempt() -> None:
        topics: dict[str, ClusterTopic] = {one.topic: links.topic(one.topic) for one in places}
        topic_ids = {name: topic.topic_id for name, topic in topics.items()}
        question = remote_requests.commit(group, dict(places.items()), topic_ids, "", -1, None)
        limits = [topic.version_limit(COMMIT_BY_NAME) for topic in topics.values()]
        limit = min((one for one in limits if one is not None), default=None)
        answer = links.call(coordinator(links, group), question.request, question.answer, limit)
        if len(answer.topics) != len(topics):
            raise MalformedBytes("OffsetCommit response", "it is not about the topics that were committed", 0)
        _unless_passing(lambda: question.read(answer))

    links.retried(attempt)


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
