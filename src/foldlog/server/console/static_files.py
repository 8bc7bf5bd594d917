"""The page and its files, from memory: read once, when the console starts."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from foldlog.server.console.api_errors import error_response
from foldlog.server.http_routes import Request, Response, Route

PAGE: Final = "index.html"

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class _StaticFile(NamedTuple):
    """One form of a file: as it is, or packed with gzip. Forms differ in their tags, as HTTP wants it."""

    content_type: str
    body: bytes
    etag: str
    encoding: tuple[tuple[str, str], ...] = ()


def _forms(name: str, body: bytes) -> tuple[_StaticFile, _StaticFile]:
    content_type = _TYPES[name.rpartition(".")[2]]
    digest = hashlib.blake2b(body, digest_size=16).hexdigest()
    plain = _StaticFile(content_type, body, f'"{digest}"')
    packed = gzip.compress(body, mtime=0)
    return plain, _StaticFile(content_type, packed, f'"{digest}-gzip"', (("content-encoding", "gzip"),))


class StaticFiles:
    """What a browser is given. It asks each time whether it has the newest, which costs no body: no file is old."""

    def __init__(self, found: Mapping[str, bytes]) -> None:
        self._files = {name: _forms(name, body) for name, body in found.items()}

    @classmethod
    def load(cls, folder: Traversable | None = None) -> StaticFiles:
        """All files of the kinds that a page has; of the package's own folder, if no other is given."""
        folder = files("foldlog") / "console" if folder is None else folder
        if not folder.is_dir():
            return cls({})
        kinds = tuple(f".{kind}" for kind in _TYPES)
        return cls({each.name: each.read_bytes() for each in folder.iterdir() if each.name.endswith(kinds)})

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/", lambda request: self.answer(request, PAGE)),
            Route("GET", "/console/{file}", lambda request: self.answer(request, request.named["file"])),
        ]

    def answer(self, request: Request, name: str) -> Response:
        forms = self._files.get(name)
        if forms is None:
            return error_response(HTTPStatus.NOT_FOUND, "there is no such file of the console")
        accepted = [each.strip() for each in request.headers.get("accept-encoding", "").split(",")]
        found = forms["gzip" in accepted]
        headers = (("etag", found.etag), ("cache-control", "no-cache"), ("vary", "accept-encoding"))
        known = request.headers.get("if-none-match", "")
        if known == "*" or found.etag in {each.strip().removeprefix("W/") for each in known.split(",")}:
            return Response(HTTPStatus.NOT_MODIFIED, b"", found.content_type, headers)
        return Response(HTTPStatus.OK, found.body, found.content_type, (*headers, *found.encoding))
