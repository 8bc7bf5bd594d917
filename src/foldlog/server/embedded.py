"""A log that a program has open, served from a thread of that program: `foldlog.open(..., listen=...)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from foldlog.broker.broker import Broker
from foldlog.broker.data_directory import writer_of
from foldlog.client.backends.backend import backend_of
from foldlog.client.backends.local import LocalBackend
from foldlog.client.log import Log
from foldlog.errors import DirectoryLocked, InvalidArgument, InvalidConfig, ReadOnly, brief_repr
from foldlog.files.posix import PosixFiles
from foldlog.server.call import Interceptor
from foldlog.server.config.settings import ServerSettings
from foldlog.server.net.listeners import PLAINTEXT, parse_listeners, refuse_exposed
from foldlog.server.server import Server

ANY_PORT: Final = ("127.0.0.1:0",)
"""The address for listen=True: only this machine reaches it, and two logs never want the same port."""


class EmbeddedServer:
    """A server whose address is in the directory's lock file. See `backend.LogListener`."""

    def __init__(self, broker: Broker, settings: ServerSettings) -> None:
        self._broker = broker
        self._server = Server.start(broker, settings)
        self.bootstrap = self._server.bootstrap
        broker.publish_address(*self._server.addresses[0])
        self._is_stopped = False

    def stop(self) -> None:
        """Answer the requests under way, and stop listening. Idempotent."""
        if not self._is_stopped:
            self._is_stopped = True
            # First: a client that looks for the writer now has to wait for the next one, not connect to this one.
            self._broker.withdraw_address()
            self._server.stop()

    def abort(self, meanwhile: Callable[[], None]) -> None:
        """End as a killed process does: see `Server.abort`. The address stays in the lock file. Idempotent."""
        if not self._is_stopped:
            self._is_stopped = True
            self._server.abort(meanwhile)

    def intercept(self, interceptor: Interceptor | None) -> None:
        """See `Server.intercept`."""
        self._server.intercept(interceptor)


def listen_on(log: Log, where: bool | str | Sequence[str], *, insecure: bool = False) -> None:
    """Serve the log. If that is refused, the log is closed: the caller asked for both."""
    try:
        settings = _settings(where, insecure)
        backend = backend_of(log)
        if isinstance(backend, LocalBackend):
            if backend.reader.read_only:
                raise ReadOnly("a log opened with mode='r' cannot listen: only the directory's writer can be reached")
            backend.listen_through(EmbeddedServer(backend.reader, settings))
        elif where is not True:
            holder = writer_of(PosixFiles(), log.path)
            raise DirectoryLocked(log.path, holder.pid if holder else None, log.bootstrap)
    except BaseException:
        log.close()
        raise


def _settings(where: object, insecure: object) -> ServerSettings:
    if type(insecure) is not bool:
        raise InvalidArgument(f"insecure={brief_repr(insecure)} is neither True nor False")
    addresses = where
    if where is True:
        addresses = ANY_PORT
    elif isinstance(where, str):
        addresses = [where]
    if (
        isinstance(addresses, bytes)
        or not isinstance(addresses, Sequence)
        or not all(isinstance(one, str) for one in addresses)
    ):
        raise InvalidArgument(
            f"listen={brief_repr(where)} is not allowed; it is True for a free port, or addresses such as"
            " '127.0.0.1:9092'"
        )
    for listener in parse_listeners(addresses, {}):
        if listener.protocol != PLAINTEXT:
            raise InvalidConfig(
                f"listen={brief_repr(where)} asks for {listener.protocol}, which needs settings that a program does not"
                " pass here; serve the directory with 'foldlog serve'"
            )
        if not insecure:
            refuse_exposed(listener, "a listener", allow="say insecure=True")
        if listener.is_wildcard:
            raise InvalidConfig(
                f"a listener on {listener.address} is on every interface, which is no address to tell clients; name the"
                " address at which they reach this machine, such as listen='192.168.1.20:9092'"
            )
    return ServerSettings.parse({"listeners": ",".join(addresses), "foldlog.insecure": insecure})
