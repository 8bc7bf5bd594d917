"""Records from a cluster: what a fetch asks and what its answer holds, and one partition read from an offset on.

While the caller works on an answer, the broker has the next question already and fills the connection. An answer is
received into memory that is used again and again, and its records are looked at where they stand. Many partitions are
read by leader_fetch.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from foldlog.client.wire.admin import list_offsets
from foldlog.client.wire.connection import FrameMemory, WireConnection
from foldlog.client.wire.links import ClusterLinks, PartitionLeader
from foldlog.client.wire.properties import ClusterProperties
from foldlog.client.wire.questions import EARLIEST, LATEST
from foldlog.client.wire.refusals import Passing, check_code
from foldlog.errors import MalformedBytes, OffsetOutOfRange, UnknownTopic
from foldlog.limits import CLUSTER_ANSWER_BYTES_MAX
from foldlog.log.checkpoint import out_of_range
from foldlog.log.transactions import ToldAborted, spans_without
from foldlog.records.batch import MAX_INT64
from foldlog.records.loops import walk
from foldlog.wire.error_codes import ErrorCode, exception_of
from foldlog.wire.frames import decode_response, response_correlation_id
from foldlog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

BY_NAME: Final = 12
"""The last version of Fetch that names topics; later ones have their ids."""

_READ_COMMITTED: Final = 1


class Fetched(NamedTuple):
    """An answer's records: pieces of whole batches whose CRCs are right, in offset order, until the next answer.

    The first batch may begin before the offset that was asked for. Control batches are among them; with read_committed
    those of aborted transactions are not. `end` is how far may be read now. `throttle_ms`: the broker holds back.
    `needed_bytes`: the next batch is as large, and not all of it came.
    """

    pieces: tuple[memoryview, ...]
    next_offset: int
    end: int
    log_start_offset: int
    throttle_ms: int = 0
    needed_bytes: int = 0


def fetch_request(
    properties: ClusterProperties, topics: Sequence[FetchTopic], max_bytes: int, max_wait_ms: int, min_bytes: int = 1
) -> FetchRequest:
    """Answered as soon as there are `min_bytes`, else after `max_wait_ms`. `max_bytes` is what its largest partition
    may take, which fetch.max.bytes does not cut short."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max(max_bytes, properties.fetch_max_bytes),
        isolation_level=properties.isolation_level,
        topics=topics,
    )


def receive_fetch(
    connection: WireConnection, correlation_id: int, version: int, timeout_s: float, memory: FrameMemory
) -> FetchResponse:
    """The answer that comes next, good until the next one is received into that memory. TimeoutError leaves the
    connection as it is."""
    frame = connection.receive(timeout_s, memory)
    if response_correlation_id(frame) != correlation_id:
        raise MalformedBytes("Fetch response", "it answers another request", 0)
    return decode_response(FetchResponse, version, frame)[1]


def fetched_batches(
    data: PartitionData, offset: int, isolation_level: int, whose: str, throttle_ms: int = 0
) -> Fetched:
    """What an answer without an error code holds of one partition that was asked for from `offset` on. MalformedBytes
    if that cannot be, or a CRC is wrong; `whose` says of which partition, and from whom."""
    records = memoryview(data.records or b"")
    is_committed = isolation_level == _READ_COMMITTED
    end = data.last_stable_offset if is_committed else data.high_watermark
    found = walk(records, expected_offset=0, gaps_below=MAX_INT64)
    if found.problem is not None:
        raise MalformedBytes(f"record batch of {whose}", found.problem, found.end)
    if not found.headers:
        return Fetched((), offset, end, data.log_start_offset, throttle_ms, found.needed_bytes)
    next_offset = found.headers[-1].next_offset
    if next_offset <= offset:
        raise MalformedBytes("Fetch response", f"it ends at offset {next_offset}, before {offset}", 0)
    if is_committed and data.aborted_transactions:
        told = ToldAborted((one.first_offset, one.producer_id) for one in data.aborted_transactions)
        spans = spans_without(told, found.headers)
    else:
        spans = [(0, found.end)]
    pieces = tuple(records[start:stop] for start, stop in spans)
    return Fetched(pieces, next_offset, end, data.log_start_offset, throttle_ms)


