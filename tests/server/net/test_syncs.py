"""What is written is synced, all of it: at once where somebody waits, in a while where nobody does.

The loop is one that only keeps what it is asked to call, and the partitions only note up to where they were asked to be
durable: so what comes together, and in which order, is the test's to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from foldlog.errors import FoldlogError
from foldlog.server.net.purgatory import FetchPurgatory, Syncs


class Loop:
    """Calls things when the test says so."""

    def __init__(self) -> None:
        self.now: list[Callable[[], None]] = []
        self.later: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.now.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> object:
        assert delay_s < 1
        self.later.append(callback)
        return object()

    def turn(self) -> None:
        called, self.now = self.now, []
        for callback in called:
            callback()

    def wait(self) -> None:
        called, self.later = self.later, []
        for callback in called:
            callback()
        self.turn()


class NotedPartition:
    """Is durable below `durable_offset`, and notes who wants more."""

    def __init__(self, durable_offset: int = 0) -> None:
        self.durable_offset = durable_offset
        self.wanted: list[int] = []
        self._waiting: list[tuple[int, Callable[[FoldlogError | None], None]]] = []

    def acknowledged_early(self, next_offset: int) -> None: ...

    def on_acknowledged(
        self, next_offset: int, callback: Callable[[FoldlogError | None], None], *, is_quick: bool
    ) -> None:
        if next_offset <= self.durable_offset:
            callback(None)
        else:
            self.wanted.append(next_offset)
            self._waiting.append((next_offset, callback))


class Bench:
    def __init__(self) -> None:
        self.loop = Loop()
        self.syncs = Syncs(cast(Any, self.loop), self.soon, FetchPurgatory(self.soon))

    def soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        self.loop.call_soon(lambda: callback(*arguments))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_nobody_waits_for_is_synced_in_a_while(bench: Bench) -> None:
    partition = NotedPartition()
    bench.syncs.written(cast(Any, partition), 10)
    bench.loop.turn()
    assert partition.wanted == []
    bench.loop.wait()
    assert partition.wanted == [10]


@pytest.mark.parametrize("offsets", [(10, 20), (20, 10)])
def test_all_of_it_is_synced_in_whichever_order_threads_tell_of_it(bench: Bench, offsets: tuple[int, int]) -> None:
    partition = NotedPartition(durable_offset=10)
    for next_offset in offsets:
        bench.syncs.written(cast(Any, partition), next_offset)
    bench.loop.wait()
    assert partition.wanted == [20]


def test_a_duplicate_that_is_durable_already_does_not_make_later_batches_forgotten(bench: Bench) -> None:
    partition, told = NotedPartition(durable_offset=10), list[object]()
    bench.syncs.written(cast(Any, partition), 20)
    bench.syncs.wait(cast(Any, partition), 10, told.append)
    bench.loop.turn()
    bench.loop.turn()
    assert told == [None]
    bench.loop.wait()
    assert partition.wanted == [20]


def test_one_sync_is_asked_for_whoever_waits(bench: Bench) -> None:
    partition = NotedPartition()
    for next_offset in (5, 15, 10):
        bench.syncs.wait(cast(Any, partition), next_offset, lambda error: None)
    bench.syncs.written(cast(Any, partition), 12)
    bench.loop.turn()
    bench.loop.wait()
    assert partition.wanted == [15]


def test_a_broker_that_leaves_hurries_what_nobody_waits_for(bench: Bench) -> None:
    partition = NotedPartition()
    bench.syncs.written(cast(Any, partition), 10)
    bench.syncs.finish()
    assert partition.wanted == [10]
