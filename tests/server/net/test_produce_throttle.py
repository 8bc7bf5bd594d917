"""What refusing a batch costs: one look, on the loop where its own account of its size is enough; and whoever was
refused waits in a line that moves by one at a time, so that the others are served between.

The order is shown by the offsets that batches get, and the work by counting it.
"""

from __future__ import annotations

import asyncio
import gzip
import struct
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from foldlog.log.partition import Appended, Partition
from foldlog.log.produced import check_run
from foldlog.server.net.append_queues import AppendQueue
from foldlog.server.net.produce_throttle import ProduceThrottle, ThrottledProducer
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.produce import ProduceResponse
from server.conftest import Connect, Serve
from server.raw_client import RawClient, batch, produce, produced

VERSION = 9
TOO_LARGE = 17 << 20
RECORDS_AT = 61


def gzip_that_does_not_say() -> bytes:
    """Its last member is empty, and only that one's size stands at the end."""
    plain = batch(bytes(TOO_LARGE))
    made = bytearray(plain[:RECORDS_AT]) + gzip.compress(plain[RECORDS_AT:]) + gzip.compress(b"")
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">h", made, 21, 1)
    struct.pack_into(">I", made, 17, crc32c(bytes(made[21:])))
    return bytes(made)


class Work:
    """What was done for requests: looks at batches, and jobs of queues."""

    def __init__(self) -> None:
        self.looks: list[bool] = []  # whether it was one that must not wait
        self.jobs = 0


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    seen = Work()
    append, submit = Partition.append, AppendQueue.submit

    def seen_check(*run: Any, **how: Any) -> Any:
        seen.looks.append(True)
        return check_run(*run, **how)

    def seen_append(partition: Partition, *buffers: Any, **how: Any) -> Appended:
        seen.looks.append(how.get("nowait", False))
        return append(partition, *buffers, **how)

    def seen_submit(queue: AppendQueue, *job: Any) -> None:
        seen.jobs += 1
        submit(queue, *job)

    monkeypatch.setattr(Partition, "append", seen_append)
    monkeypatch.setattr("foldlog.server.produce_fast_path.check_run", seen_check)
    monkeypatch.setattr(AppendQueue, "submit", seen_submit)
    return seen


def opened(connect: Connect) -> RawClient:
    """A client of a partition that is open, so that only what is asked next is work."""
    client = connect()
    assert produced(client.ask(produce(batch(b"first")), VERSION)) == (0, 0)
    return client


@pytest.mark.parametrize("codec", [1, 2, 4])
def test_what_is_too_large_by_its_own_account_is_refused_on_the_loop_with_one_look(
    connect: Connect, work: Work, codec: int
) -> None:
    client = opened(connect)
    work.looks, work.jobs = [], 0
    answer = client.ask(produce(batch(bytes(TOO_LARGE), compression=codec)), VERSION)
    assert produced(answer)[0] == ErrorCode.MESSAGE_TOO_LARGE
    assert "expand to more than 16777408 bytes" in answer.responses[0].partition_responses[0].error_message
    assert (work.looks, work.jobs) == ([True], 0)


@pytest.mark.parametrize(
    "bomb", [gzip_that_does_not_say(), batch(bytes(TOO_LARGE), compression=3)], ids=["gzip", "lz4"]
)
def test_what_does_not_say_its_size_is_looked_at_once_on_the_loop_and_once_on_a_thread(
    connect: Connect, work: Work, bomb: bytes
) -> None:
    client = opened(connect)
    work.looks, work.jobs = [], 0
    assert produced(client.ask(produce(bomb), VERSION))[0] == ErrorCode.MESSAGE_TOO_LARGE
    assert (work.looks, work.jobs) == ([True, False], 1)


def test_a_damaged_batch_is_looked_at_once(connect: Connect, work: Work) -> None:
    client = opened(connect)
    work.looks, work.jobs = [], 0
    damaged = bytearray(batch(b"one"))
    damaged[-1] ^= 1
    assert produced(client.ask(produce(bytes(damaged)), VERSION))[0] == ErrorCode.CORRUPT_MESSAGE
    assert (work.looks, work.jobs) == ([True], 0)


