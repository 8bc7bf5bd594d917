"""Those that are compared, each a process on the loopback: Apache Kafka as shipped, `foldlog serve`, and kfake."""

from __future__ import annotations

import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from bench.kafka.first_ack import answers, until_led
from clusters.apache_kafka import SHIPPED_HEAP, ApacheKafka
from clusters.franz_go import kfake_program
from clusters.kafka_tools import run_tool
from clusters.processes import HOST, ClusterProcess, free_ports
from confluent_kafka.admin import AdminClient, NewTopic

KAFKA: Final = "kafka"
FOLDLOG: Final = "foldlog"
RELAXED: Final = "relaxed"
KFAKE: Final = "kfake"
KFAKE_SYNCED: Final = "kfake synced"

LABELS: Final = {
    KAFKA: "Apache Kafka",
    FOLDLOG: "foldlog",
    RELAXED: "foldlog, relaxed",
    KFAKE: "kfake",
    KFAKE_SYNCED: "kfake, synced",
}
NEVER: Final = str(2**63 - 1)
"""Of `flush.messages`: never sync because of a number of records, which is Kafka's default and not ours."""

SHIPPED_SETTINGS: Final = {
    "num.network.threads": 3,
    "num.io.threads": 8,
    "socket.send.buffer.bytes": 102_400,
    "socket.receive.buffer.bytes": 102_400,
    "socket.request.max.bytes": 104_857_600,
    "num.partitions": 1,
    "num.recovery.threads.per.data.dir": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 50,
    "log.retention.hours": 168,
    "log.segment.bytes": 1 << 30,
    "log.retention.check.interval.ms": 300_000,
}
"""config/server.properties of the release; transaction.state.log.num.partitions is Kafka's default."""

_ADMIN_S = 30


class Side(ABC):
    """A broker that can be started, killed and started again on its directory. Its port stays the same."""

    name: str
    _process: ClusterProcess

    def begin(self) -> None:
        """Start the process, and do not wait until it answers."""
        self._process.start()

    def start(self) -> None:
        self.begin()
        self._process.wait_until(lambda: answers(self.address))

    def kill(self) -> None:
        """As `kill -9` does it."""
        self._process.kill()

    def stop(self) -> None:
        """As its operator does it."""
        self._process.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    @abstractmethod
    def address(self) -> tuple[str, int]: ...

    @property
    @abstractmethod
    def data(self) -> Path:
        """Where the directories of partitions are."""

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*self.address)

    def create_topic(self, name: str, partitions: int, *, relaxed: bool = False) -> None:
        settings = {"flush.messages": NEVER} if relaxed else {}
        wanted = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin = self._admin()  # it must outlive its answer
        admin.create_topics([wanted])[name].result(_ADMIN_S)
        until_led(self.address, name, partitions)

    def delete_topic(self, name: str) -> None:
        admin = self._admin()
        admin.delete_topics([name])[name].result(_ADMIN_S)

    def segments(self, topic: str) -> list[Path]:
        return sorted(self.data.glob(f"{topic}-*/*.log"))

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})


class KafkaSide(Side):
    """One broker and controller in a process, 1 GB of heap, release defaults: it answers before it syncs."""

    name = KAFKA

    def __init__(
        self, directory: Path, properties: Mapping[str, object] | None = None, listeners: Sequence[str] = ()
    ) -> None:
        """Formatted and started, as it is not counted at a start."""
        settings = {**SHIPPED_SETTINGS, **(properties or {})}
        cluster = ApacheKafka.launch(directory, properties=settings, listeners=listeners, heap=SHIPPED_HEAP)
        self._node = cluster.brokers[0]
        self._process = self._node.process

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self._node.ports["PLAINTEXT"]

    @property
    def tls_address(self) -> tuple[str, int]:
        """Where it was started with a listener of SSL."""
        return HOST, self._node.ports["SSL"]

    @property
    def data(self) -> Path:
        return self._node.data


class FoldlogSide(Side):
    """`foldlog serve` with no other setting than its port: acks=all is answered after fdatasync."""

    name = FOLDLOG

    def __init__(self, directory: Path, properties: Mapping[str, object] | None = None) -> None:
        """With properties, it has a listener with TLS, too."""
        self._port, self._tls_port = free_ports(2)
        self._directory = directory
        directory.mkdir(parents=True)
        script = Path(sys.executable).with_name("foldlog")
        command = [str(script), "serve", str(self.data), "--listen", f"{HOST}:{self._port}"]
        if properties:
            command += ["--listen", f"SSL://{HOST}:{self._tls_port}"]
            command += [word for name, value in properties.items() for word in ("-X", f"{name}={value}")]
        # As installed: pip compiles to bytecode once, and nobody waits for that at a start.
        environment = {"PYTHONDONTWRITEBYTECODE": ""}
        self._process = ClusterProcess("foldlog serve", command, directory / "broker.log", environment)
        self.start()

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self._port

    @property
    def tls_address(self) -> tuple[str, int]:
        """Where it was started with properties."""
        return HOST, self._tls_port

    @property
    def data(self) -> Path:
        return self._directory / "data"


class KfakeSide(Side):
    """franz-go's kfake with its data on disk: it answers before it syncs."""

    name = KFAKE
    _words: Sequence[str] = ()

    def __init__(self, directory: Path) -> None:
        (self._port,) = free_ports(1)
        self._directory = directory
        directory.mkdir(parents=True)
        command = [str(kfake_program()), str(self._port), str(directory / "data"), *self._words]
        self._process = ClusterProcess(self.name, command, directory / "broker.log")
        self.start()

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self._port

    @property
    def data(self) -> Path:
        return self._directory / "data" / "partitions"

    def segments(self, topic: str) -> list[Path]:
        return sorted(self.data.glob(f"{topic}-*/*.dat"))


class SyncedKfakeSide(KfakeSide):
    """kfake that syncs the segment and its index after every batch, and answers then."""

    name = KFAKE_SYNCED
    _words = ("sync",)


_MADE: Final[dict[str, Callable[[Path], Side]]] = {
    KAFKA: KafkaSide,
    FOLDLOG: FoldlogSide,
    KFAKE: KfakeSide,
    KFAKE_SYNCED: SyncedKfakeSide,
}


@contextmanager
def running(directory: Path, *names: str) -> Iterator[dict[str, Side]]:
    """All of them at once, each idle while another is measured. Their directories are gone afterwards."""
    found: dict[str, Side] = {}
    try:
        for name in names:
            found[name] = _MADE[name](directory / name.replace(" ", "-"))
        yield found | ({RELAXED: found[FOLDLOG]} if FOLDLOG in found else {})
    finally:
        for side in found.values():
            side.kill()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def both(directory: Path) -> Iterator[dict[str, Side]]:
    """Apache Kafka and foldlog."""
    with running(directory, KAFKA, FOLDLOG) as sides:
        yield sides


@cache
def kafka_version() -> str:
    """What Kafka's own tool says; it takes a Java of its own to say it."""
    return run_tool("kafka-topics", "--version").stdout.split()[0]
