"""`spark.read.format("foldlog")` and the others: the data source that Spark calls.

To follow a batch read: `FoldlogSource.reader`, then `BatchReader.partitions` in the planning process, which is one of
the driver's (offsets.py, filters.py), then `SourceReader.read` in the executors (tasks.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from foldlog.spark.origins.origin import open_origin
from foldlog.spark.source.columns import ddl
from foldlog.spark.source.filters import Narrowing, narrowed, take_filters
from foldlog.spark.source.offsets import plan_batch, split
from foldlog.spark.source.options import ReadOptions, batch_options, includes_headers, origin_spec
from foldlog.spark.source.tasks import RangeTask, SourceReader
from foldlog.spark.tracebacks import without_traceback

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("foldlog")


class FoldlogSource(DataSource):
    """Reads and writes topics, from a log's files or through a broker. Options as in Spark's Kafka source."""

    @without_traceback
    def __init__(self, options: CaseInsensitiveDict | dict[str, str]) -> None:
        super().__init__(options)
        origin_spec(self.options)  # raises here what every use would raise

    @classmethod
    def name(cls) -> str:
        return "foldlog"

    @without_traceback
    def schema(self) -> str:
        return ddl(include_headers=includes_headers(self.options))

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(batch_options(self.options), schema)

    @without_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's name
        from foldlog.spark.source.stream import stream_reader

        return stream_reader(self.options, schema)

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from foldlog.spark.sink.writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from foldlog.spark.sink.writers import stream_writer

        return stream_writer(self.options, schema, overwrite)


class BatchReader(DataSourceReader):
    """One batch read: planned in the driver's process, then sent to the executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        for name in options.ignored:
            _log.warning("%s has no effect in a batch; it is for spark.readStream", name)
        self._options = options
        self._reader = SourceReader.of(options, schema)
        self._narrowing = Narrowing()
        self.pushFilters = OptionalPushdown(self)  # type: ignore[method-assign]

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Narrow the read as far as the filters allow; returns the filters that Spark still has to apply."""
        latest_per_key = self._options.latest_per_key
        self._narrowing, left = take_filters(filters, self._narrowing, latest_per_key=latest_per_key)
        return left

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        """One task for each range. Spark runs one task for an empty list, so there is a task without a range then."""
        options = self._options
        origin = open_origin(options.origin)
        try:
            planned = narrowed(origin, plan_batch(origin, options), self._narrowing)
        finally:
            origin.close()
        tasks = split(planned, options.min_partitions, options.max_records_per_partition)
        return [RangeTask(origin.spec, task) for task in tasks] or [RangeTask(origin.spec, None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)


class OptionalPushdown:
    """An optional `pushFilters`: to Spark it looks like the inherited method.

    While `spark.sql.python.filterPushdown.enabled` is off, the default, Spark refuses a reader with a `pushFilters` of
    its own, and the reader cannot see the setting. Spark never calls it then, so there is no reason to refuse.
    """

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader

    @property
    def __func__(self) -> Any:
        return DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.take(filters)
