"""A proxy before an S3 server that fails on request: over real HTTP, as a store fails. On 127.0.0.1 alone."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

Fault = Callable[[str, str], str | None]
"""For a method and a path: None, "503", "cut", "flip", "gone", "hang up", "skew" (the clocks differ) or "hold" (no
answer until it heals)."""

SKEWED = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>RequestTimeTooSkewed</Code><Message>The difference between'
    b" the request time and the current time is too large.</Message><RequestTime>20200101T000000Z</RequestTime>"
    b"<ServerTime>2020-01-01T01:00:00Z</ServerTime><MaxAllowedSkewMilliseconds>900000</MaxAllowedSkewMilliseconds>"
    b"</Error>"
)
"""As S3 says it."""

_NOT_PASSED_ON = {"connection", "transfer-encoding", "keep-alive", "content-length"}


class FaultyS3:
    """Where the proxy is, and what it does."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.fault: Fault = lambda method, path: None
        self.failed = 0
        self.held = threading.Event()
        """A request is being held."""
        self.released = threading.Event()

    def fail(self, kind: str, *, part: str, methods: str = "GET", times: int = 1 << 30) -> None:
        """Fail requests of these methods whose path has this part, so many times."""
        left = [times]

        def fault(method: str, path: str) -> str | None:
            if method not in methods or part not in path or not left[0]:
                return None
            left[0] -= 1
            self.failed += 1
            return kind

        self.fault = fault

    def heal(self) -> None:
        self.fault = lambda method, path: None
        self.released.set()


@contextmanager
def faulty(endpoint: str) -> Iterator[FaultyS3]:
    """The proxy, running until the end of the block."""
    behind = urlsplit(endpoint).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            return

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            kind = proxy.fault(self.command, self.path)
            if kind == "hang up":
                self.close_connection = True
                return
            if kind == "503":
                self._answer(503, [], b"<Error><Code>SlowDown</Code></Error>")
                return
            if kind == "hold":
                proxy.held.set()
                proxy.released.wait(120)
                self.close_connection = True
                return
            if kind == "skew":
                self._answer(403, [("content-type", "application/xml")], SKEWED)
                return
            if kind == "gone":
                self._answer(404, [], b"<Error><Code>NoSuchKey</Code></Error>")
                return
            connection = http.client.HTTPConnection(behind, timeout=30)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            connection.request(self.command, self.path, body, {**headers, "Host": behind})
            answer = connection.getresponse()
            data = answer.read()
            if kind == "flip" and len(data) > 80:
                data = data[:70] + bytes([data[70] ^ 1]) + data[71:]
            self._answer(answer.status, answer.getheaders(), data, cut=kind == "cut")
            connection.close()

        def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, *, cut: bool = False) -> None:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in _NOT_PASSED_ON:
                    self.send_header(name, value)
            length = next((value for name, value in headers if name.lower() == "content-length"), None)
            self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(data)))
            self.end_headers()
            if cut:
                self.wfile.write(data[: len(data) // 2])
                self.close_connection = True
            elif self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy = FaultyS3(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
