"""One group, whose members are in the coordinator's own process, in others, and Kafka clients: every partition is read
by exactly one of them, whoever comes, goes, falls silent or dies.

The coordinator's log and the remote ones are in this process, on real files and sockets; one test has real processes.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer

import foldlog
from client.log_places import WAIT_MS, polled
from client.serving import wait_until
from faults.processes import child, next_line, tell
from foldlog import limits
from foldlog.client.backends.backend import backend_of
from foldlog.client.backends.served import session
from foldlog.client.consumer.assignments import shares as shares_of
from foldlog.client.consumer.assignments import take_share
from foldlog.client.wire import group_session, questions
from foldlog.client.wire.questions import Asker
from foldlog.errors import (
    FencedMember,
    GroupNotEmpty,
    InconsistentProtocol,
    NotAssigned,
    UnknownMember,
    WriterUnreachable,
)
from foldlog.testing.sim_clock import SimClock

PARTITIONS = 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def writer(path: Path) -> Iterator[foldlog.Log]:
    with foldlog.open(path, listen=True) as log:
        log.create_topic("orders", partitions=PARTITIONS)
        yield log


@pytest.fixture
def remote(path: Path, writer: foldlog.Log) -> Iterator[foldlog.Log]:
    with foldlog.open(path) as log:
        assert log.is_remote
        yield log


def member(log: foldlog.Log, **settings: object) -> foldlog.Consumer:
    return log.consumer(["orders"], group="fraud", auto_offset_reset="earliest", **settings)  # type: ignore[arg-type]


def shares(*consumers: foldlog.Consumer) -> list[int]:
    return [len(consumer.assignment()) for consumer in consumers]


def settle(*consumers: foldlog.Consumer) -> None:
    """Poll until every partition is assigned to one of these, and none has more than its share."""

    def is_settled() -> bool:
        held = [partition for consumer in consumers for partition in consumer.assignment()]
        return (
            sorted(held) == [("orders", number) for number in range(PARTITIONS)]
            and max(shares(*consumers)) * len(consumers) == PARTITIONS
        )

    wait_until(is_settled, lambda: [consumer.poll(timeout_ms=20) for consumer in consumers])


def test_members_of_one_process_share_at_once(remote: foldlog.Log) -> None:
    first = member(remote)
    assert shares(first) == [6]
    second = member(remote)
    assert shares(first, second) == [3, 3]
    third = member(remote)
    assert shares(first, second, third) == [2, 2, 2]
    second.close()
    assert shares(first, third) == [3, 3]
    first.close()
    assert shares(third) == [6]
    third.close()
    assert remote.groups() == ["fraud"], "its commits are kept"


def test_members_of_two_processes_share(path: Path, writer: foldlog.Log, remote: foldlog.Log) -> None:
    here = member(writer)
    there = member(remote)
    with foldlog.open(path) as third_log:
        third = member(third_log)
        settle(here, there, third)
        assert shares(here, there, third) == [2, 2, 2]
    settle(here, there)
    here.close()
    settle(there)


def test_a_kafka_client_is_a_member_like_the_others(writer: foldlog.Log, remote: foldlog.Log) -> None:
    ours = member(remote, assignor="range")
    with pytest.raises(InconsistentProtocol):
        member(remote, assignor="roundrobin")
    theirs = KafkaConsumer(
        {
            "bootstrap.servers": writer.bootstrap,
            "group.id": "fraud",
            "partition.assignment.strategy": "range",
            "auto.offset.reset": "earliest",
        }
    )
    theirs.subscribe(["orders"])
    wait_until(
        lambda: (len(theirs.assignment()), len(ours.assignment())) == (3, 3),
        lambda: (theirs.poll(0.02), ours.poll(timeout_ms=1)),
    )
    read = {one.partition for one in ours.assignment()} | {one.partition for one in theirs.assignment()}
    assert read == set(range(PARTITIONS))
    theirs.close()
    settle(ours)
    ours.close()


def test_every_record_is_read_once_while_members_come_and_go(writer: foldlog.Log, remote: foldlog.Log) -> None:
    """Each member deals with what it polled before it polls again, so nothing is read twice without a crash."""
    with writer.producer(batch_records=10) as producer:
        for number in range(2000):
            producer.send("orders", str(number), partition=number % PARTITIONS)
    seen: list[bytes] = []
    consumers = [member(remote, max_records=50)]
    steps = itertools.count()

    def go_on() -> None:
        step = next(steps)
        if step in (3, 6, 9):
            consumers.append(member(writer if step == 6 else remote, max_records=50))
        if step in (12, 15):
            consumers.pop(0).close()
        for consumer in consumers:
            polled = consumer.poll(timeout_ms=20)
            seen.extend(record.value for record in polled)
            if polled:  # who gets nothing may just be joining again, and a commit of that moment would be refused
                consumer.commit()

    wait_until(lambda: len(seen) >= 2000, go_on)
    for consumer in consumers:
        consumer.close()
    assert sorted(seen, key=int) == [b"%d" % number for number in range(2000)]


def test_a_lost_partition_cannot_be_committed(remote: foldlog.Log) -> None:
    first = member(remote, auto_commit=False)
    second = member(remote)
    lost = second.assignment().pop()
    with pytest.raises(NotAssigned):
        first.commit({lost: 1})
    kept = first.assignment().pop()
    first.commit({kept: 0})
    assert remote.committed("fraud")[kept].offset == 0


def test_a_grown_topic_is_shared_anew(writer: foldlog.Log, remote: foldlog.Log) -> None:
    first, second = member(remote), member(remote)
    writer.grow_topic("orders", 8)
    wait_until(lambda: shares(first, second) == [4, 4], lambda: (first.poll(timeout_ms=20), second.poll()))


def test_a_dropped_consumer_leaves_by_itself(remote: foldlog.Log) -> None:
    first, dropped = member(remote), member(remote)
    assert shares(first) == [3]
    del dropped
    gc.collect()
    settle(first)


def test_a_static_member_comes_back_to_its_share(path: Path, writer: foldlog.Log, remote: foldlog.Log) -> None:
    other = member(remote)
    static = member(remote, group_instance_id="worker-1")
    settle(other, static)
    share = static.assignment()
    static.close()
    assert other.assignment() & share == set(), "the place is kept"
    with foldlog.open(path) as again:
        back = member(again, group_instance_id="worker-1")
        assert back.assignment() == share
        with foldlog.open(path) as thief_log:
            thief = member(thief_log, group_instance_id="worker-1")
            with pytest.raises(FencedMember):
                wait_until(lambda: False, lambda: back.poll(timeout_ms=20))
            assert thief.assignment() == share


def test_a_member_that_does_not_poll_loses_its_share_and_comes_back(path: Path, writer: foldlog.Log) -> None:
    clock = SimClock()
    with foldlog.open(path) as other_log, foldlog.open(path, clock=clock) as slow_log:
        slow = member(slow_log, max_poll_interval_ms=30_000)
        other = member(other_log)
        settle(slow, other)
        clock.advance(31_000)
        settle(other)
        assert shares(slow) == [0]
        settle(slow, other)
        assert shares(slow, other) == [3, 3]


def test_without_a_coordinator_nobody_can_join(path: Path, remote: foldlog.Log, writer: foldlog.Log) -> None:
    writer.close()
    with pytest.raises(WriterUnreachable, match="nobody serves the directory now"):
        member(remote)


def test_members_live_through_a_restart_of_the_coordinator(
    path: Path, remote: foldlog.Log, writer: foldlog.Log
) -> None:
    first, second = member(remote), member(remote)
    before = first.assignment()
    generation = first._reading._member.generation  # type: ignore[attr-defined]
    for number in range(PARTITIONS):
        writer.append("orders", "one", partition=number)
    writer.close()
    assert [record.value for record in first.poll(timeout_ms=5000)] == [b"one"] * 3, "reading goes on meanwhile"
    first.commit()  # as the writer for a moment
    with foldlog.open(path, listen=True) as next_writer:
        next_writer.append("orders", "two", partition=min(before).partition)
        wait_until(
            lambda: [record.value for record in first.poll(timeout_ms=20)] == [b"two"],
            second.poll,
        )
        first.commit()
        assert first.assignment() == before
        assert first._reading._member.generation == generation, "nobody had to join again"  # type: ignore[attr-defined]
        assert remote.committed("fraud")[min(before)].offset == 2
        first.close()
        second.close()


MEMBER = """
import foldlog.limits
foldlog.limits.MEMBER_SESSION_MS = 1000  # how long a killed one is waited for
with foldlog.open(sys.argv[1]) as log:
    assert log.is_remote
    consumer = log.consumer(["orders"], group="fraud", auto_offset_reset="earliest")
    say("joined")
    while True:
        consumer.poll(timeout_ms=50)
        say(str(len(consumer.assignment())))
        if not sys.stdin.readline().strip():
            break
