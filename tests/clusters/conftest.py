"""Tests with Apache Kafka and a Spark cluster: all are marked `kafka`, for `make test-kafka`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters.apache_kafka import ApacheKafka, SaslSsl
from clusters.maven import JarsUnavailable

from client.localhost_certificate import PEM

HERE = Path(__file__).parent

QUICK_CLEANER = {"log.cleaner.backoff.ms": 100, "log.cleaner.dedupe.buffer.size": 8 << 20}
"""It looks for work every 100 ms instead of every 15 s; of the 128 MB that it would take, half of a small heap, it
needs next to nothing."""

SHORT_LOGINS = {"listener.name.sasl_ssl.scram-sha-256.connections.max.reauth.ms": 1000}
"""Who comes with SCRAM-SHA-256 has to log in again after a second; with the other mechanisms, never."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("kafka")


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """One broker of Apache Kafka for all tests of a process, with a SASL_SSL listener: name topics and groups apart."""
    directory = tmp_path_factory.mktemp("apache_kafka")
    pem = directory / "broker.pem"
    pem.write_text(PEM, encoding="utf-8")
    try:
        with ApacheKafka.launch(
            directory, properties={**SHORT_LOGINS, **QUICK_CLEANER}, sasl_ssl=SaslSsl(pem)
        ) as kafka:
            yield kafka
    except JarsUnavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture
def kafka_trio(tmp_path: Path) -> Iterator[ApacheKafka]:
    """Three brokers for one test, which may kill them."""
    try:
        with ApacheKafka.launch(tmp_path / "trio", brokers=3) as kafka:
            yield kafka
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
