"""A client with a fetch session sees what it would see without one; a broker remembers no more than it has room for.

The rules of KIP-227 one by one, and then a model: a client that follows the KIP fetches from partitions that grow, are
trimmed, disappear and come back; answers get lost, sessions are evicted, the broker restarts. After every fetch that
succeeds, what the client was told equals what a full fetch would tell it. No sockets: requests and answers are objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from foldlog.limits import FETCH_SESSION_EVICTION_MS
from foldlog.server.fetches.sessions import EPOCH_MAX, FetchContext, FetchSessions, WantedPartition, next_epoch
from foldlog.testing.sim_clock import SimClock
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

BY_NAME = 12
BY_ID = 16


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def asked(places: Iterable[tuple[str, int]], offset: int = 0) -> list[FetchTopic]:
    return [
        FetchTopic(
            topic=name,
            topic_id=topic_id(name),
            partitions=[FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1000)],
        )
        for name, number in places
    ]


def forgotten(places: Iterable[tuple[str, int]]) -> list[ForgottenTopic]:
    return [ForgottenTopic(topic=name, topic_id=topic_id(name), partitions=[number]) for name, number in places]


def told(context: FetchContext, records: dict[int, bytes] | None = None, high_watermark: int = 7) -> FetchResponse:
    """Answer everything that is wanted: the same offsets everywhere, and records for some partitions."""
    return context.response(
        [
            PartitionData(
                partition_index=wanted.partition,
                high_watermark=high_watermark,
                log_start_offset=0,
                records=(records or {}).get(wanted.partition, b""),
            )
            for wanted in context.partitions
        ]
    )


def answered(response: FetchResponse) -> list[tuple[str, int]]:
    return [(topic.topic, one.partition_index) for topic in response.responses for one in topic.partitions]


class Client:
    """Sends fetches of one session, by the letter; a test says what is in them."""

    def __init__(self, sessions: FetchSessions, version: int = BY_NAME) -> None:
        self.sessions = sessions
        self.version = version
        self.session_id = 0
        self.epoch = 0

    def resolve(
        self, places: Iterable[tuple[str, int]] = (), gone: Iterable[tuple[str, int]] = (), offset: int = 0
    ) -> FetchContext:
        request = FetchRequest(
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=asked(places, offset),
            forgotten_topics_data=forgotten(gone),
        )
        return self.sessions.resolve(request, self.version)

    def open(self, places: Iterable[tuple[str, int]]) -> FetchResponse:
        response = told(self.resolve(places))
        self.session_id, self.epoch = response.session_id, 1
        return response

    def next(self, places: Iterable[tuple[str, int]] = (), gone: Iterable[tuple[str, int]] = ()) -> FetchContext:
        context = self.resolve(places, gone)
        self.epoch = next_epoch(self.epoch)
        return context


THREE = [("a", 0), ("a", 1), ("b", 2)]


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def sessions(clock: SimClock) -> FetchSessions:
    return FetchSessions(slots_max=3, clock=clock, seed=1)


def test_a_fetch_on_its_own_answers_everything_and_leaves_nothing_behind(sessions: FetchSessions) -> None:
    context = sessions.resolve(FetchRequest(session_epoch=-1, topics=asked(THREE, offset=5)), 4)
    assert [(one.topic, one.partition, one.fetch_offset, one.max_bytes) for one in context.partitions] == [
        ("a", 0, 5, 1000),
        ("a", 1, 5, 1000),
        ("b", 2, 5, 1000),
    ]
    response = told(context)
    assert (response.error_code, response.session_id) == (0, 0)
    assert answered(response) == THREE
    assert len(sessions) == 0


def test_partitions_of_a_topic_are_answered_together(sessions: FetchSessions) -> None:
    response = told(sessions.resolve(FetchRequest(topics=asked([("a", 0), ("b", 0), ("a", 1)])), BY_NAME))
    assert [(topic.topic, len(topic.partitions)) for topic in response.responses] == [("a", 2), ("b", 1)]


def test_a_partition_named_twice_is_fetched_once_at_the_last_offset(sessions: FetchSessions) -> None:
    topics = [*asked([("a", 0)], offset=1), *asked([("a", 0)], offset=2)]
    (wanted,) = sessions.resolve(FetchRequest(topics=topics), BY_NAME).partitions
    assert wanted.fetch_offset == 2


def test_a_session_answers_only_what_changed(sessions: FetchSessions) -> None:
    client = Client(sessions)
    assert answered(client.open(THREE)) == THREE
    assert client.session_id > 0
    assert answered(told(client.next())) == []
    assert answered(told(client.next(), records={1: b"new"})) == [("a", 1)]
    assert sorted(answered(told(client.next(), high_watermark=8))) == THREE
    assert answered(told(client.next(), high_watermark=8)) == []


def test_a_log_start_that_moved_is_news_and_so_is_a_diverging_epoch(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.open([("a", 0)])
    trimmed = PartitionData(high_watermark=7, log_start_offset=3)
    assert answered(client.next().response([trimmed])) == [("a", 0)]
    assert answered(client.next().response([trimmed])) == []
    diverged = PartitionData(high_watermark=7, log_start_offset=3, diverging_epoch=EpochEndOffset(epoch=1))
    assert answered(client.next().response([diverged])) == [("a", 0)]


def test_an_error_is_told_each_time_and_its_end_is_told_once(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.open([("a", 0)])
    broken = PartitionData(error_code=ErrorCode.KAFKA_STORAGE_ERROR, high_watermark=7, log_start_offset=0)
    fine = PartitionData(high_watermark=7, log_start_offset=0)
    assert answered(client.next().response([broken])) == [("a", 0)]
    assert answered(client.next().response([broken])) == [("a", 0)]
    assert answered(client.next().response([fine])) == [("a", 0)]
    assert answered(client.next().response([fine])) == []


def test_partitions_are_added_moved_on_and_forgotten(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.open(THREE)
    context = client.resolve([("b", 2), ("c", 0)], gone=[("a", 0), ("never", 9)], offset=40)
    client.epoch += 1
    assert [(one.topic, one.partition, one.fetch_offset) for one in context.partitions] == [
        ("a", 1, 0),
        ("b", 2, 40),
        ("c", 0, 40),
    ]
    assert answered(told(context)) == [("c", 0)], "the new one was never told"
    assert sessions.partition_count == 3


def test_a_session_that_wants_nothing_any_more_ends(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.open(THREE)
    response = told(client.next(gone=THREE))
    assert (response.error_code, response.session_id, answered(response)) == (0, 0, [])
    assert (len(sessions), sessions.partition_count) == (0, 0)


def test_a_final_fetch_closes_the_session_it_names(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.open(THREE)
    client.epoch = -1
    assert answered(told(client.resolve([("a", 1)]))) == [("a", 1)]
    client.epoch = 1
    assert client.resolve().error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partition_count == 0


def test_a_new_full_fetch_replaces_the_session_it_names(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.open(THREE)
    old, client.epoch = client.session_id, 0
    client.open([("z", 0)])
    assert client.session_id not in (0, old)
    assert (len(sessions), sessions.partition_count) == (1, 1)


@pytest.mark.parametrize("epoch", [2, 3, EPOCH_MAX, -2])
def test_another_epoch_than_the_next_is_refused_and_changes_nothing(sessions: FetchSessions, epoch: int) -> None:
    client = Client(sessions)
    client.open(THREE)
    client.epoch = epoch
    response = told(client.resolve(gone=THREE))
    assert (response.error_code, response.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    client.epoch = 1
    assert len(client.next().partitions) == 3


def test_an_unknown_session_is_refused(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.session_id, client.epoch = 12345, 1
    response = told(client.resolve(THREE))
    assert (response.error_code, response.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    client.session_id = 0
    assert client.resolve(THREE).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(("first", "then"), [(BY_NAME, BY_ID), (BY_ID, BY_NAME)])
def test_a_session_does_not_change_between_names_and_ids(sessions: FetchSessions, first: int, then: int) -> None:
    client = Client(sessions, first)
    client.open(THREE)
    client.version = then
    assert client.resolve(THREE).error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    client.version = first
    assert client.resolve().error == ErrorCode.NONE


def test_topics_named_by_id_keep_it_and_have_no_name(sessions: FetchSessions) -> None:
    client = Client(sessions, BY_ID)
    response = client.open(THREE)
    assert [topic.topic_id for topic in response.responses] == [topic_id("a"), topic_id("b")]
    context = client.next(gone=[("b", 2)])
    assert [(one.topic, one.topic_id, one.partition) for one in context.partitions] == [
        (None, topic_id("a"), 0),
        (None, topic_id("a"), 1),
    ]


def test_an_answer_that_the_client_did_not_wait_for_is_an_error(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.open(THREE)
    slow, fast = client.next(), client.next(gone=[("a", 0)])
    response = told(slow, records={0: b"never seen"})
    assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (response.session_id, answered(response)) == (client.session_id, [])
    assert answered(told(fast, records={1: b"seen"})) == [("a", 1)]


def test_epochs_start_again_at_one(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.open(THREE)
    (session,) = sessions._sessions.values()
    session.epoch = client.epoch = EPOCH_MAX
    told(client.next())
    assert client.epoch == 1
    assert client.next().error == ErrorCode.NONE


def test_a_partition_that_got_records_goes_to_the_end_of_the_line(sessions: FetchSessions) -> None:
    """A fetch that has room for one partition's records serves all of them in turn."""
    client = Client(sessions)
    client.open(THREE)
    served = []
    for _ in range(6):
        context = client.next()
        first = context.partitions[0].partition
        told(context, records={first: b"all that fits"})
        served.append(first)
    assert served == [0, 1, 2, 0, 1, 2]


