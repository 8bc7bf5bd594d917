"""Fetch sessions (KIP-227): a client that fetches many partitions again and again sends and gets only what changed.

A fetch is one of four kinds, distinguished by its session id and epoch:

- epoch -1 is a fetch on its own; a session named with it is closed. Versions below 7 know no other kind.
- epoch 0 names all partitions and asks for a session; the answer carries its id, or 0 if there is no room for one.
- epoch n of a session names what is new, moved on or forgotten; the answer leaves out partitions without news. Each
  such fetch moves the epoch on by one, so an answer that was lost or a request that came twice is noticed.
- everything else is an error, after which the client names all partitions again.

To follow a fetch: `FetchSessions.resolve` determines the wanted partitions, the handler reads them, and the context's
`response` selects what goes into the answer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from foldlog.clock import Clock
from foldlog.environment import PURE_PYTHON
from foldlog.limits import FETCH_SESSION_EVICTION_MS, FETCH_SESSION_PARTITIONS_MAX, STEP_ITEMS
from foldlog.wire.codec import Result, Steps
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1
TOPIC_IDS_FROM: Final = 13
"""The first version that names topics by id."""

_NEVER_TOLD: Final = -1
"""No offset: the client was not sent any, so the next one is news."""

Key = tuple[str | bytes, int]
"""A topic's name or id, as the client named it, and the partition."""


class WantedPartition:
    """A partition that a client fetches, and what it was last sent about it. Owned by its session, or by its fetch.

    `topic` is None if the client named the topic by id: the handler looks the name up at each fetch, since an unknown
    topic may be created, and a known one deleted.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str | None, topic_id: bytes, wanted: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = wanted.partition
        self.key: Key = (topic_id if topic is None else topic, wanted.partition)
        self.high_watermark = _NEVER_TOLD
        self.log_start_offset = _NEVER_TOLD
        self.ask(wanted)

    def ask(self, wanted: FetchPartition) -> None:
        """Take over the client's new position."""
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch

    def ask_as(self, other: WantedPartition) -> None:
        """Take over the position of another one of the same partition."""
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch

    def tell(self, answer: PartitionData) -> bool:
        """Remember what is answered. Returns whether it is news: records, an error, or an offset that moved."""
        is_news = (
            bool(answer.records)
            or answer.error_code != ErrorCode.NONE
            or answer.diverging_epoch is not None
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
        )
        # After an error the high watermark counts as not sent: the partition is news again when the error is gone. A
        # session has no timer and no retry: what an error hid would otherwise never be sent.
        self.high_watermark = answer.high_watermark if answer.error_code == ErrorCode.NONE else _NEVER_TOLD
        self.log_start_offset = answer.log_start_offset
        return is_news


if not TYPE_CHECKING and not PURE_PYTHON:
    with suppress(ImportError):  # it is not built everywhere
        from foldlog.wire.fetch_frames import WantedPartition


class Answers(Protocol):
    """What was found for each of a fetch's partitions, in their order."""

    def told(self) -> list[int]:
        """Note in every partition what it is answered. Returns the places of those with news."""
        ...

    def has_records(self, place: int) -> bool: ...


class _Messages:
    """Answers that are messages."""

    def __init__(self, partitions: Sequence[WantedPartition], answers: Sequence[PartitionData]) -> None:
        self._partitions = partitions
        self._answers = answers
        self._news: list[int] | None = None

    def tell_in_steps(self) -> Steps[None]:
        """What `told` does, before it is called."""
        news = []
        for place, wanted in enumerate(self._partitions):
            if wanted.tell(self._answers[place]):
                news.append(place)
            if (place + 1) % STEP_ITEMS == 0:
                yield
        self._news = news

    def told(self) -> list[int]:
        if self._news is None:
            return [place for place, one in enumerate(self._partitions) if one.tell(self._answers[place])]
        return self._news

    def has_records(self, place: int) -> bool:
        return bool(self._answers[place].records)


