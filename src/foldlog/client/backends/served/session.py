"""One member's session with a coordinator in another process: Kafka's group protocol over a connection.

A session is a connection and a thread, which joins, syncs and sends heartbeats. A rebalance that another process begins
waits until the consumer has dealt with what it was given, which its next poll says at the latest; one that begins in
this process does not, as in the coordinator's own. Before a member joins again it commits what was dealt with, and
while it joins its consumer hands out nothing. A consumer that does not poll for max_poll_interval_ms leaves, and joins
again at its next poll.

While the coordinator cannot be reached a member keeps what it holds: nobody else can be given it. A coordinator that is
started again knows the group from the log, and the heartbeats go on as if nothing had happened.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from threading import Condition, Lock, Thread, current_thread
from typing import Final

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.errors import GroupErrorCode
from foldlog.broker.groups.messages import NO_GENERATION, NO_MEMBER, JoinedMember
from foldlog.client.backends.backend import DirectoryBroker
from foldlog.client.backends.served.connection import Answer, Connection
from foldlog.client.backends.served.search import WriterSearch
from foldlog.client.consumer.assignments import (
    NOTHING_HELD,
    Member,
    beginnings,
    commit_as_member,
    counts_of,
    offered_protocols,
    shares,
    subscriptions_of,
    take_share,
)
from foldlog.client.consumer.protocol import PROTOCOL_TYPE
from foldlog.client.positions import TopicPartition
from foldlog.client.wire.refusals import group_error
from foldlog.errors import FoldlogError, MalformedBytes, StorageError
from foldlog.limits import (
    MEMBER_HEARTBEAT_MS,
    MEMBER_JOIN_WAIT_MS,
    MEMBER_SESSION_MS,
    READER_POLL_MAX_MS,
    WRITER_ANSWER_MS,
)
from foldlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from foldlog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from foldlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from foldlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from foldlog.wire.schema import Request

_log = logging.getLogger("foldlog")

_STIRRED_BEATS: Final = 50
"""How many quick heartbeats a member sends while another of this process joins or leaves: one second of them."""

_CALLED_PAUSE_MS: Final = 50
"""How often it is looked whether a consumer is done, while the group waits for it."""

_AGAIN: Final = frozenset(
    {
        GroupErrorCode.REBALANCE_IN_PROGRESS,
        GroupErrorCode.ILLEGAL_GENERATION,
        GroupErrorCode.MEMBER_ID_REQUIRED,
        GroupErrorCode.UNKNOWN_MEMBER_ID,
    }
)
"""Answers to joining and syncing after which a member joins again at once."""

_SOON: Final = frozenset(
    {
        GroupErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        GroupErrorCode.COORDINATOR_NOT_AVAILABLE,
        GroupErrorCode.NOT_COORDINATOR,
    }
)
"""Answers of a coordinator that is starting or ending."""


class Session:
    """One member's connection to the coordinator, and its thread. `start`, `stop` and `polled` come from others."""

    def __init__(self, backend: DirectoryBroker, search: WriterSearch, member: Member) -> None:
        self.member = member
        self.is_abandoned = False
        self.is_over = False
        self._backend = backend
        self._search = search
        self._clock = backend.clock
        self._connection: Connection | None = None
        self._parked: Connection | None = None  # the same, while it waits for the other members
        self._changed = Condition()
        # A static member's place is kept as long as it would be in the coordinator's own process.
        longest_ms = member.max_poll_interval_ms
        self._session_ms = longest_ms if member.instance_id is not None else min(longest_ms, MEMBER_SESSION_MS)
        self._must_join = True
        self._must_commit = False  # before it joins again
        self._has_joined = False
        self._is_stopping = False
        self._is_out = False  # left for not being polled; the next poll brings it back
        self._stirred_beats = 0
        self._polled_ms = self._clock.monotonic_ms()
        self._watched: dict[str, int] = {}  # the leader's: how many partitions there are to give out
        self._last_problem = ""
        self._thread = Thread(target=self._run, name="foldlog-member", daemon=True)

    # --- what others ask ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join; on return the member holds its share, unless others are awaited for long. Raises the refusal."""
        self._thread.start()
        with self._changed:
            self._changed.wait_for(self._is_settled, MEMBER_JOIN_WAIT_MS / 1000)
        self._raise_refusal()

    def stop(self) -> None:
        """Leave, or step out. The coordinator has heard of it on return, if it can be reached."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        while self._thread is not current_thread() and self._thread.is_alive():
            parked = self._parked
            if parked is not None:
                parked.close()  # its answer may take as long as a rebalance
            self._thread.join(READER_POLL_MAX_MS / 1000)

    def polled(self) -> None:
        """The consumer lives. Brings it back if it had left; raises what the group refuses it for."""
        self._polled_ms = self._clock.monotonic_ms()
        with self._changed:
            if self._is_out or self.member.is_called:
                # Before the poll goes on: from here on it hands out nothing.
                self.member.is_joining = self._must_join
                self.member.is_called = self._is_out = False
                self._changed.notify_all()
        self._raise_refusal()

    def stir(self) -> None:
        """Another member of this process joins or leaves: look for the rebalance soon."""
        with self._changed:
            self._stirred_beats = _STIRRED_BEATS
            self._changed.notify_all()

    def wait_beyond(self, generation: int) -> None:
        """Until the member has its share in a later generation, but not for ever."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.is_over or self._is_out or self.member.held.generation > generation,
                _STIRRED_BEATS * READER_POLL_MAX_MS / 1000,
            )

    def _is_settled(self) -> bool:
        return self.member.held is not NOTHING_HELD or self.member.refusal is not None

    def _raise_refusal(self) -> None:
        refusal = self.member.refusal
        if refusal is not None:
            raise refusal.with_traceback(None)

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not (self._is_stopping or self.is_abandoned):
                try:
                    self._step()
                except (OSError, MalformedBytes, StorageError) as error:
                    self._unreachable(error)
                except FoldlogError as error:
                    self._refuse(error)
                    return
                self._rest()
            self._leave()
        except Exception as error:  # noqa: BLE001 a consumer that waits must be told
            _log.exception("the membership of group %r failed", self.member.group)
            self._refuse(self._search.lost(None, repr(error)))
        finally:
            self.is_over = True
            self.member.is_joining = False
            self._drop()

    def _step(self) -> None:
        if self._is_out:
            return
        if self._clock.monotonic_ms() - self._polled_ms > self.member.max_poll_interval_ms:
            self._step_out()
        elif self._must_join and self._may_join():
            self._join()
        else:
            self._beat()

    def _may_join(self) -> bool:
        """Whether the consumer is done with what it has. If not, its next poll is waited for."""
        member = self.member
        with self._changed:
            if member.is_joining:
                return True
            member.is_joining = True  # first, so that nothing is handed out after it was asked
            is_urgent = self._stirred_beats > 0 or member.held is NOTHING_HELD
        if is_urgent or not member.is_busy():
            return True
        with self._changed:
            member.is_joining = False
            member.is_called = True
        member.wake()
        return False

    def _rest(self) -> None:
        """Until the next heartbeat is due, or something happens."""
        if self._must_join and not (self._last_problem or self._is_out or self.member.is_called):
            return
        with self._changed:
            pause_ms = min(MEMBER_HEARTBEAT_MS, self._session_ms / 3)
            if self._stirred_beats:
                self._stirred_beats -= 1
                pause_ms = READER_POLL_MAX_MS
            elif self.member.is_called:
                pause_ms = min(pause_ms, _CALLED_PAUSE_MS)
            if not self._is_stopping:
                self._changed.wait(pause_ms / 1000)

    def _join(self) -> None:
        member = self.member
        if self._must_commit:
            self._must_commit = False
            member.before_rebalance()
        answer = self._wait_for(self._join_request(), JoinGroupResponse)
        code = answer.error_code
        if code == GroupErrorCode.MEMBER_ID_REQUIRED:
            member.member_id = answer.member_id
        if code:
            self._not_joined(code)
            return
        member.member_id = answer.member_id
        member.generation = answer.generation_id
        self._sync(answer)

    def _sync(self, joined: JoinGroupResponse) -> None:
        member = self.member
        assignments: dict[str, bytes] = {}
        self._watched = {}
        if joined.leader == member.member_id:
            subscriptions = subscriptions_of(
                JoinedMember(one.member_id, one.group_instance_id, one.metadata) for one in joined.members
            )
            topics = {topic for wanted in subscriptions.values() for topic in wanted.topics}
            self._watched = counts_of(self._backend, topics)
            if not joined.skip_assignment:
                assignments = shares(self._backend, joined.protocol_name, subscriptions)
        request = SyncGroupRequest(
            group_id=member.group,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=share)
                for member_id, share in assignments.items()
            ],
        )
        answer = self._wait_for(request, SyncGroupResponse)
        if answer.error_code:
            self._not_joined(answer.error_code)
            return
        with self._changed:
            self._must_join = False
            self._has_joined = True
            self._last_problem = ""
            self._stirred_beats = 0
            member.is_joining = False
            take_share(self._backend, member, member.generation, answer.assignment)
            self._changed.notify_all()

    def _not_joined(self, code: int) -> None:
        """Joining or syncing was refused: try again, or tell the consumer."""
        if code in _SOON:
            raise ConnectionError(f"it answered {GroupErrorCode(code).name}")
        if code not in _AGAIN:
            raise group_error(code, self.member.group)
        if code == GroupErrorCode.UNKNOWN_MEMBER_ID:
            self._lose_place()

    def _beat(self) -> None:
        member = self.member
        request = HeartbeatRequest(
            group_id=member.group,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )
        code = self._connected().call(request, HeartbeatResponse).error_code
        self._last_problem = ""
        if code == GroupErrorCode.REBALANCE_IN_PROGRESS:
            self._must_commit = self._must_commit or not self._must_join
            self._must_join = True
        elif code in (GroupErrorCode.UNKNOWN_MEMBER_ID, GroupErrorCode.ILLEGAL_GENERATION):
            # It was silent for too long; somebody else has had its partitions.
            self._lose_place()
        elif code and code not in _SOON:
            raise group_error(code, member.group)
        elif self._watched and counts_of(self._backend, self._watched) != self._watched:
            # Only the leader's joining makes a settled group assign anew.
            self._must_commit = self._must_join = True

    def _lose_place(self) -> None:
        member = self.member
        member.member_id, member.generation = NO_MEMBER, NO_GENERATION
        member.held = NOTHING_HELD
        self._must_join = True
        member.wake()

    def _step_out(self) -> None:
        """The consumer does not poll: others shall have its share."""
        _log.warning(
            "a member of group %r was not polled for %d ms; it leaves, and joins again when it is polled",
            self.member.group,
            self.member.max_poll_interval_ms,
        )
        self._leave()
        self._lose_place()
        self._is_out = True

    def _leave(self) -> None:
        """Tell the coordinator, if it can be reached; else the session ends by itself."""
        member = self.member
        if member.instance_id is not None or member.member_id == NO_MEMBER:
            return
        request = LeaveGroupRequest(
            group_id=member.group,
            member_id=member.member_id,
            members=[MemberIdentity(member_id=member.member_id)],
        )
        for _ in range(2):  # the first connection may be one that `stop` has just closed
            with suppress(OSError, MalformedBytes, StorageError):
                self._connected().call(request, LeaveGroupResponse)
                return
            self._drop()

    # --- the connection -------------------------------------------------------------------------------------------

    def _connected(self) -> Connection:
        if self._connection is None:
            connection = self._search.connect()
            if connection is None:
                raise self._search.lost(None, "nobody serves the directory now")
            self._connection = connection
        return self._connection

    def _wait_for(self, request: Request, answer: type[Answer]) -> Answer:
        """The coordinator answers when everybody has joined, or the rebalance timeout is over."""
        self._parked = self._connected()
        try:
            return self._parked.call(request, answer, (self.member.max_poll_interval_ms + WRITER_ANSWER_MS) / 1000)
        finally:
            self._parked = None

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _unreachable(self, error: Exception) -> None:
        """Try again with the next heartbeat. Who has not joined yet is told instead: it may have to wait for ever."""
        self._drop()
        if self._is_stopping:
            return
        if not self._has_joined:
            reason = error if isinstance(error, StorageError) else self._search.lost(None, str(error))
            self._refuse(reason)
            self._is_stopping = True
            return
        problem = str(error) or type(error).__name__
        if problem != self._last_problem:
            _log.warning("the coordinator of group %r cannot be reached: %s", self.member.group, problem)
        self._last_problem = problem

    def _refuse(self, error: FoldlogError) -> None:
        with self._changed:
            self.member.refusal = error
            self._changed.notify_all()
        self.member.wake()

    def _join_request(self) -> JoinGroupRequest:
        member = self.member
        return JoinGroupRequest(
            group_id=member.group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=member.max_poll_interval_ms,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in offered_protocols(member)
            ],
        )


