"""Topics that are deleted, or deleted and created again, under whoever reads them.

Deletions happen between two calls of the reader, or in another thread while it waits; nothing depends on how long
anything takes. What a reader knew of the old topic must never be used for the new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import foldlog
from client.conftest import WAIT_S
from foldlog.broker.broker import Broker
from foldlog.client.consumer.arrivals import Arrivals
from foldlog.client.reader import Slice
from foldlog.errors import LogClosed, NotAssigned, UnknownTopic
from foldlog.files.memory import MemoryFiles
from foldlog.testing.sim_clock import SimClock

GROUPS = pytest.mark.parametrize("group", [None, "fraud"])


def fill(log: foldlog.Log, topic: str, prefix: str, count: int = 3) -> None:
    for number in range(count):
        log.append(topic, f"{prefix}{number}", partition=0)


def recreate(log: foldlog.Log, topic: str = "d", partitions: int = 1) -> None:
    log.delete_topic(topic)
    log.create_topic(topic, partitions=partitions)


def values(records: list[foldlog.Record]) -> list[bytes | None]:
    return [record.value for record in records]


def reader_of_d(log: foldlog.Log, group: str | None, how: str = "subscribe") -> foldlog.Consumer:
    """A consumer that has read old0..old2 of topic d to its end."""
    log.create_topic("d")
    fill(log, "d", "old")
    consumer = log.consumer(group=group, auto_offset_reset="earliest")
    if how == "subscribe":
        consumer.subscribe(["d"])
    else:
        consumer.assign([("d", 0)])
    assert values(consumer.poll()) == [b"old0", b"old1", b"old2"]
    return consumer


# --- created again ----------------------------------------------------------------------------------------------------


@GROUPS
@pytest.mark.parametrize("how", ["subscribe", "assign"])
def test_a_topic_created_again_is_read_from_its_start(log: foldlog.Log, group: str | None, how: str) -> None:
    consumer = reader_of_d(log, group, how)
    recreate(log)
    fill(log, "d", "new")
    assert consumer.lag() == {("d", 0): 3}
    assert consumer.position("d", 0) == 0
    assert values(consumer.poll()) == [b"new0", b"new1", b"new2"]
    fill(log, "d", "later", 1)
    assert values(consumer.poll()) == [b"later0"]


@GROUPS
def test_the_first_poll_after_it_was_created_again_reads_it(log: foldlog.Log, group: str | None) -> None:
    consumer = reader_of_d(log, group)
    recreate(log, partitions=2)
    fill(log, "d", "new")
    log.append("d", b"in the second", partition=1)
    assert sorted(record.value or b"" for record in consumer.poll()) == [b"in the second", b"new0", b"new1", b"new2"]


@GROUPS
def test_a_loop_goes_on_with_the_new_topic(log: foldlog.Log, group: str | None) -> None:
    log.create_topic("d")
    fill(log, "d", "old")
    consumer = log.consumer(["d"], group=group, auto_offset_reset="earliest")
    records = iter(consumer)
    assert next(records).value == b"old0"
    recreate(log)
    fill(log, "d", "new")
    rest = [next(records).value for _ in range(3)]
    while rest[-1] != b"new2":
        rest.append(next(records).value)
    assert rest[-3:] == [b"new0", b"new1", b"new2"]


@GROUPS
def test_latest_means_the_end_of_the_new_topic(log: foldlog.Log, group: str | None) -> None:
    log.create_topic("d")
    fill(log, "d", "old", 5)
    consumer = log.consumer(["d"], group=group)
    recreate(log)
    fill(log, "d", "new", 2)
    assert consumer.poll() == []
    assert consumer.position("d", 0) == 2
    fill(log, "d", "later", 1)
    assert values(consumer.poll()) == [b"later0"]


@pytest.mark.parametrize("how", ["subscribe", "assign"])
def test_closing_commits_nothing_of_the_old_topic_to_the_new_one(log: foldlog.Log, how: str) -> None:
    consumer = reader_of_d(log, "fraud", how)
    recreate(log)
    fill(log, "d", "new")
    consumer.close()
    with log.consumer(["d"], group="fraud", auto_offset_reset="earliest") as other:
        assert other.committed("d", 0) is None
        assert values(other.poll()) == [b"new0", b"new1", b"new2"]


def test_neither_auto_commit_nor_commit_use_the_old_position(log: foldlog.Log, clock: SimClock) -> None:
    consumer = reader_of_d(log, "fraud")
    recreate(log)
    consumer.commit()
    committed = consumer.committed("d", 0)
    assert committed is None or committed.offset == 0
    recreate(log)
    clock.advance(60_000)
    assert consumer.poll() == []
    committed = consumer.committed("d", 0)
    assert committed is None or committed.offset == 0


def test_a_rebalance_commits_nothing_of_the_old_topic(log: foldlog.Log) -> None:
    consumer = reader_of_d(log, "fraud")
    recreate(log)
    fill(log, "d", "new")
    other = log.consumer(["d"], group="fraud", auto_offset_reset="earliest")
    assert other.committed("d", 0) is None
    assert values(consumer.poll() + other.poll()) == [b"new0", b"new1", b"new2"]


def test_committing_a_record_of_the_old_topic_is_refused(log: foldlog.Log) -> None:
    log.create_topic("d")
    fill(log, "d", "old")
    consumer = log.consumer(["d"], group="fraud", auto_offset_reset="earliest", auto_commit=False)
    record = consumer.poll()[-1]
    recreate(log)
    with pytest.raises(NotAssigned, match="deleted and created again"):
        consumer.commit(record)
    assert consumer.committed("d", 0) is None


# --- deleted for good -------------------------------------------------------------------------------------------------


def two_topics(log: foldlog.Log, group: str | None) -> foldlog.Consumer:
    """A consumer that has read topics d and e to their ends; d is then deleted and e goes on."""
    for topic in ("d", "e"):
        log.create_topic(topic)
        fill(log, topic, "old")
    consumer = log.consumer(["d", "e"], group=group, auto_offset_reset="earliest")
    assert len(consumer.poll()) == 6
    log.delete_topic("d")
    fill(log, "e", "new", 1)
    return consumer


@GROUPS
def test_the_other_topic_is_read_on(log: foldlog.Log, group: str | None) -> None:
    consumer = two_topics(log, group)
    assert values(consumer.poll()) == [b"new0"]
    assert consumer.poll() == []
    assert consumer.lag() == {("e", 0): 0}
    with pytest.raises(UnknownTopic):
        consumer.position("d", 0)
    consumer.close()


@GROUPS
def test_a_subscribed_topic_that_comes_back_later_is_read(log: foldlog.Log, group: str | None) -> None:
    consumer = two_topics(log, group)
    assert values(consumer.poll()) == [b"new0"]
    log.create_topic("d")
    fill(log, "d", "new")
    assert values(consumer.poll()) == [b"new0", b"new1", b"new2"]


def test_an_assigned_partition_that_is_gone_is_said_to_be_so_once(log: foldlog.Log) -> None:
    consumer = reader_of_d(log, None, "assign")
    log.delete_topic("d")
    with pytest.raises(UnknownTopic, match="'d'"):
        consumer.poll()
    assert consumer.poll() == []
    log.create_topic("d")
    fill(log, "d", "new")
    assert values(consumer.poll()) == [b"new0", b"new1", b"new2"]


def test_records_that_were_not_read_yet_are_gone_and_the_log_is_not_said_to_be_closed(log: foldlog.Log) -> None:
    log.create_topic("d")
    fill(log, "d", "old")
    consumer = log.consumer(auto_offset_reset="earliest")
    consumer.assign([("d", 0)])
    recreate(log)
    assert consumer.poll() == []
    log.delete_topic("d")
    with pytest.raises(UnknownTopic):
        consumer.poll()


def test_closing_commits_the_other_topic_and_leaves_the_group(log: foldlog.Log) -> None:
    consumer = two_topics(log, "fraud")
    consumer.close()
    with log.consumer(["e"], group="fraud", auto_offset_reset="earliest") as other:
        assert other.assignment() == {("e", 0)}
        assert values(other.poll()) == [b"new0"]


def test_others_can_join_a_group_whose_member_reads_a_deleted_topic(log: foldlog.Log) -> None:
    consumer = two_topics(log, "fraud")
    other = log.consumer(["e"], group="fraud", auto_offset_reset="earliest")
    assert consumer.assignment() | other.assignment() == {("e", 0)}
    assert values(consumer.poll() + other.poll()) == [b"new0"]


def test_commit_leaves_the_deleted_topic_out(log: foldlog.Log) -> None:
    consumer = two_topics(log, "fraud")
    consumer.commit()
    committed = consumer.committed("e", 0)
    assert committed is not None
    assert committed.offset == 3


def test_a_poll_that_waits_goes_on_waiting_for_the_other_topic(log: foldlog.Log) -> None:
    consumer = two_topics(log, None)
    assert values(consumer.poll()) == [b"new0"]
    polled: list[foldlog.Record] = []
    waiting = threading.Thread(target=lambda: polled.extend(consumer.poll(timeout_ms=None)))
    waiting.start()
    fill(log, "e", "later", 1)
    waiting.join(WAIT_S)
    assert values(polled) == [b"later0"]


# --- slices and tails -------------------------------------------------------------------------------------------------


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 the test looks at it
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, raised


@pytest.mark.parametrize("count", [0, 3])
def test_a_tail_that_waits_ends_with_the_deletion(log: foldlog.Log, count: int) -> None:
    log.create_topic("d")
    fill(log, "d", "old", count)
    tail = log.read("d", 0, start="end", follow=True)
    thread, raised = in_thread(lambda: next(tail))
    log.delete_topic("d")
    thread.join(WAIT_S)
    assert [type(error) for error in raised] == [UnknownTopic]
    assert "'d'" in str(raised[0])


def test_a_tail_of_a_topic_deleted_before_its_first_record_ends_at_once(log: foldlog.Log) -> None:
    log.create_topic("d")
    fill(log, "d", "old")
    tail = log.read("d", 0, start="start", follow=True)
    recreate(log)
    with pytest.raises(UnknownTopic):
        next(tail)


def test_a_tail_still_ends_quietly_when_the_log_is_closed(clock: SimClock) -> None:
    log = foldlog.open(":memory:", clock=clock, background=False)
    log.create_topic("d")
    tail = log.read("d", 0, start="end", follow=True)
    thread, raised = in_thread(lambda: list(tail))
    log.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert raised == []


@pytest.fixture
def files_with_d() -> MemoryFiles:
    files = MemoryFiles()
    with foldlog.open(":memory:", files=files, background=False) as log:
        log.create_topic("d")
        fill(log, "d", "old")
    return files


def test_a_slice_begun_before_the_deletion_names_the_topic(files_with_d: MemoryFiles) -> None:
    with Broker.open(":memory:", files=files_with_d, background=False) as broker:
        begun = Slice(broker.partition("d", 0), "start", None, None, (None, None), broker).records()
        broker.delete_topic("d")
        with pytest.raises(UnknownTopic, match="'d'"):
            next(begun)


def test_a_slice_of_a_closed_log_says_that_the_log_is_closed(files_with_d: MemoryFiles) -> None:
    with Broker.open(":memory:", files=files_with_d, background=False) as broker:
        begun = Slice(broker.partition("d", 0), "start", None, None, (None, None), broker).records()
    with pytest.raises(LogClosed):
        next(begun)


@pytest.mark.parametrize("again", [False, True])
def test_a_tail_in_a_reading_process_ends_with_the_deletion(files_with_d: MemoryFiles, again: bool) -> None:
    with (
        Broker.open(":memory:", files=files_with_d, background=False) as writer,
        Broker.open(":memory:", files=files_with_d, mode="r") as reader,
    ):
        wanted = Slice(reader.partition("d", 0), "end", None, None, (None, None), reader)
        tail = wanted.follow(reader.clock, Arrivals(), None)
        thread, raised = in_thread(lambda: next(tail))
        writer.delete_topic("d")
        if again:
            writer.create_topic("d")
        thread.join(WAIT_S)
        assert [type(error) for error in raised] == [UnknownTopic]
