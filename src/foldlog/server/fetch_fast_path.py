"""The fast path of Fetch: from the frame to the frame that answers it, without a message in between.

Compiled code reads the frame (`wire.fetch_frames`), reads the partitions and writes the answer (`fetch_pass`); how a
Fetch waits, and what its session makes of it, is what the handler has too. A frame of another shape is the handler's; a
pass that meets something unusual is done again in Python, and answered by the codec. The bytes are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from foldlog.environment import PURE_PYTHON
from foldlog.server.call import has_error
from foldlog.server.fetch_sessions import FetchContext
from foldlog.server.fetching import Fetching, FetchLimits, FetchRead, Reading
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.frames import encode_response
from foldlog.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from foldlog.server.call import Caller
    from foldlog.server.fetch_pass import FetchPass
    from foldlog.server.node import BrokerNode
    from foldlog.wire.codec import Chunk
    from foldlog.wire.fetch_frames import FetchFrame

    Compiled = tuple[type[FetchFrame], type[FetchPass]]


class FastFetch(Fetching):
    """A Fetch that is answered with a frame. `chunks` is that frame, None while it waits; then `on_known` is called once,
    with None or with the fault that it failed of."""

    def __init__(
        self,
        node: BrokerNode,
        caller: Caller,
        context: FetchContext,
        limits: FetchLimits,
        frame: FetchFrame,
        read: type[FetchPass],
    ) -> None:
        super().__init__(node, caller, context, limits)
        self._version = frame.version
        self._correlation_id = frame.correlation_id
        self._pass = read
        self.chunks: list[Chunk] | None = None
        self.errors = 0
        self.on_known: Callable[[BaseException | None], None] = _nobody

    def start(self) -> None:
        reading = self.begin()
        if reading is not None:
            self._encode(reading)

    def _read(self, *, nowait: bool) -> Reading | None:
        self._buffers.begin()
        reading = self._pass(
            self._node,
            self._who,
            self._limit_bytes(),
            self._buffers.lend,
            committed=self._committed,
            nowait=nowait,
            is_last=self._is_time_up(),
        )
        try:
            if reading.read(self._context.partitions):
                return reading
        except BlockingIOError:
            return None
        return super()._read(nowait=nowait)

    def _answer(self, reading: Reading) -> None:
        try:
            self._encode(reading)
        except Exception as error:  # noqa: BLE001  a fault of one request must not end the others'
            self._fail(error)
            return
        self.on_known(None)

    def _fail(self, error: BaseException) -> None:
        self.on_known(error)

    def _encode(self, reading: Reading) -> None:
        if isinstance(reading, FetchRead):
            message = self._context.response(reading.answers)
            self.errors = int(has_error(message))
            self.chunks = encode_response(message, self._version, self._correlation_id)
        elif isinstance(reading, self._pass):
            error, session_id, places = self._context.outcome(reading)
            self.errors = int(reading.has_errors or error != ErrorCode.NONE)
            self.chunks = [*reading.frame(self._version, self._correlation_id, error, session_id, places)]


def _nobody(_: BaseException | None) -> None:
    """Nobody has asked yet."""


class FetchFastPath:
    """Tries the fast path for the Fetch requests of every connection. Event loop only."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self._compiled = _compiled()
        self._frame = None if self._compiled is None else self._compiled[0]()

    def begin(self, caller: Caller, view: memoryview, start: int, end: int) -> FastFetch | list[Chunk] | None:
        """The fetch in the frame there, under way; its answer, if that is an error of its session; None, and nothing
        done, if the handler has to read it."""
        frame = self._frame
        if frame is None or self._compiled is None or not frame.read(view, start, end):
            return None
        context = self._node.fetch_sessions.resolve_wanted(
            frame.session_id, frame.session_epoch, frame.wanted, frame.forgotten, frame.version
        )
        if context.error is not ErrorCode.NONE:
            return encode_response(FetchResponse(error_code=context.error), frame.version, frame.correlation_id)
        limits = FetchLimits(frame.max_wait_ms, frame.min_bytes, frame.max_bytes, frame.isolation_level)
        fetch = FastFetch(self._node, caller, context, limits, frame, self._compiled[1])
        fetch.start()
        return fetch


def _compiled() -> Compiled | None:
    if PURE_PYTHON:
        return None
    try:
        from foldlog.log.fetched import CHECKS_UNLOCKED
        from foldlog.server.fetch_pass import FetchPass
        from foldlog.wire.fetch_frames import FetchFrame
    except ImportError:
        return None  # they were not built
    return (FetchFrame, FetchPass) if CHECKS_UNLOCKED else None
