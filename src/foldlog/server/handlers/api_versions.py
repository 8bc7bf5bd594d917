"""ApiVersions: the served APIs and versions, for a client to choose from. Versions 0 to 5.

- 1 adds the throttle time, 2 nothing.
- 3 names the client software (KIP-511) and has the features of a cluster (KIP-584).
- 4 may have features that begin at version 0; before, those are left out.
- 5 names the cluster and the node that the client means to ask (KIP-1242): if this is another, the client is told to
  begin again with its bootstrap servers.

The header of the answer is always that of version 0: the client does not know yet what the broker speaks.

Also has the answers to requests of versions that are not served (`unserved_answer`).
"""

from __future__ import annotations

import re
import struct
from functools import cache
from typing import Final

from foldlog.errors import MalformedBytes
from foldlog.server.call import Call
from foldlog.wire.codec import Chunk
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import API_VERSIONS_KEY, RequestHeader, encode_response
from foldlog.wire.messages import APIS
from foldlog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_PRODUCE_KEY: Final = 0
_TELEMETRY_KEYS: Final = (71, 72)
"""Clients that find them push metrics by themselves, so they are listed only where those are taken."""
_NOBODY: Final = -1
_SOFTWARE_FROM: Final = 3
_FEATURES_FROM_0: Final = 4
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Kafka's rule for a client's name and version, which appear in its metrics."""


@cache
def served_versions(*, has_telemetry: bool = False) -> tuple[ApiVersion, ...]:
    """Every API with the versions that are answered. Shared by all answers: it must not be changed.

    Produce begins at 0, although 0 to 2 are answered with UNSUPPORTED_VERSION: librdkafka up to 2.0 does not compress
    for a broker that begins later, and Kafka itself lists them for that reason.
    """
    return tuple(
        ApiVersion(api_key=key, min_version=0 if key == _PRODUCE_KEY else api.first, max_version=api.last)
        for key, api in APIS.items()
        if has_telemetry or key not in _TELEMETRY_KEYS
    )


def unsupported_version() -> ApiVersionsResponse:
    """The answer to a version that is too new, in version 0, which every client reads; it then asks in a served one."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=served_versions())


def handle(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= _SOFTWARE_FROM:
        if not _is_named(request) or (request.cluster_id is None) != (request.node_id == _NOBODY):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        software = call.caller.software
        software.name, software.version = request.client_software_name, request.client_software_version
    here = (call.node.cluster_id, call.node.settings.node_id)
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != here:
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    features = call.node.features
    return ApiVersionsResponse(
        api_keys=served_versions(has_telemetry=call.node.telemetry is not None),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=feature.first, max_version=feature.last)
            for name, feature in features.table.items()
            if feature.first or call.version >= _FEATURES_FROM_0
        ],
        finalized_features_epoch=features.epoch if features.table else -1,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.levels().items()
        ],
    )


def _is_named(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(name) is not None for name in names)


_OLD_PRODUCE_LAST: Final = 2
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_PARTITION_MIN_BYTES: Final = 8


def unserved_answer(header: RequestHeader, body: memoryview) -> list[Chunk] | None:
    """The frame to send, or None if the connection has to be closed.

    ApiVersions is answered in version 0 with the served versions, so that the client asks again with one of them.
    Produce 0 to 2 carried message sets that no log keeps any more; some clients check whether a broker lists them to
    decide what it can do, so they are listed, and refused when used.
    """
    if header.api_key == API_VERSIONS_KEY:
        return encode_response(unsupported_version(), 0, header.correlation_id)
    if header.api_key == _PRODUCE_KEY and 0 <= header.api_version <= _OLD_PRODUCE_LAST:
        request = _OldProduce(body)
        if request.int16() == 0:  # acks: the client waits for no answer, so the connection is closed instead
            return None
        answer = _old_produce_answer(header.api_version, request)
        return [_INT32.pack(4 + len(answer)) + _INT32.pack(header.correlation_id) + answer]
    return None


class _OldProduce:
    """Reads the names and numbers of a Produce request of version 0 to 2; its message sets are skipped."""

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
