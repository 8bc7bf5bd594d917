"""A small HTTP/1.1 server on the broker's event loop: for metrics, health and the console. h11 knows the protocol.

Reading path of a request: `HttpServer._accept`, `_Exchanges.run`, then the handler that `http_routes` finds.
Not here: TLS, compression, HTTP/2; a proxy has them. Not meant for much traffic: one scraper and a few people.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from inspect import isawaitable
from typing import TYPE_CHECKING, Final

import h11

from foldlog.errors import FoldlogError, MalformedBytes
from foldlog.limits import HTTP_BODY_BYTES_MAX, HTTP_CONNECTIONS_MAX, HTTP_HEADER_BYTES_MAX, HTTP_STALL_MS
from foldlog.server.binding import bind
from foldlog.server.http_routes import FindsHandlers, Request, Response, Route, Routes
from foldlog.server.listeners import Listener, address_text, refuse_exposed
from foldlog.server.status_pages import StatusPages

if TYPE_CHECKING:
    from foldlog.clock import Clock
    from foldlog.server.node import Node

logger = logging.getLogger("foldlog.http")

_READ_BYTES: Final = 64 << 10
_WRITE_BYTES: Final = 64 << 10
"""One piece of a large answer: what a slow client has to read within the time limit."""

_LINGER_S: Final = 1.0
_LINGER_READS: Final = 64
"""How long, and how often, to go on reading from who was turned away: closing at once would make the system throw
away the answer that says why."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What one connection may take, and how many there may be."""

    connections_max: int = HTTP_CONNECTIONS_MAX
    header_bytes_max: int = HTTP_HEADER_BYTES_MAX
    body_bytes_max: int = HTTP_BODY_BYTES_MAX
    stall_ms: float = HTTP_STALL_MS


async def start_http(
    node: Node, host: str, port: int, *, routes: Sequence[Route] = (), limits: HttpLimits | None = None
) -> HttpServer:
    """Serve the status pages and `routes` on `host`; port 0 picks one. InvalidConfig for an address that other
    machines reach, unless foldlog.insecure says so; AddressUnavailable if it is taken."""
    listener = Listener("HTTP", host, port)
    if not node.settings.insecure:
        refuse_exposed(listener, "the HTTP listener")
    pages = StatusPages(node)
    server = HttpServer(Routes([*pages.routes(), *routes]), node.clock, limits or HttpLimits())
    await server.listen(listener)
    return server


Refusal = Callable[[str, int], Response]
"""How a sentence and a status are told to who is turned away before any handler is asked."""


class HttpServer:
    """The listener and its connections. The event loop's."""

    def __init__(
        self, routes: FindsHandlers, clock: Clock, limits: HttpLimits, refusal: Refusal = Response.text
    ) -> None:
        self._refusal = refusal
        self._routes = routes
        self._clock = clock
        self._limits = limits
        self._server: asyncio.Server | None = None
        self.host, self.port = "", 0  # where processes of this machine reach it
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, listener: Listener) -> None:
        """See `start_http`."""
        bound = bind(listener)
        self.host, self.port = listener.local_host, bound.getsockname()[1]
        self._server = await asyncio.start_server(self._accept, sock=bound)

    async def close(self) -> None:
        """Listen no more and cut off who is connected: a scrape comes again, and a stream has no end to wait for."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if server is not None:
            await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= 2 * self._limits.connections_max:
            writer.transport.abort()  # too many to even tell them
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchanges = _Exchanges(reader, writer, self._routes, self._clock, self._limits, self._refusal)
        try:
            if len(self._tasks) > self._limits.connections_max:
                await exchanges.turn_away(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections; try again later")
            else:
                await exchanges.run()
        except TimeoutError:
            logger.debug("%s: connection closed: nothing moved for too long", exchanges.peer)
        except (ConnectionError, h11.ProtocolError) as error:
            logger.debug("%s: connection closed: %s", exchanges.peer, error)
        except Exception:
            logger.exception("%s: connection closed: its answer failed half-way", exchanges.peer)
        finally:
            # Every write was waited for. What is left is what a client did not read in time: its memory is wanted back.
            writer.transport.abort()


class _Refused(Exception):
    """A request that is well-formed and still not taken."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class _Exchanges:
    """The requests of one connection, one after the other; the next is read when the last is answered."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        routes: FindsHandlers,
        clock: Clock,
        limits: HttpLimits,
        refusal: Refusal,
    ) -> None:
        self._refusal = refusal
        self._reader = reader
        self._writer = writer
        self._routes = routes
        self._clock = clock
        self._limits = limits
        self._stall_s = limits.stall_ms / 1000
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.header_bytes_max)
        self.peer = address_text(*(writer.get_extra_info("peername") or ("?", 0))[:2])
        # Nothing stays behind in the transport: a write is done when the system has all of it.
        writer.transport.set_write_buffer_limits(high=0)
        _bound(writer.get_extra_info("socket"), int(limits.stall_ms))

    async def run(self) -> None:
        """Until the client leaves. TimeoutError and ConnectionError if it has to."""
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
            if self._protocol.our_state is not h11.DONE or self._protocol.their_state is not h11.DONE:
                return
            self._protocol.start_next_cycle()

    async def turn_away(self, status: int, sentence: str) -> None:
        """Answer with an error, and listen no more."""
        if self._protocol.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        await self._send("GET", self._refusal(sentence, status), is_last=True)
        self._writer.write_eof()
        async with asyncio.timeout(_LINGER_S):
            for _ in range(_LINGER_READS):
                if not await self._reader.read(_READ_BYTES):
                    return

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _receive(self) -> Request | None:
        """The next request, whole; None if the client is done. All of it has to come within the time limit."""
        async with asyncio.timeout(self._stall_s):
            head = await self._next_event()
            if not isinstance(head, h11.Request):
                return None
            if self._protocol.they_are_waiting_for_100_continue:
                await self._write(h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[]))
            body = bytearray()
            while isinstance(part := await self._next_event(), h11.Data):
                body += part.data
                if len(body) > self._limits.body_bytes_max:
                    raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"its body is over {len(body) - 1} bytes")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        return Request.parse(head.method.decode("ascii"), head.target.decode("latin-1"), headers, bytes(body))

    async def _next_event(self) -> object:
        while True:
            event = self._protocol.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._protocol.receive_data(await self._reader.read(_READ_BYTES))

    # --- answering --------------------------------------------------------------------------------------------------

    async def _respond(self, request: Request) -> Response:
        found = self._routes.find(request)
        if isinstance(found, Response):
            return found
        try:
            answer = found(request)
            return await answer if isawaitable(answer) else answer
        except FoldlogError as error:
            return Response.text(str(error), HTTPStatus.SERVICE_UNAVAILABLE)
        except Exception:
            logger.exception("%s: %s %s failed", self.peer, request.method, request.path)
            return Response.text("the broker failed to answer; its log says why", HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _send(self, method: str, response: Response, *, is_last: bool = False) -> None:
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
        """Hand it to the system; TimeoutError if the client does not read."""
        data = self._protocol.send(event)
        if data:
            self._writer.write(data)
            async with asyncio.timeout(self._stall_s):
                await self._writer.drain()


def _bound(connected: socket.socket, stall_ms: int) -> None:
    """Let the system hold little for a client that does not read, and notice soon that one is gone without a word."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _WRITE_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stall_ms)


def _status_of(error: Exception) -> int:
    if isinstance(error, h11.RemoteProtocolError):
        return error.error_status_hint
    return error.status if isinstance(error, _Refused) else HTTPStatus.BAD_REQUEST