"""


def test_members_in_real_processes_share_and_a_killed_one_is_replaced(path: Path, writer: foldlog.Log) -> None:
    with child(MEMBER, str(path)) as one, child(MEMBER, str(path)) as two:

        def ask(process: object) -> int:
            tell(process, "again")  # type: ignore[arg-type]
            return int(next_line(process))  # type: ignore[arg-type]

        for process in (one, two):
            assert next_line(process) == "joined"
            next_line(process)
        counts = [0, 0]

        def poll() -> None:
            counts[:] = [ask(one), ask(two)]

        wait_until(lambda: counts == [3, 3], poll)
        one.kill()
        wait_until(lambda: counts[1] == PARTITIONS, lambda: counts.__setitem__(1, ask(two)))
        tell(two, "")


def test_members_that_are_back_before_the_commit_are_sent_away_again_and_in_the_end_named(
    remote: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The eviction is made to leave the member in place, as if it had come back at once."""
    evictions = 0
    really = questions.evict_members

    def as_if_they_came_back(asker: Asker, group: str) -> None:
        nonlocal evictions
        evictions += 1
        if evictions == 3:
            really(asker, group)

    monkeypatch.setattr(questions, "evict_members", as_if_they_came_back)
    monkeypatch.setattr(limits, "EVICTION_PAUSE_MS", 0)
    with member(remote):
        remote.reset_group("fraud", {("orders", 0): "start"}, evict=True)
        assert evictions == 3
    with member(remote):
        evictions = 3
        (there,) = remote.describe_group("fraud").members
        with pytest.raises(GroupNotEmpty) as caught:
            remote.reset_group("fraud", {("orders", 0): "start"}, evict=True)
        assert caught.value.members == [there.name]
        assert "they came back each time they were removed: stop them" in str(caught.value)
        assert "evict" not in str(caught.value)
        assert evictions == 3 + limits.EVICTION_TRIES_MAX


