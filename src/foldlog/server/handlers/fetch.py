"""Fetch: slices of segments, as `fetching` reads them. What the fast path does not take comes here, and is answered
by the same bytes."""

from __future__ import annotations

from foldlog.server.call import Call, Later, Reply
from foldlog.server.fetches.fetching import Fetching, FetchLimits, FetchRead, FetchReading
from foldlog.server.fetches.sessions import FetchContext
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.fetch import FetchRequest, FetchResponse


def handle(call: Call, request: FetchRequest) -> Reply:
    context = call.node.fetch_sessions.resolve(request, call.version)
    if context.error is not ErrorCode.NONE:
        return FetchResponse(error_code=context.error)
    max_bytes = request.max_bytes
    if call.node.quotas.is_on:
        max_bytes = min(max_bytes, call.node.quotas.fetch_bytes_max(call))
    limits = FetchLimits(request.max_wait_ms, request.min_bytes, max_bytes, request.isolation_level)
    return _HandledFetch(call, context, limits).answer()


class _HandledFetch(Fetching):
    """A Fetch that is answered with a message."""

    def __init__(self, call: Call, context: FetchContext, limits: FetchLimits) -> None:
        super().__init__(call.node, call.caller, context, limits)
        self._later: Later = call.node.loop.create_future()

    def answer(self) -> FetchResponse | Later:
        reading = self.begin()
        if reading is not None:
            return self._response(reading)
        self._later.add_done_callback(lambda _: self.cancel())
        return self._later

    def _answer(self, reading: FetchReading) -> None:
        if not self._later.done():
            self._later.set_result(self._response(reading))

    def _fail(self, error: BaseException) -> None:
        if not self._later.done():
            self._later.set_exception(error)

    def _response(self, reading: FetchReading) -> FetchResponse:
        if not isinstance(reading, FetchRead):
            raise TypeError(f"{type(reading).__name__} has no messages")
        return self._context.response(reading.answers)
