"""Groups of embedded consumers: who reads what, what is committed, and what happens when members come and go.

In memory, on a clock that stands still unless it is moved. A rebalance needs no polling here: when a consumer is made
or closed, every other member holds its new share at once.
"""

from __future__ import annotations

import gc
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

import foldlog
from client.conftest import WAIT_S
from foldlog.errors import (
    FencedMember,
    GroupError,
    GroupNotEmpty,
    InconsistentProtocol,
    InvalidArgument,
    NotAssigned,
    OffsetOutOfRange,
    UnknownGroup,
    UnknownMember,
)
from foldlog.files.memory import MemoryFiles
from foldlog.testing.sim_clock import SimClock


def fill(log: foldlog.Log, topic: str, partitions: int, each: int = 10) -> None:
    with log.producer() as producer:
        for partition in range(partitions):
            for number in range(each):
                producer.send(topic, b"%d" % number, partition=partition)


def join(log: foldlog.Log, *topics: str, group: str = "fraud", **settings: object) -> foldlog.Consumer:
    settings = {"auto_offset_reset": "earliest", "auto_commit": False, **settings}
    return log.consumer(list(topics) or ["orders"], group=group, **settings)  # type: ignore[arg-type]


def shares(consumers: Sequence[foldlog.Consumer]) -> list[int]:
    return [len(consumer.assignment()) for consumer in consumers]


def check_shared_out(consumers: Sequence[foldlog.Consumer], partitions: int) -> None:
    owned = [partition for consumer in consumers for partition in consumer.assignment()]
    assert sorted(owned) == [("orders", number) for number in range(partitions)]
    assert max(shares(consumers)) - min(shares(consumers)) <= 1


def drain(consumer: foldlog.Consumer) -> list[foldlog.Record]:
    records: list[foldlog.Record] = []
    while more := consumer.poll():
        records += more
    return records


# --- balancing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", [None, "sticky", "range", "roundrobin"])
def test_members_share_the_partitions_and_a_rebalance_needs_no_polling(log: foldlog.Log, assignor: str | None) -> None:
    log.create_topic("orders", partitions=6)
    members: list[foldlog.Consumer] = []
    for _ in range(4):
        members.append(join(log, assignor=assignor))
        check_shared_out(members, 6)
    while len(members) > 1:
        members.pop(0).close()
        check_shared_out(members, 6)