def held_by(consumer: foldlog.Consumer) -> str:
    """As whom it holds its share; "" while it holds none."""
    return consumer._reading._member.held.member_id  # type: ignore[attr-defined, no-any-return]


def wait_until_back(consumer: foldlog.Consumer, before: str) -> None:
    """Until it is another member than `before`; it is not polled meanwhile, and does not know that it was away."""
    wait_until(lambda: held_by(consumer) not in (before, ""), lambda: consumer.committed("orders", 0))


def fill(log: foldlog.Log) -> None:
    for number in range(5):
        log.append("orders", str(number), partition=0)


@pytest.mark.parametrize(
    "commits",
    [
        lambda consumer, records: consumer.commit(),
        lambda consumer, records: consumer.commit(records[-1]),
        lambda consumer, records: consumer.commit({("orders", 0): 5}),
    ],
    ids=["everything", "up to a record", "an offset"],
)
def test_who_is_back_cannot_commit_what_it_read_before_it_was_sent_away(
    remote: foldlog.Log, commits: Callable[[foldlog.Consumer, list[foldlog.Record]], None]
) -> None:
    fill(remote)
    with member(remote, auto_commit=False) as consumer:
        records = polled(consumer, 5)
        before = held_by(consumer)
        remote.reset_group("fraud", {("orders", 0): 2}, evict=True)
        wait_until_back(consumer, before)
        with pytest.raises(NotAssigned):
            commits(consumer, records)
        assert remote.committed("fraud")[foldlog.TopicPartition("orders", 0)].offset == 2
        again = polled(consumer, 3)
        assert [record.offset for record in again] == [2, 3, 4]
        consumer.commit(again[-1])
    assert remote.committed("fraud")[foldlog.TopicPartition("orders", 0)].offset == 5


