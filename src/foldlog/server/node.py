"""What all connections of a broker share: the log, the settings, and the ways between the loop and other threads."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from foldlog.server.authorizer import AllowEverything, Authorizer

if TYPE_CHECKING:
    from foldlog.broker.broker import Broker
    from foldlog.broker.open_partitions import AnyPartition
    from foldlog.server.metrics import Metrics
    from foldlog.server.settings import ServerSettings

Result = TypeVar("Result")

_WORKERS: Final = 8
"""Threads for what waits for the disk: opening partitions, creating topics, cold reads."""


class Node:
    """One broker, as its handlers see it. Everything here is the event loop's, but for `soon`, which is anybody's."""

    def __init__(
        self,
        broker: Broker,
        settings: ServerSettings,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.broker = broker
        self.settings = settings
        self.metrics = metrics
        self.loop = loop
        self.clock = broker.clock
        self.authorizer = authorizer or AllowEverything()
        self.cluster_id = broker.directory_id
        self.topic_ids = TopicIds(broker)
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="foldlog-worker")
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_scheduled = False

    def run(self, function: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]:
        """Call it on a thread: for what may wait for the disk or a lock."""
        return self.loop.run_in_executor(self._workers, function, *arguments)

    def soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Call it on the event loop, from any thread. Calls that come together share one wake-up of the loop."""
        self._calls.append((callback, arguments))
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon_threadsafe(self._run_calls)

    def _run_calls(self) -> None:
        # Before the first is taken: what is added from here on schedules another run.
        self._is_scheduled = False
        calls = self._calls
        while calls:
            callback, arguments = calls.popleft()
            callback(*arguments)

    def open_partition(self, topic: str, number: int) -> AnyPartition | None:
        """The partition if it is open already; None if it has to be opened, on a thread: `run(broker.partition, …)`."""
        return self.broker.opened_partition(topic, number)

    def close(self) -> None:
        self._workers.shutdown(wait=True, cancel_futures=True)


class TopicIds:
    """Topics by the id that newer clients name them with. The catalog knows them by name."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._names: dict[bytes, str] = {}

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic's name, or None if there is no topic with that id (any more)."""
        name = self._names.get(topic_id)
        if name is not None and self._is(name, topic_id):
            return name
        # Not known, deleted or made again under its name: look at all, it is rare.
        self._names = {self.id_of(name): name for name in self._broker.topics(include_internal=True)}
        return self._names.get(topic_id)

    def id_of(self, name: str) -> bytes:
        """UnknownTopic if there is none of that name."""
        return bytes.fromhex(self._broker.topic(name).topic_id)

    def _is(self, name: str, topic_id: bytes) -> bool:
        topic = self._broker.find_topic(name)
        return topic is not None and bytes.fromhex(topic.topic_id) == topic_id
