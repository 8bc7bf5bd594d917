"""What a member asks its coordinator, and what each answer means for its membership: no connection, thread or clock."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from foldlog.broker.groups.messages import NO_GENERATION, NO_MEMBER
from foldlog.client.wire.group_session import GroupSession, Joined
from foldlog.client.wire.questions import Coordinator
from foldlog.client.wire.refusals import Passing
from foldlog.errors import FencedMember, GroupFull, InconsistentProtocol
from foldlog.limits import MEMBER_HEARTBEAT_MS, MEMBER_SESSION_MS
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from foldlog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from foldlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from foldlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

STARTING = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR]


@dataclass
class CountedMember:
    """A member that counts how often it lost its membership."""

    group: str = "fraud"
    instance_id: str | None = None
    max_poll_interval_ms: int = 300_000
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    losses: int = 0

    def lose_membership(self) -> None:
        self.member_id, self.generation = NO_MEMBER, NO_GENERATION
        self.losses += 1


def joined_answer(leader: str = "a", *, error_code: int = 0, skip_assignment: bool = False) -> JoinGroupResponse:
    members = [JoinGroupResponseMember(member_id=one, group_instance_id=None, metadata=b"wants") for one in "ab"]
    return JoinGroupResponse(
        error_code=error_code,
        generation_id=7,
        protocol_name="range",
        leader=leader,
        skip_assignment=skip_assignment,
        member_id="a",
        members=members if leader == "a" else [],
    )


def settled(member: CountedMember) -> GroupSession:
    """A session that has joined and taken its share."""
    session = GroupSession(member)
    joined = session.joining([("range", b"wants")]).read(joined_answer())
    assert joined is not None
    assert session.syncing(joined, {}).read(SyncGroupResponse(assignment=b"share")) == b"share"
    session.settle()
    return session


def test_a_member_joins_syncs_and_beats() -> None:
    member = CountedMember()
    session = GroupSession(member)
    joining = session.joining([("range", b"wants")])
    asked = joining.request
    assert isinstance(asked, JoinGroupRequest)
    assert (asked.member_id, asked.session_timeout_ms, asked.rebalance_timeout_ms) == ("", MEMBER_SESSION_MS, 300_000)
    assert joining.to == Coordinator("fraud")
    joined = joining.read(joined_answer())
    assert joined is not None
    assert (member.member_id, member.generation) == ("a", 7)
    assert joined.is_leader
    assert joined.must_assign
    assert [one.member_id for one in joined.members] == ["a", "b"]

    syncing = session.syncing(joined, {"a": b"1", "b": b"2"})
    told = syncing.request
    assert isinstance(told, SyncGroupRequest)
    assert (told.member_id, told.generation_id, told.protocol_name) == ("a", 7, "range")
    assert [(one.member_id, one.assignment) for one in told.assignments] == [("a", b"1"), ("b", b"2")]
    assert syncing.read(SyncGroupResponse(assignment=b"1")) == b"1"
    assert (session.must_join, session.has_joined) == (True, False), "until the share is taken"
    session.settle()
    assert (session.must_join, session.has_joined) == (False, True)

    beating = session.heartbeat()
    beat = beating.request
    assert isinstance(beat, HeartbeatRequest)
    assert (beat.member_id, beat.generation_id) == ("a", 7)
    beating.read(HeartbeatResponse())
    assert not session.must_join


def test_who_is_not_the_leader_assigns_nothing_and_a_leader_only_if_it_must() -> None:
    follower = GroupSession(CountedMember()).joining([]).read(joined_answer("b"))
    assert follower == Joined("range", is_leader=False, members=(), must_assign=False)
    leader = GroupSession(CountedMember()).joining([]).read(joined_answer(skip_assignment=True))
    assert leader is not None
    assert leader.is_leader
    assert not leader.must_assign


def test_a_member_joins_again_with_the_id_that_it_is_given() -> None:
    member = CountedMember()
    session = GroupSession(member)
    assert session.joining([]).read(joined_answer(error_code=ErrorCode.MEMBER_ID_REQUIRED)) is None
    again = session.joining([]).request
    assert isinstance(again, JoinGroupRequest)
    assert again.member_id == "a"
    assert member.generation == NO_GENERATION


def test_what_was_dealt_with_is_committed_before_a_settled_member_joins_again() -> None:
    member = CountedMember()
    session = settled(member)
    session.heartbeat().read(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert (session.must_join, session.must_commit) == (True, True)
    session.must_commit = False  # it was
    session.heartbeat().read(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert (session.must_join, session.must_commit) == (True, False), "nothing was handed out since"
    assert (member.member_id, member.losses) == ("a", 0)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_who_was_silent_for_too_long_begins_anew_and_commits_nothing(code: ErrorCode) -> None:
    member = CountedMember()
    session = settled(member)
    session.heartbeat().read(HeartbeatResponse(error_code=code))
    assert session.must_join
    assert not session.must_commit
    assert (member.member_id, member.generation, member.losses) == (NO_MEMBER, NO_GENERATION, 1)


@pytest.mark.parametrize(
    ("code", "losses"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, 0),
        (ErrorCode.ILLEGAL_GENERATION, 0),
        (ErrorCode.UNKNOWN_MEMBER_ID, 1),
    ],
)
def test_a_sync_that_comes_too_late_is_followed_by_another_join(code: ErrorCode, losses: int) -> None:
    member = CountedMember()
    session = GroupSession(member)
    joined = session.joining([]).read(joined_answer())
    assert joined is not None
    assert session.syncing(joined, {}).read(SyncGroupResponse(error_code=code, assignment=b"")) is None
    assert session.must_join
    assert not session.has_joined
    assert member.losses == losses


@pytest.mark.parametrize("code", STARTING)
def test_a_coordinator_that_is_starting_is_asked_again_and_a_heartbeat_goes_by(code: ErrorCode) -> None:
    member = CountedMember()
    session = settled(member)
    session.heartbeat().read(HeartbeatResponse(error_code=code))
    assert not session.must_join
    with pytest.raises(Passing, match="group 'fraud'"):
        session.joining([]).read(joined_answer(error_code=code))
    assert (member.member_id, member.losses) == ("a", 0)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.FENCED_INSTANCE_ID, FencedMember),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, GroupFull),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, InconsistentProtocol),
    ],
)
def test_what_a_group_refuses_for_good_is_raised(code: ErrorCode, error: type[Exception]) -> None:
    session = settled(CountedMember())
    with pytest.raises(error):
        session.joining([]).read(joined_answer(error_code=code))
    with pytest.raises(error):
        session.heartbeat().read(HeartbeatResponse(error_code=code))


def test_who_leaves_says_so_unless_its_membership_is_kept_or_was_never_had() -> None:
    assert GroupSession(CountedMember()).leaving() is None
    assert settled(CountedMember(instance_id="till-1")).leaving() is None
    leaving = settled(CountedMember()).leaving()
    assert leaving is not None
    assert isinstance(leaving.request, LeaveGroupRequest)
    assert [one.member_id for one in leaving.request.members] == ["a"]
    leaving.read(LeaveGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))


def test_heartbeats_come_three_times_in_a_session_and_a_static_member_may_be_silent_for_longer() -> None:
    assert GroupSession(CountedMember()).heartbeat_ms == MEMBER_HEARTBEAT_MS
    assert GroupSession(CountedMember(max_poll_interval_ms=300)).heartbeat_ms == 100
    static = GroupSession(CountedMember(instance_id="till-1")).joining([]).request
    assert isinstance(static, JoinGroupRequest)
    assert static.session_timeout_ms == 300_000
