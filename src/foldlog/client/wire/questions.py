"""What is asked of a broker beside records, and what its answers mean: topics, settings, offsets, producers, groups.

Each function gives a Question: the request, whom it is for, and how to read the answer. Reading it raises what the log
itself would have raised, inside Passing where another try may end otherwise, and MalformedBytes where it is not about
what was asked. Pure: who is asked in fact, and how often, is an Asker's to decide. `ClusterLinks` finds the broker and
asks again until the call's time is over; `backends.served.calls.Calls` asks the process that writes a directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from foldlog.broker.groups import eviction
from foldlog.broker.groups import messages as group_messages
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.consumer_protocol import PROTOCOL_TYPE, Assignment, encode_assignment
from foldlog.broker.groups.messages import GroupState
from foldlog.broker.share.membership import SHARE_PROTOCOL_TYPE
from foldlog.client.descriptions import ConfigEntry
from foldlog.client.positions import TopicPartition
from foldlog.client.wire.refusals import check_code, check_group_code, group_error, refuse, topic_error
from foldlog.errors import (
    FoldlogError,
    InvalidArgument,
    MalformedBytes,
    MetadataTooLarge,
    RefusedByBroker,
    TopicExists,
    UnknownGroup,
    UnknownTopic,
)
from foldlog.limits import OFFSET_METADATA_BYTES_MAX
from foldlog.wire.error_codes import ErrorCode, exception_of
from foldlog.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from foldlog.wire.messages.consumer_group_describe import Assignment as DescribedAssignment
from foldlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
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
from foldlog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from foldlog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from foldlog.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from foldlog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from foldlog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from foldlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from foldlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
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
from foldlog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from foldlog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from foldlog.wire.messages.share_group_describe import Assignment as SharedAssignment
from foldlog.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from foldlog.wire.schema import Request, Response

Answer = TypeVar("Answer", bound=Response)
Done = TypeVar("Done")
Item = TypeVar("Item")

EARLIEST: Final = -2
LATEST: Final = -1
"""Times that are none: where a partition begins, and where it ends."""

REPLICAS_DEFAULT: Final = -1
"""As many replicas as the brokers have for a default."""

_COMMIT_BY_NAME: Final = 9
_FETCH_BY_NAME: Final = 9
"""The last versions of OffsetCommit and of OffsetFetch that name topics; later ones have their ids."""

_CLIENT_SETTINGS: Final = {"message.max.bytes": "max.message.bytes", "log.cleanup.policy": "cleanup.policy"}
"""The broker's settings that decide which records a client may send, and the topic settings they are defaults of."""

_TOPIC_RESOURCE: Final = 2
_BROKER_RESOURCE: Final = 4
_GROUP_RESOURCE: Final = 32
_OWN_SETTING: Final = 1
_SET_FOR_BROKERS: Final = (2, 3, 4)
"""Kafka's numbers for kinds of resources, and for where a value comes from: 1 is one that the topic sets itself; 2 and
3 were changed while the broker ran, for it or for all, and 4 is what it was started with."""

_SET: Final = 0
_DELETE: Final = 1
_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1
_CONSUMER: Final = -1
"""As whom a client asks for offsets, where a broker would give its own number."""

_EVICTED: Final = "the group is moved to other offsets; join it again"

_CLASSIC_MEMBER: Final = 0

_GONE: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
"""Of a member that was asked to leave: it has left by itself, or is another one by now."""

_UNKNOWN_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Whom(Enum):
    """Which broker of a cluster a question is for, if not a coordinator. `LEADERS`: who asks knows them."""

    ANYBODY = auto()
    CONTROLLER = auto()
    LEADERS = auto()


class Coordinator(NamedTuple):
    """The broker that looks after this group."""

    group: str


