"""A forked child is never the writer: it may read, is refused everything else at once, and leaves the parent alone.

A real fork. The child answers over a pipe and ends with os._exit, so that nothing of the test runs twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.small_broker import at, read, write
from foldlog.broker.broker import Broker
from foldlog.errors import DirectoryLocked


def in_child(call: Callable[[], str]) -> str:
    """What `call` answers, or the name of what it raises, in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = call()
        except BaseException as error:  # noqa: BLE001  the child must not go on with the test
            answer = type(error).__name__
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    answer = os.read(reading, 1000).decode()
    os.close(reading)
    os.waitpid(child, 0)
    return answer


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    broker = Broker.open(str(tmp_path / "data"), background=False)
    broker.create_topic("orders", 2)
    write(broker, "orders", 0, b"a")
    return broker


def test_a_child_is_refused_every_change(broker: Broker) -> None:
    calls: list[Callable[[], object]] = [
        lambda: broker.create_topic("more"),
        lambda: broker.delete_topic("orders"),
        lambda: broker.grow_topic("orders", 3),
        lambda: broker.alter_topic("orders", {}),
        lambda: broker.commit_offsets("g", {("orders", 0): at(1)}),
        lambda: broker.committed("g"),
        lambda: broker.coordinator().__enter__(),
        lambda: broker.partition("orders", 1),
        lambda: write(broker, "orders", 0, b"b"),
        broker.enforce_retention,
        broker.compact,
    ]
    for call in calls:
        assert in_child(lambda call=call: str(call())) == "WrongProcess"  # type: ignore[misc]
    assert read(broker, "orders") == [b"a"]
    write(broker, "orders", 1, b"b")
    broker.close()


def test_a_child_that_finds_the_locks_held_is_refused_and_does_not_wait(broker: Broker) -> None:
    with broker.group_lock:
        assert in_child(lambda: str(broker.committed("g"))) == "WrongProcess"
    broker.close()


def test_a_child_may_read_what_was_open_and_closing_there_does_not_close_here(broker: Broker) -> None:
    def read_and_close() -> str:
        values = read(broker, "orders")
        broker.close()
        return repr(values)

    assert in_child(read_and_close) == "[b'a']"
    write(broker, "orders", 0, b"b")
    with pytest.raises(DirectoryLocked):
        Broker.open(broker.path)
    broker.close()
    with Broker.open(broker.path) as again:
        assert read(again, "orders") == [b"a", b"b"]


def test_a_child_may_open_a_log_of_its_own(broker: Broker) -> None:
    def open_anew() -> str:
        with Broker.open(broker.path, mode="r") as reader:
            return repr(read(reader, "orders"))

    assert in_child(open_anew) == "[b'a']"
    assert in_child(lambda: Broker.open(broker.path).path) == "DirectoryLocked"
    broker.close()
