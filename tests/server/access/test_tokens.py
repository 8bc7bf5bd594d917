"""Tokens of OAUTHBEARER: whose they are, and everything that makes one nobody's."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

jwt = pytest.importorskip("jwt", reason="tokens need PyJWT; enable with: pip install 'foldlog[oauth]'")
from cryptography.hazmat.primitives.asymmetric import ec, rsa  # noqa: E402

from foldlog.broker.access.scram import LoginRefused  # noqa: E402
from foldlog.errors import InvalidConfig  # noqa: E402
from foldlog.server.access.mechanisms import BearerExchange  # noqa: E402
from foldlog.server.access.tokens import TokenChecker, TokenSettings  # noqa: E402
from foldlog.wire.error_codes import ErrorCode  # noqa: E402
from foldlog.wire.messages.metadata import MetadataRequest  # noqa: E402
from foldlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest  # noqa: E402
from foldlog.wire.messages.sasl_handshake import SaslHandshakeRequest  # noqa: E402
from server.access.sasl_broker import sasl_broker  # noqa: E402
from server.raw_client import RawClient  # noqa: E402

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, name: str) -> dict[str, Any]:
    algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": name}


@pytest.fixture
def jwks(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [jwk(RSA_KEY, "one"), jwk(EC_KEY, "two"), {"kty": "oct", "k": "c2VjcmV0"}]}))
    return path


def token(key: Any = RSA_KEY, name: str | None = "one", algorithm: str = "RS256", **claims: Any) -> str:
    given = {"sub": "alice", "exp": time.time() + 300, "aud": "foldlog", "iss": "https://issuer", **claims}
    kept = {claim: value for claim, value in given.items() if value is not None}
    headers = {} if name is None else {"kid": name}
    return str(jwt.encode(kept, key, algorithm=algorithm, headers=headers))


def checker(jwks: Path, **settings: Any) -> TokenChecker:
    return TokenChecker(TokenSettings(str(jwks), ("foldlog", "other"), "https://issuer", **settings))


def unsigned(**header: str) -> str:
    parts = [
        {"typ": "JWT", **header},
        {"sub": "admin", "exp": time.time() + 300, "aud": "foldlog", "iss": "https://issuer"},
    ]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


@pytest.mark.parametrize(
    "made",
    [
        token,
        lambda: token(EC_KEY, "two", "ES256"),
        lambda: token(algorithm="PS384"),
        lambda: token(exp=time.time() - 5),  # the clock of whoever made it out may be a little off
    ],
)
def test_a_token_that_was_signed_with_a_known_key_is_its_users(jwks: Path, made: Callable[[], str]) -> None:
    name, until_ms = checker(jwks).check(made())
    assert name == "alice"
    assert abs(until_ms / 1000 - time.time()) < 400


@pytest.mark.parametrize(
    "made",
    [
        token(OTHER_RSA_KEY),
        token(name="three"),
        token(name=None),
        token(EC_KEY, "one", "ES256"),
        token(exp=time.time() - 60),
        token(exp=None),
        token(nbf=time.time() + 600),
        token(aud="somebody"),
        token(aud=None),
        token(iss="https://other"),
        token(sub=None),
        token(sub=""),
        token(sub="a\nb"),
        token(sub=["alice"]),
        unsigned(alg="none", kid="one"),
        unsigned(alg="none"),
        "",
        "a.b.c",
        "x" * 100_000,
        base64.urlsafe_b64encode(b'{"alg":' + b"[" * 40_000).decode() + ".e30.x",
        token(exp=float("inf")),
    ],
)
def test_every_other_one_is_nobodys(jwks: Path, made: str) -> None:
    with pytest.raises(LoginRefused):
        checker(jwks).check(made)


def test_a_public_key_is_not_taken_for_a_shared_secret(jwks: Path) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"one","typ":"JWT"}').rstrip(b"=")
    body = base64.urlsafe_b64encode(
        json.dumps({"sub": "admin", "exp": time.time() + 300, "aud": "foldlog", "iss": "https://issuer"}).encode()
    ).rstrip(b"=")
    import hashlib
    import hmac

    signature = base64.urlsafe_b64encode(hmac.digest(pem, header + b"." + body, hashlib.sha256)).rstrip(b"=")
    with pytest.raises(LoginRefused, match="HS256"):
        checker(jwks).check(b".".join([header, body, signature]).decode())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys":[]}', '{"keys":[{"kty":"oct","k":"AA"}]}'])
def test_what_is_no_jwks_is_said_at_the_start(jwks: Path, text: str) -> None:
    jwks.write_text(text)
    with pytest.raises(InvalidConfig, match=r"jwks\.json"):
        TokenChecker(TokenSettings(str(jwks)))


def test_a_token_without_an_end_in_sight_is_one_of_64_bits(jwks: Path) -> None:
    assert 0 < checker(jwks).check(token(exp=1e300))[1] < 2**53


def bearer(made: str) -> bytes:
    return f"n,,\x01auth=Bearer {made}\x01\x01".encode()


def test_a_broker_takes_tokens_and_tells_until_when(jwks: Path) -> None:
    settings = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": str(jwks)}
    with sasl_broker(settings) as (_, server):
        raw = RawClient(server.addresses[0])
        raw.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        answer = raw.ask(SaslAuthenticateRequest(auth_bytes=bearer(token())), 2)
        assert (answer.error_code, answer.auth_bytes) == (0, b"")
        assert 200_000 < answer.session_lifetime_ms <= 330_000
        assert raw.ask(MetadataRequest(topics=None), 12).topics
        raw.close()
        raw = RawClient(server.addresses[0])
        raw.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        answer = raw.ask(SaslAuthenticateRequest(auth_bytes=bearer(unsigned(alg="none"))), 2)
        assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
        answer = raw.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert raw.is_closed_by_peer()
        raw.close()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01" + b"auth=bearer x\x01" * 5000 + b"!",
        b"n,,\x01auth=Bearer " + b"x" * 200_000 + b"\x01\x01",
    ],
)
def test_what_is_no_message_of_a_token_is_refused_in_one_pass(message: bytes) -> None:
    async def check(_: str) -> tuple[str, int]:
        raise AssertionError("nobody looks at it")

    with pytest.raises(LoginRefused):
        asyncio.run(BearerExchange(check).respond(message))


def test_a_refused_token_counts_though_its_client_leaves_at_the_challenge(
    jwks: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": str(jwks)}
    with sasl_broker(settings) as (_, server), caplog.at_level("INFO", "foldlog.audit"):
        client = RawClient(server.addresses[0])
        client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        challenge = client.ask(SaslAuthenticateRequest(auth_bytes=bearer(token(exp=time.time() - 300))), 2)
        assert (challenge.error_code, bytes(challenge.auth_bytes)) == (0, b'{"status":"invalid_token"}')
        lines = [record.getMessage() for record in caplog.records if record.name == "foldlog.audit"]
        assert len(lines) == 1
        assert 'result="refused" reason="its token is not taken: Signature has expired"' in lines[0]
        # Who answers is told the rest, and has not failed twice.
        assert client.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2).error_code == (
            ErrorCode.SASL_AUTHENTICATION_FAILED
        )
        assert "count=" not in caplog.text
        client.close()
