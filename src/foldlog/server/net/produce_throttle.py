"""Whose batches were refused takes turns with the others of its kind, so that refusing takes little of anybody's time.

A batch that is refused costs its sender nothing and the event loop a fraction of a millisecond; two hundred connections
that send nothing else would keep everybody else waiting for two hundred refusals. So the next Produce of a connection
whose last one was refused waits in a line, and the line moves by one at a time. (Kafka mutes a connection that is over
its quota.) Whoever is refused now and then does not notice: alone in the line it waits for a millisecond.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from foldlog.limits import REFUSED_TURN_MS
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.produce import ProduceResponse

_AT_FAULT: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""What a batch is refused with for what it is; not for where it goes, or for what the disk does."""


def is_at_fault(answer: ProduceResponse) -> bool:
    """Whether a batch of the request was refused for what it is."""
    return any(one.error_code in _AT_FAULT for topic in answer.responses for one in topic.partition_responses)


class ProduceThrottle:
    """Connections that wait for their turn, in the order they came. The event loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[ThrottledProducer] = deque()
        self._is_moving = False

    def join(self, turn: ThrottledProducer) -> None:
        """Wait for the turn behind all who are there."""
        self._waiting.append(turn)
        self._move_later()

    def _move_later(self) -> None:
        if not self._is_moving and self._waiting:
            self._is_moving = True
            self._loop.call_later(REFUSED_TURN_MS / 1000, self._move)

    def _move(self) -> None:
        self._is_moving = False
        self._waiting.popleft().grant()
        self._move_later()


class ThrottledProducer:
    """Whether the next Produce of one connection has to wait in the line. The event loop's. `go_on` is called when it
    has its turn.

    The connection sets two of its attributes, at every Produce and so without a call: `is_granted` to False when one
    begins (the next one is for another turn), and `is_needed` when one is answered, to whether it was refused for what
    its batches are.
    """

    __slots__ = ("_go_on", "_is_waiting", "_throttle", "is_granted", "is_needed")

    def __init__(self, throttle: ProduceThrottle, go_on: Callable[[], None]) -> None:
        self._throttle = throttle
        self._go_on = go_on
        self._is_waiting = False
        self.is_granted = False
        self.is_needed = False

    def must_wait(self) -> bool:
        """Whether the Produce that has come may not begin; it is in the line then."""
        if not self.is_needed or self.is_granted:
            return False
        if not self._is_waiting:
            self._is_waiting = True
            self._throttle.join(self)
        return True

    def grant(self) -> None:
        """It is this one's turn."""
        self._is_waiting = False
        self.is_granted = True
        self._go_on()
