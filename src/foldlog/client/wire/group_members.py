"""Questions about the members of a group, and what the answers mean: for every broker, ours or any other. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from foldlog.broker.groups.messages import GroupDescription, GroupState, MemberDescription
from foldlog.client import descriptions
from foldlog.client.positions import TopicPartition
from foldlog.client.wire.refusals import group_error
from foldlog.errors import MalformedBytes
from foldlog.wire.error_codes import ErrorCode, exception_of
from foldlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from foldlog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from foldlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

_REASON: Final = "the group is moved to other offsets; join it again"

GONE: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
"""Of a member that was asked to leave: it has left by itself, or is another one by now."""


def describe_request(group: str) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=[group])


def read_description(answer: DescribeGroupsResponse, group: str) -> GroupDescription:
    """As the coordinator knows it; Dead if it knows nothing of it."""
    if len(answer.groups) != 1:
        raise MalformedBytes("DescribeGroups response", f"{len(answer.groups)} results for one question", 0)
    found = answer.groups[0]
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupDescription(group, GroupState.DEAD)
    if found.error_code:
        raise exception_of(found.error_code, found.error_message, group=group)
    members = tuple(
        MemberDescription(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            bytes(one.member_metadata),
            bytes(one.member_assignment),
        )
        for one in found.members
    )
    try:
        state = GroupState(found.group_state)
    except ValueError:  # a word of a newer protocol
        state = GroupState.STABLE if members else GroupState.EMPTY
    return GroupDescription(group, state, found.protocol_type, found.protocol_data, members=members)


def read_newer_description(answer: ConsumerGroupDescribeResponse, group: str) -> descriptions.GroupDescription | None:
    """A group whose brokers share out its partitions; None if there is none of that kind."""
    if len(answer.groups) != 1:
        raise MalformedBytes("ConsumerGroupDescribe response", f"{len(answer.groups)} results for one question", 0)
    found = answer.groups[0]
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    if found.error_code:
        raise exception_of(found.error_code, found.error_message, group=group)
    members = tuple(
        descriptions.MemberDescription(
            one.member_id,
            one.client_id,
            one.client_host,
            one.instance_id,
            tuple(
                sorted(
                    TopicPartition(topic.topic_name, number)
                    for topic in one.assignment.topic_partitions
                    for number in topic.partitions
                )
            ),
        )
        for one in found.members
    )
    return descriptions.GroupDescription(group, found.group_state, found.assignor_name, members)


def leave_request(group: str, members: Sequence[MemberDescription]) -> LeaveGroupRequest:
    """As Kafka's admin client removes members: by their ids. For version 3 on, which takes several."""
    leaving = [
        MemberIdentity(member_id=one.member_id, group_instance_id=one.group_instance_id, reason=_REASON)
        for one in members
    ]
    return LeaveGroupRequest(group_id=group, members=leaving)


def check_left(answer: LeaveGroupResponse, group: str) -> None:
    """Raises what kept a member from leaving; one that was gone already is no fault."""
    for code in (answer.error_code, *(one.error_code for one in answer.members)):
        if code and code not in GONE:
            raise group_error(code, group)
