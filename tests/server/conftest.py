"""A broker in memory, served on a free port, and raw connections to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from foldlog.broker.broker import Broker
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server
from server.raw_client import RawClient

Serve = Callable[..., Server]
Connect = Callable[[], RawClient]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.open(":memory:") as opened:
        opened.create_topic("orders", partitions=3)
        yield opened


@pytest.fixture
def serve(broker: Broker) -> Iterator[Serve]:
    """Serve the broker with these properties."""
    servers: list[Server] = []

    def start(properties: dict[str, object] | None = None) -> Server:
        settings = ServerSettings.parse({"listeners": "127.0.0.1:0", **(properties or {})})
        servers.append(Server.start(broker, settings))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def server(serve: Serve) -> Server:
    return serve()


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    clients: list[RawClient] = []

    def to_server() -> RawClient:
        clients.append(RawClient(server.addresses[0]))
        return clients[-1]

    yield to_server
    for client in clients:
        client.close()
