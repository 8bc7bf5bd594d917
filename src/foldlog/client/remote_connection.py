"""A connection to the process that serves a directory: requests out, answers back in the same order."""

from __future__ import annotations

import socket
import time
from collections import deque
from contextlib import suppress
from typing import TypeVar

from foldlog.errors import MalformedBytes
from foldlog.files.holder import WriterInfo
from foldlog.limits import ANSWER_BYTES_MAX, WRITER_ANSWER_MS
from foldlog.records.batch import MAX_INT32
from foldlog.wire.codec import Chunk
from foldlog.wire.frames import FrameReader, decode_response, encode_request, response_correlation_id
from foldlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from foldlog.wire.messages.metadata import MetadataRequest, MetadataResponse
from foldlog.wire.schema import Request, Response

Answer = TypeVar("Answer", bound=Response)

CLIENT_ID = "foldlog"

_RECEIVE_BYTES = 64 << 10
_PARTS_MAX = 64  # far below what sendmsg takes on any system


class Connection:
    """One TCP connection. One thread at a time may send, and one may receive; any may close it.

    What goes wrong with it is an OSError, or MalformedBytes; it is of no use afterwards.
    """

    def __init__(self, sock: socket.socket, holder: WriterInfo) -> None:
        """Use `Connection.open`."""
        self.holder = holder
        self._socket = sock
        self._frames = FrameReader(ANSWER_BYTES_MAX)
        self._received: deque[bytes] = deque()
        self._last_versions: dict[int, int] = {}
        self._last_id = 0

    @classmethod
    def open(cls, holder: WriterInfo, directory_id: str, timeout_s: float) -> Connection:
        """Connect, and make sure that it is this directory that is served there: the lock file of a killed process
        may name a port that another one uses now.
        """
        host, _, port = (holder.address or "").rpartition(":")
        sock = socket.create_connection((host.strip("[]"), int(port)), timeout_s)
        connection = cls(sock, holder)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Every broker knows version 0; it tells which others this one has.
            known = connection._exchange(ApiVersionsRequest(), ApiVersionsResponse, 0, timeout_s)
            connection._last_versions = {one.api_key: one.max_version for one in known.api_keys}
            served = connection.call(MetadataRequest(allow_auto_topic_creation=False), MetadataResponse, timeout_s)
            if served.cluster_id != directory_id:
                raise ConnectionError(f"{holder.address} serves another directory")
        except BaseException:
            connection.close()
            raise
        return connection

    def version_of(self, request: type[Request]) -> int:
        """The newest version that both ends know."""
        known = self._last_versions.get(request.API_KEY)
        if known is None:
            raise ConnectionError(f"{self.holder.address} does not serve {request.__name__}")
        return min(known, request.VERSIONS[1])

    def next_id(self) -> int:
        """The correlation id of the request that is sent next: its answer carries it."""
        self._last_id = (self._last_id + 1) & MAX_INT32
        return self._last_id

    def send(self, request: Request, version: int, correlation_id: int) -> None:
        """Returns once the system has taken all of it."""
        self._send_all(encode_request(request, version, correlation_id, CLIENT_ID))

    def receive(self, timeout_s: float) -> bytes:
        """The next answer; TimeoutError if it takes longer, which leaves the connection as it is."""
        deadline_s = time.monotonic() + timeout_s
        while not self._received:
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0:
                raise TimeoutError
            self._socket.settimeout(remaining_s)
            data = self._socket.recv(_RECEIVE_BYTES)
            if not data:
                raise ConnectionError("it closed the connection")
            self._received.extend(self._frames.feed(data))
        return self._received.popleft()

    def call(self, request: Request, answer: type[Answer], timeout_s: float = WRITER_ANSWER_MS / 1000) -> Answer:
        """Ask and wait. For a connection on which nothing else is under way."""
        return self._exchange(request, answer, self.version_of(type(request)), timeout_s)

    def _exchange(self, request: Request, answer: type[Answer], version: int, timeout_s: float) -> Answer:
        correlation_id = self.next_id()
        self.send(request, version, correlation_id)
        frame = self.receive(timeout_s)
        if response_correlation_id(frame) != correlation_id:
            raise MalformedBytes("response", "it answers another request", 0)
        return decode_response(answer, version, frame)[1]

    def is_closed_there(self) -> bool:
        """Whether the other end has closed it while nothing was under way, as it does after a long silence."""
        try:
            self._socket.setblocking(False)
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Wakes whoever waits for an answer. Closing twice is fine."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def abandon(self) -> None:
        """In a forked child: let go of our copy, and leave the parent's connection as it is."""
        self._socket.close()

    def _send_all(self, chunks: list[Chunk]) -> None:
        self._socket.settimeout(WRITER_ANSWER_MS / 1000)
        pending = [memoryview(chunk) for chunk in chunks]
        while pending:
            sent = self._socket.sendmsg(pending[:_PARTS_MAX])
            while pending and sent >= len(pending[0]):
                sent -= len(pending.pop(0))
            if sent:
                pending[0] = pending[0][sent:]