def test_without_a_free_slot_a_fetch_is_answered_in_full_and_without_a_session(
    sessions: FetchSessions, clock: SimClock
) -> None:
    clients = [Client(sessions) for _ in range(3)]
    for client in clients:
        client.open(THREE)
    late = Client(sessions)
    response = late.open([*THREE, ("c", 0)])
    assert (response.session_id, len(answered(response))) == (0, 4)
    clock.advance(FETCH_SESSION_EVICTION_MS)
    assert Client(sessions).open([*THREE, ("c", 0)]).session_id == 0, "not a moment too early"
    assert sessions.evicted_count == 0


def test_the_session_that_was_not_used_for_longest_gives_its_slot(sessions: FetchSessions, clock: SimClock) -> None:
    clients = [Client(sessions) for _ in range(3)]
    for client in clients:
        client.open(THREE)
    clock.advance(FETCH_SESSION_EVICTION_MS // 2)
    told(clients[0].next())
    clock.advance(FETCH_SESSION_EVICTION_MS // 2 + 1)
    assert Client(sessions).open([("a", 0)]).session_id > 0
    assert [client.resolve().error for client in clients] == [
        ErrorCode.NONE,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.NONE,
    ]


def test_a_settled_session_gives_its_slot_only_to_a_larger_one(sessions: FetchSessions, clock: SimClock) -> None:
    sizes = [5, 2, 3]
    clients = [Client(sessions) for _ in sizes]
    for client, size in zip(clients, sizes, strict=True):
        client.open([("t", number) for number in range(size)])
    clock.advance(FETCH_SESSION_EVICTION_MS + 1)
    for client in clients:
        told(client.next())
    assert Client(sessions).open([("u", 0), ("u", 1)]).session_id == 0, "no larger than the smallest"
    assert Client(sessions).open([("u", 0), ("u", 1), ("u", 2)]).session_id > 0
    assert [client.resolve().error for client in clients] == [
        ErrorCode.NONE,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.NONE,
    ]


def test_no_more_partitions_are_remembered_than_there_is_room_for(clock: SimClock) -> None:
    sessions = FetchSessions(slots_max=10, clock=clock, partitions_max=5)
    first, second = Client(sessions), Client(sessions)
    first.open(THREE)
    assert second.open(THREE).session_id == 0
    assert Client(sessions).open([("x", number) for number in range(6)]).session_id == 0, "never fits"
    assert len(sessions) == 1
    assert first.next([("x", number) for number in range(3)]).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partition_count == 0
    first.open(THREE)
    clock.advance(FETCH_SESSION_EVICTION_MS + 1)
    assert second.resolve().error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    second.session_id = second.epoch = 0
    assert second.open(THREE).session_id > 0, "the idle one made room"


def test_zero_slots_switch_sessions_off(clock: SimClock) -> None:
    assert Client(FetchSessions(slots_max=0, clock=clock)).open(THREE).session_id == 0


# The model.


@dataclass
class Stored:
    """A partition of the broker: which offsets there are. `exists` is False while its topic is not."""

    start: int = 0
    end: int = 0
    exists: bool = True

    def read(self, wanted: WantedPartition, room: int) -> PartitionData:
        """What a fetch is answered; a record is a byte, so that counting them is enough."""
        index = wanted.partition
        if not self.exists:
            return PartitionData(
                partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, high_watermark=-1
            )
        found = PartitionData(partition_index=index, high_watermark=self.end, log_start_offset=self.start)
        if not self.start <= wanted.fetch_offset <= self.end:
            found.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            found.records = b"." * min(self.end - wanted.fetch_offset, wanted.max_bytes, room)
        return found


Place = tuple[str, int]
PLACES: list[Place] = [(name, number) for name in ("a", "b") for number in range(2)]
SOME = st.sets(st.sampled_from(PLACES), min_size=1)


@dataclass
class Seen:
    """What a client knows of a partition: where it reads next, and what it was last told."""

    offset: int
    told: tuple[int, int, int] | None = None
    sent_offset: int | None = None


@dataclass
class KipClient:
    """A consumer's side of KIP-227: sends what changed since its last request, and starts over after an error."""

    version: int
    session_id: int = 0
    epoch: int = 0
    seen: dict[Place, Seen] = field(default_factory=dict)
    in_session: set[Place] = field(default_factory=set)

    def request(self) -> FetchRequest:
        if self.epoch == 0:
            for one in self.seen.values():
                one.sent_offset = None
            self.in_session = set()
        changed = [place for place, one in self.seen.items() if one.sent_offset != one.offset]
        gone = sorted(self.in_session - set(self.seen))
        topics = [topic for place in changed for topic in asked([place], self.seen[place].offset)]
        for place in changed:
            self.seen[place].sent_offset = self.seen[place].offset
        self.in_session = set(self.seen)
        return FetchRequest(
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=topics,
            forgotten_topics_data=forgotten(gone),
        )

    def take(self, response: FetchResponse) -> bool:
        """Whether the fetch succeeded."""
        if response.error_code != ErrorCode.NONE:
            # Kafka's clients keep the id of a session that may still exist, so that the full fetch closes it.
            is_known = response.error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            self.session_id, self.epoch = self.session_id if is_known else 0, 0
            return False
        for topic in response.responses:
            name = topic.topic or topic.topic_id.rstrip(b"\0").decode()
            for one in topic.partitions:
                seen = self.seen[name, one.partition_index]
                seen.told = (one.error_code, one.high_watermark, one.log_start_offset)
                if one.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    seen.offset = one.log_start_offset
                else:
                    seen.offset += len(one.records or b"")
        self.session_id = response.session_id
        self.epoch = 0 if response.session_id == 0 else next_epoch(self.epoch)
        return True


class SessionsAgreeWithFullFetches(RuleBasedStateMachine):
    """Two clients share a broker with two slots; the first is the one that is watched."""

    @initialize(
        by_id=st.booleans(),
        slots=st.sampled_from([2, 1, 0]),
        partitions_max=st.sampled_from([100, 5]),
        first=SOME,
    )
    def start(self, by_id: bool, slots: int, partitions_max: int, first: set[Place]) -> None:
        self.clock = SimClock()
        self.slots, self.partitions_max = slots, partitions_max
        self.stored = {place: Stored() for place in PLACES}
        self.client = KipClient(BY_ID if by_id else BY_NAME)
        self.client.seen = {place: Seen(0) for place in sorted(first)}
        self.other = KipClient(BY_NAME)
        self.other.seen = {place: Seen(0) for place in PLACES}
        self.restart()

    def restart(self) -> None:
        self.sessions = FetchSessions(self.slots, self.clock, self.partitions_max)

    @rule(places=SOME, count=st.integers(1, 5))
    def append(self, places: set[Place], count: int) -> None:
        for place in places:
            self.stored[place].end += count

    @rule(places=SOME, kept=st.integers(0, 2))
    def trim(self, places: set[Place], kept: int) -> None:
        for place in places:
            one = self.stored[place]
            one.start = max(one.start, one.end - kept)

    @rule(place=st.sampled_from(PLACES))
    def delete_or_create(self, place: Place) -> None:
        self.stored[place].exists = not self.stored[place].exists

    @rule(place=st.sampled_from(PLACES))
    def subscribe_or_forget(self, place: Place) -> None:
        forgot = self.client.seen.pop(place, None) is not None
        # A session that has not heard that it was forgotten goes on telling what is new, not what was told before.
        if not forgot and place not in self.client.in_session:
            self.client.seen[place] = Seen(offset=self.stored[place].start)

    @rule(milliseconds=st.sampled_from([1000, FETCH_SESSION_EVICTION_MS + 1]), restarts=st.sampled_from([False, True]))
    def wait(self, milliseconds: int, restarts: bool) -> None:
        self.clock.advance(milliseconds)
        if restarts:
            self.restart()

    @rule(room=st.sampled_from([100, 3, 1, 0]))
    def fetch(self, room: int) -> None:
        if not self.client.take(self.answer(self.client, room)):
            # The KIP allows one error; the full fetch that follows it cannot fail.
            assert self.client.take(self.answer(self.client, room))
        self.check_that_the_client_knows_everything()

    @rule(room=st.sampled_from([100, 3, 1, 0]))
    def fetch_whose_answer_is_lost(self, room: int) -> None:
        self.answer(self.client, room)

    @rule()
    def the_other_client_fetches(self) -> None:
        self.other.take(self.answer(self.other, room=1))

    def answer(self, client: KipClient, room: int) -> FetchResponse:
        context = self.sessions.resolve(client.request(), client.version)
        answers = []
        for wanted in context.partitions:
            name = wanted.topic or wanted.topic_id.rstrip(b"\0").decode()
            found = self.stored[name, wanted.partition].read(wanted, room)
            room -= len(found.records or b"")
            answers.append(found)
        return context.response(answers)

    def check_that_the_client_knows_everything(self) -> None:
        for (name, number), seen in self.client.seen.items():
            wanted = FetchPartition(partition=number, fetch_offset=seen.sent_offset or 0)
            full = self.stored[name, number].read(WantedPartition(name, b"", wanted), room=0)
            assert seen.told == (full.error_code, full.high_watermark, full.log_start_offset)

    @invariant()
    def no_more_is_kept_than_allowed(self) -> None:
        if not hasattr(self, "sessions"):
            return
        kept = list(self.sessions._sessions.values())
        assert len(kept) <= self.slots
        assert sum(len(session.partitions) for session in kept) == self.sessions.partition_count <= self.partitions_max

    def teardown(self) -> None:
        """Everything that is left can be read, in a bounded number of fetches, one record at a time."""
        if not hasattr(self, "sessions"):
            return
        left = sum(one.end - one.start for one in self.stored.values()) + len(PLACES)
        for _ in range(left):
            self.fetch(room=1)
        for place, seen in self.client.seen.items():
            if self.stored[place].exists:
                assert seen.offset == self.stored[place].end


TestSessionsAgreeWithFullFetches = SessionsAgreeWithFullFetches.TestCase
TestSessionsAgreeWithFullFetches.settings = settings(max_examples=3 * settings().max_examples, stateful_step_count=40)
