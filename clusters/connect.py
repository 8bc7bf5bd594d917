"""A worker of Kafka Connect in distributed mode, which is told over REST what to do; and MirrorMaker 2.

with ConnectWorker(directory, bootstrap, {"exactly.once.source.support": "enabled"}) as worker:
    worker.put("lines", {"connector.class": "FileStreamSource", ...})
    worker.wait_state("lines", "RUNNING")
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from clusters.maven import KAFKA, KAFKA_VERSION, class_path, fetch
from clusters.processes import HOST, ClusterProcess, StartFailed, free_ports, is_listening

CONNECT: Final = (
    *KAFKA,
    *(f"org.apache.kafka:{name}:{KAFKA_VERSION}" for name in ("connect-runtime", "connect-file", "connect-mirror")),
)

_WAIT_S: Final = 120
_JVM: Final = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512M", "-Dlog4j2.level=WARN", "-cp")
_JSON: Final = {"Content-Type": "application/json"}
_PASSING: Final = (HTTPStatus.CONFLICT, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.SERVICE_UNAVAILABLE)
"""What a worker says while its group rebalances, or until it has read its topics."""

_SETTINGS: Final = {
    "group.id": "connect",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": 500,
    "scheduled.rebalance.max.delay.ms": 0,
    "session.timeout.ms": 3000,
    "heartbeat.interval.ms": 300,
    "offset.storage.partitions": 3,
    "status.storage.partitions": 1,
}
"""A worker that comes back after a kill is given its work as soon as the group has missed it: after its session."""


class ConnectWorker:
    """One worker, its group of one. Its three topics are on the broker, so it can be killed and started again."""

    def __init__(self, directory: Path, bootstrap: str, properties: Mapping[str, object] | None = None) -> None:
        """JarsUnavailable without Maven."""
        directory.mkdir(parents=True, exist_ok=True)
        self._port = free_ports(1)[0]
        topics = {
            f"{name}.storage.{word}": value
            for name in ("config", "offset", "status")
            for word, value in (("topic", f"connect-{name}"), ("replication.factor", 1))
        }
        addresses = {"bootstrap.servers": bootstrap, "listeners": f"http://{HOST}:{self._port}"}
        settings = _write_properties(
            directory / "worker.properties", {**_SETTINGS, **topics, **addresses, **(properties or {})}
        )
        command = [*_JVM, class_path(fetch(CONNECT)), "org.apache.kafka.connect.cli.ConnectDistributed", str(settings)]
        self.process = ClusterProcess("the worker of Kafka Connect", command, directory / "worker.log")

    def start(self) -> None:
        """Returns when it can be asked; it listens before that, and knows no path."""
        self.process.start()
        self.process.wait_until(lambda: is_listening(self._port) and self.ask("GET", "/", missing=()) != ())

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        self.process.stop()

    def put(self, name: str, settings: Mapping[str, object]) -> None:
        """Make this connector, or give it these settings."""
        words = {key: str(value) for key, value in settings.items()}
        self.ask("PUT", f"/connectors/{name}/config", {"name": name, **words})

    def wait_state(self, name: str, state: str) -> None:
        """Returns when the connector and its tasks are in this state; StartFailed if one of them fails."""
        self.process.wait_until(lambda: {part["state"] for part in self._parts(name)} == {state})

    def _parts(self, name: str) -> list[dict[str, Any]]:
        """The connector and its tasks."""
        answer = self.ask("GET", f"/connectors/{name}/status", missing={})
        parts = [answer["connector"], *answer["tasks"]] if answer else []
        for part in parts:
            if part["state"] == "FAILED":
                raise StartFailed(f"{name} failed: {part['trace']}")
        return parts

    def ask(self, method: str, path: str, body: object = None, *, missing: Any = None) -> Any:
        """The answer, from JSON. It is asked again while it starts or rebalances; `missing` instead of a 404."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{HOST}:{self._port}{path}", data, _JSON, method=method)
        deadline_s = time.monotonic() + _WAIT_S
        while True:
            try:
                with urllib.request.urlopen(request, timeout=_WAIT_S) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                if error.code == HTTPStatus.NOT_FOUND and missing is not None:
                    return missing
                if error.code not in _PASSING or time.monotonic() > deadline_s:
                    text = error.read().decode(errors="replace")
                    raise StartFailed(f"{method} {path} was answered {error.code}: {text}") from None
            time.sleep(0.05)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class MirrorMaker:
    """MirrorMaker 2 as connect-mirror-maker.sh runs it, with workers of its own for each flow."""

    def __init__(self, directory: Path, properties: Mapping[str, object]) -> None:
        """JarsUnavailable without Maven."""
        directory.mkdir(parents=True, exist_ok=True)
        settings = _write_properties(directory / "mirror.properties", properties)
        command = [*_JVM, class_path(fetch(CONNECT)), "org.apache.kafka.connect.mirror.MirrorMaker", str(settings)]
        self.process = ClusterProcess("MirrorMaker 2", command, directory / "mirror.log")

    def __enter__(self) -> Self:
        self.process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()


def _write_properties(path: Path, settings: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return path
