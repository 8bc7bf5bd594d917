"""A load client that speaks Kafka's protocol raw: requests encoded once, sent again and again, every answer checked.

It has to be faster than what it measures: a request costs it a slice of a buffer, an answer one look at fixed places.
That works because all answers of a run have the same length: the places of the error code and of the offset in it are
found once, by encoding an answer with marks there. An answer of another length, with an error or with an offset that
does not follow is a failure of the run, never a figure. What it reaches against `bench.broker_sink`, which does nothing
but count bytes, is its ceiling, and the loopback's with the same sizes.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import decode_response, encode_request, encode_response
from foldlog.wire.messages import fetch, produce
from foldlog.wire.schema import Request, Response

PRODUCE_VERSION = 9
FETCH_VERSION = 12
CORRELATION_ID = 7
CLIENT_ID = "bench"

_SMALL_BYTES = 32 << 10
"""Up to here a frame is one piece; above, its batch is shared between frames, so that it stays in the cache."""
_PIECES_MAX = 64
"""Pieces of one send."""
_RECEIVE_BYTES = 1 << 20
_PATIENCE_S = 20.0
_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")
_LENGTH_AND_CORRELATION = struct.Struct(">ii")
_PARTITION_ANSWER_BYTES = 33
"""Of a partition in the answer to a Produce, without record errors and message."""
_ERROR_MARK = 0x5A5A
_OFFSET_MARK = 0x1A2B3C4D5E6F7A8B


Answer = TypeVar("Answer", bound=Response)


class LoadFailed(Exception):
    """An answer was wrong, or none came: the run has no figure."""


@dataclass(frozen=True, slots=True)
class Answers:
    """How every answer of a run looks: its length, and where its error code and its offset stand."""

    frame_bytes: int
    error_at: int
    offset_at: int
    example: bytes
    """A good answer, with offset 0: what the sink sends."""
    more_errors_at: tuple[int, ...] = ()
    """Error codes of the other partitions in the answer, if it has several."""

    @classmethod
    def like(cls, response: Response, version: int) -> Answers:
        """From an answer that carries the marks."""
        frame = bytearray(b"".join(encode_response(response, version, CORRELATION_ID)))
        error, offset = _INT16.pack(_ERROR_MARK), _INT64.pack(_OFFSET_MARK)
        if frame.count(error) != 1 or frame.count(offset) != 1:
            raise LoadFailed("a mark is not found once: choose another")
        error_at, offset_at = frame.index(error), frame.index(offset)
        _INT16.pack_into(frame, error_at, 0)
        _INT64.pack_into(frame, offset_at, 0)
        return cls(len(frame), error_at, offset_at, bytes(frame))


@dataclass(frozen=True, slots=True)
class Load:
    """What one run sends: requests in a cycle, and the offset that the answer to each has to carry.

    `offsets[i]` is the offset of the first answer to request i, and each time around it grows by `step`; where several
    connections produce to a partition (`is_shared`), it has to grow at least by that.
    """

    frames: Sequence[tuple[memoryview, ...]]
    answers: Answers
    offsets: Sequence[int]
    step: int
    payload_bytes: int
    window: int
    is_shared: bool = False

    @property
    def request_bytes(self) -> int:
        return sum(map(len, self.frames[0]))

    def for_sink(self) -> Load:
        """Requests of the same sizes, answered without a log: the offset is always 0."""
        return replace(self, offsets=[0] * len(self.frames), step=0)


def produce_load(
    topic: str, partitions: int, batch: bytes, records: int, acks: int, window: int, together: int = 1
) -> Load:
    """One batch to each partition in turn; `together` partitions a request, of which `partitions` is a multiple."""
    frames = []
    for first in range(0, partitions, together):
        of_partitions = [
            produce.PartitionProduceData(index=number, records=batch) for number in range(first, first + together)
        ]
        data = produce.TopicProduceData(name=topic, partition_data=of_partitions)
        request = produce.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data])
        frames.append(_pieces(request, PRODUCE_VERSION))
    marked = produce.PartitionProduceResponse(
        error_code=_ERROR_MARK, base_offset=_OFFSET_MARK, log_append_time_ms=-1, log_start_offset=0
    )
    others = [produce.PartitionProduceResponse(log_append_time_ms=-1, log_start_offset=0) for _ in range(together - 1)]
    topic_answer = produce.TopicProduceResponse(name=topic, partition_responses=[marked, *others])
    answers = Answers.like(produce.ProduceResponse(responses=[topic_answer]), PRODUCE_VERSION)
    apart = (_PARTITION_ANSWER_BYTES * number for number in range(1, together))
    answers = replace(answers, more_errors_at=tuple(answers.error_at + one for one in apart))
    return Load(frames, answers, [0] * len(frames), records, together * len(batch), window)


def fetch_load(
    topic: str,
    batches: Sequence[int],
    batch: bytes,
    records: int,
    window: int,
    together: int = 1,
    *,
    aborted: int | None = None,
) -> Load:
    """`together` batches a request, through all there are: `batches` says how many each partition has.

    With `aborted` only committed records are asked for, and each answer names so many aborted transactions.
    """
    together = max(1, min(together, *batches))
    size = together * len(batch)
    frames, offsets = [], []
    for turn in range(0, max(batches), together):
        for number, count in enumerate(batches):
            if turn + together <= count:
                offsets.append(turn * records)
                request = _fetch_request(topic, number, turn * records, size)
                request.isolation_level = int(aborted is not None)
                frames.append(_pieces(request, FETCH_VERSION))
    # The offset that is checked is the first batch's own: its first eight bytes.
    marked = struct.pack(">q", _OFFSET_MARK) + bytes(size - 8)
    named = None if aborted is None else [fetch.AbortedTransaction()] * aborted
    answer = fetch.PartitionData(error_code=_ERROR_MARK, records=marked, log_start_offset=0, aborted_transactions=named)
    topic_answer = fetch.FetchableTopicResponse(topic=topic, partitions=[answer])
    answers = Answers.like(fetch.FetchResponse(responses=[topic_answer]), FETCH_VERSION)
    return Load(frames, answers, offsets, 0, size, window)


def _fetch_request(topic: str, number: int, offset: int, size: int) -> fetch.FetchRequest:
    wanted = fetch.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=size)
    return fetch.FetchRequest(
        max_wait_ms=10_000, min_bytes=1, max_bytes=size, topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])]
    )


def _pieces(request: Request, version: int) -> tuple[memoryview, ...]:
    chunks = encode_request(request, version, CORRELATION_ID, CLIENT_ID)
    if sum(map(len, chunks)) <= _SMALL_BYTES:
        return (memoryview(b"".join(chunks)),)
    return tuple(memoryview(chunk) for chunk in chunks)


def connect(address: tuple[str, int]) -> socket.socket:
    opened = socket.create_connection(address, timeout=_PATIENCE_S)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


class TlsSocket:
    """A connection with TLS, used like a plain socket that does not block."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext) -> None:
        self._wrapped = context.wrap_socket(plain, server_hostname="127.0.0.1")

    def sendmsg(self, pieces: Sequence[memoryview]) -> int:
        """The first piece, or what a record holds of it."""
        try:
            return self._wrapped.send(pieces[0])
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None

    def recv_into(self, view: memoryview) -> int:
        """As many records as have come, and fit."""
        filled = 0
        while filled < len(view):
            try:
                got = self._wrapped.recv_into(view[filled:])
            except ssl.SSLWantReadError:
                if not filled:
                    raise BlockingIOError from None
                break
            if not got:
                break
            filled += got
        return filled

    @property
    def has_received(self) -> bool:
        """Whether bytes have come that the system does not tell of any more."""
        return self._wrapped.pending() > 0

    def setblocking(self, flag: bool) -> None:
        self._wrapped.setblocking(flag)

    def fileno(self) -> int:
        return self._wrapped.fileno()

    def close(self) -> None:
        self._wrapped.close()


