"""A Kafka broker inside a test's own process: a real one, on a real socket, gone when the test is done.

Importing this imports nothing of the broker: pytest loads the plugin in every run, even if no test uses one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from foldlog.errors import LogClosed

if TYPE_CHECKING:
    import socket

    from foldlog.client.descriptions import Topic
    from foldlog.client.log import Log
    from foldlog.files.base import Files
    from foldlog.server.config.settings import ServerSettings

MEMORY = ":memory:"
_HOST = "127.0.0.1"
_OVER = "the broker ended with its with block (a fixture's with its scope); launch() another one"


class KafkaBroker(str):
    """The address of a broker that runs in a thread of this process, and the broker itself.

    It is a str, "127.0.0.1:port", so it goes wherever a client wants bootstrap servers. Any thread may call it. `stop`
    and `start` simulate a broker that goes away and comes back on the same port with everything that was acknowledged;
    in memory nothing outlives the object. After its `with` block it cannot be started again. In another process it is
    only the address: a pickled broker is a plain str.

    >>> from foldlog.testing import KafkaBroker
    >>> with KafkaBroker.launch({"num.partitions": 3}) as broker:
    ...     broker.host, broker.log.topics()
    ('127.0.0.1', [])
    """

    host: str
    port: int
    _kept: socket.socket | None
    _opening: _Opening
    _log: Log | None
    _is_over: bool

    @classmethod
    def launch(
        cls, settings: Mapping[str, object] | None = None, *, path: str | os.PathLike[str] = MEMORY
    ) -> KafkaBroker:
        """Start a broker on a free port, with Kafka's names for its settings, in memory or in a directory."""
        opening = _Opening(os.fspath(path), settings or {})
        kept = _kept_port()
        try:
            log = opening.open(port=0 if kept is None else kept.getsockname()[1])
        except BaseException:
            if kept is not None:
                kept.close()
            raise
        broker = cls(log.bootstrap)
        broker.host, _, port = broker.rpartition(":")
        broker.port = int(port)
        broker._kept = kept
        broker._opening = opening
        broker._log = log
        broker._is_over = False
        return broker

    @property
    def log(self) -> Log:
        """The log behind the broker, to prepare what a client reads or check what it wrote. A new one after `start`."""
        if self._log is None:
            raise LogClosed(_OVER if self._is_over else "the broker is stopped; start() it first")
        return self._log

    @property
    def is_running(self) -> bool:
        return self._log is not None

    def create_topic(
        self, name: str, partitions: int | None = None, config: Mapping[str, object] | None = None
    ) -> Topic:
        """Create a topic, by default with `num.partitions` partitions, before a client asks for it."""
        return self.log.create_topic(name, partitions or self._opening.settings.num_partitions, config)

    def stop(self) -> None:
        """Stop: clients are disconnected, and cannot connect until `start`. What was acknowledged is kept."""
        if self._log is not None:
            log, self._log = self._log, None
            log.close()

    def start(self) -> None:
        """Start again, on the same port and with the same log. LogClosed after the end of the `with` block."""
        if self._is_over:
            raise LogClosed(_OVER)
        if self._log is None:
            self._log = self._opening.open(self.port)

    def restart(self) -> None:
        self.stop()
        self.start()

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """The broker is a thread of this process; another process can only use its address."""
        return str, (str(self),)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        self.stop()
        if self._kept is not None:
            self._kept.close()


def _kept_port() -> socket.socket | None:
    """A free port that nobody else is given while the broker is away, where the system lets two sockets have one of
    which only the second listens; None elsewhere. Who connects to this one alone is refused."""
    if sys.platform != "linux":
        return None
    import socket

    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind((_HOST, 0))
    return kept


class _Opening:
    """The arguments to open a broker with, the first time and again."""

    def __init__(self, path: str, properties: Mapping[str, object]) -> None:
        from foldlog.files.memory import MemoryFiles
        from foldlog.server.config.settings import ServerSettings

        self.settings: ServerSettings = ServerSettings.parse({**properties, "listeners": f"{_HOST}:0"})
        self._path = path
        # Kept here, so that a log in memory survives its broker.
        self._files: Files | None = MemoryFiles() if path == MEMORY else None

    def open(self, port: int) -> Log:
        from foldlog.broker.broker import Broker
        from foldlog.client.backends.local import LocalBackend
        from foldlog.client.log import Log
        from foldlog.server.embedded import EmbeddedServer

        (listener,) = self.settings.listeners
        settings = replace(self.settings, listeners=(listener._replace(port=port),))
        broker = Broker.open(
            self._path,
            files=self._files,
            topic_defaults=settings.topic_defaults,
            group_settings=settings.group_settings(),
            transaction_settings=settings.transaction_settings(),
            offsets_retention_ms=settings.offsets_retention_ms,
            offset_metadata_bytes_max=settings.offset_metadata_max_bytes,
            compaction_threads=settings.log_cleaner_threads,
            journal=settings.journal_enable,
        )
        backend = LocalBackend(broker, self._files)
        log = Log(backend)
        try:
            for wanted in settings.create_topics:
                if broker.find_topic(wanted.name) is None:
                    broker.create_topic(wanted.name, wanted.partitions or settings.num_partitions)
            backend.listen_through(EmbeddedServer(broker, settings))
        except BaseException:
            log.close()
            raise
        return log
