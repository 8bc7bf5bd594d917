"""Answers to requests of versions that are not served, where the protocol has one."""

from __future__ import annotations

import struct
from typing import Final

from foldlog.errors import MalformedBytes
from foldlog.server.handlers.api_versions import unsupported_version
from foldlog.wire.codec import Chunk
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import API_VERSIONS_KEY, RequestHeader, encode_response

_PRODUCE_KEY: Final = 0
_OLD_PRODUCE_LAST: Final = 2
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_PARTITION_MIN_BYTES: Final = 8


def refusal(header: RequestHeader, body: memoryview) -> list[Chunk] | None:
    """The whole frame to send, or None if the connection has to be closed.

    ApiVersions is answered in version 0 with the versions there are, so that the client asks again with one of them.
    Produce 0 to 2 carried message sets that no log keeps any more; some clients look whether a broker lists them to
    decide what it can do, so they are listed, and refused when used.
    """
    if header.api_key == API_VERSIONS_KEY:
        return encode_response(unsupported_version(), 0, header.correlation_id)
    if header.api_key == _PRODUCE_KEY and 0 <= header.api_version <= _OLD_PRODUCE_LAST:
        request = _OldProduce(body)
        if request.int16() == 0:  # acks: nobody waits for an answer, so the end of the connection is it
            return None
        answer = _old_produce_answer(header.api_version, request)
        return [_INT32.pack(4 + len(answer)) + _INT32.pack(header.correlation_id) + answer]
    return None


class _OldProduce:
    """Reads the names and numbers out of a Produce request of version 0 to 2; what it carries is passed over."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._position = 0

    def int16(self) -> int:
        return int(_INT16.unpack(self._take(_INT16.size))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(_INT32.size))[0])

    def string(self) -> bytes:
        return bytes(self._take(self.int16()))

    def count(self, item_bytes_min: int) -> int:
        count = self.int32()
        if not 0 <= count <= (len(self._body) - self._position) // item_bytes_min:
            raise MalformedBytes("Produce request", f"a count of {count}", self._position)
        return count

    def skip(self) -> None:
        self._take(max(0, self.int32()))

    def _take(self, size: int) -> memoryview:
        if size < 0 or size > len(self._body) - self._position:
            raise MalformedBytes("Produce request", f"{size} bytes are not there", self._position)
        self._position += size
        return self._body[self._position - size : self._position]


def _old_produce_answer(version: int, request: _OldProduce) -> bytes:
    request.int32()  # timeout
    topics = request.count(2 + 4)
    out = [_INT32.pack(topics)]
    for _ in range(topics):
        name = request.string()
        partitions = request.count(_PARTITION_MIN_BYTES)
        out += [_INT16.pack(len(name)), name, _INT32.pack(partitions)]
        for _ in range(partitions):
            out.append(struct.pack(">ihq", request.int32(), ErrorCode.UNSUPPORTED_VERSION, -1))
            if version >= _OLD_PRODUCE_LAST:
                out.append(struct.pack(">q", -1))  # log append time
            request.skip()
    if version >= 1:
        out.append(_INT32.pack(0))  # throttle time
    return b"".join(out)
