"""Packed batches on their way to brokers: their numbers and their order, the requests that carry them, what the answers
say, and what follows from a refusal or a lost connection. Pure.

An Outbox has a Lane for each partition. A sender puts batches in, takes out what the next request carries, and hands in
the answers; it has the connections, the locks, and says how long to try. There are two, since who drives them and whom
they can ask differs. `wire.produce.ClusterProducer` is driven by its caller's thread, which waits; it follows leaders,
and tries again until delivery.timeout.ms is over. `backends.served.produce.ProduceLink` is used by any number of
threads, and one of its own hears the answers of the one writer; where nobody writes the directory, it appends itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final, NamedTuple

from foldlog.client.wire.refusals import Passing, topic_error
from foldlog.errors import FoldlogError, MalformedBytes, OutOfOrderSequence, UnknownTopic
from foldlog.limits import PRODUCE_IN_FLIGHT_MAX, PRODUCE_REQUEST_BYTES
from foldlog.log.partition import Appended, OnAppended
from foldlog.records.batch import MAX_INT32, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from foldlog.records.stamping import offset_span, stamp_producer
from foldlog.wire.error_codes import ErrorCode, known_code
from foldlog.wire.frames import decode_response, response_correlation_id
from foldlog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from foldlog.wire.schema import ZERO_UUID, Records

EPOCH_MAX: Final = (1 << 15) - 1

UNNUMBERED: Final = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
"""Producer id, epoch and base sequence of a batch that has none."""

_ACKS_ALL: Final = -1

_WRITTEN: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
"""Answers of a log that has the batch: a repetition of one that is there is what was wanted."""

Outcome = tuple[OnAppended, Appended | None, FoldlogError | None]
"""Whom to tell what, once no lock is held."""


class Numbering:
    """The numbers that the batches of one partition carry, in the order in which they are sent: a log that has a batch
    knows it by them when it comes again. Belongs to its sender."""

    __slots__ = ("epoch", "next_sequence", "producer_id")

    def __init__(self, producer_id: int = NO_PRODUCER_ID, epoch: int = 0, next_sequence: int = 0) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.next_sequence = next_sequence & MAX_INT32

    def take(self, offset_count: int) -> tuple[int, int, int]:
        """Producer id, epoch and base sequence of the next batch; UNNUMBERED without an id."""
        if self.producer_id == NO_PRODUCER_ID:
            return UNNUMBERED
        numbers = (self.producer_id, self.epoch, self.next_sequence)
        self.next_sequence = (self.next_sequence + offset_count) & MAX_INT32
        return numbers

    def begin_epoch(self) -> None:
        """Number from 0 on: the log accepts that from a newer epoch, whatever it has of the older one. Where there is
        no newer one the id is used up."""
        self.next_sequence = 0
        self.epoch += 1
        if self.epoch > EPOCH_MAX:
            self.epoch = 0
            self.producer_id = NO_PRODUCER_ID


class AddressedBatch(NamedTuple):
    """A batch, and the partition that it goes to."""

    topic: str
    topic_id: bytes
    partition: int
    data: bytearray


class OutgoingBatch:
    """One batch on its way, with whom to tell. Belongs to its lane once that has it."""

    __slots__ = ("data", "done", "lane", "numbers", "offset_count", "times_sent")

    def __init__(self, lane: Lane, data: bytearray, done: OnAppended) -> None:
        self.lane = lane
        self.data = data
        self.done = done
        self.offset_count = offset_span(data)
        self.numbers: tuple[int, int, int] | None = None  # from when it is first sent
        self.times_sent = 0  # with these numbers

    def stamp(self) -> None:
        """Put its numbers into it, before it is sent: the same each time, so that a repetition is known for one."""
        stamp_producer(self.data, *(self.numbers or UNNUMBERED))
        self.times_sent += 1

    @property
    def addressed(self) -> AddressedBatch:
        topic, number = self.lane.label
        return AddressedBatch(topic, self.lane.topic_id, number, self.data)


class Lane:
    """The batches on their way to one partition, in their order. Belongs to its sender.

    They are numbered when they are first sent. At most PRODUCE_IN_FLIGHT_MAX are unanswered: the log can tell a
    repetition among as many. After a lost connection those are sent again, before all others and with their numbers.

    A batch that is refused leaves a hole in the numbers, and those sent after it are refused for that alone. Where the
    lane `renumbers`, they get others in the next epoch and are sent again, and what comes after them goes on. Else the
    numbers are somebody's decision, and with the first refusal the lane is over: what it has and what comes later has
    that refusal. A log that does not know the producer yet takes any number for its first and would not miss a batch
    before it, so the first of such a lane is waited for before the second is sent.
    """

    def __init__(
        self,
        topic: str,
        number: int,
        numbering: Numbering,
        *,
        renumbers: bool,
        topic_id: bytes = ZERO_UUID,
        transactional_id: str | None = None,
    ) -> None:
        self.label = (topic, number)
        self.topic_id = topic_id  # of the topic that is meant: another of the same name has another
        self.transactional_id = transactional_id  # whose transaction the batches belong to
        self.numbering = numbering
        self.refusal: FoldlogError | None = None
        self.is_ready = False  # whether it stands in the queue of its outbox
        self._renumbers = renumbers
        self._is_known = renumbers  # whether the log knows the producer, where that matters
        self._waiting: deque[OutgoingBatch] = deque()
        self._sent: deque[OutgoingBatch] = deque()
        self._again: deque[OutgoingBatch] = deque()  # refused only for their numbers
        self._has_hole = False

    @property
    def is_empty(self) -> bool:
        return not (self._sent or self._waiting or self._again)

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def may_send(self) -> bool:
        waiting, sent = self._waiting, self._sent
        if not waiting or len(sent) >= PRODUCE_IN_FLIGHT_MAX:
            return False
        if self._has_hole:
            return waiting[0].numbers is not None  # sent before, and its fate is to be known first
        return self._is_known or not sent

    @property
    def next_bytes(self) -> int:
        return len(self._waiting[0].data)

    def add(self, batch: OutgoingBatch) -> None:
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)
        self._waiting.append(batch)

    def take(self) -> OutgoingBatch:
        """The batch that is sent next, numbered."""
        batch = self._waiting.popleft()
        if batch.numbers is None:
            batch.times_sent = 0
            batch.numbers = self.numbering.take(batch.offset_count)
        self._sent.append(batch)
        return batch

    def put_back(self) -> None:
        """What is unanswered is sent again."""
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()

    def accepted(self, batch: OutgoingBatch) -> None:
        """It is in the log."""
        self._sent.remove(batch)
        self._is_known = True
        self._close_hole()

    def refused(self, batch: OutgoingBatch, error: FoldlogError) -> list[OutgoingBatch]:
        """It is not in the log. Those that have failed with it; none if it is sent again."""
        if not self._renumbers:
            return self.give_up(error)
        self._sent.remove(batch)
        self._has_hole = True
        # Sent once and out of order: only one before it can be why.
        is_for_its_numbers = isinstance(error, OutOfOrderSequence) and batch.times_sent == 1
        if is_for_its_numbers:
            batch.numbers = None
            self._again.append(batch)
        self._close_hole()
        return [] if is_for_its_numbers else [batch]

    def give_up(self, error: FoldlogError) -> list[OutgoingBatch]:
        """Nobody knows what became of what is unanswered. All that it had."""
        failed = [*self._sent, *self._again, *self._waiting]
        for batches in (self._sent, self._again, self._waiting):
            batches.clear()
        if self._renumbers:
            self._begin_epoch()
        else:
            self.refusal = error
        return failed

    def _close_hole(self) -> None:
        if self._has_hole and not self._sent and not (self._waiting and self._waiting[0].numbers is not None):
            self._begin_epoch()

    def _begin_epoch(self) -> None:
        """What was refused for its numbers alone goes before what waits. Where the id is used up, whoever puts in the
        next batch brings another; what was put in before that goes without, since nobody may wait here."""
        self._has_hole = False
        self._waiting.extendleft(reversed(self._again))
        self._again.clear()
        self.numbering.begin_epoch()


class SentRequest:
    """A request whose answer is still to come, and the batches in it."""

    __slots__ = ("addressed", "batches", "correlation_id", "sent_s", "version")

    def __init__(self, batches: list[OutgoingBatch], version: int, correlation_id: int) -> None:
        self.batches = batches
        self.addressed = [batch.addressed for batch in batches]
        self.version = version
        self.correlation_id = correlation_id
        self.sent_s = 0.0  # for senders that look at it

    def stamped(self, timeout_ms: int) -> ProduceRequest:
        """What is sent, with the numbers in it."""
        for batch in self.batches:
            batch.stamp()
        return produce_request(self.addressed, timeout_ms, self.batches[0].lane.transactional_id)

    def results(self, frame: Records) -> list[PartitionProduceResponse]:
        """What the answer says of each of the batches."""
        if response_correlation_id(frame) != self.correlation_id:
            raise MalformedBytes("Produce response", "it answers another request", 0)
        return results_in(decode_response(ProduceResponse, self.version, frame)[1], self.addressed)


class Outbox:
    """What a sender has to send, to any number of partitions. Not for several threads at once: who has those locks it.

    `passing` are the codes after which the sender tries again, as after a lost connection.
    """

    def __init__(self, passing: Container[int]) -> None:
        self._passing = passing
        self._busy: dict[Lane, None] = {}  # those with a batch that is not settled
        self._ready: deque[Lane] = deque()  # those that may send one

    @property
    def is_busy(self) -> bool:
        """Whether there is a batch that is not settled."""
        return bool(self._busy)

    @property
    def is_ready(self) -> bool:
        """Whether there is a batch that may be sent."""
        return bool(self._ready)

    def add(self, batch: OutgoingBatch) -> None:
        """To be sent after all that were added for its partition before. Raises what its lane was refused with."""
        lane = batch.lane
        lane.add(batch)
        self._busy[lane] = None
        self._make_ready(lane)

    def next_lane(self) -> Lane | None:
        """A lane with a batch that is still to be sent: one that may be, before those that wait for an answer."""
        return self._ready[0] if self._ready else next((lane for lane in self._busy if lane.has_waiting), None)

    def gather(self, leads: Callable[[Lane], bool] | None = None) -> list[OutgoingBatch]:
        """What the next request carries: the first batches of the partitions whose turn it is (of those that the broker
        `leads`), one of each, as many as a request takes, at least one; of one transactional id, or none. Empty if none
        may be sent."""
        chosen: list[OutgoingBatch] = []
        size_bytes = 0
        for _ in range(len(self._ready)):
            lane = self._ready.popleft()
            lane.is_ready = False
            is_other = bool(chosen) and lane.transactional_id != chosen[0].lane.transactional_id
            if lane.may_send and not is_other and (leads is None or leads(lane)):
                size_bytes += lane.next_bytes
                if chosen and size_bytes > PRODUCE_REQUEST_BYTES:
                    lane.is_ready = True
                    self._ready.appendleft(lane)
                    break
                chosen.append(lane.take())
            self._make_ready(lane)
        return chosen

    def settle(
        self, sent: SentRequest, results: Iterable[PartitionProduceResponse]
    ) -> tuple[list[Outcome], Passing | None]:
        """Take in an answer: whom to tell what, and what a batch was refused with that is to be sent again."""
        outcomes: list[Outcome] = []
        passing: Passing | None = None
        for batch, result in zip(sent.batches, results, strict=True):
            if result.error_code in _WRITTEN:
                end = result.base_offset + batch.offset_count
                outcomes += self.accepted(batch, Appended(result.base_offset, end, result.log_append_time_ms, False))
                continue
            error = refusal_in(result, *batch.lane.label)
            if known_code(result.error_code) in self._passing:
                passing = Passing(error)
            else:
                outcomes += self.refused(batch, error)
        return outcomes, passing

    def accepted(self, batch: OutgoingBatch, appended: Appended) -> list[Outcome]:
        """It is in the log: whom to tell."""
        lane = batch.lane
        if lane.refusal is not None:
            return []  # it was told that with the lane
        lane.accepted(batch)
        self._look_at(lane)
        return [(batch.done, appended, None)]

    def refused(self, batch: OutgoingBatch, error: FoldlogError) -> list[Outcome]:
        """It is not in the log: whom to tell."""
        lane = batch.lane
        if lane.refusal is not None:
            return []
        failed = lane.refused(batch, error)
        self._look_at(lane)
        return [(one.done, None, error) for one in failed]

    def put_back(self) -> None:
        """The connections are lost: what is unanswered is sent again."""
        for lane in self._busy:
            lane.put_back()
            self._make_ready(lane)

    def give_up(self, error: FoldlogError) -> list[Outcome]:
        """All that is not settled fails with this."""
        busy, self._busy = self._busy, {}
        self._ready.clear()
        outcomes: list[Outcome] = []
        for lane in busy:
            lane.is_ready = False
            outcomes += [(batch.done, None, error) for batch in lane.give_up(error)]
        return outcomes

    def _look_at(self, lane: Lane) -> None:
        if lane.is_empty:
            self._busy.pop(lane, None)
        else:
            self._make_ready(lane)

    def _make_ready(self, lane: Lane) -> None:
        if not lane.is_ready and lane.may_send:
            lane.is_ready = True
            self._ready.append(lane)


def tell(outcomes: Iterable[Outcome]) -> None:
    for done, appended, error in outcomes:
        done(appended, error)


# --- requests and answers -------------------------------------------------------------------------------------------


def produce_request(
    batches: Iterable[AddressedBatch], timeout_ms: int, transactional_id: str | None = None
) -> ProduceRequest:
    """Of different partitions, as a request has at most one batch of each. Acknowledged by all in-sync replicas."""
    by_topic: dict[tuple[str, bytes], list[PartitionProduceData]] = {}
    for batch in batches:
        data = PartitionProduceData(index=batch.partition, records=batch.data)
        by_topic.setdefault((batch.topic, batch.topic_id), []).append(data)
    topics = [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=found)
        for (name, topic_id), found in by_topic.items()
    ]
    return ProduceRequest(transactional_id=transactional_id, acks=_ACKS_ALL, timeout_ms=timeout_ms, topic_data=topics)


def results_in(answer: ProduceResponse, batches: Sequence[AddressedBatch]) -> list[PartitionProduceResponse]:
    """What the answer says of each batch of its request. Up to version 12 it names topics, later it has their ids."""
    told = {
        (topic.name or topic.topic_id, one.index): one
        for topic in answer.responses
        for one in topic.partition_responses
    }
    found = [
        told.get((batch.topic, batch.partition)) or told.get((batch.topic_id, batch.partition)) for batch in batches
    ]
    results = [one for one in found if one is not None]
    if not len(results) == len(batches) == len(told):
        raise MalformedBytes("Produce response", "it is not about the batches that were sent", 0)
    return results


def refusal_in(result: PartitionProduceResponse, topic: str, partition: int) -> FoldlogError:
    """What a batch was refused with."""
    if result.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
        return UnknownTopic(topic)
    return topic_error(result.error_code, result.error_message, topic, partition)
