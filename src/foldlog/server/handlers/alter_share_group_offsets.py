"""AlterShareGroupOffsets, version 0: a share group without members (KIP-932) begins anew at other offsets. Answered
when that is durable."""

from __future__ import annotations

from foldlog.broker.access.acls import AclOperation
from foldlog.broker.broker import Broker
from foldlog.broker.groups.messages import GroupSummary, GroupType
from foldlog.errors import FoldlogError, brief_repr
from foldlog.server.call import Call
from foldlog.server.groups import group_error_code, refusal
from foldlog.server.partitions import partition_refusal
from foldlog.server.shares import ShareOutcome
from foldlog.wire.error_codes import ErrorCode, code_of
from foldlog.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from foldlog.wire.schema import ZERO_UUID


async def handle(call: Call, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
    group = request.group_id
    error = refusal(call, AclOperation.READ, group)
    if error is not ErrorCode.NONE:
        return AlterShareGroupOffsetsResponse(error_code=error, error_message=why_refused(error, group))
    outcomes: dict[tuple[str, int], ShareOutcome] = {}
    wanted: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for one in topic.partitions:
            key = (topic.topic_name, one.partition_index)
            error = partition_refusal(call, AclOperation.READ, *key)
            outcomes[key] = ShareOutcome(error, why_refused(error, topic.topic_name))
            if error is ErrorCode.NONE:
                wanted[key] = one.start_offset
    refused = None
    # As in Kafka: who may read none of the topics is not told whether there is such a group.
    if not outcomes or any(one.error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED for one in outcomes.values()):
        try:
            refused = await call.node.run(_alter, call.node.broker, group, wanted, outcomes)
        except FoldlogError as failed:
            refused = ShareOutcome(group_error_code(group, failed))
    if refused is not None:
        return AlterShareGroupOffsetsResponse(error_code=refused.error, error_message=refused.message)
    found = {topic.topic_name: call.node.broker.find_topic(topic.topic_name) for topic in request.topics}
    return AlterShareGroupOffsetsResponse(
        responses=[
            AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=ZERO_UUID if (known := found[topic.topic_name]) is None else bytes.fromhex(known.topic_id),
                partitions=[
                    AlterShareGroupOffsetsResponsePartition(
                        partition_index=one.partition_index,
                        error_code=outcomes[topic.topic_name, one.partition_index].error,
                        error_message=outcomes[topic.topic_name, one.partition_index].message,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _alter(
    broker: Broker, group: str, wanted: dict[tuple[str, int], int], outcomes: dict[tuple[str, int], ShareOutcome]
) -> ShareOutcome | None:
    """On a thread: it syncs. Returns why nothing may be altered; sets the errors of single partitions."""
    # Under the lock of the groups, so that nobody joins meanwhile.
    with broker.group_lock:
        refused = why_not_alone(group, broker.describe_group(group))
        if refused is not None:
            return refused
        for key, offset in wanted.items():
            try:
                broker.shares.alter(group, {key: offset})
            except FoldlogError as error:
                outcomes[key] = ShareOutcome(code_of(error), str(error))
    return None


def why_refused(error: ErrorCode, name: str) -> str | None:
    """A sentence for the code with which a group or a topic of this name is refused; None for none."""
    return None if error is ErrorCode.NONE else f"{error.name}: {brief_repr(name)}"


def why_not_alone(group: str, found: GroupSummary) -> ShareOutcome | None:
    """Why an administrator may not change what the group did: it is no share group, or has members."""
    if found.group_type is not GroupType.SHARE:
        return ShareOutcome(ErrorCode.GROUP_ID_NOT_FOUND, f"group {brief_repr(group)} is not a share group")
    if found.members:
        return ShareOutcome(ErrorCode.NON_EMPTY_GROUP, f"group {brief_repr(group)} has members; stop them first")
    return None
