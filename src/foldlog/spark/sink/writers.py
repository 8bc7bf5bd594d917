"""`df.write.format("foldlog")` and `writeStream`: the writers as Spark knows them.

Spark makes a writer in a process of the driver's, sends it to the tasks, and calls `commit` or `abort` in another
process of the driver's with what the tasks returned. By `path` the tasks stage rows and the commit appends them once:
see by_path.py and committing.py. By wire the tasks append, and there is nothing to commit: see
`WireBatchWriter`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

from foldlog.client.backends.served.resumable import TopicLimits
from foldlog.client.wire.cluster import Cluster
from foldlog.clock import SystemClock
from foldlog.errors import FoldlogError, InvalidArgument, UnknownTopic
from foldlog.spark.sink.by_path import PathPlan, StagedRows, job_of_query, plan, stage
from foldlog.spark.sink.committing import PathCommitter
from foldlog.spark.sink.options import SinkOptions, sink_options, with_create_option
from foldlog.spark.sink.rows import RowPacker
from foldlog.spark.source.options import origin_spec
from foldlog.spark.tracebacks import without_traceback

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_APPLICATION: Final = "application:"
"""Names that batch writes give themselves cannot be mistaken for the ids of queries."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """InvalidArgument for options or columns that cannot be, and what is wrong with the directory or the broker."""
    told = sink_options(options, schema, overwrite=overwrite, is_stream=False)
    if told.origin.path is not None:
        return PathBatchWriter(plan(told))
    check_topics(told)
    return WireBatchWriter(told)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    """As `batch_writer`, for a stream. Spark calls it again for each commit."""
    told = sink_options(options, schema, overwrite=overwrite, is_stream=True)
    if told.origin.path is not None:
        return PathStreamWriter(plan(told))
    return WireStreamWriter(told)


def finish_writes(path: str) -> int:
    """Append what a write to that directory has decided and not finished, as its driver was killed, or its disk was
    full; how many writes. The next write does the same by itself."""
    spec = origin_spec({"path": path})
    return 0 if spec.path is None else PathCommitter(spec.path).finish()


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task has staged; in a stream also for which query."""

    rows: StagedRows
    query_id: str | None = None


@dataclass(frozen=True)
class SentRows(WriterCommitMessage):
    """How many records a task has appended."""

    record_count: int


class PathBatchWriter(DataSourceArrowWriter):
    """One write, whole or not at all."""

    def __init__(self, told: PathPlan) -> None:
        self._told = told
        self._job = uuid.uuid4().hex

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return Staged(stage(self._told, self._job, _task().partitionId(), iterator))

    @without_traceback
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        options = self._told.options
        sender = None if options.application is None else _APPLICATION + options.application
        PathCommitter(self._told.path).commit(self._job, _rows(messages), sender, options.version)

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
        query_id, batch_id = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
        if query_id is None or batch_id is None:
            raise InvalidArgument(
                "Spark did not tell the task which query and batch it belongs to, without which nothing can be written"
                " once; use Spark 4.2 or later"
            )
        job = job_of_query(query_id, int(batch_id))
        return Staged(stage(self._told, job, task.partitionId(), iterator), query_id)

    @without_traceback
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        query_ids = {message.query_id for message in messages if isinstance(message, Staged)}
        for query_id in query_ids:  # one; none if the batch had no task
            if query_id is not None:
                job = job_of_query(query_id, batchId)
                PathCommitter(self._told.path).commit(job, _rows(messages), query_id, batchId)

    @without_traceback
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        PathCommitter(self._told.path).abort(_rows(messages))


class WireBatchWriter(DataSourceArrowWriter):
    """Tasks append as they go: after an error some rows are in the log, those of a task that ran twice are twice."""

    def __init__(self, told: SinkOptions) -> None:
        self._told = told

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        return SentRows(send(self._told, iterator))


class WireStreamWriter(DataSourceStreamArrowWriter):
    """Tasks of a query's micro-batches append as they go; see `WireBatchWriter`."""

    def __init__(self, told: SinkOptions) -> None:
        self._told = told

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        return SentRows(send(self._told, iterator))


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise InvalidArgument("rows are written in the tasks of a Spark job, and this is none")
    return task


def _rows(messages: Sequence[WriterCommitMessage | None]) -> list[StagedRows]:
    """In the order of the tasks; those that failed have no message."""
    return [message.rows for message in messages if isinstance(message, Staged)]


_REQUEST_BYTES: Final = 1 << 20
"""max.request.size, Kafka's default: what a batch may have where the broker does not say what it takes."""

_SEGMENT_BYTES: Final = 1 << 30


# --- by kafka.bootstrap.servers -------------------------------------------------------------------------------------
# Each task appends its rows itself, to our broker or any Kafka cluster. Acknowledged by all in-sync replicas, and once
# each as long as the task lives, whatever becomes of connections and leaders. At least once beyond that: a task that
# Spark runs again appends its rows again, and so does a micro-batch that is repeated after a crash. Nothing can be
# taken back: after an error, some of the rows are in the log.


def check_topics(told: SinkOptions) -> None:
    """On the driver, before any row is packed: BrokerUnreachable, or UnknownTopic for the topic of the option."""
    with _open(told) as cluster:
        if told.topic is not None:
            _find_limits(told, cluster, told.topic)


def send(told: SinkOptions, rows: Iterable[pa.RecordBatch]) -> int:
    """In a task: append the rows; how many. Acknowledged on return."""
    count = 0
    with _open(told, has_answered=True) as cluster:
        packer = RowPacker(
            lambda topic: _find_limits(told, cluster, topic),
            topic=told.topic,
            compression=told.compression,
            now_ms=SystemClock().now_ms(),
        )
        with cluster.producer() as producer:
            for packed in packer.pack(rows):
                producer.send(packed.topic, packed.partition, packed.buffer)
                count += packed.record_count
    return count


def _open(told: SinkOptions, *, has_answered: bool = False) -> Cluster:
    if told.origin.bootstrap is None:
        raise InvalidArgument("the address of a broker is needed")
    return Cluster.open(told.origin.bootstrap, told.origin.properties, has_answered=has_answered)


def _find_limits(told: SinkOptions, cluster: Cluster, name: str) -> TopicLimits:
    try:
        topic = cluster.topic(name)
    except UnknownTopic as error:
        if told.partitions_of_new_topics is None:
            raise with_create_option(error) from None
        cluster.ensure_topic(name, told.partitions_of_new_topics)
        topic = cluster.topic(name)
    try:
        config = cluster.topic_config(name, ("max.message.bytes", "cleanup.policy"))
    except FoldlogError:
        config = {}  # not everybody may ask; the broker refuses what it does not take
    limit_bytes = int(config.get("max.message.bytes", _REQUEST_BYTES))
    return TopicLimits(
        topic_id=topic.topic_id.hex(),
        partition_count=topic.partition_count,
        max_message_bytes=limit_bytes,
        segment_bytes=_SEGMENT_BYTES,
        is_compacted="compact" in config.get("cleanup.policy", ""),
    )
