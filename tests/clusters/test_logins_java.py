"""Java's clients log in at our broker by every mechanism, are refused with a wrong password or an expired token, and
are told so when a password is changed under a live connection.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters.kafka_tools import TOOL_TIMEOUT_S, ToolDesk, tool_command
from clusters.maven import JarsUnavailable

from clients.bearer_tokens import token, token_settings
from foldlog.broker.broker import Broker
from foldlog.server.server import Server
from server.access.sasl_broker import MECHANISMS, PASSWORD, SIMPLE_USER, sasl_broker, set_password

MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
OAUTH = "org.apache.kafka.common.security.oauthbearer"
REFUSED = "SaslAuthenticationException"
SHORT_MS = 500


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Server]]:
    settings = token_settings(MECHANISMS, tmp_path_factory.mktemp("keys") / "jwks.json")
    with sasl_broker({**settings, "connections.max.reauth.ms": SHORT_MS}) as both:
        yield both


def with_password(path: Path, mechanism: str, password: str = PASSWORD, user: str = SIMPLE_USER) -> Path:
    """The settings of a client, in a file."""
    file = path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={MODULES[mechanism]} required username="{user}" password="{password}";\n',
        encoding="latin-1",  # as Java reads it
    )
    return file


def with_token(path: Path, made: str) -> Path:
    (path / "token.jwt").write_text(made)
    file = path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={OAUTH}.OAuthBearerLoginModule required;\n"
        f"sasl.login.callback.handler.class={OAUTH}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.jwt.retriever.class={OAUTH}.FileJwtRetriever\n"
        f"sasl.oauthbearer.token.endpoint.url={(path / 'token.jwt').as_uri()}\n"
    )
    return file


@pytest.mark.parametrize("mechanism", MODULES)
def test_a_password_lets_javas_tools_in_and_a_wrong_one_does_not(
    served: tuple[Broker, Server], tool_desk: ToolDesk, tmp_path: Path, mechanism: str
) -> None:
    broker, server = served
    broker.create_topic(mechanism, 1)
    at = ("--bootstrap-server", server.bootstrap, "--command-config")
    right = with_password(tmp_path, mechanism)
    written = tool_desk.run("kafka-console-producer", *at, right, "--topic", mechanism, text="let in\n")
    assert written.returncode == 0, written
    reading = ("--topic", mechanism, "--from-beginning", "--max-messages", 1, "--timeout-ms", 60_000)
    read = tool_desk.run("kafka-console-consumer", *at, right, *reading, "--group", mechanism)
    assert "let in" in read.stdout.splitlines(), read
    refused = tool_desk.run("kafka-topics", *at, with_password(tmp_path, mechanism, "wrong"), "--list")
    assert refused.returncode != 0
    assert REFUSED in refused.stdout + refused.stderr


@pytest.mark.parametrize(("life_s", "is_let_in"), [(600, True), (-600, False)], ids=["valid", "expired"])
def test_a_token_lets_javas_tools_in_until_it_ends(
    served: tuple[Broker, Server], tmp_path: Path, life_s: int, is_let_in: bool
) -> None:
    """In a JVM of its own: Java has to be told which files may hold a token."""
    config = with_token(tmp_path, token(time.time() + life_s))
    allowed = (tmp_path / "token.jwt").as_uri()
    jvm = (
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}",
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={tmp_path / 'token.jwt'}",
    )
    at = ("--bootstrap-server", served[1].bootstrap, "--command-config", config)
    try:
        command = tool_command("kafka-topics", *at, "--list", jvm=jvm)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    said = done.stdout + done.stderr
    assert (done.returncode == 0) == is_let_in, said
    assert ("orders" in done.stdout.split()) == is_let_in, said


def test_a_password_that_is_changed_under_a_live_producer_ends_it_with_its_login(
    served: tuple[Broker, Server], tmp_path: Path
) -> None:
    """A producer that would go on for minutes: its first records are acknowledged, then it has to log in again."""
    broker, server = served
    set_password(broker, "carol", "old")
    config = with_password(tmp_path, "SCRAM-SHA-256", "old", "carol")
    words = ("--topic", "orders", "--num-records", 10_000_000, "--record-size", 100, "--throughput", 200)
    bootstrap = ("--bootstrap-server", server.bootstrap, "--command-config", config)
    try:
        command = tool_command("kafka-producer-perf-test", *words, *bootstrap)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    partition = broker.partition("orders", 0)
    before = partition.log_end_offset
    producer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + TOOL_TIMEOUT_S
        while partition.log_end_offset <= before + 200 and producer.poll() is None:
            assert time.monotonic() < deadline
        set_password(broker, "carol", "new")
        assert producer.stdout is not None
        said = next((line for line in producer.stdout if REFUSED in line), None)
        assert said is not None
    finally:
        producer.kill()
        producer.communicate()
