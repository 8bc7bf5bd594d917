"""Who may ask the console for what: its token, its own page only, its own name only, and no writes if none are wanted.

Pure: from a request to a refusal, or to the headers that its answer gets. What is kept out:

- Another site's page in the same browser: browsers say so, in `Sec-Fetch-Site` and `Origin`. Following a link to the
  page itself is no harm.
- A name that somebody else made to point to this machine (DNS rebinding): to the browser that is the same site, so
  `Host` has to be an address, `localhost` or this machine's name. With a token any name will do: a page under another
  name has no cookie of it.
- Forms of other pages, for browsers that say neither: a write has to be JSON and to carry a header of ours.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from foldlog.errors import brief_repr
from foldlog.server.console.api_errors import ApiError
from foldlog.server.http_routes import JSON, Request

WRITE_HEADER: Final = "x-foldlog"
_READS: Final = frozenset({"GET", "HEAD"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_BEARER: Final = "bearer "


class Access:
    """The rules of one console. `token` "" is none; `name` tells its cookie from those of others on the same host."""

    def __init__(self, *, host: str, name: str, token: str = "", read_only: bool = False) -> None:
        self.read_only = read_only
        self._token = token
        self._names = {"localhost", host.lower(), socket.gethostname().lower()}
        # Browsers send the cookies of one port to all ports of a host.
        self._cookie_name = f"foldlog_console_{name}"
        self._cookie = hmac.new(token.encode(), b"the console's cookie", hashlib.sha256).hexdigest()

    def check(self, request: Request) -> None:
        """ApiError unless the request may be answered."""
        self._check_host(request)
        _check_site(request)
        if self._token and not self._is_known(request):
            raise ApiError(
                HTTPStatus.UNAUTHORIZED,
                "the console needs its token: open /?token=TOKEN once, or send it as Authorization: Bearer TOKEN",
            )
        if request.method not in _READS:
            self._check_write(request)

    def cookie_for(self, request: Request) -> tuple[tuple[str, str], ...]:
        """The header that spares a browser the token from now on; none unless the request brought it in its address."""
        if not self._token or "token" not in request.query:
            return ()
        return (("set-cookie", f"{self._cookie_name}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"),)

    def _is_known(self, request: Request) -> bool:
        authorization = request.headers.get("authorization", "")
        if authorization.lower().startswith(_BEARER):
            return _same(authorization[len(_BEARER) :].strip(), self._token)
        if "token" in request.query:
            return _same(request.query["token"], self._token)
        try:
            cookie = SimpleCookie(request.headers.get("cookie", "")).get(self._cookie_name)
        except CookieError:
            return False
        return cookie is not None and _same(cookie.value, self._cookie)

    def _check_host(self, request: Request) -> None:
        name = _host_name(request.headers.get("host", ""))
        if self._token or name in self._names or _is_address(name):
            return
        raise ApiError(
            HTTPStatus.FORBIDDEN,
            f"{brief_repr(name)} is no name of this console; open it by an address such as 127.0.0.1, or by localhost",
        )

    def _check_write(self, request: Request) -> None:
        if self.read_only:
            raise ApiError(HTTPStatus.FORBIDDEN, "this console is read-only; whoever started it can allow changes")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a change is sent as JSON; set Content-Type: {JSON}")
        if request.headers.get(WRITE_HEADER) != "1":
            raise ApiError(HTTPStatus.FORBIDDEN, "a change needs the header X-Foldlog: 1, which no form sends")


def _check_site(request: Request) -> None:
    site = request.headers.get("sec-fetch-site")
    is_link = request.path == "/" and request.method in _READS and request.headers.get("sec-fetch-mode") == "navigate"
    if site is not None and site not in _OWN_SITES and not is_link:
        raise ApiError(HTTPStatus.FORBIDDEN, "the request comes from another site; only the console's own page may ask")
    origin = request.headers.get("origin")
    if origin is not None and _place(origin) != request.headers.get("host", "").lower():
        raise ApiError(
            HTTPStatus.FORBIDDEN, f"the request comes from {brief_repr(origin)}; only the console's own page may ask"
        )


def _place(origin: str) -> str | None:
    """Host and port of an origin, as `Host` has them; None for one that is none, such as "null"."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _host_name(host: str) -> str:
    """
    >>> _host_name("LocalHost:8080"), _host_name("[::1]:8080"), _host_name("")
    ('localhost', '::1', '')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")


def _is_address(name: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, name)
        except (OSError, ValueError):
            continue
        return True
    return False


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())
