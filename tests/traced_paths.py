"""The files that an append, a produce request and a woken fetch enter, traced in this process.

A profiler sees every call of a Python function; compiled modules do not show. Each path is walked a few
times before it is traced: what runs once (imports, the first use of a connection) is not part of the way.
Then it is traced some times, and the shortest counts: a timer that comes in between only adds to it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, cast

import foldlog
from foldlog.broker.broker import Broker
from foldlog.log.partition import Partition
from foldlog.server.config.settings import ServerSettings
from foldlog.server.node import BrokerNode
from foldlog.server.server import Server
from foldlog.wire.messages.fetch import FetchResponse
from server.raw_client import RawClient, batch, fetch, produce

_SOURCE = f"{Path(foldlog.__file__).parent}/"
_WALKS_BEFORE = 20
_WALKS_TRACED = 3
_PRODUCE_VERSION = 9
_FETCH_VERSION = 12
_WAIT_MS = 20_000
_TIMEOUT_S = 30.0


@dataclass
class TracedPath:
    """What one thread entered, in order: a file each time a function of it is called after one of another file."""

    steps: list[str] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        """Each file once, in the order of the first visit, as its path below src/foldlog."""
        return list(dict.fromkeys(self.steps))

    @property
    def switches(self) -> int:
        return max(0, len(self.steps) - 1)

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(_SOURCE):
            file = name.removeprefix(_SOURCE)
            if not self.steps or self.steps[-1] != file:
                self.steps.append(file)


class _LoopProfiler:
    """Traces the thread of the server's loop, when asked to: it is started with this profiler."""

    def __init__(self) -> None:
        self.path: TracedPath | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.path is not None and threading.current_thread().name == "foldlog-server":
            self.path.profile(frame, event, argument)


@dataclass
class _Served:
    """A broker that is served, its one partition, and a connection to it."""

    partition: Partition
    node: BrokerNode
    client: RawClient

    def wait_for_loop(self) -> None:
        """Until the loop has done what it was to do by now: it goes on for a moment after an answer is sent."""
        is_done = threading.Event()
        self.node.loop.call_soon_threadsafe(self.node.loop.call_soon, is_done.set)
        if not is_done.wait(_TIMEOUT_S):
            raise TimeoutError("the server's loop does not come to an end")

    def wait_for_delayed_fetch(self) -> None:
        """Until the fetch that was sent waits for the partition."""
        while not self.node.fetch_purgatory.are_awaited(self.partition):
            self.wait_for_loop()


def append(directory: Path) -> TracedPath:
    """`log.append` of one record, on the caller's thread, until it is durable."""
    found: list[TracedPath] = []
    with foldlog.open(directory) as log:
        log.create_topic("orders", 1)
        for _ in range(_WALKS_BEFORE):
            log.append("orders", "value", key="key")
        for _ in range(_WALKS_TRACED):
            found.append(TracedPath())
            sys.setprofile(found[-1].profile)
            try:
                log.append("orders", "value", key="key")
            finally:
                sys.setprofile(None)
    return _shortest(found)


def produce_request(directory: Path) -> TracedPath:
    """A Produce request of one small batch with acks=all, on the server's loop, from its bytes to its answer's."""

    def walk(served: _Served) -> None:
        served.client.ask(produce(batch(b"value")), _PRODUCE_VERSION)

    return _on_the_loop(directory, walk)


def woken_fetch(directory: Path) -> TracedPath:
    """A Fetch request at the end of a partition, on the server's loop: it waits, a record comes, it is answered."""

    def walk(served: _Served) -> None:
        partition = served.partition
        served.client.send(fetch(partition.log_end_offset, max_wait_ms=_WAIT_MS), _FETCH_VERSION)
        served.wait_for_delayed_fetch()
        partition.wait_acknowledged(partition.append(batch(b"value")).next_offset)
        served.client.receive(FetchResponse, _FETCH_VERSION)

    return _on_the_loop(directory, walk)


def _on_the_loop(directory: Path, walk: Callable[[_Served], None]) -> TracedPath:
    profiler = _LoopProfiler()
    found: list[TracedPath] = []
    with Broker.open(str(directory)) as broker:
        broker.create_topic("orders", partitions=1)
        threading.setprofile(profiler)
        try:
            server = Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"}))
        finally:
            threading.setprofile(None)
        with server:
            client = RawClient(server.addresses[0])
            node = cast(BrokerNode, server._node)
            served = _Served(cast(Partition, broker.partition("orders", 0)), node, client)
            for _ in range(_WALKS_BEFORE):
                walk(served)
            for _ in range(_WALKS_TRACED):
                served.wait_for_loop()
                profiler.path = TracedPath()
                walk(served)
                served.wait_for_loop()
                found.append(profiler.path)
                profiler.path = None
            client.close()
    return _shortest(found)


def _shortest(found: list[TracedPath]) -> TracedPath:
    return min(found, key=lambda path: len(path.steps))
