"""What is asked of a cluster beside records: offsets, leader epochs, settings, topics, groups.

Plain functions over `ClusterLinks`; each asks again as long as the call's backoff lasts. An answer that is not about
what was asked is MalformedBytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from foldlog.client.wire.links import ClusterLinks, TopicMetadata
from foldlog.client.wire.properties import Address
from foldlog.client.wire.refusals import Passing, check_code, group_error, topic_error
from foldlog.client.wire.retries import LinkLost
from foldlog.errors import MalformedBytes, TopicExists, UnknownTopic
from foldlog.wire.error_codes import ErrorCode, exception_of, known_code
from foldlog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from foldlog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from foldlog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from foldlog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from foldlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from foldlog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from foldlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from foldlog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

EARLIEST: Final = -2
LATEST: Final = -1

_TOPIC_RESOURCE: Final = 2
_GROUP_KEY: Final = 0
COMMIT_BY_NAME: Final = 9
"""The last version of OffsetCommit that names topics; later ones have their ids."""

_NO_MEMBER: Final = ""
_NO_GENERATION: Final = -1
_BROKERS_DEFAULT: Final = -1

Item = TypeVar("Item")


class ListedOffset(NamedTuple):
    """An offset that was looked up, -1 if there is none; the time and leader epoch of its record, as far as told."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def list_offsets(
    links: ClusterLinks, topic: str, times_ms: Mapping[int, int], *, isolation_level: int | None = None
) -> dict[int, ListedOffset]:
    """Per partition the first offset at or after its time, or EARLIEST, or LATEST: the high watermark, or with
    read_committed the last stable offset. `isolation_level`: another than the properties say.
    """
    level = links.properties.isolation_level if isolation_level is None else isolation_level
    found: dict[int, ListedOffset] = {}

    def attempt() -> None:
        passing: Passing | None = None
        missing = [number for number in times_ms if number not in found]
        for address, places in links.places(topic, missing).items():
            wanted = [
                ListOffsetsPartition(
                    partition_index=number, current_leader_epoch=place.epoch, timestamp=times_ms[number]
                )
                for number, place in places.items()
            ]
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=level,
                topics=[ListOffsetsTopic(name=topic, partitions=wanted)],
                timeout_ms=links.properties.request_timeout_ms,
            )
            answer = links.call(address, request, ListOffsetsResponse)
            results = {one.partition_index: one for one in _only(answer.topics, "ListOffsets").partitions}
            for number in places:
                result = _of(results, number, "ListOffsets")
                try:
                    check_code(result.error_code, topic=topic, partition=number)
                except Passing as error:
                    passing = error
                else:
                    found[number] = ListedOffset(result.offset, result.timestamp, result.leader_epoch)
        if passing is not None:
            raise passing

    links.retried(attempt)
    return {number: found[number] for number in times_ms}


def epoch_end(links: ClusterLinks, topic: str, partition: int, epoch: int) -> tuple[int, int]:
    """(the latest epoch not after `epoch`, the offset where it ended); (-1, -1) where the leader knows none such."""

    def attempt() -> tuple[int, int]:
        place = links.place(topic, partition)
        wanted = OffsetForLeaderPartition(partition=partition, current_leader_epoch=place.epoch, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
        )
        answer = links.call(place.address, request, OffsetForLeaderEpochResponse)
        result = _only(_only(answer.topics, "OffsetForLeaderEpoch").partitions, "OffsetForLeaderEpoch")
        check_code(result.error_code, topic=topic, partition=partition)
        return result.leader_epoch, result.end_offset

    return links.retried(attempt)


