"""A wire between client and broker that fails where a test wants it to.

It passes Kafka's frames on, both ways, and asks before each Produce request what shall go wrong with it; or it throws
away answers to whatever is asked, after so many bytes. Clients have to come through it: its address is what the broker
advertises.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from enum import Enum

PRODUCE_KEY = 0

_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">hhi")
"""API key, version and correlation id: how every request begins."""


class Fault(Enum):
    """What can happen to one request. After each but DOUBLED the connection is gone, for the client and the broker."""

    REQUEST_LOST = "cut before the request was sent on"
    REQUEST_TORN = "cut in the middle of the request"
    ANSWER_LOST = "cut after the broker answered, before the client heard of it"
    ANSWER_TORN = "cut in the middle of the answer"
    DOUBLED = "the broker got the request twice; the client gets the first answer"


NextFault = Callable[[], Fault | None]


class CuttingProxy:
    """Listens at once; `towards` says where to. Any thread; it has two of its own for each connection.

    `faults` counts what was done, `doubled_answers` has both answers to each request that the broker got twice. While
    there are `cuts_left`, a connection that has sent `cut_after_bytes` is cut after the broker did what it asked, and
    before the client hears of it. `is_mute`: answers are thrown away, and nothing is cut.
    """

    def __init__(self, next_fault: NextFault = lambda: None) -> None:
        self.next_fault = next_fault
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target: tuple[str, int] | None = None
        self._changing = threading.Lock()
        self._connections: set[_Connection] = set()
        self._is_refusing = False
        self.cut_after_bytes = 0
        self.cuts_left = 0
        self.is_mute = False
        self.faults: Counter[Fault] = Counter()
        self.doubled_answers: list[tuple[bytes, bytes]] = []
        self._accepting = threading.Thread(target=self._accept, name="proxy", daemon=True)

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def towards(self, target: tuple[str, int]) -> None:
        self._target = target
        self._accepting.start()

    def vanish(self) -> None:
        """Cut everything, and accept nothing more: for the broker, the clients are gone without a word."""
        with self._changing:
            self._is_refusing = True
            connections = list(self._connections)
        for connection in connections:
            connection.cut()

    def come_back(self) -> None:
        """Accept connections again."""
        with self._changing:
            self._is_refusing = False

    def close(self) -> None:
        self.vanish()
        self._listener.close()

    def plan(self, key: int, sent_bytes: int | None) -> Fault | None:
        """What shall happen to a request, with which its connection has sent so much; None if it will be cut anyway."""
        with self._changing:
            if self.cuts_left and sent_bytes is not None and sent_bytes >= self.cut_after_bytes:
                self.cuts_left -= 1
                return Fault.ANSWER_LOST
            return self.next_fault() if key == PRODUCE_KEY else None

    def happened(self, fault: Fault) -> None:
        with self._changing:
            self.faults[fault] += 1

    def forget(self, connection: _Connection) -> None:
        with self._changing:
            self._connections.discard(connection)

    def _accept(self) -> None:
        assert self._target is not None
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            with self._changing:
                if self._is_refusing:
                    client.close()
                    continue
                connection = _Connection(self, client, socket.create_connection(self._target))
                self._connections.add(connection)
            connection.start()


class _Connection:
    """One client's connection and the broker's side of it, with a thread for each direction."""

    def __init__(self, proxy: CuttingProxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._broker = broker
        # What is planned for requests that wait for their answers; each is known before its request is sent on.
        self._planned: dict[int, Fault] = {}
        self._first_answers: dict[int, bytes] = {}
        for one in (client, broker):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        for pump in (self._requests, self._answers):
            threading.Thread(target=self._run, args=(pump,), name="proxy-pump", daemon=True).start()

    def cut(self) -> None:
        for one in (self._client, self._broker):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is gone already

    def _run(self, pump: Callable[[], None]) -> None:
        try:
            pump()
        except OSError:
            pass  # either side closed
        finally:
            self.cut()
            self._proxy.forget(self)

    def _requests(self) -> None:
        sent_bytes, is_cut = 0, False
        while (frame := _frame(self._client)) is not None:
            key, _, correlation = _HEADER.unpack_from(frame, _LENGTH.size)
            sent_bytes += len(frame)
            fault = self._proxy.plan(key, None if is_cut else sent_bytes)
            is_cut = is_cut or fault is Fault.ANSWER_LOST
            if fault is Fault.REQUEST_LOST:
                self._proxy.happened(fault)
                return
            if fault is Fault.REQUEST_TORN:
                self._broker.sendall(frame[: len(frame) // 2])
                self._proxy.happened(fault)
                return
            if fault is not None:
                self._planned[correlation] = fault
            self._broker.sendall(frame)
            if fault is Fault.DOUBLED:
                self._broker.sendall(frame)

    def _answers(self) -> None:
        while (frame := _frame(self._broker)) is not None:
            (correlation,) = _LENGTH.unpack_from(frame, _LENGTH.size)
            first = self._first_answers.pop(correlation, None)
            if first is not None:
                self._proxy.doubled_answers.append((first, frame))
                self._proxy.happened(Fault.DOUBLED)
                continue
            fault = self._planned.pop(correlation, None)
            if fault is Fault.ANSWER_LOST:
                self._proxy.happened(fault)
                return
            if fault is Fault.ANSWER_TORN:
                self._client.sendall(frame[: len(frame) // 2])
                self._proxy.happened(fault)
                return
            if fault is Fault.DOUBLED:
                self._first_answers[correlation] = frame
            if not self._proxy.is_mute:
                self._client.sendall(frame)


def _frame(source: socket.socket) -> bytes | None:
    """The next frame with its length before it; None at the end of the stream."""
    prefix = _exactly(source, _LENGTH.size)
    if prefix is None:
        return None
    body = _exactly(source, _LENGTH.unpack(prefix)[0])
    return None if body is None else prefix + body


def _exactly(source: socket.socket, count: int) -> bytes | None:
    pieces = bytearray()
    while len(pieces) < count:
        piece = source.recv(min(count - len(pieces), 1 << 16))
        if not piece:
            return None
        pieces += piece
    return bytes(pieces)