class TransactionalIdCoordinator(NamedTuple):
    """The broker that looks after this transactional id."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class Question(Generic[Answer, Done]):
    """A request, the class of its answer, and how to read that one.

    `done_shows_as`: what a second try is refused with if the first did what was asked; None if asking twice does no
    harm. `at_most` is the last version that can say it.
    """

    request: Request
    answer: type[Answer]
    read: Callable[[Answer], Done]
    to: Whom | Coordinator | TransactionalIdCoordinator = Whom.ANYBODY
    done_shows_as: type[FoldlogError] | None = None
    at_most: int | None = None


class Asker(Protocol):
    """Who knows the broker, and how often it may be asked."""

    def ask(self, question: Question[Answer, Done]) -> Done:
        """What the answer means. Raises what its reading does, or that nobody answers; never Passing."""
        ...


# --- topics ---------------------------------------------------------------------------------------------------------


def create_topic(
    name: str, partitions: int, settings: Mapping[str, str], timeout_ms: int, replicas: int = REPLICAS_DEFAULT
) -> Question[CreateTopicsResponse, None]:
    """TopicExists if there is one."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=setting, value=value) for setting, value in settings.items()],
    )

    def read(answer: CreateTopicsResponse) -> None:
        result = _only(answer.topics, "CreateTopics")
        _check_change(result.error_code, result.error_message, name)

    request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
    return Question(request, CreateTopicsResponse, read, Whom.CONTROLLER, TopicExists)


def delete_topic(name: str, timeout_ms: int) -> Question[DeleteTopicsResponse, None]:
    def read(answer: DeleteTopicsResponse) -> None:
        result = _only(answer.responses, "DeleteTopics")
        _check_change(result.error_code, result.error_message, name)

    # Up to version 5 the names stand alone; later each may be an id instead.
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=timeout_ms)
    return Question(request, DeleteTopicsResponse, read, Whom.CONTROLLER, UnknownTopic)


def grow_topic(name: str, partitions: int, timeout_ms: int) -> Question[CreatePartitionsResponse, None]:
    def read(answer: CreatePartitionsResponse) -> None:
        result = _only(answer.results, "CreatePartitions")
        _check_change(result.error_code, result.error_message, name)

    topic = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=timeout_ms)
    return Question(request, CreatePartitionsResponse, read, Whom.CONTROLLER, InvalidArgument)


def alter_topic(name: str, settings: Mapping[str, str | None]) -> Question[IncrementalAlterConfigsResponse, None]:
    """None puts a setting back to its default."""

    def read(answer: IncrementalAlterConfigsResponse) -> None:
        result = _only(answer.responses, "IncrementalAlterConfigs")
        _check_change(result.error_code, result.error_message, name)

    return Question(_altering(_TOPIC_RESOURCE, name, settings), IncrementalAlterConfigsResponse, read, Whom.CONTROLLER)


def alter_group(group: str, settings: Mapping[str, str | None]) -> Question[IncrementalAlterConfigsResponse, None]:
    """Settings of a share group. None puts one back to its default."""

    def read(answer: IncrementalAlterConfigsResponse) -> None:
        result = _only(answer.responses, "IncrementalAlterConfigs")
        check_code(result.error_code, result.error_message, group=group)

    return Question(_altering(_GROUP_RESOURCE, group, settings), IncrementalAlterConfigsResponse, read, Whom.CONTROLLER)


def _altering(kind: int, name: str, settings: Mapping[str, str | None]) -> IncrementalAlterConfigsRequest:
    configs = [
        AlterableConfig(name=setting, config_operation=_DELETE if value is None else _SET, value=value)
        for setting, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource])


def topic_settings(
    name: str, settings: Iterable[str] | None = None
) -> Question[DescribeConfigsResponse, dict[str, ConfigEntry]]:
    """Those that are in force, defaults included: all, or those named."""

    def read(answer: DescribeConfigsResponse) -> dict[str, ConfigEntry]:
        result = _only(answer.results, "DescribeConfigs")
        if result.error_code:
            refuse(result.error_code, topic_error(result.error_code, result.error_message, name))
        return {
            row.name: ConfigEntry(row.value, row.config_source != _OWN_SETTING)
            for row in sorted(result.configs, key=lambda row: row.name)
            if row.value is not None
        }

    keys = None if settings is None else list(settings)
    resource = DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=keys)
    return Question(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, read)


def node_id() -> Question[MetadataResponse, int]:
    """The number of the only broker, by which its own settings are asked for."""

    def read(answer: MetadataResponse) -> int:
        return _only(answer.brokers, "Metadata").node_id

    return Question(MetadataRequest(allow_auto_topic_creation=False), MetadataResponse, read)