def topic_config(links: ClusterLinks, topic: str, names: Iterable[str] | None = None) -> dict[str, str]:
    """Settings of a topic that are in force, defaults included."""
    keys = None if names is None else list(names)
    resource = DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=keys)

    def attempt() -> dict[str, str]:
        answer = links.call_any(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
        result = _only(answer.results, "DescribeConfigs")
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            links.topic(topic)  # says so, if it is gone
        check_code(result.error_code, result.error_message, topic=topic)
        return {row.name: row.value for row in result.configs if row.value is not None}

    return links.retried(attempt)


def create_topic(links: ClusterLinks, name: str, partitions: int, config: Mapping[str, str]) -> None:
    """Returns once the brokers know of it and each partition has a leader. TopicExists if there is one."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=_BROKERS_DEFAULT,
        configs=[CreatableTopicConfig(name=setting, value=value) for setting, value in config.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=links.properties.request_timeout_ms)
    is_unsure = False

    def attempt() -> None:
        nonlocal is_unsure
        try:
            result = _only(links.call_controller(request, CreateTopicsResponse).topics, "CreateTopics")
        except LinkLost:
            is_unsure = True
            raise
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and is_unsure:
            return  # by the try whose answer was lost
        if result.error_code and not known_code(result.error_code).is_retriable:
            raise topic_error(result.error_code, result.error_message, name)
        if result.error_code:
            is_unsure = True
            check_code(result.error_code, result.error_message, topic=name)

    links.retried(attempt)
    links.retried(lambda: _check_led(links, name, partitions))


def _check_led(links: ClusterLinks, name: str, partitions: int) -> None:
    try:
        links.topic(name)
    except UnknownTopic as error:
        raise Passing(error) from error
    for number in range(partitions):
        links.place(name, number)


def ensure_topic(links: ClusterLinks, name: str, partitions: int, config: Mapping[str, str]) -> None:
    """Make a topic unless it exists."""
    try:
        links.topic(name)
    except UnknownTopic:
        try:
            create_topic(links, name, partitions, config)
        except TopicExists:
            pass  # another process was as quick


def new_producer_id(links: ClusterLinks) -> tuple[int, int]:
    """A producer id and epoch that nobody else has."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=links.properties.request_timeout_ms)

    def attempt() -> tuple[int, int]:
        answer = links.call_any(request, InitProducerIdResponse)
        check_code(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    return links.retried(attempt)


def commit(links: ClusterLinks, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """The group's committed offsets; the group must have no members."""

    def attempt() -> None:
        described = links.topic(topic)
        request = _commit_request(group, described, offsets)
        limit = described.version_limit(COMMIT_BY_NAME)
        answer = links.call(coordinator(links, group), request, OffsetCommitResponse, limit)
        results = {one.partition_index: one for one in _only(answer.topics, "OffsetCommit").partitions}
        for number in offsets:
            _check_group(_of(results, number, "OffsetCommit").error_code, group, topic, number)

    if offsets:
        links.retried(attempt)


def _commit_request(group: str, topic: TopicMetadata, offsets: Mapping[int, int]) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="")
        for number, offset in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=_NO_GENERATION,
        member_id=_NO_MEMBER,
        topics=[OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)],
    )


def delete_group(links: ClusterLinks, group: str) -> None:
    """UnknownGroup if there is none; GroupNotEmpty if it has members."""
    is_unsure = False

    def attempt() -> None:
        nonlocal is_unsure
        address = coordinator(links, group)
        try:
            answer = links.call(address, DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse)
        except LinkLost:
            is_unsure = True
            raise
        code = _only(answer.results, "DeleteGroups").error_code
        if code == ErrorCode.GROUP_ID_NOT_FOUND and is_unsure:
            return  # by the try whose answer was lost
        _check_group(code, group)

    links.retried(attempt)


def coordinator(links: ClusterLinks, group: str) -> Address:
    """Which broker looks after the group, as of now."""
    request = FindCoordinatorRequest(key=group, key_type=_GROUP_KEY, coordinator_keys=[group])
    answer = links.call_any(request, FindCoordinatorResponse)
    if not answer.coordinators:  # up to version 3 there is one, in the answer itself
        check_code(answer.error_code, answer.error_message, group=group)
        return Address(answer.host, answer.port)
    found = _only(answer.coordinators, "FindCoordinator")
    check_code(found.error_code, found.error_message, group=group)
    return Address(found.host, found.port)


def _check_group(code: int, group: str, topic: str | None = None, partition: int | None = None) -> None:
    if not code:
        return
    if known_code(code).is_retriable:
        raise Passing(exception_of(code, None, topic=topic, partition=partition, group=group))
    raise group_error(code, group)


def _only(items: Iterable[Item], what: str) -> Item:
    found = list(items)
    if len(found) != 1:
        raise MalformedBytes(f"{what} response", f"{len(found)} results for one question", 0)
    return found[0]


def _of(results: Mapping[int, Item], number: int, what: str) -> Item:
    found = results.get(number)
    if found is None:
        raise MalformedBytes(f"{what} response", f"nothing about partition {number}", 0)
    return found
