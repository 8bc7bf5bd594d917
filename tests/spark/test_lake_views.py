"""Spark reads what lake views write: the Parquet directory as any other, with the columns it has gained."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import Delta, Shape
from foldlog.views.lake.lake import lake


def at(offset: int) -> Bookmark:
    return Bookmark("payments", "topic-id-1", {0: Position(offset)}, {0: 0})


def rows(offset: int, **columns: object) -> Delta:
    """One row, of partition 0."""
    own = {name: [value] for name, value in columns.items()}
    meta = {"_partition": pa.array([0], pa.int32()), "_offset": [offset], "_deleted": [False]}
    return Delta(pa.table({**own, **meta}), {0: (offset, offset + 1)})


def test_spark_reads_committed_rows_and_all_columns_of_a_parquet_view(spark: SparkSession, tmp_path: Path) -> None:
    view = lake(tmp_path / "payments", "parquet")
    columns = pa.schema([("tx_id", pa.string())])
    view.prepare(Shape(columns), at(0))
    view.apply(rows(0, tx_id="a"), at(0), at(1))
    view.prepare(Shape(columns.append(pa.field("amount", pa.int64()))), at(0))
    view.apply(rows(1, tx_id="b", amount=5), at(1), at(2))
    current = tmp_path / "payments" / "current"
    (current / "_p00000-00000000000000000002-00000000000000000003.parquet").write_bytes(b"half written")
    frame = spark.read.parquet(str(current))
    assert sorted((row.tx_id, row.amount, row._offset) for row in frame.collect()) == [("a", None, 0), ("b", 5, 1)]
