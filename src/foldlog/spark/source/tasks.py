"""The work of one task of a Spark read, batch or stream: open the origin, read its range, return Spark's batches.

With failOnDataLoss=false a task continues after lost offsets, and logs how many it skipped: a warning of the logger
"foldlog", in the executor's log, and in `spark.tvf.python_worker_logs()` if `spark.sql.pyspark.worker.logging.enabled`
is on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from foldlog.errors import RecordsMissing, UnknownTopic
from foldlog.spark.origins.origin import OffsetRange, Origin, OriginSpec, open_origin
from foldlog.spark.source.columns import SparkColumns, check_schema, resized
from foldlog.spark.source.newest import newest_per_key
from foldlog.spark.source.offsets import PlannedRange, warn_skipped
from foldlog.spark.source.options import ReadOptions
from foldlog.spark.tracebacks import iterated_without_traceback

if TYPE_CHECKING:
    import pyarrow as pa

_LOSSES_MAX: Final = 100
"""How often a task continues after a loss: if retention overtakes it this often, it always will."""


class RangeTask(InputPartition):
    """A planned range, as Spark sends it to an executor, and the origin's spec with the directory's id that the driver
    found. None as the range means nothing to read.
    """

    def __init__(self, origin: OriginSpec, planned: PlannedRange | None) -> None:
        super().__init__(planned)
        self.origin = origin
        self.planned = planned


@dataclass(frozen=True, slots=True)
class SourceReader:
    """Reads tasks, in executors. Spark sends it there before the tasks are planned, so it holds what they have in
    common: Spark's schema, and how to treat losses and keys.
    """

    schema: StructType
    fail_on_data_loss: bool
    latest_per_key: bool

    @classmethod
    def of(cls, options: ReadOptions, schema: StructType) -> SourceReader:
        """InvalidArgument if the schema names an unknown column."""
        check_schema(schema)
        return cls(schema, options.fail_on_data_loss, options.latest_per_key)

    @iterated_without_traceback
    def read(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(task, RangeTask) or task.planned is None:
            return
        origin = open_origin(task.origin)
        try:
            yield from _one_ahead(self.batches(origin, task.planned))
        finally:
            origin.close()

    def batches(self, origin: Origin, planned: PlannedRange) -> Iterator[pa.RecordBatch]:
        """The range in Spark's columns, in batches of a good size."""
        columns = SparkColumns(
            to_arrow_schema(self.schema, timezone="UTC"), planned.wanted.topic, planned.wanted.partition
        )
        survivors = Survivors(origin, planned, fail_on_data_loss=self.fail_on_data_loss)
        if self.latest_per_key:
            found = newest_per_key(survivors.read, columns.log_columns)
        else:
            found = survivors.read(columns.log_columns)
        return resized(columns.convert(batch) for batch in found)


def _one_ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Makes each batch while Spark takes the one before it: reading and gathering run without the GIL.

    Up to a third faster if there are fewer tasks than cores; otherwise it costs only one batch of memory.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="foldlog-read") as pool:
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            yield batch


class Survivors:
    """What the log still holds of a planned range, which may be read several times. One thread."""

    def __init__(self, origin: Origin, planned: PlannedRange, *, fail_on_data_loss: bool) -> None:
        self._origin = origin
        self._planned = planned
        self._fail_on_data_loss = fail_on_data_loss
        self._wanted = planned.wanted

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read from the start. RecordsMissing if offsets are gone, unless that is expected or ignored."""
        left = self._wanted
        for _ in range(_LOSSES_MAX):
            if left.start >= left.stop:
                return
            try:
                yield from self._origin.read(left, columns, topic_id=self._planned.topic_id)
                return
            except RecordsMissing as error:
                left = self._after(left, error)
        raise RecordsMissing(
            left.topic,
            left.partition,
            (left.start, left.stop),
            "expired",
            "retention removes records as quickly as they are read",
            "read less at once, or keep records for longer",
        )

    def _after(self, left: OffsetRange, error: RecordsMissing) -> OffsetRange:
        """The rest of the range that can still be read, perhaps empty."""
        left = left._replace(start=max(left.start, error.wanted[0]))
        held = self._held(left, error.cause)
        is_expected = self._planned.is_earliest and held is not None and error.cause in ("expired", "deleted")
        if self._fail_on_data_loss and not is_expected:
            raise error
        rest = left._replace(start=left.stop) if held is None else held
        if not is_expected:
            warn_skipped(left, (left.stop - left.start) - max(0, rest.stop - rest.start), error.why)
        if left.start == self._wanted.start:
            self._wanted = rest  # the next pass need not find out again
        return rest

    def _held(self, left: OffsetRange, cause: str) -> OffsetRange | None:
        """The part of the range that the log holds; None if the partition is gone."""
        if cause == "recreated":
            return None
        try:
            bound = self._origin.bounds(left.topic).get(left.partition)
        except UnknownTopic:
            return None
        return bound and left._replace(start=max(left.start, bound.start), stop=min(left.stop, bound.end))
