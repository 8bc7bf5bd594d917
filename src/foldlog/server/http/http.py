"""A small HTTP/1.1 server on the broker's event loop, for metrics, health and the console. h11 implements the protocol.

Reading path of a request: `HttpServer._accept`, `_Exchanges.run`, then the handler that `routes.py` finds.
Not here: compression, HTTP/2; a proxy has them. TLS is between it and the socket (`server/tls/transport.py`). Not meant
for much traffic: one scraper and a few users.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, replace
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from inspect import isawaitable
from typing import TYPE_CHECKING, Final

import h11

from foldlog.errors import FoldlogError, MalformedBytes, brief_repr
from foldlog.limits import (
    HTTP_BODY_BYTES_MAX,
    HTTP_CONNECTIONS_MAX,
    HTTP_HEADER_BYTES_MAX,
    HTTP_STALL_MS,
    HTTP_STRANGERS_PER_ADDRESS_MAX,
)
from foldlog.server.access.logins import network_of
from foldlog.server.http.host_names import OwnNames
from foldlog.server.http.routes import FindsHandlers, Handler, HttpRequest, HttpResponse, HttpRoute, HttpRoutes
from foldlog.server.http.status_pages import StatusPages
from foldlog.server.net.connections import TOO_FAST
from foldlog.server.net.listeners import PLAINTEXT, SSL, Listener, address_text, bind, refuse_exposed
from foldlog.server.net.memory import HeldMemory, MemoryBudget, StrangersBudget

if TYPE_CHECKING:
    from foldlog.clock import Clock
    from foldlog.server.net.quotas import NodeQuotas
    from foldlog.server.node import BrokerNode
    from foldlog.server.server import Secured
    from foldlog.server.tls.transport import TlsTransport

logger = logging.getLogger("foldlog.http")

_READ_BYTES: Final = 64 << 10
_WRITE_BYTES: Final = 64 << 10
"""One piece of a large answer: a slow client has to read it within the time limit."""

_HEAD_END: Final = b"\r\n\r\n"
_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_BARE_CR: Final = re.compile(rb"\r(?!\n)")

_REQUEST_LINE: Final = re.compile(rb"[^ \r\n]+ (?P<target>[^ \r\n]+) HTTP/(?P<version>\d\.\d)\r\n")
_VERSIONS: Final = (b"1.0", b"1.1")
_ABSOLUTE: Final = re.compile(rb"[a-z][a-z0-9+.-]*://(?P<host>[^/?#]*)", re.IGNORECASE)
_HOST: Final = re.compile(rb"\r\nhost[ \t]*:[ \t]*([^\r]*?)[ \t]*\r\n", re.IGNORECASE)

_LENGTHS: Final = re.compile(rb"\r\n(content-length|transfer-encoding)[ \t]*:([^\r]*)", re.IGNORECASE)

_LINGER_S: Final = 1.0
_LINGER_READS: Final = 64
"""How long, and how often, to go on reading from a refused client: closing at once would make the system discard the
answer with the reason."""


_TOO_MANY: Final = (HTTPStatus.SERVICE_UNAVAILABLE, "too many connections; try again later")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits for one connection, and for their number."""

    connections_max: int = HTTP_CONNECTIONS_MAX
    strangers_per_address_max: int = HTTP_STRANGERS_PER_ADDRESS_MAX
    header_bytes_max: int = HTTP_HEADER_BYTES_MAX
    body_bytes_max: int = HTTP_BODY_BYTES_MAX
    stall_ms: float = HTTP_STALL_MS


