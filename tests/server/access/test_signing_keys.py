"""The keys that sign tokens, at a real https address: read in bounds, kept, and read again when it is time.

The clock is the test's own; nothing sleeps. What is read in the background is waited for.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

jwt = pytest.importorskip("jwt", reason="tokens need PyJWT; enable with: pip install 'foldlog[oauth]'")
from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: E402

from certificates import Authority  # noqa: E402
from foldlog.broker.access.scram import LoginRefused  # noqa: E402
from foldlog.errors import InvalidConfig  # noqa: E402
from foldlog.limits import JWKS_BYTES_MAX, JWKS_COOLDOWN_S, JWKS_RETRY_S  # noqa: E402
from foldlog.server.access import signing_keys  # noqa: E402
from foldlog.server.access.signing_keys import SigningKeys, UnknownKey, check_location  # noqa: E402
from foldlog.server.config.settings import ServerSettings  # noqa: E402
from foldlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest  # noqa: E402
from foldlog.wire.messages.sasl_handshake import SaslHandshakeRequest  # noqa: E402
from server.access.sasl_broker import sasl_broker  # noqa: E402
from server.raw_client import TIMEOUT_S, RawClient  # noqa: E402

KEYS = {name: rsa.generate_private_key(public_exponent=65537, key_size=2048) for name in ("one", "two")}
HOUR_MS = 3_600_000


def jwks(*names: str, **more: str) -> bytes:
    found = [
        {**jwt.algorithms.RSAAlgorithm.to_jwk(KEYS[name].public_key(), as_dict=True), "kid": name, **more}
        for name in names
    ]
    return json.dumps({"keys": found}).encode()


def token(name: str) -> str:
    claims = {"sub": "alice", "exp": time.time() + 300}
    return str(jwt.encode(claims, KEYS[name], algorithm="RS256", headers={"kid": name}))


class Issuer:
    """An https server that answers as it is told, and counts."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.asked = 0
        self.body = jwks("one")
        self.status = 200
        self.headers: dict[str, str] = {}
        self.before: Callable[[], object] = lambda: None
        self.is_slow = False
        self.gone = threading.Event()
        issuer = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                issuer.before()
                self.send_response(issuer.status)
                for name, value in issuer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(issuer.body)))
                self.end_headers()
                try:
                    if issuer.is_slow:
                        self.drip()
                    else:
                        self.wfile.write(issuer.body)
                except OSError:
                    issuer.gone.set()

            def drip(self) -> None:
                for byte in issuer.body:
                    self.wfile.write(bytes([byte]))
                    if issuer.gone.wait(0.02):
                        return

            def log_message(self, *_: Any) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.broker().write(folder / "issuer.pem"))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"https://localhost:{self._server.server_port}/keys"

    def close(self) -> None:
        self.gone.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def issuer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Issuer]:
    authority = Authority()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.write(tmp_path / "authority.pem")))
    found = Issuer(tmp_path, authority)
    yield found
    found.close()


class Known:
    """Keys of the issuer, on a clock that the test turns."""

    def __init__(self, url: str, refresh_ms: int = HOUR_MS) -> None:
        self.now_s = 1000.0
        self.keys = SigningKeys(url, refresh_ms, lambda: self.now_s)

    def pass_time(self, seconds: float) -> None:
        """And let what is due by itself be done."""
        self.now_s += seconds
        self.keys.refresh_if_due()
        self.wait()

    def ask(self) -> bool:
        """Whether keys are read again now, because one is not known."""
        reading = self.keys.refresh()
        self.wait()
        return reading is not None

    def wait(self) -> None:
        reading = self.keys._reading
        if reading is not None:
            reading.result(TIMEOUT_S)

    def has(self, name: str) -> bool:
        try:
            self.keys.find(name)
        except UnknownKey:
            return False
        return True


def test_keys_are_read_once_and_again_when_it_is_time(issuer: Issuer) -> None:
    known = Known(issuer.url)
    for _ in range(100):
        assert known.has("one")
    assert issuer.asked == 1
    issuer.body = jwks("two")
    known.pass_time(3599)
    assert (issuer.asked, known.has("two")) == (1, False)
    known.pass_time(1)
    assert (issuer.asked, known.has("one"), known.has("two")) == (2, False, True)


def test_an_unknown_key_has_them_read_again_once_in_a_while(issuer: Issuer) -> None:
    known = Known(issuer.url)
    issuer.body = jwks("one", "two")
    assert not known.ask()
    known.now_s += JWKS_COOLDOWN_S
    assert known.ask()
    assert known.has("two")
    for _ in range(100):
        assert not known.ask()
    assert issuer.asked == 2


