"""A log opened with mode="r" takes no lock, changes nothing, and sees what the writer has made durable.

Writer and reader are two brokers on one real directory, with files of their own each, as two processes have. The
clock is simulated: it moves by limits.READER_POLL_MAX_MS where a look at the catalog is to be due.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.small_broker import at, read, write
from foldlog import limits
from foldlog.broker.broker import Broker
from foldlog.errors import LogClosed, LogNotFound, ReadOnly, UnknownPartition, UnknownTopic
from foldlog.log.follower import FollowedPartition
from foldlog.testing.sim_clock import SimClock


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def writer(tmp_path: Path, clock: SimClock) -> Iterator[Broker]:
    with Broker.open(str(tmp_path / "data"), clock=clock, background=False) as broker:
        yield broker


def beside(writer: Broker, clock: SimClock) -> Broker:
    return Broker.open(writer.path, clock=clock, mode="r")


def test_there_is_nothing_to_read_before_a_writer_came(tmp_path: Path) -> None:
    with pytest.raises(LogNotFound):
        Broker.open(str(tmp_path / "data"), mode="r")
    (tmp_path / "data").mkdir()
    with pytest.raises(LogNotFound):
        Broker.open(str(tmp_path / "data"), mode="r")
    assert list((tmp_path / "data").iterdir()) == []


def test_a_reader_sees_topics_records_and_commits(writer: Broker, clock: SimClock) -> None:
    writer.create_topic("orders", 2)
    write(writer, "orders", 1, b"a")
    writer.commit_offsets("g", {("orders", 1): at(1, "note")})
    with beside(writer, clock) as reader:
        assert reader.read_only
        assert reader.directory_id == writer.directory_id
        assert reader.topics() == ["orders"]
        assert isinstance(reader.partition("orders", 1), FollowedPartition)
        assert read(reader, "orders", 1) == [b"a"]
        assert reader.committed("g") == {("orders", 1): at(1, "note")}
        assert reader.group_names() == ["g"]


def test_a_reader_follows_what_is_appended_and_committed(writer: Broker, clock: SimClock) -> None:
    writer.create_topic("orders")
    with beside(writer, clock) as reader:
        assert read(reader, "orders") == []
        assert reader.committed("g") == {}
        for count in range(1, 4):
            write(writer, "orders", 0, b"%d" % count)
            writer.commit_offsets("g", {("orders", 0): at(count)})
            clock.advance(limits.READER_POLL_MAX_MS)
            assert read(reader, "orders") == [b"%d" % number for number in range(1, count + 1)]
            assert reader.committed("g") == {("orders", 0): at(count)}


def test_new_topics_and_partitions_are_found_without_waiting(writer: Broker, clock: SimClock) -> None:
    with beside(writer, clock) as reader:
        assert reader.topics() == []
        writer.create_topic("orders")
        write(writer, "orders", 0, b"a")
        assert read(reader, "orders") == [b"a"]
        writer.grow_topic("orders", 2)
        write(writer, "orders", 1, b"b")
        assert read(reader, "orders", 1) == [b"b"]
        with pytest.raises(UnknownPartition):
            reader.partition("orders", 2)
        with pytest.raises(UnknownTopic):
            reader.topic("others")


def test_a_deleted_topic_is_noticed_also_if_one_of_its_name_came_after(writer: Broker, clock: SimClock) -> None:
    writer.create_topic("orders")
    write(writer, "orders", 0, b"old")
    with beside(writer, clock) as reader:
        assert read(reader, "orders") == [b"old"]
        writer.delete_topic("orders")
        clock.advance(limits.READER_POLL_MAX_MS)
        with pytest.raises(UnknownTopic):
            reader.partition("orders", 0)
        writer.create_topic("orders")
        write(writer, "orders", 0, b"new")
        clock.advance(limits.READER_POLL_MAX_MS)
        assert read(reader, "orders") == [b"new"]
        writer.delete_topic("orders")
        writer.create_topic("orders", 2)
        clock.advance(limits.READER_POLL_MAX_MS)
        assert read(reader, "orders") == []
        assert reader.topic("orders").topic_id == writer.topic("orders").topic_id


def test_a_reader_changes_nothing(writer: Broker, clock: SimClock) -> None:
    writer.create_topic("orders")
    with beside(writer, clock) as reader:
        for call in (
            lambda: reader.create_topic("more"),
            lambda: reader.delete_topic("orders"),
            lambda: reader.grow_topic("orders", 2),
            lambda: reader.alter_topic("orders", {}),
            lambda: reader.commit_offsets("g", {("orders", 0): at(0)}),
            lambda: reader.delete_group("g"),
            lambda: reader.coordinator().__enter__(),
            reader.enforce_retention,
            reader.compact,
        ):
            with pytest.raises(ReadOnly):
                call()
    with pytest.raises(LogClosed):
        reader.topics()


def test_a_reader_needs_no_writer(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    with Broker.open(path) as writer:
        writer.create_topic("orders")
        write(writer, "orders", 0, b"a")
    before = sorted(name.name for name in (tmp_path / "data").iterdir())
    with Broker.open(path, mode="r") as reader:
        assert read(reader, "orders") == [b"a"]
    assert sorted(name.name for name in (tmp_path / "data").iterdir()) == before
