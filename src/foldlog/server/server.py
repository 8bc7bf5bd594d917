"""The serving broker: its thread, its event loop, its listeners; how it starts and how it stops."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

from foldlog.broker.access.acls import DIRECTORY_OWNER
from foldlog.broker.broker import MEMORY_PATH, Broker
from foldlog.errors import LogClosed, ReadOnly, StorageError
from foldlog.files.posix import descriptor_advice, files_open_max
from foldlog.limits import TLS_LOOK_MS
from foldlog.server.authorizer import Authorizer
from foldlog.server.call import Endpoint, Interceptor
from foldlog.server.config.settings import ServerSettings
from foldlog.server.metrics.metrics import Metrics
from foldlog.server.net.connection import ClientConnection
from foldlog.server.net.connections import SWEEP_S
from foldlog.server.net.listeners import PLAINTEXT, SSL, Listener, address_text, bind, bind_local
from foldlog.server.net.memory import HeldMemory
from foldlog.server.node import BrokerNode

if TYPE_CHECKING:
    from foldlog.client.fold_proof import FoldsKey
    from foldlog.server.console.site import Console
    from foldlog.server.http.http import HttpServer
    from foldlog.server.registry.site import RegistrySite
    from foldlog.server.tls.stores import LiveTls
    from foldlog.server.tls.transport import CountsHandshakes, HandshakeTurns, TlsListener

logger = logging.getLogger("foldlog.server")

_BACKLOG: Final = 1024
_LEAVE_S: Final = 10.0
"""How long requests under way may take when the broker stops."""
_HOUR_S: Final = 3600.0
_FLUSH_S: Final = 2.0
"""How long clients may take to read their last answers."""


class Secured(Protocol):
    """Makes what the connections of a listener with TLS share."""

    def __call__(self, counts: CountsHandshakes, *, has_principals: bool = False) -> TlsListener: ...


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
        self._registry: RegistrySite | None = None
        self._node: BrokerNode | None = None
        self._live_tls = _live_tls(settings)
        self._turns: HandshakeTurns | None = None
        self._looked = 0.0
        self._look: asyncio.Future[None] | Future[None] = Future()
        self._look.set_result(None)
        self.metrics = Metrics()
        self.endpoints: list[Endpoint] = []
        self.addresses: list[tuple[str, int]] = []
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self.each_hour: Callable[[], None] | None = None
        """Called on a thread, about once an hour."""
        self._hour_began = self._loop.time()

    @classmethod
    def start(
        cls, broker: Broker, settings: ServerSettings | None = None, *, authorizer: Authorizer | None = None
    ) -> Server:
        """Listen and serve. Raises AddressUnavailable if a listener's address is taken or not this machine's,
        InvalidConfig if its certificates cannot be used."""
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

    @property
    def registry_address(self) -> tuple[str, int] | None:
        """Where clients of this machine find the schema registry, if it is served."""
        return None if self._registry is None else (self._registry.host, self._registry.port)

    def folds_key(self) -> FoldsKey:
        """The key that runners of this log prove themselves with; a log in memory has no file with it."""
        if self._node is None:
            raise LogClosed("the server is not started")
        return self._node.fold_guard.key()

    def reload_certificates(self) -> None:
        """Read the certificates of all listeners again. Those that cannot be used leave the old ones, with a warning in
        the log. Any thread; waits for the disk. Live connections stay as they are."""
        for live in self._live_tls.values():
            live.reload()

    @property
    def memory_used_bytes(self) -> int:
        """Bytes that connections hold now; see queued.max.request.bytes."""
        return 0 if self._node is None else self._node.memory.used_bytes

    @property
    def strangers_used_bytes(self) -> int:
        """Bytes that connections hold now whose clients have not logged in."""
        return 0 if self._node is None else self._node.strangers.used_bytes

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

    def intercept(self, interceptor: Interceptor | None) -> None:
        """Put this between requests and their handlers, from the next request on; None for nothing. Any thread."""
        if self._node is not None:
            self._node.interceptor = interceptor

    def abort(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Stop at once: every connection is cut, and nothing that is under way is answered. Once `meanwhile` was
        called, on the loop's thread, no answer is sent."""
        if self._thread.is_alive():
            with suppress(RuntimeError):  # the loop is closed: it is stopping by itself
                self._loop.call_soon_threadsafe(self._cut, meanwhile)
            self._thread.join()

    def _cut(self, meanwhile: Callable[[], None]) -> None:
        for accepting in self._listeners:
            accepting.close()
        meanwhile()
        if self._node is not None:
            self._node.is_leaving = True
            self._node.connections.abort()
        self._leaving.set()

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
            endpoint = Endpoint(told.name, told.host, told.port, listener.protocol)
            accepting = await self._loop.create_server(
                self._protocols(node, listener, endpoint), sock=bound, backlog=_BACKLOG
            )
            self._listeners.append(accepting)
            self.endpoints.append(endpoint)
            self.addresses.append((listener.local_host, port))
        if self._settings.local_listener is None and self._broker.path != MEMORY_PATH:
            await self._listen_locally(node)
        if self._settings.metrics is not None:
            from foldlog.server.http.http import start_http

            listener = self._settings.metrics
            self._http = await start_http(node, listener.host, listener.port, secured=self._secured(node, "METRICS"))
        if self._settings.registry is not None:
            from foldlog.server.registry.site import start_registry

            self._registry = await start_registry(
                node, self._settings.registry, secured=self._secured(node, "REGISTRY")
            )
        if self._settings.console is not None:
            from foldlog.server.console.site import start_console

            self._console = await start_console(
                node,
                self._settings.console,
                bootstrap=self.bootstrap,
                token=self._settings.console_token or "",
                read_only=self._settings.console_read_only,
                secured=self._secured(node, "CONSOLE"),
            )

    def _protocols(
        self, node: BrokerNode, listener: Listener, endpoint: Endpoint
    ) -> Callable[[], asyncio.BaseProtocol]:
        """Makes the protocol of a new connection."""
        make = partial(ClientConnection, node, endpoint)
        secure = self._secured(node, listener.name)
        if secure is None:
            return make
        from foldlog.server.tls.transport import TlsTransport

        shared = secure(node.connections, has_principals=listener.protocol == SSL)
        return partial(TlsTransport, shared, make)

    def _secured(self, node: BrokerNode, name: str) -> Secured | None:
        """What a listener with TLS needs, by its name; None if it has none."""
        live = self._live_tls.get(name)
        if live is None:
            return None
        from foldlog.server.tls.transport import HandshakeTurns, TlsListener

        turns = self._turns = self._turns or HandshakeTurns(self._loop)

        def warn(host: str, kind: str, line: str) -> None:
            node.lines.warn((host, kind), line)
            node.metrics.connection_refused("TLS")

        def hold(give_up: Callable[[], None]) -> HeldMemory:
            return HeldMemory(node.strangers, lambda: None, give_up)

        def secure(counts: CountsHandshakes, *, has_principals: bool = False) -> TlsListener:
            return TlsListener(
                live,
                self._loop,
                turns,
                counts,
                hold=hold,
                warn=warn,
                certificate_refused=node.certificate_refused,
                has_principals=has_principals,
            )

        return secure

    async def _listen_locally(self, node: BrokerNode) -> None:
        """Let other processes in that open the directory: where every listener asks for certificates or passwords, they
        have none. Who may write the directory may connect to the socket in it."""
        endpoint = Endpoint("LOCAL", *self.addresses[0], PLAINTEXT, DIRECTORY_OWNER)
        try:
            bound = bind_local(self._broker.path)
        except OSError as error:
            raise StorageError(f"{self._broker.path}: no socket can be made for other processes: {error}") from None
        make = partial(ClientConnection, node, endpoint)
        self._listeners.append(await self._loop.create_unix_server(make, sock=bound, backlog=_BACKLOG))

    async def _keep(self, node: BrokerNode) -> None:
        while not self._leaving.is_set():
            try:
                await asyncio.wait_for(self._leaving.wait(), SWEEP_S)
            except TimeoutError:
                node.connections.sweep(self._loop.time())
                node.memory.sweep()
                node.read_pool.sweep()
                node.lines.sweep()
                node.refused_logins.sweep()
                node.logins.sweep()
                self._look_at_certificates(node)
                self._do_each_hour(node)

    def _look_at_certificates(self, node: BrokerNode) -> None:
        """See whether certificate files have changed: on a thread, which the loop does not wait for."""
        now = self._loop.time()
        if self._live_tls and now - self._looked >= TLS_LOOK_MS / 1000 and self._look.done():
            self._looked = now
            self._look = node.run(_look_at, list(self._live_tls.values()))

    def _do_each_hour(self, node: BrokerNode) -> None:
        now = self._loop.time()
        if self.each_hour is not None and now - self._hour_began >= _HOUR_S:
            self._hour_began = now
            node.run(self.each_hour)

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
        if self._registry is not None:
            await self._registry.close()
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


def _live_tls(settings: ServerSettings) -> dict[str, LiveTls]:
    if not settings.tls:
        return {}
    from foldlog.server.tls.stores import LiveTls  # few brokers speak TLS, and a start imports little

    return {name: LiveTls(each) for name, each in settings.tls.items()}


def _look_at(certificates: Iterable[LiveTls]) -> None:
    for live in certificates:
        live.look()


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
