"""Records at an edge of a partition are lost from the files: every way of reading says so, and none skips them.

Real directories. The writer's checkpoint says what the log holds. The end, or the first segment, is then taken away by
hand, with the log closed or beside a live writer, and who only reads either gets what the checkpoint promises or an
error that names the place.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

import foldlog
from foldlog.cli.main import main
from foldlog.errors import CorruptLog, OffsetOutOfRange, RecordsMissing
from foldlog.spark.origins.by_path import PathOrigin
from foldlog.spark.origins.origin import OffsetRange, OriginSpec

COUNT = 20
TIMES_MS = 1_700_000_000_000

SEGMENT_RECORDS = {"foldlog.segment.records": 6}  # segments begin at 0, 6, 12 and 18


def fill(log: foldlog.Log, **settings: object) -> None:
    log.create_topic("p", config=settings)
    for number in range(COUNT):
        log.append("p", f"v{number}", key=f"k{number % 4}", timestamp_ms=TIMES_MS + number)


def last_file(path: Path) -> Path:
    return max((path / "p-0").glob("*.log"))


def keep_below(file: Path, offset: int) -> None:
    """Cut the file where the batch at `offset` begins."""
    data, at = file.read_bytes(), 0
    while int.from_bytes(data[at : at + 8], "big") < offset:
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    assert 0 < at < len(data)
    os.truncate(file, at)


def cut_batches(path: Path) -> None:
    """The last whole batch, of one record."""
    keep_below(last_file(path), COUNT - 1)


def empty(path: Path) -> None:
    os.truncate(last_file(path), 0)


def remove(path: Path) -> None:
    last_file(path).unlink()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of one segment, and one of four: made once, and copied for each harm."""
    path = tmp_path_factory.mktemp("logs")
    for name, settings in (("one", {}), ("four", SEGMENT_RECORDS)):
        with foldlog.open(path / name) as log:
            fill(log, **settings)
    return path


@contextmanager
def harmed(source: Path, path: Path, harm: Callable[[Path], None], *, live: bool = False) -> Iterator[None]:
    shutil.copytree(source, path, dirs_exist_ok=True)
    with foldlog.open(path, background=False) if live else nullcontext() as writer:
        if writer is not None:
            assert writer.offsets("p") == {0: (0, COUNT)}
        harm(path)
        yield


LOSSES = pytest.mark.parametrize("harm", [cut_batches, empty, remove])
SEGMENTS = pytest.mark.parametrize("segments", ["one", "four"])
BESIDE = pytest.mark.parametrize("live", [False, True], ids=["closed", "beside a writer"])


def read_all(log: foldlog.Log) -> object:
    return list(log.read("p", 0))


def read_last(log: foldlog.Log) -> object:
    return list(log.read("p", 0, start=COUNT - 1))


def follow(log: foldlog.Log) -> object:
    return list(log.read("p", 0, follow=True, timeout_ms=0))


def arrow(log: foldlog.Log) -> object:
    return log.read_arrow("p")


def arrow_of_the_end(log: foldlog.Log) -> object:
    return log.read_arrow("p", COUNT - 2, COUNT)


def consume(log: foldlog.Log) -> object:
    with log.consumer(["p"], auto_offset_reset="earliest") as consumer:
        return [consumer.poll(timeout_ms=0) for _ in range(10)]


def by_time(log: foldlog.Log) -> object:
    return log.offsets_at("p", TIMES_MS + COUNT - 1)


def after_all(log: foldlog.Log) -> object:
    return log.offsets_at("p", TIMES_MS + COUNT)


def for_spark(log: foldlog.Log) -> object:
    origin = PathOrigin.open(OriginSpec(path=log.path))
    try:
        return list(origin.read(OffsetRange("p", 0, 0, COUNT), ["offset"]))
    finally:
        origin.close()


def for_spark_by_time(log: foldlog.Log) -> object:
    origin = PathOrigin.open(OriginSpec(path=log.path))
    try:
        return origin.offsets_at("p", {0: TIMES_MS + COUNT})
    finally:
        origin.close()


WAYS = [
    read_all, read_last, follow, arrow, arrow_of_the_end, consume, by_time, after_all, for_spark, for_spark_by_time,
]  # fmt: skip


def refusal(way: Callable[[foldlog.Log], object], log: foldlog.Log) -> str:
    """The damaged file that it names."""
    try:
        found = way(log)
    except CorruptLog as error:
        return error.path
    return pytest.fail(f"{way.__name__} ended as if nothing were missing, with {found}")


@LOSSES
@SEGMENTS
@BESIDE
def test_a_lost_end_is_said(
    logs: Path, tmp_path: Path, harm: Callable[[Path], None], segments: str, live: bool
) -> None:
    with harmed(logs / segments, tmp_path, harm, live=live):
        for way in WAYS:
            with foldlog.open(tmp_path, mode="r") as log:
                assert log.offsets("p") == {0: (0, COUNT)}
                assert refusal(way, log).startswith(str(tmp_path / "p-0"))


