"""What a task does when records vanish between planning and reading: with failOnDataLoss it says what became of them,
without it goes on and counts; what began at "earliest" has lost nothing. A real log, no Spark session.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

import foldlog
from foldlog.errors import DirectoryElsewhere, FoldlogError, RecordsMissing
from foldlog.spark.origins.by_path import PathOrigin
from foldlog.spark.origins.origin import OriginSpec
from foldlog.spark.source.offsets import plan_batch
from foldlog.spark.source.options import batch_options
from foldlog.spark.source.tasks import RangeTask, SourceReader

OFFSETS = StructType([StructField("offset", LongType())])
FROM_ZERO = {"startingOffsets": '{"orders": {"0": 0}}'}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[foldlog.Log]:
    with foldlog.open(tmp_path, background=False) as log:
        fill(log)
        yield log


def fill(log: foldlog.Log) -> None:
    log.create_topic("orders", config={"foldlog.segment.records": 2})
    for number in range(10):
        log.append("orders", str(number), key=str(number % 4))


def planned(log: foldlog.Log, **given: str) -> tuple[SourceReader, RangeTask]:
    """A reader and its task, as an executor gets them: through pickle."""
    options = batch_options({"path": log.path, "subscribe": "orders", **given})
    origin = PathOrigin.open(options.origin)
    (one,) = plan_batch(origin, options)
    origin.close()
    sent = pickle.dumps((SourceReader.of(options, OFFSETS), RangeTask(origin.spec, one)))
    reader, task = pickle.loads(sent)
    assert isinstance(reader, SourceReader)
    assert isinstance(task, RangeTask)
    return reader, task


def offsets(reader: SourceReader, task: RangeTask) -> list[int]:
    return [offset for batch in reader.read(task) for offset in batch.column("offset").to_pylist()]


def test_a_task_reads_its_range(log: foldlog.Log) -> None:
    assert offsets(*planned(log)) == list(range(10))
    assert offsets(*planned(log, latestPerKey="true")) == [6, 7, 8, 9]


def test_a_task_without_a_range_reads_nothing(log: foldlog.Log) -> None:
    reader, _ = planned(log)
    assert offsets(reader, RangeTask(OriginSpec(path="/nowhere"), None)) == []


def test_what_vanished_since_it_was_planned_is_explained(log: foldlog.Log) -> None:
    reader, task = planned(log, **FROM_ZERO)
    log.delete_records("orders", {0: 4})
    with pytest.raises(RecordsMissing, match="deleted on request") as caught:
        offsets(reader, task)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("latest_per_key", ["false", "true"])
def test_an_accepted_loss_is_counted_once_and_reading_goes_on(
    log: foldlog.Log, caplog: pytest.LogCaptureFixture, latest_per_key: str
) -> None:
    reader, task = planned(log, **FROM_ZERO, failOnDataLoss="false", latestPerKey=latest_per_key)
    log.delete_records("orders", {0: 4})
    with caplog.at_level(logging.WARNING, "foldlog"):
        found = offsets(reader, task)
    assert found == ([6, 7, 8, 9] if latest_per_key == "true" else [4, 5, 6, 7, 8, 9])
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("4 offsets of orders-0 were skipped between 0 and 10: ")
    assert "deleted on request" in warning


def test_earliest_means_wherever_the_log_starts_when_it_is_read(
    log: foldlog.Log, caplog: pytest.LogCaptureFixture
) -> None:
    reader, task = planned(log)
    log.delete_records("orders", {0: 4})
    with caplog.at_level(logging.WARNING, "foldlog"):
        assert offsets(reader, task) == [4, 5, 6, 7, 8, 9]
    log.delete_records("orders", {0: 10})
    assert offsets(reader, task) == []
    assert not caplog.records


@pytest.mark.parametrize("anew", [False, True])
def test_a_topic_that_is_gone_is_a_loss_even_from_the_earliest_offset(log: foldlog.Log, anew: bool) -> None:
    reader, task = planned(log)
    lenient, same = planned(log, failOnDataLoss="false")
    log.delete_topic("orders")
    if anew:
        fill(log)
    with pytest.raises(RecordsMissing) as caught:
        offsets(reader, task)
    assert caught.value.cause == ("recreated" if anew else "deleted")
    assert offsets(lenient, same) == []


def test_an_executor_without_the_directory_says_which_host_it_is_on(log: foldlog.Log, tmp_path: Path) -> None:
    reader, task = planned(log)
    assert task.origin.directory_id == log.directory_id
    assert task.planned is not None
    elsewhere = OriginSpec(path=str(tmp_path / "nowhere"), directory_id=task.origin.directory_id)
    with pytest.raises(DirectoryElsewhere, match=r"host .* kafka\.bootstrap\.servers"):
        offsets(reader, RangeTask(elsewhere, task.planned))


def test_a_reader_that_is_left_early_lets_go_of_the_log(log: foldlog.Log) -> None:
    reader, task = planned(log)
    batches = reader.read(task)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert next(batches, None) is None


def test_errors_leave_without_the_frames_behind_them(log: foldlog.Log) -> None:
    reader, task = planned(log, **FROM_ZERO)
    log.delete_records("orders", {0: 4})
    try:
        offsets(reader, task)
    except FoldlogError as error:
        frames = []
        at = error.__traceback__
        while at is not None:
            frames.append(at.tb_frame.f_code.co_filename.rsplit("/", 1)[-1])
            at = at.tb_next
        assert [name for name in frames if name != "test_tasks.py"] == ["tracebacks.py"]
    else:
        pytest.fail("nothing was missing")
