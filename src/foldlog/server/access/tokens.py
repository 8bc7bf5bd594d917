"""Tokens of OAUTHBEARER: signed JSON (RFC 7519), checked against the keys of whoever signs them.

Keys come from a JWKS, a file or an address, and are asked for again when they are old, or when a token names one that
is not among them. Only signatures with a public key are taken: not `none`, and no shared secrets.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.error import URLError
from urllib.parse import urlsplit

from foldlog.broker.access.scram import LoginRefused
from foldlog.errors import InvalidConfig, MissingDependency
from foldlog.limits import JWKS_BYTES_MAX, JWKS_TIMEOUT_S, TOKEN_BYTES_MAX, USER_NAME_CHARACTERS_MAX

if TYPE_CHECKING:
    import jwt

_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_REFETCH_S: Final = 10.0
"""How soon keys are asked for again because a token names one that is unknown: anybody can make such tokens."""


class TokenSettings(NamedTuple):
    """What tokens have to show."""

    jwks: str
    audience: tuple[str, ...] = ()
    issuer: str | None = None
    skew_s: int = 30
    name_claim: str = "sub"
    refresh_ms: int = 3_600_000


class TokenChecker:
    """Says whose a token is. Any thread; asking for keys may take JWKS_TIMEOUT_S."""

    def __init__(self, settings: TokenSettings, now_s: Callable[[], float] = time.monotonic) -> None:
        """Raises InvalidConfig if the keys cannot be read, MissingDependency without the extra `oauth`."""
        try:
            import jwt
        except ImportError:
            raise MissingDependency("OAUTHBEARER", "PyJWT", "oauth") from None
        self._jwt = jwt
        self._settings = settings
        self._now_s = now_s
        self._fetching = threading.Lock()
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._fetched_s = -_REFETCH_S
        try:
            self._fetch()
        except (OSError, ValueError) as error:
            raise InvalidConfig(
                f"sasl.oauthbearer.jwks.endpoint.url={settings.jwks} cannot be read as the keys of tokens: {error}"
            ) from None

    def check(self, token: str) -> tuple[str, int]:
        """Whose it is, and until when it holds, in milliseconds of the wall clock. LoginRefused if it is nobody's."""
        if len(token) > TOKEN_BYTES_MAX:
            raise LoginRefused(f"a token of {len(token)} bytes")
        jwt, settings = self._jwt, self._settings
        try:
            header = jwt.get_unverified_header(token)
            key = self._key(header.get("kid"))
            if header.get("alg") not in _allowed(key):
                raise LoginRefused(f"its token is signed by {str(header.get('alg'))[:20]!r}, and not as its key is for")
            claims: dict[str, Any] = jwt.decode(
                token,
                key=key.key,
                algorithms=[header["alg"]],
                audience=list(settings.audience) or None,
                issuer=settings.issuer,
                leeway=settings.skew_s,
                options={
                    "require": ["exp", settings.name_claim],
                    "verify_aud": bool(settings.audience),
                    "verify_iss": settings.issuer is not None,
                },
            )
        except jwt.InvalidTokenError as error:
            raise LoginRefused(f"its token is not taken: {error}") from None
        name = claims[settings.name_claim]
        if not isinstance(name, str) or not name or len(name) > USER_NAME_CHARACTERS_MAX or not name.isprintable():
            raise LoginRefused(f"its token has no name in {settings.name_claim}")
        return name, (int(claims["exp"]) + settings.skew_s) * 1000

    def _key(self, wanted: str | None) -> jwt.PyJWK:
        age_s = self._now_s() - self._fetched_s
        is_unknown = wanted not in self._keys and not (wanted is None and len(self._keys) == 1)
        if age_s * 1000 > self._settings.refresh_ms or (is_unknown and age_s > _REFETCH_S):
            with self._fetching:
                if self._now_s() - self._fetched_s >= min(age_s, _REFETCH_S):
                    try:
                        self._fetch()
                    except (OSError, ValueError):
                        self._fetched_s = self._now_s()  # go on with the keys there are, and ask again later
        keys = self._keys
        if wanted is None and len(keys) == 1:
            return next(iter(keys.values()))
        try:
            return keys[wanted]
        except KeyError:
            raise LoginRefused("its token is signed with a key that is not known") from None

    def _fetch(self) -> None:
        document = json.loads(_read(self._settings.jwks))
        if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
            raise ValueError("it is no JWKS: an object with a list of keys")
        keys: dict[str | None, jwt.PyJWK] = {}
        for one in document["keys"]:
            if not isinstance(one, dict) or one.get("kty") == "oct":
                continue  # a shared secret: whoever can check a token could make one
            try:
                keys[one.get("kid")] = self._jwt.PyJWK(one)
            except self._jwt.PyJWTError:
                continue  # of a kind that is not known here
        if not keys:
            raise ValueError("there is no public key in it")
        self._keys, self._fetched_s = keys, self._now_s()


def _allowed(key: jwt.PyJWK) -> tuple[str, ...]:
    """The algorithms that go with a key: one of another kind would be a downgrade."""
    if key.key_type == "RSA":
        return tuple(one for one in _ALGORITHMS if one[0] in "RP")
    return (key.algorithm_name,) if key.algorithm_name in _ALGORITHMS else ()


def _read(location: str) -> bytes:
    scheme = urlsplit(location).scheme
    if scheme not in ("http", "https", "file"):
        location = f"file://{location}"
    try:
        with urllib.request.urlopen(location, timeout=JWKS_TIMEOUT_S) as answer:
            data: bytes = answer.read(JWKS_BYTES_MAX + 1)
    except URLError as error:
        raise OSError(str(error.reason)) from None
    if len(data) > JWKS_BYTES_MAX:
        raise ValueError(f"it has more than {JWKS_BYTES_MAX} bytes")
    return data
