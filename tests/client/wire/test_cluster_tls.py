"""A conversation inside TLS: through a door that speaks it, to a real broker behind."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, suppress
from io import StringIO
from pathlib import Path

import pytest

import foldlog
from client.wire.localhost_certificate import PEM
from client.wire.test_cluster_reads import read
from foldlog.cli.exit_codes import UNREACHABLE
from foldlog.cli.main import main
from foldlog.client.wire.cluster import Cluster
from foldlog.errors import BrokerUnreachable
from foldlog.records.batch import MAX_INT32
from foldlog.records.loops import pack
from foldlog.testing import KafkaBroker
from foldlog.testing.plugin import KafkaBrokerFactory

QUICK = {"retry.backoff.ms": "1", "fetch.max.wait.ms": "1"}


class TlsDoor:
    """Passes what comes over TLS on to a broker, and its answers back. Its address is what the broker advertises."""

    def __init__(self, certificate: Path, *, asks_who_you_are: bool = False) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        if asks_who_you_are:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.asks_who_you_are = asks_who_you_are

    def towards(self, broker: KafkaBroker) -> None:
        self.broker = broker
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """One request, one answer: what a client that waits for each needs, and TLS sockets are one thread's."""
        with (
            suppress(OSError),
            self._context.wrap_socket(connection, server_side=True) as client,
            socket.create_connection((self.broker.host, self.broker.port)) as broker,
        ):
            while True:
                broker.sendall(_frame(client))
                client.sendall(_frame(broker))


def _frame(source: socket.socket) -> bytes:
    size = _exactly(source, 4)
    return size + _exactly(source, int.from_bytes(size, "big"))


def _exactly(source: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        piece = source.recv(count - len(found))
        if not piece:
            raise ConnectionError
        found += piece
    return bytes(found)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    file = tmp_path / "localhost.pem"
    file.write_text(PEM)
    return file


@pytest.fixture(params=[False, True], ids=["anybody", "known"])
def door(
    request: pytest.FixtureRequest, certificate: Path, kafka_broker_factory: KafkaBrokerFactory
) -> Iterator[TlsDoor]:
    made = TlsDoor(certificate, asks_who_you_are=request.param)
    made.towards(kafka_broker_factory({"advertised.listeners": made.address}))
    yield made
    made.close()


def test_records_go_and_come_over_tls(door: TlsDoor, certificate: Path) -> None:
    properties = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(certificate),
        "ssl.certificate.location": str(certificate),
    }
    with Cluster.open(door.address, properties) as cluster:
        cluster.create_topic("orders")
        with cluster.producer() as producer:
            for number in range(20):
                producer.send("orders", 0, pack([(1, None, b"%d" % number * 50_000, ())]))
        assert [len(record.value) for record in read(cluster, "orders", 0, 20)] == [50_000] * 10 + [100_000] * 10