def topic_defaults(node: int) -> Question[DescribeConfigsResponse, dict[str, str]]:
    """What the broker sets for topics that do not, by the topic setting's name, as far as a client has to know it."""

    def read(answer: DescribeConfigsResponse) -> dict[str, str]:
        result = _only(answer.results, "DescribeConfigs")
        check_code(result.error_code, result.error_message)
        return {
            _CLIENT_SETTINGS[row.name]: row.value
            for row in result.configs
            if row.name in _CLIENT_SETTINGS and row.config_source in _SET_FOR_BROKERS and row.value is not None
        }

    broker = DescribeConfigsResource(
        resource_type=_BROKER_RESOURCE, resource_name=str(node), configuration_keys=list(_CLIENT_SETTINGS)
    )
    return Question(DescribeConfigsRequest(resources=[broker]), DescribeConfigsResponse, read)


def _check_change(code: int, message: str | None, topic: str) -> None:
    """Of the controller: that there is no such topic is its answer, where others may just not have heard of it."""
    if code in _UNKNOWN_TOPIC:
        raise topic_error(code, message, topic)
    if code:
        refuse(code, topic_error(code, message, topic))


# --- partitions -----------------------------------------------------------------------------------------------------


class ListedOffset(NamedTuple):
    """An offset that was looked up, -1 if there is none; the time and leader epoch of its record, as far as told."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def list_offsets(
    topic: str,
    times_ms: Mapping[int, int],
    epochs: Mapping[int, int] | None = None,
    isolation_level: int = 0,
    timeout_ms: int = 0,
) -> Question[ListOffsetsResponse, dict[int, ListedOffset]]:
    """Per partition the first offset at or after its time, or EARLIEST, or LATEST: the high watermark, or with
    read_committed the last stable offset. `epochs` are those that the leaders are known by.
    """
    wanted = [
        ListOffsetsPartition(
            partition_index=number, current_leader_epoch=-1 if epochs is None else epochs[number], timestamp=at
        )
        for number, at in times_ms.items()
    ]

    def read(answer: ListOffsetsResponse) -> dict[int, ListedOffset]:
        results = {one.partition_index: one for one in _only(answer.topics, "ListOffsets").partitions}
        found: dict[int, ListedOffset] = {}
        for number in times_ms:
            result = _of(results, number, "ListOffsets")
            _check_partition(result.error_code, None, topic, number)
            found[number] = ListedOffset(result.offset, result.timestamp, result.leader_epoch)
        return found

    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=wanted)],
        timeout_ms=timeout_ms,
    )
    return Question(request, ListOffsetsResponse, read, Whom.LEADERS)


def epoch_end(
    topic: str, number: int, epoch: int, current_epoch: int
) -> Question[OffsetForLeaderEpochResponse, tuple[int, int]]:
    """(the latest epoch not after `epoch`, the offset where it ended); (-1, -1) where the leader knows none such."""

    def read(answer: OffsetForLeaderEpochResponse) -> tuple[int, int]:
        result = _only(_only(answer.topics, "OffsetForLeaderEpoch").partitions, "OffsetForLeaderEpoch")
        _check_partition(result.error_code, None, topic, number)
        return result.leader_epoch, result.end_offset

    wanted = OffsetForLeaderPartition(partition=number, current_leader_epoch=current_epoch, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    )
    return Question(request, OffsetForLeaderEpochResponse, read, Whom.LEADERS)


def delete_records(
    topic: str, before: Mapping[int, int], timeout_ms: int
) -> Question[DeleteRecordsResponse, dict[int, int]]:
    """Per partition the offset that it is to begin at; answers the new log starts."""

    def read(answer: DeleteRecordsResponse) -> dict[int, int]:
        results = {one.partition_index: one for one in _only(answer.topics, "DeleteRecords").partitions}
        found: dict[int, int] = {}
        for number in before:
            result = _of(results, number, "DeleteRecords")
            _check_partition(result.error_code, None, topic, number)
            found[number] = result.low_watermark
        return found

    wanted = [DeleteRecordsPartition(partition_index=number, offset=offset) for number, offset in before.items()]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=wanted)], timeout_ms=timeout_ms)
    return Question(request, DeleteRecordsResponse, read, Whom.LEADERS)


def _check_partition(code: int, message: str | None, topic: str, number: int) -> None:
    if code:
        refuse(code, topic_error(code, message, topic, number))


# --- producers ------------------------------------------------------------------------------------------------------


def new_producer_id(timeout_ms: int) -> Question[InitProducerIdResponse, tuple[int, int]]:
    """A producer id and epoch that nobody else has."""

    def read(answer: InitProducerIdResponse) -> tuple[int, int]:
        check_code(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=timeout_ms)
    return Question(request, InitProducerIdResponse, read)


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
                _check_partition(one.error_code, one.error_message, topic.name, one.partition_index)
                for producer in one.active_producers:
                    if (producer.producer_id, producer.producer_epoch) == (producer_id, epoch):
                        found[topic.name, one.partition_index] = producer.last_sequence
        return found

    topics = [TopicRequest(name=name, partition_indexes=numbers) for name, numbers in by_topic.items()]
    return Question(DescribeProducersRequest(topics=topics), DescribeProducersResponse, read, Whom.LEADERS)


# --- groups ---------------------------------------------------------------------------------------------------------


def find_coordinator(
    of: Coordinator | TransactionalIdCoordinator,
) -> Question[FindCoordinatorResponse, tuple[str, int]]:
    """The host and the port of the broker that looks after the group or the transactional id, as of now."""
    (name,) = of
    group = name if isinstance(of, Coordinator) else None

    def read(answer: FindCoordinatorResponse) -> tuple[str, int]:
        if not answer.coordinators:  # up to version 3 there is one, in the answer itself
            check_code(answer.error_code, answer.error_message, group=group)
            return answer.host, answer.port
        found = _only(answer.coordinators, "FindCoordinator")
        check_code(found.error_code, found.error_message, group=group)
        return found.host, found.port

    kind = _GROUP_KEY if isinstance(of, Coordinator) else _TRANSACTION_KEY
    request = FindCoordinatorRequest(key=name, key_type=kind, coordinator_keys=[name])
    return Question(request, FindCoordinatorResponse, read)


def list_groups() -> Question[ListGroupsResponse, list[str]]:
    """Those that the broker that is asked looks after."""

    def read(answer: ListGroupsResponse) -> list[str]:
        check_code(answer.error_code)
        return sorted(one.group_id for one in answer.groups)

    return Question(ListGroupsRequest(), ListGroupsResponse, read)


def commit(
    group: str,
    offsets: Mapping[tuple[str, int], OffsetAndMetadata],
    topic_ids: Mapping[str, bytes],
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    *,
    is_by_name: bool = False,
) -> Question[OffsetCommitResponse, None]:
    """As a member, or as nobody's, which a group that has some refuses. `is_by_name`: a topic has no id."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, number), at in offsets.items():
        size_bytes = len(at.metadata.encode())
        if size_bytes > OFFSET_METADATA_BYTES_MAX:
            raise MetadataTooLarge(size_bytes, OFFSET_METADATA_BYTES_MAX)
        by_topic.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=at.offset,
                committed_leader_epoch=at.leader_epoch,
                committed_metadata=at.metadata,
            )
        )
    names = list(by_topic)

    def read(answer: OffsetCommitResponse) -> None:
        if len(answer.topics) != len(names):
            raise MalformedBytes("OffsetCommit response", "it is not about the topics that were committed", 0)
        for name, topic in zip(names, answer.topics, strict=True):
            results = {one.partition_index: one.error_code for one in topic.partitions}
            for wanted in by_topic[name]:
                code = _of(results, wanted.partition_index, "OffsetCommit")
                if code:
                    refuse(code, commit_error(code, group, name, wanted.partition_index))

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
    limit = _COMMIT_BY_NAME if is_by_name else None
    return Question(request, OffsetCommitResponse, read, Coordinator(group), at_most=limit)


