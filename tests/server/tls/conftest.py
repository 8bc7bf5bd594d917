"""A broker with a listener for TLS, an authority, and clients with and without certificates."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from certificates import Authority, client_context
from foldlog.broker.access.acls import AclOperation, Identity, ResourceType
from foldlog.broker.broker import Broker
from foldlog.server.authorizer import AllowEverything
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server
from server.raw_client import RawClient


class Principals(AllowEverything):
    """An authorizer that allows everything, and notes who asked."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def allows(self, who: Identity, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        self.seen.add(who.principal)
        return True


class Site:
    """An authority, a broker's certificate in a file, and the servers that were started with it."""

    def __init__(self, broker: Broker, path: Path) -> None:
        self._broker = broker
        self._path = path
        self.authority = Authority()
        self.keystore = self.authority.broker().write(path / "broker.pem")
        self.truststore = self.authority.write(path / "authority.pem")
        self.principals = Principals()
        self.servers: list[Server] = []
        self._clients: list[RawClient] = []

    def serve(self, **properties: object) -> Server:
        """With TLS on one listener; `ssl_client_auth` for ssl.client.auth, and so on."""
        given = {name.replace("_", "."): value for name, value in properties.items()}
        settings = {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.location": str(self.truststore),
            **given,
        }
        server = Server.start(self._broker, ServerSettings.parse(settings), authorizer=self.principals)
        self.servers.append(server)
        return server

    def context(self, name: str | None = None, authority: Authority | None = None) -> ssl.SSLContext:
        """Of a client, with a certificate of that name if there is one."""
        if name is None:
            return client_context(self.authority)
        file = self._path / f"client-{len(list(self._path.iterdir()))}.pem"
        return client_context(self.authority, (authority or self.authority).client(name).write(file))

    def connect(self, server: Server | None = None, context: ssl.SSLContext | None = None) -> RawClient:
        address = (server or self.servers[-1]).addresses[0]
        self._clients.append(RawClient(address, tls=context or self.context()))
        return self._clients[-1]

    def plain(self) -> RawClient:
        """A client that does not begin with a handshake."""
        self._clients.append(RawClient(self.servers[-1].addresses[0]))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()
        for server in self.servers:
            server.stop()


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> Iterator[Site]:
    made = Site(broker, tmp_path)
    yield made
    made.close()
