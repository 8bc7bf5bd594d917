"""Tests with Apache Kafka and a Spark cluster: all are marked `kafka`, for `make test-kafka`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clusters.apache_kafka import ApacheKafka, SaslSsl
from clusters.both_sides import BothSides
from clusters.kafka_tools import ToolDesk
from clusters.maven import JarsUnavailable, fetch
from pyspark.sql import SparkSession

from client.wire.localhost_certificate import PEM
from foldlog.testing import KafkaBroker
from postgres_server import postgres, postgres_url
from spark_session import running_session

__all__ = ["postgres", "postgres_url"]

HERE = Path(__file__).parent

SHORT_LOGINS = {"listener.name.sasl_ssl.scram-sha-256.connections.max.reauth.ms": 1000}
"""Who comes with SCRAM-SHA-256 has to log in again after a second; with the other mechanisms, never."""

EAGER_CLEANER = {"log.cleaner.backoff.ms": 200}
"""Compacted topics are looked at every so often; 15 s apart in Kafka."""


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
        settings = {**SHORT_LOGINS, **EAGER_CLEANER}
        with ApacheKafka.launch(directory, properties=settings, sasl_ssl=SaslSsl(pem)) as kafka:
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


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Without any jar of Kafka's. One with Spark's own connector is in the file about that."""
    with running_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def tool_desk() -> Iterator[ToolDesk]:
    """Kafka's own tools, in one JVM for all tests of a process."""
    try:
        with ToolDesk() as desk:
            yield desk
    except JarsUnavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def need_jars() -> Callable[[tuple[str, ...]], None]:
    """Skips the test where these artifacts cannot be had."""

    def need(coordinates: tuple[str, ...]) -> None:
        try:
            fetch(coordinates)
        except JarsUnavailable as missing:
            pytest.skip(str(missing))

    return need


@pytest.fixture(scope="module")
def both_sides(
    tool_desk: ToolDesk, apache_kafka: ApacheKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BothSides]:
    """Our broker with its files in a directory, and Apache Kafka, for the same commands."""
    with KafkaBroker.launch(path=tmp_path_factory.mktemp("ours")) as broker:
        yield BothSides(tool_desk, broker, apache_kafka.bootstrap)
