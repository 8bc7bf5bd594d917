"""TLS between a socket's transport and the protocol of a connection: handshake, decryption, encryption, the end.

To follow a connection: `connection_made`, `buffer_updated`, `_step` until the handshake is done (`_established`), then
`_deliver` for what comes and `writelines` for what goes.

asyncio and uvloop have TLS of their own. This one is here for what they do not have: a handshake counts as a connection
from its first packet on, and is told apart from one that is done; encrypted bytes are received in memory that all
connections share, so an idle connection holds none, where uvloop keeps 256 KiB for each; a connection that may not read
holds one receive at most; what is sent is counted until the system has it; and the log says what a refused client did.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from foldlog.errors import MalformedBytes
from foldlog.limits import (
    TLS_GROWN_BYTES,
    TLS_HANDSHAKE_MS,
    TLS_RECEIVE_BYTES,
    TLS_RECORD_BYTES,
    TLS_STATE_BYTES,
)
from foldlog.server.tls.certificates import Certificate, parse_certificate
from foldlog.server.tls.principals import NoPrincipal

if TYPE_CHECKING:
    from foldlog.server.tls.stores import LiveTls

_HEADER_BYTES: Final = 5
_RECORD_BYTES_MAX: Final = TLS_RECORD_BYTES + 2048 + _HEADER_BYTES
"""With what encryption may add to a record, in TLS 1.2."""

_SMALL_BYTES: Final = 4 << 10
"""Pieces of an answer below this share a record: each record is encrypted and sent by itself."""

_WRITE_RECORDS: Final = 20
"""Encrypted and given to the system together: more than the write buffer's limit, so that they leave at once, and few
enough that the next ones are encrypted into the same memory. With all records of an answer at once, the pages for them
cost more than the encryption: 1.1 GB/s, not 2.6."""

_PLAIN_BYTES: Final = 64 << 10
_LINGER_S: Final = 1.0

_HTTP_STARTS: Final = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PATC", b"TRAC", b"PRI ")

_WITH_TLS: Final = "security.protocol=SSL or SASL_SSL"

_NO_CERTIFICATE: Final = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
_REASONS: Final = {
    "UNSUPPORTED_PROTOCOL": "it speaks no version of TLS that is served here",
    "WRONG_VERSION_NUMBER": "it speaks no version of TLS that is served here",
    "VERSION_TOO_LOW": "it speaks no version of TLS that is served here",
    "NO_SHARED_CIPHER": "it has none of the cipher suites that are served here",
    "NO_SHARED_SIGNATURE_ALGORITHMS": "it has none of the signatures of this broker's certificate",
    _NO_CERTIFICATE: "it has no certificate, and ssl.client.auth=required",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the authority of this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not take this broker's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not take this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this broker's certificate has expired",
}


class CountsHandshakes(Protocol):
    """Who knows how many connections there may be, handshakes included."""

    def handshaking(self, handshake: TlsTransport, host: str, descriptor: int) -> None:
        """One more; it is refused if there are too many."""

    def handshaken(self, handshake: TlsTransport, host: str) -> None:
        """It is done, or has failed."""


class HoldsMemory(Protocol):
    """Counts what a connection holds."""

    held_bytes: int

    def account(self, held_bytes: int, *, is_idle: bool) -> None:
        """Report how much that is now."""


class TlsListener:
    """What the connections of a TLS listener share. Event loop only.

    `hold` makes what counts the bytes that a connection holds, and calls back if there are too many; `warn` gets the
    host, a word and a sentence about a connection that was refused; `certificate_refused` the host and the reason if
    it was for the client's certificate.
    """

    def __init__(
        self,
        live: LiveTls,
        loop: asyncio.AbstractEventLoop,
        turns: HandshakeTurns,
        counts: CountsHandshakes,
        *,
        hold: Callable[[Callable[[], None]], HoldsMemory],
        warn: Callable[[str, str, str], None],
        certificate_refused: Callable[[str, str], None],
        has_principals: bool,
    ) -> None:
        self.live = live
        self.loop = loop
        self.turns = turns
        self.counts = counts
        self.hold = hold
        self.warn = warn
        self.certificate_refused = certificate_refused
        self.has_principals = has_principals
        # Behind what a connection has of a record already, there is room for a whole receive.
        self.received = memoryview(bytearray(TLS_RECEIVE_BYTES + _RECORD_BYTES_MAX))
        self.plain = memoryview(bytearray(_PLAIN_BYTES))


class HandshakeTurns:
    """Lets one handshake go on in each turn of the loop. Event loop only.

    A step of a handshake can take a millisecond (a signature with RSA), a request some microseconds: however many
    clients connect at once, those that are connected are served in between.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[TlsTransport] = deque()

    def add(self, handshake: TlsTransport) -> None:
        self._waiting.append(handshake)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        try:
            self._waiting[0].step()
        finally:
            self._waiting.popleft()
            if self._waiting:
                self._loop.call_soon(self._run)


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """One connection: the socket's protocol, and the transport of the protocol that `make` makes after the handshake.
    Event loop only.

    Closing sends a close_notify and waits for none: the next bytes of a Kafka client are another request, and a frame
    that was cut off is not taken for a whole one.
    """

    def __init__(self, listener: TlsListener, make: Callable[[], asyncio.BaseProtocol]) -> None:
        super().__init__()
        self._listener = listener
        self._make = make
        self._ssl: ssl.SSLObject | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._protocol: Any = None  # once the handshake is done
        self._get_buffer: Callable[[int], memoryview]
        self._updated: Callable[[int], None]
        self._principal: str | None = None
        self._memory = listener.hold(self._gave_up)
        self._state_bytes = 0  # OpenSSL's own
        self._kept = b""  # received, and not decrypted: a part of a record, or what has to wait
        self._has_plain = False  # decrypted, and too much for the buffer it was read into
        self._is_paused = False
        self._is_write_paused = False
        self._is_delivering = False
        self._is_raw_paused = False
        self._is_due = False  # it waits for a turn to go on with its handshake
        self._is_at_end = False
        self._is_closing = False
        self._timer: asyncio.TimerHandle | None = None

    # --- the socket's side --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._host = peer[0] if peer else ""
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "a client"
        self._timer = self._listener.loop.call_later(TLS_HANDSHAKE_MS / 1000, self._dawdled)
        self._listener.counts.handshaking(self, self._host, transport.get_extra_info("socket").fileno())

    def get_buffer(self, sizehint: int) -> memoryview:
        received, kept = self._listener.received, self._kept
        if kept:
            received[: len(kept)] = kept
        return received[len(kept) :]

    def buffer_updated(self, nbytes: int) -> None:
        view = self._listener.received[: len(self._kept) + nbytes]
        if self._protocol is not None:
            self._deliver(view)
            return
        if self._is_closing:
            return
        self._keep(view)
        what = _what_it_is(self._kept) if self._ssl is None else None
        if what is not None:
            self.refuse(what, what)
        elif not self._is_due and _has_record(self._kept):
            # Its turn comes; meanwhile it is not read.
            self._is_due = True
            self._pace()
            self._listener.turns.add(self)

    def eof_received(self) -> bool:
        if self._protocol is None:
            return False
        if self._is_at_end:
            return not self._is_closing
        # Without a close_notify: somebody cut the connection. Whole requests were whole.
        self._is_at_end = True
        return bool(self._protocol.eof_received())

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        self._state_bytes = 0
        self._keep(b"")
        if self._protocol is None:
            self._end_handshake()
        else:
            self._protocol.connection_lost(error)

    def pause_writing(self) -> None:
        # Nor is anything read: answers that TLS gives by itself, to requests for new keys, would pile up.
        self._is_write_paused = True
        self._pace()
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._pace()
        if self._protocol is not None:
            self._protocol.resume_writing()

    # --- the handshake ------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Go on with the handshake, as far as what was received goes."""
        if self._is_closing or self._raw.is_closing():
            return
        self._is_due = False
        if self._ssl is None:
            # Made with the first record: who connects and says nothing costs nothing but the connection.
            context = self._listener.live.context
            self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
            self._state_bytes = TLS_STATE_BYTES
        view = memoryview(self._kept)
        position = 0
        try:
            while size := _record_bytes(view, position):
                self._incoming.write(view[position : position + size])
                position += size
                try:
                    self._ssl.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                self._flush()
                self._established(view[position:])
                return
            self._keep(view[position:])
            self._flush()
            self._pace()
        except ssl.SSLError as error:
            self._flush()  # the alert that tells the client
            self._refused(_why(error), is_certificate=_is_of_certificate(error))
        except NoPrincipal as error:
            self._refused(str(error), is_certificate=True)
        except MalformedBytes as error:
            self._refused(str(error))

    def _established(self, rest: memoryview) -> None:
        connected = cast(ssl.SSLObject, self._ssl)
        certificate = connected.getpeercert(binary_form=True) if self._listener.has_principals else None
        if certificate:
            self._principal = self._listener.live.settings.mapper.principal_of(_parsed(certificate))
        self._end_handshake()
        protocol: Any = self._make()
        if isinstance(protocol, asyncio.BufferedProtocol):
            self._get_buffer = cast(Callable[[int], memoryview], protocol.get_buffer)
            self._updated = protocol.buffer_updated
        else:
            plain = self._listener.plain
            self._get_buffer = lambda _: plain
            self._updated = lambda size: protocol.data_received(bytes(plain[:size]))
        self._protocol = protocol
        protocol.connection_made(self)
        self._deliver(rest)

    def _end_handshake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._listener.counts.handshaken(self, self._host)

    def _dawdled(self) -> None:
        self.refuse("handshake", f"its TLS handshake was not done within {TLS_HANDSHAKE_MS} ms")

    def refuse(self, kind: str, why: str) -> None:
        """Close the connection before its handshake is done."""
        if not self._is_closing:
            self._listener.warn(self._host, kind, f"{self.peer}: connection closed: {why}")
        self._end_handshake()  # at once, not when the socket is closed: another may wait for its place
        self.abort()

    def _gave_up(self) -> None:
        self.refuse("memory", "of all that have not logged in, it held most of the memory that they have together")

    def _refused(self, why: str, *, is_certificate: bool = False) -> None:
        """As `refuse`, but the client gets the alert with the reason: closing at once, with bytes of it unread, would
        make the system discard what it has not sent."""
        self._listener.warn(self._host, "handshake", f"{self.peer}: TLS handshake refused: {why}")
        if is_certificate:
            self._listener.certificate_refused(self._host, why)
        self._is_closing = True
        self._keep(b"")
        self._pace()
        if self._timer is not None and not self._raw.is_closing():
            self._timer.cancel()
            self._timer = self._listener.loop.call_later(_LINGER_S, self._raw.abort)
            self._raw.write_eof()

    # --- from the socket to the protocol ------------------------------------------------------------------------------

    def _deliver(self, view: memoryview) -> None:
        """Decrypt, and pass on as much as the protocol takes; the rest is kept."""
        position = 0
        self._is_delivering = True
        try:
            while not (self._is_paused or self._is_closing or self._is_at_end):
                buffer = self._get_buffer(-1)
                filled, room = 0, len(buffer)
                while filled < room and not self._is_at_end:
                    if not self._has_plain:
                        size = _record_bytes(view, position)
                        if not size:
                            break
                        self._incoming.write(view[position : position + size])
                        position += size
                        if size > _SMALL_BYTES:
                            self._state_bytes = TLS_GROWN_BYTES  # reported below
                    filled += self._read(buffer[filled:])
                if filled:
                    self._updated(filled)
                if filled < room:
                    break
        except (ssl.SSLError, MalformedBytes) as error:
            self._broken(error)
            return
        finally:
            self._is_delivering = False
        self._keep(b"" if self._is_closing or self._is_at_end else view[position:])
        if self._outgoing.pending:
            self._flush()
        if self._is_at_end and not self._is_closing and not self._protocol.eof_received():
            self.close()
        self._pace()

    def _read(self, buffer: memoryview) -> int:
        """Decrypt into the buffer; 0 if it was a record of TLS's own."""
        connected = cast(ssl.SSLObject, self._ssl)
        try:
            size = cast(int, connected.read(len(buffer), cast(Any, buffer)))
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLZeroReturnError:  # as below, once we have said goodbye ourselves
            size = 0
        self._is_at_end = not size
        self._has_plain = size == len(buffer) and connected.pending() > 0
        return size

    def _keep(self, rest: bytes | memoryview) -> None:
        self._kept = bytes(rest)
        held_bytes = len(self._kept) + self._state_bytes
        if held_bytes != self._memory.held_bytes:
            self._memory.account(held_bytes, is_idle=False)

    def _pace(self) -> None:
        """Read from the socket, or do not, as it has to be now."""
        must_pause = self._is_paused or self._is_write_paused or self._is_due
        if must_pause != self._is_raw_paused and not self._raw.is_closing():
            self._is_raw_paused = must_pause
            if must_pause:
                self._raw.pause_reading()
            else:
                self._raw.resume_reading()

    def _go_on(self) -> None:
        if self._is_delivering or self._is_paused or self._raw.is_closing():
            return
        if self._kept or self._has_plain:
            self._deliver(memoryview(self._kept))
        else:
            self._pace()

    def _broken(self, error: Exception) -> None:
        why = _why(error) if isinstance(error, ssl.SSLError) else str(error)
        self._listener.warn(self._host, "TLS", f"{self.peer}: connection closed: {why}")
        self._flush()
        self._is_closing = True
        self._raw.abort()

    # --- from the protocol to the socket ------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self._is_closing or self._raw.is_closing():
            return
        encrypt, take = cast(ssl.SSLObject, self._ssl).write, self._outgoing.read
        sent: list[bytes] = []
        try:
            for record in _records(list_of_data):
                if len(record) > _SMALL_BYTES and self._state_bytes != TLS_GROWN_BYTES:
                    self._state_bytes = TLS_GROWN_BYTES
                    self._keep(self._kept)
                encrypt(record)
                sent.append(take())
                if len(sent) == _WRITE_RECORDS:
                    self._raw.writelines(sent)
                    if self._raw.is_closing():
                        return
                    sent = []
        except ssl.SSLError as error:
            self._broken(error)
            return
        if sent:
            self._raw.writelines(sent)

    def _flush(self) -> None:
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Tell the client that nothing more comes; what it sends is still received."""
        if self._ssl is not None and not self._raw.is_closing():
            try:
                self._ssl.unwrap()
            except (ssl.SSLError, ValueError):
                pass  # it waits for the client's own, or finds requests that came meanwhile
            self._flush()

    def close(self) -> None:
        if not self._is_closing:
            self.write_eof()
            self._is_closing = True
            self._raw.close()

    def abort(self) -> None:
        self._is_closing = True
        if not self._raw.is_closing():
            self._raw.abort()

    # --- the rest of a transport --------------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        self._is_paused = True
        self._pace()

    def resume_reading(self) -> None:
        self._is_paused = False
        if not self._is_delivering:
            # In the next turn: whoever calls this is in the midst of something.
            self._listener.loop.call_soon(self._go_on)

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closing

    def is_closing(self) -> bool:
        return self._is_closing or self._raw.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._raw.get_write_buffer_limits()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Besides those of a socket: `principal` of the client's certificate, `held_memory` and `ssl_object`."""
        if name == "principal":
            return self._principal if self._principal is not None else default
        if name == "held_memory":
            return self._memory
        if name == "ssl_object":
            return self._ssl
        return self._raw.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._protocol)