class RemoteMemberships:
    """All members of one log, by member; see `backend.GroupMemberships`."""

    def __init__(self, backend: DirectoryBroker, search: WriterSearch) -> None:
        self._backend = backend
        self._search = search
        self._lock = Lock()
        self._sessions: dict[Member, Session] = {}

    def begins(self, group: str) -> dict[TopicPartition, int]:
        """See `GroupMemberships`."""
        with self._lock:
            return beginnings(member for member in self._sessions if member.group == group)

    def join(self, member: Member) -> None:
        """Become a member. On return it and the others of this process hold their shares, unless members of other
        processes are awaited for long."""
        session = Session(self._backend, self._search, member)
        with self._lock:
            self._sessions = {key: one for key, one in self._sessions.items() if not one.is_over}
            self._sessions[member] = session
        others = self._others(member)
        generations = [other.member.generation for other in others]
        for other in others:
            other.stir()  # they are awaited by the rebalance that this begins
        try:
            session.start()
        except FoldlogError:
            self._forget(member)
            raise
        if member.instance_id is None:
            _wait_for_all(others, generations)

    def leave(self, member: Member) -> None:
        """Give everything back; the other members of this process hold it on return, unless others are awaited.

        A member with a group.instance.id only steps out: its place is kept for the next.
        """
        session = self._forget(member)
        if session is None:
            return
        others = self._others(member)
        generations = [other.member.generation for other in others]
        session.stop()
        if member.instance_id is None:
            for other in others:
                other.stir()
            _wait_for_all(others, generations)

    def abandon(self, member: Member) -> None:
        """Takes no lock: the session's thread lets the member leave."""
        session = self._sessions.get(member)
        if session is not None:
            session.is_abandoned = True

    def bury_abandoned(self) -> None:
        """The sessions see to it."""

    def serve(self, member: Member) -> None:
        """A sign of life. Raises what the group refuses the member for, once."""
        session = self._sessions.get(member)
        if session is not None:
            session.polled()

    def meet_others(self) -> None:
        """They do so in the coordinator's process."""

    def commit(self, member: Member, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Durable on return. NotAssigned, and nothing committed, if one of the partitions is not the member's."""
        commit_as_member(self._backend, member, offsets)

    def _forget(self, member: Member) -> Session | None:
        with self._lock:
            return self._sessions.pop(member, None)

    def _others(self, member: Member) -> list[Session]:
        """The other members of its group that are in this process."""
        with self._lock:
            sessions = list(self._sessions.values())
        return [one for one in sessions if one.member is not member and one.member.group == member.group]


def _wait_for_all(sessions: list[Session], generations: list[int]) -> None:
    for session, generation in zip(sessions, generations, strict=True):
        session.wait_beyond(generation)
