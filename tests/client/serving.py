"""A served directory for tests: in this process, in another one, and behind a proxy that cuts connections."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

WAIT_S = 60.0
"""How long a test waits for another process or thread before it fails; nothing is expected to take this long."""

SERVE = """
import foldlog
log = foldlog.open(sys.argv[1], listen=True)
say(log.bootstrap)
sys.stdin.readline()
log.close()
say("closed")
"""
"""A program that serves its directory until it is told a line."""


def wait_until(is_so: Callable[[], bool], step: Callable[[], object]) -> None:
    """Take steps until it is so."""
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s, "it never came to be so"
        step()


class CuttingProxy:
    """Passes bytes between clients and a broker, and cuts connections on request.

    What a connection sent before it is cut reaches the broker, and its answers are thrown away: the client cannot know
    whether it was carried out.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()
        self.cut_after_bytes = 0  # of one connection, to the broker
        self.cuts_left = 0
        self.is_mute = False  # whether answers are thrown away, and nothing is closed
        self._sockets: list[socket.socket] = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                broker = socket.create_connection(self._target)
                self._sockets += [client, broker]
                link = _Link(self, client, broker)
                for run in (link.up, link.down):
                    threading.Thread(target=run, daemon=True).start()


class _Link:
    def __init__(self, proxy: CuttingProxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._broker = broker
        self._up_bytes = 0
        self._is_cut = False

    def up(self) -> None:
        with suppress(OSError):
            while data := self._client.recv(1 << 16):
                self._up_bytes += len(data)
                if self._proxy.cuts_left and not self._is_cut and self._up_bytes >= self._proxy.cut_after_bytes:
                    self._proxy.cuts_left -= 1
                    self._is_cut = True
                self._broker.sendall(data)
        self._end()

    def down(self) -> None:
        with suppress(OSError):
            while data := self._broker.recv(1 << 16):
                if self._is_cut:
                    break
                if not self._proxy.is_mute:
                    self._client.sendall(data)
        self._end()

    def _end(self) -> None:
        for one in (self._client, self._broker):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