def ask(opened: socket.socket, request: Request, version: int, response: type[Answer]) -> Answer:
    """One request and its answer: for what is not measured."""
    opened.sendall(b"".join(encode_request(request, version, CORRELATION_ID, CLIENT_ID)))
    with opened.makefile("rb") as stream:
        (size,) = struct.unpack(">i", stream.read(4))
        return decode_response(response, version, stream.read(size))[1]


class LoadConnection:
    """One connection: sends ahead as far as the window allows, receives, and checks each answer in its place."""

    def __init__(self, address: tuple[str, int], load: Load, first: int, context: ssl.SSLContext | None = None) -> None:
        plain = connect(address)
        self.socket: socket.socket | TlsSocket = plain if context is None else TlsSocket(plain, context)
        self.socket.setblocking(False)
        self._load = load
        self._answers = load.answers
        count = len(load.frames)
        # Each connection begins elsewhere in the cycle: the same partition at the same time is the exception.
        self._order = [*range(first % count, count), *range(first % count)]
        self._pieces = [piece for index in self._order for piece in load.frames[index]]
        self._pieces_a_frame = len(load.frames[0])
        self._piece = 0
        self._sent_of_piece = 0
        self._offsets = [load.offsets[index] for index in self._order]
        frames_held = max(1, _RECEIVE_BYTES // self._answers.frame_bytes)
        self._buffer = bytearray(frames_held * self._answers.frame_bytes)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._checked_bytes = 0
        self.started = 0
        self.finished = 0

    @property
    def in_flight(self) -> int:
        return self.started - self.finished

    def send(self, frames_max: int) -> bool:
        """Send up to so many more frames. False if the socket takes no more."""
        while frames_max > 0 or self._sent_of_piece or self._piece % self._pieces_a_frame:
            begun = self._piece % self._pieces_a_frame
            is_inside = bool(begun or self._sent_of_piece)
            pieces = (frames_max + is_inside) * self._pieces_a_frame - begun
            batch = self._pieces[self._piece : self._piece + min(pieces, _PIECES_MAX)]
            if self._sent_of_piece:
                batch[0] = batch[0][self._sent_of_piece :]
            try:
                sent = self.socket.sendmsg(batch)
            except BlockingIOError:
                return False
            frames_max -= self._advance(batch, sent, is_inside=is_inside)
        return True

    def _advance(self, batch: Sequence[memoryview], sent: int, *, is_inside: bool) -> int:
        """Move on by that many bytes. Returns how many frames were begun."""
        before = self._piece // self._pieces_a_frame
        for piece in batch:
            if sent < len(piece):
                self._sent_of_piece += sent
                break
            sent -= len(piece)
            self._piece += 1
            self._sent_of_piece = 0
        here = self._piece // self._pieces_a_frame
        is_within = bool(self._sent_of_piece or self._piece % self._pieces_a_frame)
        begun = here + is_within - before - is_inside
        self.started += begun
        if self._piece == len(self._pieces):
            self._piece = 0
        return begun

    def receive(self) -> int:
        """Take what has come. Returns how many answers were completed."""
        complete = self._receive()
        while isinstance(self.socket, TlsSocket) and self.socket.has_received:
            complete += self._receive()
        return complete

    def _receive(self) -> int:
        try:
            got = self.socket.recv_into(self._view[self._filled :])
        except BlockingIOError:
            return 0
        if not got:
            raise LoadFailed(f"the connection was closed with {self.in_flight} requests under way")
        self._filled += got
        size = self._answers.frame_bytes
        complete = self._filled // size - self._checked_bytes // size
        if complete:
            self._check(complete)
        elif self._checked_bytes == 0 and self._filled >= 4:
            self._check_length(0)
        if self._filled == len(self._buffer):
            self._filled = self._checked_bytes = 0
        return complete

    def _check(self, complete: int) -> None:
        load, offsets = self._load, self._offsets
        size, step, is_shared = self._answers.frame_bytes, load.step, load.is_shared
        error_at, offset_at = self._answers.error_at, self._answers.offset_at
        int16, int64 = _INT16.unpack_from, _INT64.unpack_from
        more_errors_at = self._answers.more_errors_at
        buffer, begin, turn = self._buffer, self._checked_bytes, self.finished
        for start in range(begin, begin + complete * size, size):
            self._check_length(start)
            index = turn % len(offsets)
            turn += 1
            (offset,) = int64(buffer, start + offset_at)
            wrong = offset < offsets[index] if is_shared else offset != offsets[index]
            if int16(buffer, start + error_at)[0] or wrong:
                raise LoadFailed(self._describe(start, offsets[index]))
            if more_errors_at and any(int16(buffer, start + at)[0] for at in more_errors_at):
                raise LoadFailed(f"answer {turn - 1}: an error for one of its partitions")
            offsets[index] = offset + step
        self._checked_bytes += complete * size
        self.finished = turn

    def _check_length(self, start: int) -> None:
        length, correlation = _LENGTH_AND_CORRELATION.unpack_from(self._buffer, start)
        if length != self._answers.frame_bytes - 4 or correlation != CORRELATION_ID:
            raise LoadFailed(
                f"an answer of {length} bytes to request {correlation}, not {self._answers.frame_bytes - 4} bytes:"
                f" {bytes(self._buffer[start : start + min(length + 4, 200)])!r}"
            )

    def _describe(self, start: int, expected: int) -> str:
        (error,) = _INT16.unpack_from(self._buffer, start + self._answers.error_at)
        (offset,) = _INT64.unpack_from(self._buffer, start + self._answers.offset_at)
        return f"answer {self.finished}: {ErrorCode(error).name}, offset {offset} where {expected} was due"

    @property
    def ends(self) -> dict[int, int]:
        """The offset after the last answer, by the request's place in the load."""
        return {index: self._offsets[at] for at, index in enumerate(self._order) if self.finished > at}

    def close(self) -> None:
        self.socket.close()


@dataclass(slots=True)
class Figures:
    """Of one run. `latencies_s` are sorted, and there only where a rate was kept."""

    requests: int
    payload_bytes: int
    seconds: float
    ends: list[int]
    latencies_s: list[float] = field(default_factory=list)

    @property
    def bytes_per_second(self) -> float:
        return self.payload_bytes / self.seconds


def run_flat_out(
    address: tuple[str, int],
    load: Load,
    connections: int,
    seconds: float,
    payload_bytes_max: int,
    context: ssl.SSLContext | None = None,
) -> Figures:
    """As fast as the window allows, until the time is over or so much was sent; then until all is answered. With
    `context` over TLS; handshakes are not measured."""
    with _Opened(address, load, connections, context) as opened:
        requests_max = max(len(load.frames), payload_bytes_max // load.payload_bytes)
        start = time.perf_counter()
        opened.pump(opened.connections, requests_max)
        while opened.started < requests_max and time.perf_counter() < start + seconds:
            opened.pump(opened.wait(), requests_max)
        while opened.in_flight:
            opened.pump(opened.wait(), opened.started)
        return opened.figures(time.perf_counter() - start)


class _Opened:
    """Connections of a run, and the poll that waits for them. Owned by one thread."""

    def __init__(self, address: tuple[str, int], load: Load, count: int, context: ssl.SSLContext | None = None) -> None:
        self._load = load
        self.connections = [
            LoadConnection(address, load, number * len(load.frames) // count, context) for number in range(count)
        ]
        self._epoll = select.epoll()
        self._by_descriptor = {one.socket.fileno(): one for one in self.connections}
        for descriptor in self._by_descriptor:
            self._epoll.register(descriptor, select.EPOLLIN)
        self._full: set[LoadConnection] = set()
        self.started = 0

    @property
    def in_flight(self) -> int:
        return sum(one.in_flight for one in self.connections)

    def pump(self, connections: Sequence[LoadConnection], requests_max: int) -> None:
        """Send what the windows allow, up to that many requests in all."""
        for one in connections:
            before = one.started
            is_full = not one.send(min(self._load.window - one.in_flight, requests_max - self.started))
            self.started += one.started - before
            if is_full != (one in self._full):
                self._full.symmetric_difference_update({one})
                self._epoll.modify(one.socket, select.EPOLLIN | (select.EPOLLOUT if is_full else 0))

    def wait(self) -> list[LoadConnection]:
        """Take what comes next. Returns the connections that can go on."""
        events = self._epoll.poll(_PATIENCE_S)
        if not events:
            raise LoadFailed(f"no answer within {_PATIENCE_S:.0f} seconds")
        ready = []
        for descriptor, event in events:
            one = self._by_descriptor[descriptor]
            ready.append(one)
            if event & ~select.EPOLLOUT:
                one.receive()
        return ready

    def figures(self, seconds: float) -> Figures:
        requests = sum(one.finished for one in self.connections)
        ends = [0] * len(self._load.frames)
        for one in self.connections:
            for index, end in one.ends.items():
                ends[index] = max(ends[index], end)
        return Figures(requests, requests * self._load.payload_bytes, seconds, ends)

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *error: object) -> None:
        self._epoll.close()
        for one in self.connections:
            one.close()


def run_at_rate(address: tuple[str, int], load: Load, rate: float, seconds: float) -> Figures:
    """One connection, a request at each appointed time, whether or not the last was answered.

    A latency counts from the appointed time: a request that is late because the broker or this client was busy has
    waited, and says so (no coordinated omission).
    """
    total = max(20, int(rate * seconds))
    clock = time.perf_counter
    latencies: list[float] = []
    with _Opened(address, load, 1) as opened:
        (one,) = opened.connections
        start = clock() + 0.01
        while len(latencies) < total:
            now = clock()
            due = min(total, int((now - start) * rate) + 1) if now >= start else 0
            one.send(due - one.started)
            next_at = start + one.started / rate if one.started < total else now + _PATIENCE_S
            # Not the poll: that one rounds up to milliseconds.
            readable, _, _ = select.select([one.socket], [], [], max(0.0, next_at - clock()))
            if readable:
                done = one.receive()
                now = clock()
                first = len(latencies)
                latencies += [now - (start + number / rate) for number in range(first, first + done)]
            elif one.started == total:
                raise LoadFailed(f"no answer within {_PATIENCE_S:.0f} seconds")
        figures = opened.figures(clock() - start)
    figures.latencies_s = sorted(latencies)
    return figures
