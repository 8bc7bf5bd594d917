"""Fail every file operation of a change of topics in turn, once with EIO and once as a full disk.

Whatever fails: the call raises an error or has happened; the log in hand and a reopened one agree with the catalog; no
other topic is touched; and the same change succeeds when it is asked for again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

import pytest

from broker.small_broker import die, open_broker, read, write
from foldlog.broker.broker import Broker
from foldlog.broker.topics.changes import NewTopic
from foldlog.broker.topics.config import DEFAULT_CONFIG
from foldlog.errors import FoldlogError, TopicExists, UnknownTopic
from foldlog.files.base import Files
from foldlog.files.memory import MemoryFiles
from foldlog.testing.faulty_files import NO_FAULT, Fault, FaultyFiles
from foldlog.testing.sim_clock import SimClock

Change = Callable[[Broker], object]

TOGETHER = [NewTopic("new", 2, DEFAULT_CONFIG), NewTopic("newer", 1, DEFAULT_CONFIG)]


def all_done(outcomes: Sequence[object]) -> None:
    """What was refused raises. What is there already, since a fault kept out only the other, is no fault."""
    for outcome in outcomes:
        if isinstance(outcome, FoldlogError) and not isinstance(outcome, TopicExists | UnknownTopic):
            raise outcome


CHANGES: dict[str, tuple[Change, int]] = {
    "create": (lambda broker: broker.create_topic("new", 2), 2),
    "grow": (lambda broker: broker.grow_topic("orders", 4), 4),
    "alter": (lambda broker: broker.alter_topic("orders", {"retention.ms": 7}), 2),
    "delete": (lambda broker: broker.delete_topic("orders"), 0),
    "create together": (lambda broker: all_done(broker.create_topics(TOGETHER)), 2),
    "delete together": (lambda broker: all_done(broker.delete_topics(["orders", "second"])), 0),
}


def prepared() -> tuple[MemoryFiles, FaultyFiles, Broker]:
    disk = MemoryFiles()
    files = FaultyFiles(disk)
    broker = open_broker(files)
    broker.create_topic("orders", 2)
    broker.create_topic("other", 1)
    broker.create_topic("second", 1)
    write(broker, "orders", 0, b"a")
    write(broker, "other", 0, b"b")
    return disk, files, broker


def is_done(broker: Broker, name: str) -> bool:
    if name.startswith("create"):
        return ({"new"} if name == "create" else {"new", "newer"}) <= set(broker.topics())
    if name.startswith("delete"):
        return "orders" not in broker.topics() and ("second" not in broker.topics() or name == "delete")
    topic = broker.topic("orders")
    return topic.partition_count == 4 if name == "grow" else topic.config.log.retention_ms == 7


def operations_of(name: str) -> int:
    _, files, broker = prepared()
    before = len(files.operations)
    CHANGES[name][0](broker)
    count = len(files.operations) - before
    broker.close()
    return count


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_change_that_fails_can_be_asked_for_again(name: str, error: int) -> None:
    change, _ = CHANGES[name]
    for number in range(operations_of(name)):
        _, files, broker = prepared()
        files.fault = Fault.at(len(files.operations) + number, error)
        try:
            change(broker)
        except (OSError, FoldlogError):
            assert not is_done(broker, name)
        else:
            assert is_done(broker, name)  # only tidying up had failed
        files.fault = NO_FAULT
        assert read(broker, "other") == [b"b"]
        if not is_done(broker, name):
            assert "orders" not in broker.topics() or read(broker, "orders") == [b"a"]
            change(broker)
        assert is_done(broker, name)
        check_reopened(files, broker, name)


def check_reopened(files: Files, broker: Broker, name: str) -> None:
    broker.close()
    with open_broker(files, SimClock()) as reopened:
        assert is_done(reopened, name)
        assert read(reopened, "other") == [b"b"]
        if not name.startswith("delete"):
            assert read(reopened, "orders") == [b"a"]
        assert reopened.warnings() == []


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_process_that_dies_at_any_step_leaves_before_or_after(name: str) -> None:
    """The disk keeps all that was done up to the step; the broker in hand is dropped, as a killed process is."""
    change, _ = CHANGES[name]
    for number in range(operations_of(name)):
        disk, files, broker = prepared()
        first = len(files.operations) + number
        files.fault = Fault(lambda operation, first=first: errno.EIO if operation.number >= first else 0)  # type: ignore[misc]
        try:
            change(broker)
        except (OSError, FoldlogError):
            pass
        unlocked = MemoryFiles(disk.root)
        die(unlocked)
        with open_broker(unlocked) as reopened:
            assert read(reopened, "other") == [b"b"]
            if "orders" in reopened.topics():
                assert read(reopened, "orders") == [b"a"]
            if not is_done(reopened, name):
                change(reopened)
            assert is_done(reopened, name)