def commit_error(code: int, group: str, topic: str, number: int) -> FoldlogError:
    if code in _UNKNOWN_TOPIC:
        return topic_error(code, None, topic)
    if code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_METADATA_TOO_LARGE):
        return exception_of(code, None, topic=topic, partition=number, group=group)
    return group_error(code, group)


def committed(group: str) -> Question[OffsetFetchResponse, dict[TopicPartition, OffsetAndMetadata]]:
    """All that a group has committed, with the notes; nothing, if there is no such group."""

    def read(answer: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
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

    # Older versions have the group in the request itself, newer ones a list; the null asks for all topics.
    wanted = OffsetFetchRequestGroup(group_id=group, topics=None)
    request = OffsetFetchRequest(group_id=group, topics=None, groups=[wanted])
    return Question(request, OffsetFetchResponse, read, Coordinator(group), at_most=_FETCH_BY_NAME)


def delete_group(group: str) -> Question[DeleteGroupsResponse, None]:
    """UnknownGroup if there is none; GroupNotEmpty if it has members."""

    def read(answer: DeleteGroupsResponse) -> None:
        check_group_code(_only(answer.results, "DeleteGroups").error_code, group)

    request = DeleteGroupsRequest(groups_names=[group])
    return Question(request, DeleteGroupsResponse, read, Coordinator(group), UnknownGroup)


def delete_offsets(group: str, partitions: Iterable[tuple[str, int]]) -> Question[OffsetDeleteResponse, None]:
    """GroupNotEmpty while the group reads them."""
    by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=number))

    def read(answer: OffsetDeleteResponse) -> None:
        for code in (answer.error_code, *(one.error_code for topic in answer.topics for one in topic.partitions)):
            check_group_code(code, group)

    topics = [OffsetDeleteRequestTopic(name=name, partitions=found) for name, found in by_topic.items()]
    request = OffsetDeleteRequest(group_id=group, topics=topics)
    return Question(request, OffsetDeleteResponse, read, Coordinator(group))


