"""What a person sees who opens the page of a console that has a token, before the token is known. Pure.

A small page of its own: the console's files are behind the token too.
"""

from __future__ import annotations

import base64
import hashlib
import html
from http import HTTPStatus
from typing import Final

from foldlog.server.http_routes import Request, Response

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:30rem;margin:18vh auto;padding:0 1.25rem;"
    "color-scheme:light dark}input,button{font:inherit;padding:.5rem .7rem}input{width:100%;box-sizing:border-box;"
    "margin:.3rem 0 .8rem}"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

_POLICY: Final = (
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


def is_for_people(request: Request) -> bool:
    """Whether somebody opens the page, rather than a script asking the API."""
    return request.method == "GET" and request.path == "/" and "text/html" in request.headers.get("accept", "")


def is_link_from_elsewhere(request: Request) -> bool:
    """Whether another site's link led here: a browser brings no cookie with it, nor with a redirect that follows."""
    return request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}


def door(request: Request) -> Response:
    """The page that asks for the token."""
    is_wrong = "token" in request.query
    sentence = (
        "That is not the token of this console. Whoever started it has it: it was printed with its address."
        if is_wrong
        else "This console needs its token. It was printed with its address when the console was started."
    )
    page = _PAGE.format(style=_STYLE, sentence=html.escape(sentence), role=' role="alert"' if is_wrong else "")
    return Response(HTTPStatus.UNAUTHORIZED, page.encode(), HTML, (("content-security-policy", _POLICY),))


def step_inside(cookie: tuple[tuple[str, str], ...] = ()) -> Response:
    """Has the browser ask again, as from this site: a redirect would count as the other site's, and bring no cookie."""
    return Response(HTTPStatus.OK, b"", HTML, (("refresh", "0; url=/"), *cookie))
