"""Partitions are opened by threads, each once, and nobody waits for a long recovery.

The broker is a stand-in whose partitions open when the test says so; the threads and the event loop are real.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from foldlog.broker.storage import AnyPartition, Key
from foldlog.errors import CorruptLog, FoldlogError, StorageError, WaitTimeout
from foldlog.server.partitions import Openings
from server.small_node import SmallNode

LONG_MS = 30_000


class SlowBroker:
    """Opens a partition once `may_open` is set, and keeps count."""

    def __init__(self, small: SmallNode) -> None:
        self._small = small
        self._lock = threading.Lock()
        self.may_open = threading.Event()
        self.opened: set[Key] = set()
        self.began: list[Key] = []
        self.errors: dict[Key, Exception] = {}

    def opened_partition(self, topic: str, number: int) -> AnyPartition | None:
        return self._small.broker.partition("orders", 0) if (topic, number) in self.opened else None

    def partition(self, topic: str, number: int) -> AnyPartition:
        with self._lock:
            self.began.append((topic, number))
        assert self.may_open.wait(LONG_MS / 1000)
        if (topic, number) in self.errors:
            raise self.errors[topic, number]
        with self._lock:
            self.opened.add((topic, number))
        return self._small.broker.partition("orders", 0)


@pytest.fixture
def slow(small: SmallNode) -> Iterator[SlowBroker]:
    small.broker.create_topic("orders")
    broker = SlowBroker(small)
    yield broker
    broker.may_open.set()


def run(small: SmallNode, work: Coroutine[Any, Any, dict[Key, FoldlogError]]) -> dict[Key, FoldlogError]:
    return small.run(asyncio.wait_for(work, LONG_MS / 1000))


def keys(count: int) -> list[Key]:
    return [("orders", number) for number in range(count)]


def test_all_that_is_asked_for_is_open_on_return(small: SmallNode, slow: SlowBroker) -> None:
    slow.may_open.set()
    openings = Openings(slow, small.node)
    assert run(small, openings.open(keys(1000), LONG_MS)) == {}
    assert slow.opened == set(keys(1000))
    assert run(small, openings.open(keys(1000), LONG_MS)) == {}
    assert len(slow.began) == 1000


def test_one_that_takes_long_is_not_waited_for_and_opens_all_the_same(small: SmallNode, slow: SlowBroker) -> None:
    openings = Openings(slow, small.node)
    failed = run(small, openings.open(keys(2), 1))
    assert {type(error) for error in failed.values()} == {WaitTimeout}
    assert set(failed) == set(keys(2))
    slow.may_open.set()
    assert run(small, openings.open(keys(2), LONG_MS)) == {}
    assert sorted(slow.began) == keys(2)


def test_what_many_ask_for_is_opened_once(small: SmallNode, slow: SlowBroker) -> None:
    openings = Openings(slow, small.node)

    async def together() -> dict[Key, FoldlogError]:
        waiting = [asyncio.ensure_future(openings.open(keys(3), LONG_MS)) for _ in range(5)]
        await small.node.run(int)  # so that they have begun
        waiting[0].cancel()  # its client went away; the others wait on
        slow.may_open.set()
        results = await asyncio.gather(*waiting[1:])
        assert results == [{}] * 4
        return {}

    run(small, together())
    assert sorted(slow.began) == keys(3)


def test_half_of_the_workers_are_left_for_others(small: SmallNode, slow: SlowBroker) -> None:
    openings = Openings(slow, small.node)

    async def beside() -> dict[Key, FoldlogError]:
        waiting = asyncio.ensure_future(openings.open(keys(100), LONG_MS))
        await small.node.run(int)  # so that they have begun
        await asyncio.gather(*(small.node.run(int) for _ in range(100)))
        assert len(slow.began) <= 4
        slow.may_open.set()
        return await waiting

    assert run(small, beside()) == {}


def test_why_one_does_not_open_is_told_and_the_others_open(
    small: SmallNode, slow: SlowBroker, caplog: pytest.LogCaptureFixture
) -> None:
    slow.may_open.set()
    slow.errors = {("orders", 1): CorruptLog("orders-1", 7, "rot"), ("orders", 2): RuntimeError("a bug")}
    failed = run(small, Openings(slow, small.node).open(keys(4), LONG_MS))
    assert sorted(failed) == [("orders", 1), ("orders", 2)]
    assert failed["orders", 1] is slow.errors["orders", 1]
    assert isinstance(failed["orders", 2], StorageError)
    assert "orders-2 could not be opened" in caplog.text
    assert slow.opened == {("orders", 0), ("orders", 3)}


def test_nothing_more_is_opened_after_closing(small: SmallNode, slow: SlowBroker) -> None:
    openings = Openings(slow, small.node)
    run(small, openings.open(keys(20), 1))
    openings.close()
    slow.may_open.set()
    assert len(slow.began) <= 4