def _records(pieces: Iterable[Any]) -> Iterable[bytes | memoryview]:
    """Cut what is sent into records of TLS: a large piece makes several, small ones share one."""
    small: list[Any] = []
    small_bytes = 0
    for piece in pieces:
        size = len(piece)
        if size < _SMALL_BYTES:
            if small_bytes + size > TLS_RECORD_BYTES:
                yield b"".join(small)
                small, small_bytes = [], 0
            small.append(piece)
            small_bytes += size
            continue
        if small:
            yield b"".join(small)
            small, small_bytes = [], 0
        view = memoryview(piece)
        for start in range(0, size, TLS_RECORD_BYTES):
            yield view[start : start + TLS_RECORD_BYTES]
    if small_bytes:
        yield b"".join(small)


def _record_bytes(view: memoryview, position: int) -> int:
    """The size of the record that begins there; 0 if it is not all there. Raises MalformedBytes for an impossible one.

    Records are given to OpenSSL whole, one by one: it then never asks for more in vain, which costs an exception, and
    its buffer stays as small as a record.
    """
    left = len(view) - position
    if left < _HEADER_BYTES:
        return 0
    size = _HEADER_BYTES + (view[position + 3] << 8 | view[position + 4])
    if size > _RECORD_BYTES_MAX:
        raise MalformedBytes(
            "TLS record", f"it has {size} bytes, and {_RECORD_BYTES_MAX} at most are allowed", position
        )
    return size if size <= left else 0


