"""Apicurio Registry from Maven Central, with its storage in topics (kafkasql): what schemas there are is in the log."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from clusters.maven import fetch_archive
from clusters.processes import HOST, ClusterProcess, free_ports

APICURIO_VERSION: Final = "3.0.9"
"""Of those that run on Java 17, the newest: 3.3 wants Java 21."""

APICURIO: Final = f"io.apicurio:apicurio-registry-app:{APICURIO_VERSION}:tar.gz:all"
_ASK_TIMEOUT_S: Final = 60
_HEADERS: Final = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


class Registry:
    """One process, which can be killed and started again: it reads its journal anew."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        """JarsUnavailable without Maven."""
        (port,) = free_ports(1)
        self._url = f"http://{HOST}:{port}"
        jar = fetch_archive(APICURIO) / f"apicurio-registry-app-{APICURIO_VERSION}-runner.jar"
        java = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512M", "-jar", str(jar)]
        environment = {
            "APICURIO_STORAGE_KIND": "kafkasql",
            "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": bootstrap,
            "QUARKUS_HTTP_HOST": HOST,
            "QUARKUS_HTTP_PORT": str(port),
        }
        self.process = ClusterProcess("Apicurio Registry", java, directory / "apicurio.log", environment)

    def start(self) -> None:
        """Returns when it has read its journal."""
        self.process.start()
        self.process.wait_until(self._is_ready)

    def kill(self) -> None:
        self.process.kill()

    def ask(self, path: str, body: object = None) -> Any:
        """The answer of its Confluent-compatible interface; HTTPError if it refuses."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/apis/ccompat/v7{path}", data, _HEADERS)
        with urllib.request.urlopen(request, timeout=_ASK_TIMEOUT_S) as answer:
            return json.loads(answer.read())

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/health/ready", timeout=_ASK_TIMEOUT_S):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
