"""SCRAM by the vectors of the RFC, against a server's side that shares no step with it, and with servers that lie.

Whatever a server says, the exchange ends in one of two errors, soon; and only one that knows the password is believed.
"""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.wire.logins.login_door import HASHES, ScramServer
from foldlog.client.wire.logins.scram import ScramClient, ScramRefused
from foldlog.errors import MalformedBytes

NONCE = "rOprNGfwEbeRWgbNEkqO"
SALT = base64.b64encode(b"salt").decode()


def client(mechanism: str = "SCRAM-SHA-256") -> ScramClient:
    return ScramClient(mechanism, "user", "pencil", NONCE)


def test_the_exchange_of_rfc_7677_is_had_word_for_word() -> None:
    ours = client()
    both = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert ours.first() == f"n,,n=user,r={NONCE}".encode()
    assert (
        ours.final(f"r={both},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
        == f"c=biws,r={both},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    ours.finish(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize(
    ("user", "password"),
    [("orders", "orders-secret"), ("a=b,c", "p,=w"), ("jürgen", "ﬁve \u00a0 köln"), ("x", "y" * 300)],
)
def test_a_server_that_knows_the_user_is_understood(mechanism: str, user: str, password: str) -> None:
    server, ours = ScramServer(mechanism, user, password), ScramClient(mechanism, user, password, NONCE)
    ours.finish(server.final(ours.final(server.first(ours.first()))))


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_wrong_password_is_refused_and_a_server_that_does_not_know_it_is_not_believed(mechanism: str) -> None:
    ours, server = client(mechanism), ScramServer(mechanism, "user", "another")
    proof = ours.final(server.first(ours.first()))
    with pytest.raises(ScramRefused, match=r"^it answers 'invalid-proof'$"):
        ours.finish(server.final(proof))
    with pytest.raises(ScramRefused, match="it is not the real broker"):
        ours.finish(b"v=" + base64.b64encode(bytes(32)))


def test_a_signature_before_the_proof_is_not_believed() -> None:
    with pytest.raises(ScramRefused, match="it is not the real broker"):
        client().finish(b"v=" + base64.b64encode(b"").ljust(4, b"="))


@pytest.mark.parametrize("iterations", ["1", "4095", "1000001", "2147483647", "9" * 10_000])
def test_how_often_a_password_is_hashed_is_bounded(iterations: str) -> None:
    """A count from the server is work for the client: a million times takes a second, and 2^31 half an hour."""
    with pytest.raises(ScramRefused, match=r"it wants the password hashed (more than 1,000,000|\d+) times"):
        client().final(f"r={NONCE}x,s={SALT},i={iterations}".encode())


@pytest.mark.parametrize("nonce", [NONCE, "other", NONCE[:-1] + "xx"])
def test_an_answer_to_somebody_else_is_not_gone_on_with(nonce: str) -> None:
    with pytest.raises(ScramRefused, match="does not belong to our message"):
        client().final(f"r={nonce},s={SALT},i=4096".encode())


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        f"r={NONCE}x,s={SALT}".encode(),
        f"r={NONCE}x,s={SALT},i=0".encode(),
        f"r={NONCE}x,s={SALT},i=-4096".encode(),
        f"r={NONCE}x,s={SALT},i=4096.0".encode(),
        f"r={NONCE}x,s=a,i=4096".encode(),
        f"m=new,r={NONCE}x,s={SALT},i=4096".encode(),
        f"r={NONCE}x,s={SALT},i=4096".encode() + b"," * 20_000,
    ],
)
def test_what_is_no_first_message_is_told(message: bytes) -> None:
    with pytest.raises(MalformedBytes, match="SCRAM exchange"):
        client().final(message)


def test_a_refusal_instead_of_the_first_message_is_told() -> None:
    with pytest.raises(ScramRefused, match="it answers 'unknown-user'"):
        client().final(b"e=unknown-user")


def test_extensions_that_are_not_mandatory_are_passed_over() -> None:
    assert client().final(f"r={NONCE}x,s={SALT},i=4096,x=1".encode()).startswith(b"c=biws,")


@given(st.binary(max_size=80) | st.from_regex(rf"r={NONCE}[a-z,=]*,s=[A-Za-z=]*,i=[0-9]{{0,3}}").map(str.encode))
def test_nothing_a_server_says_first_is_any_other_error(message: bytes) -> None:
    with pytest.raises((ScramRefused, MalformedBytes)):
        client().final(message)


@given(st.binary(max_size=80) | st.from_regex(r"v=[A-Za-z0-9+/=]*").map(str.encode))
def test_nothing_a_server_says_last_is_believed_without_the_password(message: bytes) -> None:
    with pytest.raises((ScramRefused, MalformedBytes)):
        client().finish(message)
