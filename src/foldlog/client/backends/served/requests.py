"""What is asked of the process that serves a directory, and what its answers mean: pure functions, no sockets.

Each gives a Question: the request, and how to read the answer, which raises what the log itself would have raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.messages import GroupDescription, MemberDescription
from foldlog.client.wire import group_members
from foldlog.client.wire.refusals import group_error, topic_error
from foldlog.errors import FoldlogError, MalformedBytes, MetadataTooLarge
from foldlog.limits import OFFSET_METADATA_BYTES_MAX, WRITER_ANSWER_MS
from foldlog.wire.error_codes import ErrorCode, exception_of
from foldlog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from foldlog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from foldlog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from foldlog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from foldlog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from foldlog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from foldlog.wire.messages.describe_groups import DescribeGroupsResponse
from foldlog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from foldlog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from foldlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from foldlog.wire.messages.leave_group import LeaveGroupResponse
from foldlog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from foldlog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from foldlog.wire.messages.metadata import MetadataRequest, MetadataResponse
from foldlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from foldlog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from foldlog.wire.schema import Request, Response

Answer = TypeVar("Answer", bound=Response)
Done = TypeVar("Done")
Item = TypeVar("Item")

_CLIENT_SETTINGS: Final = {"message.max.bytes": "max.message.bytes", "log.cleanup.policy": "cleanup.policy"}
"""The broker's settings that decide which records a client may send, and the topic settings they are defaults of."""

_LATEST: Final = -1
"""A time that is none: where the partition ends."""

_STATIC_BROKER_CONFIG: Final = 4
_BROKER_RESOURCE: Final = 4
_TOPIC_RESOURCE: Final = 2
_SET: Final = 0
_DELETE: Final = 1


@dataclass(frozen=True, slots=True)
class Question(Generic[Answer, Done]):
    """A request, the class of its answer, and how to read that one; `repeatable`: asking twice does no harm."""

    request: Request
    answer: type[Answer]
    read: Callable[[Answer], Done]
    repeatable: bool


def create_topic(name: str, partitions: int, settings: Mapping[str, str]) -> Question[CreateTopicsResponse, None]:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=setting, value=value) for setting, value in settings.items()],
    )

    def read(answer: CreateTopicsResponse) -> None:
        result = _one(answer.topics)
        if result.error_code:
            raise topic_error(result.error_code, result.error_message, name)

    request = CreateTopicsRequest(topics=[topic], timeout_ms=WRITER_ANSWER_MS)
    return Question(request, CreateTopicsResponse, read, repeatable=False)


def delete_topic(name: str) -> Question[DeleteTopicsResponse, None]:
    def read(answer: DeleteTopicsResponse) -> None:
        result = _one(answer.responses)
        if result.error_code:
            raise topic_error(result.error_code, result.error_message, name)

    # Up to version 5 the names stand alone; later each may be an id instead.
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=WRITER_ANSWER_MS)
    return Question(request, DeleteTopicsResponse, read, repeatable=False)


def grow_topic(name: str, partitions: int) -> Question[CreatePartitionsResponse, None]:
    def read(answer: CreatePartitionsResponse) -> None:
        result = _one(answer.results)
        if result.error_code:
            raise topic_error(result.error_code, result.error_message, name)

    topic = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=WRITER_ANSWER_MS)
    return Question(request, CreatePartitionsResponse, read, repeatable=False)


def alter_topic(name: str, settings: Mapping[str, str | None]) -> Question[IncrementalAlterConfigsResponse, None]:
    """None puts a setting back to its default."""

    def read(answer: IncrementalAlterConfigsResponse) -> None:
        result = _one(answer.responses)
        if result.error_code:
            raise topic_error(result.error_code, result.error_message, name)

    configs = [
        AlterableConfig(name=setting, config_operation=_DELETE if value is None else _SET, value=value)
        for setting, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name, configs=configs)
    return Question(
        IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse, read, repeatable=True
    )


def delete_records(topic: str, number: int, before_offset: int) -> Question[DeleteRecordsResponse, int]:
    """Answers the new log start."""

    def read(answer: DeleteRecordsResponse) -> int:
        result = _one(_one(answer.topics).partitions)
        if result.error_code:
            raise topic_error(result.error_code, None, topic, number)
        return result.low_watermark

    wanted = DeleteRecordsTopic(
        name=topic, partitions=[DeleteRecordsPartition(partition_index=number, offset=before_offset)]
    )
    request = DeleteRecordsRequest(topics=[wanted], timeout_ms=WRITER_ANSWER_MS)
    return Question(request, DeleteRecordsResponse, read, repeatable=True)


def end_of_partition(topic: str, number: int) -> Question[ListOffsetsResponse, int]:
    """Where it ends, answered once all that was acknowledged is durable."""

    def read(answer: ListOffsetsResponse) -> int:
        result = _one(_one(answer.topics).partitions)
        if result.error_code:
            raise topic_error(result.error_code, None, topic, number)
        return result.offset

    wanted = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=number, timestamp=_LATEST)])
    return Question(ListOffsetsRequest(topics=[wanted]), ListOffsetsResponse, read, repeatable=True)


def node_id() -> Question[MetadataResponse, int]:
    """The broker's number, by which its own settings are asked for."""

    def read(answer: MetadataResponse) -> int:
        return _one(answer.brokers).node_id

    return Question(MetadataRequest(allow_auto_topic_creation=False), MetadataResponse, read, repeatable=True)


