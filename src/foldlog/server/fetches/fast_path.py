"""The fast path of Fetch: from the frame to the frame that answers it, without a message in between.

Compiled code reads the frame (`wire.fetch_frames`), reads the partitions and writes the answer (`fetch_pass`); how a
Fetch waits, and what its session makes of it, is what the handler has too. A frame of another shape is the handler's; a
pass that meets something unusual is done again in Python, and answered by the codec. The bytes are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast

from foldlog.environment import PURE_PYTHON
from foldlog.limits import FETCH_SLICE_PARTITIONS
from foldlog.server.call import has_error
from foldlog.server.fetches.fetching import READ_COMMITTED, Fetching, FetchLimits, FetchRead, FetchReading
from foldlog.server.fetches.sessions import FetchContext
from foldlog.wire.codec import Chunk
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import encode_response, encode_response_in_steps
from foldlog.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from foldlog.server.call import Caller
    from foldlog.server.fetches.fetch_pass import FetchPass
    from foldlog.server.node import BrokerNode
    from foldlog.wire.fetch_frames import FetchFrame

    Compiled = tuple[type[FetchFrame], type[FetchPass]]


class FetchAnswer(NamedTuple):
    """The frame that answers a Fetch, in pieces, and whether it has an error code."""

    chunks: list[Chunk]
    errors: int


class FastFetch(Fetching):
    """A Fetch that waits, and is answered with a frame: then `on_answer` is called once, with that or with the fault
    that it failed of."""

    def __init__(
        self,
        node: BrokerNode,
        caller: Caller,
        context: FetchContext,
        frame: FetchFrame,
        read: type[FetchPass],
    ) -> None:
        limits = FetchLimits(frame.max_wait_ms, frame.min_bytes, frame.max_bytes, frame.isolation_level)
        super().__init__(node, caller, context, limits)
        self._version = frame.version
        self._correlation_id = frame.correlation_id
        self._pass = read
        self.on_answer: Callable[[FetchAnswer | BaseException], None] = _nobody

    def start(self, reading: FetchReading | None) -> FetchAnswer | None:
        """Go on after the first pass."""
        found = self.go_on(reading)
        return None if found is None else self._encoded(found)

    def _new_pass(self, *, nowait: bool) -> FetchPass:
        self._buffers.begin()
        return self._pass(
            self._node,
            self._who,
            self._limit_bytes(),
            self._buffers.lend,
            committed=self._committed,
            nowait=nowait,
            is_last=self._is_time_up(),
        )

    def _read(self, *, nowait: bool) -> FetchReading | None:
        reading = self._new_pass(nowait=nowait)
        try:
            if reading.read(self._context.partitions):
                return reading
        except BlockingIOError:
            return None
        return super()._read(nowait=nowait)

    async def _slices(self) -> FetchReading | None:
        with self._node.turns.long_work():
            reading, partitions = self._new_pass(nowait=True), self._context.partitions
            try:
                async for start in self._starts():
                    if not reading.read(partitions, start, start + FETCH_SLICE_PARTITIONS):
                        return await super()._slices()
            except BlockingIOError:
                return None
            await self._node.turns.next()
            return reading

    def again(self) -> FetchReading | None:
        """The pass in Python, after one that met something unusual."""
        return super()._read(nowait=True)

    def _answer(self, reading: FetchReading) -> None:
        if self.is_large and isinstance(reading, FetchRead):
            self._node.loop.create_task(self._encode(reading)).add_done_callback(self._encoded_in_steps)
            return
        try:
            answer = self._encoded(reading)
        except Exception as error:  # noqa: BLE001  a fault of one request must not end the others'
            self._fail(error)
        else:
            self.on_answer(answer)

    def _fail(self, error: BaseException) -> None:
        self.on_answer(error)

    async def _encode(self, reading: FetchRead) -> FetchAnswer:
        turns = self._node.turns
        with turns.long_work():
            message = await turns.run(self._context.response_in_steps(reading.answers))
            chunks = await turns.run(encode_response_in_steps(message, self._version, self._correlation_id))
            return FetchAnswer(chunks, int(has_error(message)))

    def _encoded_in_steps(self, done: asyncio.Task[FetchAnswer]) -> None:
        if not done.cancelled():
            self.on_answer(done.exception() or done.result())

    def _encoded(self, reading: FetchReading) -> FetchAnswer:
        if isinstance(reading, FetchRead):
            message = self._context.response(reading.answers)
            return FetchAnswer(encode_response(message, self._version, self._correlation_id), int(has_error(message)))
        return encoded(cast("FetchPass", reading), self._context, self._version, self._correlation_id)


def encoded(reading: FetchPass, context: FetchContext, version: int, correlation_id: int) -> FetchAnswer:
    error, session_id, places = context.outcome(reading)
    chunks = reading.frame(version, correlation_id, error, session_id, places)
    return FetchAnswer(chunks, int(reading.has_errors or error != ErrorCode.NONE))


def _nobody(_: FetchAnswer | BaseException) -> None:
    """Nobody has asked yet."""


class FetchFastPath:
    """Tries the fast path for the Fetch requests of every connection. Event loop only."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        compiled = _compiled()
        self._frame: FetchFrame | None = None if compiled is None else compiled[0]()
        self._pass: type[FetchPass] | None = None if compiled is None else compiled[1]

    def begin(self, caller: Caller, view: memoryview, start: int, end: int) -> FetchAnswer | FastFetch | None:
        """The answer to the fetch in the frame there, or the fetch if it waits; None, and nothing done, if the handler
        has to read it."""
        frame, node = self._frame, self._node
        if frame is None or self._pass is None or not frame.read(view, start, end):
            return None
        context = node.fetch_sessions.resolve_wanted(
            frame.session_id, frame.session_epoch, frame.wanted, frame.forgotten, frame.version
        )
        if context.error is not ErrorCode.NONE:
            refusal = FetchResponse(error_code=context.error)
            return FetchAnswer(encode_response(refusal, frame.version, frame.correlation_id), 1)
        if len(context.partitions) > FETCH_SLICE_PARTITIONS:
            fetch = FastFetch(node, caller, context, frame, self._pass)
            fetch.begin()
            return fetch
        max_bytes, is_last = min(frame.max_bytes, node.settings.fetch_max_bytes), frame.max_wait_ms <= 0
        caller.buffers.begin()
        reading = self._pass(
            node,
            caller.who,
            min(max_bytes, node.memory.answer_bytes()),
            caller.buffers.lend,
            committed=frame.isolation_level == READ_COMMITTED,
            nowait=True,
            is_last=is_last,
        )
        found: FetchReading | None = reading
        try:
            if not reading.read(context.partitions):
                return self._go_on(caller, context, None, is_left=True)
        except BlockingIOError:
            found = None
        # Most are answered now. Whether the others have enough, and what they wait for, `Fetching` knows.
        if (
            found is None
            or reading.behind
            or not (reading.size_bytes >= min(frame.min_bytes, max_bytes) or reading.is_full or is_last)
        ):
            return self._go_on(caller, context, found, is_left=False)
        if reading.size_bytes:
            node.metrics.fetched(reading.size_bytes, reading.records)
        return encoded(reading, context, frame.version, frame.correlation_id)

    def _go_on(
        self, caller: Caller, context: FetchContext, reading: FetchReading | None, *, is_left: bool
    ) -> FetchAnswer | FastFetch:
        if self._frame is None or self._pass is None:
            raise TypeError("there is no fast path")
        fetch = FastFetch(self._node, caller, context, self._frame, self._pass)
        return fetch.start(fetch.again() if is_left else reading) or fetch


def _compiled() -> Compiled | None:
    if PURE_PYTHON:
        return None
    try:
        from foldlog.log.fetched import CHECKS_UNLOCKED
        from foldlog.server.fetches.fetch_pass import FetchPass
        from foldlog.wire.fetch_frames import FetchFrame
    except ImportError:
        return None  # they were not built
    return (FetchFrame, FetchPass) if CHECKS_UNLOCKED else None