class SessionOutcome(NamedTuple):
    """How a fetch is answered: `places` are those of the partitions in the answer, None for all."""

    error: ErrorCode
    session_id: int
    places: list[int] | None


class FetchContext:
    """One fetch: its partitions, in the order to read them, and how it is answered. This one has no session.

    Owned by the handler of the fetch, on the event loop. `outcome`, or `response`, is called once.
    """

    __slots__ = ("error", "partitions")

    def __init__(self, partitions: Sequence[WantedPartition] = (), error: ErrorCode = ErrorCode.NONE) -> None:
        self.partitions = partitions if isinstance(partitions, list) else list(partitions)
        self.error = error

    def outcome(self, answers: Answers) -> SessionOutcome:
        """What goes into the answer."""
        return SessionOutcome(self.error, NO_SESSION, None)

    def response(self, answers: Sequence[PartitionData]) -> FetchResponse:
        """The answer, from one result for each of `partitions`, in that order. With an `error` there are none."""
        return whole(self.response_in_steps(answers))

    def response_in_steps(self, answers: Sequence[PartitionData]) -> Steps[FetchResponse]:
        messages = _Messages(self.partitions, answers)
        yield from self._tell_in_steps(messages)
        error, session_id, places = self.outcome(messages)
        yield
        topics: dict[str | bytes, tuple[WantedPartition, list[PartitionData]]] = {}
        for number, place in enumerate(range(len(answers)) if places is None else places, 1):
            wanted = self.partitions[place]
            topics.setdefault(wanted.key[0], (wanted, []))[1].append(answers[place])
            if number % STEP_ITEMS == 0:
                yield
        responses = [
            FetchableTopicResponse(topic=first.topic or "", topic_id=first.topic_id, partitions=found)
            for first, found in topics.values()
        ]
        return FetchResponse(error_code=error, session_id=session_id, responses=responses)

    def _tell_in_steps(self, messages: _Messages) -> Steps[None]:
        """Only before there is a session: another fetch of that must not find half of them told."""
        yield from ()


class _FullContext(FetchContext):
    """All partitions are named and answered, and remembered for later fetches. Creates its session with the answer."""

    __slots__ = ("_sessions", "_version")

    def __init__(self, partitions: Sequence[WantedPartition], sessions: FetchSessions, version: int) -> None:
        super().__init__(partitions)
        self._sessions = sessions
        self._version = version

    def _tell_in_steps(self, messages: _Messages) -> Steps[None]:
        yield from messages.tell_in_steps()

    def outcome(self, answers: Answers) -> SessionOutcome:
        # Before the session is created from them: the first incremental fetch gets only what moved since this answer.
        answers.told()
        session = self._sessions.create(self.partitions, uses_topic_ids=self._version >= TOPIC_IDS_FROM)
        return SessionOutcome(ErrorCode.NONE, NO_SESSION if session is None else session.session_id, None)


class _IncrementalContext(FetchContext):
    """The partitions of a session, answered with what changed."""

    __slots__ = ("_expected_epoch", "_session")

    def __init__(self, session: _FetchSession) -> None:
        super().__init__(list(session.partitions.values()))
        self._session = session
        self._expected_epoch = session.epoch

    def outcome(self, answers: Answers) -> SessionOutcome:
        session = self._session
        if session.epoch != self._expected_epoch:
            # The client fetched again before this answer: what it was sent is no longer known, so it starts over.
            return SessionOutcome(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id, [])
        # `told` also remembers partitions that are left out: one that did not move costs no bytes, and one that did is
        # sent exactly once. Assumes that the answer reaches the client; if not, the epoch shows it.
        news = answers.told()
        for place in news:
            if answers.has_records(place):
                # To the end of the order: if a fetch is full before it gets to the others, the next begins with them.
                key = self.partitions[place].key
                session.partitions[key] = session.partitions.pop(key)
        return SessionOutcome(ErrorCode.NONE, session.session_id, news)


