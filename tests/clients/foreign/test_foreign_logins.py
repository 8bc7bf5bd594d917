"""kcat and KafkaJS log in by every mechanism that they have, and are told when what they show is wrong; also when a
password is changed, or a token ends, under a live connection.

kcat's librdkafka (before 2.6.1) answers with the client's nonce doubled; it is let in nevertheless.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clients.bearer_tokens import token, token_settings
from clients.foreign.conftest import kcat_program, node_program
from clients.foreign.kafkajs import KafkaJs, KafkaJsError, messages
from clients.foreign.kcat import BOUND_S, Kcat
from foldlog.broker.broker import Broker
from foldlog.server.server import Server
from server.access.sasl_broker import MECHANISMS, PASSWORD, SIMPLE_USER, USER, sasl_broker, set_password

WITH_PASSWORDS = MECHANISMS.split(",")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = token_settings(MECHANISMS, tmp_path_factory.mktemp("keys") / "jwks.json")
    with sasl_broker(settings) as (broker, started):
        for name in ("kcat", "kafkajs"):
            for mechanism in (*WITH_PASSWORDS, "OAUTHBEARER"):
                broker.create_topic(f"{name}-{mechanism}", 1)
        yield started


# --- kcat -------------------------------------------------------------------------------------------------------------


def kcat_as(server: Server, mechanism: str, user: str, password: str) -> Kcat:
    return Kcat(
        kcat_program(),
        server.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username=user,
        sasl_password=password,
    )


@pytest.mark.parametrize("user", [USER, SIMPLE_USER])
@pytest.mark.parametrize("mechanism", WITH_PASSWORDS)
def test_kcat(server: Server, mechanism: str, user: str) -> None:
    kcat = kcat_as(server, mechanism, user, PASSWORD)
    topic = f"kcat-{mechanism}"
    kcat.produce(topic, f"of {user}\n".encode())
    assert f"of {user}" in [record.value for record in kcat.consume(topic)]


def refused(kcat: Kcat) -> None:
    """It says why, again and again, until it is ended: each failure makes the next answer later."""
    kcat.join("nobodies", "orders").wait_remark("uthentication fail")
    kcat.close()


def test_kcat_is_told_of_a_wrong_password(server: Server) -> None:
    refused(kcat_as(server, "SCRAM-SHA-512", USER, "wrong"))


def test_kcat_is_not_let_in_with_a_token_that_nobody_signed(server: Server) -> None:
    """Most builds of it can show no others: those that get tokens from an address need libcurl."""
    kcat = Kcat(
        kcat_program(),
        server.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        enable_sasl_oauthbearer_unsecure_jwt="true",
        sasl_oauthbearer_config="principal=admin",
    )
    refused(kcat)


# --- KafkaJS ----------------------------------------------------------------------------------------------------------


def kafkajs_as(server: Server, **sasl: Any) -> KafkaJs:
    return KafkaJs(node_program(), server.bootstrap, sasl=sasl)


def round_trip(kafkajs: KafkaJs, topic: str) -> list[bytes | None]:
    kafkajs.producer().call("send", {"topic": topic, "messages": messages([b"one", b"two"])})
    found = [record.value for record in kafkajs.consumer(f"readers-of-{topic}", topic).take(2)]
    kafkajs.disconnect_all()
    return found


@pytest.mark.parametrize("mechanism", WITH_PASSWORDS)
def test_kafkajs(server: Server, mechanism: str) -> None:
    with kafkajs_as(server, mechanism=mechanism.lower(), username=USER, password=PASSWORD) as kafkajs:
        assert round_trip(kafkajs, f"kafkajs-{mechanism}") == [b"one", b"two"]


def test_kafkajs_with_a_token(server: Server) -> None:
    with kafkajs_as(server, mechanism="oauthbearer", tokens=[token()]) as kafkajs:
        assert round_trip(kafkajs, "kafkajs-OAUTHBEARER") == [b"one", b"two"]


def test_kafkajs_is_told_of_a_wrong_password(server: Server) -> None:
    with (
        kafkajs_as(server, mechanism="scram-sha-256", username=USER, password="wrong") as kafkajs,
        pytest.raises(KafkaJsError, match="uthentication fail"),
    ):
        kafkajs.producer()


def test_kafkajs_is_not_let_in_with_a_token_that_nobody_signed(server: Server) -> None:
    """It does not read the refusal in the answer to its token, as RFC 7628 has it, and finds the connection closed."""
    unsigned = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiIsImV4cCI6OTk5OTk5OTk5OX0."
    with kafkajs_as(server, mechanism="oauthbearer", tokens=[unsigned]) as kafkajs, pytest.raises(KafkaJsError):
        round_trip(kafkajs, "kafkajs-OAUTHBEARER")


def test_kafkajs_is_not_let_in_with_a_token_that_has_ended(server: Server) -> None:
    ended = token(time.time() - 600)
    with kafkajs_as(server, mechanism="oauthbearer", tokens=[ended]) as kafkajs, pytest.raises(KafkaJsError):
        round_trip(kafkajs, "kafkajs-OAUTHBEARER")


# --- logins that end under a live connection --------------------------------------------------------------------------

SHORT_MS = 1000
"""How long a login with a password holds."""


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Server]]:
    """Every login with a password ends after a moment, one by a token with its token."""
    settings = token_settings(MECHANISMS, tmp_path_factory.mktemp("keys") / "jwks.json")
    skew = {"sasl.oauthbearer.clock.skew.seconds": 0}
    with sasl_broker({**settings, **skew, "connections.max.reauth.ms": SHORT_MS}) as both:
        yield both


def until(is_over: Callable[[], bool], step: Callable[[], object]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not is_over():
        assert time.monotonic() < deadline
        step()


def write(server: Server, value: str) -> None:
    """By somebody else, whose password stays."""
    kcat_as(server, "PLAIN", SIMPLE_USER, PASSWORD).produce("orders", f"{value}\n".encode())


@pytest.mark.parametrize("mechanism", ["PLAIN", pytest.param("SCRAM-SHA-256", marks=pytest.mark.faults)])
def test_kafkajs_is_refused_when_its_password_is_changed_under_a_live_connection(
    forgetful: tuple[Broker, Server], mechanism: str
) -> None:
    broker, server = forgetful
    set_password(broker, "carol", "old")
    login = {"mechanism": mechanism.lower(), "username": "carol"}
    record = {"topic": "orders", "messages": messages([b"x"])}
    with kafkajs_as(server, **login, password="old") as kafkajs:
        producer = kafkajs.producer()
        producer.call("send", record)
        set_password(broker, "carol", "new")
        with pytest.raises(KafkaJsError, match="uthentication fail"):
            until(lambda: False, lambda: producer.call("send", record))
    with kafkajs_as(server, **login, password="new") as kafkajs:
        producer = kafkajs.producer()
        ends = time.monotonic() + 2 * SHORT_MS / 1000
        until(lambda: time.monotonic() > ends, lambda: producer.call("send", record))
        kafkajs.disconnect_all()


def test_kafkajs_goes_on_beyond_the_end_of_its_token_with_another(forgetful: tuple[Broker, Server]) -> None:
    record = {"topic": "orders", "messages": messages([b"x"])}
    ends = int(time.time()) + 3
    with kafkajs_as(forgetful[1], mechanism="oauthbearer", tokens=[token(ends), token()]) as kafkajs:
        producer = kafkajs.producer()
        until(lambda: time.time() > ends + 1, lambda: producer.call("send", record))
        kafkajs.disconnect_all()


@pytest.mark.parametrize("mechanism", ["PLAIN", pytest.param("SCRAM-SHA-256", marks=pytest.mark.faults)])
def test_kcat_is_refused_when_its_password_is_changed_under_a_live_connection(
    forgetful: tuple[Broker, Server], mechanism: str
) -> None:
    broker, server = forgetful
    set_password(broker, "carol", "old")
    kcat = kcat_as(server, mechanism, "carol", "old")
    reader = kcat.follow("orders")
    write(server, "before")
    reader.next_record()
    set_password(broker, "carol", "new")
    reader.wait_remark("uthentication fail")
    kcat.close()
    kcat = kcat_as(server, mechanism, "carol", "new")
    reader = kcat.follow("orders")
    reader.next_record()
    pause, ends = threading.Event(), time.monotonic() + 1.5 * SHORT_MS / 1000
    until(lambda: time.monotonic() > ends, lambda: pause.wait(0.1))
    write(server, f"last-{mechanism}")
    until(lambda: reader.next_record().value == f"last-{mechanism}", lambda: None)
    kcat.close()
