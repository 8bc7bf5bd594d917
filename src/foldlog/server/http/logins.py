"""Who sends an HTTP request: a user by HTTP's Basic; at /metrics also by Bearer, with a token of OAUTHBEARER.

The users are those of the broker's listeners, and a failed login costs what it costs there.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final

from foldlog.broker.access.acls import USER_PREFIX, Identity
from foldlog.broker.access.scram import LoginRefused
from foldlog.errors import brief_repr
from foldlog.limits import CONSOLE_SESSION_MS, PASSWORD_CHARACTERS_MAX, USER_NAME_CHARACTERS_MAX
from foldlog.server.access.audit import RepeatedLogins
from foldlog.server.groups import address_in_acls

if TYPE_CHECKING:
    from foldlog.clock import Clock
    from foldlog.server.access.logins import Logins
    from foldlog.server.http.routes import HttpRequest

_BASIC: Final = "basic "
_BEARER: Final = "bearer "


class HttpLogins:
    """Finds out who sends a request, at one place (`where`: the console, or /metrics). Event loop only."""

    def __init__(self, logins: Logins, clock: Clock, where: str, *, takes_tokens: bool = False) -> None:
        self._takes_tokens = takes_tokens
        self._logins = logins
        self._where = where
        self._told = RepeatedLogins(clock, CONSOLE_SESSION_MS)

    async def principal(self, request: HttpRequest) -> str | None:
        """Who is named by the request's header; None if nobody is, or what it shows is wrong."""
        authorization = request.headers.get("authorization", "")
        kind = authorization.lower()
        found = None
        if kind.startswith(_BASIC):
            name, password = _basic(authorization[len(_BASIC) :])
            if await self.is_known(name, password, request.peer):
                found = USER_PREFIX + name
        elif kind.startswith(_BEARER) and self._takes_tokens:
            found = await self._of_token(authorization[len(_BEARER) :].strip(), request.peer)
        if found is not None:
            mechanism = authorization.partition(" ")[0].capitalize()
            self._told.add(Identity(found, address_in_acls(request.peer)), "login", [self._where, mechanism])
        return found

    async def _of_token(self, token: str, host: str) -> str | None:
        try:
            await self._logins.turn(host)
            name, _ = await self._logins.check_token(token)
        except LoginRefused as refusal:
            await self._logins.refused(host, refusal)
            return None
        return USER_PREFIX + name

    async def is_known(self, name: str, password: str, host: str) -> bool:
        """Whether that is the user's password; if not, after the time that this costs."""
        is_sane = 0 < len(name) <= USER_NAME_CHARACTERS_MAX and 0 < len(password) <= PASSWORD_CHARACTERS_MAX
        try:
            await self._logins.turn(host)
            if is_sane and await self._logins.knows(name, password):
                return True
            refusal = LoginRefused(f"wrong password for {brief_repr(name)} at {self._where}, or no such user")
        except LoginRefused as failed:
            refusal = failed
        await self._logins.refused(host, refusal)
        return False


def has_basic(request: HttpRequest) -> bool:
    """Whether the request has a header with a user's name and password."""
    return request.headers.get("authorization", "").lower().startswith(_BASIC)


def _basic(encoded: str) -> tuple[str, str]:
    try:
        name, _, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name, password
