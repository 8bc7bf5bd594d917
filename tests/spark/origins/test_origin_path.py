"""Reading segment files beside their writer: what it says of a topic and of what is missing, and that it reads what
`read_arrow` reads. Real directories; a writer in the same process stands for any other.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import foldlog
from foldlog.errors import DirectoryElsewhere, LogNotFound, RecordsMissing, UnknownTopic
from foldlog.records.arrow import schema
from foldlog.spark.origins.by_path import PathOrigin
from foldlog.spark.origins.origin import Bounds, OffsetRange, OriginSpec, TopicGrowth


@pytest.fixture
def log(tmp_path: Path) -> Iterator[foldlog.Log]:
    with foldlog.open(tmp_path / "log", background=False) as log:
        yield log


@pytest.fixture
def origin(log: foldlog.Log) -> Iterator[PathOrigin]:
    origin = PathOrigin.open(OriginSpec(path=log.path))
    yield origin
    origin.close()


def fill(log: foldlog.Log, topic: str, count: int, **settings: object) -> None:
    log.create_topic(topic, config=settings)
    for number in range(count):
        log.append(topic, f"v{number}", key=f"k{number % 3}", timestamp_ms=1000 * number)


def read(origin: PathOrigin, wanted: OffsetRange, *columns: str, topic_id: str | None = None) -> pa.Table:
    batches = list(origin.read(wanted, columns, topic_id=topic_id))
    return pa.Table.from_batches(batches, schema(columns))


def test_it_reads_what_read_arrow_reads(log: foldlog.Log, origin: PathOrigin) -> None:
    fill(log, "orders", 50, **{"foldlog.segment.records": 7})
    columns = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
    for start, stop in ((0, 50), (3, 31), (13, 14), (20, 20)):
        expected = log.read_arrow("orders", start, stop, columns=columns)
        assert read(origin, OffsetRange("orders", 0, start, stop), *columns).equals(expected)


def test_it_sees_what_is_written_after_it_was_opened(log: foldlog.Log, origin: PathOrigin) -> None:
    assert origin.topics() == []
    fill(log, "orders", 3)
    assert origin.topics() == ["orders"]
    assert origin.bounds("orders") == {0: Bounds(0, 3, 0)}
    log.append("orders", "more")
    assert origin.bounds("orders") == {0: Bounds(0, 4, 0)}
    log.delete_topic("orders")
    with pytest.raises(UnknownTopic):
        origin.topic("orders")


def test_it_tells_what_a_topic_is_and_how_it_grew(log: foldlog.Log, origin: PathOrigin) -> None:
    fill(log, "prices", 2, **{"cleanup.policy": "compact"})
    log.grow_topic("prices", 3)
    facts = origin.topic("prices")
    assert facts.topic_id == log.topic("prices").topic_id
    assert (facts.partition_count, facts.is_compacted) == (3, True)
    assert facts.growths == (TopicGrowth(3, (2,)),)


def test_times_are_looked_up_for_each_partition(log: foldlog.Log, origin: PathOrigin) -> None:
    fill(log, "orders", 5)
    log.grow_topic("orders", 2)
    assert origin.offsets_at("orders", {0: 2500, 1: 0}) == {0: 3, 1: None}
    assert origin.offsets_at("orders", {0: 99_000}) == {0: None}


def test_a_compacted_gap_is_nothing_missing(log: foldlog.Log, origin: PathOrigin) -> None:
    fill(log, "prices", 10, **{"cleanup.policy": "compact", "foldlog.segment.records": 1})
    log.compact("prices")
    assert origin.missing("prices", None, 0, 0) is None
    assert read(origin, OffsetRange("prices", 0, 0, 10), "offset").column("offset").to_pylist() == [7, 8, 9]
    assert read(origin, OffsetRange("prices", 0, 0, 5), "offset").num_rows == 0


def test_what_retention_took_is_expired(log: foldlog.Log, origin: PathOrigin) -> None:
    fill(log, "orders", 10, **{"retention.ms": 1000, "foldlog.segment.records": 2})
    log.enforce_retention("orders")
    start = origin.bounds("orders")[0].start
    assert start > 0
    assert origin.missing("orders", None, 0, start - 1) == "expired"
    assert origin.missing("orders", None, 0, start) is None
    with pytest.raises(RecordsMissing, match="retention has removed") as caught:
        read(origin, OffsetRange("orders", 0, 0, 10), "offset")
    assert caught.value.cause == "expired"


def test_what_was_deleted_is_deleted(log: foldlog.Log, origin: PathOrigin) -> None:
    fill(log, "orders", 10)
    log.delete_records("orders", {0: 4})
    assert origin.missing("orders", None, 0, 3) == "deleted"
    with pytest.raises(RecordsMissing, match="below offset 4 was deleted on request"):
        read(origin, OffsetRange("orders", 0, 3, 10), "offset")
    assert read(origin, OffsetRange("orders", 0, 4, 10), "offset").num_rows == 6
    log.delete_topic("orders")
    assert origin.missing("orders", None, 0, 5) == "deleted"
    with pytest.raises(RecordsMissing, match="the topic was deleted"):
        read(origin, OffsetRange("orders", 0, 4, 10), "offset")


def test_what_lies_beyond_the_end_is_unwritten(log: foldlog.Log, origin: PathOrigin) -> None:
    fill(log, "orders", 3)
    assert origin.missing("orders", None, 0, 3) is None
    assert origin.missing("orders", None, 0, 4) == "unwritten"
    assert origin.missing("orders", None, 1, 0) == "unwritten"
    with pytest.raises(RecordsMissing, match="the log ends at offset 3") as caught:
        read(origin, OffsetRange("orders", 0, 0, 4), "offset")
    assert caught.value.cause == "unwritten"


def test_a_topic_that_was_made_anew_is_another_one(log: foldlog.Log, origin: PathOrigin) -> None:
    fill(log, "orders", 5)
    older = origin.topic("orders").topic_id
    log.delete_topic("orders")
    fill(log, "orders", 5)
    assert origin.missing("orders", older, 0, 3) == "recreated"
    assert origin.missing("orders", log.topic("orders").topic_id, 0, 3) is None
    with pytest.raises(RecordsMissing, match="another one made under its name"):
        read(origin, OffsetRange("orders", 0, 0, 5), "offset", topic_id=older)


def test_a_topic_made_anew_in_the_middle_of_a_read_is_noticed(log: foldlog.Log, origin: PathOrigin) -> None:
    values = pa.array([b"x" * 1_000_000] * 20)  # more than one slice of a read
    log.create_topic("orders")
    log.append_arrow("orders", pa.table({"value": values}))
    facts = origin.topic("orders")
    batches = origin.read(OffsetRange("orders", 0, 0, 20), ["offset"], topic_id=facts.topic_id)
    read_rows = next(batches).num_rows
    log.delete_topic("orders")
    log.create_topic("orders")
    log.append_arrow("orders", pa.table({"value": values}))
    origin.topic("orders")  # looks at the catalog, as any other call would after a moment
    with pytest.raises(RecordsMissing) as caught:
        list(batches)
    assert caught.value.cause == "recreated"
    assert caught.value.wanted == (read_rows, 20)


def test_epochs_tell_a_truncated_log_from_one_that_goes_on(
    log: foldlog.Log, origin: PathOrigin, tmp_path: Path
) -> None:
    fill(log, "orders", 5)
    assert origin.epoch_before("orders", 0, 0) == -1
    assert origin.epoch_before("orders", 0, 5) == 0
    assert origin.missing("orders", None, 0, 5, leader_epoch=0) is None
    # Who was further than the end under this epoch has read what is gone.
    assert origin.missing("orders", None, 0, 6, leader_epoch=0) == "truncated"

    # A copy of the files of an open log is what a crash leaves: it goes on with another epoch.
    shutil.copytree(log.path, tmp_path / "crashed")
    with foldlog.open(tmp_path / "crashed", background=False) as recovered:
        for number in range(3):
            recovered.append("orders", str(number))
        restored = PathOrigin.open(OriginSpec(path=recovered.path))
        assert [restored.epoch_before("orders", 0, offset) for offset in (5, 6, 8)] == [0, 1, 1]
        assert restored.missing("orders", None, 0, 5, leader_epoch=0) is None
        assert restored.missing("orders", None, 0, 6, leader_epoch=1) is None
        # Who has read offset 5 before the crash has read another record than stands there now.
        assert restored.missing("orders", None, 0, 6, leader_epoch=0) == "truncated"
        restored.close()


def test_a_process_that_does_not_see_the_directory_names_its_host_and_the_other_way(
    log: foldlog.Log, origin: PathOrigin, tmp_path: Path
) -> None:
    assert origin.spec.directory_id == log.directory_id
    moved = replace(origin.spec, path=str(tmp_path / "elsewhere"))
    with pytest.raises(DirectoryElsewhere, match=r"host .* does not see the log in .*kafka\.bootstrap\.servers"):
        PathOrigin.open(moved)
    with pytest.raises(LogNotFound, match=r"there is no log in [^;]*; name the directory that holds its catalog"):
        PathOrigin.open(replace(moved, directory_id=None))
    foldlog.open(moved.path or "").close()
    with pytest.raises(DirectoryElsewhere, match="there is another log under that path"):
        PathOrigin.open(moved)


# --- transactions ---------------------------------------------------------------------------------------------------


def test_committed_records_end_where_a_transaction_is_open_and_leave_out_aborted_ones(log: foldlog.Log) -> None:
    fill(log, "orders", 2)
    for value in ("committed", "aborted"):
        with log.transaction("etl") as tx:
            tx.send("orders", value, timestamp_ms=5000).result(60)
            if value == "aborted":
                tx.abort()
    tx = log.transaction("etl")
    tx.send("orders", "open", timestamp_ms=9000).result(60)
    level = {"isolation.level": "read_committed"}
    committed = PathOrigin.open(OriginSpec(path=log.path, properties=level))
    every = PathOrigin.open(OriginSpec(path=log.path))
    assert committed.spec.properties == level  # executors open it with the same
    assert committed.bounds("orders") == {0: Bounds(0, 6, 0)}
    assert every.bounds("orders") == {0: Bounds(0, 7, 0)}
    found = read(committed, OffsetRange("orders", 0, 0, 6), "value")
    assert found.column("value").to_pylist() == [b"v0", b"v1", b"committed"]
    assert read(every, OffsetRange("orders", 0, 0, 7), "value").num_rows == 5
    assert committed.offsets_at("orders", {0: 8000}) == {0: None}
    assert every.offsets_at("orders", {0: 8000}) == {0: 6}
    with pytest.raises(RecordsMissing):
        read(committed, OffsetRange("orders", 0, 0, 7), "value")
    # A reader that has seen all of it, with another isolation, stands behind the end, and waits there.
    assert committed.missing("orders", None, 0, 7, 0) is None
    assert committed.missing("orders", None, 0, 8, 0) == "truncated"
    assert committed.missing("orders", None, 0, 7) == "unwritten"
    tx.commit()
    assert committed.bounds("orders") == {0: Bounds(0, 8, 0)}
    committed.close()
    every.close()
