"""Logins request by request: who is let in, who is not, what is answered before, and what a refusal costs."""

from __future__ import annotations

import secrets
import select
import struct
import time
from collections.abc import Iterator

import pytest

from foldlog.broker.access.acls import AclOperation, Identity, ResourceType
from foldlog.broker.broker import Broker
from foldlog.client.wire.logins.scram import ScramClient
from foldlog.limits import (
    FAILED_LOGIN_DELAY_MAX_MS,
    FAILED_LOGIN_HOSTS_MAX,
    FAILED_LOGIN_REMEMBERED_S,
    LOGIN_CHECKS_PER_S,
)
from foldlog.server.access.logins import FailedLogins
from foldlog.server.authorizer import AllowEverything
from foldlog.server.server import Server
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.api_versions import ApiVersionsRequest
from foldlog.wire.messages.metadata import MetadataRequest
from foldlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from foldlog.wire.messages.sasl_handshake import SaslHandshakeRequest
from server.access.sasl_broker import PASSWORD, USER, sasl_broker, set_password
from server.raw_client import TIMEOUT_S, RawClient, batch, produce, produced

FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED


class Noting(AllowEverything):
    """Remembers who asked."""

    def __init__(self) -> None:
        self.seen: set[Identity] = set()

    def allows(self, who: Identity, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        self.seen.add(who)
        return True


@pytest.fixture(scope="module")
def noting() -> Noting:
    return Noting()


@pytest.fixture(scope="module")
def served(noting: Noting) -> Iterator[tuple[Broker, Server]]:
    with sasl_broker(authorizer=noting) as both:
        yield both


@pytest.fixture
def raw(served: tuple[Broker, Server]) -> Iterator[RawClient]:
    client = RawClient(served[1].addresses[0])
    yield client
    client.close()


def plain(name: str = USER, password: str = PASSWORD, authorization: str = "") -> bytes:
    return f"{authorization}\0{name}\0{password}".encode()


def show(raw: RawClient, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
    answer: SaslAuthenticateResponse = raw.ask(SaslAuthenticateRequest(auth_bytes=token), version)
    return answer


def log_in(raw: RawClient, token: bytes | None = None) -> SaslAuthenticateResponse:
    assert raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    return show(raw, plain() if token is None else token)


def scram(raw: RawClient, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> SaslAuthenticateResponse:
    assert raw.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    client = ScramClient(mechanism, name, password, secrets.token_urlsafe(8))
    answer = show(raw, client.final(show(raw, client.first()).auth_bytes))
    if not answer.error_code:
        client.finish(answer.auth_bytes)
    return answer


# --- who is let in ----------------------------------------------------------------------------------------------------


def test_who_has_logged_in_may_ask_and_is_asked_for_by_name(raw: RawClient, noting: Noting) -> None:
    assert log_in(raw).error_code == 0
    assert raw.ask(MetadataRequest(topics=None), 12).topics[0].name == "orders"
    assert Identity(f"User:{USER}", "127.0.0.1") in noting.seen


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_lets_in_who_knows_the_password(raw: RawClient, mechanism: str) -> None:
    assert scram(raw, USER, PASSWORD, mechanism).error_code == 0
    assert produced(raw.ask(produce(batch(b"v")), 9))[0] == 0


def test_tokens_may_come_as_bare_frames(raw: RawClient) -> None:
    assert raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == 0
    raw.socket.sendall(struct.pack(">i", len(plain())) + plain())
    assert raw.receive_frame() == b""
    assert raw.ask(MetadataRequest(topics=None), 12).topics


@pytest.mark.parametrize(
    "token",
    [
        plain(password="wrong"),
        plain(name="nobody"),
        plain(authorization="admin"),
        plain(password=""),
        plain(password="x" * 5000),
        b"",
        b"\0\0",
        b"\0\xff\0x",
        b"a\0b\0c\0d",
    ],
)
def test_everybody_else_is_told_the_same_and_closed(raw: RawClient, token: bytes) -> None:
    answer = log_in(raw, token)
    assert answer.error_code == FAILED
    assert answer.error_message is not None
    assert "authentication failed" in answer.error_message
    assert raw.is_closed_by_peer()


@pytest.mark.parametrize(("name", "password"), [(USER, "wrong"), ("nobody", PASSWORD)])
def test_scram_refuses_unknown_users_and_wrong_passwords_at_the_last_step(
    raw: RawClient, name: str, password: str
) -> None:
    answer = scram(raw, name, password)
    assert answer.error_code == FAILED
    assert raw.is_closed_by_peer()


def test_a_wrong_bare_token_is_answered_by_the_end_of_the_connection(raw: RawClient) -> None:
    raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    token = plain(password="wrong")
    raw.socket.sendall(struct.pack(">i", len(token)) + token)
    assert raw.is_closed_by_peer()


def test_what_is_sent_behind_a_wrong_password_is_not_answered(raw: RawClient) -> None:
    raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    raw.socket.sendall(
        raw.frame(SaslAuthenticateRequest(auth_bytes=plain(password="wrong")), 2)
        + raw.frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        + raw.frame(SaslAuthenticateRequest(auth_bytes=plain()), 2)
    )
    _, answer = raw.receive(SaslAuthenticateResponse, 2)
    assert answer.error_code == FAILED
    assert raw.is_closed_by_peer()


def test_a_replayed_exchange_is_refused(served: tuple[Broker, Server]) -> None:
    client = ScramClient("SCRAM-SHA-256", USER, PASSWORD, "nonce")
    one, other = (RawClient(served[1].addresses[0]) for _ in range(2))
    for raw in (one, other):
        raw.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    first = client.first()
    final = client.final(show(one, first).auth_bytes)
    show(other, first)
    assert show(one, final).error_code == 0
    assert show(other, final).error_code == FAILED
    one.close()
    other.close()


def test_a_password_that_is_changed_counts_for_the_next_login(served: tuple[Broker, Server]) -> None:
    broker, server = served
    set_password(broker, "carol", "old")
    before = RawClient(server.addresses[0])
    assert log_in(before, plain("carol", "old")).error_code == 0
    set_password(broker, "carol", "new")
    assert before.ask(MetadataRequest(topics=None), 12).topics  # who is in stays in, as in Kafka
    for password, error in (("old", FAILED), ("new", ErrorCode.NONE)):
        raw = RawClient(server.addresses[0])
        assert log_in(raw, plain("carol", password)).error_code == error
        raw.close()
    set_password(broker, "carol", None)
    raw = RawClient(server.addresses[0])
    assert log_in(raw, plain("carol", "new")).error_code == FAILED
    raw.close()
    before.close()


# --- what is answered before ------------------------------------------------------------------------------------------


def test_before_a_login_only_versions_are_told(raw: RawClient) -> None:
    keys = {
        one.api_key
        for one in raw.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3).api_keys
    }
    assert {17, 36} <= keys
    raw.send(MetadataRequest(topics=None), 12)
    assert raw.is_closed_by_peer()


def test_the_fast_path_of_a_produce_asks_for_a_login_too(raw: RawClient, served: tuple[Broker, Server]) -> None:
    known = RawClient(served[1].addresses[0])
    log_in(known)
    known.ask(produce(batch(b"v")), 9)
    before = served[0].partition("orders", 0).log_end_offset
    raw.send(produce(batch(b"intruder")), 9)
    assert raw.is_closed_by_peer()
    assert served[0].partition("orders", 0).log_end_offset == before
    known.close()


def test_a_large_request_is_not_even_received_before_a_login(raw: RawClient) -> None:
    raw.socket.sendall(struct.pack(">i", (512 << 10) + 1))
    assert raw.is_closed_by_peer()


def test_an_unknown_mechanism_is_answered_with_those_there_are(raw: RawClient) -> None:
    answer = raw.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert list(answer.mechanisms) == ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
    assert log_in(raw).error_code == 0


def test_a_second_handshake_in_the_middle_is_out_of_order(raw: RawClient) -> None:
    assert raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    assert raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE


# --- again ------------------------------------------------------------------------------------------------------------


def test_a_login_that_has_ended_is_to_be_repeated_as_the_same_user() -> None:
    with sasl_broker({"connections.max.reauth.ms": 60_000}) as (broker, server):
        set_password(broker, "bob", "bob's")
        raw = RawClient(server.addresses[0])
        assert 0 < log_in(raw).session_lifetime_ms <= 60_000
        assert log_in(raw).error_code == 0
        assert raw.ask(MetadataRequest(topics=None), 12).topics
        assert raw.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert log_in(raw, plain("bob", "bob's")).error_code == FAILED
        assert raw.is_closed_by_peer()
        raw.close()


def test_who_does_not_log_in_again_is_closed_at_its_next_request() -> None:
    with sasl_broker({"connections.max.reauth.ms": 1}) as (_, server):
        raw = RawClient(server.addresses[0])
        assert log_in(raw).session_lifetime_ms == 1
        for _ in range(1000):  # the first may still come in time
            raw.send(MetadataRequest(topics=None), 12)
            try:
                raw.receive_frame()
            except ConnectionError:
                break
        else:
            pytest.fail("it is still answered")
        raw.close()


# --- what a failure costs ---------------------------------------------------------------------------------------------


def test_each_failure_makes_the_next_one_later_up_to_a_bound_and_is_forgotten() -> None:
    now = [0.0]
    failures = FailedLogins(100, lambda: now[0])
    waits = [failures.failed("10.0.0.1") for _ in range(10)]
    assert waits[:3] == [0.1, 0.2, 0.4]
    assert waits[-1] == FAILED_LOGIN_DELAY_MAX_MS / 1000
    assert failures.failed("10.0.0.2") == 0.1
    now[0] += FAILED_LOGIN_REMEMBERED_S + 1
    assert failures.failed("10.0.0.1") == 0.1


def test_remembered_addresses_are_bounded() -> None:
    failures = FailedLogins(100, lambda: 0.0)
    for number in range(FAILED_LOGIN_HOSTS_MAX + 1):
        failures.failed(str(number))
    assert failures.failed("0") == 0.1
    assert failures.failed(str(FAILED_LOGIN_HOSTS_MAX)) == 0.2


def test_passwords_are_in_no_line_of_the_log(
    served: tuple[Broker, Server], raw: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        log_in(raw, plain(password="hunter2hunter2"))
        assert raw.is_closed_by_peer()
    assert "hunter2" not in caplog.text


def test_an_address_that_failed_is_looked_at_slowly_right_or_wrong() -> None:
    now = [0.0]
    failures = FailedLogins(100, lambda: now[0])
    assert [failures.turn_s("10.0.0.1") for _ in range(3)] == [0.0, 0.0, 0.0]
    failures.failed("10.0.0.1")
    waits = [failures.turn_s("10.0.0.1") for _ in range(60)]
    assert waits[:3] == [0.0, pytest.approx(1 / LOGIN_CHECKS_PER_S), pytest.approx(2 / LOGIN_CHECKS_PER_S)]
    assert waits[-1] is None  # so many wait that it is refused
    assert failures.turn_s("10.0.0.2") == 0.0
    now[0] += FAILED_LOGIN_REMEMBERED_S + 1
    assert failures.turn_s("10.0.0.1") == 0.0


def test_a_failure_is_written_down_though_nobody_waits_for_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    with sasl_broker({"connection.failed.authentication.delay.ms": 5000}) as (_, server), caplog.at_level("WARNING"):
        raw = RawClient(server.addresses[0])
        raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        raw.send(SaslAuthenticateRequest(auth_bytes=plain(password="wrong")), 2)
        deadline = time.monotonic() + TIMEOUT_S
        while "login refused" not in caplog.text and time.monotonic() < deadline:
            select.select([raw.socket], [], [], 0.01)
        raw.close()
    assert "login refused" in caplog.text


def test_those_who_do_not_log_in_make_room_for_those_who_do() -> None:
    with sasl_broker({"max.connections": 5}) as (_, server):
        silent = [RawClient(server.addresses[0]) for _ in range(10)]
        honest = RawClient(server.addresses[0])
        assert log_in(honest).error_code == 0
        assert honest.ask(MetadataRequest(topics=None), 12).topics
        for one in (*silent, honest):
            one.close()
