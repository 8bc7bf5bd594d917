"""Tokens of OAUTHBEARER: signed JSON (RFC 7519), checked against the keys of whoever signs them (`signing_keys`).

Only signatures with a public key are taken: not `none`, and no shared secrets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from foldlog.broker.access.scram import LoginRefused
from foldlog.limits import TOKEN_BYTES_MAX, USER_NAME_CHARACTERS_MAX
from foldlog.server.access.signing_keys import SigningKeys

_END_S: Final = 1 << 40
"""Some 35,000 years. A token that claims more holds until then: its time goes over the wire with 64 bits."""


class TokenSettings(NamedTuple):
    """What tokens have to show."""

    jwks: str
    audience: tuple[str, ...] = ()
    issuer: str | None = None
    skew_s: int = 30
    name_claim: str = "sub"
    refresh_ms: int = 3_600_000


class TokenChecker:
    """Says whose a token is. Any thread; waits for nothing."""

    def __init__(self, settings: TokenSettings, now_s: Callable[[], float] = time.monotonic) -> None:
        """Reads the keys, and raises as `SigningKeys` does."""
        self.keys = SigningKeys(settings.jwks, settings.refresh_ms, now_s)
        self._settings = settings

    def check(self, token: str) -> tuple[str, int]:
        """Whose it is, and until when it holds, in milliseconds of the wall clock. LoginRefused if it is nobody's,
        UnknownKey if it may be somebody's once the keys are read again."""
        import jwt

        if len(token) > TOKEN_BYTES_MAX:
            raise LoginRefused(f"a token of {len(token)} bytes")
        settings = self._settings
        try:
            header = jwt.get_unverified_header(token)
            key = self.keys.find(header.get("kid"))
            if header.get("alg") not in key.algorithms:
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
        except (RecursionError, OverflowError):  # of the JSON in it, which anybody may have written
            raise LoginRefused("its token is not taken: it is nested too deeply, or has a number too large") from None
        name = claims[settings.name_claim]
        if not isinstance(name, str) or not name or len(name) > USER_NAME_CHARACTERS_MAX or not name.isprintable():
            raise LoginRefused(f"its token has no name in {settings.name_claim}")
        return name, (min(int(claims["exp"]), _END_S) + settings.skew_s) * 1000
