"""While memory is short, connections go on one after the other: nobody waits for ever or is closed for waiting.

The turns themselves are driven by hand. Then real connections: frames that have come in part take all the memory there
is, so that none could be completed if each waited for the others.
"""

from __future__ import annotations

import time
from functools import partial

import pytest

from foldlog.broker.broker import Broker
from foldlog.limits import CONNECTION_STALL_MS, MEMORY_TURN_STALL_MS, MEMORY_TURN_SWEEPS
from foldlog.server.net.memory import HeldMemory, MemoryBudget
from foldlog.wire.messages.produce import ProduceResponse
from server.conftest import Serve
from server.raw_client import TIMEOUT_S, RawClient, batch, produce, produced

VERSION = 9


class Frames:
    """Connections a, b, c, … with a budget of 100 bytes, and requests of 60 at most; `log` tells who was woken, and
    `closed` who had to go."""

    def __init__(self, names: str) -> None:
        self.budget = MemoryBudget(100, 60)
        self.log: list[str] = []
        self.closed: list[str] = []
        self.of = {
            name: HeldMemory(self.budget, partial(self.log.append, name), partial(self.close, name)) for name in names
        }

    def close(self, name: str) -> None:
        self.closed.append(name)
        self.of[name].close()

    def waits(self, name: str, held_bytes: int) -> bool:
        """Its frame has got to that size and has to grow."""
        self.of[name].account(held_bytes, is_idle=False)
        return self.of[name].must_wait()

    def complete(self, name: str) -> None:
        """Its frame is received, dealt with, and its memory given back."""
        self.of[name].received()
        self.of[name].account(0, is_idle=True)

    def in_turn(self) -> str | None:
        return next((name for name, held in self.of.items() if self.budget.in_turn is held), None)


@pytest.fixture
def short() -> Frames:
    """a has 60 bytes and its turn; b and c have 40 each, and wait in this order."""
    frames = Frames("abc")
    assert not frames.waits("b", 40)
    frames.of["c"].account(40, is_idle=False)
    assert not frames.waits("a", 60)
    assert frames.of["b"].must_wait()
    assert frames.of["c"].must_wait()
    return frames


def test_nobody_waits_while_there_is_enough() -> None:
    frames = Frames("ab")
    assert not frames.waits("a", 60)
    assert not frames.waits("b", 39)
    assert frames.in_turn() is None


def test_the_first_who_wants_more_than_there_is_goes_on(short: Frames) -> None:
    assert short.in_turn() == "a"
    assert not short.waits("a", 500), "until its frame is complete"
    assert short.log == []


def test_all_go_on_when_there_is_enough_again(short: Frames) -> None:
    short.complete("a")
    assert short.budget.used_bytes == 80
    assert short.log == ["b", "c"]
    assert short.in_turn() is None
    assert not short.budget.is_waited_for


def test_those_who_wait_go_on_one_by_one_as_far_as_there_is_room_for_what_each_takes() -> None:
    budget = MemoryBudget(100, 60)
    woken: list[HeldMemory] = []

    def go_on(number: int) -> None:
        held = waiting[number]
        woken.append(held)
        held.account(held.held_bytes + held.wanted_bytes, is_idle=False)

    first = HeldMemory(budget, lambda: None, lambda: None)
    waiting = [HeldMemory(budget, partial(go_on, number), lambda: None) for number in range(6)]
    first.account(90, is_idle=False)
    for held in waiting:
        held.account(5, is_idle=False)
    assert not first.must_wait(60), "its turn"
    assert all(held.must_wait(30) for held in waiting)
    first.received()
    first.account(0, is_idle=True)
    assert woken == waiting[:3], "two for whom there is room, and one whose turn it is"
    assert budget.used_bytes == 6 * 5 + 3 * 30


def test_turns_go_in_order_of_waiting_while_it_is_not_enough(short: Frames) -> None:
    short.of["b"].account(70, is_idle=False)
    short.of["c"].account(80, is_idle=False)
    short.complete("a")
    assert (short.log, short.in_turn()) == (["b"], "b")
    assert short.waits("a", 30), "it is at the end of the queue now"
    short.complete("b")
    assert (short.log, short.in_turn()) == (["b", "c"], "c")
    short.complete("c")
    assert short.log == ["b", "c", "a"]


def test_a_turn_lasts_until_the_frame_is_dealt_with(short: Frames) -> None:
    """Else each could have its turn while the frames of those before it still take memory."""
    short.of["a"].received()
    short.of["a"].account(90, is_idle=False)
    assert short.log == []
    assert short.of["a"].must_wait(), "its next frame is for another turn"
    short.of["a"].account(60, is_idle=True)
    assert (short.log, short.in_turn()) == (["b"], "b")


def test_who_is_gone_neither_waits_nor_has_a_turn(short: Frames) -> None:
    short.of["b"].account(90, is_idle=False)
    short.of["c"].account(95, is_idle=False)
    short.of["b"].close()
    short.of["a"].close()
    assert short.log == ["c"]
    short.of["c"].close()
    assert short.budget.used_bytes == 0
    assert not short.budget.is_waited_for


