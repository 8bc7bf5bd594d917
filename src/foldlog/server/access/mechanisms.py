"""SASL mechanisms from the broker's side: one exchange each, tokens in, tokens out.

| mechanism | what the client shows | what it is compared with |
| --- | --- | --- |
| PLAIN | its name and password | the user's SCRAM credential: no password is kept |
| SCRAM-SHA-256, SCRAM-SHA-512 | that it knows the password | the user's credential |
| OAUTHBEARER | a token that somebody signed | the keys, issuer and audience that the broker was told |

A client that is known has the principal `User:` and its name.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from foldlog.broker.access.acls import USER_PREFIX
from foldlog.broker.access.scram import MECHANISMS as SCRAM_MECHANISMS
from foldlog.broker.access.scram import LoginRefused, ScramServer
from foldlog.broker.access.users import Users
from foldlog.errors import brief_repr
from foldlog.limits import BEARER_BYTES_MAX, PASSWORD_CHARACTERS_MAX, USER_NAME_CHARACTERS_MAX

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM: Final = tuple(SCRAM_MECHANISMS)
OFFERED: Final = (*SCRAM, PLAIN, OAUTHBEARER)
"""What sasl.enabled.mechanisms may name."""

_NONCE_BYTES: Final = 24

_BEARER: Final = re.compile(rb"auth=bearer +(?P<token>[-A-Za-z0-9._~+/=]+)", re.IGNORECASE)
_HEADER: Final = re.compile(rb"n,(?:a=(?P<authorization>[^,]*))?,")
_SEPARATOR: Final = b"\x01"
_INVALID_TOKEN: Final = b'{"status":"invalid_token"}'


class SaslOutcome(NamedTuple):
    """What to answer; once the client is known, its principal, and until when, in milliseconds of the wall clock. With
    a `refusal` it is not who it says, and the answer tells it so before the end."""

    answer: bytes
    principal: str | None = None
    until_ms: int | None = None
    refusal: LoginRefused | None = None


class SaslExchange(Protocol):
    """One exchange of one client. LoginRefused if it is not who it says."""

    async def respond(self, token: bytes) -> SaslOutcome: ...


CheckPassword = Callable[[str, str], Awaitable[bool]]
"""Whether a name and a password belong together. It hashes, so it is awaited."""

CheckToken = Callable[[str], Awaitable[tuple[str, int]]]
"""Whose token it is, and until when it holds; LoginRefused if it is nobody's."""


class PlainExchange:
    """PLAIN (RFC 4616): one message with everything in it."""

    def __init__(self, check: CheckPassword) -> None:
        self._check = check

    async def respond(self, token: bytes) -> SaslOutcome:
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise LoginRefused("its message is not an authorization id, a name and a password")
        try:
            authorization, name, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise LoginRefused("its name or password is not UTF-8") from None
        if not name or not password or len(name) > USER_NAME_CHARACTERS_MAX or len(password) > PASSWORD_CHARACTERS_MAX:
            raise LoginRefused("its name or password is empty or too long")
        if authorization not in ("", name):
            raise LoginRefused(f"{brief_repr(name)} wants to act as somebody else")
        if not await self._check(name, password):
            raise LoginRefused(f"wrong password for {brief_repr(name)}, or no such user")
        return SaslOutcome(b"", USER_PREFIX + name)


class ScramExchange:
    """SCRAM: two messages; see `broker/access/scram.py`."""

    def __init__(self, mechanism: str, users: Users) -> None:
        self._server = ScramServer(mechanism, secrets.token_urlsafe(_NONCE_BYTES))
        self._mechanism = mechanism
        self._users = users
        self._name: str | None = None

    async def respond(self, token: bytes) -> SaslOutcome:
        if self._name is None:
            self._name = self._server.named(token)
            return SaslOutcome(self._server.challenge(self._users.credential(self._mechanism, self._name)))
        try:
            proof = self._server.verify(token)
        except LoginRefused as refusal:
            raise LoginRefused(f"{brief_repr(self._name)}: {refusal}") from None
        return SaslOutcome(proof, USER_PREFIX + self._name)


class BearerExchange:
    """OAUTHBEARER (RFC 7628): a token; if it is refused, the client is told so, and answers once before the end."""

    def __init__(self, check: CheckToken) -> None:
        self._check = check
        self._refusal: LoginRefused | None = None

    async def respond(self, token: bytes) -> SaslOutcome:
        if self._refusal is not None:
            raise self._refusal
        authorization, bearer = _bearer(token)
        try:
            name, until_ms = await self._check(bearer)
            if authorization not in ("", name):
                raise LoginRefused(f"the token is of {name!r}, which wants to act as somebody else")
        except LoginRefused as refusal:
            self._refusal = refusal
            return SaslOutcome(_INVALID_TOKEN, refusal=refusal)
        return SaslOutcome(b"", USER_PREFIX + name, until_ms)


def _bearer(message: bytes) -> tuple[str, str]:
    """The authorization id and the token of a client's message (RFC 7628): a header, and pairs of a name and a value.

    Anybody can send it, so it is looked through once, piece by piece, whatever is in it.
    """
    header, *pairs = message.split(_SEPARATOR) if len(message) <= BEARER_BYTES_MAX else [b""]
    head = _HEADER.fullmatch(header)
    tokens = [found for pair in pairs if pair[:5].lower() == b"auth=" and (found := _BEARER.fullmatch(pair))]
    if head is None or pairs[-2:] != [b"", b""] or len(tokens) != 1:
        raise LoginRefused("its message is not that of OAUTHBEARER, or too long")
    return (head["authorization"] or b"").decode(errors="replace"), tokens[0]["token"].decode()
