"""Retention: the log forgets at its head, whole files at a time, by age and by size, whether anyone has read or not.

Age is given to the records (they are sent with old timestamps), so that nothing has to wait.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import foldlog
from behaviours.steps import DAY_MS, now_ms, numbered, offsets, partition_files, poll_records, put, values
from foldlog.errors import OffsetOutOfRange


def append_aged(log: foldlog.Log, topic: str, ages_days: list[float]) -> None:
    """One record per age, each in a batch of its own."""
    for number, age in enumerate(ages_days):
        put(log, topic, b"%d" % number, timestamp_ms=now_ms() - int(age * DAY_MS))


def test_segments_past_their_age_are_deleted_and_newer_ones_stay(log: foldlog.Log, directory: Path) -> None:
    log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 2, "retention.ms": 7 * DAY_MS})
    append_aged(log, "orders", [10, 10, 9, 9, 1, 1, 0])
    log.enforce_retention()
    assert log.offsets("orders") == {0: (4, 7)}
    assert values(log.read("orders", 0, start=4)) == [b"4", b"5", b"6"]
    left = {file.stem for file in (directory / "orders-0").iterdir() if file.stem.isdecimal()}
    assert min(map(int, left)) == 4, "neither a segment nor its indexes are left behind"


def test_everything_is_kept_unless_somebody_asks_for_less(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 1})
    append_aged(log, "orders", [20_000, 400, 8, 6, 0])
    assert log.enforce_retention() == 0
    assert offsets(log.read("orders", 0)) == [0, 1, 2, 3, 4]
    assert log.warnings() == [], "nothing is said where nothing is deleted"


def test_seven_days_are_kept_where_that_is_asked_for(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 1, "retention.ms": 7 * DAY_MS})
    append_aged(log, "orders", [8, 6, 0])
    log.enforce_retention()
    assert offsets(log.read("orders", 0, start=1)) == [1, 2]
    assert log.offsets("orders") == {0: (1, 3)}


def test_who_appends_what_is_too_old_to_stay_is_told_once(log: foldlog.Log, caplog: pytest.LogCaptureFixture) -> None:
    log.create_topic("week", partitions=2, config={"retention.ms": 7 * DAY_MS})
    log.create_topic("stamped", config={"retention.ms": DAY_MS, "message.timestamp.type": "LogAppendTime"})
    log.create_topic("newest", config={"retention.ms": DAY_MS, "cleanup.policy": "compact"})
    put(log, "week", b"new")
    for topic in ("stamped", "newest"):
        log.append(topic, b"old", key="k", timestamp_ms=now_ms() - 30 * DAY_MS)
    assert caplog.messages == []
    for partition in (0, 1, 0):
        log.append("week", b"old", partition=partition, timestamp_ms=now_ms() - 8 * DAY_MS)
    (told,) = caplog.messages
    assert "'week'" in told
    assert "604800000" in told
    assert "retention.ms=-1" in told
    assert log.warnings() == [told]
    log.alter_topic("week", {"retention.ms": DAY_MS})
    put(log, "week", b"old", timestamp_ms=now_ms() - 2 * DAY_MS)
    assert len(log.warnings()) == 2, "with other settings it is another warning"


def test_only_the_last_bytes_are_kept(log: foldlog.Log, directory: Path) -> None:
    log.create_topic("orders", partitions=1, config={"segment.bytes": 2048, "retention.bytes": 6000})
    for number in range(40):
        put(log, "orders", b"%d" % number + b"." * 400)
    log.enforce_retention()
    kept_bytes = sum(file.stat().st_size for file in partition_files(directory, "orders", ".log"))
    start, end = log.offsets("orders")[0]
    assert kept_bytes <= 6000 + 2048
    assert end == 40
    assert 0 < start < 40
    assert offsets(log.read("orders", 0, start=start)) == list(range(start, 40))


def test_retention_takes_whole_segments_from_the_head_only(log: foldlog.Log, directory: Path) -> None:
    log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 2, "retention.ms": 7 * DAY_MS})
    # The old records in the middle are behind newer ones: the head decides.
    append_aged(log, "orders", [10, 10, 1, 1, 10, 10, 0])
    before = {file.name: file.read_bytes() for file in partition_files(directory, "orders", ".log")}
    log.enforce_retention()
    assert log.offsets("orders") == {0: (2, 7)}
    assert offsets(log.read("orders", 0, start=2)) == [2, 3, 4, 5, 6]
    for file in partition_files(directory, "orders", ".log"):
        assert file.read_bytes() == before[file.name], "retention deletes files, it rewrites none"


def test_retention_does_not_ask_who_has_read(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 2, "retention.ms": 7 * DAY_MS})
    append_aged(log, "orders", [1, 1, 0, 0])
    with log.consumer(["orders"], group="done", auto_offset_reset="earliest", auto_commit=False) as consumer:
        assert len(poll_records(consumer, 4)) == 4
        consumer.commit()
    log.enforce_retention()
    assert log.offsets("orders") == {0: (0, 4)}, "read and committed, but young: it stays"

    log.create_topic("unread", partitions=1, config={"foldlog.segment.records": 2, "retention.ms": 7 * DAY_MS})
    append_aged(log, "unread", [10, 10, 0])
    log.enforce_retention()
    assert log.offsets("unread") == {0: (2, 3)}, "never read, but old: it goes"


def test_a_reader_is_told_what_became_of_an_expired_offset(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 2, "retention.ms": 7 * DAY_MS})
    append_aged(log, "orders", [10, 10, 0])
    log.enforce_retention()
    with pytest.raises(OffsetOutOfRange) as refused:
        list(log.read("orders", 0, start=1))
    assert (refused.value.wanted, refused.value.start, refused.value.end) == (1, 2, 3)
    assert "retention" in refused.value.why


def test_a_group_that_fell_behind_retention_goes_on_where_the_log_starts(log: foldlog.Log) -> None:
    log.create_topic("orders", partitions=1, config={"foldlog.segment.records": 2, "retention.ms": 7 * DAY_MS})
    append_aged(log, "orders", [10, 10, 0, 0])
    with log.consumer(["orders"], group="late", auto_offset_reset="earliest", auto_commit=False) as consumer:
        assert offsets(consumer.poll(max_records=1, timeout_ms=10_000)) == [0]
        consumer.commit()
    log.enforce_retention()
    with log.consumer(["orders"], group="late", auto_offset_reset="earliest", auto_commit=False) as consumer:
        assert offsets(poll_records(consumer, 2)) == [2, 3]


def test_the_longer_the_retention_the_further_back_a_replay_can_start(log: foldlog.Log) -> None:
    log.create_topic("week", partitions=1, config={"foldlog.segment.records": 1, "retention.ms": 7 * DAY_MS})
    log.create_topic("hour", partitions=1, config={"foldlog.segment.records": 1, "retention.ms": DAY_MS // 24})
    log.create_topic("forever", partitions=1, config={"foldlog.segment.records": 1, "retention.ms": -1})
    for topic in ("week", "hour", "forever"):
        append_aged(log, topic, [400, 6, 1, 0])
    log.enforce_retention()
    starts = {topic: log.offsets(topic)[0][0] for topic in ("week", "hour", "forever")}
    assert starts == {"week": 1, "hour": 3, "forever": 0}
    assert values(log.read("forever", 0)) == numbered(4)
