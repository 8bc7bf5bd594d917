"""One client's connection: bytes to requests, requests to handlers, answers back in order.

To follow a request: `buffer_updated`, `_take_frames`, `_dispatch`, then its handler; back by `_settle` and `_send`.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import logging
import struct
import sys
import termios
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from foldlog.broker.access.acls import ANONYMOUS, Identity
from foldlog.broker.access.scram import LoginRefused
from foldlog.errors import MalformedBytes
from foldlog.limits import REQUESTS_IN_FLIGHT_MAX
from foldlog.server.access.audit import AUDITED, AuditedChange, change_in, note, note_change
from foldlog.server.access.logins import AUTHENTICATE_KEY, Login
from foldlog.server.call import (
    Call,
    Caller,
    ClientSoftware,
    Disconnect,
    Endpoint,
    Handler,
    Later,
    Reply,
    ServedApi,
    describe,
    has_error,
    served_api,
)
from foldlog.server.fetches.fast_path import FastFetch, FetchAnswer
from foldlog.server.groups import address_in_acls
from foldlog.server.handlers.api_versions import unserved_answer
from foldlog.server.net.listeners import SSL
from foldlog.server.net.memory import FrameBuffer, HeldMemory, ReadBuffers
from foldlog.server.net.produce_throttle import ThrottledProducer, is_at_fault
from foldlog.server.net.quotas import Charge, ConnectionThrottle
from foldlog.server.net.turns import at_once, items_in
from foldlog.server.parts import COSTLY, handle_in_parts, is_many
from foldlog.server.produce_fast_path import Found, ProducedRun, RunAcknowledgement
from foldlog.wire.codec import Chunk, Steps
from foldlog.wire.frames import RequestHeader, encode_response, encode_response_in_steps, parse_request_header
from foldlog.wire.messages.produce import ProduceResponse
from foldlog.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from foldlog.wire.schema import Message, Request, Response

if TYPE_CHECKING:
    from foldlog.server.node import BrokerNode

logger = logging.getLogger("foldlog.server")

_LENGTH: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
_LENGTH_BYTES: Final = 4
_BARE: Final = -1
"""The version of a token that came without a request around it."""

EXPIRED: Final = "its login has expired, and it did not log in again"
_PRODUCE_KEY: Final = 0
_FETCH_KEY: Final = 1
_FETCH_KEYS: Final = frozenset({1, 78})
"""Fetch and ShareFetch."""

_PARKED_KEYS: Final = frozenset({11, 14})
"""JoinGroup and SyncGroup wait for other members; a stopping broker does not wait for these."""

_WRITE_HIGH_BYTES: Final = 256 << 10
"""Bytes of answers that the client has not read, or that wait for earlier ones; above, no request is begun."""

_NO_HEADER: Final = RequestHeader(-1, -1, -1, None)
_RUN_HEADER: Final = RequestHeader(_PRODUCE_KEY, -1, -1, None)
_FETCH_HEADER: Final = RequestHeader(_FETCH_KEY, -1, -1, None)

HEADER_BYTES_MIN: Final = 8

_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP_STARTS: Final = frozenset(
    {b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PATC", b"TRAC", b"PRI "}
)


class Exchange:
    """A request under way, owned by its connection. `chunks` is its encoded answer, None while it is not known.

    Answers are sent in the order of the requests: one that is known may wait for those before it.
    """

    __slots__ = ("audited", "began", "charge", "chunks", "errors", "header", "later", "long_work", "requests")

    def __init__(self, header: RequestHeader, began: float, charge: Charge | None = None, requests: int = 1) -> None:
        self.header = header
        self.requests = requests  # of a run on the fast path, answered together
        self.charge = charge  # what it uses of quotas, if any is for its client
        self.began = began
        self.chunks: list[Chunk] | None = None
        self.errors = 0  # how many of its requests are answered with an error code
        self.later: Later | FastFetch | None = None
        self.audited: AuditedChange | None = None  # what it would change, if that is written down
        self.long_work: ExitStack | None = None  # of a request or an answer with many items, until it is sent

    def ended(self) -> None:
        if self.long_work is not None:
            self.long_work.close()


class CoalescedCall:
    """Calls functions once, soon, however often it is called before. Event loop only."""

    __slots__ = ("_acts", "_is_due", "_soon")

    def __init__(self, soon: Callable[[Callable[[], None]], object], *acts: Callable[[], None]) -> None:
        self._soon = soon
        self._acts = acts
        self._is_due = False

    def __call__(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        for act in self._acts:
            act()


class ClientConnection(asyncio.BufferedProtocol):
    """A client's connection. Event loop only.

    Requests start, and are answered, in the order in which they come; some work while later ones start (see
    `call.Reply`). Memory is bounded: frames by socket.request.max.bytes, requests under way by their number, fetched
    records by one Fetch at a time, answers by starting no further requests while the client does not read. An idle
    connection holds no buffers: data are received in memory that all connections share.
    """

    def __init__(self, node: BrokerNode, endpoint: Endpoint) -> None:
        self._node = node
        self._endpoint = endpoint
        self._frame = FrameBuffer()
        self._exchanges: deque[Exchange] = deque()
        self._requests = 0  # under way, those of each exchange
        self._unread: memoryview | None = None  # received, and not processed while `_holds`
        self._working: asyncio.Task[Any] | None = None
        self._fetching = False
        self._is_write_paused = False
        self._is_reading = True
        self._is_closing = False
        self._is_at_end = False
        self._is_taking = False
        # One write for answers that are known together: the client's next requests then come together and share a sync.
        self._send_soon = CoalescedCall(node.soon, self._send, self._go_on)
        self._memory = HeldMemory(node.memory, self._has_memory, self._give_up_memory)
        self._encrypted: HeldMemory | None = None  # what TLS holds for it
        self._throttled = ThrottledProducer(node.produce_throttle, self._go_on)
        self._quotas = node.quotas
        self._throttle = ConnectionThrottle(node.quotas, node.loop, self._stop_reading, self._go_on)
        self._answered_bytes = 0  # of known answers that wait for earlier ones
        self._divided_bytes = 0  # of the request that is handled in parts
        self._encoding = 0  # answers that take several turns of the loop to encode
        self._last_active = node.loop.time()
        self._login: Login | None = None
        self._is_changing = False  # what `_working` does is written down when it is done

    # --- the transport's side ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods alone
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "a client"
        host = peer[0] if peer else ""
        appends = self._node.appenders.queue(self._frame)
        software = ClientSoftware(peer[1] if peer else 0)
        self._encrypted = transport.get_extra_info("held_memory")
        if self._endpoint.protocol.startswith("SASL"):
            self._login = Login(self._node.logins, host, self._known)
            self._throttle.is_exempt = True
            self._memory.move_to(self._node.strangers)
        elif self._encrypted is not None:
            self._encrypted.move_to(self._node.memory)
        principal = transport.get_extra_info("principal") or self._endpoint.principal  # of a client's certificate
        who = Identity(principal, address_in_acls(host) if host else "this machine")
        buffers = ReadBuffers(self._is_sent, self._node.read_pool)
        self._caller = Caller(host, who, self._endpoint, buffers, appends, software, self._login)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        if self._node.is_audited and self._login is None and principal != ANONYMOUS and host:
            note(who, "login", ["certificate"])
        self._node.connections.opened(self, host, transport.get_extra_info("socket").fileno())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frame.room() if self._frame.need_bytes else self._node.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._last_active = self._node.loop.time()
        self._node.metrics.bytes_in += nbytes
        frame = self._frame
        if not frame.need_bytes:
            self._take_frames(self._node.receive_buffer[:nbytes], is_owned=False)
            if frame.capacity_bytes or self._unread is not None:
                self._account()
        else:
            frame.have_bytes += nbytes
            if not frame.is_complete:
                if not frame.must_grow:
                    pass
                elif self._memory.must_wait(frame.growth_bytes):
                    self._stop_reading()
                else:
                    frame.grow()
            elif frame.need_bytes == _LENGTH_BYTES:
                frame.need_bytes += self._checked_length(frame.view(), 0) or 0
            else:
                view = frame.view()
                frame.finish()
                self._memory.received()
                self._take_frames(view, is_owned=True)
            self._account()
        if self._unread is not None:
            self._go_on()

    def eof_received(self) -> bool:
        # Half closed: requests received so far are still answered.
        self._is_at_end = True
        return self._has_work

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        for exchange in self._exchanges:
            exchange.ended()
            if exchange.later is not None and exchange.audited is None:
                exchange.later.cancel()
        # A change goes on in its thread whether somebody waits for it or not, and is to be written down.
        if self._working is not None and not self._is_changing:
            self._working.cancel()
        self._exchanges.clear()
        self._requests = 0
        self._throttle.close()
        self._unread = None
        self._frame.finish()
        self._frame.release()
        self._caller.buffers.release()
        self._memory.leave(self._caller.append_queue.capacity_bytes)
        self._caller.append_queue.close(self._memory.close)
        self._node.shares.disconnected(self._caller)
        self._node.connections.closed(self, self._caller.host)

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._last_active = self._node.loop.time()
        self._account()
        self._go_on()

    # --- frames -----------------------------------------------------------------------------------------------------

    def _checked_length(self, view: memoryview, position: int) -> int | None:
        size: int = _LENGTH.unpack_from(view, position)[0]
        limit, setting = self._node.settings.socket_request_max_bytes, "socket.request.max.bytes"
        if self._login is not None:
            of_strangers = self._login.max_receive_bytes
            if of_strangers is not None:
                limit, setting = of_strangers, "sasl.server.max.receive.size"
            if self._login.takes_raw and 0 <= size <= limit:
                return size
        if HEADER_BYTES_MIN <= size <= limit:
            return size
        self.refuse("size", size_refusal(bytes(view[position : position + _LENGTH_BYTES]), limit, setting))
        return None

    def _take_frames(self, view: memoryview, *, is_owned: bool) -> None:
        """Dispatch every whole frame in `view`; the rest of it is the beginning of a frame."""
        position, end = 0, len(view)
        self._is_taking = True
        while not self._is_closing:
            body = position + _LENGTH_BYTES
            if end < body:
                break
            size = self._checked_length(view, position)
            if size is None or end < body + size:
                break
            if self._holds(view, body):
                self._unread = view[position:] if is_owned else memoryview(bytearray(view[position:]))
                self._stop_reading()
                position = end
                break
            position = self._dispatch(view, body, body + size)
        self._is_taking = False
        if position < end and not self._is_closing:
            known = end - position >= _LENGTH_BYTES
            size = _LENGTH.unpack_from(view, position)[0] if known else 0
            self._frame.begin(view[position:], _LENGTH_BYTES + size)
            if self._memory.must_wait():
                self._stop_reading()
        self._send()

    def _holds(self, view: memoryview, body: int) -> bool:
        """Whether the request there has to wait before it may start."""
        return (
            self._working is not None
            or self._encoding > 0  # not counted yet: more of them could hold any amount of memory
            or self._is_write_paused
            or self._answered_bytes >= _WRITE_HIGH_BYTES
            or self._caller.append_queue.is_full
            or self._requests >= REQUESTS_IN_FLIGHT_MAX
            # The records of a Fetch are read into buffers of the connection, which are free once it is answered.
            or (self._fetching and _api_key(view, body) in _FETCH_KEYS)
            or (self._throttled.is_needed and _api_key(view, body) == _PRODUCE_KEY and self._throttled.must_wait())
            or (self._quotas.is_on and self._throttle.must_wait(self._caller.who, view, body))
        )

    def _go_on(self) -> None:
        """Continue after a wait may have ended: first with unread frames, then with new data."""
        while self._unread is not None and not self._is_taking and not self._holds(self._unread, _LENGTH_BYTES):
            unread, self._unread = self._unread, None
            self._take_frames(unread, is_owned=True)
        is_waiting = self._memory.is_waiting or (self._quotas.is_on and self._throttle.is_muted)
        if self._unread is None and not is_waiting and not self._is_closing:
            self._read_on()

    def _stop_reading(self) -> None:
        if self._is_reading and not self._is_closing:
            self._is_reading = False
            self._transport.pause_reading()

    def _read_on(self) -> None:
        if not self._is_reading and not self._node.is_leaving:
            self._is_reading = True
            self._transport.resume_reading()

    # --- requests and answers ---------------------------------------------------------------------------------------

    def _dispatch(self, view: memoryview, start: int, end: int) -> int:
        """Begin the request there; of Produce requests, as many behind it as go with it. Returns where they end."""
        began = self._node.loop.time()
        header = _NO_HEADER
        found = None
        charge = None
        audited = None
        if self._login is not None and not self._admits(self._login, view[start:end], began):
            return end
        try:
            # Before the header is parsed: the fast path reads the fields it needs directly from the frame.
            if self._quotas.is_on:
                charge = self._throttle.begin(self._caller.who, view, start, end)
            is_usual = charge is None and self._node.interceptor is None
            if _INT16.unpack_from(view, start)[0] == _PRODUCE_KEY:
                fast = self._append_fast(view, start, end) if is_usual else None
                self._throttled.is_granted = False  # this uses up its turn, if it had to wait for one
                if isinstance(fast, ProducedRun):
                    self._begin_run(fast, began)
                    return fast.end
                found = fast
            elif is_usual and self._fetches_fast(view, start, end, began):
                return end
            header, position = parse_request_header(view, start, end)
            served = served_api(header.api_key, header.api_version)
            if served is None:
                self._answer_unserved(header, view[position:end], began)
                return end
            call = Call(self._node, self._caller, header.api_version, header.client_id, found)
            interceptor = self._node.interceptor
            handle = served.handle if interceptor is None else interceptor(header.api_key, served.handle)
            reply: Reply
            request = served.decoded_at_once(view, position, end)
            if request is None or (header.api_key in COSTLY and is_many(header.api_key, request)):
                reply = self._in_parts(call, served, handle, self._keep(view, position, end))
            else:
                audited = self._change_in(request)
                reply = handle(call, request)
        except MalformedBytes as error:
            self.refuse("unreadable", f"a request that cannot be read: {error}")
            return end
        except Disconnect as error:
            self.refuse("disconnect", str(error))
            return end
        except Exception as error:  # noqa: BLE001  a fault of one request must not end the others'
            self._fail(describe(*header[:2]), error)
            return end
        exchange = Exchange(header, began, charge)
        exchange.audited = audited
        if self._divided_bytes:
            exchange.long_work = self._begin_long_work()
        self._begin(exchange, reply)
        return end

    def _fetches_fast(self, view: memoryview, start: int, end: int, began: float) -> bool:
        """Begin the request if it is a Fetch, and one for the fast path."""
        if _INT16.unpack_from(view, start)[0] != _FETCH_KEY:
            return False
        fetch = self._node.fetch_fast_path.begin(self._caller, view, start, end)
        if fetch is None:
            return False
        self._begin_fetch(fetch, began)
        return True

    def _change_in(self, request: Request) -> AuditedChange | None:
        if not self._node.is_audited or request.API_KEY not in AUDITED:
            return None
        return change_in(request.API_KEY, request, self._node.topic_ids.name_of)

    # --- requests with many items -----------------------------------------------------------------------------------

    def _keep(self, view: memoryview, position: int, end: int) -> memoryview:
        """The body of a request that is decoded in several turns of the loop, in memory that nobody else writes to."""
        if view.obj is self._frame.data:
            self._frame.exchange(bytearray())
            kept = view[position:end]
        else:
            kept = memoryview(bytearray(view[position:end]))
        self._divided_bytes = len(kept)
        return kept

    def _begin_long_work(self) -> ExitStack:
        """From here to the last byte, without a gap: a full collection waits for the first one."""
        begun = ExitStack()
        begun.enter_context(self._node.turns.long_work())
        return begun

    async def _in_parts(self, call: Call, served: ServedApi, handle: Handler, body: memoryview) -> Any:
        """The answer to a request that one turn of the loop is too short for."""
        turns = self._node.turns
        try:
            try:
                request = await turns.run(served.decode_in_steps(body, 0, len(body)))
            except MalformedBytes as error:
                raise Disconnect(f"a request that cannot be read: {error}") from error
            # As in `_begin`: a change is written down even if its client has gone.
            self._is_changing = self._node.is_audited and request.API_KEY in AUDITED
            reply = await handle_in_parts(call, handle, request, self._noted)
            held = await turns.run(items_in(request))
            del request
            await turns.let_go(held)
            return reply
        finally:
            self._divided_bytes = 0
            self._account()

    def _noted(self, part: Request) -> Callable[[Message | None], None]:
        """For a part of a request: what writes it down, with its answer."""
        change = self._change_in(part)
        return lambda answer: None if change is None else note_change(self._caller.who, change, answer)

    # --- logins -----------------------------------------------------------------------------------------------------

    def _admits(self, login: Login, frame: memoryview, began: float) -> bool:
        """Whether the frame is a request that may be answered now; the rest of a login is dealt with here."""
        if login.takes_raw:
            self._begin(Exchange(RequestHeader(AUTHENTICATE_KEY, _BARE, 0, None), began), self._bare(login, frame))
            return False
        api_key = _INT16.unpack_from(frame)[0]
        if login.is_refused:
            return False  # it was told so, and is closed once it has read that
        if not login.lets(api_key):
            self.refuse("login", f"{describe(api_key, 0)} before it logged in" if login.principal is None else EXPIRED)
            return False
        return True

    async def _bare(self, login: Login, frame: memoryview) -> SaslAuthenticateResponse:
        """The answer to a token that came as a bare frame; a refusal has none but the end of the connection."""
        try:
            answer, _ = await login.authenticate(bytes(frame))
        except LoginRefused:
            raise Disconnect("its login is refused") from None
        return SaslAuthenticateResponse(auth_bytes=answer)

    def _known(self, principal: str, mechanism: str, is_again: bool) -> None:
        self._throttle.is_exempt = False
        for held in (self._memory, self._encrypted):
            if held is not None:
                held.move_to(self._node.memory)
        self._caller = self._caller._replace(who=self._caller.who._replace(principal=principal))
        note(self._caller.who, "login again" if is_again else "login", [mechanism])

    # --- requests and answers, continued ----------------------------------------------------------------------------

    def _append_fast(self, view: memoryview, start: int, end: int) -> ProducedRun | Found | None:
        frames_max = REQUESTS_IN_FLIGHT_MAX - self._requests
        # Who has quotas, or was refused before, is looked at before each request; so is a login that may end.
        if self._quotas.is_on or self._throttled.is_needed or self._login is not None:
            frames_max = 1
        last = len(view) if frames_max > 1 else end
        return self._node.produce_fast_path.append(self._caller, view, start - _LENGTH_BYTES, last, frames_max)

    def _begin_run(self, run: ProducedRun, began: float) -> None:
        self._throttled.is_needed = False
        exchange = Exchange(_RUN_HEADER, began, requests=run.requests)
        self._add(exchange)
        if run.waits_for_sync:
            RunAcknowledgement(self._node, run, partial(self._acknowledged, exchange, run))
            return
        for _, partition, next_offset in run.written:
            self._node.syncs.written(partition, next_offset)
        exchange.errors = run.errors
        self._know(exchange, [run.answers])

    def _acknowledged(self, exchange: Exchange, run: ProducedRun) -> None:
        exchange.errors = run.errors
        self._know(exchange, [run.answers])
        self._send_soon()

    def _begin_fetch(self, fetch: FetchAnswer | FastFetch, began: float) -> None:
        exchange = Exchange(_FETCH_HEADER, began)
        self._add(exchange)
        self._fetching = True
        if isinstance(fetch, FastFetch):
            exchange.later = fetch
            fetch.on_answer = partial(self._fetched, exchange)
            return
        exchange.errors = fetch.errors
        self._know(exchange, fetch.chunks)
        # Now, so that the next one, which may have come with it, has the memory that this one was read into.
        is_taking, self._is_taking = self._is_taking, False
        self._send()
        self._is_taking = is_taking

    def _fetched(self, exchange: Exchange, answer: FetchAnswer | BaseException) -> None:
        exchange.later = None
        if isinstance(answer, BaseException):
            self._fail(describe(_FETCH_KEY, -1), answer)
            return
        exchange.errors = answer.errors
        self._know(exchange, answer.chunks)
        self._send_soon()

    def _add(self, exchange: Exchange) -> None:
        self._exchanges.append(exchange)
        self._requests += exchange.requests

    def _answer_unserved(self, header: RequestHeader, body: memoryview, began: float) -> None:
        answer = unserved_answer(header, body)
        if answer is None:
            self.refuse("not served", f"{describe(header.api_key, header.api_version)}, which is not served")
            return
        exchange = Exchange(header, began)
        self._know(exchange, answer)
        self._add(exchange)

    def _begin(self, exchange: Exchange, reply: Reply) -> None:
        self._add(exchange)
        if isinstance(reply, Message):
            self._fetching |= exchange.header.api_key in _FETCH_KEYS
            self._settle(exchange, reply)
        elif reply is None:
            self._settle(exchange, None)
        elif isinstance(reply, asyncio.Future):
            self._await(exchange, reply)
        else:
            self._is_changing = exchange.audited is not None
            self._working = self._node.loop.create_task(self._work(exchange, reply))
            # A task that is cancelled before its first step has not started the coroutine: close it.
            self._working.add_done_callback(lambda _: reply.close())

    async def _work(self, exchange: Exchange, work: Coroutine[Any, Any, Message | Later | None]) -> None:
        reply: Reply
        try:
            reply = await work
        except Disconnect as error:
            self.refuse("disconnect", str(error))
            return
        except Exception as error:  # noqa: BLE001  as above
            self._note(exchange, None)
            self._fail(describe(*exchange.header[:2]), error)
            return
        finally:
            self._working = None
        if self._is_closing:
            if isinstance(reply, Message):
                self._note(exchange, reply)
            return
        if isinstance(reply, asyncio.Future):
            self._await(exchange, reply)
        else:
            self._settle(exchange, reply)
            self._send()
        self._go_on()

    def _await(self, exchange: Exchange, later: Later) -> None:
        exchange.later = later
        if exchange.charge is not None:
            exchange.charge.waits()
        if exchange.header.api_key in _FETCH_KEYS:
            self._fetching = True
        later.add_done_callback(lambda done: self._arrived(exchange, done))

    def _arrived(self, exchange: Exchange, later: Later) -> None:
        exchange.later = None
        if later.cancelled():
            return
        error = later.exception()
        if isinstance(error, Disconnect):
            self.refuse("disconnect", str(error))
            return
        if error is not None:
            self._fail(describe(*exchange.header[:2]), error)
            return
        self._settle(exchange, later.result())
        self._send_soon()

    def _settle(self, exchange: Exchange, message: Message | None) -> None:
        """Encode the answer."""
        header = exchange.header
        if message is None:
            exchange.chunks = []
            if exchange.charge is not None:
                exchange.charge.ended(None)
            return
        try:
            if not isinstance(message, Response):
                raise TypeError(f"{type(message).__name__} is not a response")
            if isinstance(message, SaslAuthenticateResponse):
                self._logged_in(exchange, message)
                return
            exchange.errors = int(has_error(message))
            self._note(exchange, message)
            if isinstance(message, ProduceResponse):
                self._throttled.is_needed = exchange.errors > 0 and is_at_fault(message)
            steps = encode_response_in_steps(message, header.api_version, header.correlation_id)
            chunks = at_once(steps)
            if chunks is None:
                self._encoding += 1
                exchange.long_work = exchange.long_work or self._begin_long_work()
                exchange.later = self._node.loop.create_task(self._encode(exchange, message, steps))
                return
            if exchange.charge is not None and exchange.charge.ended(message, sum(map(len, chunks))):
                chunks = encode_response(message, header.api_version, header.correlation_id)
            self._know(exchange, chunks)
        except Exception as error:  # noqa: BLE001  as above
            self._fail(describe(*header[:2]), error)

    async def _encode(self, exchange: Exchange, message: Response, steps: Steps[list[Chunk]]) -> None:
        """Encode the rest of an answer with many items; those behind it wait."""
        header, turns = exchange.header, self._node.turns
        with turns.long_work():
            try:
                await turns.next()
                chunks = await turns.run(steps)
                if exchange.charge is not None and exchange.charge.ended(message, sum(map(len, chunks))):
                    steps = encode_response_in_steps(message, header.api_version, header.correlation_id)
                    chunks = await turns.run(steps)
            except Exception as error:  # noqa: BLE001  as above
                self._fail(describe(*header[:2]), error)
                return
            exchange.later = None
            self._encoding -= 1
            self._know(exchange, chunks)
            self._send_soon()
            held = await turns.run(items_in(message))
            del message
            await turns.let_go(held)

    def _note(self, exchange: Exchange, answer: Message | None) -> None:
        """Write a change down, once."""
        change, exchange.audited = exchange.audited, None
        if change is not None:
            note_change(self._caller.who, change, answer)

    def _logged_in(self, exchange: Exchange, message: SaslAuthenticateResponse) -> None:
        header = exchange.header
        exchange.errors = int(bool(message.error_code))
        if header.api_version == _BARE:
            self._know(exchange, [_LENGTH.pack(len(message.auth_bytes)), message.auth_bytes])
            return
        self._know(exchange, encode_response(message, header.api_version, header.correlation_id))
        if exchange.errors:
            # Closed once it has been sent: whoever is refused begins again with a new connection.
            self._is_at_end = True
            self._stop_reading()

    def _know(self, exchange: Exchange, chunks: list[Chunk]) -> None:
        """Store the encoded answer; it is sent when it is its turn."""
        exchange.chunks = chunks
        self._answered_bytes += sum(map(len, chunks))

    def _send(self) -> None:
        """Send every known answer up to the first unknown one."""
        if self._is_taking or self._is_closing:
            return  # frames that came together are answered together; a closed connection not at all
        exchanges, metrics = self._exchanges, self._node.metrics
        out: list[Chunk] = []
        now = self._node.loop.time()
        while exchanges and exchanges[0].chunks is not None:
            exchange = exchanges.popleft()
            exchange.ended()
            self._requests -= exchange.requests
            out += exchange.chunks or ()
            api_key = exchange.header.api_key
            if api_key in _FETCH_KEYS:
                self._fetching = False
            metrics.request_done(api_key, now - exchange.began, exchange.errors, exchange.requests)
        sent_bytes = sum(map(len, out))
        self._answered_bytes -= sent_bytes
        if out and not self._transport.is_closing():
            self._node.metrics.bytes_out += sent_bytes
            self._last_active = now
            self._transport.writelines(out)
            if not self._fetching:  # else records are in them that are not sent, or just being read by a thread
                self._caller.buffers.reclaim()
            self._account()
        elif self._answered_bytes or self._node.memory.is_short:
            self._account()
        if self._is_at_end and not self._has_work:
            self._transport.close()

    def _is_sent(self) -> bool:
        return self._transport.get_write_buffer_size() == 0

    # --- bounds -----------------------------------------------------------------------------------------------------

    def _account(self) -> None:
        """Report to the budget what this connection holds; while memory is short, nothing is kept for later."""
        if self._node.memory.is_short:
            self._release()
        unread = len(self._unread) if self._unread is not None else 0
        unsent = 0 if self._transport.is_closing() else self._transport.get_write_buffer_size()
        buffers, append_queue = self._caller.buffers, self._caller.append_queue
        kept = self._frame.capacity_bytes + buffers.capacity_bytes + append_queue.capacity_bytes
        held = kept + unread + unsent + self._answered_bytes + self._divided_bytes
        self._memory.account(held, is_idle=not append_queue.is_busy)

    def _release(self) -> None:
        """Release the memory that is kept for the next requests and answers."""
        self._frame.release()
        self._caller.append_queue.release()
        if self._is_sent():
            self._caller.buffers.release()

    def _has_memory(self) -> None:
        self._last_active = self._node.loop.time()
        if not self._is_closing:
            if self._frame.need_bytes:
                self._frame.grow()
                self._account()
            self._go_on()

    def sweep(self, now: float) -> None:
        """About once a second: release what an idle connection keeps, and close it when it is idle for too long."""
        idle_ms = (now - self._last_active) * 1000
        if idle_ms >= 1000 and self._memory.held_bytes:
            self._release()
            self._account()
        if not self._has_work and idle_ms > self._node.settings.connections_max_idle_ms:
            self.abort()
        elif self._login is not None and self._login.is_late:
            self.refuse("login", "it took too long to log in")
        elif self._memory.is_in_the_way(idle_ms, is_sent=self._is_sent()):
            self.refuse("memory", f"{self._memory.held_bytes} bytes held without moving while memory is short")

    def _give_up_memory(self) -> None:
        if self.waits_for_login_since is not None:
            self.refuse("memory", "of all that have not logged in, it held most of the memory that they have together")
            return
        self.refuse(
            "memory", f"{self._memory.held_bytes} bytes held of a request that comes slowly while memory is short"
        )

    @property
    def _has_work(self) -> bool:
        return bool(self._exchanges) or self._working is not None or self._unread is not None

    @property
    def waits_for_login_since(self) -> float | None:
        """Since when its client has not logged in, on the loop's clock; None if it has, or need not."""
        login = self._login
        return login.began if login is not None and login.principal is None else None

    @property
    def is_busy(self) -> bool:
        """Whether requests are under way that will be answered without the client doing anything."""
        if self._working is not None or self._unread is not None:
            return True
        return any(exchange.header.api_key not in _PARKED_KEYS for exchange in self._exchanges)

    @property
    def is_shaken(self) -> bool:
        """Whether it was counted before, when its TLS handshake began."""
        return self._endpoint.protocol.endswith(SSL)

    def quotas_changed(self) -> None:
        self._throttle.changed()

    # --- ending -----------------------------------------------------------------------------------------------------

    def refuse(self, kind: str, why: str) -> None:
        """Close the connection for the client's behaviour, with one line in the log, repeated at intervals only."""
        if not self._is_closing:
            self._node.lines.warn((self._caller.host, kind), f"{self.peer}: connection closed: {why}")
            self._node.metrics.connection_refused("bad request")
        self.abort()

    def refuse_later(self, after_s: float, why: str) -> None:
        """Close the connection after a while; until then nothing of it is answered."""

        async def end() -> None:
            self._quotas.held += 1
            try:
                await asyncio.sleep(after_s)
            finally:
                self._quotas.held -= 1
            self.refuse("connection rate", why)

        # As long as something works for it, nothing else of it is begun.
        self._working = self._node.loop.create_task(end())

    def _fail(self, what: str, error: BaseException) -> None:
        logger.error("%s: connection closed: %s failed", self.peer, what, exc_info=error)
        self.abort()

    def abort(self) -> None:
        self._is_closing = True
        self._unread = None
        self._frame.finish()
        self._frame.release()  # at once, not when the transport is closed: others wait for it
        if not self._transport.is_closing():
            self._transport.abort()

    def stop_taking(self) -> None:
        """The broker is stopping: requests under way are still answered, no more are begun."""
        self._stop_reading()
        self._unread = None

    @property
    def is_heard(self) -> bool:
        """Whether the client's system has received all answers; others can be lost by closing."""
        return self._is_sent() and not unacknowledged_bytes(self._transport.get_extra_info("socket"))

    def leave(self) -> None:
        """Send the known answers and close."""
        self._is_closing = True
        self._transport.close()


