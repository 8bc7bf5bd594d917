"""OffsetCommit, versions 2 to 10: commits the offsets of a group. Answered when it is durable.

2 to 4 carry a retention time, which is ignored: offsets.retention.minutes holds for all. 6: leader epochs. 7: static
members. 9: members of consumer groups, whose
epoch is checked for each partition. 10: topics by id.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from foldlog.broker.access.acls import AclOperation
from foldlog.broker.groups.committed import OffsetAndMetadata, TopicPartition
from foldlog.errors import FoldlogError, UnknownPartition, UnknownTopic
from foldlog.limits import STEP_ITEMS
from foldlog.server.call import Call, Later
from foldlog.server.groups import commit_refusal, group_error_code, refusal
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_MEMBER_EPOCHS_FROM: Final = 9
_TOPIC_IDS_FROM: Final = 10


class _Asked(NamedTuple):
    """One partition of a request; the topic's name is known unless the partition is refused for that."""

    key: TopicPartition
    offset: OffsetAndMetadata
    response: OffsetCommitResponsePartition


async def handle(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse | Later:
    response, asked = await _prepare(call, request)
    error = refusal(call, AclOperation.READ, request.group_id)
    if error is ErrorCode.NONE and await _lacks_epochs(call, request):
        error = ErrorCode.UNSUPPORTED_VERSION
    if error is not ErrorCode.NONE:
        _fill(asked, error)
    accepted: list[_Asked] = []
    await call.node.turns.each(lambda one: accepted.append(one) if _is_accepted(one) else None, asked)
    if not accepted:
        return response
    later: Later = call.node.loop.create_future()
    try:
        groups = call.node.groups
        run = groups.run if len(accepted) <= STEP_ITEMS else groups.run_on_thread
        await run(_begin, call, request, accepted, later, response)
    except FoldlogError as failed:
        _fill(accepted, group_error_code(request.group_id, failed))
        return response
    return later


async def _lacks_epochs(call: Call, request: OffsetCommitRequest) -> bool:
    """Whether a member of the consumer protocol commits in a version that takes its epoch for a generation."""
    if call.version >= _MEMBER_EPOCHS_FROM or not request.member_id:
        return False
    group, member = request.group_id, request.member_id
    return await call.node.groups.ask(lambda coordinator: coordinator.speaks_consumer_protocol(group, member))


async def _prepare(call: Call, request: OffsetCommitRequest) -> tuple[OffsetCommitResponse, list[_Asked]]:
    """The answer as far as it is known now, and all its partitions."""
    each = call.node.turns.each
    topics = await each(partial(_topic, call), request.topics)
    found = zip(topics, request.topics, strict=True)
    places = [(name, partition) for (name, _), topic in found for partition in topic.partitions]
    asked = await each(lambda place: _asked(call, *place), places)
    if len(asked) > STEP_ITEMS:
        await call.node.turns.next()
    answers = iter(asked)
    for (_, answer), topic in zip(topics, request.topics, strict=True):
        answer.partitions = [one.response for one in islice(answers, len(topic.partitions))]
    return OffsetCommitResponse(topics=[answer for _, answer in topics]), asked


def _topic(call: Call, topic: OffsetCommitRequestTopic) -> tuple[str | None, OffsetCommitResponseTopic]:
    """Its name, if it is known, and the answer for it, still without partitions."""
    name = call.node.topic_ids.name_of(topic.topic_id) if call.version >= _TOPIC_IDS_FROM else topic.name
    return name, OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)


def _asked(call: Call, topic: str | None, partition: OffsetCommitRequestPartition) -> _Asked:
    offset = OffsetAndMetadata(
        partition.committed_offset, max(-1, partition.committed_leader_epoch), partition.committed_metadata or ""
    )
    error = (
        ErrorCode.UNKNOWN_TOPIC_ID if topic is None else commit_refusal(call, topic, partition.partition_index, offset)
    )
    response = OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
    return _Asked((topic or "", partition.partition_index), offset, response)


def _begin(
    call: Call, request: OffsetCommitRequest, asked: list[_Asked], later: Later, response: OffsetCommitResponse
) -> None:
    """Append the commit, under the lock of the groups."""
    node = call.node
    while True:
        try:
            node.broker.begin_commit_offsets(
                request.group_id,
                {partition.key: partition.offset for partition in asked},
                partial(node.soon, _acknowledged, later, response, asked, request.group_id),
                member_id=request.member_id,
                generation=request.generation_id_or_member_epoch,
                instance_id=request.group_instance_id,
            )
            return
        except (UnknownTopic, UnknownPartition) as gone:
            # Deleted since it was looked up. All its partitions are removed from the list, so the loop ends.
            _fill([partition for partition in asked if partition.key[0] == gone.topic], _unknown(call))
        asked = list(filter(_is_accepted, asked))


def _acknowledged(
    later: Later, response: OffsetCommitResponse, asked: list[_Asked], group: str, error: FoldlogError | None
) -> None:
    if error is not None:
        _fill(asked, group_error_code(group, error))
    if not later.done():  # its connection may be gone
        later.set_result(response)


def _unknown(call: Call) -> ErrorCode:
    by_id = call.version >= _TOPIC_IDS_FROM
    return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _is_accepted(partition: _Asked) -> bool:
    return partition.response.error_code == ErrorCode.NONE


def _fill(asked: list[_Asked], error: ErrorCode) -> None:
    for partition in asked:
        partition.response.error_code = error