def test_java_s_stores_of_type_pem_are_taken_too(door: TlsDoor, certificate: Path) -> None:
    stores = {"ssl.truststore.location": str(certificate), "ssl.keystore.location": str(certificate)}
    types = {"ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}
    with Cluster.open(door.address, {"security.protocol": "SSL", **stores, **types}) as cluster:
        assert cluster.topics() == []
    stores = {"ssl.truststore.certificates": PEM, "ssl.keystore.location": str(certificate)}
    with Cluster.open(door.address, {"security.protocol": "SSL", **stores, **types}) as cluster:
        assert cluster.topics() == []


@pytest.mark.usefixtures("few_tries")
def test_a_broker_whose_certificate_nobody_vouches_for_is_not_talked_to(door: TlsDoor) -> None:
    said = r"shows a certificate that is not trusted here \(self-signed certificate\); set ssl\.ca\.location to "
    with pytest.raises(BrokerUnreachable, match=said):
        Cluster.open(door.address, {**QUICK, "security.protocol": "SSL"})
    tireless = {"default.api.timeout.ms": str(MAX_INT32), "retry.backoff.ms": "1", "security.protocol": "SSL"}
    with pytest.raises(BrokerUnreachable, match=said):
        Cluster.open(door.address, tireless, has_answered=True)


def told_on_the_command_line(address: str, properties: dict[str, str]) -> str:
    options = [word for item in properties.items() for word in ("-X", "=".join(item))]
    with redirect_stderr(StringIO()) as said:
        assert main(["topic", "list", "-b", address, *options]) == UNREACHABLE
    return said.getvalue().rstrip("\n")


def told_by_our_connections(address: str, properties: dict[str, str]) -> str:
    with pytest.raises(BrokerUnreachable) as caught:
        Cluster.open(address, {**QUICK, **properties})
    return str(caught.value)


def told_by_connect(address: str, properties: dict[str, str]) -> str:
    with pytest.raises(BrokerUnreachable) as caught:
        foldlog.connect(f"kafka://{address}", properties=properties)
    return str(caught.value)


LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": "orders", "sasl.password": "secret"}


def mistakes_about(door: TlsDoor, certificate: Path) -> list[tuple[str, dict[str, str], str]]:
    """(where, with what, what is said)."""
    tls = {"security.protocol": "SSL", "ssl.ca.location": str(certificate)}
    found = [
        (door.address, {}, "speaks TLS, and security.protocol is PLAINTEXT; set security.protocol=SSL, or SASL_SSL"),
        (door.address, {"security.protocol": "SSL"}, "(self-signed certificate); set ssl.ca.location"),
        (str(door.broker), tls, "speaks no TLS, and security.protocol is SSL; set security.protocol=PLAINTEXT, or"),
        (
            str(door.broker),
            {**LOGIN, **tls, "security.protocol": "SASL_SSL"},
            "; set security.protocol=SASL_PLAINTEXT,",
        ),
        (
            door.address,
            {**LOGIN, "security.protocol": "SASL_PLAINTEXT"},
            "; set security.protocol=SASL_SSL, and ssl.ca.",
        ),
        (door.address.replace("127.0.0.1", "127.1"), tls, "a certificate for another name (Hostname mismatch, "),
    ]
    if door.asks_who_you_are:
        found.append((door.address, tls, "(certificate required); set ssl.certificate.location and ssl.key.location"))
    return found


@pytest.mark.usefixtures("few_tries")
def test_every_mistake_about_tls_is_told_in_one_sentence(door: TlsDoor, certificate: Path) -> None:
    for address, properties, said in mistakes_about(door, certificate):
        sentence = told_by_our_connections(address, properties)
        assert said in sentence
        assert "secret" not in sentence
        assert "\n" not in sentence


@pytest.mark.usefixtures("few_tries")
@pytest.mark.parametrize("told", [told_by_connect, told_on_the_command_line])
def test_connect_and_the_command_line_tell_the_same(
    told: Callable[[str, dict[str, str]], str], certificate: Path, kafka_broker: KafkaBroker
) -> None:
    """librdkafka says nothing of the first, and much of the others."""
    door = TlsDoor(certificate)
    door.towards(kafka_broker)
    for address, properties, said in mistakes_about(door, certificate)[:3]:
        sentence = told(address, properties)
        assert said in sentence
        assert "\n" not in sentence
    door.close()


def test_a_broker_that_only_hangs_is_not_called_wrong_about_tls(certificate: Path) -> None:
    """It takes connections, and says nothing to anybody: nobody can know what it speaks."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for tls in ({}, {"security.protocol": "SSL", "ssl.ca.location": str(certificate)}):
            hasty = {"request.timeout.ms": "50", "socket.connection.setup.timeout.ms": "50"}
            with pytest.raises(BrokerUnreachable, match="no answer from the Kafka cluster"):
                Cluster.open(address, {**QUICK, "default.api.timeout.ms": "400", **hasty, **tls})
