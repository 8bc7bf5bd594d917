"""All open connections, TLS handshakes included: their limits, and the regular sweep that enforces them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from foldlog.files.posix import descriptor_advice, leaves_descriptors
from foldlog.limits import DESCRIPTORS_LEFT_BY_CONNECTIONS, TLS_GROWN_BYTES, TLS_SHARE

if TYPE_CHECKING:
    from foldlog.server.config.settings import ServerSettings
    from foldlog.server.metrics.metrics import Metrics
    from foldlog.server.net.connection import ClientConnection
    from foldlog.server.net.quotas import NodeQuotas
    from foldlog.server.tls.transport import TlsTransport

SWEEP_S: Final = 1.0

TOO_FAST: Final = "{} connects more often than its connection_creation_rate allows"


class Connections:
    """The open connections, counted by host, and the limits on them. Event loop only, but `settings`, which any thread
    may replace: new connections are measured by it."""

    def __init__(self, settings: ServerSettings, metrics: Metrics, quotas: NodeQuotas) -> None:
        self.settings = settings
        self._quotas = quotas
        self._metrics = metrics
        self._open: set[ClientConnection] = set()
        self._handshakes: dict[TlsTransport, None] = {}  # in the order in which they began
        self._encrypted = 0  # connections with TLS
        self._by_host: Counter[str] = Counter()
        self._takes_more = True

    def __len__(self) -> int:
        return len(self._open) + len(self._handshakes)

    @property
    def hosts(self) -> int:
        """From how many addresses they come."""
        return len(self._by_host)

    def opened(self, connection: ClientConnection, host: str, descriptor: int) -> None:
        if len(self) >= self.settings.max_connections:
            self._make_room()
        self._open.add(connection)
        self._encrypted += connection.is_shaken
        self._by_host[host] += 1
        self._metrics.connection_opened()
        if not self._check(connection, host, descriptor):
            return
        if self._quotas.limits_connections and not connection.is_shaken:
            delay_s = self._quotas.connection_delay_s(host)
            if delay_s is not None:
                connection.refuse_later(delay_s, TOO_FAST.format(host))

    def _make_room(self) -> None:
        """Where there are as many as may be, the oldest that has not logged in leaves: otherwise some who never do keep
        everybody out."""
        strangers = [one for one in self._open if one.waits_for_login_since is not None]
        if strangers:
            oldest = min(strangers, key=lambda one: one.waits_for_login_since or 0.0)
            oldest.refuse("login", "it had not logged in, and made room for another client")
            self._open.discard(oldest)

    def handshaking(self, handshake: TlsTransport, host: str, descriptor: int) -> None:
        """A client of a TLS listener has connected. Where there are as many as may be, the oldest that has not finished
        its handshake makes room: otherwise some thousand who never finish would keep everybody out."""
        if self._handshakes and len(self) >= self.settings.max_connections:
            next(iter(self._handshakes)).refuse("handshake", "its TLS handshake made room for another client's")
        self._handshakes[handshake] = None
        self._by_host[host] += 1
        if (
            self._check(handshake, host, descriptor)
            and self._quotas.limits_connections
            and self._quotas.connection_delay_s(host) is not None
        ):
            handshake.refuse("connection rate", TOO_FAST.format(host))

    def handshaken(self, handshake: TlsTransport, host: str) -> None:
        """Its handshake is done, or has failed."""
        del self._handshakes[handshake]
        self._leave_host(host)

    def quotas_changed(self) -> None:
        """There are other quotas: who is throttled looks again."""
        for connection in tuple(self._open):
            connection.quotas_changed()

    def _check(self, connection: ClientConnection | TlsTransport, host: str, descriptor: int) -> bool:
        """Whether it may stay; if not, it is refused."""
        settings = self.settings
        if not self._takes_more:
            connection.abort()  # it was accepted while the listeners closed
        elif len(self) > settings.max_connections:
            connection.refuse("connections", f"there are max.connections={settings.max_connections} already")
        elif self._by_host[host] > settings.max_connections_per_ip:
            limit = settings.max_connections_per_ip
            connection.refuse("connections", f"there are max.connections.per.ip={limit} from {host} already")
        elif self._encrypted > (encrypted_max := settings.queued_max_request_bytes // TLS_SHARE // TLS_GROWN_BYTES):
            connection.refuse(
                "memory",
                f"there are {encrypted_max} connections with TLS already, which is what queued.max.request.bytes"
                " has memory for",
            )
        elif not leaves_descriptors(descriptor, DESCRIPTORS_LEFT_BY_CONNECTIONS):
            connection.refuse("descriptors", f"there are too many: {descriptor_advice()}")
        else:
            return True
        return False

    def _leave_host(self, host: str) -> None:
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def closed(self, connection: ClientConnection, host: str) -> None:
        self._open.discard(connection)
        self._encrypted -= connection.is_shaken
        self._leave_host(host)
        self._metrics.connection_closed()

    def sweep(self, now: float) -> None:
        for connection in tuple(self._open):
            connection.sweep(now)

    def stop_taking(self) -> None:
        """Begin no more requests; those under way go on."""
        self._takes_more = False
        for handshake in tuple(self._handshakes):
            handshake.abort()
        for connection in tuple(self._open):
            connection.stop_taking()

    @property
    def are_busy(self) -> bool:
        return any(connection.is_busy for connection in self._open)

    @property
    def are_heard(self) -> bool:
        return all(connection.is_heard for connection in self._open)

    def leave(self) -> None:
        """Send the known answers, and close."""
        for connection in tuple(self._open):
            connection.leave()

    def abort(self) -> None:
        for connection in tuple(self._open):
            connection.abort()
