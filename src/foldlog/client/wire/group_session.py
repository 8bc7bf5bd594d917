"""One member's dealings with the coordinator of its group: what it asks, and what the answers mean for its membership.

Kafka's group protocol: a member joins, and the coordinator answers when everybody has; the one that it names leader
says who reads what; all sync, and hear their share. From then on heartbeats, until one is answered that the group
rebalances. Pure: each step is a Question, and reading its answer moves the session on. Who asks them, when, over which
connection and how long it waits is for the caller to decide: of a directory that another process writes,
`backends.served.session`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import NO_MEMBER, JoinedMember
from foldlog.client.consumer.protocol import PROTOCOL_TYPE
from foldlog.client.wire.questions import Coordinator, Question
from foldlog.client.wire.refusals import check_group_code
from foldlog.limits import MEMBER_HEARTBEAT_MS, MEMBER_SESSION_MS
from foldlog.wire.error_codes import known_code
from foldlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from foldlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from foldlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from foldlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

_AGAIN: Final = frozenset(
    {
        GroupErrorCode.REBALANCE_IN_PROGRESS,
        GroupErrorCode.ILLEGAL_GENERATION,
        GroupErrorCode.MEMBER_ID_REQUIRED,
        GroupErrorCode.UNKNOWN_MEMBER_ID,
    }
)
"""Answers to joining and syncing after which a member joins again at once."""

_LOST: Final = frozenset({GroupErrorCode.UNKNOWN_MEMBER_ID, GroupErrorCode.ILLEGAL_GENERATION})
"""Answers to heartbeats of a member that was silent for too long: somebody else has had its partitions."""


class SessionMember(Protocol):
    """Whose session it is. The session writes the id and the generation that the coordinator gives."""

    group: str
    instance_id: str | None
    max_poll_interval_ms: int
    member_id: str
    generation: int

    def lose_membership(self) -> None:
        """It is no member any more, and holds nothing."""
        ...


class Joined(NamedTuple):
    """What a member hears when everybody has joined. The leader alone hears of the members, and assigns if it must."""

    protocol: str | None
    is_leader: bool
    members: tuple[JoinedMember, ...]
    must_assign: bool


class GroupSession:
    """Where one member stands with its coordinator. One thread asks; others may look at the flags.

    The questions raise Passing where the coordinator is starting or ending, and what else the group refuses as the
    error that it is.
    """

    def __init__(self, member: SessionMember) -> None:
        self._member = member
        # A static member's membership is kept as long as it would be in the coordinator's own process.
        longest_ms = member.max_poll_interval_ms
        self._session_ms = longest_ms if member.instance_id is not None else min(longest_ms, MEMBER_SESSION_MS)
        self.must_join = True
        self.must_commit = False
        """What was dealt with, before it joins again: whoever is given its share begins there."""
        self.has_joined = False
        """Ever: a coordinator that cannot be reached keeps the membership of who has."""

    @property
    def heartbeat_ms(self) -> float:
        """How often the coordinator has to hear of the member."""
        return min(MEMBER_HEARTBEAT_MS, self._session_ms / 3)

    # --- what is asked --------------------------------------------------------------------------------------------

    def joining(self, protocols: Iterable[tuple[str, bytes]]) -> Question[JoinGroupResponse, Joined | None]:
        """With what it wants, for each assignor. Answered when all have joined, or the rebalance timeout is over; None
        if it has to join again."""
        member = self._member
        request = JoinGroupRequest(
            group_id=member.group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=member.max_poll_interval_ms,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        return Question(request, JoinGroupResponse, self._joined, Coordinator(member.group))

    def _joined(self, answer: JoinGroupResponse) -> Joined | None:
        member = self._member
        if answer.error_code == GroupErrorCode.MEMBER_ID_REQUIRED:
            member.member_id = answer.member_id
        if self._has_to_join_again(answer.error_code):
            return None
        member.member_id = answer.member_id
        member.generation = answer.generation_id
        members = tuple(JoinedMember(one.member_id, one.group_instance_id, one.metadata) for one in answer.members)
        is_leader = answer.leader == answer.member_id
        return Joined(answer.protocol_name, is_leader, members, is_leader and not answer.skip_assignment)

    def syncing(self, joined: Joined, shares: Mapping[str, bytes]) -> Question[SyncGroupResponse, bytes | None]:
        """With the shares of all, from the leader. The member's own, or None if it has to join again; `settle` when it
        is taken."""
        member = self._member
        request = SyncGroupRequest(
            group_id=member.group,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=share) for member_id, share in shares.items()
            ],
        )
        return Question(request, SyncGroupResponse, self._synced, Coordinator(member.group))

    def _synced(self, answer: SyncGroupResponse) -> bytes | None:
        return None if self._has_to_join_again(answer.error_code) else answer.assignment

    def settle(self) -> None:
        """The share is taken. Apart from `syncing`, since who takes it may have to keep others from looking."""
        self.must_join = False
        self.has_joined = True

    def heartbeat(self) -> Question[HeartbeatResponse, None]:
        """Afterwards `must_join` says whether the group rebalances, or has given up on the member."""
        member = self._member
        request = HeartbeatRequest(
            group_id=member.group,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )
        return Question(request, HeartbeatResponse, self._heard, Coordinator(member.group))

    def _heard(self, answer: HeartbeatResponse) -> None:
        code = answer.error_code
        if code == GroupErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin()
        elif code in _LOST:
            self.lose_membership()
        elif not known_code(code).is_retriable:  # of a coordinator that is starting or ending the next one tells more
            check_group_code(code, self._member.group)

    def leaving(self) -> Question[LeaveGroupResponse, None] | None:
        """None if there is nothing to say: a static member only steps out. Of a member that was gone already there is
        nothing to hear either."""
        member = self._member
        if member.instance_id is not None or member.member_id == NO_MEMBER:
            return None
        request = LeaveGroupRequest(
            group_id=member.group, member_id=member.member_id, members=[MemberIdentity(member_id=member.member_id)]
        )
        return Question(request, LeaveGroupResponse, lambda answer: None, Coordinator(member.group))

    # --- what becomes of the membership ---------------------------------------------------------------------------

    def rejoin(self) -> None:
        """The group rebalances; or there are partitions to give out, which a settled group does when its leader
        joins."""
        self.must_commit = self.must_commit or not self.must_join
        self.must_join = True

    def lose_membership(self) -> None:
        """It is no member any more: to be one again it joins like a new one."""
        self._member.lose_membership()
        self.must_join = True

    def _has_to_join_again(self, code: int) -> bool:
        """Joining or syncing was refused in a way that another try changes. Raises what stays."""
        if code == GroupErrorCode.UNKNOWN_MEMBER_ID:
            self.lose_membership()
        if code in _AGAIN:
            return True
        check_group_code(code, self._member.group)
        return False