@LOSSES
def test_what_is_before_a_lost_end_is_read(logs: Path, tmp_path: Path, harm: Callable[[Path], None]) -> None:
    with harmed(logs / "four", tmp_path, harm), foldlog.open(tmp_path, mode="r") as log:
        assert [record.offset for record in log.read("p", 0, stop=18)] == list(range(18))
        assert log.read_arrow("p", 0, 18).num_rows == 18
        assert log.offsets_at("p", TIMES_MS + 17) == {0: 17}


@LOSSES
def test_the_command_line_says_it(
    logs: Path, tmp_path: Path, harm: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with harmed(logs / "one", tmp_path, harm):
        for command in ("consume", "p"), ("latest", "p"), ("latest", "p", "-k", "k3"), ("history", "p", "-k", "k3"):
            assert main(["topic", *command, "-d", str(tmp_path)]) != 0
            assert "is damaged at byte" in capsys.readouterr().err


def first_file(path: Path) -> Path:
    return min((path / "p-0").glob("*.log"))


@BESIDE
def test_a_removed_head_moves_the_start_and_says_why(
    logs: Path, tmp_path: Path, live: bool, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with harmed(logs / "four", tmp_path, lambda path: first_file(path).unlink(), live=live):
        with foldlog.open(tmp_path, mode="r") as log:
            assert log.offsets("p") == {0: (6, COUNT)}
            assert [record.offset for record in log.read("p", 0)] == list(range(6, COUNT))
            assert [text for text in caplog.messages if "removed by hand" in text]
            for look in (
                lambda: list(log.read("p", 0, start=0)),
                lambda: list(log.read("p", 0, start=5, stop=8)),
                lambda: log.read_arrow("p", 0, COUNT),
            ):
                with pytest.raises(OffsetOutOfRange, match="removed by hand"):
                    look()
            assert log.offsets_at("p", TIMES_MS) == {0: 6}
        origin = PathOrigin.open(OriginSpec(path=str(tmp_path)))
        with pytest.raises(RecordsMissing):
            list(origin.read(OffsetRange("p", 0, 0, COUNT), ["offset"]))
        origin.close()
        assert main(["topic", "consume", "p", "-o", "0", "-d", str(tmp_path)]) == 0
        assert "p-0 no longer holds offset 0; it starts at 6" in capsys.readouterr().err


def test_the_start_that_a_reader_tells_is_that_of_the_next_writer(logs: Path, tmp_path: Path) -> None:
    shutil.copytree(logs / "four", tmp_path, dirs_exist_ok=True)
    with foldlog.open(tmp_path) as log:
        log.delete_records("p", {0: 3})
    first_file(tmp_path).unlink()
    with foldlog.open(tmp_path, mode="r") as log:
        told = log.offsets("p")
    with foldlog.open(tmp_path) as log:
        assert log.offsets("p") == told == {0: (6, COUNT)}


def test_a_head_that_is_removed_under_an_open_reader_is_no_reason_to_skip(logs: Path, tmp_path: Path) -> None:
    with harmed(logs / "four", tmp_path, lambda path: None, live=True), foldlog.open(tmp_path, mode="r") as log:
        records = log.read("p", 0, start=0)
        assert next(records).offset == 0
        first_file(tmp_path).unlink()
        # What it has open it may read to the end. What it reads is without a gap.
        assert [record.offset for record in records] == list(range(1, COUNT))


def test_the_middle_that_is_lost_is_said_when_times_are_looked_up(logs: Path, tmp_path: Path) -> None:
    """A sealed segment that lost its end has an older newest record: it was passed over for that."""
    shutil.copytree(logs / "four", tmp_path, dirs_exist_ok=True)
    second = sorted((tmp_path / "p-0").glob("*.log"))[1]
    keep_below(second, 10)
    for mode in ("r", "w"):
        with foldlog.open(tmp_path, mode=mode) as log, pytest.raises(CorruptLog, match="next segment begins at 12"):
            log.offsets_at("p", TIMES_MS + 11)


def test_records_whose_slot_was_wiped_are_not_an_empty_log(logs: Path, tmp_path: Path) -> None:
    shutil.copytree(logs / "one", tmp_path, dirs_exist_ok=True)
    size = (tmp_path / "checkpoint").stat().st_size
    with (tmp_path / "checkpoint").open("r+b") as file:
        file.seek(512)
        file.write(bytes(size - 512))
    with foldlog.open(tmp_path, mode="r") as log, pytest.raises(CorruptLog, match="open the log once for writing"):
        list(log.read("p", 0))
    with foldlog.open(tmp_path) as writer:
        # A partition is opened, and its slot stored, at its first use.
        with foldlog.open(tmp_path, mode="r") as log, pytest.raises(CorruptLog):
            log.read_arrow("p")
        writer.offsets("p")
        with foldlog.open(tmp_path, mode="r") as log:
            assert len(list(log.read("p", 0))) == COUNT