def _api_key(view: memoryview, body: int) -> int:
    """The API of a request that begins there; -1 for a bare token, which may be shorter than that."""
    return int(_INT16.unpack_from(view, body)[0]) if len(view) >= body + _INT16.size else -1


def size_refusal(start: bytes, limit_bytes: int, setting: str = "socket.request.max.bytes") -> str:
    """The sentence for a refused size; `start` is the four bytes of the size.

    >>> size_refusal(b"GET ", 1000)
    'a request of 1195725856 bytes (it looks like HTTP); it has 8 to socket.request.max.bytes=1000'
    >>> size_refusal(b"\\x00\\x01\\x00\\x00", 1000)
    'a request of 65536 bytes; it has 8 to socket.request.max.bytes=1000'
    """
    size = int.from_bytes(start, "big", signed=True)
    hint = " (it looks like HTTP)" if start in _HTTP_STARTS else ""
    if start[:2] == _TLS_HANDSHAKE:
        hint = " (it looks like TLS, which this listener does not speak)"
    return f"a request of {size} bytes{hint}; it has {HEADER_BYTES_MIN} to {setting}={limit_bytes}"


class HasFileno(Protocol):
    """A socket, or an event loop's view of one."""

    def fileno(self) -> int: ...


def unacknowledged_bytes(connected: HasFileno | None) -> int:
    """Bytes that were sent and are not acknowledged yet; 0 if the system does not say, or the socket is closed.

    Closing a socket with unread input resets it, and the system discards what it has not sent. So answers that the loop
    has written can be lost, unless this is 0.
    """
    if connected is None or sys.platform != "linux":
        return 0
    count = array.array("i", [0])
    try:
        fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, count)
    except (OSError, ValueError):  # it was closed meanwhile
        return 0
    return count[0]
