"""What stock clients do when their login ends under them: a token that expires, a password that is changed.

Logins hold for a moment here, so that clients have to log in again on a live connection (KIP-368), or on a new one
where they cannot. Who still may goes on without losing a record; who may no longer is refused, and told why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonError
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

from clients.any_client import BOUND_S
from clients.bearer_tokens import token, token_settings
from foldlog.broker.broker import Broker
from foldlog.server.server import Server
from server.access.sasl_broker import refused_logins, sasl_broker, set_password

TOPIC = "orders"
LIFE_S = {"confluent-kafka": 6, "kafka-python": 2, "aiokafka": 2}
"""Of a token. librdkafka looks once a second whether it needs another one. The broker adds no skew of clocks here."""

SHORT_MS = 1000
"""How long a login with a password holds."""

PACE_S = 0.02
"""Between two records: clients that send as fast as they can take the processors from the other tests."""


class Refused(Exception):
    """The client says that its login was refused."""


class Tokens:
    """Makes a token each time it is asked for one, of that life, and counts."""

    def __init__(self, life_s: float) -> None:
        self.made = 0
        self._life_s = life_s

    def next(self) -> tuple[str, float]:
        self.made += 1
        ends = int(time.time() + self._life_s)  # whole seconds, as most who make tokens have it
        return token(ends), max(ends, time.time() + 1)  # who has an expired one does not know


Say = Callable[[], bool]


def confluent(settings: dict[str, Any], stop: Say, after: Callable[[], None], is_refused: Say) -> None:
    """Send until `stop` says so, with `after` called after the first one. `is_refused` is what the broker says."""
    errors: list[str] = []
    producer = Producer({**settings, "error_cb": lambda error: errors.append(error.str()), "log_level": 0})
    sent = 0
    deadline = time.monotonic() + BOUND_S
    while not stop() and time.monotonic() < deadline:
        producer.poll(PACE_S)
        producer.produce(TOPIC, b"value")
        while producer.flush(0.2) and time.monotonic() < deadline:
            if any("uthentication failed" in error for error in errors):
                producer.purge()
                producer.flush(1)
                raise Refused(errors)
        sent += 1
        if sent == 1:
            after()
    assert stop()


PYTHON_BOUNDS = {"delivery_timeout_ms": 4000, "request_timeout_ms": 3000, "max_block_ms": 4000}
"""It tries again after a refusal, and closes only when this is over."""


def kafka_python(settings: dict[str, Any], stop: Say, after: Callable[[], None], is_refused: Say) -> None:
    """What it raises in the end is that its time is over, on a busy machine without a refusal: the broker is asked."""
    producer: KafkaProducer | None = None
    deadline = time.monotonic() + BOUND_S
    while producer is None:
        try:
            producer = KafkaProducer(**settings, **PYTHON_BOUNDS, bootstrap_timeout_ms=1000)
        except PythonError as error:
            assert time.monotonic() < deadline, "it got in nowhere, and was refused by nobody"
            if is_refused():
                raise Refused(str(error)) from error
    try:
        sent, pace = 0, Event()
        while (not stop() or not sent) and time.monotonic() < deadline:
            pace.wait(PACE_S)
            try:
                producer.send(TOPIC, b"value").get(BOUND_S)
            except PythonError as error:
                if is_refused():
                    raise Refused(str(error)) from error
                continue
            sent += 1
            if sent == 1:
                after()
        assert stop()
    finally:
        producer.close(timeout=BOUND_S)


def aiokafka(settings: dict[str, Any], stop: Say, after: Callable[[], None], is_refused: Say) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(**settings, request_timeout_ms=5000)
        try:
            await producer.start()
            await producer.send_and_wait(TOPIC, b"value")
            after()
            never = asyncio.get_running_loop().create_future()
            async with asyncio.timeout(BOUND_S):
                while not stop():
                    await asyncio.wait({never}, timeout=PACE_S)
                    await producer.send_and_wait(TOPIC, b"value")
        except AioError as error:
            raise Refused(str(error)) from error
        finally:
            await producer.stop()

    asyncio.run(run())


CLIENTS = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}


def settings_of(client: str, server: Server, mechanism: str, **login: Any) -> dict[str, Any]:
    if client == "confluent-kafka":
        return {
            "bootstrap.servers": server.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            **login,
        }
    return {
        "bootstrap_servers": server.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        **login,
    }


def with_tokens(client: str, server: Server, tokens: Tokens) -> dict[str, Any]:
    class PythonTokens(PythonTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return tokens.next()[0]

    class AioTokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return tokens.next()[0]

    shown: dict[str, dict[str, Any]] = {
        "confluent-kafka": {"oauth_cb": lambda _: tokens.next()},
        "kafka-python": {"sasl_oauth_token_provider": PythonTokens()},
        "aiokafka": {"sasl_oauth_token_provider": AioTokens()},
    }
    return settings_of(client, server, "OAUTHBEARER", **shown[client])


def with_password(client: str, server: Server, mechanism: str, password: str) -> dict[str, Any]:
    if client == "confluent-kafka":
        return settings_of(client, server, mechanism, **{"sasl.username": "carol", "sasl.password": password})
    return settings_of(client, server, mechanism, sasl_plain_username="carol", sasl_plain_password=password)


@pytest.fixture(scope="module")
def taking_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = token_settings("PLAIN", tmp_path_factory.mktemp("keys") / "jwks.json")
    with sasl_broker({**settings, "sasl.oauthbearer.clock.skew.seconds": 0}) as (_, server):
        yield server


@pytest.fixture(scope="module")
def forgetful() -> Iterator[tuple[Broker, Server]]:
    """Every login with a password ends after a moment."""
    with sasl_broker({"connections.max.reauth.ms": SHORT_MS}) as both:
        yield both


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_goes_on_beyond_the_end_of_its_token_with_another(client: str, taking_tokens: Server) -> None:
    tokens = Tokens(LIFE_S[client])
    ends = time.monotonic() + 1.3 * LIFE_S[client]
    login = with_tokens(client, taking_tokens, tokens)
    CLIENTS[client](login, lambda: time.monotonic() > ends and tokens.made > 1, lambda: None, lambda: False)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_with_an_expired_token_is_refused(client: str, taking_tokens: Server) -> None:
    before = refused_logins(taking_tokens)

    def is_refused() -> bool:
        return refused_logins(taking_tokens) > before

    with pytest.raises(Refused):
        CLIENTS[client](with_tokens(client, taking_tokens, Tokens(-60)), lambda: False, lambda: None, is_refused)
    assert is_refused()


@pytest.mark.parametrize(
    ("client", "mechanism"),
    [
        ("confluent-kafka", "PLAIN"),
        ("aiokafka", "SCRAM-SHA-256"),
        pytest.param("confluent-kafka", "SCRAM-SHA-256", marks=pytest.mark.faults),
        pytest.param("kafka-python", "PLAIN", marks=pytest.mark.faults),
        pytest.param("kafka-python", "SCRAM-SHA-256", marks=pytest.mark.faults),
        pytest.param("aiokafka", "PLAIN", marks=pytest.mark.faults),
    ],
)
def test_a_password_that_is_changed_under_a_live_connection_ends_it_with_its_login(
    client: str, mechanism: str, forgetful: tuple[Broker, Server]
) -> None:
    broker, server = forgetful
    set_password(broker, "carol", "old")
    before = refused_logins(server)
    changed = []

    def is_refused() -> bool:
        return refused_logins(server) > before

    def change() -> None:
        set_password(broker, "carol", "new")
        changed.append(True)

    with pytest.raises(Refused):
        CLIENTS[client](with_password(client, server, mechanism, "old"), lambda: False, change, is_refused)
    assert changed, "the first record was refused already"
    assert is_refused()
    began = time.monotonic()
    CLIENTS[client](
        with_password(client, server, mechanism, "new"),
        lambda: time.monotonic() - began > 2 * SHORT_MS / 1000,
        lambda: None,
        lambda: False,
    )
