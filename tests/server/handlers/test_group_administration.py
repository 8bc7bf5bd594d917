"""Groups as administrators see them: found, listed, described and deleted, in every version."""

from __future__ import annotations

import pytest

from foldlog.broker.access.acls import AclOperation, Identity, ResourceType
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.files.memory import MemoryFiles
from foldlog.server.authorizer import AllowEverything
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.delete_groups import DeleteGroupsRequest
from foldlog.wire.messages.describe_groups import DescribeGroupsRequest
from foldlog.wire.messages.find_coordinator import FindCoordinatorRequest
from foldlog.wire.messages.list_groups import ListGroupsRequest
from server.group_client import GROUP, SUBSCRIPTION, GroupClient, settle
from server.small_node import ENDPOINT, Denies, SmallNode

NOT_ASKED = -(1 << 31)
OPERATIONS = sum(1 << number for number in (3, 6, 8, 10, 11))


def commit_alone(small: SmallNode, group: str) -> None:
    """What a reader without a group's members leaves behind."""
    if small.broker.find_topic("events") is None:
        small.broker.create_topic("events", 1)
    small.broker.commit_offsets(group, {("events", 0): OffsetAndMetadata(1)})


# --- finding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_the_coordinator_of_a_group_is_this_broker_where_its_listener_says(small: SmallNode, version: int) -> None:
    answer = small.ask(FindCoordinatorRequest(key=GROUP), version)
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, ENDPOINT.host, ENDPOINT.port)


@pytest.mark.parametrize("version", range(4, 7))
def test_many_coordinators_are_found_at_once(small: SmallNode, version: int) -> None:
    answer = small.ask(FindCoordinatorRequest(coordinator_keys=["one", "", "other"]), version)
    assert [(found.key, found.error_code, found.port) for found in answer.coordinators] == [
        ("one", 0, ENDPOINT.port),
        ("", ErrorCode.INVALID_GROUP_ID, -1),
        ("other", 0, ENDPOINT.port),
    ]


@pytest.mark.parametrize("version", range(1, 7))
def test_a_transactional_producer_finds_its_coordinator(small: SmallNode, version: int) -> None:
    request = FindCoordinatorRequest(key="tx", coordinator_keys=["tx"], key_type=1)

    def found(asked: SmallNode) -> tuple[int, int, str, int]:
        answer = asked.ask(request, version)
        one = answer.coordinators[0] if version >= 4 else answer
        return one.error_code, one.node_id, one.host, one.port

    assert found(small) == (0, 1, "127.0.0.1", 9092)
    denied = SmallNode(authorizer=Denies((AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)))
    assert found(denied) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, "", -1)
    denied.close()


@pytest.mark.parametrize("key_type", [2, 3, -1])
def test_coordinators_of_other_kinds_are_refused(small: SmallNode, key_type: int) -> None:
    (found,) = small.ask(FindCoordinatorRequest(coordinator_keys=["x"], key_type=key_type), 6).coordinators
    assert found.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "version", "code"),
    [
        ("workers:AAAAAAAAAAAAAAAAAAAAAQ:0", 6, ErrorCode.NONE),
        ("a:b:AAAAAAAAAAAAAAAAAAAAAQ:12", 6, ErrorCode.NONE),
        ("workers:AAAAAAAAAAAAAAAAAAAAAQ:0", 5, ErrorCode.INVALID_REQUEST),
        ("workers:topic:0", 6, ErrorCode.INVALID_REQUEST),
        ("workers:AAAAAAAAAAAAAAAAAAAAAQ:x", 6, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_share_coordinator_is_found_by_group_topic_and_partition(
    small: SmallNode, key: str, version: int, code: ErrorCode
) -> None:
    (found,) = small.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=2), version).coordinators
    assert found.error_code == code


def test_who_may_not_describe_a_group_does_not_find_its_coordinator() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.DESCRIBE, ResourceType.GROUP)))
    assert small.ask(FindCoordinatorRequest(key=GROUP), 0).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    small.close()


# --- listing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_groups_with_members_and_groups_that_only_committed_are_listed(small: SmallNode, version: int) -> None:
    commit_alone(small, "alone")
    settle(GroupClient(small))
    answer = small.ask(ListGroupsRequest(), version)
    assert answer.error_code == ErrorCode.NONE
    assert [(group.group_id, group.protocol_type, group.group_state, group.group_type) for group in answer.groups] == [
        ("alone", "", "Empty" if version >= 4 else "", "classic" if version >= 5 else ""),
        (GROUP, "consumer", "Stable" if version >= 4 else "", "classic" if version >= 5 else ""),
    ]


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        (["Empty"], [], ["alone"]),
        (["stable", "EMPTY"], [], ["alone", GROUP]),
        (["Dead", "Whatever"], [], []),
        ([], ["Classic"], ["alone", GROUP]),
        ([], ["consumer"], []),
        (["Stable"], ["consumer", "classic"], [GROUP]),
    ],
)
def test_groups_are_listed_by_state_and_type(
    small: SmallNode, states: list[str], types: list[str], listed: list[str]
) -> None:
    commit_alone(small, "alone")
    settle(GroupClient(small))
    answer = small.ask(ListGroupsRequest(states_filter=states, types_filter=types), 5)
    assert [group.group_id for group in answer.groups] == listed


