"""A broker that lets nobody in without a certificate, and a client's files."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from certificates import Authority
from foldlog.broker.broker import Broker
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server


class SecureSite:
    """Serves the broker on a port of its own, with TLS and ssl.client.auth=required."""

    def __init__(self, broker: Broker, path: Path) -> None:
        authority = Authority()
        self.authority_file = authority.write(path / "authority.pem")
        self.client_file = authority.client("stock").write(path / "client.pem")
        self._settings = ServerSettings.parse(
            {
                "listeners": "SSL://127.0.0.1:0",
                "ssl.keystore.location": str(authority.broker().write(path / "broker.pem")),
                "ssl.truststore.location": str(self.authority_file),
                "ssl.client.auth": "required",
            }
        )
        self._broker = broker

    def __enter__(self) -> Self:
        self.server = Server.start(self._broker, self._settings)
        self.bootstrap = self.server.bootstrap
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
