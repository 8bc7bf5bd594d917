"""Apache Kafka as it ships, on loopback: one broker or several in KRaft mode, each an ordinary process.

with ApacheKafka.launch(directory, brokers=3) as kafka:
    foldlog.connect(kafka.url)
    kafka.brokers[0].kill()
    kafka.brokers[0].start()
"""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from clusters.maven import KAFKA, class_path, fetch
from clusters.processes import HOST, ClusterProcess, StartFailed, free_ports

USER: Final = "orders"
PASSWORD: Final = "orders-secret"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

SHIPPED_JVM: Final = (
    "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip
"""The options that kafka-run-class.sh gives to the JVM; its heap is 1 GB from the start (kafka-server-start.sh)."""

SHIPPED_HEAP: Final = "1G"
SMALL_HEAP: Final = "256M"

_LOGGING: Final = """\
<Configuration status="WARN"><Appenders><Console name="out"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console>
</Appenders><Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""


@dataclass(frozen=True)
class SaslSsl:
    """A second listener of each broker, with TLS and users: all of MECHANISMS, USER and PASSWORD.

    `pem` is a file with the broker's key and certificate chain, as Kafka's PEM keystores have them.
    """

    pem: Path


class KafkaNode:
    """One broker, which is a controller too. Its data is in `data`, its log in `process.output`."""

    def __init__(self, number: int, directory: Path, ports: Mapping[str, int], heap: str, plugins: str = "") -> None:
        self.number = number
        self.ports = ports
        self.data = directory / "data"
        self.data.mkdir(parents=True)
        self.properties = directory / "server.properties"
        self._jars = class_path(fetch(KAFKA))
        logging = directory / "log4j2.xml"
        logging.write_text(_LOGGING, encoding="utf-8")
        command = [
            "java", f"-Xmx{heap}", f"-Xms{heap}", *SHIPPED_JVM, f"-Dlog4j2.configurationFile={logging}",
            "-cp", os.pathsep.join(filter(None, (self._jars, plugins))), "kafka.Kafka", str(self.properties),
        ]  # fmt: skip
        self.process = ClusterProcess(f"Kafka's broker {number}", command, directory / "broker.log")

    @property
    def address(self) -> str:
        return f"{HOST}:{self.ports['PLAINTEXT']}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def format(self, cluster_id: str, *, has_users: bool) -> None:
        """What kafka-storage.sh does before a first start."""
        users = [
            word
            for mechanism in MECHANISMS
            if has_users and mechanism.startswith("SCRAM")
            for word in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]")
        ]
        command = ["java", "-cp", self._jars, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}"]
        done = subprocess.run(
            [*command, "-c", str(self.properties), *users], check=False, capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise StartFailed(f"Kafka's storage tool refused {self.properties}: {done.stdout}{done.stderr}")

    def start(self) -> None:
        """Come up, and return when it answers."""
        self.process.start()
        self.process.wait_until(lambda: len(_known_brokers(self.address)) > 0)

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        self.process.stop()


class ApacheKafka:
    """A cluster that is up. Topics are made with one partition and as many replicas as it has brokers, up to three."""

    def __init__(self, brokers: list[KafkaNode]) -> None:
        self.brokers = brokers

    @classmethod
    def launch(
        cls,
        directory: Path,
        *,
        brokers: int = 1,
        properties: Mapping[str, object] | None = None,
        sasl_ssl: SaslSsl | None = None,
        users: Mapping[str, str] | None = None,
        listeners: Sequence[str] = (),
        heap: str = SMALL_HEAP,
        plugins: Sequence[Path] = (),
    ) -> ApacheKafka:
        """Format and start them. `properties` go into each server.properties, which may name classes of `plugins`, Java
        files that are compiled first; `users`, with their passwords, log in by PLAIN on a listener SASL_PLAINTEXT.
        Further `listeners` are named by their protocol, and have what they need in `properties`. JarsUnavailable
        without Maven."""
        secured = {"SASL_SSL": sasl_ssl, "SASL_PLAINTEXT": users, **dict.fromkeys(listeners, True)}
        names = ["PLAINTEXT", "CONTROLLER", *(name for name, wanted in secured.items() if wanted)]
        ports = iter(free_ports(brokers * len(names)))
        classes = _compiled(plugins, directory / "plugins") if plugins else ""
        nodes = [
            KafkaNode(number, directory / f"broker-{number}", {name: next(ports) for name in names}, heap, classes)
            for number in range(1, brokers + 1)
        ]
        cluster = cls(nodes)
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        try:
            for node in nodes:
                settings = {
                    **_settings(node, nodes),
                    **_security(node, sasl_ssl),
                    **_users(users),
                    **(properties or {}),
                }
                lines = [f"{name}={value}" for name, value in settings.items()]
                node.properties.write_text("\n".join(lines) + "\n", encoding="utf-8")
                node.format(cluster_id, has_users=sasl_ssl is not None)
            for node in nodes:
                node.process.start()
            cluster.wait_until_whole()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.brokers)

    @property
    def sasl_bootstrap(self) -> str:
        return ",".join(f"localhost:{node.ports['SASL_SSL']}" for node in self.brokers)

    @property
    def url(self) -> str:
        return f"kafka://{self.bootstrap}"

    def wait_until_whole(self) -> None:
        """Every broker is up and knows of all the others."""
        for node in self.brokers:
            node.process.wait_until(lambda node=node: len(_known_brokers(node.address)) == len(self.brokers))  # type: ignore[misc]

    def stop(self) -> None:
        for node in reversed(self.brokers):
            node.process.kill()  # in order they wait for each other, and nobody reads what they would write

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _compiled(sources: Sequence[Path], directory: Path) -> str:
    """The directory with the classes of these files."""
    command = ["javac", "-cp", class_path(fetch(KAFKA)), "-d", str(directory), *map(str, sources)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise StartFailed(f"a plugin does not compile: {done.stdout}{done.stderr}")
    return str(directory)


def _settings(node: KafkaNode, nodes: list[KafkaNode]) -> dict[str, object]:
    """config/server.properties of the release, but for addresses, directories and how often things are kept."""
    replicas = min(3, len(nodes))
    listeners = {name: "localhost" if name == "SASL_SSL" else HOST for name in node.ports}
    urls = [f"{name}://{listeners[name]}:{port}" for name, port in node.ports.items()]
    return {
        "process.roles": "broker,controller",
        "node.id": node.number,
        "controller.quorum.voters": ",".join(f"{one.number}@{HOST}:{one.ports['CONTROLLER']}" for one in nodes),
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in node.ports.items()),
        "advertised.listeners": ",".join(url for url in urls if not url.startswith("CONTROLLER")),
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
        ),
        "log.dirs": node.data,
        "default.replication.factor": replicas,
        "min.insync.replicas": min(2, replicas),
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": 5 if replicas > 1 else 50,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min(2, replicas),
        "transaction.state.log.num.partitions": 5,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": min(2, replicas),
        "group.initial.rebalance.delay.ms": 0,
    }


def _security(node: KafkaNode, sasl_ssl: SaslSsl | None) -> dict[str, object]:
    if sasl_ssl is None:
        return {}
    prefix = "listener.name.sasl_ssl"
    modules = {
        "plain": f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
        "scram-sha-256": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        "scram-sha-512": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    }
    return {
        f"{prefix}.ssl.keystore.type": "PEM",
        f"{prefix}.ssl.keystore.location": sasl_ssl.pem,
        f"{prefix}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        **{f"{prefix}.{name}.sasl.jaas.config": module for name, module in modules.items()},
    }


def _users(users: Mapping[str, str] | None) -> dict[str, object]:
    if not users:
        return {}
    words = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    prefix = "listener.name.sasl_plaintext"
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        f"{prefix}.sasl.enabled.mechanisms": "PLAIN",
        f"{prefix}.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {words};"
        ),
    }


def _known_brokers(address: str) -> dict[int, object]:
    """The brokers that the one at this address knows of, itself included; none while it does not answer."""
    client = AdminClient({"bootstrap.servers": address, "log_level": 0}, logger=None)
    try:
        return dict(client.list_topics(timeout=1).brokers)
    except KafkaException:
        return {}
