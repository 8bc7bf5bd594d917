"""A micro-batch without Spark: its rows, what its tasks stage, and what has to be in the log."""

from __future__ import annotations

import errno

import pyarrow as pa
import pytest

import foldlog
from foldlog.client.backends.served.resumable import TopicLimits
from foldlog.clock import SystemClock
from foldlog.errors import UnfinishedCommit
from foldlog.files.base import Files
from foldlog.spark.sink.by_path import StagedRows, job_of_query, stage_rows
from foldlog.spark.sink.committing import PathCommitter
from foldlog.spark.sink.rows import RowPacker
from foldlog.spark.sink.staging import StagingArea
from foldlog.testing.faulty_files import Fault, FaultyFiles, Kind, Operation

PATH = "data"
TOPIC = "orders"
QUERY = "0d9f3a2c"
Rows = list[tuple[int, str]]
"""Partition and value."""


def new_directory(files: Files, path: str = PATH, **settings: object) -> None:
    with foldlog.open(path, files=files, background=False) as log:
        log.create_topic(TOPIC, partitions=2, config=settings)


def task(files: Files, job: str, rows: Rows, number: int = 0, path: str = PATH, topic: str = TOPIC) -> StagedRows:
    """What a task does with these rows, without Spark; small batches, so that a commit has many."""
    with foldlog.open(path, "r", files=files) as log:
        limits = TopicLimits.of(log.topic(topic))
    small = limits._replace(segment_bytes=150)
    packer = RowPacker(lambda name: small, topic=topic, compression=0, now_ms=SystemClock().now_ms())
    columns = {"partition": [partition for partition, _ in rows], "value": [value for _, value in rows]}
    batch = pa.record_batch({"partition": pa.array(columns["partition"], pa.int32()), "value": columns["value"]})
    staged = stage_rows(StagingArea(files, path), packer, job, number, [batch])
    for one in staged.topics.values():
        one.limits = limits
    return staged


def contents(files: Files, path: str = PATH, topic: str = TOPIC) -> list[list[str]]:
    with foldlog.open(path, "r", files=files) as log:
        return [
            [(record.value or b"").decode() for record in log.read(topic, number, start=start)]
            for number, (start, _) in log.offsets(topic).items()
        ]


def rows_of(batch: int, tasks: int = 2) -> list[Rows]:
    """The rows of each task of a micro-batch: both partitions, some to each, several batches of each."""
    return [[(n % 2, f"{batch}/{number}/{n:03d}") for n in range(8)] for number in range(tasks)]


def expected(*batches: int) -> list[list[str]]:
    return [
        [value for batch in batches for rows in rows_of(batch) for partition, value in rows if partition == wanted]
        for wanted in range(2)
    ]


def write(files: Files, batch: int, query: str = QUERY, path: str = PATH) -> None:
    """What Spark does with a micro-batch, at first or again."""
    job = job_of_query(query, batch)
    staged = [task(files, job, rows, number, path) for number, rows in enumerate(rows_of(batch))]
    PathCommitter(path, files).commit(job, staged, query, batch)


def staged_names(files: Files, path: str = PATH) -> set[str]:
    return {entry.name for entry in files.entries(f"{path}/.staged")}


def unfinished(files: Files, batch: int = 0, query: str | None = QUERY, *, appended: int = 0) -> list[StagedRows]:
    """A commit that was decided, and failed after so many writes to the log; or after all, before it was noted."""
    job = job_of_query(query or "none", batch)
    staged = [task(files, job, rows, number) for number, rows in enumerate(rows_of(batch))]
    writes, notes = iter(range(1000)), iter(range(1000))

    def decide(operation: Operation) -> int:
        is_append = operation.kind is Kind.WRITE and operation.path.endswith(".log")
        if is_append and next(writes) >= appended:
            return errno.ENOSPC
        # All is appended: the note that it is done fails, which is the second of the two.
        is_note = operation.kind is Kind.RENAME and operation.path.endswith("commits.json.tmp")
        return errno.ENOSPC if is_note and next(notes) == 1 else 0

    with pytest.raises(UnfinishedCommit, match=r"[Nn]o space") as caught:
        PathCommitter(PATH, FaultyFiles(files, Fault(decide))).commit(job, staged, query, batch if query else None)
    assert "do not write them again" in str(caught.value)
    return staged
