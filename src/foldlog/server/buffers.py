"""Memory that is used again: what requests are received in, and what is read from segments to be sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from foldlog.limits import FRAME_FIRST_BYTES
from foldlog.server.memory import ANSWER_BYTES_MAX

RECEIVE_BYTES: Final = 1 << 20
"""One receive, in memory that all connections share. What comes together is answered together: with 64 KB frames 1 MiB
gives a third more than 256 KiB."""

_KEPT_READ_BYTES: Final = 128 << 10
"""Below this, fresh memory costs less than keeping it for a connection that may be idle from now on."""


_KEPT_BYTES_MAX: Final = ANSWER_BYTES_MAX + (1 << 20)
"""For the next answer of one connection: as much as an answer has, and what a read brings besides."""


class FrameBuffer:
    """The one frame of a connection that did not come in one piece.

    Grows with what has come, not with what was declared: a length costs its sender as many bytes as it costs us.
    The memory is kept for the next frame: a producer of large batches fills the same one again and again.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.have_bytes = 0
        self.need_bytes = 0  # of the frame with its length; 0: no frame is under way

    @property
    def capacity_bytes(self) -> int:
        return len(self.data)

    @property
    def is_complete(self) -> bool:
        return self.have_bytes == self.need_bytes

    @property
    def must_grow(self) -> bool:
        return self.have_bytes == len(self.data)

    def begin(self, start: memoryview, need_bytes: int) -> None:
        """A frame of which `start` has come. `need_bytes` is 4 while the length itself is not complete."""
        self.need_bytes = need_bytes
        self.have_bytes = 0
        self._reserve(max(len(start), min(need_bytes, FRAME_FIRST_BYTES)))
        self.data[: len(start)] = start
        self.have_bytes = len(start)

    def room(self) -> memoryview:
        """Where the next bytes of the frame go; never beyond the frame."""
        if self.must_grow:
            self._reserve(min(self.need_bytes, max(2 * self.have_bytes, FRAME_FIRST_BYTES)))
        return memoryview(self.data)[self.have_bytes : self.need_bytes]

    def view(self) -> memoryview:
        return memoryview(self.data)[: self.need_bytes]

    def finish(self) -> None:
        self.have_bytes = self.need_bytes = 0

    def exchange(self, memory: bytearray) -> None:
        """Whoever reads the last frame keeps its memory; the next one is received in other. No frame is under way."""
        self.data = memory

    def release(self) -> None:
        """Give the memory back, if no frame is under way."""
        if not self.need_bytes:
            self.data = bytearray()

    def _reserve(self, capacity_bytes: int) -> None:
        if capacity_bytes > len(self.data):
            # Replaced, not resized: a view of it may still be held by who reads from it.
            larger = bytearray(capacity_bytes)
            larger[: self.have_bytes] = memoryview(self.data)[: self.have_bytes]
            self.data = larger


class ReadBuffers:
    """What a connection's fetches are read into. Fresh memory costs more than filling it, so large ones are kept.

    `is_sent` tells whether everything handed to the socket so far has left this process. One fetch at a time reads, on
    the event loop or on a thread; `release` may come from the loop meanwhile, so the list is looked up once in a call.
    """

    def __init__(self, is_sent: Callable[[], bool]) -> None:
        self._is_sent = is_sent
        self._kept: list[bytearray] = []
        self._next = 0

    @property
    def capacity_bytes(self) -> int:
        return sum(map(len, self._kept))

    def begin(self) -> None:
        """Before the reads of one answer."""
        self._next = 0
        if self._kept and not self._is_sent():
            self._kept = []

    def take(self) -> bytearray | None:
        """Memory of the last answer to read the next partition into, if there is any."""
        kept = self._kept
        return kept[self._next] if self._next < len(kept) else None

    def used(self, data: memoryview, limit_bytes: int) -> None:
        """What a read of at most `limit_bytes` has returned. If that was a lot, memory for the next one is kept."""
        kept, number = self._kept, self._next
        have_bytes = len(kept[number]) if number < len(kept) else 0
        is_worth_it = len(data) >= max(_KEPT_READ_BYTES, limit_bytes // 2)
        if have_bytes < limit_bytes and is_worth_it and sum(map(len, kept)) + limit_bytes <= _KEPT_BYTES_MAX:
            kept[number : number + 1] = [bytearray(limit_bytes)]
        self._next += number < len(kept)

    def release(self) -> None:
        self._kept = []