async def start_http(
    node: BrokerNode,
    host: str,
    port: int,
    *,
    routes: Sequence[HttpRoute] = (),
    limits: HttpLimits | None = None,
    secured: Secured | None = None,
) -> HttpServer:
    """Serve the status pages and `routes` on `host`; port 0 picks one. Raises InvalidConfig for an address that other
    machines can reach, unless foldlog.insecure is set; AddressUnavailable if it is taken."""
    listener = Listener("HTTP", host, port, PLAINTEXT if secured is None else SSL)
    tls = node.settings.tls.get("METRICS")
    asks = node.settings.has_logins and node.settings.metrics_ask and secured is not None
    if not node.settings.insecure and not asks:
        refuse_exposed(listener, "the HTTP listener", needs_certificate=tls is not None and tls.authenticates)
    pages = StatusPages(node)
    advertised = (listener.host for listener in node.settings.advertised_listeners)
    guarded = _Guarded(HttpRoutes([*pages.routes(), *routes]), OwnNames([host, *advertised]))
    strangers = node.strangers if node.settings.metrics_ask else None
    server = HttpServer(
        guarded, node.clock, limits or HttpLimits(), quotas=node.quotas, memory=node.memory, strangers=strangers
    )
    await server.listen(listener, secured, has_principals=tls is not None and tls.client_auth != "none")
    return server


class _Guarded:
    """Routes that answer only requests for the listener's own names."""

    def __init__(self, routes: HttpRoutes, names: OwnNames) -> None:
        self._routes = routes
        self._names = names

    def find(self, request: HttpRequest) -> Handler | HttpResponse:
        name = self._names.foreign_name(request)
        if name is None:
            return self._routes.find(request)
        return HttpResponse.text(
            f"{brief_repr(name)} is no name of this broker; ask for it by an address such as 127.0.0.1, by localhost,"
            " or by a name in advertised.listeners",
            HTTPStatus.FORBIDDEN,
        )


Refusal = Callable[[str, int], HttpResponse]
"""Makes the answer, from a sentence and a status, for a client that is refused before any handler is called."""


