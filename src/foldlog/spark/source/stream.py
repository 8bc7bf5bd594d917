"""`spark.readStream.format("foldlog")`: the stream reader that Spark calls.

To follow a micro-batch: `StreamReader.latestOffset`, then `partitions`, in the one process that Spark keeps to plan the
query (stream_planner.py; losses in stream_losses.py, checkpoints in stream_offset.py), then `SourceReader.read` in the
executors (tasks.py), which batch reads share.

A record belongs to the batch that its offset falls into, and batches do not overlap: a sink that takes each batch once
has each record once. Offsets that were skipped with failOnDataLoss=false are counted in the query's progress, under
`sources[0].endOffset["$foldlog"]["skipped"]`, and logged by the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from foldlog.clock import SystemClock
from foldlog.spark.origins.origin import open_origin
from foldlog.spark.source.offsets import split
from foldlog.spark.source.options import ReadOptions, stream_options
from foldlog.spark.source.stream_planner import Json, StreamPlanner
from foldlog.spark.source.tasks import RangeTask, SourceReader
from foldlog.spark.tracebacks import without_traceback

if TYPE_CHECKING:
    import pyarrow as pa


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamReader:
    """The reader of a query with these options. InvalidArgument, in one sentence, if they are wrong."""
    return StreamReader(stream_options(options), schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's reader. Spark makes one for planning, as long as the query runs, and sends another one to the tasks.
    So the log is opened by the first call that plans, and is never pickled.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._reader = SourceReader.of(options, schema)
        self._planner: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    @without_traceback
    def initialOffset(self) -> Json:  # noqa: N802 Spark's names
        """The position of startingOffsets. Only for a new query: one with a checkpoint continues from there."""
        return self._planning().initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark passes this back, or asks for everything: it only signals that the options' limits apply."""
        most, least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    @without_traceback
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        return self._planning().latest(start, unlimited=isinstance(limit, ReadAllAvailable))

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read everything that exists now, in as many batches as the limits require, and nothing else."""
        self._planning().fix_end()

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802
        """For the query's progress: together with `endOffset` this gives the lag."""
        return None if self._planner is None else self._planner.report()

    @without_traceback
    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        if start == end:
            return []
        planner = self._planning()
        planned = planner.ranges(start, end)
        tasks = split(planned, self._options.min_partitions, self._options.max_records_per_partition)
        return [RangeTask(planner.origin.spec, task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)

    def commit(self, end: Json) -> None:
        """Nothing to do: the query's position is in its checkpoint, and reading uses no consumer group."""

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    def _planning(self) -> StreamPlanner:
        if self._planner is None:
            self._planner = StreamPlanner(open_origin(self._options.origin), self._options, SystemClock())
        return self._planner
