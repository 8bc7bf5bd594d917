"""Batches on their way, against a log that refuses what is out of order: no connection, no thread.

The log of the test keeps Kafka's rule: in an epoch the next batch carries the next number, a newer epoch begins at 0,
and a batch that it has is known by its numbers. Batches are settled in the order they were sent, some of them refused,
and connections are lost at any moment. In the end every batch that was not refused for itself is there, once, in order.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.client.wire.batches import (
    EPOCH_MAX,
    Lane,
    Numbering,
    Outbox,
    OutgoingBatch,
    SentRequest,
    produce_request,
    tell,
)
from foldlog.errors import FoldlogError, InvalidBatch, MalformedBytes, OutOfOrderSequence, WriterUnreachable
from foldlog.limits import PRODUCE_IN_FLIGHT_MAX, PRODUCE_REQUEST_BYTES
from foldlog.log.partition import Appended
from foldlog.records.batch import MAX_INT32, NO_PRODUCER_ID
from foldlog.records.loops import pack, walk
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import encode_response
from foldlog.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

PASSING = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER})


class OrderedLog:
    """One partition, which answers as a broker would. It remembers more repetitions than it has to."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self._known: dict[tuple[int, int, int], int] = {}
        self._expected: dict[int, tuple[int, int]] = {}

    def append(self, batch: OutgoingBatch, *, is_refused: bool = False) -> ErrorCode:
        header = walk(batch.data).headers[0]
        numbers = (header.producer_id, header.producer_epoch, header.base_sequence)
        if is_refused:
            return ErrorCode.INVALID_RECORD
        if numbers[0] != NO_PRODUCER_ID:
            if numbers in self._known:
                return ErrorCode.NONE
            producer_id, epoch, sequence = numbers
            known = self._expected.get(producer_id)
            if known is not None:
                expected = known[1] if epoch == known[0] else 0
                if epoch < known[0] or sequence != expected:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self._expected[producer_id] = (epoch, (sequence + header.record_count) & MAX_INT32)
            self._known[numbers] = len(self.kept)
        self.kept.append(value_of(batch))
        return ErrorCode.NONE


class Told:
    """What became of each batch, by its value."""

    def __init__(self) -> None:
        self.appended: list[bytes] = []
        self.errors: dict[bytes, FoldlogError] = {}

    def done(self, value: bytes) -> Callable[[Appended | None, FoldlogError | None], None]:
        def settled(appended: Appended | None, error: FoldlogError | None) -> None:
            assert value not in self.appended
            assert value not in self.errors
            if error is None:
                self.appended.append(value)
            else:
                self.errors[value] = error

        return settled

    @property
    def count(self) -> int:
        return len(self.appended) + len(self.errors)


def lane_of(number: int = 0, *, renumbers: bool = True, epoch: int = 0, first: int = 0) -> Lane:
    return Lane("orders", number, Numbering(100 + number, epoch, first), renumbers=renumbers, topic_id=bytes(16))


def batch_of(count: int, value: bytes = b"x") -> bytearray:
    return bytearray(pack([(1000, None, value, ())] * count))


def value_of(batch: OutgoingBatch) -> bytes:
    return bytes(batch.data[-9:-1])  # of its last record, which has no headers


def ignore(appended: Appended | None, error: FoldlogError | None) -> None:
    pass


def outgoing(lane: Lane, count: int = 1) -> OutgoingBatch:
    return OutgoingBatch(lane, batch_of(count), ignore)


def answers(sent: SentRequest, codes: list[ErrorCode]) -> list[PartitionProduceResponse]:
    return [
        PartitionProduceResponse(index=batch.lane.label[1], error_code=code, base_offset=0 if not code else -1)
        for batch, code in zip(sent.batches, codes, strict=True)
    ]


@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=30),
    refused=st.sets(st.integers(0, 29)),
    first_epoch=st.sampled_from([0, EPOCH_MAX - 1]),
    first_sequence=st.sampled_from([0, MAX_INT32 - 3]),
    sends=st.lists(st.integers(1, PRODUCE_IN_FLIGHT_MAX), min_size=1),
)
def test_refused_batches_leave_the_others_in_order(
    counts: list[int], refused: set[int], first_epoch: int, first_sequence: int, sends: list[int]
) -> None:
    outbox, log, told = Outbox(PASSING), OrderedLog(), Told()
    lane = lane_of(epoch=first_epoch, first=first_sequence)
    values = [b"%08d" % number for number in range(len(counts))]
    for count, value in zip(counts, values, strict=True):
        outbox.add(OutgoingBatch(lane, batch_of(count, value), told.done(value)))
    under_way: list[tuple[SentRequest, ErrorCode]] = []
    turn = 0
    while told.count < len(counts):
        while len(under_way) < sends[turn % len(sends)] and (batches := outbox.gather()):
            sent = SentRequest(batches, 13, turn)
            sent.stamped(1000)
            (batch,) = batches
            under_way.append((sent, log.append(batch, is_refused=values.index(value_of(batch)) in refused)))
        turn += 1
        sent, code = under_way.pop(0)
        outcomes, passing = outbox.settle(sent, answers(sent, [code]))
        assert passing is None
        tell(outcomes)
    assert log.kept == told.appended == [value for number, value in enumerate(values) if number not in refused]
    assert not outbox.is_busy