class SlowLoop:
    """Its timers fire when the test says so."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_later(self, _: float, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def fire(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()


def lined_up(names: str, loop: Any) -> tuple[dict[str, ThrottledProducer], list[str]]:
    line, served = ProduceThrottle(loop), []
    return {name: ThrottledProducer(line, lambda name=name: served.append(name)) for name in names}, served  # type: ignore[misc]


def test_who_was_not_refused_never_waits() -> None:
    turns, _ = lined_up("a", SlowLoop())
    assert not turns["a"].must_wait()
    turns["a"].is_granted = False
    assert not turns["a"].must_wait()


def test_those_who_were_refused_are_served_one_at_a_time_in_the_order_they_came() -> None:
    loop = SlowLoop()
    turns, served = lined_up("abc", loop)
    for turn in turns.values():
        turn.is_needed = True
        assert turn.must_wait()
        assert turn.must_wait(), "asked again, it keeps its one place"
    loop.fire()
    assert served == ["a"]
    assert not turns["a"].must_wait()
    turns["a"].is_granted = False
    turns["a"].is_needed = True
    assert turns["a"].must_wait(), "behind those who wait already"
    for _ in range(3):
        loop.fire()
    assert served == ["a", "b", "c", "a"]
    assert not loop.due, "nobody waits"


def test_a_batch_that_is_taken_ends_the_waiting() -> None:
    loop = SlowLoop()
    turns, _ = lined_up("a", loop)
    turns["a"].is_needed = True
    turns["a"].is_needed = False
    assert not turns["a"].must_wait()


def test_others_are_served_while_those_who_were_refused_wait(monkeypatch: pytest.MonkeyPatch, serve: Serve) -> None:
    """The line stands still until the test moves it: what the others send gets its offsets meanwhile."""
    lines: list[StandingLine] = []

    class StandingLine(ProduceThrottle):
        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            super().__init__(loop)
            lines.append(self)

        def _move_later(self) -> None:
            pass

        @property
        def length(self) -> int:
            return len(self._waiting)

        def move(self) -> None:
            self._loop.call_soon_threadsafe(self._move)

    monkeypatch.setattr("foldlog.server.node.ProduceThrottle", StandingLine)
    address = serve().addresses[0]
    refused, honest = [RawClient(address) for _ in range(5)], RawClient(address)
    bomb = produce(batch(bytes(TOO_LARGE), compression=4))
    for client in refused:
        assert produced(client.ask(bomb, VERSION))[0] == ErrorCode.MESSAGE_TOO_LARGE
        client.send(produce(batch(b"after a refusal")), VERSION)
    while lines[0].length < len(refused):
        honest.ask(produce(batch(b"one"), topic="nowhere"), VERSION)
    for offset in range(10):
        assert produced(honest.ask(produce(batch(b"one")), VERSION)) == (0, offset)
    for _ in refused:
        lines[0].move()
    served = [produced(client.receive(ProduceResponse, VERSION)[1]) for client in refused]
    assert sorted(served) == [(0, offset) for offset in range(10, 15)]
    for client in refused:  # a batch was taken: none of them has to line up any more
        assert produced(client.ask(produce(batch(b"more")), VERSION))[0] == 0
    for client in (*refused, honest):
        client.close()


def test_a_connection_that_is_refused_again_and_again_is_still_answered(connect: Connect) -> None:
    client = connect()
    bombs = [produce(batch(bytes(TOO_LARGE), compression=4)) for _ in range(20)]
    client.socket.sendall(b"".join(client.frame(bomb, VERSION) for bomb in bombs))
    for _ in bombs:
        assert produced(client.receive(ProduceResponse, VERSION)[1])[0] == ErrorCode.MESSAGE_TOO_LARGE
    assert produced(client.ask(produce(batch(b"one")), VERSION)) == (0, 0)
