"""ApiVersions: what is served, so that a client can choose. Versions 0 to 4.

- 1 adds the throttle time, 2 nothing.
- 3 says which client asks (KIP-511) and has the features of a cluster (KIP-584); there are none here.
- 4 may have features that begin at version 0.

The header of the answer is always that of version 0: the client does not know yet what the broker speaks.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from foldlog.server.call import Call
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages import APIS
from foldlog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

_PRODUCE_KEY: Final = 0
_SOFTWARE_FROM: Final = 3
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Kafka's rule for a client's name and version, which end up in metrics there."""


@cache
def served_versions() -> tuple[ApiVersion, ...]:
    """Every API with the versions that are answered. Shared by all answers: nobody changes it.

    Produce begins at 0, although 0 to 2 are answered with UNSUPPORTED_VERSION: librdkafka up to 2.0 does not compress
    for a broker that begins later, and Kafka itself lists them for that reason.
    """
    return tuple(
        ApiVersion(api_key=key, min_version=0 if key == _PRODUCE_KEY else api.first, max_version=api.last)
        for key, api in APIS.items()
    )


def unsupported_version() -> ApiVersionsResponse:
    """For a version that is too new: sent in version 0, which every client reads, and it asks again in one of these."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=served_versions())


def handle(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= _SOFTWARE_FROM and not _is_named(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=served_versions())


def _is_named(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(name) is not None for name in names)
