"""What members and administrators of consumer groups (KIP-848) ask and are answered, version by version.

What the coordinator decides is tested in tests/broker/groups/consumer; here it is what goes over the wire."""

from __future__ import annotations

import pytest

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from foldlog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from foldlog.wire.messages.delete_groups import DeleteGroupsRequest
from foldlog.wire.messages.describe_groups import DescribeGroupsRequest
from foldlog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from foldlog.wire.messages.list_groups import ListGroupsRequest
from foldlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from foldlog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from server.small_node import Denies, SmallNode

GROUP = "readers"
TOPIC = "orders"


@pytest.fixture(autouse=True)
def topics(small: SmallNode) -> None:
    if small.broker.find_topic(TOPIC) is None:
        small.broker.create_topic(TOPIC, partitions=2)


def join(small: SmallNode, version: int = 1, **changed: object) -> ConsumerGroupHeartbeatResponse:
    fields: dict[str, object] = {
        "group_id": GROUP,
        "member_id": "m" if version else "",
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": [],
        **changed,
    }
    answer = small.ask(ConsumerGroupHeartbeatRequest(**fields), version)  # type: ignore[arg-type]
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    return answer


def describe(small: SmallNode, version: int = 1, group: str = GROUP) -> DescribedGroup:
    request = ConsumerGroupDescribeRequest(group_ids=[group, group], include_authorized_operations=True)
    (found,) = small.ask(request, version).groups
    assert isinstance(found, DescribedGroup)
    return found


def test_what_is_set_for_a_group_is_in_force_with_the_next_heartbeat(small: SmallNode) -> None:
    assert join(small).heartbeat_interval_ms == 5_000
    small.broker.group_configs.change(
        GROUP, lambda own: {"consumer.heartbeat.interval.ms": "300", "consumer.session.timeout.ms": "1000"}
    )
    assert join(small).heartbeat_interval_ms == 300
    assert join(small, group_id="others").heartbeat_interval_ms == 5_000
    small.advance(1_001)
    assert describe(small).members == []
    assert len(describe(small, group="others").members) == 1


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_and_is_described(small: SmallNode, version: int) -> None:
    topic_id = bytes.fromhex(small.broker.topic(TOPIC).topic_id)
    answer = join(small, version, instance_id="i", rack_id="r")
    assert answer.error_code == ErrorCode.NONE
    assert answer.member_id, "in version 0 the broker makes it up"
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (1, 5_000)
    assert answer.assignment is not None
    assert [(one.topic_id, list(one.partitions)) for one in answer.assignment.topic_partitions] == [(topic_id, [0, 1])]
    found = describe(small, version)
    assert (found.error_code, found.group_state, found.group_epoch, found.assignment_epoch) == (0, "Stable", 1, 1)
    assert found.assignor_name == "uniform"
    (member,) = found.members
    assert (member.instance_id, member.rack_id, member.member_epoch) == ("i", "r", 1)
    assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
    assert list(member.subscribed_topic_names) == [TOPIC]
    for assignment in (member.assignment, member.target_assignment):
        (part,) = assignment.topic_partitions
        assert (part.topic_id, part.topic_name, list(part.partitions)) == (topic_id, TOPIC, [0, 1])
    assert member.member_type == (1 if version else -1)


def test_a_heartbeat_that_brings_nothing_new_has_no_assignment(small: SmallNode) -> None:
    join(small)
    beat = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=1)
    answer = small.ask(beat, 1)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 1, None)
    topic_id = bytes.fromhex(small.broker.topic(TOPIC).topic_id)
    owned = [TopicPartitions(topic_id=topic_id, partitions=[0, 1])]
    full = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="m",
        member_epoch=1,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=owned,
    )
    assert small.ask(full, 1).assignment is not None


def test_what_is_wrong_is_said_with_a_code_and_a_sentence(small: SmallNode) -> None:
    assert join(small, member_id="").error_code == ErrorCode.INVALID_REQUEST
    answer = join(small, server_assignor="mine")
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNSUPPORTED_ASSIGNOR, None)
    assert "uniform, range" in (answer.error_message or "")
    join(small)
    fenced = join(small, member_epoch=7)
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    for blank in ("", "  "):
        refused = join(small, group_id=blank)
        assert (refused.error_code, bool(refused.error_message)) == (ErrorCode.INVALID_REQUEST, True)


