"""Who asks for what this broker does not have is told so, where its client tells anybody, and nobody else suffers.

Here a client logs in where nobody does, or speaks TLS where nobody does. Calls of admin clients have their tests beside
the others of their kind. What a client shows its user is the client's; here it is written down.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonError

from clients.any_client import BOUND_S, POLL_S, eventually
from clients.confluent_client import QUICK
from foldlog.broker.broker import Broker
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server

WITH_PASSWORD = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "somebody", "sasl_plain_password": "secret"}


def errors_of_librdkafka(server: Server, topic: str, **settings: str) -> list[KafkaError]:
    """What a producer with these settings tells its error callback first."""
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "error_cb": errors.append,
            **{name.replace("_", "."): value for name, value in settings.items()},
            **QUICK,
        }
    )
    producer.produce(topic, b"value")
    eventually(lambda: producer.poll(POLL_S) > 0 or bool(errors), "an error")
    producer.purge()
    producer.flush(BOUND_S)
    return errors


def test_librdkafka_with_a_password_is_told_that_there_is_no_sasl(server: Server, topic: str) -> None:
    errors = errors_of_librdkafka(
        server,
        topic,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="somebody",
        sasl_password="secret",
    )
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "not valid in current SASL state" in errors[0].str()


def test_kafka_python_with_a_password_is_told_that_there_is_no_sasl(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    login = {"bootstrap_servers": server.bootstrap, "security_protocol": "SASL_PLAINTEXT", **WITH_PASSWORD}

    def is_told() -> bool:
        with pytest.raises(PythonError, match="Unable to bootstrap"):  # it tries again until its time is over
            KafkaProducer(**login, bootstrap_timeout_ms=500)
        return "IllegalSaslStateError" in caplog.text

    eventually(is_told, "the broker's answer")


def start_aiokafka(server: Server, **settings: Any) -> None:
    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap, **settings)
        try:
            await producer.start()
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(start(), BOUND_S))


def test_aiokafka_with_a_password_is_told_that_there_is_no_sasl(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
        start_aiokafka(server, security_protocol="SASL_PLAINTEXT", **WITH_PASSWORD)
    assert "IllegalSaslStateError" in caplog.text


GUESS = "it looks like TLS, which this listener does not speak"


@pytest.fixture
def untouched(broker: Broker) -> Iterator[Server]:
    """A broker that has not logged a line of its kind yet: the next ones within ten seconds are only counted."""
    with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as started:
        yield started


def test_the_broker_guesses_that_librdkafka_speaks_tls(
    untouched: Server, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    errors = errors_of_librdkafka(untouched, topic, security_protocol="SSL")
    assert "SSL" in errors[0].str()
    eventually(lambda: GUESS in caplog.text, "a line in the broker's log")


def test_the_broker_guesses_that_aiokafka_speaks_tls(untouched: Server, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
        start_aiokafka(untouched, security_protocol="SSL", ssl_context=ssl.create_default_context())
    eventually(lambda: GUESS in caplog.text, "a line in the broker's log")
