"""What is said of a frame whose size no request can have, and what the client may be speaking instead."""

from __future__ import annotations

from typing import Final

HEADER_BYTES_MIN: Final = 8

_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP_STARTS: Final = frozenset(
    {b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PATC", b"TRAC", b"PRI "}
)


def size_refusal(start: bytes, limit_bytes: int) -> str:
    """One sentence; `start` is the four bytes where the size stands.

    >>> size_refusal(b"GET ", 1000)
    'a request of 1195725856 bytes (is it speaking TLS or HTTP?); it has 8 to socket.request.max.bytes=1000'
    >>> size_refusal(b"\\x00\\x01\\x00\\x00", 1000)
    'a request of 65536 bytes; it has 8 to socket.request.max.bytes=1000'
    """
    size = int.from_bytes(start, "big", signed=True)
    is_another_protocol = start[:2] == _TLS_HANDSHAKE or start in _HTTP_STARTS
    hint = " (is it speaking TLS or HTTP?)" if is_another_protocol else ""
    return f"a request of {size} bytes{hint}; it has {HEADER_BYTES_MIN} to socket.request.max.bytes={limit_bytes}"
