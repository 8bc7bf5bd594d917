"""A Kafka broker inside a test's own process: a real one, on a real socket, gone when the test is done.

Importing this imports nothing of the broker: pytest loads the plugin in every run, even if no test uses one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self
from weakref import WeakValueDictionary

from foldlog.errors import FoldlogError, InvalidArgument, LogClosed, brief_repr

if TYPE_CHECKING:
    import socket

    import foldlog.broker.broker
    from foldlog.client.descriptions import Topic
    from foldlog.client.log import Log
    from foldlog.files.base import Files
    from foldlog.server.config.settings import ServerSettings
    from foldlog.server.embedded import EmbeddedServer
    from foldlog.testing.broker_files import FullDisk
    from foldlog.testing.faults import Faults, RequestFault

MEMORY = ":memory:"
_HOST = "127.0.0.1"
_OVER = "the broker ended with its with block (a fixture's with its scope); launch() another one"

_CLOCK_MAX_S = 100 * 365 * 24 * 3600
_CLOCK_ROUNDS = 8

_ALL: WeakValueDictionary[int, KafkaBroker] = WeakValueDictionary()
"""The brokers of this process, by their identity: they are equal where their addresses are."""


class KafkaBroker(str):
    """The address of a broker that runs in a thread of this process, and the broker itself. `Broker` is its short name.

    It is a str, "127.0.0.1:port", so it goes wherever a client wants bootstrap servers. Any thread may call it. Making
    one reserves the port; it runs in a `with` or `async with` block, or from `start` to `stop`. `stop` and `start`
    simulate a broker that goes away and comes back on the same port with everything that was acknowledged; in memory
    nothing outlives the object. After its `with` block it cannot be started again. In another process it is only the
    address: a pickled broker is a plain str.

    >>> from foldlog.testing import Broker
    >>> with Broker({"num.partitions": 3}) as broker:
    ...     broker.host, broker.log.topics()
    ('127.0.0.1', [])
    """

    host: str
    port: int
    _kept: list[socket.socket]
    _registry_port: int
    _properties: dict[str, object]
    _path: str
    _process: _Process | None
    _log: Log | None
    _is_over: bool

    def __new__(
        cls,
        settings: Mapping[str, object] | None = None,
        *,
        path: str | os.PathLike[str] = MEMORY,
        registry: bool = False,
    ) -> Self:
        """A broker with Kafka's names for its settings, in memory or in a directory. It is not started yet. With
        `registry` it serves a schema registry, too: `schema_registry_url`."""
        port, kept = _free_port()
        registry_port, registry_kept = _free_port() if registry else (0, None)
        broker = super().__new__(cls, f"{_HOST}:{port}")
        broker.host, broker.port = _HOST, port
        broker._kept = [one for one in (kept, registry_kept) if one is not None]
        broker._registry_port = registry_port
        broker._properties = dict(settings or {})
        if registry:
            broker._properties["foldlog.registry"] = f"{_HOST}:{registry_port}"
        broker._path = os.fspath(path)
        broker._process = None
        broker._log = None
        broker._is_over = False
        _ALL[id(broker)] = broker
        return broker

    @classmethod
    def launch(
        cls,
        settings: Mapping[str, object] | None = None,
        *,
        path: str | os.PathLike[str] = MEMORY,
        registry: bool = False,
    ) -> KafkaBroker:
        """Start a broker on a free port, with Kafka's names for its settings, in memory or in a directory; with
        `registry` also its schema registry."""
        broker = cls(settings, path=path, registry=registry)
        try:
            broker.start()
        except BaseException:
            broker._leave()
            raise
        return broker

    @property
    def log(self) -> Log:
        """The log behind the broker, to prepare what a client reads or check what it wrote. A new one after `start`."""
        if self._log is None:
            raise LogClosed(_OVER if self._is_over else "the broker is stopped; start() it first")
        return self._log

    @property
    def schema_registry_url(self) -> str:
        """`schema.registry.url` for clients; the same after `start`. InvalidArgument without `registry=True`."""
        if not self._registry_port:
            raise InvalidArgument("this broker serves no schema registry; start it with registry=True")
        return f"http://{_HOST}:{self._registry_port}"

    @property
    def is_running(self) -> bool:
        return self._log is not None

    def get_bootstrap_server(self) -> str:
        """The address as a plain str, by the name that testcontainers' KafkaContainer has for it."""
        return str(self)

    def create_topic(
        self, name: str, partitions: int | None = None, config: Mapping[str, object] | None = None
    ) -> Topic:
        """Create a topic, by default with `num.partitions` partitions, before a client asks for it."""
        return self.log.create_topic(name, partitions or self._running.settings.num_partitions, config)

    # --- starting and stopping ----------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start, or start again, on the same port and with the same log. LogClosed after the end of the `with` block.

        A broker that runs is left alone."""
        if self._is_over:
            raise LogClosed(_OVER)
        if self._log is None:
            self._process = self._process or _Process(self._path, self._properties)
            self._log = self._process.open(self.port)
        return self

    def stop(self) -> None:
        """Stop: clients are disconnected, and cannot connect until `start`. What was acknowledged is kept."""
        if self._log is not None:
            log, self._log = self._log, None
            self._running.faults.let_go()
            log.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """End as after `kill -9`: nothing is answered, synced or closed any more. `start` recovers the log.

        What was written is there, as the machine goes on; what was acknowledged is."""
        if self._log is not None:
            log, self._log = self._log, None
            self._running.kill(log)

    def kill_and_restart(self) -> None:
        """`kill`, and `start` on the same port: the log is recovered, and clients connect again."""
        self.kill()
        self.start()

    # --- faults on request --------------------------------------------------------------------------------------------

    def fail(
        self,
        api: str,
        *,
        error: str | int,
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> RequestFault:
        """Answer the next `times` requests of an API with an error; they have no effect. None for every request.

        `api` and `error` are Kafka's names, such as `Produce` and `NOT_LEADER_OR_FOLLOWER`; or the error's code. With
        `topic` only requests that name the topic, with `client_id` only those of that client. All that a request names
        gets the error."""
        return self._running.faults.fail(api, error, times, topic, client_id)

    def delay(
        self,
        api: str,
        seconds: float,
        *,
        times: int | None = None,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> RequestFault:
        """Let requests of an API wait before they have their effect, and with them what follows on the connection."""
        return self._running.faults.delay(api, seconds, times, topic, client_id)

    def drop_connection(
        self,
        api: str,
        *,
        when: Literal["before", "after"] = "before",
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> RequestFault:
        """Close the connection on which a request of this API comes, `times` times.

        `when="before"`: the request has no effect. `when="after"`: it has its effect, and the client does not learn of
        it."""
        return self._running.faults.drop(api, when, times, topic, client_id)

    def pause(self) -> RequestFault:
        """Answer no request that comes from now on, until `resume` or the end of the `with` block. Connections stay.

        The broker's timers go on: a group may lose its members meanwhile."""
        return self._running.faults.pause()

    def resume(self) -> None:
        """End every `pause`: what came meanwhile is answered."""
        self._running.faults.resume()

    def disk_full(self) -> FullDisk:
        """Fill the disk until the end of the `with` block, or `clear`: what needs space fails as on a full disk."""
        return self._running.disk.fill()

    def move_clock(self, by: float | timedelta) -> None:
        """Move the broker's clock, by seconds or a timedelta, and do what is due then before returning.

        So retention removes records, members and transactions time out, and offsets expire. Backward only the time of
        the day moves. The time of the day is right again in the next test; clients have their own clocks."""
        self._running.move_clock(by)

    def clear_faults(self) -> None:
        """End every fault, and set the clock right. The fixture does this at the end of each test."""
        if self._process is not None:
            self._process.clear_faults()

    @property
    def _running(self) -> _Process:
        if self._process is None:
            raise LogClosed("the broker is not started; start() it first")
        return self._process

    # --- ending -------------------------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """The broker is a thread of this process; another process can only use its address."""
        return str, (str(self),)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    async def __aenter__(self) -> Self:
        from asyncio import to_thread

        return await to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from asyncio import to_thread

        await to_thread(self._leave)

    def _leave(self) -> None:
        self._is_over = True
        self.stop()
        for one in self._kept:
            one.close()


