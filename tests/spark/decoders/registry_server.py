"""A schema registry over HTTP, as far as readers use one, on a free port of this machine."""

from __future__ import annotations

import json
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class RegistryServer:
    """Answers GET /schemas/ids/N and /subjects/S/versions/N from the dicts below; `answer` overrides everything."""

    def __init__(self) -> None:
        self.schemas: dict[int, str] = {}
        self.references: dict[int, list[dict[str, Any]]] = {}
        self.subjects: dict[tuple[str, int], str] = {}
        self.subject_references: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self.answer: tuple[int, bytes] | None = None
        self.asked: list[str] = []
        self.authorizations: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                if "Authorization" in self.headers:
                    registry.authorizations.append(self.headers["Authorization"])
                status, body = registry.answer or registry.found(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 http.server's name
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def found(self, path: str) -> tuple[int, bytes]:
        parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
        schema, references = None, None
        if parts[:2] == ["schemas", "ids"]:
            schema, references = self.schemas.get(int(parts[2])), self.references.get(int(parts[2]))
        elif parts[0] == "subjects":
            key = parts[1], int(parts[3])
            schema, references = self.subjects.get(key), self.subject_references.get(key)
        if schema is None:
            return 404, b'{"error_code": 40403, "message": "Schema not found"}'
        answer: dict[str, Any] = {"schema": schema}
        if references is not None:
            answer["references"] = references
        return 200, json.dumps(answer).encode()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
