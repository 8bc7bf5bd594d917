"""Batches to a cluster: to the leaders of their partitions, acknowledged by all in-sync replicas, once each.

Every batch carries the producer's id and its number within its partition, so a broker knows one that it has. After
anything that went wrong, all batches that are not acknowledged are sent again, in their order, to whoever leads then.
What is sent when, and what answers mean: batches.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Final, Self

from foldlog.client.wire.batches import Lane, Numbering, Outbox, OutgoingBatch, SentRequest, tell
from foldlog.client.wire.connection import WireConnection
from foldlog.client.wire.links import ClusterLinks
from foldlog.client.wire.properties import Address
from foldlog.client.wire.questions import new_producer_id
from foldlog.client.wire.refusals import Passing
from foldlog.client.wire.retries import Backoff
from foldlog.errors import FoldlogError, InvalidBatch, LogClosed, MalformedBytes
from foldlog.limits import BATCH_HEADER_BYTES, PRODUCE_IN_FLIGHT_MAX
from foldlog.log.partition import Appended
from foldlog.records.batch import FAULT_CUT_OFF
from foldlog.wire.error_codes import RETRIABLE, ErrorCode
from foldlog.wire.messages.produce import ProduceRequest
from foldlog.wire.schema import ZERO_UUID

_BY_NAME: Final = 12
"""The last version of Produce that names topics; later ones have their ids."""

_IN_VERSION_1: Final = 11
"""The last version of Produce in which a transaction has to be told of its partitions before: see WireTransaction."""


_PASSING: Final = RETRIABLE - {ErrorCode.CORRUPT_MESSAGE}
"""Kafka's list has it, for transport errors; here the CRC is right, and the records inside stay as they are."""


@dataclass(slots=True, eq=False)
class _Pipe:
    """A connection to one leader, and what is on its way there, oldest first."""

    address: Address
    connection: WireConnection
    under_way: deque[SentRequest] = field(default_factory=deque)


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
        transactional_id: str | None = None,
    ) -> None:
        """Use `Cluster.producer`, or with a transactional id `Cluster.transaction`."""
        self._links = links
        self._transactional_id = transactional_id
        self._numbers = numbers  # producer id and epoch
        self._sequences = sequences or {}
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._pipes: dict[Address, _Pipe] = {}
        self._outbox = Outbox(_PASSING)
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
            done = partial(self._note, (topic, partition))
            self._outbox.add(OutgoingBatch(self._lane(topic, partition), data, done))
        self._carry_on(until_settled=False)

    def _lane(self, topic: str, partition: int) -> Lane:
        lane = self._lanes.get((topic, partition))
        if lane is None:
            if self._numbers is None:
                self._numbers = self._links.ask(new_producer_id(self._links.properties.request_timeout_ms))
            numbering = Numbering(*self._numbers, self._sequences.get((topic, partition), 0))
            lane = self._lanes[topic, partition] = Lane(
                topic, partition, numbering, renumbers=False, transactional_id=self._transactional_id
            )
        return lane

    def _note(self, partition: tuple[str, int], appended: Appended | None, error: FoldlogError | None) -> None:
        """Where a batch is. What was refused is raised instead, and a broker may no longer know where a repetition
        was."""
        if appended is not None and appended.base_offset >= 0:
            first, stop = self.appended.get(partition, (appended.base_offset, appended.next_offset))
            self.appended[partition] = min(first, appended.base_offset), max(stop, appended.next_offset)

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
                self._send_waiting()
                while until_settled and self._outbox.is_busy:
                    self._settle_all()
                    self._send_waiting()
                return
            except (Passing, OSError, MalformedBytes) as error:
                backoff = backoff or self._links.backoff(self._links.properties.delivery_timeout_ms)
                self._begin_again(backoff, error)
            except FoldlogError as error:
                self._fail(error)
                raise

    def _begin_again(self, backoff: Backoff, error: Exception) -> None:
        self._drop_pipes()
        self._outbox.put_back()
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

    def _send_waiting(self) -> None:
        while (lane := self._outbox.next_lane()) is not None:
            pipe = self._pipe_to(self._links.leader(*lane.label).address)
            if lane.may_send and len(pipe.under_way) < PRODUCE_IN_FLIGHT_MAX:
                self._send_over(pipe)
            elif pipe.under_way:
                self._settle_one(pipe)
            else:
                self._settle_all()  # the leader is another one than it was: it waits for what is under way elsewhere

    def _send_over(self, pipe: _Pipe) -> None:
        """One request with the next batches of the partitions that this broker leads."""

        def leads(lane: Lane) -> bool:
            leader = self._links.leader(*lane.label)
            lane.topic_id = leader.topic.topic_id
            return leader.address == pipe.address

        batches = self._outbox.gather(leads)
        connection = pipe.connection
        with self._links.blaming(pipe.address, connection):
            version = connection.version_of(ProduceRequest, self._version_limit(batches))
            sent = SentRequest(batches, version, connection.next_id())
            pipe.under_way.append(sent)
            request = sent.stamped(self._links.properties.request_timeout_ms)
            connection.send(request, version, sent.correlation_id)

    def _version_limit(self, batches: Iterable[OutgoingBatch]) -> int | None:
        if self._transactional_id is not None:
            return _IN_VERSION_1
        return _BY_NAME if any(batch.lane.topic_id == ZERO_UUID for batch in batches) else None

    def _pipe_to(self, address: Address) -> _Pipe:
        pipe = self._pipes.get(address)
        if pipe is not None and pipe.connection.is_expiring:
            while pipe.under_way:
                self._settle_one(pipe)
            del self._pipes[address]
            pipe.connection.close()
            pipe = None
        if pipe is None:
            pipe = self._pipes[address] = _Pipe(address, self._links.borrow(address))
        return pipe

    # --- answers --------------------------------------------------------------------------------------------------

    def _settle_all(self) -> None:
        for pipe in self._pipes.values():
            while pipe.under_way:
                self._settle_one(pipe)
        self._outbox.put_back()  # what an interrupted call took out and did not send

    def _settle_one(self, pipe: _Pipe) -> None:
        """Wait for the answer to the oldest request on its way to this leader."""
        sent = pipe.under_way[0]
        with self._links.blaming(pipe.address, pipe.connection):
            results = sent.results(pipe.connection.receive(self._links.properties.request_timeout_ms / 1000))
        pipe.under_way.popleft()
        outcomes, passing = self._outbox.settle(sent, results)
        tell(outcomes)
        for _, _, error in outcomes:
            if error is not None:
                raise error  # what stays comes before what passes
        if passing is not None:
            raise passing
