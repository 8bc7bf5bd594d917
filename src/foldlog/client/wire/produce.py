"""Batches to a cluster: to the leaders of their partitions, acknowledged by all in-sync replicas, once each.

Every batch carries the producer's id and its number within its partition, so a broker knows one that it has. After
anything that went wrong, all batches that are not acknowledged are sent again, in their order, to whoever leads then.
A broker that does not know the producer yet takes any number for its first, so the first batch of a partition is waited
for before the second is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, NamedTuple, Self

from foldlog.client.wire.batches import AddressedBatch, Numbering, produce_request, refusal_in, results_in
from foldlog.client.wire.connection import WireConnection
from foldlog.client.wire.links import ClusterLinks, TopicMetadata
from foldlog.client.wire.properties import Address
from foldlog.client.wire.questions import new_producer_id
from foldlog.client.wire.refusals import Passing
from foldlog.client.wire.retries import Backoff
from foldlog.errors import FoldlogError, InvalidBatch, LogClosed, MalformedBytes
from foldlog.limits import BATCH_HEADER_BYTES, PRODUCE_IN_FLIGHT_MAX, PRODUCE_REQUEST_BYTES
from foldlog.records.batch import FAULT_CUT_OFF
from foldlog.records.stamping import offset_span, stamp_producer
from foldlog.wire.error_codes import ErrorCode, known_code
from foldlog.wire.frames import decode_response, response_correlation_id
from foldlog.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse

_BY_NAME: Final = 12
"""The last version of Produce that names topics; later ones have their ids."""


@dataclass(slots=True, eq=False)
class _Partition:
    """A partition that is produced to. `is_known`: its leader has had a batch, and so knows the producer."""

    topic: str
    number: int
    numbering: Numbering
    is_known: bool = False


@dataclass(slots=True, eq=False)
class _Batch:
    """One batch that is not acknowledged yet, numbered."""

    partition: _Partition
    data: bytearray

    def addressed(self, topic_id: bytes) -> AddressedBatch:
        return AddressedBatch(self.partition.topic, topic_id, self.partition.number, self.data)


class _Sent(NamedTuple):
    """A request whose answer is still to come, and the batches in it."""

    correlation_id: int
    version: int
    batches: list[_Batch]
    addressed: list[AddressedBatch]


@dataclass(slots=True, eq=False)
class _Pipe:
    """A connection to one leader, and what is on its way there, oldest first."""

    connection: WireConnection
    under_way: deque[_Sent] = field(default_factory=deque)

    def introduces(self, target: _Partition) -> bool:
        """Whether the batch is on its way with which the leader gets to know the producer."""
        return not target.is_known and any(
            batch.partition is target for sent in self.under_way for batch in sent.batches
        )


class ClusterProducer:
    """Sends packed batches. One thread; `flush` before closing, or what is not acknowledged is not sure.

    Each batch is in the log once and in the order of `send` within its partition, whatever became of connections and
    leaders, as long as this object lives. Another one would append them again, unless it goes on with the numbers of
    this one: its id and epoch, and per partition the `sequences` of what is not in the log yet. A batch that is there
    already then, or arrives after all, is in the log once. After an error it takes nothing more, and of what was not
    acknowledged nothing is sure. Holds at most PRODUCE_IN_FLIGHT_MAX requests per broker, and what one call gave.
    """

    def __init__(
        self,
        links: ClusterLinks,
        numbers: tuple[int, int] | None = None,
        sequences: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        """Use `Cluster.producer`."""
        self._links = links
        self._numbers = numbers  # producer id and epoch
        self._sequences = sequences or {}
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._pipes: dict[Address, _Pipe] = {}
        self._unsettled: dict[_Batch, None] = {}  # in the order in which they were given
        self._unsent: deque[_Batch] = deque()
        self._failure: FoldlogError | None = None
        self.appended: dict[tuple[str, int], tuple[int, int]] = {}
        """Of each partition the first offset that was acknowledged, and one past the last: others' records may stand
        among them."""

    def send(self, topic: str, partition: int, batch: bytes | bytearray | memoryview) -> None:
        """Put one whole batch on its way; returns before it is acknowledged.

        A bytearray is the producer's from then on: its numbers are written into it.
        """
        self.send_all([(topic, partition, batch)])

    def send_all(self, batches: Iterable[tuple[str, int, bytes | bytearray | memoryview]]) -> None:
        """`send` for several, each with its topic and partition: those of one leader go in the same requests."""
        self._check_usable()
        for topic, partition, batch in batches:
            if len(batch) < BATCH_HEADER_BYTES:
                raise InvalidBatch(FAULT_CUT_OFF, 0)
            data = batch if isinstance(batch, bytearray) else bytearray(batch)
            target = self._partition(topic, partition)
            stamp_producer(data, *target.numbering.take(offset_span(data)))
            numbered = _Batch(target, data)
            self._unsettled[numbered] = None
            self._unsent.append(numbered)
        self._carry_on(until_settled=False)

    def _partition(self, topic: str, partition: int) -> _Partition:
        target = self._partitions.get((topic, partition))
        if target is None:
            if self._numbers is None:
                self._numbers = self._links.ask(new_producer_id(self._links.properties.request_timeout_ms))
            first = self._sequences.get((topic, partition), 0)
            target = self._partitions[topic, partition] = _Partition(topic, partition, Numbering(*self._numbers, first))
        return target

    def flush(self) -> None:
        """Returns once every batch that was sent is acknowledged by all in-sync replicas."""
        self._check_usable()
        self._carry_on(until_settled=True)

    def close(self) -> None:
        """Without waiting for anything."""
        self._failure = self._failure or LogClosed("the producer is closed; make another one")
        self._drop_pipes()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flushes, unless the block failed."""
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    # --- sending, and sending again -------------------------------------------------------------------------------

    def _carry_on(self, *, until_settled: bool) -> None:
        backoff: Backoff | None = None
        while True:
            try:
                self._send_unsent()
                if until_settled:
                    self._settle_all()
                return
            except (Passing, OSError, MalformedBytes) as error:
                backoff = backoff or self._links.backoff(self._links.properties.delivery_timeout_ms)
                self._begin_again(backoff, error)
            except FoldlogError as error:
                self._fail(error)
                raise

    def _begin_again(self, backoff: Backoff, error: Exception) -> None:
        self._drop_pipes()
        self._unsent = deque(self._unsettled)
        self._links.forget_leaders()
        try:
            backoff.wait(error)
        except FoldlogError as told:
            self._fail(told)
            raise

    def _fail(self, error: FoldlogError) -> None:
        self._failure = error
        self._drop_pipes()

    def _drop_pipes(self) -> None:
        """Connections on which nothing is under way can be used by others."""
        pipes, self._pipes = self._pipes, {}
        for address, pipe in pipes.items():
            if pipe.under_way:
                pipe.connection.close()
            else:
                self._links.give_back(address, pipe.connection)

    def _send_unsent(self) -> None:
        while self._unsent:
            self._put_on_wire(self._unsent[0])

    def _put_on_wire(self, first: _Batch) -> None:
        """Send this batch, with those that can go along."""
        target = first.partition
        place = self._links.place(target.topic, target.number)
        pipe = self._pipes.get(place.address)
        if pipe is not None and pipe.connection.is_expiring:
            while pipe.under_way:
                self._settle_one(place.address, pipe)
            del self._pipes[place.address]
            pipe.connection.close()
            pipe = None
        if pipe is None:
            pipe = self._pipes[place.address] = _Pipe(self._links.borrow(place.address))
        while len(pipe.under_way) >= PRODUCE_IN_FLIGHT_MAX or pipe.introduces(target):
            self._settle_one(place.address, pipe)
        chosen = self._going_along(place.address, pipe)
        addressed = [batch.addressed(topic.topic_id) for batch, topic in chosen.items()]
        limits = [limit for topic in chosen.values() if (limit := topic.version_limit(_BY_NAME)) is not None]
        connection = pipe.connection
        with self._links.blaming(place.address, connection):
            version = connection.version_of(ProduceRequest, min(limits, default=None))
            correlation_id = connection.next_id()
            pipe.under_way.append(_Sent(correlation_id, version, list(chosen), addressed))
            request = produce_request(addressed, self._links.properties.request_timeout_ms)
            connection.send(request, version, correlation_id)
        for batch in chosen:
            self._unsent.remove(batch)

    def _going_along(self, address: Address, pipe: _Pipe) -> dict[_Batch, TopicMetadata]:
        """The first batches to send of the partitions that this broker leads, as many as a request takes, at least one;
        with their topics."""
        chosen: dict[_Batch, TopicMetadata] = {}
        passed: set[_Partition] = set()
        size_bytes = 0
        for batch in self._unsent:
            target = batch.partition
            if target in passed:
                continue
            passed.add(target)  # what follows it in its partition has to wait for the next request
            place = self._links.place(target.topic, target.number)
            if place.address != address or pipe.introduces(target):
                continue
            size_bytes += len(batch.data)
            if chosen and size_bytes > PRODUCE_REQUEST_BYTES:
                break
            chosen[batch] = place.topic
        return chosen

    # --- answers --------------------------------------------------------------------------------------------------

    def _settle_all(self) -> None:
        for address, pipe in self._pipes.items():
            while pipe.under_way:
                self._settle_one(address, pipe)

    def _settle_one(self, address: Address, pipe: _Pipe) -> None:
        """Wait for the answer to the oldest request on its way to this leader."""
        sent = pipe.under_way[0]
        with self._links.blaming(address, pipe.connection):
            frame = pipe.connection.receive(self._links.properties.request_timeout_ms / 1000)
            if response_correlation_id(frame) != sent.correlation_id:
                raise MalformedBytes("Produce response", "it answers another request", 0)
            answer = decode_response(ProduceResponse, sent.version, frame)[1]
        results = results_in(answer, sent.addressed)
        pipe.under_way.popleft()
        problems: list[Passing | FoldlogError] = []
        for batch, result in zip(sent.batches, results, strict=True):
            try:
                _check(result, batch.partition)
            except (Passing, FoldlogError) as error:
                problems.append(error)
            else:
                self._settle(batch, result.base_offset)
        for problem in sorted(problems, key=lambda one: isinstance(one, Passing)):
            raise problem  # first what stays

    def _settle(self, batch: _Batch, base_offset: int) -> None:
        batch.partition.is_known = True
        del self._unsettled[batch]
        if base_offset >= 0:
            place = batch.partition.topic, batch.partition.number
            first, stop = base_offset, base_offset + offset_span(batch.data)
            known = self.appended.get(place, (first, stop))
            self.appended[place] = min(known[0], first), max(known[1], stop)


def _check(answer: PartitionProduceResponse, target: _Partition) -> None:
    code = known_code(answer.error_code)
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return  # a repetition of one that is in the log is what was wanted
    error = refusal_in(answer, target.topic, target.number)
    # Kafka's list has it, for transport errors; here the CRC is right, and the records inside stay as they are.
    if code.is_retriable and code is not ErrorCode.CORRUPT_MESSAGE:
        raise Passing(error)
    raise error
