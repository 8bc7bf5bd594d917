"""Frames: a length, a header, a message. Both directions, without I/O.

A request begins with its API key, version and correlation id, then the client id, a plain nullable string even if the
message is compact, and from the API's first flexible version on tagged fields. A response begins with the correlation
id, and tagged fields likewise; but that of ApiVersions never has them, since its reader does not know yet which version
the broker answers in.
"""

from __future__ import annotations

import struct
from importlib import import_module
from types import ModuleType
from typing import Final, NamedTuple, TypeVar, cast

from foldlog.errors import InvalidArgument, MalformedBytes
from foldlog.limits import HEADER_TAGS_MAX
from foldlog.wire.codec import Chunk, Steps, decoder, encode_after, encode_after_in_steps
from foldlog.wire.decoding import DecodeFault, skip_tags
from foldlog.wire.messages import APIS
from foldlog.wire.schema import Records, Request, Response

API_VERSIONS_KEY: Final = 18

_FIXED = struct.Struct(">hhi")
_LENGTH = struct.Struct(">i")
_LENGTH_AND_CORRELATION = struct.Struct(">ii")
_INT16 = struct.Struct(">h")

_Response = TypeVar("_Response", bound=Response)


class RequestHeader(NamedTuple):
    """The header of every request. `client_id` is also None if the version is not known."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def load(api_key: int) -> ModuleType:
    """The module of foldlog.wire.messages with the API's REQUEST and RESPONSE; imported on first use."""
    api = APIS.get(api_key)
    if api is None:
        raise InvalidArgument(f"no messages for API key {api_key}; see foldlog.wire.messages.APIS")
    return import_module(f"foldlog.wire.messages.{api.module}")


def request_class(api_key: int) -> type[Request]:
    return cast(type[Request], load(api_key).REQUEST)


def response_class(api_key: int) -> type[Response]:
    return cast(type[Response], load(api_key).RESPONSE)


def response_of(request: type[Request]) -> type[Response]:
    """The class of the response to such a request."""
    return response_class(request.API_KEY)


def parse_request_header(frame: Records, position: int, end: int) -> tuple[RequestHeader, int]:
    """The header between these positions, and where the body begins.

    For an unknown API or version only the first three fields are read: they never change, and an answer needs no more.
    """
    if end - position < _FIXED.size:
        raise MalformedBytes("request header", f"{end - position} bytes are too few", 0)
    api_key, version, correlation_id = _FIXED.unpack_from(frame, position)
    start, position = position, position + _FIXED.size
    api = APIS.get(api_key)
    if api is None or not 0 <= version <= api.last:
        return RequestHeader(api_key, version, correlation_id, None), position
    view = memoryview(frame)
    try:
        (size,) = _INT16.unpack_from(view, position)
        position += _INT16.size
        client_id = None
        if size != -1:
            if not 0 <= size <= end - position:
                raise IndexError
            client_id = view[position : position + size].tobytes().decode()
            position += size
        if api.flexible_from is not None and version >= api.flexible_from:
            _, position = skip_tags(view, position, end, HEADER_TAGS_MAX) if view[position] else (0, position + 1)
    except (IndexError, struct.error, UnicodeDecodeError, DecodeFault) as error:
        raise MalformedBytes("request header", "its client id or its tagged fields", position - start) from error
    if position > end:
        raise MalformedBytes("request header", "it is longer than its frame", position - start)
    return RequestHeader(api_key, version, correlation_id, client_id), position


def encode_request(request: Request, version: int, correlation_id: int, client_id: str | None) -> list[Chunk]:
    """A whole frame, in pieces: the first begins with the length, and records are not copied."""
    start = bytearray(_LENGTH.size)
    start += _FIXED.pack(request.API_KEY, version, correlation_id)
    if client_id is None:
        start += _INT16.pack(-1)
    else:
        encoded = client_id.encode()
        start += _INT16.pack(len(encoded)) + encoded
    if request.FLEXIBLE_FROM is not None and version >= request.FLEXIBLE_FROM:
        start.append(0)
    return _with_length(start, encode_after(start, request, version))


def encode_response(response: Response, version: int, correlation_id: int) -> list[Chunk]:
    """A whole frame, in pieces: the first begins with the length, and records are not copied."""
    start = _response_start(response, version, correlation_id)
    return _with_length(start, encode_after(start, response, version))


def encode_response_in_steps(response: Response, version: int, correlation_id: int) -> Steps[list[Chunk]]:
    """As `encode_response`, in steps."""
    start = _response_start(response, version, correlation_id)
    return _with_length(start, (yield from encode_after_in_steps(start, response, version)))


def _response_start(response: Response, version: int, correlation_id: int) -> bytearray:
    start = bytearray(_LENGTH_AND_CORRELATION.pack(0, correlation_id))
    if _has_flexible_header(type(response), version):
        start.append(0)
    return start


def _with_length(start: bytearray, chunks: list[Chunk]) -> list[Chunk]:
    size = len(start) if len(chunks) == 1 else sum(map(len, chunks))
    _LENGTH.pack_into(start, 0, size - _LENGTH.size)
    return chunks


def _has_flexible_header(response: type[Response], version: int) -> bool:
    flexible_from = response.FLEXIBLE_FROM
    return flexible_from is not None and version >= flexible_from and response.API_KEY != API_VERSIONS_KEY


def decode_response(cls: type[_Response], version: int, frame: Records) -> tuple[int, _Response]:
    """The correlation id and the response of a frame without its length. Records are views into the frame."""
    correlation_id, position = response_correlation_id(frame), 4
    if _has_flexible_header(cls, version):
        try:
            _, position = skip_tags(memoryview(frame), position, len(frame), HEADER_TAGS_MAX)
        except (IndexError, DecodeFault) as error:
            raise MalformedBytes("response header", "its tagged fields", position) from error
    return correlation_id, decoder(cls, version)(frame, position, len(frame))


def response_correlation_id(frame: Records) -> int:
    """The correlation id of a frame without its length: it identifies the request, and so class and version."""
    if len(frame) < _LENGTH.size:
        raise MalformedBytes("response header", f"{len(frame)} bytes are too few", 0)
    return cast(int, _LENGTH.unpack_from(frame)[0])
