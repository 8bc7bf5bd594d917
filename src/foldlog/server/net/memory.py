"""The memory of connections: how much all of them may hold together, and the buffers that each uses again.

`MemoryBudget` and `HeldMemory` count; `FrameBuffer` is what a request is received in, `ReadBuffers` what is read from
segments to be sent. Every byte that a peer can make the broker hold is in one of the two buffers, in a queue of
`append_queues`, or in an answer that nobody has read, and a connection tells the budget of all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from mmap import mmap
from typing import Final

from foldlog.limits import CONNECTION_STALL_MS, FRAME_FIRST_BYTES, MEMORY_TURN_STALL_MS, MEMORY_TURN_SWEEPS

ANSWER_BYTES_MAX: Final = 8 << 20
"""Of records in one Fetch answer while memory is at hand; what a client asks for beyond it comes with the next."""

ANSWER_BYTES_MIN: Final = 64 << 10
"""Of records in one Fetch answer when memory is short: below this a fetch costs what the call costs, not its bytes."""


class MemoryBudget:
    """Bytes that connections hold: frames that are not complete, buffers they keep, answers nobody has read yet.

    The event loop's. What is over the limit is not refused: who wants more waits (incoming) or gets less (outgoing).

    If everybody waited, and what is held were frames that are not complete, nothing would ever be given back. So there
    are turns: above the limit one connection goes on until its frame is complete and dealt with, then the next that
    waits. A turn that takes long passes on, and who had it keeps what has come of its frame and waits for another, as
    long as that is no more than one request beyond the limit: then the largest such frame goes, with its connection.
    Together they hold no more than the limit, two requests, and what each has received at once.
    """

    def __init__(self, limit_bytes: int, request_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.request_bytes = request_bytes
        self.used_bytes = 0
        self._waiting: deque[HeldMemory] = deque()
        self._in_turn: HeldMemory | None = None
        self._unfinished: set[HeldMemory] = set()  # their turn passed on before their frame was complete
        self._is_received = False  # of whose turn it is, the frame
        self._turn_sweeps = 0

    @property
    def is_short(self) -> bool:
        return self.used_bytes >= self.limit_bytes

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    @property
    def in_turn(self) -> HeldMemory | None:
        """Who may exceed the limit now."""
        return self._in_turn

    def change(self, by_bytes: int) -> None:
        """A connection holds that much more, or less."""
        # What one receive has brought is told after the fact: it is there already. Only what makes a frame larger is
        # asked for before (`must_wait`). So the bound is the limit, and one receive for each connection.
        self.used_bytes += by_bytes
        if by_bytes < 0:
            self._wake()

    def must_wait(self, holder: HeldMemory) -> bool:
        """Whether the holder's frame may not become larger now by what it wants. If it may, it has to do so, and to say
        so with `change`, before anybody else is asked: many that each find room for themselves have none together."""
        if not self._lacks(holder.wanted_bytes):
            return False
        if self._in_turn is None:
            # Somebody has to go on, or what is held by frames that are not complete would never be given back. One at
            # a time: each may exceed the limit by a request, and two would exceed it by two.
            self._begin_turn(holder)
            return False
        # Its turn is for one frame. With the next one it would never end, for a client that always sends.
        if self._in_turn is holder and not self._is_received:
            return False
        self._waiting.append(holder)
        return True

    def received(self, holder: HeldMemory) -> None:
        """The holder's frame is complete; the next one is for another turn."""
        self._unfinished.discard(holder)
        if self._in_turn is holder:
            self._is_received = True

    def given_back(self, holder: HeldMemory) -> None:
        """The holder has no frame that is being dealt with."""
        if self._in_turn is holder and self._is_received:
            self._end_turn()

    def forget(self, holder: HeldMemory) -> None:
        """The connection is gone: it wants nothing any more."""
        self._unfinished.discard(holder)
        if holder in self._waiting:
            self._waiting.remove(holder)
        if self._in_turn is holder:
            self._end_turn()

    def sweep(self) -> None:
        """About once a second: who takes long does not keep the others waiting for ever."""
        self._turn_sweeps += 1
        if self._in_turn is not None and self._turn_sweeps > MEMORY_TURN_SWEEPS:
            if not self._is_received:
                self._unfinished.add(self._in_turn)
            self._end_turn()
        # Turns that passed on leave parts of frames behind. As long as those fit into one request beyond the limit they
        # are worth keeping, since their senders may go on; more would be a way to fill the memory a turn at a time.
        if self._unfinished and self.used_bytes > self.limit_bytes + self.request_bytes:
            max(self._unfinished, key=lambda holder: holder.held_bytes).give_up()

    def _begin_turn(self, holder: HeldMemory) -> None:
        self._in_turn = holder
        self._is_received = False
        self._turn_sweeps = 0

    def _end_turn(self) -> None:
        self._in_turn = None
        self._wake()

    def _lacks(self, more_bytes: int) -> bool:
        return self.is_short or self.used_bytes + more_bytes > self.limit_bytes

    def _wake(self) -> None:
        if not self.is_short:
            self._in_turn = None  # there are no turns while there is enough
        # In the order they came, and not who fits: a large frame would wait for ever behind many small ones.
        while self._waiting and not self._lacks(self._waiting[0].wanted_bytes):
            self._waiting.popleft().wake()  # which takes what it wants before the next is looked at
        if self._in_turn is None and self._waiting:
            holder = self._waiting.popleft()
            self._begin_turn(holder)
            holder.wake()

    def answer_bytes(self) -> int:
        """How many bytes of records an answer may carry now.

        A quarter of what is left, so that many who fetch at once each get something: none of it is taken before the
        records are read, and so several that are asked in one turn of the loop all see it. Never below the minimum,
        which may exceed the limit by as much for each connection: no answer at all would be no progress.
        """
        return min(ANSWER_BYTES_MAX, max(ANSWER_BYTES_MIN, (self.limit_bytes - self.used_bytes) // 4))


class HeldMemory:
    """What one connection holds of the budget. The event loop's. `go_on` is called when its frame may become larger,
    `give_up` when it has to go with its connection."""

    def __init__(self, budget: MemoryBudget, go_on: Callable[[], None], give_up: Callable[[], None]) -> None:
        self._budget = budget
        self._go_on = go_on
        self.give_up = give_up
        self.held_bytes = 0
        self.wanted_bytes = 0  # by how much its frame has to grow
        self.is_waiting = False

    def account(self, held_bytes: int, *, is_idle: bool) -> None:
        """It holds that much now; idle, if no frame of it is being dealt with."""
        # The whole, not a difference: whoever forgets to tell of a release is put right by the next one who tells.
        if held_bytes != self.held_bytes:
            change, self.held_bytes = held_bytes - self.held_bytes, held_bytes
            self._budget.change(change)
        if is_idle:
            self._budget.given_back(self)

    def must_wait(self, more_bytes: int = 0) -> bool:
        """Whether its frame may not become larger now, by so much; see `MemoryBudget.must_wait`."""
        self.wanted_bytes = more_bytes
        self.is_waiting = self.is_waiting or self._budget.must_wait(self)
        return self.is_waiting

    def wake(self) -> None:
        self.is_waiting = False
        self._go_on()

    def received(self) -> None:
        """Its frame is complete."""
        self._budget.received(self)

    def is_in_the_way(self, idle_ms: float, *, is_sent: bool) -> bool:
        """Whether others wait for what it holds, and it is the client who does not go on."""
        if not self.held_bytes or not self._budget.is_waited_for or (self.is_waiting and is_sent):
            return False
        return idle_ms > (MEMORY_TURN_STALL_MS if self._budget.in_turn is self else CONNECTION_STALL_MS)

    def leave(self, held_bytes: int) -> None:
        """The connection is gone, but for that much which is still being worked on."""
        self.account(held_bytes, is_idle=False)
        self._budget.forget(self)

    def close(self) -> None:
        """Nothing is left."""
        self.leave(0)


# --- buffers: memory that is used again -------------------------------------------------------------------------------

RECEIVE_BYTES: Final = 1 << 20
"""One receive, in memory that all connections share. What comes together is answered together: with 64 KB frames 1 MiB
gives a third more than 256 KiB."""

_KEPT_READ_BYTES: Final = 128 << 10
"""Below this, fresh memory costs less than keeping it for a connection that may be idle from now on."""


_KEPT_BYTES_MAX: Final = ANSWER_BYTES_MAX + (1 << 20)
"""For the next answer of one connection: as much as an answer has, and what a read brings besides."""


_MAPPED_BYTES_MIN: Final = 256 << 10
"""From here on memory is mapped: it is the system's until bytes come, needs no copy to become larger, and goes back at
once. The heap has none of this: 32 frames of 100 MB took twice what they held."""

Memory = bytearray | mmap


def fresh_memory(size: int) -> Memory:
    return bytearray(size) if size < _MAPPED_BYTES_MIN else mmap(-1, size)


class FrameBuffer:
    """The one frame of a connection that did not come in one piece. The event loop's.

    Grows with what has come, not with what was declared: a length costs its sender as many bytes as it costs us. A
    large one gets its addresses at once, and `capacity_bytes` says how many of them it may fill.
    The memory is kept for the next frame: a producer of large batches fills the same one again and again.
    """

    def __init__(self) -> None:
        self.data: Memory = bytearray()
        self.capacity_bytes = 0
        self.have_bytes = 0
        self.need_bytes = 0  # of the frame with its length; 0: no frame is under way

    @property
    def is_complete(self) -> bool:
        return self.have_bytes == self.need_bytes

    @property
    def must_grow(self) -> bool:
        return self.have_bytes == self.capacity_bytes

    def begin(self, start: memoryview, need_bytes: int) -> None:
        """A frame of which `start` has come. `need_bytes` is 4 while the length itself is not complete."""
        self.need_bytes = need_bytes
        self.have_bytes = 0
        if need_bytes > len(self.data) >= _MAPPED_BYTES_MIN:
            self._let_go()
        self._reserve(max(len(start), min(need_bytes, FRAME_FIRST_BYTES)))
        self.data[: len(start)] = start
        self.have_bytes = len(start)

    def room(self) -> memoryview:
        """Where the next bytes of the frame go; never beyond the frame."""
        self.grow()
        return memoryview(self.data)[self.have_bytes : min(self.need_bytes, self.capacity_bytes)]

    @property
    def growth_bytes(self) -> int:
        """How much more memory the frame takes before its next bytes come."""
        return max(0, self._next_capacity() - self.capacity_bytes) if self.must_grow else 0

    def grow(self) -> None:
        """Take it, if there is no room for the next byte."""
        if self.must_grow:
            self._reserve(self._next_capacity())

    def _next_capacity(self) -> int:
        return min(self.need_bytes, max(2 * self.have_bytes, FRAME_FIRST_BYTES))

    def view(self) -> memoryview:
        return memoryview(self.data)[: self.need_bytes]

    def finish(self) -> None:
        self.have_bytes = self.need_bytes = 0

    def exchange(self, memory: Memory) -> None:
        """Whoever reads the last frame keeps its memory; the next one is received in other. No frame is under way."""
        self.data = memory
        self.capacity_bytes = len(memory)

    def release(self) -> None:
        """Give the memory back, if no frame is under way."""
        if not self.need_bytes:
            self._let_go()

    def _let_go(self) -> None:
        self.data = bytearray()
        self.capacity_bytes = 0

    def _reserve(self, capacity_bytes: int) -> None:
        if capacity_bytes > len(self.data):
            # Replaced, not resized: a view of it may still be held by who reads from it.
            is_large = capacity_bytes >= _MAPPED_BYTES_MIN
            larger = fresh_memory(max(capacity_bytes, self.need_bytes) if is_large else capacity_bytes)
            larger[: self.have_bytes] = self.data[: self.have_bytes]
            self.data = larger
        self.capacity_bytes = max(self.capacity_bytes, capacity_bytes)


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
