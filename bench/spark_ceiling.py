"""What Spark's Python API allows at best: a source that has its batches ready, and a writer that throws away.

Both are sent to the workers by value, so that these need not find this module.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

SOURCE = "bench_ceiling"


def register(spark: SparkSession) -> None:
    """Make `format(SOURCE)` known to this session."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    spark.dataSource.register(CeilingSource)


def save_batches(file: Path, batches: Sequence[pa.RecordBatch]) -> None:
    """What the source gives, again and again."""
    import pyarrow as pa

    with pa.OSFile(str(file), "wb") as opened, pa.ipc.new_file(opened, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


class CeilingSource(DataSource):
    """Options for reading: `file` with the batches, `tasks`, and `rows` of each. For writing: none."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str:
        raise ValueError("say the schema that the batches have")

    def reader(self, schema: StructType) -> DataSourceReader:
        return CeilingReader(self.options["file"], int(self.options["tasks"]), int(self.options["rows"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's name
        return CeilingStreamReader(self.options["file"], int(self.options["tasks"]), int(self.options["rows"]))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return NowhereWriter()


class CeilingReader(DataSourceReader):
    """Each task maps the file and gives its batches until the rows are enough."""

    def __init__(self, file: str, tasks: int, rows: int) -> None:
        self._file = file
        self._tasks = tasks
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        opened = pa.ipc.open_file(pa.memory_map(self._file))
        ready = [opened.get_batch(number) for number in range(opened.num_record_batches)]
        left = self._rows
        for batch in cycle(ready):
            if left <= batch.num_rows:
                yield batch.slice(0, left)
                return
            left -= batch.num_rows
            yield batch


class CeilingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Those rows as one micro-batch."""

    def __init__(self, file: str, tasks: int, rows: int) -> None:
        self._batch = CeilingReader(file, tasks, rows)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 Spark's names
        return {"done": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {"done": 1}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """There is one micro-batch, whatever the trigger."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [] if start == end else self._batch.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._batch.read(partition)


class NowhereWriter(DataSourceArrowWriter):
    """Takes every batch and keeps none."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing was kept."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing was kept."""
