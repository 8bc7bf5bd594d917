"""`df.write.format("foldlog")` and `writeStream`: the writers that Spark calls.

Spark makes a writer in one Python process of the driver, sends it to the tasks, and calls `commit` or `abort` in
another with what the tasks returned. The tasks stage rows, and the commit appends them, once: by `path` see by_path.py
and committing.py, by wire by_wire.py and wire_committing.py. With exactlyOnce=false the tasks append, by wire, and
there is nothing to commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from foldlog.errors import InvalidArgument
from foldlog.spark.sink import by_wire
from foldlog.spark.sink.by_path import PathPlan, StagedRows, job_of_query, plan, stage
from foldlog.spark.sink.by_wire import check_topics
from foldlog.spark.sink.committing import PathCommitter
from foldlog.spark.sink.options import SinkOptions, sink_options
from foldlog.spark.sink.wire_committing import WireCommitter
from foldlog.spark.sink.wire_staging import StagedAttempt
from foldlog.spark.source.options import origin_spec
from foldlog.spark.tracebacks import without_traceback

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_APPLICATION: Final = "application:"
"""Prefix of txnAppId, so that it cannot be mistaken for the id of a query."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """A writer. InvalidArgument for wrong options or columns; errors of the directory or the broker."""
    told = sink_options(options, schema, overwrite=overwrite, is_stream=False)
    if told.origin.path is not None:
        return PathBatchWriter(plan(told))
    check_topics(told)
    if not told.exactly_once:
        return SendingBatchWriter(told)
    job = uuid.uuid4().hex
    WireCommitter(told).check(job, _sender(told))
    return WireBatchWriter(told, job)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    """Like `batch_writer`, for a stream. Spark calls it again for each commit."""
    told = sink_options(options, schema, overwrite=overwrite, is_stream=True)
    if told.origin.path is not None:
        return PathStreamWriter(plan(told))
    return WireStreamWriter(told) if told.exactly_once else SendingStreamWriter(told)


def finish_writes(path: str) -> int:
    """Append what a write to that directory has decided and not finished, because its driver was killed or its disk was
    full; returns the number of writes. The next write does this by itself."""
    spec = origin_spec({"path": path})
    return 0 if spec.path is None else PathCommitter(spec.path).finish()


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The rows that a task has staged; in a stream also the query."""

    rows: StagedRows
    query_id: str | None = None


@dataclass(frozen=True)
class StagedByWire(WriterCommitMessage):
    """The rows that an attempt of a task has staged in a topic; in a stream also the query."""

    rows: StagedAttempt
    query_id: str | None = None


@dataclass(frozen=True)
class SentRows(WriterCommitMessage):
    """How many records a task has appended."""

    record_count: int


class PathBatchWriter(DataSourceArrowWriter):
    """One write, all or nothing."""

    def __init__(self, told: PathPlan) -> None:
        self._told = told
        self._job = uuid.uuid4().hex

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return Staged(stage(self._told, self._job, _task().partitionId(), iterator))

    @without_traceback
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        options = self._told.options
        PathCommitter(self._told.path).commit(self._job, _rows(messages), _sender(options), options.version)

    @without_traceback
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        PathCommitter(self._told.path).abort(_rows(messages), self._job)


class PathStreamWriter(DataSourceStreamArrowWriter):
    """The micro-batches of a query, each once."""

    def __init__(self, told: PathPlan) -> None:
        self._told = told

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        task = _task()
        query_id, batch_id = _query_and_batch(task)
        job = job_of_query(query_id, batch_id)
        return Staged(stage(self._told, job, task.partitionId(), iterator), query_id)

    @without_traceback
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        for query_id in _queries(messages):
            job = job_of_query(query_id, batchId)
            PathCommitter(self._told.path).commit(job, _rows(messages), query_id, batchId)

    @without_traceback
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        PathCommitter(self._told.path).abort(_rows(messages))


class WireBatchWriter(DataSourceArrowWriter):
    """One write, all or nothing."""

    def __init__(self, told: SinkOptions, job: str) -> None:
        self._told = told
        self._job = job

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedByWire:
        return StagedByWire(by_wire.stage(self._told, _task().partitionId(), iterator))

    @without_traceback
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        told = self._told
        WireCommitter(told).commit(_attempts(messages), self._job, _sender(told), told.version)


class WireStreamWriter(DataSourceStreamArrowWriter):
    """The micro-batches of a query, each once."""

    def __init__(self, told: SinkOptions) -> None:
        self._told = told

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedByWire:
        task = _task()
        query_id, _ = _query_and_batch(task)
        return StagedByWire(by_wire.stage(self._told, task.partitionId(), iterator), query_id)

    @without_traceback
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for query_id in _queries(messages):
            WireCommitter(self._told).commit(_attempts(messages), query_id, query_id, batchId)


class SendingBatchWriter(DataSourceArrowWriter):
    """Tasks append as they run: an error leaves some rows in the log, and a task that ran twice appends twice."""

    def __init__(self, told: SinkOptions) -> None:
        self._told = told

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        return SentRows(by_wire.send(self._told, iterator))


class SendingStreamWriter(DataSourceStreamArrowWriter):
    """Tasks of a query's micro-batches append as they run; see `SendingBatchWriter`."""

    def __init__(self, told: SinkOptions) -> None:
        self._told = told

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        return SentRows(by_wire.send(self._told, iterator))


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise InvalidArgument("rows are written in the tasks of a Spark job, and this is none")
    return task


def _rows(messages: Sequence[WriterCommitMessage | None]) -> list[StagedRows]:
    """In the order of the tasks; failed tasks have no message."""
    return [message.rows for message in messages if isinstance(message, Staged)]


def _attempts(messages: Sequence[WriterCommitMessage | None]) -> list[StagedAttempt]:
    return [message.rows for message in messages if isinstance(message, StagedByWire)]


def _queries(messages: Sequence[WriterCommitMessage | None]) -> set[str]:
    """One; none if the batch had no task."""
    staged = (message for message in messages if isinstance(message, Staged | StagedByWire))
    return {message.query_id for message in staged if message.query_id is not None}


def _query_and_batch(task: TaskContext) -> tuple[str, int]:
    query_id, batch_id = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
    if query_id is None or batch_id is None:
        raise InvalidArgument(
            "Spark did not tell the task which query and batch it belongs to, without which nothing can be written"
            " once; use Spark 4.2 or later"
        )
    return query_id, int(batch_id)


def _sender(options: SinkOptions) -> str | None:
    return None if options.application is None else _APPLICATION + options.application