def test_who_may_not_describe_the_cluster_sees_the_groups_it_may_describe() -> None:
    class OnlyReaders(AllowEverything):
        def allows(self, who: Identity, operation: AclOperation, kind: ResourceType, name: str) -> bool:
            return kind is not ResourceType.CLUSTER and name == GROUP

    small = SmallNode(authorizer=OnlyReaders())
    commit_alone(small, "alone")
    commit_alone(small, GROUP)
    assert [group.group_id for group in small.ask(ListGroupsRequest(), 5).groups] == [GROUP]
    small.close()


# --- describing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_a_stable_group_is_described_with_what_its_members_said_and_got(small: SmallNode, version: int) -> None:
    member = GroupClient(small, instance_id="a")
    settle(member)
    answer = small.ask(DescribeGroupsRequest(groups=[GROUP], include_authorized_operations=version >= 3), version)
    (group,) = answer.groups
    assert (group.error_code, group.error_message, group.group_id) == (ErrorCode.NONE, None, GROUP)
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    assert group.authorized_operations == (OPERATIONS if version >= 3 else NOT_ASKED)
    (described,) = group.members
    assert (described.member_id, described.client_id, described.client_host) == (member.member_id, "test", "/127.0.0.1")
    assert described.group_instance_id == ("a" if version >= 4 else None)
    assert (described.member_metadata, described.member_assignment) == (SUBSCRIPTION, member.member_id.encode())


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_is_not_there_is_dead_and_from_version_6_on_an_error(small: SmallNode, version: int) -> None:
    request = DescribeGroupsRequest(groups=["nobody"], include_authorized_operations=version >= 3)
    (group,) = small.ask(request, version).groups
    assert (group.group_state, group.members) == ("Dead", [])
    assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    assert group.error_message == ("group 'nobody' has neither members nor committed offsets" if version >= 6 else None)


def test_a_group_that_only_committed_is_empty_and_one_that_rebalances_says_so(small: SmallNode) -> None:
    commit_alone(small, "alone")
    GroupClient(small).begin_join()
    groups = small.ask(DescribeGroupsRequest(groups=["alone", GROUP]), 6).groups
    assert [(group.error_code, group.group_state) for group in groups] == [(0, "Empty"), (0, "CompletingRebalance")]
    assert (groups[1].protocol_data, groups[1].members[0].member_metadata) == ("", b"")


def test_operations_are_told_only_when_they_are_asked_for(small: SmallNode) -> None:
    (group,) = small.ask(DescribeGroupsRequest(groups=[GROUP]), 5).groups
    assert group.authorized_operations == NOT_ASKED


def test_who_may_not_describe_a_group_hears_nothing_of_it() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.DESCRIBE, ResourceType.GROUP)))
    (group,) = small.ask(DescribeGroupsRequest(groups=[GROUP]), 5).groups
    assert (group.error_code, group.group_state) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, "")
    small.close()


# --- deleting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_groups_without_members_are_deleted_for_good(version: int) -> None:
    files = MemoryFiles()
    small = SmallNode(files)
    commit_alone(small, "alone")
    member, left = GroupClient(small), GroupClient(small, group="left")
    settle(member)
    settle(left)
    left.leave()
    answer = small.ask(DeleteGroupsRequest(groups_names=["alone", "left", GROUP, "nobody", "alone"]), version)
    assert {result.group_id: result.error_code for result in answer.results} == {
        "alone": ErrorCode.NONE,
        "left": ErrorCode.NONE,
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert len(answer.results) == 4
    assert small.broker.group_names() == [GROUP]
    small.close()
    again = SmallNode(files)
    assert again.broker.group_names() == [GROUP]
    again.close()


def test_who_may_not_delete_a_group_does_not() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.DELETE, ResourceType.GROUP)))
    commit_alone(small, "alone")
    answer = small.ask(DeleteGroupsRequest(groups_names=["alone"]), 2)
    assert answer.results[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert small.broker.group_names() == ["alone"]
    small.close()


def test_a_log_that_is_closed_has_no_coordinator(small: SmallNode) -> None:
    small.broker.close()
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert small.ask(ListGroupsRequest(), 5).error_code == unavailable
    assert small.ask(DescribeGroupsRequest(groups=[GROUP]), 6).groups[0].error_code == unavailable
    assert small.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2).results[0].error_code == unavailable
