"""Apache Iceberg's own REST catalog, from Maven Central: the server that Iceberg tests its clients with."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from clusters.maven import class_path, fetch
from clusters.processes import HOST, ClusterProcess, free_ports

ICEBERG_VERSION: Final = "1.10.0"
ICEBERG_REST: Final = (
    f"org.apache.iceberg:iceberg-open-api:{ICEBERG_VERSION}:test-fixtures",
    f"org.apache.iceberg:iceberg-core:{ICEBERG_VERSION}",
    f"org.apache.iceberg:iceberg-core:{ICEBERG_VERSION}:tests",
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
    "org.eclipse.jetty:jetty-servlet:11.0.26",
    "org.xerial:sqlite-jdbc:3.49.1.0",
    "org.slf4j:slf4j-simple:2.0.17",
)
_ASK_TIMEOUT_S: Final = 30


class RestCatalogServer:
    """One process, with its state in SQLite and its tables in a directory."""

    def __init__(self, directory: Path) -> None:
        """JarsUnavailable without Maven."""
        (port,) = free_ports(1)
        self.url = f"http://{HOST}:{port}"
        java = [
            "java",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xmx512M",
            "-cp",
            class_path(fetch(ICEBERG_REST)),
        ]
        environment = {
            "CATALOG_REST_PORT": str(port),
            "CATALOG_WAREHOUSE": f"file://{directory}/warehouse",
            "CATALOG_URI": f"jdbc:sqlite:{directory}/catalog.db",
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
        }
        command = [*java, "org.apache.iceberg.rest.RESTCatalogServer"]
        self.process = ClusterProcess("Iceberg's REST catalog", command, directory / "rest.log", environment)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/v1/config", timeout=_ASK_TIMEOUT_S):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    def __enter__(self) -> Self:
        self.process.start()
        self.process.wait_until(self._is_ready)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