class HttpServer:
    """The listener and its connections. Event loop only.

    `strangers`: where clients say who they are, the memory of those who have not. Until then an address has few
    connections, TLS handshakes included, so that whoever holds them keeps nobody else out.
    """

    def __init__(
        self,
        routes: FindsHandlers,
        clock: Clock,
        limits: HttpLimits,
        refusal: Refusal = HttpResponse.text,
        *,
        quotas: NodeQuotas,
        memory: MemoryBudget,
        strangers: StrangersBudget | None = None,
    ) -> None:
        self._refusal = refusal
        self._quotas = quotas
        self._memory = memory
        self._strangers = strangers
        self._unknown: Counter[str] = Counter()  # connections and handshakes of strangers, by network
        self._served = 0
        self._routes = routes
        self._clock = clock
        self._limits = limits
        self._server: asyncio.Server | None = None
        self.host, self.port = "", 0  # where processes of this machine can reach it
        self._tasks: set[asyncio.Task[None]] = set()
        self._handshakes: set[TlsTransport] = set()

    async def listen(self, listener: Listener, secured: Secured | None = None, *, has_principals: bool = False) -> None:
        """See `start_http`. `secured`: with TLS. `has_principals`: a client's certificate says who it is."""
        bound = bind(listener)
        self.host, self.port = listener.local_host, bound.getsockname()[1]
        make: Callable[[], asyncio.BaseProtocol] = self._new_stream
        if secured is not None:
            from foldlog.server.tls.transport import TlsTransport

            make = partial(TlsTransport, secured(self, has_principals=has_principals), self._new_stream)
        self._server = await asyncio.get_running_loop().create_server(make, sock=bound)

    def _new_stream(self) -> asyncio.BaseProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._accept)

    def handshaking(self, handshake: TlsTransport, host: str, descriptor: int) -> None:
        """See `CountsHandshakes`."""
        self._handshakes.add(handshake)
        from_there = 0 if self._strangers is None else self._comes(host)
        if len(self._handshakes) > 2 * self._limits.connections_max:
            handshake.refuse("handshake", "there are too many TLS handshakes; try again later")
        elif from_there > 2 * self._limits.strangers_per_address_max:
            handshake.refuse("handshake", "its address has too many connections that have not logged in")
        elif self._connects_too_often(host):
            handshake.refuse("connection rate", TOO_FAST.format(host))

    def handshaken(self, handshake: TlsTransport, host: str) -> None:
        self._handshakes.discard(handshake)
        if self._strangers is not None:
            self._leaves(host)

    def _connects_too_often(self, host: str) -> bool:
        """Whether this connection, with those to the broker, is beyond its address's quota."""
        return self._quotas.limits_connections and self._quotas.connection_delay_s(host) is not None

    def _comes(self, host: str) -> int:
        """Count one more stranger from there; how many there are."""
        network = network_of(host)
        self._unknown[network] += 1
        return self._unknown[network]

    def _leaves(self, host: str) -> None:
        network = network_of(host)
        self._unknown[network] -= 1
        if self._unknown[network] <= 0:
            del self._unknown[network]

    async def close(self) -> None:
        """Stop listening and cut off all clients: a scrape is repeated, and a stream has no end to wait for."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for handshake in tuple(self._handshakes):
            handshake.abort()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if server is not None:
            await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host = (writer.get_extra_info("peername") or ("",))[0]
        here_max = self._limits.strangers_per_address_max
        from_there = 0 if self._strangers is None else self._comes(host)
        if len(self._tasks) >= 2 * self._limits.connections_max or from_there > 2 * here_max:
            if from_there:
                self._leaves(host)
            writer.transport.abort()  # too many even for an answer
            return
        refusal = None
        if from_there > here_max:
            refusal = _TOO_MANY
        elif writer.get_extra_info("ssl_object") is None and self._connects_too_often(host):
            refusal = HTTPStatus.TOO_MANY_REQUESTS, TOO_FAST.format(host)
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer, host, refusal))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, refusal: tuple[int, str] | None
    ) -> None:
        stranger = None
        encrypted: HeldMemory | None = writer.get_extra_info("held_memory")

        def known() -> None:
            if encrypted is not None:
                encrypted.move_to(self._memory)
            if self._strangers is not None:
                self._leaves(host)

        if self._strangers is not None:
            stranger = _Stranger(self._strangers, known, writer.transport.abort)
        else:
            known()
        try:
            if not writer.transport.is_closing():  # it may have left before its turn
                await self._exchange(reader, writer, stranger, refusal)
        finally:
            if stranger is not None:
                stranger.known()
            # Every write was waited for. What is left was not read in time: release its memory.
            writer.transport.abort()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        stranger: _Stranger | None,
        refusal: tuple[int, str] | None,
    ) -> None:
        exchanges = _Exchanges(reader, writer, self._routes, self._clock, self._limits, self._refusal, stranger)
        try:
            # Those who are turned away have places of their own: they keep nobody from being served.
            if refusal is None and self._served >= self._limits.connections_max:
                refusal = _TOO_MANY
            if refusal is not None:
                await exchanges.turn_away(*refusal)
                return
            self._served += 1
            try:
                await exchanges.run()
            finally:
                self._served -= 1
        except TimeoutError:
            logger.debug("%s: connection closed: nothing moved for too long", exchanges.peer)
        except (ConnectionError, h11.ProtocolError) as error:
            logger.debug("%s: connection closed: %s", exchanges.peer, error)
        except Exception:
            logger.exception("%s: connection closed: its answer failed half-way", exchanges.peer)


class _Stranger:
    """A connection whose client has not said who it is: what it holds, until it is known or has left."""

    def __init__(self, budget: StrangersBudget, leave: Callable[[], None], give_up: Callable[[], None]) -> None:
        self._held = HeldMemory(budget, lambda: None, give_up)
        self._leave = leave
        self._is_known = False

    def holds(self, held_bytes: int) -> None:
        if not self._is_known:
            self._held.account(held_bytes, is_idle=False)

    def known(self) -> None:
        if not self._is_known:
            self._is_known = True
            self._held.account(0, is_idle=True)
            self._leave()


class _Refused(Exception):
    """A request that is well-formed and still refused."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class _Exchanges:
    """The requests of one connection, one after the other; the next is read once the last is answered."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        routes: FindsHandlers,
        clock: Clock,
        limits: HttpLimits,
        refusal: Refusal,
        stranger: _Stranger | None = None,
    ) -> None:
        self._refusal = refusal
        self._stranger = stranger
        self._reader = reader
        self._writer = writer
        self._routes = routes
        self._clock = clock
        self._limits = limits
        self._stall_s = limits.stall_ms / 1000
        self._received = bytearray()  # not given to h11 yet
        self._protocol = self._new_protocol()
        peer = writer.get_extra_info("peername") or ("?", 0)
        self._host: str = peer[0]
        self._principal: str = writer.get_extra_info("principal") or ""
        self.peer = address_text(self._host, peer[1])
        # Nothing stays in the transport's buffer: a write is done when the system has taken all of it.
        writer.transport.set_write_buffer_limits(high=0)
        _bound(writer.get_extra_info("socket"), int(limits.stall_ms))

    def _new_protocol(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.header_bytes_max)

    async def run(self) -> None:
        """Serve until the client leaves. Raises TimeoutError and ConnectionError if it stalls or disconnects."""
        while True:
            try:
                request = await self._receive()
            except (h11.RemoteProtocolError, MalformedBytes, _Refused) as error:
                logger.debug("%s: request refused: %s", self.peer, error)
                await self.turn_away(_status_of(error), f"not a request that can be answered: {error}")
                return
            if request is None:
                return
            await self._send(request.method, await self._respond(request))
            if self._stranger is not None:
                self._stranger.holds(0)
            if self._protocol.our_state is not h11.DONE or self._protocol.their_state is not h11.DONE:
                return
            # Bytes behind this request go back, so that the head of the next one is checked like the first one's.
            self._received[:0] = self._protocol.trailing_data[0]
            self._protocol = self._new_protocol()

    async def turn_away(self, status: int, sentence: str) -> None:
        """Answer with an error, and read no more requests."""
        if self._protocol.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        await self._send("GET", self._refusal(sentence, status), is_last=True)
        self._writer.write_eof()
        with suppress(TimeoutError):  # why it is closed has been said
            async with asyncio.timeout(_LINGER_S):
                for _ in range(_LINGER_READS):
                    if not await self._reader.read(_READ_BYTES):
                        return

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _receive(self) -> HttpRequest | None:
        """The next request, whole; None if the client is done. All of it has to come within the time limit."""
        async with asyncio.timeout(self._stall_s):
            if not await self._receive_head():
                return None
            head = self._protocol.next_event()
            if not isinstance(head, h11.Request):
                return None
            if self._protocol.they_are_waiting_for_100_continue:
                await self._write(h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[]))
            body = bytearray()
            while isinstance(part := await self._next_event(), h11.Data):
                body += part.data
                if self._stranger is not None:
                    self._stranger.holds(len(body))
                if len(body) > self._limits.body_bytes_max:
                    raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"its body is over {len(body) - 1} bytes")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        request = HttpRequest.parse(head.method.decode("ascii"), head.target.decode("latin-1"), headers, bytes(body))
        request = replace(request, peer=self._host, principal=self._principal)
        return request if self._stranger is None else replace(request, known=self._stranger.known)

    async def _receive_head(self) -> bool:
        """Pass the checked line and headers of the next request to h11; False if the client is done."""
        while (end := self._received.find(_HEAD_END)) < 0 and len(self._received) <= self._limits.header_bytes_max:
            _refuse_early(self._received)
            piece = await self._reader.read(_READ_BYTES)
            if not piece:
                if self._received:
                    raise _Refused(HTTPStatus.BAD_REQUEST, "it ends before its headers do")
                return False
            self._received += piece
        if not 0 <= end <= self._limits.header_bytes_max:
            raise _Refused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"its headers are over {self._limits.header_bytes_max} bytes",
            )
        _refuse_ambiguous(self._received[: end + len(_HEAD_END)])
        self._protocol.receive_data(bytes(self._received))
        self._received.clear()
        return True

    async def _next_event(self) -> object:
        while True:
            event = self._protocol.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._protocol.receive_data(await self._reader.read(_READ_BYTES))

    # --- answering --------------------------------------------------------------------------------------------------

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        found = self._routes.find(request)
        if isinstance(found, HttpResponse):
            return found
        try:
            answer = found(request)
            return await answer if isawaitable(answer) else answer
        except FoldlogError as error:
            return HttpResponse.text(str(error), HTTPStatus.SERVICE_UNAVAILABLE)
        except Exception:
            logger.exception("%s: %s %s failed", self.peer, request.method, request.path)
            return HttpResponse.text("the broker failed to answer; its log says why", HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _send(self, method: str, response: HttpResponse, *, is_last: bool = False) -> None:
        body = response.body
        headers = [
            ("date", formatdate(self._clock.now_ms() / 1000, usegmt=True)),
            ("content-type", response.content_type),
            ("x-content-type-options", "nosniff"),
            *response.headers,
        ]
        if is_last:
            headers.append(("connection", "close"))
        if isinstance(body, bytes):
            headers.append(("content-length", str(len(body))))
        reason = HTTPStatus(response.status).phrase
        async with AsyncExitStack() as stack:
            if not isinstance(body, bytes):
                await stack.enter_async_context(aclosing(body))
            await self._write(h11.Response(status_code=response.status, headers=headers, reason=reason))
            if method != "HEAD":
                if isinstance(body, bytes):
                    for at in range(0, len(body), _WRITE_BYTES):
                        await self._write(h11.Data(data=body[at : at + _WRITE_BYTES]))
                else:
                    async for piece in body:
                        await self._write(h11.Data(data=piece))
            await self._write(h11.EndOfMessage())

    async def _write(self, event: h11.Event) -> None:
        """Pass it to the system; raises TimeoutError if the client does not read."""
        data = self._protocol.send(event)
        if data:
            if self._writer.transport.is_closing():
                raise ConnectionResetError("the client has left")  # writing to it would be a bug, for uvloop
            self._writer.write(data)
            async with asyncio.timeout(self._stall_s):
                await self._writer.drain()


def _refuse_early(received: bytearray) -> None:
    """Refuse what cannot become a request: the first byte of another protocol, or lines that end without a CR."""
    if received and received[0] <= ord(" "):
        raise _Refused(HTTPStatus.BAD_REQUEST, "it does not begin with a method")
    if _BARE_LF.search(received):
        raise _Refused(HTTPStatus.BAD_REQUEST, "a line of its headers ends without CR LF")


def _refuse_ambiguous(head: bytearray) -> None:
    """Refuse what h11 accepts and a proxy in front may read differently: request smuggling relies on that."""
    _refuse_early(head)
    if _BARE_CR.search(head):
        raise _Refused(HTTPStatus.BAD_REQUEST, "its headers hold a CR that ends no line")
    if b"\r\n " in head or b"\r\n\t" in head:
        raise _Refused(
            HTTPStatus.BAD_REQUEST, "a line of its headers begins with a space: folded headers are not taken"
        )
    _refuse_line(head)
    lengths = _LENGTHS.findall(head)
    if len(lengths) > 1 or any(b"," in value for _, value in lengths):
        raise _Refused(HTTPStatus.BAD_REQUEST, "it says twice how long its body is; send one Content-Length")
    if any(name.lower() == b"transfer-encoding" for name, _ in lengths):
        # Chunks have lengths, extensions and trailers of their own to be read differently; no browser sends them.
        raise _Refused(HTTPStatus.LENGTH_REQUIRED, "its body comes in chunks; send a Content-Length")


def _refuse_line(head: bytearray) -> None:
    """Refuse versions that h11 takes for 1.1, and a target with another host than `Host`, which access depends on."""
    line = _REQUEST_LINE.match(head)
    if line is None:
        return  # h11 reports what is wrong
    if line["version"] not in _VERSIONS:
        version = line["version"].decode()
        raise _Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, f"it is of HTTP/{version}; send version 1.1")
    absolute, host = _ABSOLUTE.match(line["target"]), _HOST.search(head)
    if absolute is not None and host is not None and absolute["host"].lower() != host[1].lower():
        raise _Refused(HTTPStatus.BAD_REQUEST, "its target names another host than its Host header")


def _bound(connected: socket.socket, stall_ms: int) -> None:
    """Let the system buffer little for a client that does not read, and detect soon that one has vanished."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _WRITE_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stall_ms)


def _status_of(error: Exception) -> int:
    if isinstance(error, h11.RemoteProtocolError):
        return error.error_status_hint
    return error.status if isinstance(error, _Refused) else HTTPStatus.BAD_REQUEST
