"""Who looks for the leader of a partition and connects to it while others read on: a thread for each search, and a bell
that it rings when it is over.

A host that is gone may take as long as socket.connection.setup.timeout.ms to be missed, and nobody waits for that but
those who want something of it.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from foldlog.client.cluster_links import ClusterLinks, Place
from foldlog.client.wire_connection import WireConnection

THREAD_NAME: Final = "foldlog-leader-search"

_DRAIN_BYTES: Final = 4096


class Bell:
    """Wakes whoever waits for several connections at once: for a selector it is one of them. Any thread may ring it,
    also after it was closed."""

    def __init__(self) -> None:
        self._heard, self._rung = socket.socketpair()
        self._heard.setblocking(False)
        self._rung.setblocking(False)
        # A number that is free again may be another file's: nobody rings while it is closed.
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._heard.close()
            self._rung.close()

    def fileno(self) -> int:
        return self._heard.fileno()

    def ring(self) -> None:
        with self._lock, suppress(OSError):  # it is closed, or has been rung more often than anybody could miss
            self._rung.send(b"!")

    def quieten(self) -> None:
        """Before looking what it was rung for."""
        with suppress(BlockingIOError):
            self._heard.recv(_DRAIN_BYTES)


class LeaderSearch:
    """One search, on a thread of its own, which does not keep the process from ending. To be asked by one thread."""

    def __init__(self, links: ClusterLinks, topic: str, partition: int, bell: Bell) -> None:
        self._links = links
        self._topic = topic
        self._partition = partition
        self._bell = bell
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._outcome: tuple[Place, WireConnection] | BaseException | None = None
        threading.Thread(target=self._run, name=THREAD_NAME, daemon=True).start()

    @property
    def is_over(self) -> bool:
        return self._outcome is not None

    def result(self) -> tuple[Place, WireConnection]:
        """Once it is over: the leader, and a connection for the caller alone; or what came up is raised."""
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        if self._outcome is None:
            raise RuntimeError("the search for a leader is not over")
        return self._outcome

    def abandon(self) -> None:
        """Nobody will ask for the result."""
        with self._lock:
            self._is_abandoned = True
            self._let_go()

    def _run(self) -> None:
        outcome: tuple[Place, WireConnection] | BaseException
        try:
            outcome = self._links.reach(self._topic, self._partition)
        except BaseException as error:  # noqa: BLE001 whoever asks for the result gets it
            outcome = error
        with self._lock:
            self._outcome = outcome
            if self._is_abandoned:
                self._let_go()
        self._bell.ring()

    def _let_go(self) -> None:
        if isinstance(self._outcome, tuple):
            place, connection = self._outcome
            self._links.give_back(place.address, connection)
