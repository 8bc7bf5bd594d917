"""Memory of connections: a budget for all of them together, and the buffers that each reuses.

`MemoryBudget` and `HeldMemory` count; what is held before a login is in `StrangersBudget` instead. Requests are
received in a `FrameBuffer`, and records to be sent are read into `ReadBuffers`. Every byte that a peer can make the
broker hold is in one of these buffers, in a queue of `append_queues`, or in an answer that was not read yet, and a
connection reports all of them to the budget.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from mmap import mmap
from typing import Final, Protocol

from foldlog.limits import (
    CONNECTION_STALL_MS,
    FRAME_FIRST_BYTES,
    MEMORY_TURN_STALL_MS,
    MEMORY_TURN_SWEEPS,
    STRANGERS_BYTES,
)

ANSWER_BYTES_MAX: Final = 8 << 20
"""The most bytes of records in one Fetch answer while there is enough memory; the client fetches the rest next."""

ANSWER_BYTES_MIN: Final = 64 << 10
"""The limit of records in one Fetch answer when memory is short: below this, a fetch costs the call, not its bytes."""


class Budget(Protocol):
    """What a connection's memory is counted in."""

    @property
    def is_waited_for(self) -> bool: ...

    @property
    def in_turn(self) -> HeldMemory | None: ...

    def change(self, by_bytes: int, holder: HeldMemory | None = None) -> None: ...

    def must_wait(self, holder: HeldMemory) -> bool: ...

    def received(self, holder: HeldMemory) -> None: ...

    def given_back(self, holder: HeldMemory) -> None: ...

    def forget(self, holder: HeldMemory) -> None: ...


