"""A connection to a Kafka broker, ours or any other: requests out, answers back in the same order."""

from __future__ import annotations

import math
import socket
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar, cast

from foldlog.errors import MalformedBytes, RefusedByBroker
from foldlog.limits import ANSWER_BYTES_MAX, SESSION_SHARE_PERCENT, WRITER_ANSWER_MS
from foldlog.records.batch import MAX_INT32
from foldlog.wire.codec import Chunk
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import decode_response, encode_request, response_correlation_id
from foldlog.wire.messages import NAMES
from foldlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from foldlog.wire.schema import Request, Response

if TYPE_CHECKING:
    import ssl

Answer = TypeVar("Answer", bound=Response)

CLIENT_ID: Final = "foldlog"

_LENGTH: Final = struct.Struct(">i")
_WINDOW_BYTES: Final = 64 << 10
_FIRST_BYTES: Final = (1 << 20) + _WINDOW_BYTES  # a fetch of the usual size, and what stands around its records
_PARTS_MAX: Final = 64  # far below what sendmsg takes on any system


class FrameMemory:
    """Where large answers are received, one after the other: each stands where the one before it stood.

    Grows as bytes come, and not by what an answer declares; then it stays as large as the largest was.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def size_bytes(self) -> int:
        return len(self._buffer)

    def room(self, frame_bytes: int, held_bytes: int) -> memoryview:
        """Room for a frame, or for the next part of it, behind what is held of it already.

        What was in it of another frame is no longer to be used.
        """
        wanted_bytes = min(frame_bytes, max(_FIRST_BYTES, 2 * held_bytes))
        if len(self._buffer) < wanted_bytes:
            larger = bytearray(wanted_bytes)
            larger[:held_bytes] = memoryview(self._buffer)[:held_bytes]
            self._buffer = larger
        return memoryview(self._buffer)[:frame_bytes]


class AnswerStream:
    """Cuts what a socket brings into frames: small ones several to a system call, large ones straight to their place.

    One thread. TimeoutError leaves it as it is: what has come of a frame is kept. After any other error the stream
    cannot be read on. Holds no more of a frame than `frame_bytes_max`, and no more than twice of what has come of it.
    """

    def __init__(self, sock: socket.socket, frame_bytes_max: int) -> None:
        self._socket = sock
        self._frame_bytes_max = frame_bytes_max
        self._window = memoryview(bytearray(_WINDOW_BYTES))
        self._begin = 0
        self._end = 0
        self._memory = FrameMemory()  # of the frame that the window does not hold
        self._large: memoryview | None = None  # the room for it so far
        self._large_bytes = 0  # what has come of it
        self._frame_bytes = 0  # what it declares

    def next(self, timeout_s: float, memory: FrameMemory | None = None) -> memoryview:
        """The next frame without its length. A large one stands in `memory`, until the next is received there."""
        deadline_s = time.monotonic() + timeout_s
        while (frame := self._whole(memory)) is None:
            if self._large is None:
                self._end += self._receive(self._window[self._end :], deadline_s)
            else:
                self._large_bytes += self._receive(self._large[self._large_bytes :], deadline_s)
        return frame

    def _whole(self, memory: FrameMemory | None) -> memoryview | None:
        """The frame that has come, if it is all there; else makes room for more of it."""
        if self._large is not None:
            if self._large_bytes < len(self._large):
                return None
            if self._large_bytes < self._frame_bytes:
                self._large = self._memory.room(self._frame_bytes, self._large_bytes)
                return None
            frame, self._large = self._large, None
            return frame
        body = self._begin + _LENGTH.size
        if self._end >= body:
            (size,) = _LENGTH.unpack_from(self._window, self._begin)
            if not 0 <= size <= self._frame_bytes_max:
                reason = f"a length of {size}, over {self._frame_bytes_max} or negative; no Kafka broker answers so"
                raise MalformedBytes("frame", reason, 0)
            if self._end - body >= size:
                found = bytes(self._window[body : body + size])
                self._begin = body + size
                return memoryview(found)
            if size > _WINDOW_BYTES - _LENGTH.size:
                self._memory = memory or FrameMemory()
                self._large = self._memory.room(size, 0)
                self._frame_bytes, self._large_bytes = size, self._end - body
                self._large[: self._large_bytes] = self._window[body : self._end]
                self._begin = self._end = 0
                return None
        if self._begin:
            rest = bytes(self._window[self._begin : self._end])
            self._window[: len(rest)] = rest
            self._begin, self._end = 0, len(rest)
        return None

    def _receive(self, into: memoryview, deadline_s: float) -> int:
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        self._socket.settimeout(remaining_s)
        size = self._socket.recv_into(into)
        if not size:
            raise ConnectionError("it closed the connection")
        return size


class WireConnection:
    """One TCP connection, with TLS or without. One thread at a time may send, and one may receive, with TLS the same
    one; any may close it.

    What goes wrong with it is an OSError, or MalformedBytes; it is of no use afterwards.
    """

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        *,
        client_id: str = CLIENT_ID,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        timeout_ms: int = WRITER_ANSWER_MS,
        is_tls: bool = False,
    ) -> None:
        """`timeout_ms` is how long sending may take, and an answer if nobody says otherwise. `negotiate` comes next."""
        self.address: Final = address
        self._socket = sock
        self._client_id = client_id
        self._timeout_s = timeout_ms / 1000
        self._answers = AnswerStream(sock, answer_bytes_max)
        self._versions: dict[int, tuple[int, int]] = {}
        self._last_id = 0
        self._is_tls = is_tls
        self._fresh_until_s = math.inf
        # A timeout belongs to a socket object: with one for both, whoever sends would change how long another waits.
        self._outgoing = sock if is_tls else sock.dup()
        self._outgoing.settimeout(self._timeout_s)

    @staticmethod
    def dial(host: str, port: int, timeout_s: float, tls: ssl.SSLContext | None = None) -> socket.socket:
        """A connected socket; with `tls` after the handshake."""
        sock = socket.create_connection((host, port), timeout_s)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock if tls is None else tls.wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise

    def negotiate(self, timeout_s: float) -> None:
        """Learn which versions the broker has. Every broker knows version 0 of the question."""
        known = self._exchange(ApiVersionsRequest(), ApiVersionsResponse, 0, timeout_s)
        if known.error_code:
            raise ConnectionError(f"it answered {known.error_code} to ApiVersions")
        self._versions = {one.api_key: (one.min_version, one.max_version) for one in known.api_keys}

    def version_of(self, request: type[Request], at_most: int | None = None) -> int:
        """The newest version that both ends know, but none after `at_most`."""
        first, last = request.VERSIONS
        name = NAMES[request.API_KEY]
        there = self._versions.get(request.API_KEY)
        if there is None:
            raise RefusedByBroker(ErrorCode.UNSUPPORTED_VERSION, f"the broker at {self.address} does not serve {name}")
        chosen = min(last if at_most is None else at_most, there[1])
        if chosen < max(first, there[0]):
            raise RefusedByBroker(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.address} serves {name} in versions {there[0]} to {there[1]}, and this client"
                f" speaks {first} to {last if at_most is None else at_most}; use a broker of a nearer release",
            )
        return chosen

    def next_id(self) -> int:
        """The correlation id of the request that is sent next: its answer carries it."""
        self._last_id = (self._last_id + 1) & MAX_INT32
        return self._last_id

    def send(self, request: Request, version: int, correlation_id: int) -> None:
        """Returns once the system has taken all of it."""
        self._send_all(encode_request(request, version, correlation_id, self._client_id))

    def receive(self, timeout_s: float, memory: FrameMemory | None = None) -> memoryview:
        """The next answer; TimeoutError if it takes longer, which leaves the connection as it is."""
        return self._answers.next(timeout_s, memory)

    def call(
        self,
        request: Request,
        answer: type[Answer],
        timeout_s: float | None = None,
        at_most: int | None = None,
    ) -> Answer:
        """Ask, in no version after `at_most`, and wait. For a connection on which nothing else is under way."""
        return self.call_in(request, answer, self.version_of(type(request), at_most), timeout_s)

    def call_in(self, request: Request, answer: type[Answer], version: int, timeout_s: float | None = None) -> Answer:
        """`call` in a version that the caller has chosen with `version_of`."""
        return self._exchange(request, answer, version, self._timeout_s if timeout_s is None else timeout_s)

    def expire_after(self, lifetime_ms: int) -> None:
        """The broker closes it so long from now, if it is used then; zero or less: it does not."""
        if lifetime_ms > 0:
            self._fresh_until_s = time.monotonic() + lifetime_ms / 1000 * SESSION_SHARE_PERCENT / 100

    @property
    def is_expiring(self) -> bool:
        """Whether it is time to go on with another one, as soon as nothing is under way on this."""
        return time.monotonic() >= self._fresh_until_s

    def _exchange(self, request: Request, answer: type[Answer], version: int, timeout_s: float) -> Answer:
        correlation_id = self.next_id()
        self.send(request, version, correlation_id)
        frame = self.receive(timeout_s)
        if response_correlation_id(frame) != correlation_id:
            raise MalformedBytes("response", "it answers another request", 0)
        return decode_response(answer, version, frame)[1]

    def fileno(self) -> int:
        """For whoever waits for several connections at once; see `has_received`."""
        return self._socket.fileno()

    @property
    def has_received(self) -> bool:
        """Whether bytes have come that the system does not tell of any more: TLS has them."""
        return self._is_tls and cast("ssl.SSLSocket", self._socket).pending() > 0

    def is_closed_there(self) -> bool:
        """Whether the other end has closed it while nothing was under way, as it does after a long silence."""
        try:
            self._socket.setblocking(False)
            # Of the bytes below TLS, which has no way to look at them and leave them.
            return not socket.socket.recv(self._socket, 1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Wakes whoever waits for an answer. Closing twice is fine."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.abandon()

    def abandon(self) -> None:
        """In a forked child: let go of our copy, and leave the parent's connection as it is."""
        self._outgoing.close()
        self._socket.close()

    def _send_all(self, chunks: list[Chunk]) -> None:
        if self._is_tls:  # which cannot send parts, and has one timeout for both: nobody receives meanwhile
            self._outgoing.settimeout(self._timeout_s)
            self._outgoing.sendall(b"".join(chunks))
            return
        pending = [memoryview(chunk) for chunk in chunks]
        while pending:
            sent = self._outgoing.sendmsg(pending[:_PARTS_MAX])
            while pending and sent >= len(pending[0]):
                sent -= len(pending.pop(0))
            if sent:
                pending[0] = pending[0][sent:]
