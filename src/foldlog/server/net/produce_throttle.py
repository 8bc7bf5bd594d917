"""Connections whose batches were refused are served in turn, so that invalid batches cost the event loop little.

A refused batch costs its sender nothing and the event loop a fraction of a millisecond; two hundred connections that
send nothing else would make all others wait for two hundred refusals. So after a refusal, the next Produce of that
connection waits in a line, which moves by one at a time. (Kafka mutes a connection that is over its quota.) An
occasional refusal is not noticed: alone in the line, a connection waits for a millisecond.
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
"""Error codes for the batch itself; not for its topic, or for the disk."""


def is_at_fault(answer: ProduceResponse) -> bool:
    """Whether a batch of the request was refused because of its content."""
    return any(one.error_code in _AT_FAULT for topic in answer.responses for one in topic.partition_responses)


class ProduceThrottle:
    """Connections that wait for their turn, in the order in which they came. Event loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[ThrottledProducer] = deque()
        self._is_moving = False

    def join(self, turn: ThrottledProducer) -> None:
        """Wait for a turn behind all others."""
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
    """Whether the next Produce of one connection has to wait in the line. Event loop only. `go_on` is called when it is
    its turn.

    The connection sets two attributes at every Produce, without the cost of a call: `is_granted` to False when one
    begins (the next one needs another turn), and `is_needed` when one is answered, to whether its batches were refused
    for their content.
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
        """Begin the turn of this connection."""
        self._is_waiting = False
        self.is_granted = True
        self._go_on()
