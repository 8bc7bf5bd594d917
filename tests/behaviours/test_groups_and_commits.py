"""Groups and commits: members share the partitions of a topic, groups share nothing, a bookmark survives a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

import foldlog
from behaviours.steps import numbered, offsets, poll_records, poll_until, put_many, shared_out, values


def fill(log: foldlog.Log, topic: str, partitions: int, per_partition: int) -> None:
    log.create_topic(topic, partitions=partitions)
    for partition in range(partitions):
        put_many(log, topic, numbered(per_partition), partition=partition)


def test_a_lone_member_gets_every_partition(log: foldlog.Log) -> None:
    fill(log, "orders", 3, 10)
    with log.consumer(["orders"], group="fraud", auto_offset_reset="earliest") as consumer:
        assert len(poll_records(consumer, 30)) == 30
        assert sorted(consumer.assignment()) == [("orders", 0), ("orders", 1), ("orders", 2)]


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
def test_members_share_the_partitions_and_each_has_one_owner(log: foldlog.Log, assignor: str) -> None:
    fill(log, "orders", 6, 1)
    members = [log.consumer(["orders"], group="fraud", assignor=assignor) for _ in range(3)]
    try:
        poll_until(members, shared_out(members, "orders", 6))
        assert [len(member.assignment()) for member in members] == [2, 2, 2]
    finally:
        for member in members:
            member.close()


def test_the_members_of_a_group_split_the_records_between_them(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=4)
    members = [log.consumer(["orders"], group="fraud", auto_offset_reset="earliest") for _ in range(2)]
    try:
        poll_until(members, shared_out(members, "orders", 4))
        for partition in range(4):
            put_many(log, "orders", numbered(25), partition=partition)
        first, second = (poll_records(member, 50) for member in members)
    finally:
        for member in members:
            member.close()
    places = sorted((record.partition, record.offset) for record in [*first, *second])
    assert places == [(partition, offset) for partition in range(4) for offset in range(25)]


def test_a_member_that_leaves_hands_its_partitions_over(log: foldlog.Log) -> None:
    fill(log, "orders", 4, 1)
    staying = log.consumer(["orders"], group="fraud", auto_offset_reset="earliest")
    leaving = log.consumer(["orders"], group="fraud", auto_offset_reset="earliest")
    with staying:
        with leaving:
            poll_until([staying, leaving], shared_out([staying, leaving], "orders", 4))
        poll_until([staying], shared_out([staying], "orders", 4))


def test_more_members_than_partitions_leaves_some_idle(log: foldlog.Log) -> None:
    fill(log, "orders", 2, 1)
    members = [log.consumer(["orders"], group="fraud", auto_offset_reset="earliest") for _ in range(3)]
    try:
        poll_until(members, shared_out(members, "orders", 2))
        assert sorted(len(member.assignment()) for member in members) == [0, 1, 1]
    finally:
        for member in members:
            member.close()


def test_two_groups_read_everything_each_at_its_own_place(log: foldlog.Log) -> None:
    fill(log, "orders", 1, 20)
    with (
        log.consumer(["orders"], group="fraud", auto_offset_reset="earliest", auto_commit=False) as fraud,
        log.consumer(["orders"], group="analytics", auto_offset_reset="earliest", auto_commit=False) as analytics,
    ):
        assert offsets(fraud.poll(max_records=5, timeout_ms=10_000)) == [0, 1, 2, 3, 4]
        fraud.commit()
        assert offsets(poll_records(analytics, 20)) == list(range(20))
        analytics.commit()
        assert (fraud.position("orders", 0), analytics.position("orders", 0)) == (5, 20)
        assert offsets(poll_records(fraud, 15)) == list(range(5, 20))


def test_a_new_use_of_the_data_is_a_new_group_and_nothing_else(log: foldlog.Log) -> None:
    fill(log, "orders", 1, 50)
    for group in ("fraud", "analytics", "warehouse", "search", "audit"):
        with log.consumer(["orders"], group=group, auto_offset_reset="earliest") as consumer:
            assert values(poll_records(consumer, 50)) == numbered(50)


def test_a_new_group_starts_where_it_asks_to(log: foldlog.Log) -> None:
    fill(log, "orders", 1, 5)
    with log.consumer(["orders"], group="all", auto_offset_reset="earliest") as consumer:
        assert offsets(poll_records(consumer, 5)) == [0, 1, 2, 3, 4]
    with log.consumer(["orders"], group="new", auto_offset_reset="latest") as consumer:
        poll_until([consumer], shared_out([consumer], "orders", 1))
        consumer.position("orders", 0)
        put_many(log, "orders", [b"new"])
        assert offsets(poll_records(consumer, 1)) == [5]


def test_a_group_goes_on_at_its_committed_offset(log: foldlog.Log) -> None:
    fill(log, "orders", 1, 10)
    with log.consumer(["orders"], group="fraud", auto_offset_reset="earliest", auto_commit=False) as consumer:
        assert len(consumer.poll(max_records=4, timeout_ms=10_000)) == 4
        consumer.commit()
        assert len(consumer.poll(max_records=4, timeout_ms=10_000)) == 4
    with log.consumer(["orders"], group="fraud", auto_offset_reset="earliest", auto_commit=False) as consumer:
        assert offsets(poll_records(consumer, 6)) == [4, 5, 6, 7, 8, 9]


def test_committed_offsets_survive_a_restart(directory: Path) -> None:
    with foldlog.open(str(directory)) as log:
        fill(log, "orders", 1, 10)
        with log.consumer(["orders"], group="fraud", auto_offset_reset="earliest", auto_commit=False) as consumer:
            assert len(consumer.poll(max_records=7, timeout_ms=10_000)) == 7
            consumer.commit()
    with (
        foldlog.open(str(directory)) as log,
        log.consumer(["orders"], group="fraud", auto_offset_reset="earliest", auto_commit=False) as consumer,
    ):
        assert offsets(poll_records(consumer, 3)) == [7, 8, 9]


def test_lag_is_what_the_group_has_not_been_handed_yet(log: foldlog.Log) -> None:
    fill(log, "orders", 1, 10)
    with log.consumer(["orders"], group="fraud", auto_offset_reset="earliest", auto_commit=False) as consumer:
        assert len(consumer.poll(max_records=4, timeout_ms=10_000)) == 4
        assert consumer.lag() == {("orders", 0): 6}
        assert len(poll_records(consumer, 6)) == 6
        assert consumer.lag() == {("orders", 0): 0}


def test_a_reader_without_a_group_chooses_its_partitions_itself(log: foldlog.Log) -> None:
    fill(log, "orders", 3, 4)
    with log.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([("orders", 1)])
        records = poll_records(consumer, 4)
    assert {record.partition for record in records} == {1}
    assert offsets(records) == [0, 1, 2, 3]


def test_iterating_over_a_consumer_goes_on_with_what_is_written_later(log: foldlog.Log) -> None:
    fill(log, "orders", 1, 2)
    with log.consumer(["orders"], group="fraud", auto_offset_reset="earliest") as consumer:
        tail = iter(consumer)
        assert [next(tail).offset, next(tail).offset] == [0, 1]
        log.append("orders", b"later")
        assert next(tail).offset == 2