def test_an_address_that_fails_leaves_the_keys_and_one_line(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    known = Known(issuer.url)
    issuer.status = 503
    known.pass_time(3600)
    for _ in range(5):
        known.pass_time(JWKS_RETRY_S)
    assert issuer.asked == 7
    assert known.has("one")
    lines = [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]
    assert len(lines) == 1
    assert "the 1 keys of before are kept: it answers with status 503" in lines[0]
    issuer.status = 200
    with caplog.at_level("INFO"):
        known.pass_time(JWKS_RETRY_S)
    assert "is read again, with 1 keys" in caplog.text
    known.pass_time(JWKS_RETRY_S)
    assert issuer.asked == 8


def test_an_address_that_does_not_answer_at_the_start_is_asked_again(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.status = 500
    known = Known(issuer.url)
    assert "cannot be read" in caplog.text
    issuer.status = 200
    known.pass_time(JWKS_RETRY_S)
    assert known.has("one")


@pytest.mark.parametrize(
    ("status", "headers", "body", "told"),
    [
        (302, {"Location": "https://elsewhere.example/keys"}, b"", "redirects, to 'https://elsewhere.example/keys'"),
        (404, {}, b"", "status 404"),
        (200, {}, b"<html>", "cannot be read"),
        (200, {}, b"[" * 100_000, "nested too deeply"),
        (200, {}, jwks("one", use="enc"), "no public key for signatures"),
        (200, {}, jwks("one", alg="HS256"), "no public key for signatures"),
        (200, {}, b" " * JWKS_BYTES_MAX + b"{}", "more than 1048576 bytes"),
    ],
    ids=["redirect", "missing", "page", "deep", "for encryption", "shared secret", "huge"],
)
def test_what_is_no_jwks_is_said_at_the_start(
    issuer: Issuer, status: int, headers: dict[str, str], body: bytes, told: str
) -> None:
    issuer.status, issuer.headers, issuer.body = status, headers, body
    with pytest.raises(InvalidConfig, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url") as failure:
        Known(issuer.url)
    assert told in str(failure.value)


def test_a_key_that_cannot_be_read_leaves_the_others(issuer: Issuer) -> None:
    found = json.loads(jwks("one"))
    odd = [{"kty": "RSA", "kid": "x", "n": "!", "e": "AQAB"}, {"kty": "RSA", "kid": "y"}, {"kty": "new"}, 5, {}]
    issuer.body = json.dumps({"keys": [*odd, *found["keys"]]}).encode()
    assert Known(issuer.url).has("one")


def test_an_address_that_sends_a_byte_now_and_then_is_cut(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Known(issuer.url)
    monkeypatch.setattr(signing_keys, "JWKS_TIMEOUT_S", 0.3)
    issuer.is_slow = True
    issuer.body = bytes(100_000)  # half an hour
    known.pass_time(3600)
    assert known.has("one")


def test_a_certificate_of_an_unknown_authority_is_not_taken(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Known(issuer.url)
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(InvalidConfig, match="CERTIFICATE_VERIFY_FAILED"):
        Known(issuer.url)
    known.pass_time(3600)
    assert known.has("one")
    assert issuer.asked == 1


@pytest.mark.parametrize("location", ["http://login.example.com/keys", "https://", "https://me:secret@host/keys"])
def test_addresses_that_others_could_answer_for_are_refused(location: str) -> None:
    with pytest.raises(InvalidConfig, match="https"):
        check_location(location)
    with pytest.raises(InvalidConfig, match="https"):
        ServerSettings.parse({"sasl.oauthbearer.jwks.endpoint.url": location})


@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.1:1/keys", "http://[::1]/", "http://localhost/", "/etc/keys", "file:///k", "keys.json"],
)
def test_this_machine_and_its_files_are_taken(location: str) -> None:
    check_location(location)


def test_an_operator_may_take_keys_without_encryption() -> None:
    url = "http://keycloak:8080/keys"
    settings = {"sasl.oauthbearer.jwks.endpoint.url": url}
    with pytest.raises(InvalidConfig, match=r"foldlog\.jwks\.insecure=true allows it"):
        ServerSettings.parse(settings)
    assert ServerSettings.parse({**settings, "foldlog.jwks.insecure": "true"}).sasl_oauthbearer_jwks_endpoint_url == url
    with pytest.raises(InvalidConfig, match="without a user in it"):
        ServerSettings.parse(
            {"sasl.oauthbearer.jwks.endpoint.url": "http://me:secret@keycloak/keys", "foldlog.jwks.insecure": "true"}
        )


# --- at a broker ------------------------------------------------------------------------------------------------------


def log_in(server: Any, name: str) -> tuple[RawClient, bool]:
    raw = RawClient(server.addresses[0])
    raw.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    shown = f"n,,\x01auth=Bearer {token(name)}\x01\x01".encode()
    return raw, raw.ask(SaslAuthenticateRequest(auth_bytes=shown), 2).auth_bytes == b""


def test_logins_with_a_known_key_never_wait_for_the_address(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address hangs as long as it is asked for an unknown key; the new key counts once it has answered."""
    monkeypatch.setattr(signing_keys, "JWKS_COOLDOWN_S", 0.0)
    settings = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": issuer.url}
    with sasl_broker(settings) as (_, server):
        is_asked, may_answer = threading.Event(), threading.Event()

        def hang() -> None:
            is_asked.set()
            may_answer.wait(TIMEOUT_S)

        issuer.before = hang
        issuer.body = jwks("one", "two")
        outcome: list[tuple[RawClient, bool]] = []
        waiting = threading.Thread(target=lambda: outcome.append(log_in(server, "two")))
        waiting.start()
        assert is_asked.wait(TIMEOUT_S)
        for _ in range(5):
            raw, is_in = log_in(server, "one")
            assert is_in
            raw.close()
        assert not outcome
        may_answer.set()
        waiting.join(TIMEOUT_S)
        assert outcome[0][1]
        outcome[0][0].close()


def test_a_known_key_is_not_taken_for_another_algorithm(issuer: Issuer) -> None:
    """A key that says what it is for is for nothing else."""
    issuer.body = jwks("one", alg="PS256")
    settings = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": issuer.url}
    with sasl_broker(settings) as (_, server):
        raw, is_in = log_in(server, "one")
        assert not is_in
        raw.close()


def test_no_key_at_all_is_a_refusal(issuer: Issuer) -> None:
    issuer.status = 500
    with pytest.raises(LoginRefused):
        Known(issuer.url).keys.find(None)
