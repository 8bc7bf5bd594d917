"""Flink's Kafka connector from Maven Central, in a cluster of Flink's within one process: `FlinkCopy.java`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from clusters.cache import cached
from clusters.maven import JarsUnavailable, class_path, fetch
from clusters.processes import ClusterProcess

FLINK_VERSION: Final = "2.2.1"
CONNECTOR_VERSION: Final = "5.0.0-2.2"
"""The newest that Maven Central has, in November 2026: for Flink 2.2, with Kafka's clients 4.2.0."""

FLINK: Final = (
    *(f"org.apache.flink:{name}:{FLINK_VERSION}" for name in ("flink-streaming-java", "flink-clients")),
    f"org.apache.flink:flink-connector-base:{FLINK_VERSION}",
    f"org.apache.flink:flink-connector-kafka:{CONNECTOR_VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
COPY: Final = Path(__file__).with_name("FlinkCopy.java")
_OPENED: Final = ("java.lang", "java.util", "java.util.concurrent", "java.net", "java.io", "java.nio")
"""Packages of Java's that Flink reaches into; its own scripts say so, too."""


class FlinkCopy:
    """The program, which can be killed and started again: it then goes on from its newest checkpoint."""

    def __init__(self, directory: Path, bootstrap: str, source: str, target: str, fails_at: str) -> None:
        """JarsUnavailable without Maven and a Java compiler."""
        opened = [word for name in _OPENED for word in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")]
        classes = f"{_compiled()}:{class_path(fetch(FLINK))}"
        java = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx768M", "-Dlog4j2.level=WARN"]
        self._checkpoints = directory / "checkpoints"
        self._command = [*java, *opened, "-cp", classes, "FlinkCopy", bootstrap, source, target]
        self._command += [str(self._checkpoints), fails_at]
        self._output = directory / "flink.log"
        self.process = ClusterProcess("Flink", self._command, self._output)

    def start(self) -> None:
        newest = self.newest_checkpoint()
        words = [] if newest is None else [str(newest)]
        self.process = ClusterProcess("Flink", [*self._command, *words], self._output)
        self.process.start()

    def newest_checkpoint(self) -> Path | None:
        """The newest that is complete, of all jobs: each start is another one."""
        complete = self._checkpoints.glob("*/chk-*/_metadata")
        return max((path.parent for path in complete), key=lambda path: path.stat().st_mtime_ns, default=None)

    def kill(self) -> None:
        self.process.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def _compiled() -> Path:
    """The classes of the program: Flink loads them by their names, so `java FlinkCopy.java` would not do."""
    if shutil.which("javac") is None:
        raise JarsUnavailable("javac is not installed; enable with: apt-get install default-jdk-headless")
    return cached("flink", "\n".join(FLINK).encode() + COPY.read_bytes(), _compile)


def _compile(directory: Path) -> None:
    command = ["javac", "-cp", class_path(fetch(FLINK)), "-d", str(directory), str(COPY)]
    subprocess.run(command, capture_output=True, text=True, check=True)
