"""`foldlog bench` measures a real log on a real disk, or a real broker, within its bounds, and leaves nothing behind:
not at its end, not where it is interrupted. What the figures are is not tested: that is what it is for."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foldlog
from cli.command import WAIT_S, start
from foldlog.cli.bench.measures import Load, Tally, in_turns
from foldlog.cli.main import main

QUICK = ("--records", "20", "--seconds", "50ms", "--size", "64")
OF_THE_LOG = ["append, one by one", "append, in batches", "read back", "append to reader"]
OF_THE_DISK = ["disk: sync of one record", "disk: one large write"]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[foldlog.Log]:
    with foldlog.open(tmp_path / "data", listen=True) as log:
        log.create_topic("orders")
        log.append("orders", "paid")
        yield log


def measured(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, Any]]:
    assert main(["bench", *QUICK, *arguments, "--format", "json"]) == 0
    return {row["measure"]: row for row in json.loads(capsys.readouterr().out)}


def files_in(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def test_a_directory_without_a_log_is_measured_with_its_disk_and_left_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = measured(capsys, "-d", str(tmp_path))
    assert list(rows) == [*OF_THE_LOG, *OF_THE_DISK]
    for row in rows.values():
        assert row["count"] > 0
        assert row["per_s"] > 0
    for name in ("append, one by one", "append to reader"):
        assert 0 < rows[name]["p50_ms"] <= rows[name]["p99_ms"]
        assert rows[name]["ratio"] == rows[name]["p50_ms"] / rows[OF_THE_DISK[0]]["p50_ms"]
    assert rows["append, in batches"]["ratio"] > 0
    assert files_in(tmp_path) == set()


def test_a_log_keeps_its_own_topics_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with foldlog.open(tmp_path) as log:
        log.create_topic("orders")
        log.append("orders", "paid")
    before = files_in(tmp_path)
    assert main(["bench", *QUICK, "-d", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert [line.split("  ")[0] for line in told.out.splitlines()[1:]] == [*OF_THE_LOG, *OF_THE_DISK]
    assert "VS DISK" in told.err
    assert files_in(tmp_path) == before
    with foldlog.open(tmp_path, "r") as log:
        assert log.topics() == ["orders"]
        assert [record.value for record in log.read("orders")] == [b"paid"]


def test_a_broker_is_measured_without_its_disk_and_keeps_its_own_topics(
    log: foldlog.Log, capsys: pytest.CaptureFixture[str]
) -> None:
    assert log.bootstrap is not None
    rows = measured(capsys, "-b", log.bootstrap)
    assert list(rows) == OF_THE_LOG
    assert all(row["ratio"] is None for row in rows.values())
    assert log.topics() == ["orders"]


def test_an_interrupted_measurement_removes_what_it_made(tmp_path: Path) -> None:
    """The directory is looked at until the measurement has begun; it would last for minutes."""
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = start("bench", "-d", str(tmp_path), "--seconds", "100", "--records", "1000000")
        try:
            while not list(tmp_path.glob(".foldlog-bench-*/foldlog-bench-*/*.log")):
                assert process.poll() is None, process.communicate()
            process.send_signal(number)
            _, told = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
        assert (process.returncode, told) == (code, b"")
        assert files_in(tmp_path) == set()


def test_what_cannot_be_measured_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, sentence in (
        (["-d", str(tmp_path / "nowhere")], "there is no directory"),
        (["-d", str(tmp_path), "--records", "0"], "argument --records: '0' is not a whole number from 1 to"),
        (["-d", str(tmp_path), "--size", "2MiB"], "--size is from 1 to 1000000, not 2097152"),
        (["-d", str(tmp_path), "--seconds", "1h"], "--seconds is from 0.001 to 600, not 3600"),
        (["-d", str(tmp_path), "--seconds", "soon"], "is not a time"),
        (["-d", str(tmp_path), "--records", "1000000000", "--size", "1000000"], "say fewer --records"),
    ):
        assert main(["bench", *arguments]) == 2
        assert sentence in capsys.readouterr().err
    assert files_in(tmp_path) == set()


def test_measurements_take_turns_and_share_the_time_and_the_count() -> None:
    turns: list[tuple[str, int, float]] = []
    in_turns(
        Load(100, 10, 5.0),
        lambda most, seconds: turns.append(("log", most, seconds)),
        lambda most, seconds: turns.append(("disk", most, seconds)),
    )
    assert turns == [("log", 20, 1.0), ("disk", 20, 1.0)] * 5


def test_quantiles_are_of_what_was_measured() -> None:
    tally = Tally(took_s=[number / 1000 for number in range(100, 0, -1)])
    assert (tally.quantile_ms(0.5), tally.quantile_ms(0.99), Tally().quantile_ms(0.5)) == (51.0, 100.0, None)