@given(data=st.data(), renumbers=st.booleans(), partitions=st.integers(1, 3))
def test_lost_connections_and_passing_refusals_leave_every_batch_once_and_in_order(
    data: st.DataObject, renumbers: bool, partitions: int
) -> None:
    outbox, told = Outbox(PASSING), Told()
    lanes = [lane_of(number, renumbers=renumbers) for number in range(partitions)]
    logs = [OrderedLog() for _ in lanes]
    counts = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=12))
    values = [b"%08d" % number for number in range(len(counts))]
    for number, (count, value) in enumerate(zip(counts, values, strict=True)):
        outbox.add(OutgoingBatch(lanes[number % partitions], batch_of(count, value), told.done(value)))
    under_way: list[tuple[SentRequest, list[ErrorCode]]] = []
    mishaps = data.draw(st.lists(st.sampled_from(["cut", "cut after", "passes", "answer"]), max_size=20))
    while outbox.is_busy:
        if batches := outbox.gather():
            assert len({batch.lane for batch in batches}) == len(batches), "one of each partition"
            sent = SentRequest(batches, 13, len(under_way))
            sent.stamped(1000)
            if mishaps and (mishap := mishaps.pop()) != "answer":
                if mishap == "cut after":
                    for batch in batches:
                        logs[batch.lane.label[1]].append(batch)
                elif mishap == "passes":
                    codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * len(batches)
                    outcomes, passing = outbox.settle(sent, answers(sent, codes))
                    assert not outcomes
                    assert passing is not None
                under_way.clear()
                outbox.put_back()
                continue
            under_way.append((sent, [logs[batch.lane.label[1]].append(batch) for batch in batches]))
            continue
        sent, codes = under_way.pop(0)
        tell(outbox.settle(sent, answers(sent, codes))[0])
    assert not told.errors
    for number, log in enumerate(logs):
        assert log.kept == values[number::partitions]


def test_an_id_whose_epochs_are_used_up_is_given_away() -> None:
    outbox, lane = Outbox(PASSING), lane_of(epoch=EPOCH_MAX)
    outbox.add(outgoing(lane))
    (refused,) = outbox.gather()
    assert refused.numbers == (100, EPOCH_MAX, 0)
    outbox.refused(refused, InvalidBatch("refused for itself", 0))
    assert (lane.numbering.producer_id, lane.numbering.epoch) == (NO_PRODUCER_ID, 0)


def test_no_more_are_on_their_way_than_the_log_can_tell_apart() -> None:
    outbox, lane = Outbox(PASSING), lane_of()
    for _ in range(8):
        outbox.add(outgoing(lane))
    sent = []
    while batches := outbox.gather():
        sent += batches
    assert len(sent) == PRODUCE_IN_FLIGHT_MAX
    outbox.accepted(sent[0], Appended(0, 1, -1, False))
    assert outbox.is_ready


def test_giving_up_tells_everybody_and_begins_a_new_epoch() -> None:
    outbox, lane, told = Outbox(PASSING), lane_of(), Told()
    for value in (b"00000001", b"00000002", b"00000003"):
        outbox.add(OutgoingBatch(lane, batch_of(1, value), told.done(value)))
    (sent,) = outbox.gather()
    assert sent.numbers is not None
    tell(outbox.give_up(WriterUnreachable("data", None, None, "it is gone")))
    assert len(told.errors) == 3
    assert not outbox.is_busy
    outbox.add(outgoing(lane))
    (after,) = outbox.gather()
    assert after.numbers == (sent.numbers[0], sent.numbers[1] + 1, 0)