def topic_defaults(node: int) -> Question[DescribeConfigsResponse, dict[str, str]]:
    """What the broker sets for topics that do not, by the topic setting's name, as far as a client has to know it."""

    def read(answer: DescribeConfigsResponse) -> dict[str, str]:
        result = _one(answer.results)
        if result.error_code:
            raise exception_of(result.error_code, result.error_message)
        return {
            _CLIENT_SETTINGS[row.name]: row.value
            for row in result.configs
            if row.name in _CLIENT_SETTINGS and row.config_source == _STATIC_BROKER_CONFIG and row.value is not None
        }

    broker = DescribeConfigsResource(
        resource_type=_BROKER_RESOURCE, resource_name=str(node), configuration_keys=list(_CLIENT_SETTINGS)
    )
    return Question(DescribeConfigsRequest(resources=[broker]), DescribeConfigsResponse, read, repeatable=True)


def new_producer_id() -> Question[InitProducerIdResponse, int]:
    def read(answer: InitProducerIdResponse) -> int:
        if answer.error_code:
            raise exception_of(answer.error_code, None)
        return answer.producer_id

    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=WRITER_ANSWER_MS)
    return Question(request, InitProducerIdResponse, read, repeatable=True)


def last_sequences(
    partitions: Iterable[tuple[str, int]], producer_id: int, epoch: int
) -> Question[DescribeProducersResponse, dict[tuple[str, int], int]]:
    """The last sequence number that each partition has of a producer's epoch; left out where it remembers none."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)

    def read(answer: DescribeProducersResponse) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code:
                    raise topic_error(one.error_code, one.error_message, topic.name, one.partition_index)
                for producer in one.active_producers:
                    if (producer.producer_id, producer.producer_epoch) == (producer_id, epoch):
                        found[topic.name, one.partition_index] = producer.last_sequence
        return found

    topics = [TopicRequest(name=name, partition_indexes=numbers) for name, numbers in by_topic.items()]
    return Question(DescribeProducersRequest(topics=topics), DescribeProducersResponse, read, repeatable=True)


def commit(
    group: str,
    offsets: Mapping[tuple[str, int], OffsetAndMetadata],
    topic_ids: Mapping[str, bytes],
    member_id: str,
    generation: int,
    instance_id: str | None,
) -> Question[OffsetCommitResponse, None]:
    """Repeatable: the group's place is the same after the second time."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, number), place in offsets.items():
        size_bytes = len(place.metadata.encode())
        if size_bytes > OFFSET_METADATA_BYTES_MAX:
            raise MetadataTooLarge(size_bytes, OFFSET_METADATA_BYTES_MAX)
        by_topic.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=place.offset,
                committed_leader_epoch=place.leader_epoch,
                committed_metadata=place.metadata,
            )
        )
    names = list(by_topic)

    def read(answer: OffsetCommitResponse) -> None:
        for name, topic in zip(names, answer.topics, strict=True):
            for result in topic.partitions:
                if result.error_code:
                    raise _commit_error(result.error_code, group, name, result.partition_index)

    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[
            OffsetCommitRequestTopic(name=name, topic_id=topic_ids[name], partitions=partitions)
            for name, partitions in by_topic.items()
        ],
    )
    return Question(request, OffsetCommitResponse, read, repeatable=True)


def _commit_error(code: int, group: str, topic: str, number: int) -> FoldlogError:
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return topic_error(code, None, topic)
    if code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_METADATA_TOO_LARGE):
        return exception_of(code, None, topic=topic, partition=number, group=group)
    return group_error(code, group)


def list_groups() -> Question[ListGroupsResponse, list[str]]:
    def read(answer: ListGroupsResponse) -> list[str]:
        if answer.error_code:
            raise exception_of(answer.error_code, None)
        return sorted(one.group_id for one in answer.groups)

    return Question(ListGroupsRequest(), ListGroupsResponse, read, repeatable=True)


def describe_group(group: str) -> Question[DescribeGroupsResponse, GroupDescription]:
    request = group_members.describe_request(group)
    return Question(
        request, DescribeGroupsResponse, lambda answer: group_members.read_description(answer, group), repeatable=True
    )


def evict_members(group: str, members: Sequence[MemberDescription]) -> Question[LeaveGroupResponse, None]:
    """Repeatable: who has left is not asked twice."""
    request = group_members.leave_request(group, members)
    return Question(
        request, LeaveGroupResponse, lambda answer: group_members.check_left(answer, group), repeatable=True
    )


def delete_group(group: str) -> Question[DeleteGroupsResponse, None]:
    def read(answer: DeleteGroupsResponse) -> None:
        result = _one(answer.results)
        if result.error_code:
            raise group_error(result.error_code, group)

    return Question(DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse, read, repeatable=False)


def delete_offsets(group: str, partitions: Iterable[tuple[str, int]]) -> Question[OffsetDeleteResponse, None]:
    by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=number))

    def read(answer: OffsetDeleteResponse) -> None:
        codes = [answer.error_code, *(one.error_code for topic in answer.topics for one in topic.partitions)]
        for code in codes:
            if code:
                raise group_error(code, group)

    topics = [OffsetDeleteRequestTopic(name=name, partitions=found) for name, found in by_topic.items()]
    return Question(OffsetDeleteRequest(group_id=group, topics=topics), OffsetDeleteResponse, read, repeatable=True)


def _one(items: Sequence[Item]) -> Item:
    if len(items) != 1:
        raise MalformedBytes("response", f"{len(items)} results for one question", 0)
    return items[0]