def enough_for(fetched: Fetched, max_bytes: int, whose: str) -> int:
    """How much to ask for from now on: a broker sends a batch over the limit whole, if it is the first; one that does
    not is asked for more."""
    if fetched.needed_bytes > CLUSTER_ANSWER_BYTES_MAX:
        reason = f"{fetched.needed_bytes} bytes, over {CLUSTER_ANSWER_BYTES_MAX}"
        raise MalformedBytes(f"record batch of {whose}", reason, 0)
    return max(max_bytes, fetched.needed_bytes)


def out_of_range_now(links: ClusterLinks, topic: str, partition: int, offset: int) -> Passing | OffsetOutOfRange:
    """What to make of OFFSET_OUT_OF_RANGE: a new leader may not have heard yet how far may be read."""
    start = list_offsets(links, topic, {partition: EARLIEST})[partition].offset
    end = list_offsets(links, topic, {partition: LATEST})[partition].offset
    if start <= offset <= end:
        return Passing(exception_of(ErrorCode.OFFSET_OUT_OF_RANGE, None, topic=topic, partition=partition))
    return out_of_range((topic, partition), offset, start, end)


class _Asked(NamedTuple):
    """A fetch whose answer is still to come."""

    correlation_id: int
    version: int
    offset: int


class PartitionFetcher:
    """Reads one partition onward. One thread; `close` it, since it may have a connection of its own.

    It reads the topic that it met first, or that has `topic_id`: UnknownTopic once there is only another one of the
    same name.
    """

    def __init__(
        self,
        links: ClusterLinks,
        topic: str,
        partition: int,
        offset: int,
        *,
        topic_id: bytes | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self.offset = offset
        self.asked_s = 0.0
        """When the answer that is to come was asked for, by the monotonic clock."""
        self._links = links
        self._topic = topic
        self._partition = partition
        self._topic_id = topic_id
        wanted_bytes = links.properties.max_partition_fetch_bytes if max_bytes is None else max_bytes
        self._max_bytes = max(1, min(wanted_bytes, links.properties.fetch_max_bytes))
        self._memory = FrameMemory()
        self._leader: PartitionLeader | None = None  # that the connection is to
        self._connection: WireConnection | None = None
        self._asked: _Asked | None = None

    def next(self, *, before: int = 0) -> Fetched:
        """The batches from the offset on; none, and the same offset, if there are none yet or the broker holds back.

        If they end before the offset `before`, what follows is asked for at once. OffsetOutOfRange if the log does not
        hold the offset.
        """
        return self._gone_on(self._links.retried(self._attempt), before)

    def try_next(self, *, before: int = 0, is_late: bool = False) -> Fetched:
        """`fetch` once: what may pass is raised, as Passing, OSError or MalformedBytes, and can be tried again.

        `is_late`: the answer has been waited for long enough.
        """
        return self._gone_on(self._attempt(is_late=is_late), before)

    def _gone_on(self, fetched: Fetched, before: int) -> Fetched:
        offset, self.offset = self.offset, fetched.next_offset
        if offset < fetched.next_offset < before and self.is_connected:
            try:
                self._ask(fetched.next_offset)
            except (OSError, Passing):
                self._drop()  # the next call tries it again, and says what is wrong
        return fetched

    def ask(self) -> None:
        """Put the question on its way, without waiting for the answer. Raises as `try_next` does."""
        if self._asked is None:
            try:
                self._ask(self.offset)
            except BaseException:
                self._drop()
                raise

    @property
    def awaited(self) -> WireConnection | None:
        """The connection that an answer is to come on; None if nothing was asked."""
        return None if self._asked is None else self._connection

    @property
    def is_connected(self) -> bool:
        """Whether there is a leader to ask, as far as is known: else it is looked for first, which may take long."""
        return self._connection is not None and not self._connection.is_expiring

    def connect(self, leader: PartitionLeader, connection: WireConnection) -> None:
        """Ask this leader from now on, until it is lost. The connection is the fetcher's."""
        self._drop()
        self._leader, self._connection = leader, connection

    def close(self) -> None:
        """A connection on which an answer is still to come is of no use to anybody else."""
        connection, self._connection = self._connection, None
        if connection is None or self._leader is None:
            return
        if self._asked is None:
            self._links.give_back(self._leader.address, connection)
        else:
            connection.close()

    def _attempt(self, *, is_late: bool = False) -> Fetched:
        try:
            if self._asked is None or self._asked.offset != self.offset:
                self._ask(self.offset)
            return self._answered(is_late=is_late)
        except BaseException:
            self._drop()
            raise

    # --- the question ---------------------------------------------------------------------------------------------

    def _ask(self, offset: int) -> None:
        leader, connection = self._reached()
        if self._topic_id is None:
            self._topic_id = leader.topic.topic_id
        if leader.topic.topic_id != self._topic_id:
            raise UnknownTopic(self._topic)
        with self._links.blaming(leader.address, connection):
            version = connection.version_of(FetchRequest, leader.topic.version_limit(BY_NAME))
            self._asked = _Asked(connection.next_id(), version, offset)
            self.asked_s = time.monotonic()
            connection.send(self._request(leader, offset), version, self._asked.correlation_id)

    def _reached(self) -> tuple[PartitionLeader, WireConnection]:
        """The leader that was asked last, as long as it answers: who else leads by now, it says itself."""
        leader, connection = self._leader, self._connection
        if self._asked is not None or leader is None or connection is None or connection.is_expiring:
            self._drop()
            leader, connection = self._links.reach(self._topic, self._partition)
            self.connect(leader, connection)
        return leader, connection

    def _request(self, leader: PartitionLeader, offset: int) -> FetchRequest:
        wanted = FetchPartition(
            partition=self._partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=offset,
            partition_max_bytes=self._max_bytes,
        )
        topic = FetchTopic(topic=self._topic, topic_id=leader.topic.topic_id, partitions=[wanted])
        properties = self._links.properties
        return fetch_request(properties, [topic], self._max_bytes, properties.fetch_max_wait_ms)

    def _drop(self) -> None:
        connection, self._leader, self._connection, self._asked = self._connection, None, None, None
        if connection is not None:
            connection.close()

    # --- the answer -----------------------------------------------------------------------------------------------

    def _answered(self, *, is_late: bool) -> Fetched:
        asked, connection, leader = self._asked, self._connection, self._leader
        if asked is None or connection is None or leader is None:
            raise MalformedBytes("Fetch", "nothing was asked", 0)
        properties = self._links.properties
        with self._links.blaming(leader.address, connection):
            timeout_ms = 0 if is_late else properties.request_timeout_ms + properties.fetch_max_wait_ms
            answer = receive_fetch(connection, asked.correlation_id, asked.version, timeout_ms / 1000, self._memory)
        self._asked = None
        check_code(answer.error_code, topic=self._topic, partition=self._partition)
        data = self._only_partition(answer)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise out_of_range_now(self._links, self._topic, self._partition, asked.offset)
        check_code(data.error_code, topic=self._topic, partition=self._partition)
        whose = f"{self._topic}-{self._partition} from {leader.address}"
        level = self._links.properties.isolation_level
        fetched = fetched_batches(data, asked.offset, level, whose, answer.throttle_time_ms)
        self._max_bytes = enough_for(fetched, self._max_bytes, whose)
        return fetched

    def _only_partition(self, answer: FetchResponse) -> PartitionData:
        partitions = [one for topic in answer.responses for one in topic.partitions]
        if len(partitions) != 1 or partitions[0].partition_index != self._partition:
            raise MalformedBytes("Fetch response", "it is not about the one partition that was asked for", 0)
        return partitions[0]
