"""Stock clients log in by every mechanism, and are told when their password or their token is wrong.

The broker lets nobody in without a login. Each client writes a record and reads it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonError
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

import foldlog
from clients.any_client import BOUND_S, eventually
from clients.bearer_tokens import token, token_settings
from foldlog.errors import AuthenticationFailed
from foldlog.server.server import Server
from server.access.sasl_broker import MECHANISMS, PASSWORD, SIMPLE_USER, USER, refused_logins, sasl_broker

WITH_PASSWORDS = MECHANISMS.split(",")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = token_settings(MECHANISMS, tmp_path_factory.mktemp("keys") / "jwks.json")
    with sasl_broker(settings) as (broker, started):
        for name in ("confluent", "kafka-python", "aiokafka", "foldlog"):
            broker.create_topic(name, 1)
        yield started


# --- confluent-kafka --------------------------------------------------------------------------------------------------


def confluent(server: Server, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    given: dict[str, Any] = {
        "bootstrap.servers": server.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "log_level": 0,
    }
    if mechanism == "OAUTHBEARER":
        return {**given, "oauth_cb": lambda _: (token(), time.time() + 600)}
    return {**given, "sasl.username": USER, "sasl.password": password}


@pytest.mark.parametrize("mechanism", [*WITH_PASSWORDS, "OAUTHBEARER"])
def test_confluent_kafka(server: Server, mechanism: str) -> None:
    producer = Producer(confluent(server, mechanism))
    producer.produce("confluent", mechanism)
    assert producer.flush(BOUND_S) == 0
    consumer = Consumer(
        {**confluent(server, mechanism), "group.id": f"confluent-{mechanism}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["confluent"])
    seen: set[bytes | None] = set()
    deadline = time.monotonic() + BOUND_S
    while mechanism.encode() not in seen and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            seen.add(message.value())
    consumer.close()
    assert mechanism.encode() in seen


@pytest.mark.parametrize("mechanism", WITH_PASSWORDS)
def test_confluent_kafka_is_told_of_a_wrong_password(server: Server, mechanism: str) -> None:
    errors: list[Any] = []
    producer = Producer({**confluent(server, mechanism, "wrong"), "error_cb": errors.append})
    deadline = time.monotonic() + BOUND_S
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert any("uthentication failed" in error.str() for error in errors), errors


# --- kafka-python -----------------------------------------------------------------------------------------------------


class PythonTokens(PythonTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return token()


def python(server: Server, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    given: dict[str, Any] = {
        "bootstrap_servers": server.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return {**given, "sasl_oauth_token_provider": PythonTokens()}
    return {**given, "sasl_plain_username": SIMPLE_USER, "sasl_plain_password": password}


@pytest.mark.parametrize("mechanism", [*WITH_PASSWORDS, "OAUTHBEARER"])
def test_kafka_python(server: Server, mechanism: str) -> None:
    producer = KafkaProducer(**python(server, mechanism))
    producer.send("kafka-python", mechanism.encode()).get(BOUND_S)
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=BOUND_S * 1000, **python(server, mechanism)
    )
    assert any(record.value == mechanism.encode() for record in consumer)
    consumer.close()


def test_kafka_python_is_told_of_a_wrong_password(server: Server) -> None:
    before = refused_logins(server)

    def is_refused() -> bool:
        with pytest.raises(PythonError):  # it tries again until its time is over
            KafkaProducer(**python(server, "SCRAM-SHA-256", "wrong"), bootstrap_timeout_ms=500)
        return refused_logins(server) > before

    eventually(is_refused, "a refused login")


# --- aiokafka ---------------------------------------------------------------------------------------------------------


class AioTokens(AbstractTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return token()


def aio(server: Server, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    given: dict[str, Any] = {
        "bootstrap_servers": server.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return {**given, "sasl_oauth_token_provider": AioTokens()}
    return {**given, "sasl_plain_username": USER, "sasl_plain_password": password}


async def aio_round_trip(settings: dict[str, Any], value: bytes) -> bool:
    producer = AIOKafkaProducer(**settings)
    await producer.start()
    await producer.send_and_wait("aiokafka", value)
    await producer.stop()
    consumer = AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **settings)
    await consumer.start()
    try:
        async with asyncio.timeout(BOUND_S):
            async for record in consumer:
                if record.value == value:
                    return True
    finally:
        await consumer.stop()
    return False


@pytest.mark.parametrize("mechanism", [*WITH_PASSWORDS, "OAUTHBEARER"])
def test_aiokafka(server: Server, mechanism: str) -> None:
    assert asyncio.run(aio_round_trip(aio(server, mechanism), mechanism.encode()))


def test_aiokafka_is_told_of_a_wrong_password(server: Server) -> None:
    with pytest.raises(AioError):
        asyncio.run(aio_round_trip(aio(server, "SCRAM-SHA-512", "wrong"), b"x"))


# --- our own ----------------------------------------------------------------------------------------------------------


def ours(mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", WITH_PASSWORDS)
def test_our_own_client(server: Server, mechanism: str) -> None:
    with foldlog.connect(f"kafka://{server.bootstrap}", properties=ours(mechanism)) as log:
        log.append("foldlog", mechanism.encode())
        assert mechanism.encode() in [record.value for record in log.read("foldlog")]


def test_our_own_client_is_told_of_a_wrong_password(server: Server) -> None:
    with pytest.raises(AuthenticationFailed, match=r"sasl\.password") as caught:
        foldlog.connect(f"kafka://{server.bootstrap}", properties=ours("SCRAM-SHA-256", "wrong-one")).topics()
    assert "wrong-one" not in str(caught.value)