def _has_record(start: bytes) -> bool:
    """Whether a whole record is there, or one that is refused."""
    try:
        return bool(_record_bytes(memoryview(start), 0))
    except MalformedBytes:
        return True


def _what_it_is(start: bytes) -> str | None:
    r"""What a client that does not speak TLS seems to speak, from its first bytes; None if it is TLS.

    >>> _what_it_is(b"\x00\x00\x00\x2a\x00\x12\x00\x03")
    'it looks like a Kafka client without TLS, on a listener with TLS: it needs security.protocol=SSL or SASL_SSL'
    >>> _what_it_is(b"\x16\x03\x01\x02\x00")
    """
    if start[:1] == b"\x16" and start[1:2] in {b"", b"\x03"}:
        return None
    if start[:4] in _HTTP_STARTS:
        return "it looks like HTTP without TLS, on a listener with TLS: use https"
    if start[:1] == b"\0":
        return f"it looks like a Kafka client without TLS, on a listener with TLS: it needs {_WITH_TLS}"
    if start[:1] and start[0] & 0x80 and start[2:3] == b"\x01":
        return "it looks like SSL 2, which is not served"
    return "it does not look like TLS"


def _parsed(certificate: bytes) -> Certificate:
    try:
        return parse_certificate(certificate)
    except MalformedBytes as error:
        raise NoPrincipal(f"its certificate cannot be read: {error}") from None


def _is_of_certificate(error: ssl.SSLError) -> bool:
    return isinstance(error, ssl.SSLCertVerificationError) or error.reason == _NO_CERTIFICATE


def _why(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not taken: {error.verify_message}"
    return _REASONS.get(reason) or f"OpenSSL says {reason.replace('_', ' ').lower() or str(error)}"