Broker = KafkaBroker


def clear_all_faults() -> None:
    """End the faults of every broker of this process."""
    for broker in list(_ALL.values()):
        broker.clear_faults()


def _free_port() -> tuple[int, socket.socket | None]:
    """A free port, and what keeps it: nobody else is given it while the broker is away, where the system lets two
    sockets have one of which only the second listens; None elsewhere. Who connects to that one alone is refused."""
    import socket

    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind((_HOST, 0))
    port: int = kept.getsockname()[1]
    if sys.platform != "linux":
        kept.close()
        return port, None
    return port, kept


class _Process:
    """What a test's broker is opened with, the first time and again, and what the test does to it."""

    def __init__(self, path: str, properties: Mapping[str, object]) -> None:
        from foldlog.files.memory import MemoryFiles
        from foldlog.files.posix import PosixFiles
        from foldlog.server.config.settings import ServerSettings
        from foldlog.testing.broker_files import FullDisk, ProcessFiles
        from foldlog.testing.faults import Faults
        from foldlog.testing.sim_clock import MovedClock

        self.settings: ServerSettings = ServerSettings.parse({**properties, "listeners": f"{_HOST}:0"})
        self.disk = FullDisk()
        self.faults = Faults(self._intercept)
        self._clock = MovedClock()
        self._path = path if path == MEMORY else PosixFiles.from_root(path)
        # Kept here, so that a log in memory survives its broker.
        self._below: Files = MemoryFiles() if path == MEMORY else PosixFiles()
        self._files = ProcessFiles(self._below, self.disk)
        self._broker: foldlog.broker.broker.Broker | None = None
        self._server: EmbeddedServer | None = None

    def open(self, port: int) -> Log:
        from foldlog.broker.broker import Broker
        from foldlog.broker.tiers import TierSettings
        from foldlog.client.backends.local import LocalBackend
        from foldlog.client.log import Log
        from foldlog.server.embedded import EmbeddedServer
        from foldlog.testing.broker_files import ProcessFiles

        (listener,) = self.settings.listeners
        settings = replace(self.settings, listeners=(listener._replace(port=port),))
        self._files = ProcessFiles(self._below, self.disk)
        broker = Broker.open(
            self._path,
            files=self._files,
            clock=self._clock,
            topic_defaults=settings.topic_defaults,
            group_settings=settings.group_settings(),
            transaction_settings=settings.transaction_settings(),
            offsets_retention_ms=settings.offsets_retention_ms,
            offset_metadata_bytes_max=settings.offset_metadata_max_bytes,
            compaction_threads=settings.log_cleaner_threads,
            journal=settings.journal_enable,
            tier=TierSettings(settings.tier, settings.tier_cache_bytes),
        )
        backend = LocalBackend(broker, self._files)
        log = Log(backend)
        try:
            for wanted in settings.create_topics:
                if broker.find_topic(wanted.name) is None:
                    broker.create_topic(wanted.name, wanted.partitions or settings.num_partitions)
            self._server = EmbeddedServer(broker, settings)
            backend.listen_through(self._server)
        except BaseException:
            log.close()
            raise
        self._broker = broker
        self.faults.started()
        return log

    def kill(self, log: Log) -> None:
        if self._server is not None:
            self._server.abort(self._files.kill)
        self.faults.let_go()
        # Its threads end, and its files are closed; nothing that it tries to write is written.
        with suppress(FoldlogError, OSError):
            log.close()

    def move_clock(self, by: float | timedelta) -> None:
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if type(seconds) not in (int, float) or not abs(seconds) <= _CLOCK_MAX_S:
            raise InvalidArgument(f"move_clock({brief_repr(by)}) is neither seconds nor a timedelta")
        self._clock.move(round(seconds * 1000))
        broker = self._broker
        if broker is not None and not self._files.is_dead:
            # What is done may make something else due; a few rounds, as some jobs are always due soon.
            for _ in range(_CLOCK_ROUNDS):
                if not broker.run_due():
                    break

    def clear_faults(self) -> None:
        self.faults.clear()
        self.disk.clear()
        self._clock.set_right()

    def _intercept(self, faults: Faults | None) -> None:
        if self._server is not None:
            self._server.intercept(faults)
