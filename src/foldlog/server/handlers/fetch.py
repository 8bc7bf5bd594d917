"""Fetch: slices of segments, as `fetching` reads them. What the fast path does not take comes here, and is answered
by the same bytes."""

from __future__ import annotations

import asyncio

from foldlog.limits import STEP_ITEMS
from foldlog.server.call import Call, Later, Reply
from foldlog.server.fetches.fetching import Fetching, FetchLimits, FetchRead, FetchReading
from foldlog.server.fetches.sessions import FetchContext
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData


def handle(call: Call, request: FetchRequest) -> Reply:
    if _is_many(request):
        return _resolve_and_fetch(call, request)
    return _fetch(call, request, call.node.fetch_sessions.resolve(request, call.version))


def _is_many(request: FetchRequest) -> bool:
    """Whether it names more than is looked at in one turn of the loop."""
    topics, forgotten = request.topics, request.forgotten_topics_data
    if max(len(topics), len(forgotten)) > STEP_ITEMS:
        return True
    named = sum(len(one.partitions) for one in topics) + sum(len(one.partitions) for one in forgotten)
    return named > STEP_ITEMS


async def _resolve_and_fetch(call: Call, request: FetchRequest) -> FetchResponse | Later:
    turns = call.node.turns
    context = await turns.run(call.node.fetch_sessions.resolve_in_steps(request, call.version))
    return _fetch(call, request, context)


def _fetch(call: Call, request: FetchRequest, context: FetchContext) -> FetchResponse | Later:
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
        if self.is_large:
            self._node.loop.create_task(self._respond(reading)).add_done_callback(self._responded)
        elif not self._later.done():
            self._later.set_result(self._response(reading))

    async def _respond(self, reading: FetchReading) -> FetchResponse:
        turns = self._node.turns
        with turns.long_work():
            return await turns.run(self._context.response_in_steps(_answers(reading)))

    def _responded(self, done: asyncio.Task[FetchResponse]) -> None:
        if done.cancelled() or self._later.done():
            return
        error = done.exception()
        if error is not None:
            self._later.set_exception(error)
        else:
            self._later.set_result(done.result())

    def _fail(self, error: BaseException) -> None:
        if not self._later.done():
            self._later.set_exception(error)

    def _response(self, reading: FetchReading) -> FetchResponse:
        return self._context.response(_answers(reading))


def _answers(reading: FetchReading) -> list[PartitionData]:
    if not isinstance(reading, FetchRead):
        raise TypeError(f"{type(reading).__name__} has no messages")
    return reading.answers
