"""The serving broker: its thread, its event loop, its listeners; how it starts and how it stops."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from foldlog.broker.broker import MEMORY_PATH, Broker
from foldlog.errors import LogClosed, ReadOnly
from foldlog.files.posix import descriptor_advice, files_open_max
from foldlog.server.authorizer import Authorizer
from foldlog.server.call import Endpoint
from foldlog.server.config.settings import ServerSettings
from foldlog.server.metrics.metrics import Metrics
from foldlog.server.net.connection import ClientConnection
from foldlog.server.net.connections import SWEEP_S
from foldlog.server.net.listeners import address_text, bind
from foldlog.server.node import BrokerNode

if TYPE_CHECKING:
    from foldlog.client.fold_proof import FoldsKey
    from foldlog.server.console.site import Console
    from foldlog.server.http.http import HttpServer

logger = logging.getLogger("foldlog.server")

_BACKLOG: Final = 1024
_LEAVE_S: Final = 10.0
"""How long requests under way may take when the broker stops."""
_FLUSH_S: Final = 2.0
"""How long clients may take to read their last answers."""


class Server:
    """The broker on its listeners, in a thread of its own. `start` returns once it accepts connections.

    Any thread may call it. The broker stays the caller's: close it after `stop`.
    """

    def __init__(self, broker: Broker, settings: ServerSettings, authorizer: Authorizer | None = None) -> None:
        """Use `Server.start`."""
        self._broker = broker
        self._settings = settings
        self._authorizer = authorizer
        self._started: Future[None] = Future()
        self._loop = _new_loop()
        self._leaving = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="foldlog-server", daemon=True)
        self._listeners: list[asyncio.Server] = []
        self._http: HttpServer | None = None
        self._console: Console | None = None
        self._node: BrokerNode | None = None
        self.metrics = Metrics()
        self.endpoints: list[Endpoint] = []
        self.addresses: list[tuple[str, int]] = []
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = lambda: None

    @classmethod
    def start(
        cls, broker: Broker, settings: ServerSettings | None = None, *, authorizer: Authorizer | None = None
    ) -> Server:
        """Listen and serve. Raises AddressUnavailable if a listener's address is taken or not this machine's."""
        if broker.read_only:
            raise ReadOnly(f"the log in {broker.path} was opened with mode='r'; only its writer can serve it")
        server = cls(broker, settings or ServerSettings(), authorizer)
        server._thread.start()
        server._started.result()
        return server

    @property
    def bootstrap(self) -> str:
        """bootstrap.servers for clients on this machine."""
        host, port = self.addresses[0]
        return address_text(host, port)

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Where /metrics and /healthz are, if they are served."""
        return None if self._http is None else (self._http.host, self._http.port)

    @property
    def console_address(self) -> tuple[str, int] | None:
        """Where browsers of this machine find the console, if it is served."""
        return None if self._console is None else (self._console.host, self._console.port)

    @property
    def console_token(self) -> str:
        """The token that browsers need; "" if none is needed."""
        return "" if self._console is None else self._console.token

    def folds_key(self) -> FoldsKey:
        """The key that runners of this log prove themselves with; a log in memory has no file with it."""
        if self._node is None:
            raise LogClosed("the server is not started")
        return self._node.fold_guard.key()

    @property
    def memory_used_bytes(self) -> int:
        """Bytes that connections hold now; see queued.max.request.bytes."""
        return 0 if self._node is None else self._node.memory.used_bytes

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Accept no more connections, answer the requests under way, close. Idempotent."""
        if self._thread.is_alive():
            try:
                self._loop.call_soon_threadsafe(self._leaving.set)
            except RuntimeError:
                pass  # the loop is closed: it is stopping by itself
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            else:
                self.failure = error
                logger.critical("the broker stopped serving", exc_info=error)
                self.on_failure()
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        node = self._node = BrokerNode(self._broker, self._settings, self.metrics, self._loop, self._authorizer)
        try:
            try:
                node.fold_guard.mend_topic(self._broker)
                await self._listen(node)
                _warn_of_descriptors(self._broker)
                self._broker.watch_syncs(self.metrics.synced)
                self._started.set_result(None)
                await self._keep(node)
            finally:
                await self._leave(node)
        finally:
            self._broker.watch_syncs(None)
            node.close()

    async def _listen(self, node: BrokerNode) -> None:
        for listener in self._settings.listeners:
            bound = bind(listener)
            port = bound.getsockname()[1]
            told = self._settings.advertised(listener, port)
            endpoint = Endpoint(told.name, told.host, told.port)
            accepting = await self._loop.create_server(
                partial(ClientConnection, node, endpoint), sock=bound, backlog=_BACKLOG
            )
            self._listeners.append(accepting)
            self.endpoints.append(endpoint)
            self.addresses.append((listener.local_host, port))
        if self._settings.metrics is not None:
            from foldlog.server.http.http import start_http

            self._http = await start_http(node, self._settings.metrics.host, self._settings.metrics.port)
        if self._settings.console is not None:
            from foldlog.server.console.site import start_console

            self._console = await start_console(
                node,
                self._settings.console,
                bootstrap=self.bootstrap,
                token=self._settings.console_token or "",
                read_only=self._settings.console_read_only,
            )

    async def _keep(self, node: BrokerNode) -> None:
        while not self._leaving.is_set():
            try:
                await asyncio.wait_for(self._leaving.wait(), SWEEP_S)
            except TimeoutError:
                node.connections.sweep(self._loop.time())
                node.memory.sweep()
                node.lines.sweep()

    async def _leave(self, node: BrokerNode) -> None:
        for accepting in self._listeners:
            accepting.close()
        node.is_leaving = True
        node.connections.stop_taking()
        node.fetch_purgatory.wake_all()
        await _until(lambda: not node.connections.are_busy, _LEAVE_S)
        await _until(lambda: node.connections.are_heard, _FLUSH_S)
        node.connections.leave()
        await _until(lambda: not len(node.connections), _FLUSH_S)
        node.connections.abort()
        await _until(lambda: not len(node.connections), _FLUSH_S)
        if self._console is not None:
            await self._console.close()
        if self._http is not None:
            await self._http.close()  # last: until then /healthz reports that the broker is stopping


def _warn_of_descriptors(broker: Broker) -> None:
    needed = sum(broker.topic(name).partition_count for name in broker.topics(include_internal=True))
    if broker.path != MEMORY_PATH and needed > files_open_max():
        logger.warning(
            "there are %d partitions, each of which keeps a file open once it is written, and at most %d can be: %s",
            needed,
            files_open_max(),
            descriptor_advice(),
        )


async def _until(is_so: Callable[[], bool], timeout_s: float) -> None:
    """Poll, since it takes only a moment, and nothing else runs while the broker stops."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not is_so() and loop.time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.002)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # there is not a build for every platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
