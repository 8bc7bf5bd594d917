"""A connection that sends what it is told and retries nothing."""

from __future__ import annotations

import socket
from collections import deque
from typing import Any, Self

from foldlog.wire.frames import decode_response, encode_request, response_class
from foldlog.wire.schema import Request

TIMEOUT_S = 60


class PlainConnection:
    """Requests out, answers in, in order. ConnectionError when the broker closes it."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), TIMEOUT_S)
        self._asked: deque[tuple[int, int]] = deque()

    def ask(self, request: Request, version: int, client_id: str = "plain") -> Any:
        self.send(request, version, client_id)
        return self.receive()

    def send(self, request: Request, version: int, client_id: str = "plain") -> None:
        self._asked.append((request.API_KEY, version))
        self._socket.sendall(b"".join(encode_request(request, version, 1, client_id)))

    def receive(self) -> Any:
        key, version = self._asked.popleft()
        size = int.from_bytes(self._exactly(4), "big")
        return decode_response(response_class(key), version, self._exactly(size))[1]

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            if not more:
                raise ConnectionError("the broker closed the connection")
            found += more
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