def test_closing_does_not_commit_what_was_read_before_it_was_sent_away(remote: foldlog.Log) -> None:
    fill(remote)
    with member(remote) as consumer:
        polled(consumer, 5)
        before = held_by(consumer)
        remote.reset_group("fraud", {("orders", 0): 2}, evict=True)
        wait_until_back(consumer, before)
    assert remote.committed("fraud")[foldlog.TopicPartition("orders", 0)].offset == 2


def test_an_auto_commit_that_is_refused_late_is_not_repeated_by_who_is_back(
    remote: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal of who was evicted arrives when it is a member again: those offsets are not the new member's."""
    fill(remote)
    backend = backend_of(remote).broker  # type: ignore[attr-defined]
    really = backend.commit_offsets
    refused: list[str] = []

    def answered_late(*asked: Any, **as_whom: Any) -> None:
        try:
            really(*asked, **as_whom)
        except UnknownMember:
            refused.append(as_whom["member_id"])
            wait_until_back(consumer, as_whom["member_id"])
            raise

    with member(remote, auto_commit_interval_ms=1) as consumer:
        polled(consumer, 5)
        before = held_by(consumer)
        remote.reset_group("fraud", {("orders", 0): 2}, evict=True)
        monkeypatch.setattr(backend, "commit_offsets", answered_late)
        assert [record.offset for record in polled(consumer, 3)] == [2, 3, 4]
        assert refused == [before]
    assert remote.committed("fraud")[foldlog.TopicPartition("orders", 0)].offset == 5


def test_a_refused_commit_makes_the_member_ask_its_group_at_once(
    remote: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting in ("MEMBER_HEARTBEAT_MS", "MEMBER_SESSION_MS"):
        monkeypatch.setattr(group_session, setting, 10 * WAIT_MS)  # no heartbeat comes in time by itself
    fill(remote)
    with member(remote, auto_commit_interval_ms=1, max_poll_interval_ms=10 * WAIT_MS) as consumer:
        polled(consumer, 5)
        remote.reset_group("fraud", {("orders", 0): 2}, evict=True)
        assert [record.offset for record in polled(consumer, 3)] == [2, 3, 4]


def test_nothing_is_handed_out_until_the_share_is_known(
    path: Path, writer: foldlog.Log, remote: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader, in another process, takes its time: what a member holds may be another's by then."""
    leader, here = member(remote), member(writer)
    settle(leader, here)
    for number in range(PARTITIONS):
        writer.append("orders", str(number), partition=number)
    mine = here._reading._member  # type: ignore[attr-defined]
    generation = mine.generation
    may_assign = Event()

    def assigned_late(*asked: Any) -> dict[str, bytes]:
        assert may_assign.wait(WAIT_MS / 1000)
        return shares_of(*asked)

    def taken(backend: Any, of: Any, *share: Any) -> None:
        were_joining.append(of.is_joining)
        take_share(backend, of, *share)

    were_joining: list[bool] = []
    monkeypatch.setattr(session, "shares", assigned_late)
    monkeypatch.setattr(session, "take_share", taken)
    with ThreadPoolExecutor(1) as pool, foldlog.open(path) as third_log:
        third = pool.submit(member, third_log)
        wait_until(lambda: mine.generation > generation, lambda: writer.describe_group("fraud"))
        assert here.poll() == []
        may_assign.set()
        settle(leader, here, third.result(WAIT_MS / 1000))
    assert were_joining
    assert all(were_joining)
