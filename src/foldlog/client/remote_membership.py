"""Members of consumer groups whose coordinator runs in another process: each has a session, see remote_session.py."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from foldlog.broker.bookmarks import OffsetAndMetadata
from foldlog.client.assignments import Member, commit_as_member
from foldlog.client.backend import Backend
from foldlog.client.positions import TopicPartition
from foldlog.client.remote_search import WriterSearch
from foldlog.client.remote_session import Session
from foldlog.errors import FoldlogError


class RemoteMemberships:
    """All members of one log, by member; see `backend.GroupMemberships`."""

    def __init__(self, backend: Backend, search: WriterSearch) -> None:
        self._backend = backend
        self._search = search
        self._lock = Lock()
        self._sessions: dict[Member, Session] = {}

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
