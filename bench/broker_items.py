"""How long one request with very many items holds the broker's event loop, so that nobody else is answered.

A second connection asks ApiVersions all the while: its slowest answer is what the others would have waited. Every API
whose requests have arrays is asked, with as many items as the decoder takes.
"""

from __future__ import annotations

import socket
import struct
import threading
import time

from bench import broker_process
from bench.broker_load import CLIENT_ID, CORRELATION_ID, connect
from bench.many_items import PARTITIONS, TOPIC, apis, request_with, version_of
from bench.measuring import FULL, Place, Scale
from bench.table import Table, duration

from foldlog.limits import REQUEST_ITEMS_MAX
from foldlog.wire.decoding import ITEMS_MAX
from foldlog.wire.frames import encode_request
from foldlog.wire.messages import NAMES, api_versions
from foldlog.wire.schema import Request

_TARGET_S = 0.05
_PAUSE_S = 0.0005
_PATIENCE_S = 120.0
_ROOM = 10
"""Items for the structs around the many."""

_ONE_BY_ONE = {33: 20_000, 44: 20_000}
"""Changes of settings wait for a thread each: the most would take half a minute, and nobody waits for them."""

_LENGTH = struct.Struct(">i")


class Bystander:
    """A client that asks all the while, on a thread of its own, and notes the slowest answer."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = connect(address)
        self._frame = _framed(api_versions.ApiVersionsRequest(), 3)
        self._is_over = False
        self._begins = threading.Event()
        self.slowest_s = 0.0
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        while not self._is_over:
            if not self._begins.is_set():
                self.slowest_s = 0.0
                self._begins.set()
            began = time.perf_counter()
            self._socket.sendall(self._frame)
            _take(self._socket)
            self.slowest_s = max(self.slowest_s, time.perf_counter() - began)
            time.sleep(_PAUSE_S)

    def begin(self) -> None:
        """Forget what was, also the answer that is on its way: this process may have been busy itself."""
        self._begins.clear()
        self._begins.wait()

    def close(self) -> None:
        self._is_over = True
        self._thread.join()
        self._socket.close()


def _framed(request: Request, version: int) -> bytes:
    return b"".join(encode_request(request, version, CORRELATION_ID, CLIENT_ID))


def _take(opened: socket.socket) -> None:
    (left,) = _LENGTH.unpack(opened.recv(_LENGTH.size))
    while left > 0:
        left -= len(opened.recv(min(left, 1 << 20)))


def run(place: Place, scale: Scale) -> Table:
    path = place.fresh()
    lines = []
    with broker_process.running(path / "log") as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        bystander = Bystander(broker.address)
        for api_key in apis():
            most = ITEMS_MAX.get(api_key, REQUEST_ITEMS_MAX) - _ROOM
            count = _ONE_BY_ONE.get(api_key, most) if scale is FULL else 100
            frame = _framed(request_with(api_key, count), version_of(api_key))
            with connect(broker.address) as opened:
                opened.settimeout(_PATIENCE_S)
                bystander.begin()
                began = time.perf_counter()
                opened.sendall(frame)
                _take(opened)
                took_s = time.perf_counter() - began
            held_s = bystander.slowest_s
            met = "yes" if held_s <= _TARGET_S else "**no**"
            lines.append([NAMES[api_key], f"{count:,}", duration(held_s), duration(took_s), met])
        bystander.close()
    place.give_back(path)
    head = ["request", "items", "others wait at most", "its own answer", "<= 50 ms"]
    notes = ["Others ask ApiVersions all the while. The items are the most that a request of this API may have."]
    return Table("How long the largest requests hold the loop", head, lines, notes)