def test_groups_are_listed_by_type_and_each_described_by_its_own_api(small: SmallNode) -> None:
    join(small)
    small.broker.commit_offsets("old", {(TOPIC, 0): OffsetAndMetadata(0)})
    listed = {one.group_id: one.group_type for one in small.ask(ListGroupsRequest(), 5).groups}
    assert listed == {GROUP: "consumer", "old": "classic"}
    for kind, group in (("Consumer", GROUP), ("classic", "old")):
        (one,) = small.ask(ListGroupsRequest(types_filter=[kind]), 5).groups
        assert one.group_id == group
    assert describe(small, group="old").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (classic,) = small.ask(DescribeGroupsRequest(groups=[GROUP]), 6).groups
    assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (before,) = small.ask(DescribeGroupsRequest(groups=[GROUP]), 5).groups
    assert (before.error_code, before.group_state) == (0, "Dead")


def commit(small: SmallNode, epoch: int, number: int = 0, member_id: str = "m", version: int = 9) -> int:
    topic = OffsetCommitRequestTopic(
        name=TOPIC, partitions=[OffsetCommitRequestPartition(partition_index=number, committed_offset=0)]
    )
    request = OffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=epoch, member_id=member_id, topics=[topic]
    )
    code: int = small.ask(request, version).topics[0].partitions[0].error_code
    return code


def test_a_commit_of_before_version_9_has_no_epoch_and_is_refused(small: SmallNode) -> None:
    join(small)
    assert commit(small, 1, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit(small, 1, member_id="nobody", version=8) == ErrorCode.UNKNOWN_MEMBER_ID


def test_partitions_that_a_member_has_to_give_back_are_still_among_its_own(small: SmallNode) -> None:
    join(small)
    join(small, member_id="n")
    join(small, member_epoch=1, rebalance_timeout_ms=-1, topic_partitions=None)  # it is told to give one back
    owned = {one.member_id: one.assignment.topic_partitions for one in describe(small).members}
    assert [(part.topic_name, list(part.partitions)) for part in owned["m"]] == [(TOPIC, [0, 1])]
    assert not owned["n"]


def test_commits_and_fetches_carry_the_members_epoch(small: SmallNode) -> None:
    join(small)
    assert commit(small, 1) == ErrorCode.NONE
    small.broker.grow_topic(TOPIC, 3)
    beat = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=1)
    assert small.ask(beat, 1).member_epoch == 2
    assert commit(small, 1) == ErrorCode.NONE, "it has had the partition since epoch 1"
    assert commit(small, 1, number=2) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(small, 2, number=2) == ErrorCode.NONE
    assert commit(small, 2, member_id="who") == ErrorCode.UNKNOWN_MEMBER_ID
    for epoch, expected in ((2, ErrorCode.NONE), (1, ErrorCode.STALE_MEMBER_EPOCH)):
        asked = OffsetFetchRequestGroup(
            group_id=GROUP,
            member_id="m",
            member_epoch=epoch,
            topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])],
        )
        (found,) = small.ask(OffsetFetchRequest(groups=[asked]), 9).groups
        assert found.error_code == expected


def test_a_member_is_removed_by_leave_group_and_then_the_group_can_be_deleted(small: SmallNode) -> None:
    join(small)
    (refused,) = small.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2).results
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    leaving = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="m")])
    assert [one.error_code for one in small.ask(leaving, 5).members] == [ErrorCode.NONE]
    (deleted,) = small.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2).results
    assert deleted.error_code == ErrorCode.NONE
    assert describe(small).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_who_may_not_see_a_topic_can_neither_subscribe_to_it_nor_find_it() -> None:
    blind = SmallNode(authorizer=Denies((AclOperation.DESCRIBE, ResourceType.TOPIC)))
    try:
        blind.broker.create_topic(TOPIC, partitions=2)
        assert join(blind).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        pytest.importorskip("re2")
        answer = join(blind, subscribed_topic_names=[], subscribed_topic_regex="ord.*")
        assert answer.assignment is not None
        assert not answer.assignment.topic_partitions
    finally:
        blind.close()
