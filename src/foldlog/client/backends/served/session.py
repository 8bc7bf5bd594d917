"""Members of groups whose coordinator is in another process, the one that writes the directory.

Each has a connection and a thread, which asks what `wire.group_session` says: joins, syncs, sends heartbeats. A
rebalance that another process begins waits until the consumer has dealt with what it was given, which its next poll
says at the latest; one that begins in this process does not, as in the coordinator's own. Before a member joins again
it commits what was dealt with, and while it joins its consumer hands out nothing. A consumer that does not poll for
max_poll_interval_ms leaves, and joins again at its next poll.

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
from foldlog.client.backends.backend import DirectoryBroker
from foldlog.client.backends.served.connection import Connection
from foldlog.client.backends.served.search import WriterSearch
from foldlog.client.consumer.assignments import (
    NOTHING_HELD,
    Member,
    Since,
    beginnings,
    commit_as_member,
    counts_of,
    offered_protocols,
    shares,
    subscriptions_of,
    take_share,
)
from foldlog.client.positions import TopicPartition
from foldlog.client.wire.group_session import GroupSession, Joined
from foldlog.client.wire.questions import Answer, Done, Question
from foldlog.client.wire.refusals import Passing
from foldlog.errors import FoldlogError, IllegalGeneration, MalformedBytes, StorageError, UnknownMember
from foldlog.limits import MEMBER_JOIN_WAIT_MS, READER_POLL_MAX_MS, WRITER_ANSWER_MS
from foldlog.wire.messages.leave_group import LeaveGroupResponse

_log = logging.getLogger("foldlog")

_STIRRED_BEATS: Final = 50
"""How many quick heartbeats a member sends while another of this process joins or leaves, or after a refused commit:
one second of them."""

_CALLED_PAUSE_MS: Final = 50
"""How often it is looked whether a consumer is done, while the group waits for it."""


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
        self._group = GroupSession(member)
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
                self.member.is_joining = self._group.must_join
                self.member.is_called = self._is_out = False
                self._changed.notify_all()
        self._raise_refusal()

    def stir(self) -> None:
        """Another member of this process joins or leaves, or the group refused this one: ask it soon."""
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
                except (Passing, OSError, MalformedBytes, StorageError) as error:
                    self._unreachable(error)
                except FoldlogError as error:
                    self._refuse(error)
                    return
                self._rest()
            self._leave(self._group.leaving())
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
        elif self._group.must_join and self._may_join():
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
        if self._group.must_join and not (self._last_problem or self._is_out or self.member.is_called):
            return
        with self._changed:
            pause_ms = self._group.heartbeat_ms
            if self._stirred_beats:
                self._stirred_beats -= 1
                pause_ms = READER_POLL_MAX_MS
            elif self.member.is_called:
                pause_ms = min(pause_ms, _CALLED_PAUSE_MS)
            if not self._is_stopping:
                self._changed.wait(pause_ms / 1000)

    def _join(self) -> None:
        if self._group.must_commit:
            self._group.must_commit = False
            self.member.before_rebalance()
        joined = self._wait_for(self._group.joining(offered_protocols(self.member)))
        if joined is not None:
            self._sync(joined)

    def _sync(self, joined: Joined) -> None:
        member = self.member
        assignments: dict[str, bytes] = {}
        self._watched = {}
        if joined.is_leader:
            subscriptions = subscriptions_of(joined.members)
            topics = {topic for wanted in subscriptions.values() for topic in wanted.topics}
            self._watched = counts_of(self._backend, topics)
            if joined.must_assign:
                assignments = shares(self._backend, joined.protocol, subscriptions)
        share = self._wait_for(self._group.syncing(joined, assignments))
        if share is None:
            return
        with self._changed:
            take_share(self._backend, member, member.generation, share)  # first: where that fails, it joins again
            self._group.settle()
            self._last_problem = ""
            self._stirred_beats = 0
            member.is_joining = False  # last: what it held before may be another's now
            self._changed.notify_all()
        member.wake()

    def _beat(self) -> None:
        self._ask(self._group.heartbeat(), WRITER_ANSWER_MS)
        self._last_problem = ""
        if not self._group.must_join and self._watched and counts_of(self._backend, self._watched) != self._watched:
            self._group.rejoin()

    def _step_out(self) -> None:
        """The consumer does not poll: others shall have its share."""
        _log.warning(
            "a member of group %r was not polled for %d ms; it leaves, and joins again when it is polled",
            self.member.group,
            self.member.max_poll_interval_ms,
        )
        leaving = self._group.leaving()
        self._group.lose_membership()  # first: whoever is given the share must not find it held here
        self._is_out = True
        self._leave(leaving)

    def _leave(self, leaving: Question[LeaveGroupResponse, None] | None) -> None:
        """Tell the coordinator, if it can be reached; else the session ends by itself."""
        if leaving is None:
            return
        for _ in range(2):  # the first connection may be one that `stop` has just closed
            with suppress(OSError, MalformedBytes, StorageError):
                self._ask(leaving, WRITER_ANSWER_MS)
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

    def _ask(self, question: Question[Answer, Done], timeout_ms: int) -> Done:
        """Once: what is to be done about a lost connection is another matter for each step."""
        answer = self._connected().call(question.request, question.answer, timeout_ms / 1000, question.at_most)
        return question.read(answer)

    def _wait_for(self, question: Question[Answer, Done]) -> Done:
        """The coordinator answers when everybody has joined, or the rebalance timeout is over."""
        self._parked = self._connected()
        try:
            return self._ask(question, self.member.max_poll_interval_ms + WRITER_ANSWER_MS)
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
        if not self._group.has_joined:
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

        A member with a group.instance.id only steps out: its membership is kept for the next.
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

    def commit(
        self, member: Member, offsets: Mapping[TopicPartition, OffsetAndMetadata], since: Mapping[TopicPartition, Since]
    ) -> None:
        """See `GroupMemberships`."""
        try:
            commit_as_member(self._backend, member, offsets, since)
        except (IllegalGeneration, UnknownMember):
            session = self._sessions.get(member)
            if session is not None:
                session.stir()
            raise

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
