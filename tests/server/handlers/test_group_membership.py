"""Members of groups, through the handlers: every version joins, syncs, heartbeats and leaves, and hears the truth.

The broker is real and in memory; its clock is the test's, so sessions expire when the test says so. Requests and
answers go through the codec in the version under test. Threads are used where the point is that one waits.
"""

from __future__ import annotations

import asyncio
import threading

import pytest

from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.groups import messages as group_messages
from foldlog.server.call import Later
from foldlog.server.groups import as_java_prints
from foldlog.server.handlers import heartbeat
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.describe_groups import DescribeGroupsRequest
from foldlog.wire.messages.heartbeat import HeartbeatRequest
from foldlog.wire.messages.join_group import JoinGroupRequestProtocol
from foldlog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from foldlog.wire.messages.sync_group import SyncGroupRequest
from server.group_client import GROUP, PROTOCOL, SUBSCRIPTION, GroupClient, Versions, settle
from server.small_node import Denies, SmallNode

ALL_VERSIONS = [Versions(join, min(join, 5), min(join, 4), min(join, 5)) for join in range(10)]


def describe(small: SmallNode) -> str:
    answer = small.ask(DescribeGroupsRequest(groups=[GROUP]), 5)
    return str(answer.groups[0].group_state)


@pytest.mark.parametrize("versions", ALL_VERSIONS, ids=lambda versions: f"join{versions.join}")
def test_two_members_of_any_version_share_a_group_and_leave_it(small: SmallNode, versions: Versions) -> None:
    one, other = GroupClient(small, versions), GroupClient(small, versions)
    settle(one)
    assert one.is_leader

    later = other.begin_join()
    assert one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    settled = one.begin_join()
    assert one.end_join(settled).generation_id == 2
    joined = other.end_join(later)
    assert (joined.generation_id, joined.protocol_name, joined.leader) == (2, PROTOCOL, one.member_id)
    assert joined.protocol_type == ("consumer" if versions.join >= 7 else None)
    assert not joined.members
    assert one.joined is not None
    assert {member.member_id: member.metadata for member in one.joined.members} == {
        one.member_id: SUBSCRIPTION,
        other.member_id: SUBSCRIPTION,
    }

    waiting = other.begin_sync()
    small.turn()
    assert not waiting.done()
    leaders = one.end_sync(one.begin_sync())
    others = other.end_sync(waiting)
    assert (leaders.assignment, others.assignment) == (one.member_id.encode(), other.member_id.encode())
    assert others.protocol_name == (PROTOCOL if versions.sync >= 5 else None)

    assert one.heartbeat() == other.heartbeat() == ErrorCode.NONE
    assert other.leave() == ErrorCode.NONE
    assert one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert other.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert one.leave() == ErrorCode.NONE
    assert describe(small) == "Empty"


@pytest.mark.parametrize("version", range(10))
def test_a_first_join_only_hands_out_an_id_from_version_4_on(small: SmallNode, version: int) -> None:
    client = GroupClient(small, Versions(join=version))
    answer = small.ask(client.join_request(), version, client_id="app")
    assert answer.member_id.startswith("app-")
    assert answer.error_code == (ErrorCode.MEMBER_ID_REQUIRED if version >= 4 else ErrorCode.NONE)
    assert answer.generation_id == (-1 if version >= 4 else 1)


@pytest.mark.parametrize("version", range(10))
def test_a_refused_join_names_no_protocol(small: SmallNode, version: int) -> None:
    client = GroupClient(small, session_timeout_ms=1)
    client.member_id = "somebody"
    answer = small.ask(client.join_request(), version)
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert (answer.protocol_type, answer.protocol_name) == (None, None if version >= 7 else "")
    assert (answer.member_id, answer.generation_id, answer.leader) == ("somebody", -1, "")


def test_before_version_1_the_session_timeout_is_how_long_a_rebalance_waits(small: SmallNode) -> None:
    slow = GroupClient(small, Versions(join=0), session_timeout_ms=10_000, rebalance_timeout_ms=1)
    settle(slow)
    quick = GroupClient(small, Versions(join=0), session_timeout_ms=10_000, rebalance_timeout_ms=1)
    later = quick.begin_join()
    small.advance(9_999)
    assert slow.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert not later.done()
    small.advance(1)
    assert [member.member_id for member in quick.end_join(later).members] == [quick.member_id]


