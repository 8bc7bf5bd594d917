"""Readers: any number, each with a place of its own, and none in the way of the producer or of another reader."""

from __future__ import annotations

import threading
from itertools import islice
from pathlib import Path

import foldlog
from behaviours.steps import WAIT_S, numbered, offsets, poll_records, put_many, run_python, start_python, values


def test_three_readers_at_three_places_do_not_disturb_each_other(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1)
    put_many(log, "payments", numbered(8))
    readers = {start: iter(log.read("payments", 0, start=start)) for start in (3, 5, 1)}
    seen: dict[int, list[int]] = {start: [] for start in readers}
    # Step by step in turns, so that a shared place would show.
    for _ in range(3):
        for start, reader in readers.items():
            seen[start].append(next(reader).offset)
    assert seen == {3: [3, 4, 5], 5: [5, 6, 7], 1: [1, 2, 3]}


def test_a_reader_that_takes_three_and_pauses_goes_on_from_its_own_place(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1)
    put_many(log, "payments", numbered(8))
    reader = iter(log.read("payments", 0, start=0))
    assert offsets(islice(reader, 3)) == [0, 1, 2]
    put_many(log, "payments", numbered(100, first=8))
    assert offsets(log.read("payments", 0)) == list(range(108))
    assert offsets(islice(reader, 5)) == [3, 4, 5, 6, 7]


def test_a_tail_sees_only_what_is_written_from_now_on(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1)
    put_many(log, "payments", numbered(8))
    tail = iter(log.read("payments", 0, start="end", follow=True))
    log.append("payments", b"ninth")
    record = next(tail)
    assert (record.offset, record.value) == (8, b"ninth")


def test_a_tail_waits_for_the_next_record(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1)
    tail = iter(log.read("payments", 0, start="end", follow=True))
    seen: list[foldlog.Record] = []
    done = threading.Event()

    def follow() -> None:
        seen.extend(islice(tail, 3))
        done.set()

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    assert not seen
    for number in range(3):
        log.append("payments", b"%d" % number)
    assert done.wait(WAIT_S)
    assert values(seen) == numbered(3)


def test_a_paused_reader_does_not_hold_up_the_producer(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1, config={"foldlog.segment.records": 100})
    put_many(log, "payments", numbered(10))
    paused = iter(log.read("payments", 0, start=0))
    next(paused)
    with log.consumer(["payments"], group="slow", auto_offset_reset="earliest") as slow:
        assert slow.poll(max_records=1, timeout_ms=10_000)
        put_many(log, "payments", numbered(2000, first=10))
        assert log.offsets("payments") == {0: (0, 2010)}


def test_a_slow_reader_does_not_hold_up_a_fast_one(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1)
    put_many(log, "payments", numbered(1000))
    with (
        log.consumer(["payments"], group="slow", auto_offset_reset="earliest") as slow,
        log.consumer(["payments"], group="fast", auto_offset_reset="earliest") as fast,
    ):
        assert offsets(slow.poll(max_records=1, timeout_ms=10_000)) == [0]
        assert len(poll_records(fast, 1000)) == 1000
        assert offsets(slow.poll(max_records=1, timeout_ms=10_000)) == [1]


def test_the_log_keeps_no_trace_of_a_reader_without_a_group(log: foldlog.Log, directory: Path) -> None:
    log.create_topic("payments", partitions=1)
    put_many(log, "payments", numbered(50))
    before = sorted(path.relative_to(directory) for path in directory.rglob("*"))
    for start in range(50):
        list(log.read("payments", 0, start=start))
    assert sorted(path.relative_to(directory) for path in directory.rglob("*")) == before


def test_a_reader_that_joins_later_walks_the_whole_history(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1)
    put_many(log, "payments", numbered(300))
    with log.consumer(["payments"], group="first", auto_offset_reset="earliest") as first:
        assert len(poll_records(first, 300)) == 300
        first.commit()
    with log.consumer(["payments"], group="newcomer", auto_offset_reset="earliest") as newcomer:
        assert values(poll_records(newcomer, 300)) == numbered(300)


def test_readers_pull_and_nothing_is_lost_while_they_do_not(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1)
    reader = iter(log.read("payments", 0, start=0, follow=True))
    put_many(log, "payments", numbered(5000))
    assert values(islice(reader, 5000)) == numbered(5000)


def test_readers_in_threads_see_a_growing_log_without_a_gap(log: foldlog.Log) -> None:
    log.create_topic("payments", partitions=1, config={"segment.bytes": 4096})
    seen: dict[int, list[int]] = {}

    def follow(reader: int) -> None:
        seen[reader] = offsets(islice(log.read("payments", 0, start=0, follow=True), 1000))

    threads = [threading.Thread(target=follow, args=(reader,), daemon=True) for reader in range(3)]
    for thread in threads:
        thread.start()
    for first in range(0, 1000, 100):
        put_many(log, "payments", numbered(100, first=first))
    for thread in threads:
        thread.join(WAIT_S)
    assert seen == {reader: list(range(1000)) for reader in range(3)}


READ_ALL = """
import sys, foldlog
with foldlog.open(sys.argv[1], mode="r") as log:
    print([record.value.decode() for record in log.read("payments", 0)])
"""

FOLLOW = """
import sys, foldlog
with foldlog.open(sys.argv[1], mode="r") as log:
    tail = iter(log.read("payments", 0, start="end", follow=True))
    print("ready", flush=True)
    for _ in range(3):
        print(next(tail).value.decode(), flush=True)
"""


def test_other_processes_read_the_same_log_while_it_is_written(log: foldlog.Log, directory: Path) -> None:
    log.create_topic("payments", partitions=1)
    put_many(log, "payments", numbered(4))
    assert run_python(READ_ALL, str(directory)).strip() == "['0', '1', '2', '3']"
    with start_python(FOLLOW, str(directory)) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "ready\n"
        for number in range(4, 7):
            log.append("payments", b"%d" % number)
        assert [follower.stdout.readline().strip() for _ in range(3)] == ["4", "5", "6"]
        assert follower.wait(WAIT_S) == 0
