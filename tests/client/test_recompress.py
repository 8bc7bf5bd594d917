"""`Log.recompress`: a topic's records in another codec, on real files; how the files change is shown in
tests/log/test_recompression.py, what a power cut leaves of it in tests/faults/test_power_loss.py."""

from __future__ import annotations

from pathlib import Path

import pytest

import foldlog
from foldlog.errors import InvalidArgument, ReadOnly, UnknownTopic


def sizes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*.log"))


def test_a_topic_gets_smaller_on_disk_and_reads_as_before(tmp_path: Path) -> None:
    with foldlog.open(tmp_path) as log:
        log.create_topic("orders", partitions=2, config={"segment.bytes": 4096})
        for number in range(40):
            log.append("orders", f"order {number} ".ljust(600, "."), partition=number % 2)
        before, size_before = [list(log.read("orders", number)) for number in (0, 1)], sizes(tmp_path)
        reports = log.recompress("orders", "zstd")
        assert [list(log.read("orders", number)) for number in (0, 1)] == before
        assert set(reports) == {("orders", 0), ("orders", 1)}
        saved = sum(report.bytes_before - report.bytes_after for report in reports.values())
        assert sizes(tmp_path) == size_before - saved < size_before / 2
    with foldlog.open(tmp_path, "r") as log:
        assert [list(log.read("orders", number)) for number in (0, 1)] == before


def test_an_unknown_codec_or_topic_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    with foldlog.open(tmp_path) as log:
        log.create_topic("orders")
        log.append("orders", "paid " * 100)
        with pytest.raises(InvalidArgument, match="there is no compression 'brotli'; use one of none, gzip"):
            log.recompress("orders", "brotli")
        with pytest.raises(UnknownTopic):
            log.recompress("payments", "zstd")
        assert [path.name for path in tmp_path.rglob("*.log")] == [f"{0:020d}.log"]


def test_a_log_that_another_process_writes_is_recompressed_by_that_one_alone(tmp_path: Path) -> None:
    with foldlog.open(tmp_path, listen=True) as writer:
        writer.create_topic("orders")
        with foldlog.open(tmp_path, "r") as reader, pytest.raises(ReadOnly):
            reader.recompress("orders", "zstd")
