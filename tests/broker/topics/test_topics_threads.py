"""Threads that append, read, open and commit while topics come and go get what they asked for or a clear error.

No order of events is arranged: whatever happens, every answer is one of those allowed, nothing hangs, and the log is
whole afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from broker.small_broker import at, open_broker, read, write
from foldlog.broker.broker import Broker
from foldlog.errors import LogClosed, UnknownPartition, UnknownTopic
from foldlog.files.memory import MemoryFiles

ROUNDS = 25


def run_together(*calls: Callable[[], None]) -> list[BaseException]:
    faults: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  the test looks at them
            faults.append(error)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return faults


def test_topics_come_and_go_under_those_who_use_them() -> None:
    files = MemoryFiles()
    broker = open_broker(files)
    broker.create_topic("steady")
    stop = threading.Event()

    def change() -> None:
        try:
            for _ in range(ROUNDS):
                broker.create_topic("passing", 2)
                broker.grow_topic("passing", 3)
                broker.alter_topic("passing", {"max.message.bytes": 5000})
                broker.delete_topic("passing")
        finally:
            stop.set()

    def use() -> None:
        while not stop.is_set():
            try:
                write(broker, "passing", 0, b"x")
                read(broker, "passing", 2)
                broker.commit_offsets("g", {("passing", 1): at(1)})
            except (UnknownTopic, UnknownPartition, LogClosed):
                continue

    def go_on() -> None:
        while True:
            write(broker, "steady", 0, b"kept")
            broker.commit_offsets("h", {("steady", 0): at(broker.partition("steady", 0).high_watermark)})
            if stop.is_set():
                return

    assert run_together(change, use, use, go_on) == []
    assert broker.committed("g") == {}
    count = len(read(broker, "steady"))
    broker.close()
    with open_broker(files) as again:
        assert again.topics() == ["steady"]
        assert read(again, "steady") == [b"kept"] * count
        assert again.committed("h") == {("steady", 0): at(count)}
        assert again.warnings() == []


def test_many_threads_that_ask_first_get_the_same_partition() -> None:
    with open_broker(MemoryFiles()) as broker:
        broker.create_topic("orders", 4)
        seen: list[tuple[int, int]] = []
        start = threading.Barrier(8)

        def ask() -> None:
            start.wait(60)
            seen.extend((number, id(broker.partition("orders", number))) for number in range(4))

        assert run_together(*[ask] * 8) == []
        assert len(set(seen)) == 4


def test_closing_under_those_who_append_leaves_every_acknowledged_record() -> None:
    files = MemoryFiles()
    broker = open_broker(files)
    broker.create_topic("orders", 2)
    acknowledged: list[list[int]] = [[], []]
    under_way = threading.Barrier(3)

    def append(number: int) -> None:
        write(broker, "orders", number, b"first")
        under_way.wait(60)
        try:
            while True:
                acknowledged[number].append(write(broker, "orders", number, b"x"))
        except LogClosed:
            return

    def close() -> None:
        under_way.wait(60)
        broker.close()

    assert run_together(lambda: append(0), lambda: append(1), close) == []
    with open_broker(files) as again:
        for number in range(2):
            assert len(read(again, "orders", number)) >= max(acknowledged[number], default=1)


def test_closing_from_two_threads_closes_once() -> None:
    broker: Broker = open_broker(MemoryFiles())
    broker.create_topic("orders")
    assert run_together(broker.close, broker.close, broker.close) == []