def test_members_that_offer_no_common_protocol_are_refused(small: SmallNode) -> None:
    settle(GroupClient(small))
    other = GroupClient(small)
    request = other.join_request(protocols=[JoinGroupRequestProtocol(name="sticky", metadata=b"")])
    assert small.ask(request, 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_from_version_5_on_a_member_has_to_say_which_protocol_it_syncs(small: SmallNode) -> None:
    client = GroupClient(small)
    client.end_join(client.begin_join())

    def sync(version: int, protocol_type: str | None, protocol_name: str | None) -> int:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=client.generation,
            member_id=client.member_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
        )
        return int(small.ask(request, version).error_code)

    assert sync(5, None, PROTOCOL) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(5, "consumer", None) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(5, "consumer", "sticky") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(5, "connect", PROTOCOL) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(5, "consumer", PROTOCOL) == ErrorCode.NONE
    assert sync(4, None, None) == ErrorCode.NONE


def test_a_member_that_waits_to_join_may_heartbeat_and_is_never_unknown(small: SmallNode) -> None:
    one, other = GroupClient(small), GroupClient(small)
    settle(one)
    later = other.begin_join()
    one.begin_join()
    # Both are in: from here on heartbeats of the old generation are late, and those of the new one are right.
    other.end_join(later)
    assert other.heartbeat() == ErrorCode.NONE
    assert one.heartbeat() == ErrorCode.ILLEGAL_GENERATION


