"""Directories that older versions wrote open today: everything reads back, and every writer goes on where it was.

tests/broker/stored has one archive for each; scripts/write_stored_directory.py wrote it with the code of its day, and
`facts.json` in it is what that code read. Each is there twice: `crashed`, whose writer was killed and whose last write
was torn, and `closed`.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import foldlog
from broker.stored_log import PAYMENTS, facts_of, fold, held_by, views_in
from foldlog.broker.broker import Broker
from foldlog.cli.main import main
from foldlog.errors import OutOfOrderSequence
from foldlog.log.partition import Partition
from foldlog.records.loops import BatchBuilder, BatchHeader, walk
from foldlog.testing.sim_clock import SimClock

STORED = sorted((Path(__file__).parent / "stored").glob("*.tar.xz"))


@pytest.fixture(params=STORED, ids=lambda path: path.name.removesuffix(".tar.xz"))
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    (directory,) = tmp_path.iterdir()
    return directory


@pytest.fixture
def facts(stored: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((stored / "facts.json").read_text())
    return found


@pytest.fixture
def clock(facts: dict[str, Any]) -> SimClock:
    """Of the day it was written: places of groups and producers expire with time."""
    return SimClock(facts["written_ms"])


@pytest.fixture(params=["crashed", "closed"])
def directory(request: pytest.FixtureRequest, stored: Path) -> Path:
    return stored / str(request.param)


def log_facts(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: facts[name] for name in ("directory_id", "topics", "groups")}


def test_everything_that_was_in_it_reads_back(directory: Path, facts: dict[str, Any], clock: SimClock) -> None:
    with foldlog.open(directory, clock=clock, background=False) as log:
        assert facts_of(log) == log_facts(facts)
    with foldlog.open(directory, clock=clock, background=False) as log:
        assert facts_of(log) == log_facts(facts)
    with foldlog.open(directory, "r") as log:
        assert facts_of(log) == log_facts(facts)


def test_it_is_read_without_being_opened_for_writing(stored: Path, facts: dict[str, Any]) -> None:
    with foldlog.open(stored / "closed", "r") as log:
        assert facts_of(log) == log_facts(facts)


def test_a_check_finds_it_whole(directory: Path, clock: SimClock, capsys: pytest.CaptureFixture[str]) -> None:
    with foldlog.open(directory, clock=clock, background=False):
        pass
    capsys.readouterr()
    assert main(["check", str(directory)]) == 0, capsys.readouterr()


def test_it_is_written_compacted_and_read_on(directory: Path, facts: dict[str, Any], clock: SimClock) -> None:
    with foldlog.open(directory, clock=clock, background=False) as log:
        for topic, held in facts["topics"].items():
            for number, partition in held["partitions"].items():
                placed = log.append(topic, "one more", key="device-1", partition=int(number))
                assert placed.offset == partition["end"]
        log.compact("latest")
        newest = {record.key: record.value for number in (0, 1) for record in log.read("latest", number)}
        assert newest[b"device-1"] == b"one more"
        assert log.grow_topic(PAYMENTS, 6).partition_count == 6
        with log.consumer(["codecs"], group="billing", auto_commit=False) as reader:
            first: set[tuple[int, int]] = set()
            while len({partition for partition, _ in first}) < 5:
                records = reader.poll(timeout_ms=60_000)
                assert records, f"only {first} came"
                first |= {(one.partition, one.offset) for one in records}
        assert min(offset for partition, offset in first if partition == 2) == 7
        assert {one for one in first if one[0] != 2} == {(0, 60), (1, 60), (3, 60), (4, 60)}


# --- producers --------------------------------------------------------------------------------------------------------


@pytest.fixture
def sensors(directory: Path, clock: SimClock) -> Iterator[Partition]:
    """A partition that two idempotent producers wrote, open for writing."""
    with Broker.open(str(directory), clock=clock, background=False) as broker:
        partition = broker.partition("sensors", 0)
        assert isinstance(partition, Partition)
        yield partition


def newest_batches(partition: Partition) -> dict[int, BatchHeader]:
    """The newest batch of each producer."""
    headers: dict[int, BatchHeader] = {}
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        found = partition.read(offset)
        headers |= {header.producer_id: header for header in walk(found.data).headers}
        offset = found.next_offset
    return headers


def batch_after(last: BatchHeader, skipped: int = 0) -> bytearray:
    builder = BatchBuilder(1 << 20)
    builder.append(last.max_timestamp, None, b"one more")
    after = last.base_sequence + last.record_count + skipped
    return builder.build(producer_id=last.producer_id, producer_epoch=last.producer_epoch, base_sequence=after)


def test_an_idempotent_producer_goes_on_with_its_sequence(sensors: Partition) -> None:
    found = newest_batches(sensors)
    assert len(found) == 2
    for last in found.values():
        with pytest.raises(OutOfOrderSequence):
            sensors.append(batch_after(last, skipped=1))
        end = sensors.log_end_offset
        first = sensors.append(batch_after(last))
        again = sensors.append(batch_after(last))
        assert (first.base_offset, first.is_duplicate) == (end, False)
        assert (again.base_offset, again.is_duplicate) == (end, True)


# --- views ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["table", "counters", "search"])
def test_a_view_goes_on_from_its_bookmark(
    stored: Path, facts: dict[str, Any], clock: SimClock, tmp_path: Path, kind: str
) -> None:
    """And in the end holds what one holds that was made today."""
    with (
        foldlog.open(stored / "crashed", clock=clock, background=False) as log,
        closing(views_in(stored)[kind]) as view,
        closing(views_in(tmp_path / "anew")[kind]) as anew,
    ):
        ends = {number: end for number, (_, end) in log.offsets(PAYMENTS).items()}
        bookmark = view.bookmark()
        assert bookmark is not None
        assert all(0 < position.offset < ends[number] for number, position in bookmark.positions.items())
        assert held_by(view) == facts["views"][kind]
        # Keys move when a topic grows, so what is older than that comes first, as it does in a runner.
        before = [dict(enumerate(growth.ends)) for growth in log.topic(PAYMENTS).growths or ()]
        for stop in (*before, ends):
            fold(log, view, stop)
            fold(log, anew, stop)
        assert held_by(view) == held_by(anew) != facts["views"][kind]
