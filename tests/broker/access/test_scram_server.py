"""SCRAM from the server's side, with our own client or RFC 7677's example on the other, and all that can be wrong."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from foldlog.broker.access.scram import LoginRefused, ScramCredential, ScramServer, credential_of, salted_password
from foldlog.broker.access.users import Users, check_user_name, credentials_for
from foldlog.client.wire.logins.scram import ScramClient, ScramRefused
from foldlog.errors import InvalidArgument

MECHANISM = "SCRAM-SHA-256"
PASSWORD = "pa,ss=wörd"


@pytest.fixture(scope="module")
def users() -> Users:
    return Users().with_credentials("a,l=ice", credentials_for(PASSWORD, 4096))


def logged_in(users: Users, name: str, password: str, mechanism: str = MECHANISM) -> str:
    client, server = ScramClient(mechanism, name, password, "clientnonce"), ScramServer(mechanism, "servernonce")
    found = server.named(client.first())
    client.finish(server.verify(client.final(server.challenge(users.credential(mechanism, found)))))
    return found


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_knows_the_password_is_in_and_knows_the_server(users: Users, mechanism: str) -> None:
    assert logged_in(users, "a,l=ice", PASSWORD, mechanism) == "a,l=ice"


@pytest.mark.parametrize(("name", "password"), [("a,l=ice", "wrong"), ("nobody", PASSWORD)])
def test_unknown_users_and_wrong_passwords_are_refused_at_the_same_step(users: Users, name: str, password: str) -> None:
    with pytest.raises(LoginRefused, match="wrong password"):
        logged_in(users, name, password)


def test_the_salt_of_an_unknown_user_is_always_the_same_and_another_for_another_name(users: Users) -> None:
    salts = [users.credential(MECHANISM, name).salt for name in ("x", "x", "y")]
    assert salts[0] == salts[1] != salts[2]
    assert Users().credential(MECHANISM, "x").salt != salts[0]


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = credential_of(MECHANISM, salted_password(MECHANISM, "pencil", salt, 4096), salt, 4096)
    server = ScramServer(MECHANISM, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert server.named(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == "user"
    assert server.challenge(credential) == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert server.verify(final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"p=tls-unique,,n=a,r=x",
        b"n,a=admin,n=a,r=x",
        b"n,,n=a=b,r=x",
        b"n,,n=,r=x",
        b"n,,n=a",
        b"n,,r=x,n=a",
        b"\xff\xfe",
        b"n,,n=a,r=" + b"x" * 20_000,
    ],
)
def test_what_is_no_first_message_is_refused(first: bytes) -> None:
    with pytest.raises(LoginRefused):
        ScramServer(MECHANISM, "nonce").named(first)


def replayed(final: bytes) -> bytes:
    return final.replace(b"servernonce", b"othernonces")


def truncated(final: bytes) -> bytes:
    return final[: final.index(b",p=")]


def with_a_short_proof(final: bytes) -> bytes:
    return final[: final.index(b",p=")] + b",p=AAAA"


def bound_otherwise(final: bytes) -> bytes:
    return final.replace(b"c=biws", b"c=eSws")


@pytest.mark.parametrize("change", [replayed, truncated, with_a_short_proof, bound_otherwise, lambda final: b""])
def test_a_last_message_that_was_changed_is_refused(users: Users, change: Callable[[bytes], bytes]) -> None:
    client, server = ScramClient(MECHANISM, "a,l=ice", PASSWORD, "c"), ScramServer(MECHANISM, "servernonce")
    server.named(client.first())
    final = client.final(server.challenge(users.credential(MECHANISM, "a,l=ice")))
    with pytest.raises(LoginRefused):
        server.verify(change(final))
    with pytest.raises(LoginRefused):  # the exchange is over: the right one comes too late
        server.verify(final)


def test_an_exchange_that_is_cut_off_anywhere_is_refused(users: Users) -> None:
    client, server = ScramClient(MECHANISM, "a,l=ice", PASSWORD, "c"), ScramServer(MECHANISM, "servernonce")
    first = client.first()
    server.named(first)
    final = client.final(server.challenge(users.credential(MECHANISM, "a,l=ice")))
    for size in range(len(final)):
        server = ScramServer(MECHANISM, "servernonce")
        server.named(first)
        server.challenge(users.credential(MECHANISM, "a,l=ice"))
        with pytest.raises(LoginRefused):
            server.verify(final[:size])
    for size in range(len(b"n,,n=")):
        with pytest.raises(LoginRefused):
            ScramServer(MECHANISM, "servernonce").named(first[:size])


def test_a_last_message_without_a_first_one_is_refused() -> None:
    server = ScramServer(MECHANISM, "servernonce")
    with pytest.raises(LoginRefused):
        server.verify(b"c=biws,r=servernonce,p=" + base64.b64encode(bytes(32)))


def test_a_server_that_does_not_know_the_user_is_noticed(users: Users) -> None:
    client, server = ScramClient(MECHANISM, "a,l=ice", PASSWORD, "c"), ScramServer(MECHANISM, "s")
    server.named(client.first())
    client.final(server.challenge(users.credential(MECHANISM, "a,l=ice")))
    with pytest.raises(ScramRefused):
        client.finish(b"v=" + base64.b64encode(bytes(32)))


def test_the_doubled_nonce_of_older_librdkafka_is_taken(users: Users) -> None:
    credential = users.credential(MECHANISM, "a,l=ice")
    server = ScramServer(MECHANISM, "servernonce")
    server.named(b"n,,n=a=2Cl=3Dice,r=c")
    first = server.challenge(credential)
    unproven = b"c=biws,r=ccservernonce"  # the client's own nonce once more, before the whole
    told = b",".join([b"n=a=2Cl=3Dice,r=c", first, unproven])
    client_key = hmac.digest(salted_password(MECHANISM, PASSWORD, credential.salt, 4096), b"Client Key", "sha256")
    signature = hmac.digest(credential.stored_key, told, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    assert server.verify(unproven + b",p=" + base64.b64encode(proof)).startswith(b"v=")


@pytest.mark.parametrize("iterations", [1, 4095, 16_385, 10**9])
def test_iterations_out_of_range_are_refused_before_anything_is_hashed(iterations: int) -> None:
    with pytest.raises(InvalidArgument, match="iterations"):
        credential_of(MECHANISM, b"salted", b"salt", iterations)


def test_passwords_in_the_clear_are_compared_with_what_is_kept(users: Users) -> None:
    assert users.knows("a,l=ice", PASSWORD)
    assert not users.knows("a,l=ice", "other")
    assert not users.knows("nobody", PASSWORD)


def test_nothing_secret_is_shown(users: Users) -> None:
    shown = repr(users) + repr(users.credential(MECHANISM, "a,l=ice"))
    assert users.secret.hex() not in shown
    assert "salt" not in shown


@pytest.mark.parametrize("name", ["", " a", "a\n", "a\0", "x" * 300])
def test_names_that_no_user_can_have(name: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot be a user's name"):
        check_user_name(name)


NAMES = [f"name-{number}" for number in range(200)]
JAVAS = ScramCredential(b"1k3qmcyx0p9v4h8w2z7r5t6b0d", 8192, bytes(32), bytes(32))


def shown(users: Users) -> dict[str, tuple[bytes, int]]:
    """What a client learns of each name."""
    told = {name: users.credential(MECHANISM, name) for name in NAMES}
    return {name: (one.salt, one.iterations) for name, one in told.items()}


def test_what_an_unknown_name_is_told_stays_whatever_users_come_and_go(users: Users) -> None:
    users = users.with_credentials("javas", {MECHANISM: JAVAS})
    before = shown(users)
    assert {iterations for _, iterations in before.values()} == {4096, 8192}
    for number in range(5):
        users = users.with_credentials(f"more-{number}", credentials_for(PASSWORD, 4096))
        users = users.with_credentials(f"javas-{number}", {MECHANISM: replace(JAVAS, salt=b"%x" % 7**33)})
        assert shown(users) == before
    for name in users.names:
        users = users.with_credentials(name, {})
        assert shown(users) == before


def test_a_new_kind_of_credential_changes_only_the_names_that_it_is_for(users: Users) -> None:
    before = shown(users)
    after = shown(users.with_credentials("javas", {MECHANISM: JAVAS}))
    changed = [name for name in NAMES if before[name] != after[name]]
    assert 0 < len(changed) < len(NAMES)
    assert {after[name][1] for name in changed} == {8192}


def test_a_made_up_salt_looks_as_those_of_the_tool_that_made_the_others() -> None:
    users = Users().with_credentials("javas", {MECHANISM: JAVAS})
    salts = [salt for salt, _ in shown(users).values()]
    assert len(set(salts)) == len(NAMES)
    assert all(re.fullmatch(b"[0-9a-z]{20,26}", salt) for salt in salts)
    assert {len(salt) for salt in salts} >= {25, 26}
    long = Users().with_credentials("c", {MECHANISM: replace(JAVAS, salt=bytes(range(100)))})
    assert {len(salt) for salt, _ in shown(long).values()} == {100}


def test_a_credential_shows_nothing_at_all() -> None:
    """Not even how dear a guess is."""
    assert repr(ScramCredential(b"salt", 4096, b"stored", b"server")) == "ScramCredential()"