class _FetchSession:
    """The partitions that one client fetches, and the epoch that its next fetch has to have. Owned by FetchSessions.

    `partitions` are in the order in which they are read: one that returned records goes to the end.
    """

    __slots__ = ("created_ms", "epoch", "last_used_ms", "partitions", "session_id", "uses_topic_ids")

    def __init__(
        self, session_id: int, partitions: dict[Key, WantedPartition], now_ms: float, *, uses_topic_ids: bool
    ) -> None:
        self.session_id = session_id
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_ms = now_ms
        self.last_used_ms = now_ms


class FetchSessions:
    """The sessions of a broker, at most `slots_max`. Owned by the event loop.

    A session is identified by its id alone, a random number, as in Kafka: it outlives its connection, and nothing else
    ties it to a client. One that was not used for two minutes gives its slot to a new one; one that is older than that
    gives it to one with more partitions, which saves more. Without a slot, the answer has session id 0 and the client
    goes on with full fetches: only the saving is lost.
    """

    def __init__(
        self, slots_max: int, clock: Clock, partitions_max: int = FETCH_SESSION_PARTITIONS_MAX, seed: int | None = None
    ) -> None:
        self._slots_max = slots_max
        self._partitions_max = partitions_max
        self._clock = clock
        self._random = random.Random(seed)
        self._sessions: dict[int, _FetchSession] = {}
        """By id; the least recently used one is first."""
        self.partition_count = 0
        self.evicted_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(self, request: FetchRequest, version: int) -> FetchContext:
        """The context of a fetch. A session that it names moves to the next epoch, whatever happens to the fetch."""
        return whole(self.resolve_in_steps(request, version))

    def resolve_in_steps(self, request: FetchRequest, version: int) -> Steps[FetchContext]:
        wanted: dict[Key, WantedPartition] = {}
        forgotten: list[Key] = []
        looked_at = 0
        for topic in request.topics:
            for asked in (*topic.partitions, None):
                looked_at += 1
                if looked_at % STEP_ITEMS == 0:
                    yield
                if asked is not None:
                    one = _wanted(topic, version, asked)
                    wanted[one.key] = one  # as in `_once_each`
        for gone in request.forgotten_topics_data:
            for number in (*gone.partitions, None):
                looked_at += 1
                if looked_at % STEP_ITEMS == 0:
                    yield
                if number is not None:
                    forgotten.append((_named(gone, version), number))
        yield
        named = list(wanted.values())
        return self.resolve_wanted(
            request.session_id, request.session_epoch, named, forgotten, version, are_distinct=True
        )

    def resolve_wanted(
        self,
        session_id: int,
        epoch: int,
        wanted: list[WantedPartition],
        forgotten: Sequence[Key],
        version: int,
        *,
        are_distinct: bool = False,
    ) -> FetchContext:
        """As `resolve`, of what a request names; in it, a partition may be named twice, unless `are_distinct`."""
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            # Both end the named session, if any: the client starts over, or does without one from now on.
            self._remove(session_id)
            wanted = wanted if are_distinct else _once_each(wanted)
            return FetchContext(wanted) if epoch == FINAL_EPOCH else _FullContext(wanted, self, version)
        session = self._sessions.get(session_id)
        if session is None:
            return FetchContext(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            # A fetch was lost, or came twice. The session stays as it is: if a late copy of an old request moved it,
            # the up-to-date client would be thrown out. A client that gets this error starts over with epoch 0.
            return FetchContext(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= TOPIC_IDS_FROM):
            return FetchContext(error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._update(session, wanted, forgotten)
        if not session.partitions:
            self._remove(session.session_id)
            return FetchContext()
        if self.partition_count > self._partitions_max:
            # It grew beyond the limit by what it added: sessions are limited by their partitions, not only by their
            # number. This one is removed, whichever used the rest; the client's full fetch may find room or not.
            self._remove(session.session_id)
            return FetchContext(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._touch(session)
        # Now, not with the answer: a client that stops waiting and asks again with the old epoch gets an error, instead
        # of an answer without what only the lost one had.
        session.epoch = next_epoch(session.epoch)
        return _IncrementalContext(session)

    def create(self, wanted: Sequence[WantedPartition], *, uses_topic_ids: bool) -> _FetchSession | None:
        """Store these as a new session; None if there is no room, or nothing to store."""
        if not wanted or not self._make_room(len(wanted)):
            return None
        # Random, since it is all that ties a session to its client: ids of others cannot be guessed by counting.
        session_id = self._random.randint(1, EPOCH_MAX)
        while session_id in self._sessions:
            session_id = self._random.randint(1, EPOCH_MAX)
        partitions = {one.key: one for one in wanted}
        session = _FetchSession(session_id, partitions, self._clock.monotonic_ms(), uses_topic_ids=uses_topic_ids)
        self._sessions[session_id] = session
        self.partition_count += len(wanted)
        return session

    def _update(self, session: _FetchSession, wanted: Sequence[WantedPartition], forgotten: Sequence[Key]) -> None:
        partitions = session.partitions
        before = len(partitions)
        for one in wanted:
            known = partitions.get(one.key)
            if known is None:
                partitions[one.key] = one
            else:
                known.ask_as(one)
        for key in forgotten:
            partitions.pop(key, None)
        self.partition_count += len(partitions) - before

    def _touch(self, session: _FetchSession) -> None:
        session.last_used_ms = self._clock.monotonic_ms()
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)

    def _make_room(self, size: int) -> bool:
        """Whether a session of that many partitions may be added; evicts others for it as far as allowed."""
        if size > self._partitions_max:
            return False
        while (is_full := len(self._sessions) >= self._slots_max) or self.partition_count + size > self._partitions_max:
            victim = self._idle() or (self._smaller_than(size) if is_full else None)
            if victim is None:
                return False
            self._remove(victim.session_id)
            self.evicted_count += 1
        return True

    def _idle(self) -> _FetchSession | None:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or self._clock.monotonic_ms() - oldest.last_used_ms <= FETCH_SESSION_EVICTION_MS:
            return None
        return oldest

    def _smaller_than(self, size: int) -> _FetchSession | None:
        """The smallest session that had its slot for a while: two clients must not evict each other in turn."""
        # Kafka's rule (KIP-227): a session saves more the more partitions it has, so the larger one wins. Kafka prefers
        # followers to consumers; here are no followers.
        settled = (
            session
            for session in self._sessions.values()
            if session.last_used_ms - session.created_ms > FETCH_SESSION_EVICTION_MS and len(session.partitions) < size
        )
        return min(settled, key=lambda session: len(session.partitions), default=None)


def next_epoch(epoch: int) -> int:
    """The next epoch. 0 and below have other meanings, so it starts again at 1.

    >>> next_epoch(1), next_epoch(2**31 - 1)
    (2, 1)
    """
    return 1 if epoch >= EPOCH_MAX else epoch + 1


def _named(topic: FetchTopic | ForgottenTopic, version: int) -> str | bytes:
    return topic.topic if version < TOPIC_IDS_FROM else topic.topic_id


def _wanted(topic: FetchTopic, version: int, asked: FetchPartition) -> WantedPartition:
    # By id the name is not known; by name the id is not used.
    return WantedPartition(topic.topic if version < TOPIC_IDS_FROM else None, topic.topic_id, asked)


def _once_each(wanted: list[WantedPartition]) -> list[WantedPartition]:
    """Every partition once, in the order of the request; if one is named twice, the last counts."""
    if len(wanted) < 2:
        return wanted
    by_key = {one.key: one for one in wanted}
    return wanted if len(by_key) == len(wanted) else list(by_key.values())


def whole(steps: Steps[Result]) -> Result:
    """The result of all steps, in one go."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: Result = done.value
            return result