def describe_group(group: str) -> Question[DescribeGroupsResponse, group_messages.GroupSummary]:
    """As the coordinator knows it; Dead if it knows nothing of it."""

    def read(answer: DescribeGroupsResponse) -> group_messages.GroupSummary:
        found = _only(answer.groups, "DescribeGroups")
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return group_messages.GroupSummary(group, GroupState.DEAD)
        check_code(found.error_code, found.error_message, group=group)
        members = tuple(
            group_messages.MemberSummary(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                bytes(one.member_metadata),
                bytes(one.member_assignment),
            )
            for one in found.members
        )
        state = _group_state(found.group_state, has_members=bool(members))
        return group_messages.GroupSummary(group, state, found.protocol_type, found.protocol_data, members=members)

    return Question(DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse, read, Coordinator(group))


def describe_consumer_group(
    group: str,
) -> Question[ConsumerGroupDescribeResponse, group_messages.GroupSummary | None]:
    """A group of the consumer protocol (KIP-848), which `describe_group` does not know of; None if there is none."""

    def read(answer: ConsumerGroupDescribeResponse) -> group_messages.GroupSummary | None:
        found = _only(answer.groups, "ConsumerGroupDescribe")
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        check_code(found.error_code, found.error_message, group=group)
        members = tuple(
            group_messages.MemberSummary(
                one.member_id,
                one.instance_id,
                one.client_id,
                one.client_host,
                b"",
                encode_assignment(Assignment(tuple((topic, number) for _, topic, number in _parts(one.assignment)))),
                group_messages.ConsumerMemberSummary(
                    one.member_epoch,
                    tuple(one.subscribed_topic_names),
                    one.subscribed_topic_regex or "",
                    one.rack_id,
                    _parts(one.assignment),
                    _parts(one.target_assignment),
                    one.member_type == _CLASSIC_MEMBER,
                ),
            )
            for one in found.members
        )
        return group_messages.GroupSummary(
            group,
            _group_state(found.group_state, has_members=bool(members)),
            PROTOCOL_TYPE,
            found.assignor_name,
            found.group_epoch,
            members=members,
            group_type=group_messages.GroupType.CONSUMER,
            assignment_epoch=found.assignment_epoch,
        )

    request = ConsumerGroupDescribeRequest(group_ids=[group])
    return Question(request, ConsumerGroupDescribeResponse, read, Coordinator(group))


def describe_share_group(group: str) -> Question[ShareGroupDescribeResponse, group_messages.GroupSummary | None]:
    """A share group (KIP-932), which the other two do not know of; None if there is none."""

    def read(answer: ShareGroupDescribeResponse) -> group_messages.GroupSummary | None:
        found = _only(answer.groups, "ShareGroupDescribe")
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        check_code(found.error_code, found.error_message, group=group)
        members = tuple(
            group_messages.MemberSummary(
                one.member_id,
                None,
                one.client_id,
                one.client_host,
                b"",
                encode_assignment(Assignment(tuple((topic, number) for _, topic, number in _parts(one.assignment)))),
                group_messages.ConsumerMemberSummary(
                    one.member_epoch,
                    tuple(one.subscribed_topic_names),
                    "",
                    one.rack_id,
                    _parts(one.assignment),
                    _parts(one.assignment),
                    is_classic=False,
                ),
            )
            for one in found.members
        )
        return group_messages.GroupSummary(
            group,
            _group_state(found.group_state, has_members=bool(members)),
            SHARE_PROTOCOL_TYPE,
            found.assignor_name,
            found.group_epoch,
            members=members,
            group_type=group_messages.GroupType.SHARE,
            assignment_epoch=found.assignment_epoch,
        )

    return Question(ShareGroupDescribeRequest(group_ids=[group]), ShareGroupDescribeResponse, read, Coordinator(group))