def test_more_members_than_partitions_leaves_some_idle(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    members = [join(log) for _ in range(4)]
    assert sorted(shares(members)) == [0, 0, 1, 1]
    idle = next(member for member in members if not member.assignment())
    assert idle.poll() == []
    idle.commit()


def test_the_default_assignor_keeps_partitions_where_they_are(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=6)
    first, second = join(log), join(log)
    before = first.assignment(), second.assignment()
    third = join(log)
    assert first.assignment() < before[0]
    assert second.assignment() < before[1]
    third.close()
    assert first.assignment() >= before[0] & first.assignment()
    check_shared_out([first, second], 6)


def test_kept_partitions_keep_their_place_and_lost_ones_are_read_on_by_the_new_owner(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    fill(log, "orders", 2)
    first = join(log)
    assert len(drain(first)) == 20
    second = join(log)
    assert drain(first) == [], "what it kept, it does not read again"
    assert [record.offset for record in drain(second)] == list(range(10)), "nothing was committed: it is read again"


def test_two_groups_never_disturb_each_other(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    fill(log, "orders", 2)
    fraud, analytics = join(log, group="fraud"), join(log, group="analytics")
    assert shares([fraud, analytics]) == [2, 2]
    drain(fraud)
    fraud.commit()
    fraud.close()
    assert len(drain(analytics)) == 20
    assert log.committed("analytics") == {}


def test_members_without_a_common_assignor_are_refused(log: foldlog.Log) -> None:
    log.create_topic("orders")
    kept = join(log, assignor="range")
    with pytest.raises(InconsistentProtocol):
        join(log, assignor="roundrobin")
    assert kept.assignment() == {("orders", 0)}
    assert join(log, assignor=None).poll() == [], "who leaves it open, agrees"


def test_members_may_want_different_topics(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    log.create_topic("refunds", partitions=2)
    one, both = join(log, "orders"), join(log, "orders", "refunds")
    assert {topic for topic, _ in one.assignment()} == {"orders"}
    assert both.assignment() >= {("refunds", 0), ("refunds", 1)}


def test_a_topic_that_grows_is_shared_out_at_the_next_poll(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    first, second = join(log, auto_offset_reset="latest"), join(log, auto_offset_reset="latest")
    log.grow_topic("orders", 4)
    log.append("orders", b"early in the new one", partition=3)
    records = first.poll() + second.poll() + first.poll()
    check_shared_out([first, second], 4)
    assert [record.value for record in records] == [b"early in the new one"], "new partitions are read from their start"


def test_a_deleted_topic_is_dropped_at_the_next_poll(log: foldlog.Log) -> None:
    log.create_topic("orders")
    log.create_topic("refunds")
    consumer = join(log, "orders", "refunds")
    log.delete_topic("refunds")
    assert consumer.poll() == []
    assert consumer.assignment() == {("orders", 0)}


def test_a_waiting_member_wakes_up_for_what_it_is_given(log: foldlog.Log) -> None:
    log.create_topic("orders")
    fill(log, "orders", 1)
    first = join(log)
    second = join(log)
    assert second.assignment() == set()
    polled: list[foldlog.Record] = []
    waiting = threading.Thread(target=lambda: polled.extend(second.poll(timeout_ms=WAIT_S * 1000)))
    waiting.start()
    first.close()
    waiting.join(WAIT_S)
    assert len(polled) == 10


def test_many_members_at_once_from_many_threads_end_up_balanced(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=8)
    members: list[foldlog.Consumer] = []
    threads = [threading.Thread(target=lambda: members.append(join(log))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    check_shared_out(members, 8)
    leaving = [threading.Thread(target=member.close) for member in members[2:]]
    for thread in leaving:
        thread.start()
    for thread in leaving:
        thread.join(WAIT_S)
    check_shared_out(members[:2], 8)


# --- falling silent, being dropped ------------------------------------------------------------------------------------


def test_a_member_that_does_not_poll_loses_its_place_and_joins_again_at_its_next_poll(
    log: foldlog.Log, clock: SimClock
) -> None:
    log.create_topic("orders", partitions=2)
    fill(log, "orders", 2)
    busy, silent = join(log, max_poll_interval_ms=10_000), join(log, max_poll_interval_ms=10_000)
    for _ in range(4):
        clock.advance(4_000)
        busy.poll()
    assert shares([busy]) == [2]
    with pytest.raises((UnknownMember, NotAssigned)):
        silent.commit({("orders", 1): 5})
    silent.poll()
    check_shared_out([busy, silent], 2)


def test_a_consumer_that_is_dropped_without_being_closed_leaves_its_group(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    first, second = join(log), join(log)
    assert shares([first, second]) == [1, 1]
    del second
    gc.collect()
    assert shares([first]) == [2]


def test_members_of_a_process_that_died_do_not_haunt_the_group(tmp_path: Path) -> None:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("orders", partitions=2)
        fill(log, "orders", 2)
        dead = join(log)
        drain(dead)
        dead.commit()
        join(log, group="static", group_instance_id="a")
        # What a process that dies now leaves behind.
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with foldlog.open(tmp_path / "copy") as again:
        for group, left in (("fraud", 0), ("static", 20)):
            consumer = join(again, group=group)
            assert consumer.assignment() == {("orders", 0), ("orders", 1)}
            assert len(drain(consumer)) == left


def test_a_static_member_that_comes_back_finds_its_partitions(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=4)
    first, second = join(log, group_instance_id="a"), join(log, group_instance_id="b")
    before = second.assignment()
    second.close()
    assert shares([first]) == [2], "its place is kept"
    second = join(log, group_instance_id="b")
    assert second.assignment() == before
    second.close()
    third = join(log, group_instance_id="c")
    check_shared_out([first, third], 4)


# --- committing -------------------------------------------------------------------------------------------------------


def test_a_commit_survives_a_restart(clock: SimClock, files: MemoryFiles) -> None:
    with foldlog.open("data", clock=clock, files=files) as log:
        log.create_topic("orders")
        fill(log, "orders", 1)
        with join(log) as consumer:
            consumer.poll(max_records=4)
            consumer.commit(metadata="half way")
    with foldlog.open("data", clock=clock, files=files) as log, join(log) as consumer:
        committed = consumer.committed("orders", 0)
        assert committed is not None
        assert (committed.offset, committed.metadata) == (4, "half way")
        assert [record.offset for record in drain(consumer)] == list(range(4, 10))


def test_commit_takes_offsets_a_record_or_nothing(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    fill(log, "orders", 2)
    consumer = join(log)
    records = consumer.poll(max_records=3)
    consumer.commit(records[1], metadata="one of three")
    partition = records[1].partition
    committed = consumer.committed("orders", partition)
    assert committed is not None
    assert (committed.offset, committed.metadata) == (records[1].offset + 1, "one of three")
    consumer.commit({("orders", 0): 7, ("orders", 1): foldlog.OffsetAndMetadata(8, metadata="mine")})
    assert {key: (place.offset, place.metadata) for key, place in log.committed("fraud").items()} == {
        ("orders", 0): (7, ""),
        ("orders", 1): (8, "mine"),
    }
    consumer.commit()
    place = log.committed("fraud")[foldlog.TopicPartition("orders", partition)]
    assert place.offset == consumer.position("orders", partition)
    with pytest.raises(InvalidArgument):
        consumer.commit({("orders", 0): -1})


def test_a_member_cannot_commit_a_partition_it_lost(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    fill(log, "orders", 2)
    first = join(log)
    records = drain(first)
    second = join(log)
    (lost,) = second.assignment()
    (kept,) = first.assignment()
    with pytest.raises(NotAssigned, match=f"{lost.topic}-{lost.partition}"):
        first.commit({lost: 10, kept: 10})
    assert log.committed("fraud") == {}, "nothing of it was committed"
    with pytest.raises(NotAssigned):
        first.commit(next(record for record in records if record.partition == lost.partition))
    with pytest.raises(NotAssigned, match=f"{lost.topic}-{lost.partition}"):
        first.commit()
    assert set(log.committed("fraud")) == {kept}, "what it still holds was committed"
    first.commit()


def test_a_consumer_with_partitions_of_its_own_cannot_commit_for_a_group_with_members(log: foldlog.Log) -> None:
    log.create_topic("orders")
    member = join(log)
    loner = log.consumer(group="fraud")
    loner.assign([("orders", 0)])
    with pytest.raises(GroupNotEmpty):
        loner.commit({("orders", 0): 0})
    member.close()
    loner.commit({("orders", 0): 0})


def test_without_a_commit_none_raises_until_it_is_told_where_to_begin(log: foldlog.Log) -> None:
    log.create_topic("orders")
    fill(log, "orders", 1)
    consumer = join(log, auto_offset_reset="none")
    for call in (consumer.poll, lambda: consumer.position("orders", 0)):
        with pytest.raises(OffsetOutOfRange, match="committed nothing"):
            call()
    consumer.commit()
    assert log.committed("fraud") == {}
    consumer.seek("orders", 0, 8)
    assert [record.offset for record in drain(consumer)] == [8, 9]


# --- auto-commit ------------------------------------------------------------------------------------------------------


def committed_offset(log: foldlog.Log, group: str = "fraud") -> int | None:
    place = log.committed(group).get(foldlog.TopicPartition("orders", 0))
    return None if place is None else place.offset


def test_auto_commit_commits_only_what_was_handed_out_before_the_current_poll(
    log: foldlog.Log, clock: SimClock
) -> None:
    log.create_topic("orders")
    fill(log, "orders", 1)
    consumer = join(log, auto_commit=True, auto_commit_interval_ms=1000)
    consumer.poll(max_records=3)
    clock.advance(1000)
    assert committed_offset(log) is None, "time alone commits nothing"
    consumer.poll(max_records=3)
    assert committed_offset(log) == 3, "the second three are being worked on"
    consumer.poll(max_records=3)
    assert committed_offset(log) == 3, "the interval is not over"
    clock.advance(1000)
    consumer.poll(max_records=1)
    assert committed_offset(log) == 9


def test_a_clean_close_commits_everything_handed_out(log: foldlog.Log) -> None:
    log.create_topic("orders")
    fill(log, "orders", 1)
    with join(log, auto_commit=True) as consumer:
        consumer.poll(max_records=3)
    assert committed_offset(log) == 3


def test_leaving_by_an_exception_does_not_commit_what_may_have_failed(log: foldlog.Log) -> None:
    log.create_topic("orders")
    fill(log, "orders", 1)
    consumer = join(log, auto_commit=True)
    consumer.poll(max_records=3)

    def work_and_fail() -> None:
        with consumer:
            consumer.poll(max_records=3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work_and_fail()
    assert committed_offset(log) == 3


def test_in_a_loop_a_record_counts_when_the_next_one_is_asked_for(log: foldlog.Log) -> None:
    log.create_topic("orders")
    fill(log, "orders", 1)
    with join(log, auto_commit=True) as consumer:
        for record in consumer:
            if record.offset == 4:
                break
    assert committed_offset(log) == 4, "the fifth was not finished, as far as anybody knows"
    with join(log) as consumer:
        for record in consumer:
            consumer.commit()
            if record.offset == 6:
                break
    assert committed_offset(log) == 7, "an explicit commit includes the record in hand"


def test_before_a_rebalance_members_commit_what_they_have_dealt_with(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=2)
    fill(log, "orders", 2)
    first = join(log, auto_commit=True)
    assert len(first.poll(max_records=20)) == 20
    first.poll()
    second = join(log, auto_commit=True)
    assert second.poll() == [], "the new owner goes on where the old one was"


def test_what_was_committed_on_request_is_not_taken_back_by_a_commit_that_happens_by_itself(log: foldlog.Log) -> None:
    log.create_topic("orders")
    for number in range(3):
        log.append("orders", str(number))
    first = log.consumer(["orders"], group="fraud", auto_offset_reset="earliest")
    assert len(first.poll()) == 3
    first.commit()
    log.consumer(["orders"], group="fraud")  # the first commits what it has dealt with before the rebalance
    assert log.committed("fraud")[foldlog.TopicPartition("orders", 0)].offset == 3


def test_a_consumer_that_read_nothing_yet_keeps_its_place_too(log: foldlog.Log) -> None:
    log.create_topic("orders")
    join(log, auto_commit=True, auto_offset_reset="latest").close()
    fill(log, "orders", 1)
    consumer = join(log, auto_commit=True, auto_offset_reset="latest")
    assert len(drain(consumer)) == 10, "written after the group began: not skipped by a second 'latest'"


def test_seeking_back_is_committed_too(log: foldlog.Log) -> None:
    log.create_topic("orders")
    fill(log, "orders", 1)
    with join(log, auto_commit=True) as consumer:
        drain(consumer)
        consumer.commit()
        consumer.seek("orders", 0, 2)
    assert committed_offset(log) == 2


# --- looking after groups ---------------------------------------------------------------------------------------------


def test_groups_can_be_listed_measured_moved_and_deleted(log: foldlog.Log) -> None:
    log.create_topic("orders")
    fill(log, "orders", 1)
    assert log.groups() == []
    member = join(log)
    member.poll(max_records=4)
    member.commit()
    assert log.groups() == ["fraud"]
    assert log.lag("fraud") == {("orders", 0): 6}
    with pytest.raises(GroupNotEmpty):
        log.reset_group("fraud", {("orders", 0): 0})
    with pytest.raises(GroupNotEmpty):
        log.delete_group("fraud")
    member.close()
    log.reset_group("fraud", {("orders", 0): "end"})
    assert log.lag("fraud") == {("orders", 0): 0}
    with pytest.raises(OffsetOutOfRange):
        log.reset_group("fraud", {("orders", 0): 99})
    log.delete_group("fraud")
    assert (log.groups(), log.committed("fraud")) == ([], {})
    with pytest.raises(UnknownGroup):
        log.delete_group("fraud")


def test_closing_the_log_closes_its_consumers(clock: SimClock, files: MemoryFiles) -> None:
    log = foldlog.open("data", clock=clock, files=files)
    log.create_topic("orders")
    fill(log, "orders", 1)
    consumer = join(log, auto_commit=True)
    consumer.poll(max_records=4)
    log.close()
    with pytest.raises((GroupError, foldlog.FoldlogError)):
        consumer.poll()
    with foldlog.open("data", clock=clock, files=files) as again:
        assert committed_offset(again) == 4


def test_a_second_consumer_with_the_same_instance_id_takes_over_and_the_first_is_told(
    log: foldlog.Log, clock: SimClock
) -> None:
    log.create_topic("orders", partitions=2)
    first = join(log, group_instance_id="a")
    second = join(log, group_instance_id="a")
    third = join(log)
    check_shared_out([second, third], 2)
    clock.advance(1000)
    with pytest.raises(FencedMember):
        first.poll()
    first.close()
    check_shared_out([second, third], 2)


def test_members_that_come_and_go_while_records_are_written_miss_none(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=4)
    seen: set[tuple[int, int]] = set()
    expected = 4 * 300
    all_seen = threading.Event()

    def read_for_a_while(rounds: int) -> None:
        while not all_seen.is_set():
            with join(log, auto_commit=True, auto_commit_interval_ms=1) as consumer:
                for _ in range(rounds):
                    for record in consumer.poll(max_records=20, timeout_ms=5):
                        seen.add((record.partition, record.offset))
            if len(seen) == expected:
                all_seen.set()

    readers = [threading.Thread(target=read_for_a_while, args=(rounds,)) for rounds in (3, 5, 8)]
    for reader in readers:
        reader.start()
    with log.producer(linger_ms=0, batch_records=10) as producer:
        for number in range(300):
            for partition in range(4):
                producer.send("orders", b"%d" % number, partition=partition)
    assert all_seen.wait(WAIT_S)
    for reader in readers:
        reader.join(WAIT_S)
    assert seen == {(partition, offset) for partition in range(4) for offset in range(300)}