@pytest.mark.parametrize("refused", [0, 1, 3])
def test_where_numbers_are_decided_nothing_follows_a_refusal(refused: int) -> None:
    outbox, lane, log, told = Outbox(PASSING), lane_of(renumbers=False), OrderedLog(), Told()
    values = [b"%08d" % number for number in range(8)]
    for value in values:
        outbox.add(OutgoingBatch(lane, batch_of(1, value), told.done(value)))
    under_way: list[tuple[SentRequest, ErrorCode]] = []
    while outbox.is_busy:
        while batches := outbox.gather():
            sent = SentRequest(batches, 13, 0)
            sent.stamped(1000)
            under_way.append((sent, log.append(batches[0], is_refused=value_of(batches[0]) == values[refused])))
        sent, code = under_way.pop(0)
        tell(outbox.settle(sent, answers(sent, [code]))[0])
    for sent, code in under_way:  # the answers that come after the refusal change nothing
        assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert outbox.settle(sent, answers(sent, [code])) == ([], None)
    assert log.kept == told.appended == values[:refused]
    assert len(set(told.errors.values())) == 1
    with pytest.raises(InvalidBatch):
        outbox.add(outgoing(lane))


def test_where_numbers_are_decided_the_first_batch_is_waited_for() -> None:
    outbox, lane = Outbox(PASSING), lane_of(renumbers=False)
    for _ in range(3):
        outbox.add(outgoing(lane))
    (first,) = outbox.gather()
    assert outbox.gather() == []
    outbox.accepted(first, Appended(0, 1, -1, False))
    assert len(outbox.gather() + outbox.gather()) == 2


def test_a_batch_that_was_sent_before_the_hole_was_known_keeps_its_numbers_over_a_lost_connection() -> None:
    """It may be in the log by now; only the log can tell, by its numbers."""
    outbox, lane = Outbox(PASSING), lane_of()
    for _ in range(3):
        outbox.add(outgoing(lane))
    first, second = outbox.gather() + outbox.gather()
    outbox.refused(first, InvalidBatch("refused for itself", 0))
    numbers = second.numbers
    outbox.put_back()
    assert outbox.gather() == [second]
    assert second.numbers == numbers
    assert outbox.gather() == [], "the third waits until its fate is known"
    outbox.accepted(second, Appended(0, 1, -1, False))
    (third,) = outbox.gather()
    assert third.numbers == (100, 1, 0)


def test_a_request_carries_one_batch_of_each_partition_up_to_its_size() -> None:
    outbox = Outbox(PASSING)
    lanes = [lane_of(number) for number in range(5)]
    large = b"x" * (PRODUCE_REQUEST_BYTES // 2 - 200)
    for lane in lanes:
        for _ in range(2):
            outbox.add(OutgoingBatch(lane, batch_of(1, large), ignore))
    assert [batch.lane for batch in outbox.gather()] == lanes[:2]
    assert [batch.lane for batch in outbox.gather()] == lanes[2:4]
    assert [batch.lane for batch in outbox.gather()] == [lanes[4], lanes[0]]
    assert [batch.lane for batch in outbox.gather(lambda lane: lane is lanes[3])] == [lanes[3]]


def test_an_answer_to_another_request_is_told_from_ours() -> None:
    outbox, lane = Outbox(PASSING), lane_of()
    outbox.add(outgoing(lane))
    sent = SentRequest(outbox.gather(), 9, 5)
    assert sent.stamped(1000) == produce_request(sent.addressed, 1000)
    told = PartitionProduceResponse(index=0, base_offset=7)
    response = ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=[told])])
    frame = b"".join(bytes(chunk) for chunk in encode_response(response, 9, 5))[4:]
    assert [one.base_offset for one in sent.results(memoryview(frame))] == [7]
    stray = SentRequest(sent.batches, 9, 6)
    with pytest.raises(MalformedBytes, match="another request"):
        stray.results(memoryview(frame))


def test_out_of_order_after_two_tries_is_told() -> None:
    """It may be in the log: nobody may send it under other numbers."""
    outbox, lane, told = Outbox(PASSING), lane_of(), Told()
    outbox.add(OutgoingBatch(lane, batch_of(1, b"00000001"), told.done(b"00000001")))
    (batch,) = outbox.gather()
    batch.stamp()
    outbox.put_back()
    assert outbox.gather() == [batch]
    batch.stamp()
    tell(outbox.refused(batch, OutOfOrderSequence("a batch is missing")))
    assert isinstance(told.errors[b"00000001"], OutOfOrderSequence)


def test_a_request_carries_batches_of_one_transactional_id_and_the_others_follow() -> None:
    outbox = Outbox(PASSING)
    ids = [None, "a", "b", "a", None, "b"]
    for number, transactional_id in enumerate(ids):
        lane = Lane("orders", number, Numbering(7, 0), renumbers=False, transactional_id=transactional_id)
        outbox.add(OutgoingBatch(lane, pack([(1, None, b"x", ())]), lambda appended, error: None))
    requests = []
    while batches := outbox.gather():
        request = SentRequest(batches, 12, 1).stamped(1000)
        numbers = [one.index for topic in request.topic_data for one in topic.partition_data]
        requests.append((request.transactional_id, numbers))
    assert requests == [(None, [0, 4]), ("a", [1, 3]), ("b", [2, 5])]