def share_offsets(group: str) -> Question[DescribeShareGroupOffsetsResponse, dict[TopicPartition, tuple[int, int]]]:
    """Where a share group is in each partition, and how many records there it has not done with."""

    def read(answer: DescribeShareGroupOffsetsResponse) -> dict[TopicPartition, tuple[int, int]]:
        found = _only(answer.groups, "DescribeShareGroupOffsets")
        if found.error_code:
            check_group_code(found.error_code, group)
        return {
            TopicPartition(topic.topic_name, one.partition_index): (one.start_offset, one.lag)
            for topic in found.topics
            for one in topic.partitions
            if not one.error_code and one.start_offset >= 0
        }

    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[asked])
    return Question(request, DescribeShareGroupOffsetsResponse, read, Coordinator(group))


def move_share_group(
    group: str, offsets: Mapping[tuple[str, int], int]
) -> Question[AlterShareGroupOffsetsResponse, None]:
    """Let a share group without members begin anew at these offsets."""

    def read(answer: AlterShareGroupOffsetsResponse) -> None:
        if answer.error_code:
            check_group_code(answer.error_code, group)
        for topic in answer.responses:
            for one in topic.partitions:
                check_code(one.error_code, one.error_message, topic=topic.topic_name, partition=one.partition_index)

    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for (name, number), offset in offsets.items():
        one = AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
        topics.setdefault(name, []).append(one)
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=found) for name, found in topics.items()
        ],
    )
    return Question(request, AlterShareGroupOffsetsResponse, read, Coordinator(group))


def _parts(assignment: DescribedAssignment | SharedAssignment) -> tuple[tuple[bytes, str, int], ...]:
    return tuple(
        (bytes(topic.topic_id), topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


def _group_state(word: str, *, has_members: bool) -> GroupState:
    try:
        return GroupState(word)
    except ValueError:  # a word of a newer protocol
        return GroupState.STABLE if has_members else GroupState.EMPTY


def _asked_consumer(asker: Asker, group: str) -> group_messages.GroupSummary | None:
    return asker.ask(describe_consumer_group(group))


def _asked_share(asker: Asker, group: str) -> group_messages.GroupSummary | None:
    return asker.ask(describe_share_group(group))


def describe_any_group(asker: Asker, group: str) -> group_messages.GroupSummary:
    """The group, whatever its protocol; Dead if the coordinator knows nothing of it."""
    found = asker.ask(describe_group(group))
    if found.state is not GroupState.DEAD:
        return found
    for kind in (_asked_consumer, _asked_share):
        try:
            newer = kind(asker, group)
        except RefusedByBroker:
            continue  # an older broker, without such groups
        if newer is not None:
            return newer
    return found


def leave_group(group: str, members: Sequence[group_messages.MemberSummary]) -> Question[LeaveGroupResponse, None]:
    """As Kafka's admin client removes members: by their ids, several at once from version 3 on. One that was gone
    already is no fault."""

    def read(answer: LeaveGroupResponse) -> None:
        for code in (answer.error_code, *(one.error_code for one in answer.members)):
            if code not in _GONE:
                check_group_code(code, group)

    leaving = [
        MemberIdentity(member_id=one.member_id, group_instance_id=one.group_instance_id, reason=_EVICTED)
        for one in members
    ]
    request = LeaveGroupRequest(group_id=group, members=leaving)
    return Question(request, LeaveGroupResponse, read, Coordinator(group))


def commit_evicting(asker: Asker, group: str, commits: Callable[[], None]) -> None:
    """Commit, after making the members leave if there are some. These are two questions: a member can be back in
    between, and is then asked to leave again."""

    def evict_and_commit() -> None:
        evict_members(asker, group)
        commits()

    eviction.commit_evicting(commits, evict_and_commit)


def evict_members(asker: Asker, group: str) -> None:
    """Have everybody leave who is in the group now."""
    members = describe_any_group(asker, group).members
    if members:
        asker.ask(leave_group(group, members))


# --- answers --------------------------------------------------------------------------------------------------------


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