def test_a_turn_that_takes_long_is_the_next_ones(short: Frames) -> None:
    for _ in range(MEMORY_TURN_SWEEPS):
        short.budget.sweep()
        assert short.in_turn() == "a"
    short.budget.sweep()
    assert (short.log, short.in_turn()) == (["b"], "b")
    assert short.of["a"].must_wait()


def sweep_past_a_turn(frames: Frames) -> None:
    for _ in range(MEMORY_TURN_SWEEPS + 1):
        frames.budget.sweep()


def test_frames_that_come_slowly_hold_one_request_more_than_there_is_and_not_one_each() -> None:
    """Each has its turn, takes a request's size but for a byte, and is never idle for long enough to be closed."""
    frames = Frames("abcdefgh")
    most = 0
    for held in frames.of.values():
        held.account(12, is_idle=False)
    slow = {name: frames.of[name].must_wait(48) for name in frames.of}
    assert [name for name, waits in slow.items() if not waits] == ["a"]
    for _ in range(20):
        name = frames.in_turn()
        if name is not None and frames.of[name].held_bytes < 59:
            frames.of[name].account(59, is_idle=False)
        most = max(most, frames.budget.used_bytes)
        sweep_past_a_turn(frames)
        for name in frames.of:
            if frames.of[name].held_bytes:
                frames.of[name].must_wait(1)
    assert most <= 100 + 2 * 60
    assert frames.closed, "of those that had a turn"


def test_a_slow_frame_that_leaves_room_for_a_request_is_kept(short: Frames) -> None:
    sweep_past_a_turn(short)
    assert (short.budget.used_bytes, short.closed) == (140, [])
    assert short.of["a"].must_wait()
    short.complete("b")
    short.complete("c")
    assert short.log == ["b", "c", "a"]


def test_of_slow_frames_the_largest_goes(short: Frames) -> None:
    short.of["a"].account(70, is_idle=False)
    sweep_past_a_turn(short)
    assert short.in_turn() == "b"
    short.of["b"].account(55, is_idle=False)
    sweep_past_a_turn(short)
    assert short.closed == ["a"]


def test_only_who_could_go_on_and_does_not_is_in_the_way(short: Frames) -> None:
    a, b = short.of["a"], short.of["b"]
    assert a.is_in_the_way(MEMORY_TURN_STALL_MS + 1, is_sent=True)
    assert not a.is_in_the_way(MEMORY_TURN_STALL_MS, is_sent=True)
    assert not b.is_in_the_way(10 * CONNECTION_STALL_MS, is_sent=True), "it waits for others"
    assert b.is_in_the_way(CONNECTION_STALL_MS + 1, is_sent=False), "it does not take its answers"
    assert not b.is_in_the_way(CONNECTION_STALL_MS, is_sent=False)


def test_who_holds_memory_that_nobody_waits_for_is_in_nobodys_way() -> None:
    frames = Frames("a")
    assert not frames.waits("a", 1000)
    assert not frames.of["a"].is_in_the_way(10 * CONNECTION_STALL_MS, is_sent=True)


LIMIT_BYTES = 1 << 20
FRAME_BYTES = 512 << 10
PROPERTIES = {"queued.max.request.bytes": LIMIT_BYTES, "socket.request.max.bytes": LIMIT_BYTES}


def begin_frames(address: tuple[str, int], number: int) -> list[tuple[RawClient, bytes]]:
    """Connections that have sent three quarters of a request each, and what is left of it."""
    begun = []
    for _ in range(number):
        client = RawClient(address)
        frame = client.frame(produce(batch(b"x" * FRAME_BYTES)), VERSION)
        client.socket.sendall(frame[: 3 * FRAME_BYTES // 4])
        begun.append((client, frame[3 * FRAME_BYTES // 4 :]))
    return begun


def test_frames_that_take_all_memory_before_any_is_complete_are_all_answered(serve: Serve, broker: Broker) -> None:
    server = serve(PROPERTIES)
    begun = begin_frames(server.addresses[0], 12)
    for client, rest in begun:
        client.socket.sendall(rest)
    for client, _ in begun:
        error, _ = produced(client.receive(ProduceResponse, VERSION)[1])
        assert error == 0
        client.close()
    assert broker.partition("orders", 0).log_end_offset == 12


def test_who_never_completes_a_frame_keeps_nobody_waiting_for_long(serve: Serve, broker: Broker) -> None:
    """Silent ones take all memory, so one of them has the turn: it is closed for that, and the others are served."""
    server = serve(PROPERTIES)
    silent = begin_frames(server.addresses[0], 3)
    deadline = time.monotonic() + TIMEOUT_S
    while server.memory_used_bytes < LIMIT_BYTES:
        assert time.monotonic() < deadline, "the silent ones do not take all memory"
    begun = begin_frames(server.addresses[0], 6)
    for client, rest in begun:
        client.socket.sendall(rest)
    for client, _ in begun:
        error, _ = produced(client.receive(ProduceResponse, VERSION)[1])
        assert error == 0
        client.close()
    assert broker.partition("orders", 0).log_end_offset == 6
    for client, _ in silent:
        client.close()