class MemoryBudget:
    """Bytes that connections hold: incomplete frames, buffers that they keep, answers that were not read yet.

    Event loop only. Nothing is refused over the limit: incoming data wait, outgoing answers get smaller.

    If all connections waited while they hold incomplete frames, nothing would ever be released. So there are turns:
    above the limit one connection goes on until its frame is complete and processed, then the next waiting one. A turn
    that takes too long passes on; its connection keeps the received part of its frame and waits for another turn, as
    long as all of them are within one request of the limit: beyond that, the connection with the largest such frame is
    closed. Together they hold no more than the limit, two requests, and one receive for each connection.
    """

    def __init__(self, limit_bytes: int, request_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.request_bytes = request_bytes
        self.used_bytes = 0
        self._waiting: deque[HeldMemory] = deque()
        self._in_turn: HeldMemory | None = None
        self._unfinished: set[HeldMemory] = set()  # their turn passed on before their frame was complete
        self._is_received = False  # the frame of the connection in turn is complete
        self._turn_sweeps = 0

    @property
    def is_short(self) -> bool:
        return self.used_bytes >= self.limit_bytes

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    @property
    def in_turn(self) -> HeldMemory | None:
        """The connection that may exceed the limit now."""
        return self._in_turn

    def change(self, by_bytes: int, holder: HeldMemory | None = None) -> None:
        """Count that a connection holds `by_bytes` more, or less."""
        # Received bytes are counted afterwards: they are there already. Only growing a frame is asked for before
        # (`must_wait`). So the bound is the limit, plus one receive for each connection.
        self.used_bytes += by_bytes
        if by_bytes < 0:
            self._wake()

    def must_wait(self, holder: HeldMemory) -> bool:
        """Whether the holder's frame may not grow by `wanted_bytes` now. If it may, it has to grow, and to report that
        with `change`, before another is asked: many that each find room have none together."""
        if not self._lacks(holder.wanted_bytes):
            return False
        if self._in_turn is None:
            # One has to go on, or what incomplete frames hold would never be released. One at a time: each may exceed
            # the limit by a request, and two would exceed it by two.
            self._begin_turn(holder)
            return False
        # A turn is for one frame. With the next one included, it would never end for a client that always sends.
        if self._in_turn is holder and not self._is_received:
            return False
        self._waiting.append(holder)
        return True

    def received(self, holder: HeldMemory) -> None:
        """The holder's frame is complete; the next one needs another turn."""
        self._unfinished.discard(holder)
        if self._in_turn is holder:
            self._is_received = True

    def given_back(self, holder: HeldMemory) -> None:
        """No frame of the holder is being processed."""
        if self._in_turn is holder and self._is_received:
            self._end_turn()

    def forget(self, holder: HeldMemory) -> None:
        """The connection is closed: it needs no memory any more."""
        self._unfinished.discard(holder)
        if holder in self._waiting:
            self._waiting.remove(holder)
        if self._in_turn is holder:
            self._end_turn()

    def sweep(self) -> None:
        """About once a second: end a turn that takes too long, so that others do not wait for ever."""
        self._turn_sweeps += 1
        if self._in_turn is not None and self._turn_sweeps > MEMORY_TURN_SWEEPS:
            if not self._is_received:
                self._unfinished.add(self._in_turn)
            self._end_turn()
        # Turns that passed on leave incomplete frames. As long as those fit into one request beyond the limit they are
        # kept, since their senders may go on; more would be a way to fill the memory turn by turn.
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
            self._in_turn = None  # no turns while there is enough memory
        # In the order of arrival, not by size: a large frame would wait for ever behind many small ones.
        while self._waiting and not self._lacks(self._waiting[0].wanted_bytes):
            self._waiting.popleft().wake()  # it takes its memory before the next is considered
        if self._in_turn is None and self._waiting:
            holder = self._waiting.popleft()
            self._begin_turn(holder)
            holder.wake()

    def answer_bytes(self) -> int:
        """How many bytes of records an answer may carry now.

        A quarter of what is left, so that many concurrent fetches each get something: it is not reserved before the
        records are read, so several fetches in one turn of the loop see the same number. Never below the minimum, which
        may exceed the limit by as much for each connection: without an answer there would be no progress.
        """
        return min(ANSWER_BYTES_MAX, max(ANSWER_BYTES_MIN, (self.limit_bytes - self.used_bytes) // 4))


class StrangersBudget:
    """Bytes that connections hold whose clients nobody knows yet: before their login, and before their TLS handshake is
    done. Event loop only.

    Nobody waits here: a frame that dawdles would hold up the logins of others. Where there is no room, the connection
    that holds most is closed. What honest clients send before their login is small and comes in one piece, so it is
    somebody else, however many there are.
    """

    is_waited_for = False
    in_turn = None

    def __init__(self, limit_bytes: int = STRANGERS_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._holders: dict[HeldMemory, None] = {}  # in the order in which they began to hold something

    def change(self, by_bytes: int, holder: HeldMemory | None = None) -> None:
        """Count that a connection holds `by_bytes` more, or less."""
        self.used_bytes += by_bytes
        if holder is None:
            return
        if not holder.held_bytes:
            self._holders.pop(holder, None)
            return
        self._holders[holder] = None
        while self.used_bytes > self.limit_bytes and self._holders:
            most = max(self._holders, key=lambda one: one.held_bytes)
            # Counted out at once: its connection may be closed a moment later.
            del self._holders[most]
            self.used_bytes -= most.held_bytes
            most.held_bytes = 0
            most.give_up()

    def must_wait(self, holder: HeldMemory) -> bool:
        return False

    def received(self, holder: HeldMemory) -> None:
        """Nothing waits for it."""

    def given_back(self, holder: HeldMemory) -> None:
        """Nothing waits for it."""

    def forget(self, holder: HeldMemory) -> None:
        self._holders.pop(holder, None)


class HeldMemory:
    """What one connection holds of a budget. Event loop only. `go_on` is called when its frame may grow, `give_up`
    when it has to be dropped with its connection."""

    def __init__(self, budget: Budget, go_on: Callable[[], None], give_up: Callable[[], None]) -> None:
        self._budget = budget
        self._go_on = go_on
        self.give_up = give_up
        self.held_bytes = 0
        self.wanted_bytes = 0  # by how much its frame has to grow
        self.is_waiting = False

    def account(self, held_bytes: int, *, is_idle: bool) -> None:
        """Report how much it holds now; idle: no frame of it is being processed."""
        # The total, not a difference: a release that was not reported is corrected by the next report.
        if held_bytes != self.held_bytes:
            change, self.held_bytes = held_bytes - self.held_bytes, held_bytes
            self._budget.change(change, self)
        if is_idle:
            self._budget.given_back(self)

    def move_to(self, budget: Budget) -> None:
        """Count what it holds in another budget from now on."""
        if budget is self._budget:
            return
        held_bytes = self.held_bytes
        self.leave(0)
        self._budget = budget
        self.account(held_bytes, is_idle=False)

    def must_wait(self, more_bytes: int = 0) -> bool:
        """Whether its frame may not grow by `more_bytes` now; see `MemoryBudget.must_wait`."""
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
        """Whether others wait for its memory, and its client does not go on."""
        if not self.held_bytes or not self._budget.is_waited_for or (self.is_waiting and is_sent):
            return False
        return idle_ms > (MEMORY_TURN_STALL_MS if self._budget.in_turn is self else CONNECTION_STALL_MS)

    def leave(self, held_bytes: int) -> None:
        """The connection is closed, except for `held_bytes` that are still being processed."""
        self.account(held_bytes, is_idle=False)
        self._budget.forget(self)

    def close(self) -> None:
        """Release everything: the connection holds nothing any more."""
        self.leave(0)


# --- buffers: memory that is used again -------------------------------------------------------------------------------

RECEIVE_BYTES: Final = 1 << 20
"""Size of one receive, in memory that all connections share. Requests that come together are answered together: with 64
KB frames 1 MiB gives a third more throughput than 256 KiB."""

LENT_BYTES_MIN: Final = 256 << 10
"""From this size on, memory of reads is used again: allocating it costs more than filling it."""

_KEPT_BYTES_MAX: Final = 8 << 20
"""Of such memory, for all connections."""


_MAPPED_BYTES_MIN: Final = 256 << 10
"""From this size on memory is mapped: it stays with the system until bytes come, grows without a copy, and is returned
at once. The heap does none of this: 32 frames of 100 MB took twice their size."""

Memory = bytearray | mmap


def fresh_memory(size: int) -> Memory:
    return bytearray(size) if size < _MAPPED_BYTES_MIN else mmap(-1, size)


class FrameBuffer:
    """The one frame of a connection that did not come in one piece. Event loop only.

    Grows with what was received, not with the declared length: a length costs its sender as many bytes as it costs us.
    A large one gets its address range at once, and `capacity_bytes` is how much of it may be filled. The memory is kept
    for the next frame: a producer of large batches fills it again and again.
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
        """Begin a frame whose first bytes are `start`. `need_bytes` is 4 while the length itself is incomplete."""
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
        """How much memory has to be added before the next bytes of the frame can be received."""
        return max(0, self._next_capacity() - self.capacity_bytes) if self.must_grow else 0

    def grow(self) -> None:
        """Add it, if there is no room for the next byte."""
        if self.must_grow:
            self._reserve(self._next_capacity())

    def _next_capacity(self) -> int:
        return min(self.need_bytes, max(2 * self.have_bytes, FRAME_FIRST_BYTES))

    def view(self) -> memoryview:
        return memoryview(self.data)[: self.need_bytes]

    def finish(self) -> None:
        self.have_bytes = self.need_bytes = 0

    def exchange(self, memory: Memory) -> None:
        """Leave the memory to the reader of the last frame; the next one comes into `memory`. No frame is under way."""
        self.data = memory
        self.capacity_bytes = len(memory)

    def release(self) -> None:
        """Release the memory, if no frame is under way."""
        if not self.need_bytes:
            self._let_go()

    def _let_go(self) -> None:
        self.data = bytearray()
        self.capacity_bytes = 0

    def _reserve(self, capacity_bytes: int) -> None:
        if capacity_bytes > len(self.data):
            # Replaced, not resized: a reader may still hold a view of it.
            is_large = capacity_bytes >= _MAPPED_BYTES_MIN
            larger = fresh_memory(max(capacity_bytes, self.need_bytes) if is_large else capacity_bytes)
            larger[: self.have_bytes] = self.data[: self.have_bytes]
            self.data = larger
        self.capacity_bytes = max(self.capacity_bytes, capacity_bytes)


class ReadPool:
    """Memory that large reads of fetches use in turn. The event loop's, but any thread may take some.

    The last that was given back is taken first: it is still in the processor's caches, whichever connection used it.
    """

    def __init__(self) -> None:
        self._kept: list[bytearray] = []
        self._is_used = False

    def take(self, size_bytes: int) -> bytearray:
        self._is_used = True
        try:
            memory = self._kept.pop()
        except IndexError:
            memory = bytearray()
        # Replaced if it is too small: soon all are as large as reads are.
        return memory if len(memory) >= size_bytes else bytearray(size_bytes)

    def give_back(self, memory: Sequence[bytearray]) -> None:
        for one in memory:
            if len(one) + sum(map(len, self._kept)) <= _KEPT_BYTES_MAX:
                self._kept.append(one)

    def sweep(self) -> None:
        """About once a second: release what nobody has used since the last time."""
        if not self._is_used:
            self._kept.clear()
        self._is_used = False


class ReadBuffers:
    """What a connection's fetches have borrowed to read into.

    `is_sent`: whether all data given to the socket so far have left this process. One fetch at a time reads, on the
    event loop or on a thread; the loop may call `release` meanwhile, so each call looks the list up once.
    """

    def __init__(self, is_sent: Callable[[], bool], pool: ReadPool) -> None:
        self._is_sent = is_sent
        self._pool = pool
        self._lent: list[bytearray] = []

    @property
    def capacity_bytes(self) -> int:
        return sum(map(len, self._lent)) if self._lent else 0

    def begin(self) -> None:
        """Called before the reads of one answer. What is still being sent is left to the socket."""
        self.reclaim()
        self._lent = []

    def reclaim(self) -> None:
        """Give back what was sent, for whoever reads next."""
        if self._lent and self._is_sent():
            lent, self._lent = self._lent, []
            self._pool.give_back(lent)

    def lend(self, size_bytes: int) -> bytearray:
        """At least that much memory, for one answer."""
        memory = self._pool.take(size_bytes)
        self._lent.append(memory)
        return memory

    def release(self) -> None:
        self._lent = []
