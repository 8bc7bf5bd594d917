"""Users of the console, where clients of the broker log in: the same users, by a form, or for scripts
by a header (`http/logins.py`).

A session is a random cookie, kept in memory: it ends with its time, with the broker, when the user logs out, and when
the user's password is changed or the user is deleted.
"""

from __future__ import annotations

import html
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from foldlog.broker.access.acls import USER_PREFIX, Identity
from foldlog.limits import CONSOLE_SESSION_MS, CONSOLE_SESSIONS_MAX, USER_NAME_CHARACTERS_MAX
from foldlog.server.access.audit import note
from foldlog.server.console.access import HTML, PAGE_POLICY, PAGE_STYLE
from foldlog.server.groups import address_in_acls
from foldlog.server.http.logins import HttpLogins, has_basic
from foldlog.server.http.routes import HttpRequest, HttpResponse

if TYPE_CHECKING:
    from foldlog.broker.access.store import AccessStore
    from foldlog.broker.access.users import Credentials
    from foldlog.clock import Clock
    from foldlog.server.access.logins import Logins

CONSOLE: Final = "the console"
LOGIN_PATH: Final = "/login"
LOGOUT_PATH: Final = "/logout"
_SESSION_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class _Session:
    """One login: its user, what was kept of the password then, and until when it holds, on the monotonic clock."""

    name: str
    credentials: Credentials
    until_ms: float


class ConsoleUsers:
    """Who uses a console. Event loop only."""

    def __init__(self, logins: Logins, access: AccessStore, clock: Clock, *, cookie_name: str, has_tls: bool) -> None:
        self._headers = HttpLogins(logins, clock, CONSOLE)
        self._access = access
        self._clock = clock
        self._cookie_name = cookie_name
        # A browser sends a Secure cookie over TLS only: without TLS it would never come back.
        self._attributes = f"Path=/; HttpOnly; SameSite=Strict{'; Secure' if has_tls else ''}"
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    async def principal(self, request: HttpRequest) -> str | None:
        """Who asks; None if nobody has logged in."""
        if has_basic(request):
            return await self._headers.principal(request)
        session = self._find(self._cookie(request))
        return None if session is None else USER_PREFIX + session.name

    def holds(self, request: HttpRequest) -> bool:
        """Whether who asked still may: for answers that go on and on."""
        if has_basic(request):
            return request.principal.removeprefix(USER_PREFIX) in self._access.current.users
        return self._find(self._cookie(request)) is not None

    async def log_in(self, request: HttpRequest) -> HttpResponse:
        """The answer to the form: back to the page with a session, or the form again."""
        fields = dict(parse_qsl(request.body.decode("utf-8", "replace"), keep_blank_values=True))
        name = fields.get("user", "")
        if not await self._headers.is_known(name, fields.get("password", ""), request.peer):
            return login_page("That user is unknown, or the password is wrong.", name)
        token = secrets.token_urlsafe(_SESSION_BYTES)
        until_ms = self._clock.monotonic_ms() + CONSOLE_SESSION_MS
        self._sessions[token] = _Session(name, self._access.current.users.of(name), until_ms)
        if len(self._sessions) > CONSOLE_SESSIONS_MAX:
            self._sessions.popitem(last=False)
        note(Identity(USER_PREFIX + name, address_in_acls(request.peer)), "login", [CONSOLE])
        cookie = f"{self._cookie_name}={token}; {self._attributes}"
        return HttpResponse(HTTPStatus.SEE_OTHER, b"", headers=(("location", "/"), ("set-cookie", cookie)))

    def log_out(self, request: HttpRequest) -> HttpResponse:
        """End the session; the page asks again."""
        ended = self._find(self._cookie(request))
        if ended is not None:
            del self._sessions[self._cookie(request)]
            note(Identity(USER_PREFIX + ended.name, address_in_acls(request.peer)), "logout", [CONSOLE])
        cookie = f"{self._cookie_name}=; {self._attributes}; Max-Age=0"
        return HttpResponse(HTTPStatus.SEE_OTHER, b"", headers=(("location", "/"), ("set-cookie", cookie)))

    def _cookie(self, request: HttpRequest) -> str:
        try:
            cookie = SimpleCookie(request.headers.get("cookie", "")).get(self._cookie_name)
        except CookieError:
            return ""
        return "" if cookie is None else cookie.value

    def _find(self, token: str) -> _Session | None:
        session = self._sessions.get(token)
        if session is None:
            return None
        is_over = self._clock.monotonic_ms() > session.until_ms
        if is_over or self._access.current.users.of(session.name) != session.credentials:
            del self._sessions[token]
            return None
        return session


_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>foldlog</title><style>{style}</style></head>
<body><main><h1>foldlog</h1><p{role}>{sentence}</p>
<form action="/login" method="post"><label for="user">User</label>
<input id="user" name="user" value="{name}" autocomplete="username" required{focus_user}>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required{focus_password}>
<button>Log in</button></form></main></body></html>
"""


def login_page(failure: str = "", name: str = "") -> HttpResponse:
    """The page that asks who it is."""
    page = _PAGE.format(
        style=PAGE_STYLE,
        role=' role="alert"' if failure else "",
        sentence=html.escape(failure or "Log in as a user of this log. Operators make users with foldlog user create."),
        name=html.escape(name[:USER_NAME_CHARACTERS_MAX], quote=True),
        focus_user="" if name else " autofocus",
        focus_password=" autofocus" if name else "",
    )
    # The policy of all other pages, no-referrer, has browsers send the form with `Origin: null`, as another site's.
    headers = (("content-security-policy", PAGE_POLICY), ("referrer-policy", "same-origin"))
    return HttpResponse(HTTPStatus.UNAUTHORIZED, page.encode(), HTML, headers)
