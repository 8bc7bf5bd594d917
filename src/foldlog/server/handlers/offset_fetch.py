"""OffsetFetch, versions 1 to 10: the committed offsets of a group. A partition without a commit is at -1, not an error.

2: no topics mean all, and an error for the whole group. 5: leader epochs. 7: the client may want stable offsets: it is
told to ask again where a transaction that is not ended has committed others. 8: many groups. 9: a member's id and
epoch, checked in consumer groups. 10: topics by id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata, TopicPartition
from foldlog.broker.groups.errors import raise_for
from foldlog.errors import FoldlogError
from foldlog.server.call import Call
from foldlog.server.groups import group_error_code, refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from foldlog.wire.schema import ZERO_UUID

_GROUP_ERROR_FROM: Final = 2
_MANY_GROUPS_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10
_NOT_COMMITTED: Final = OffsetAndMetadata(-1)


class _Topic(NamedTuple):
    """A topic to look up, by name; `error` if it cannot be looked up."""

    name: str
    topic_id: bytes
    partitions: Iterable[int]
    error: ErrorCode = ErrorCode.NONE


class _Found(NamedTuple):
    """The answer for one group. With an `error` the topics are the requested ones, all without offsets."""

    topics: list[OffsetFetchResponseTopics]
    error: ErrorCode = ErrorCode.NONE


async def handle(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if call.version >= _MANY_GROUPS_FROM:
        # Each once: a small request that repeats a group many times would otherwise be answered with gigabytes.
        asked = {group.group_id: group for group in reversed(request.groups)}
        return OffsetFetchResponse(
            groups=[await _answer(call, group, request.require_stable) for group in reversed(asked.values())]
        )
    found = await _find(call, request.group_id, _by_name(call, request.topics), request.require_stable)
    has_group_error = call.version >= _GROUP_ERROR_FROM
    return OffsetFetchResponse(
        error_code=found.error if has_group_error else ErrorCode.NONE,
        # A client of version 1 looks for errors in the partitions only.
        topics=[]
        if has_group_error and found.error
        else [_one_group_topic(topic, found.error) for topic in found.topics],
    )


async def _answer(call: Call, group: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
    by_id = call.version >= _TOPIC_IDS_FROM
    topics = _by_id(call, group.topics) if by_id else _by_name(call, group.topics)
    member = (group.member_id, group.member_epoch)
    found = await _find(call, group.group_id, topics, require_stable, member)
    return OffsetFetchResponseGroup(
        group_id=group.group_id, topics=[] if found.error else found.topics, error_code=found.error
    )


async def _find(
    call: Call,
    group: str,
    topics: list[_Topic] | None,
    require_stable: bool,
    member: tuple[str | None, int] = (None, -1),
) -> _Found:
    error: ErrorCode = refusal(call, AclOperation.DESCRIBE, group)
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    unstable: set[TopicPartition] = set()
    if error is ErrorCode.NONE:
        try:
            if member != (None, -1):
                checked = await call.node.groups.ask(lambda coordinator: coordinator.validate_fetch(group, *member))
                raise_for(checked, group)
            offsets, unstable = await call.node.groups.run(_look_up, call.node.broker, group, _keys(topics))
        except FoldlogError as failed:
            error = group_error_code(group, failed)
    if not require_stable:
        unstable = set()
    if topics is None:
        topics = _committed_topics(call, unstable.union(offsets))
    return _Found([_topic_response(topic, offsets, unstable) for topic in topics], error)


def _look_up(
    broker: Broker, group: str, keys: list[TopicPartition] | None
) -> tuple[dict[TopicPartition, OffsetAndMetadata], set[TopicPartition]]:
    # First what is unstable: if a transaction ends in between, a stable offset looks unstable, and the client asks
    # again. The other way round, an old offset would pass for a stable one.
    unstable = broker.unstable_offsets(group, keys)
    return broker.committed(group, keys, with_negative=True), unstable


def _by_name(
    call: Call, topics: Iterable[OffsetFetchRequestTopic] | Iterable[OffsetFetchRequestTopics] | None
) -> list[_Topic] | None:
    if topics is None:
        return None
    return [_Topic(topic.name, ZERO_UUID, topic.partition_indexes, _refuse(call, topic.name)) for topic in topics]


def _by_id(call: Call, topics: Iterable[OffsetFetchRequestTopics] | None) -> list[_Topic] | None:
    if topics is None:
        return None
    found = []
    for topic in topics:
        name = call.node.topic_ids.name_of(topic.topic_id)
        error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else _refuse(call, name)
        found.append(_Topic(name or "", topic.topic_id, topic.partition_indexes, error))
    return found


def _refuse(call: Call, topic: str) -> ErrorCode:
    allowed = call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
    return ErrorCode.NONE if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _keys(topics: list[_Topic] | None) -> list[TopicPartition] | None:
    if topics is None:
        return None
    return [(topic.name, number) for topic in topics if topic.error is ErrorCode.NONE for number in topic.partitions]


def _committed_topics(call: Call, offsets: Iterable[TopicPartition]) -> list[_Topic]:
    """The topics of all commits of a group that the caller may see and the version can name."""
    partitions: dict[str, list[int]] = {}
    for name, number in sorted(offsets):
        partitions.setdefault(name, []).append(number)
    topics = []
    for name, numbers in partitions.items():
        known = call.node.broker.find_topic(name)
        topic_id = ZERO_UUID if known is None else bytes.fromhex(known.topic_id)
        is_nameable = call.version < _TOPIC_IDS_FROM or known is not None
        if is_nameable and _refuse(call, name) is ErrorCode.NONE:
            topics.append(_Topic(name, topic_id, numbers))
    return topics


def _topic_response(
    topic: _Topic, offsets: dict[TopicPartition, OffsetAndMetadata], unstable: set[TopicPartition]
) -> OffsetFetchResponseTopics:
    partitions = []
    for number in topic.partitions:
        key = (topic.name, number)
        error = topic.error
        if error is ErrorCode.NONE and key in unstable:
            error = ErrorCode.UNSTABLE_OFFSET_COMMIT
        offset = _NOT_COMMITTED if error else offsets.get(key, _NOT_COMMITTED)
        partitions.append(
            OffsetFetchResponsePartitions(
                partition_index=number,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                metadata=offset.metadata,
                error_code=error,
            )
        )
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _one_group_topic(topic: OffsetFetchResponseTopics, group_error: ErrorCode) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=partition.partition_index,
                committed_offset=partition.committed_offset,
                committed_leader_epoch=partition.committed_leader_epoch,
                metadata=partition.metadata,
                error_code=group_error or partition.error_code,
            )
            for partition in topic.partitions
        ],
    )
