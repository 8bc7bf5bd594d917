"""Access rules of the console: its token, only its own page, only its own names, and no writes if it is read-only.
Where clients of the broker log in, `sessions` takes the token's place.

Pure: from a request to a refusal, or to headers for its answer. Kept out are:

- Pages of other sites in the same browser: browsers say so, in `Sec-Fetch-Site` and `Origin`. Following a link to the
  console's page is harmless.
- Foreign names that point to this machine (DNS rebinding): to the browser that is the same site, so `Host` has to be an
  address, `localhost` or this machine's name. With a token any name will do: a page under another name does not have
  its cookie.
- Forms of other pages, for browsers that send neither: a write has to be JSON and to carry a header of ours.

If the page of a console with a token is opened without the token, a small page asks for it: the console's files need
the token, too.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from foldlog.errors import brief_repr
from foldlog.server.console.api_errors import ApiError
from foldlog.server.http.host_names import OwnNames
from foldlog.server.http.routes import JSON, HttpRequest, HttpResponse

WRITE_HEADER: Final = "x-foldlog"
READS: Final = frozenset({"GET", "HEAD"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_BEARER: Final = "bearer "


class ConsoleAccess:
    """The rules of one console. `token` "" is none; `name` distinguishes its cookie from others on the same host. With
    `has_users`, who asks is found out by `sessions`, and there is no token."""

    def __init__(
        self, *, host: str, name: str, token: str = "", read_only: bool = False, has_users: bool = False
    ) -> None:
        self.read_only = read_only
        self.has_users = has_users
        self._token = token
        self._names = OwnNames([host])
        # Browsers send the cookies of one port to all ports of a host.
        self.cookie_name = f"foldlog_console_{name}"
        self._cookie = hmac.new(token.encode(), b"the console's cookie", hashlib.sha256).hexdigest()

    def check(self, request: HttpRequest) -> None:
        """Raises ApiError unless the request may be answered."""
        self._check_host(request)
        check_site(request)
        if self._token and not self._is_known(request):
            raise ApiError(
                HTTPStatus.UNAUTHORIZED,
                "the console needs its token: open /?token=TOKEN once, or send it as Authorization: Bearer TOKEN",
            )
        if request.method not in READS:
            self._check_write(request)

    def check_form(self, request: HttpRequest) -> None:
        """Raises ApiError unless a form of the console's own page may be answered: its login."""
        self._check_host(request)
        check_site(request)

    def cookie_for(self, request: HttpRequest) -> tuple[tuple[str, str], ...]:
        """The header that sets the cookie, if the token was in the address: the browser then needs it no more."""
        if not self._token or "token" not in request.query:
            return ()
        return (("set-cookie", f"{self.cookie_name}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"),)

    def _is_known(self, request: HttpRequest) -> bool:
        authorization = request.headers.get("authorization", "")
        if authorization.lower().startswith(_BEARER):
            return _same(authorization[len(_BEARER) :].strip(), self._token)
        if "token" in request.query:
            return _same(request.query["token"], self._token)
        try:
            cookie = SimpleCookie(request.headers.get("cookie", "")).get(self.cookie_name)
        except CookieError:
            return False
        return cookie is not None and _same(cookie.value, self._cookie)

    def _check_host(self, request: HttpRequest) -> None:
        name = self._names.foreign_name(request)
        if self._token or self.has_users or name is None:
            return
        raise ApiError(
            HTTPStatus.FORBIDDEN,
            f"{brief_repr(name)} is no name of this console; open it by an address such as 127.0.0.1, or by localhost",
        )

    def _check_write(self, request: HttpRequest) -> None:
        if self.read_only:
            raise ApiError(
                HTTPStatus.FORBIDDEN, "this console is read-only; start it without --console-read-only to allow changes"
            )
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a change is sent as JSON; set Content-Type: {JSON}")
        if request.headers.get(WRITE_HEADER) != "1":
            raise ApiError(HTTPStatus.FORBIDDEN, "a change needs the header X-Foldlog: 1, which no form sends")


def check_site(request: HttpRequest) -> None:
    """Raises ApiError for a request that a page of another site has sent."""
    site = request.headers.get("sec-fetch-site")
    is_link = request.path == "/" and request.method in READS and request.headers.get("sec-fetch-mode") == "navigate"
    if site is not None and site not in _OWN_SITES and not is_link:
        raise ApiError(HTTPStatus.FORBIDDEN, "the request comes from a page of another site")
    origin = request.headers.get("origin")
    if origin is not None and _host_of(origin) != request.headers.get("host", "").lower():
        raise ApiError(
            HTTPStatus.FORBIDDEN, f"the request comes from {brief_repr(origin)}; only a page of this server may ask"
        )


def _host_of(origin: str) -> str | None:
    """Host and port of an origin, as in `Host`; None for an invalid one, such as "null"."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())


# --- the page that asks for the token ---------------------------------------------------------------------------------

PAGE_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:30rem;margin:18vh auto;padding:0 1.25rem;"
    "color-scheme:light dark}input,button{font:inherit;padding:.5rem .7rem}input{width:100%;box-sizing:border-box;"
    "margin:.3rem 0 .8rem}"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(PAGE_STYLE.encode()).digest()).decode()

PAGE_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>foldlog</title><style>{style}</style></head>
<body><main><h1>foldlog</h1><p{role}>{sentence}</p>
<form action="/"><label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Open the console</button></form></main></body></html>
"""

HTML: Final = "text/html; charset=utf-8"


def is_for_people(request: HttpRequest) -> bool:
    """Whether a person opens the page, rather than a script that uses the API."""
    return request.method == "GET" and request.path == "/" and "text/html" in request.headers.get("accept", "")


def is_link_from_elsewhere(request: HttpRequest) -> bool:
    """Whether a link of another site led here: the browser then sends no cookie, nor with a redirect that follows."""
    return request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}


def token_page(request: HttpRequest) -> HttpResponse:
    """The page that asks for the token."""
    is_wrong = "token" in request.query
    sentence = (
        "That is not the token of this console. It was printed with its address when the console was started."
        if is_wrong
        else "This console needs its token. It was printed with its address when the console was started."
    )
    page = _PAGE.format(style=PAGE_STYLE, sentence=html.escape(sentence), role=' role="alert"' if is_wrong else "")
    return HttpResponse(HTTPStatus.UNAUTHORIZED, page.encode(), HTML, (("content-security-policy", PAGE_POLICY),))


def same_site_refresh(cookie: tuple[tuple[str, str], ...] = ()) -> HttpResponse:
    """Makes the browser ask again as from this site: a redirect would count as the other site's, without a cookie."""
    return HttpResponse(HTTPStatus.OK, b"", HTML, (("refresh", "0; url=/"), *cookie))
