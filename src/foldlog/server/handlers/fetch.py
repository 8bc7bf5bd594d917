"""Fetch: slices of segments, at once if there is enough, else when enough has come or the time is up."""

from __future__ import annotations

from foldlog.server.call import Call, Reply
from foldlog.server.fetching import Fetching
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.fetch import FetchRequest, FetchResponse


def handle(call: Call, request: FetchRequest) -> Reply:
    context = call.node.fetch_sessions.resolve(request, call.version)
    if context.error is not ErrorCode.NONE:
        return FetchResponse(error_code=context.error)
    return Fetching(call, request, context).begin()
