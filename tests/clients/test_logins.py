"""Stock clients log in over TLS by every mechanism, and are told when their password or their token is wrong.

The broker lets nobody in without a login. Each client writes a record and reads it again. Logins without TLS are in
`test_logins_again.py`.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonError
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

import foldlog
from certificates import Authority
from clients.any_client import BOUND_S, eventually
from clients.bearer_tokens import token, token_settings
from foldlog.errors import AuthenticationFailed
from foldlog.server.server import Server
from server.access.sasl_broker import MECHANISMS, PASSWORD, SIMPLE_USER, USER, refused_logins, sasl_broker

WITH_PASSWORDS = MECHANISMS.split(",")


class LoginSite(NamedTuple):
    """The broker, and the file with the authority of its certificate."""

    server: Server
    authority: str

    @property
    def bootstrap(self) -> str:
        return self.server.bootstrap


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginSite]:
    keys, authority = tmp_path_factory.mktemp("keys"), Authority()
    settings = token_settings(MECHANISMS, keys / "jwks.json") | {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.broker().write(keys / "broker.pem")),
    }
    with sasl_broker(settings) as (broker, started):
        for name in ("confluent", "kafka-python", "aiokafka", "foldlog"):
            broker.create_topic(name, 1)
        yield LoginSite(started, str(authority.write(keys / "authority.pem")))


# --- confluent-kafka --------------------------------------------------------------------------------------------------


def confluent(site: LoginSite, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    given: dict[str, Any] = {
        "bootstrap.servers": site.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": site.authority,
        "sasl.mechanism": mechanism,
        "log_level": 0,
    }
    if mechanism == "OAUTHBEARER":
        return {**given, "oauth_cb": lambda _: (token(), time.time() + 600)}
    return {**given, "sasl.username": USER, "sasl.password": password}


@pytest.mark.parametrize("mechanism", [*WITH_PASSWORDS, "OAUTHBEARER"])
def test_confluent_kafka(site: LoginSite, mechanism: str) -> None:
    producer = Producer(confluent(site, mechanism))
    producer.produce("confluent", mechanism)
    assert producer.flush(BOUND_S) == 0
    consumer = Consumer(
        {**confluent(site, mechanism), "group.id": f"confluent-{mechanism}", "auto.offset.reset": "earliest"}
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
def test_confluent_kafka_is_told_of_a_wrong_password(site: LoginSite, mechanism: str) -> None:
    errors: list[Any] = []
    producer = Producer({**confluent(site, mechanism, "wrong"), "error_cb": errors.append})
    deadline = time.monotonic() + BOUND_S
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert any("uthentication failed" in error.str() for error in errors), errors


# --- kafka-python -----------------------------------------------------------------------------------------------------


class PythonTokens(PythonTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return token()


def python(site: LoginSite, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    given: dict[str, Any] = {
        "bootstrap_servers": site.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": site.authority,
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return {**given, "sasl_oauth_token_provider": PythonTokens()}
    return {**given, "sasl_plain_username": SIMPLE_USER, "sasl_plain_password": password}


@pytest.mark.parametrize("mechanism", [*WITH_PASSWORDS, "OAUTHBEARER"])
def test_kafka_python(site: LoginSite, mechanism: str) -> None:
    producer = KafkaProducer(**python(site, mechanism))
    producer.send("kafka-python", mechanism.encode()).get(BOUND_S)
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=BOUND_S * 1000, **python(site, mechanism)
    )
    assert any(record.value == mechanism.encode() for record in consumer)
    consumer.close()


def test_kafka_python_is_told_of_a_wrong_password(site: LoginSite) -> None:
    before = refused_logins(site.server)

    def is_refused() -> bool:
        with pytest.raises(PythonError):  # it tries again until its time is over
            KafkaProducer(**python(site, "SCRAM-SHA-256", "wrong"), bootstrap_timeout_ms=500)
        return refused_logins(site.server) > before

    eventually(is_refused, "a refused login")


# --- aiokafka ---------------------------------------------------------------------------------------------------------


class AioTokens(AbstractTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return token()


def aio(site: LoginSite, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    given: dict[str, Any] = {
        "bootstrap_servers": site.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=site.authority),
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
def test_aiokafka(site: LoginSite, mechanism: str) -> None:
    assert asyncio.run(aio_round_trip(aio(site, mechanism), mechanism.encode()))


def test_aiokafka_is_told_of_a_wrong_password(site: LoginSite) -> None:
    with pytest.raises(AioError):
        asyncio.run(aio_round_trip(aio(site, "SCRAM-SHA-512", "wrong"), b"x"))


# --- our own ----------------------------------------------------------------------------------------------------------


def ours(site: LoginSite, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": site.authority,
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", WITH_PASSWORDS)
def test_our_own_client(site: LoginSite, mechanism: str) -> None:
    with foldlog.connect(f"kafka://{site.bootstrap}", properties=ours(site, mechanism)) as log:
        log.append("foldlog", mechanism.encode())
        assert mechanism.encode() in [record.value for record in log.read("foldlog")]


def test_our_own_client_is_told_of_a_wrong_password(site: LoginSite) -> None:
    with pytest.raises(AuthenticationFailed, match=r"sasl\.password") as caught:
        foldlog.connect(f"kafka://{site.bootstrap}", properties=ours(site, "SCRAM-SHA-256", "wrong-one")).topics()
    assert "wrong-one" not in str(caught.value)
