"""Share sessions (KIP-932): which partitions a member of a share group takes records from, by the requests so far.

A session belongs to a member and to the connection on which it was opened: it ends with either, and what the member had
acquired is then available to others. The first request has epoch 0, each further one the next; -1 ends the session.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from foldlog.server.call import Caller
from foldlog.server.fetches.sessions import next_epoch
from foldlog.wire.error_codes import ErrorCode

FIRST_EPOCH: Final = 0
LAST_EPOCH: Final = -1

TopicIdPartition = tuple[bytes, int]


class SessionRequest(NamedTuple):
    """What a ShareFetch or ShareAcknowledge says of its session."""

    group: str
    member: str
    epoch: int
    wanted: Iterable[TopicIdPartition] = ()
    forgotten: Iterable[TopicIdPartition] = ()


class ShareSession:
    """One member's session. `partitions` are in the order in which they were wanted."""

    __slots__ = ("caller", "epoch", "group", "member", "partitions")

    def __init__(self, group: str, member: str, caller: Caller) -> None:
        self.group = group
        self.member = member
        self.caller = caller
        self.epoch = FIRST_EPOCH
        self.partitions: dict[TopicIdPartition, None] = {}

    def in_turns(self) -> list[TopicIdPartition]:
        """The partitions, another one first each time: a busy one must not starve the others."""
        listed = list(self.partitions)
        at = self.epoch % len(listed) if listed else 0
        return listed[at:] + listed[:at]


class ShareSessions:
    """All share sessions of a broker. Event loop only."""

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def fetching(self, request: SessionRequest, caller: Caller) -> ShareSession | ErrorCode:
        """The session of a ShareFetch, with what it wants from now on; or why there is none."""
        key = (request.group, request.member)
        if request.epoch == FIRST_EPOCH:
            if key not in self._sessions and len(self._sessions) >= self._sessions_max:
                return ErrorCode.SHARE_SESSION_LIMIT_REACHED
            session = self._sessions[key] = ShareSession(*key, caller)
        else:
            found = self.acknowledging(request)
            if isinstance(found, ErrorCode):
                return found
            session = found
        if request.epoch != LAST_EPOCH:
            session.partitions.update(dict.fromkeys(request.wanted))
            for one in request.forgotten:
                session.partitions.pop(one, None)
        if request.epoch == FIRST_EPOCH:
            session.epoch = next_epoch(FIRST_EPOCH)
        return session

    def acknowledging(self, request: SessionRequest) -> ShareSession | ErrorCode:
        """The session of a ShareAcknowledge; or why there is none."""
        if request.epoch == FIRST_EPOCH:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH  # only a fetch opens a session
        session = self._sessions.get((request.group, request.member))
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if request.epoch == LAST_EPOCH:
            return session
        if request.epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = next_epoch(session.epoch)
        return session

    def end(self, session: ShareSession) -> None:
        if self._sessions.get((session.group, session.member)) is session:
            del self._sessions[session.group, session.member]

    def of_caller(self, caller: Caller) -> list[ShareSession]:
        return [session for session in self._sessions.values() if session.caller.buffers is caller.buffers]