def test_a_silent_member_is_dropped_and_the_one_that_waits_hears_of_it_from_the_timer(small: SmallNode) -> None:
    silent = GroupClient(small, session_timeout_ms=6_000, rebalance_timeout_ms=300_000)
    settle(silent)
    later = GroupClient(small, session_timeout_ms=30_000).begin_join()
    small.advance(5_999)
    assert not later.done()
    small.advance(1)
    answer = small.answer(later, 9)
    assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 2)
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_comes_back_has_its_assignment_without_a_rebalance(small: SmallNode) -> None:
    one, other = GroupClient(small, instance_id="a"), GroupClient(small, instance_id="b")
    settle(one)
    later = other.begin_join()
    one.end_join(one.begin_join())
    other.end_join(later)
    waiting = other.begin_sync()
    one.end_sync(one.begin_sync())
    before = other.end_sync(waiting).assignment

    returned = GroupClient(small, instance_id="b")
    answer = returned.end_join(returned.begin_join())
    assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 2)
    assert returned.end_sync(returned.begin_sync()).assignment == before
    assert one.heartbeat() == returned.heartbeat() == ErrorCode.NONE
    assert other.heartbeat() == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_leader_that_comes_back_is_told_not_to_assign_where_its_version_can_be_told(small: SmallNode) -> None:
    settle(GroupClient(small, instance_id="a"))
    answer = small.ask(GroupClient(small, instance_id="a").join_request(), 9)
    assert (answer.skip_assignment, answer.leader == answer.member_id, len(answer.members)) == (True, True, 1)
    answer = small.ask(GroupClient(small, instance_id="a").join_request(), 8)
    assert (answer.skip_assignment, answer.leader == answer.member_id, len(answer.members)) == (False, False, 0)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_many_members_leave_at_once_each_with_its_own_answer(small: SmallNode, version: int) -> None:
    static, dynamic = GroupClient(small, instance_id="a"), GroupClient(small)
    settle(static)
    later = dynamic.begin_join()
    static.end_join(static.begin_join())
    dynamic.end_join(later)
    answer = small.ask(
        LeaveGroupRequest(
            group_id=GROUP,
            members=[
                MemberIdentity(group_instance_id="a", reason="the machine is gone"),
                MemberIdentity(member_id="nobody"),
                MemberIdentity(group_instance_id="b"),
                MemberIdentity(member_id=dynamic.member_id),
            ],
        ),
        version,
    )
    assert answer.error_code == ErrorCode.NONE
    assert [(member.member_id, member.group_instance_id, member.error_code) for member in answer.members] == [
        ("", "a", ErrorCode.NONE),
        ("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "b", ErrorCode.UNKNOWN_MEMBER_ID),
        (dynamic.member_id, None, ErrorCode.NONE),
    ]
    assert describe(small) == "Empty"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_version_3_one_member_leaves_and_the_answer_is_its_own(small: SmallNode, version: int) -> None:
    answer = small.ask(LeaveGroupRequest(group_id=GROUP, member_id="nobody"), version)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_connection_that_is_gone_while_its_join_waits_takes_no_other_answer_with_it(small: SmallNode) -> None:
    one, gone, other = GroupClient(small), GroupClient(small), GroupClient(small)
    settle(one)
    gone.begin_join().cancel()
    later = other.begin_join()
    assert one.end_join(one.begin_join()).error_code == ErrorCode.NONE
    assert other.end_join(later).error_code == ErrorCode.NONE


# --- threads ---------------------------------------------------------------------------------------------------------


class Block:
    """Another thread inside a block of the coordinator, as a consumer of the same process is; a member leaves in it.

    `decided` is set when the coordinator has called its replies, while the block still holds the lock.
    """

    def __init__(self, small: SmallNode, leaving: GroupClient) -> None:
        self._small = small
        self._leaving = leaving
        self.decided = threading.Event()
        self.may_end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._small.broker.coordinator() as coordinator:
            coordinator.leave(GROUP, [group_messages.MemberIdentity(self._leaving.member_id)])
            self.decided.set()
            self.may_end.wait(30)

    def end(self) -> None:
        self.may_end.set()
        self._thread.join(30)


def parked_behind(small: SmallNode) -> tuple[GroupClient, GroupClient, Later]:
    """A member that has not joined again, another that waits for it, and what it waits for."""
    absent, waiting = GroupClient(small), GroupClient(small)
    settle(absent)
    later = waiting.begin_join()
    small.turn()
    assert not later.done()
    return absent, waiting, later


def test_a_member_hears_nothing_that_another_thread_has_decided_and_not_stored(small: SmallNode) -> None:
    absent, waiting, later = parked_behind(small)
    block = Block(small, absent)
    assert block.decided.wait(30)
    small.turn(20)
    assert not later.done()
    block.end()
    assert waiting.end_join(later).generation_id == 2


def test_the_loop_goes_on_while_another_thread_holds_the_groups(small: SmallNode) -> None:
    absent, waiting, _ = parked_behind(small)
    block = Block(small, absent)
    assert block.decided.wait(30)
    request = HeartbeatRequest(group_id=GROUP, generation_id=2, member_id=waiting.member_id)
    asked = small.loop.create_task(heartbeat.handle(small.call(4), request))
    small.turn(20)
    assert not asked.done()
    block.end()
    assert small.run(asyncio.wait_for(asked, 30)).error_code == ErrorCode.NONE


def test_a_log_that_is_served_no_more_goes_on_with_members_that_nobody_can_answer() -> None:
    small = SmallNode()
    absent, _, later = parked_behind(small)
    small.stop_serving()
    small.clock.advance(absent.session_timeout_ms)
    small.broker.run_due()
    assert not later.done()
    with small.broker.coordinator() as coordinator:
        assert coordinator.describe(GROUP).generation == 2
    assert small.broker.warnings() == []
    small.broker.close()


# --- refusals --------------------------------------------------------------------------------------------------------


def test_who_may_not_read_a_group_is_no_member_of_it() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.READ, ResourceType.GROUP)))
    client = GroupClient(small)
    client.member_id = "somebody"
    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert small.ask(client.join_request(), 9).error_code == denied
    assert small.ask(SyncGroupRequest(group_id=GROUP), 4).error_code == denied
    assert client.heartbeat() == denied
    assert client.leave() == denied
    small.close()


def test_a_group_without_a_name_is_refused(small: SmallNode) -> None:
    client = GroupClient(small, group="")
    assert small.ask(client.join_request(), 9).error_code == ErrorCode.INVALID_GROUP_ID
    assert small.ask(SyncGroupRequest(), 4).error_code == ErrorCode.INVALID_GROUP_ID
    assert client.heartbeat() == client.leave() == ErrorCode.INVALID_GROUP_ID


def test_a_log_that_is_closing_sends_its_members_to_look_for_the_coordinator_again(small: SmallNode) -> None:
    client = GroupClient(small)
    settle(client)
    small.broker.close()
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert client.heartbeat() == client.leave() == unavailable
    assert small.ask(client.join_request(), 9).error_code == unavailable
    assert small.answer(client.begin_sync(), 5).error_code == unavailable


@pytest.mark.parametrize(
    ("host", "printed"),
    [
        ("127.0.0.1", "/127.0.0.1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("fe80::1%eth0", "/fe80:0:0:0:0:0:0:1%eth0"),
        ("", "/"),
    ],
)
def test_an_address_is_printed_as_kafka_prints_it(host: str, printed: str) -> None:
    assert as_java_prints(host) == printed
