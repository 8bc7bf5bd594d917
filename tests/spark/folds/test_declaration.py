"""What a pipeline may declare, and what it is told where it may not."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812

import foldlog
import foldlog.spark as fl
from file_view import FileView
from foldlog.errors import FoldlogError, InvalidArgument

ODD = "a`b.c"


@pytest.mark.parametrize(
    "schema", ["x VARIANT", "a INT, x variant NOT NULL", "x STRUCT<y: VARIANT>", "x ARRAY<VARIANT>"]
)
def test_a_variant_is_refused_where_it_is_declared(schema: str) -> None:
    with pytest.raises(InvalidArgument, match=r"topic 'events' has a VARIANT.*parse_json"):
        fl.topic("events", schema=schema)


def test_a_column_may_be_named_variant() -> None:
    assert fl.topic("events", schema="variant STRING, x STRUCT<variant: INT>").schema is not None


@pytest.mark.parametrize(
    "schema", [pa.schema([("x", pa.int64())]), {"x": "BIGINT"}, 5], ids=["Arrow", "dict", "number"]
)
def test_a_schema_of_another_kind_is_refused_in_a_sentence(schema: object) -> None:
    with pytest.raises(InvalidArgument, match=r"is Spark's DDL, such as .*, or a StructType"):
        fl.topic("events", schema=schema)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["x.duckdb", "views/X.DuckDB", Path("x.ddb")], ids=str)
def test_a_table_in_duckdb_is_refused_and_not_made_in_sqlite(path: str | Path) -> None:
    with pytest.raises(InvalidArgument, match=r"in DuckDB only with mode=.append.*name the file \.db.*ATTACH"):
        fl.table(path)


def test_a_table_in_files_of_a_lake_is_refused_and_not_made_in_sqlite() -> None:
    with pytest.raises(InvalidArgument, match=r"not in a \.parquet file.*fl\.lake\("):
        fl.table("views/payments.parquet", "payments")


def test_a_table_without_a_name_is_told_how_to_give_one() -> None:
    with pytest.raises(InvalidArgument, match=r"fl\.table\('shop\.db', 'payments'\)"):
        fl.table("shop.db")


def test_a_struct_type_is_a_schema_and_any_name_is_a_column(tmp_path: Path, spark: SparkSession) -> None:
    with foldlog.open(tmp_path / "log") as log:
        log.create_topic("events")
        log.append("events", json.dumps({ODD: 1, "group": "g"}).encode(), key="k")
    schema = T.StructType([T.StructField(ODD, T.LongType()), T.StructField("group", T.StringType())])
    events = fl.topic("events", key="id", schema=schema)
    mirror, counts = FileView(tmp_path / "mirror.json"), str(tmp_path / "counts.db")

    @fl.fold(events, into=mirror)
    def changed(rows: DataFrame) -> DataFrame:
        return rows.filter("group = 'g'")

    counted = fl.fold(events, into=fl.counters(counts, by=["group"], measures={"sum": fl.sum(ODD)}), name="counted")
    fl.run([changed, counted(lambda rows: rows)], tmp_path / "log", once=True, spark=spark)
    assert [row[ODD] for row in mirror.rows().values()] == [1]
    with_sum = fl.counters(counts, by=["group"], measures={"sum": fl.sum(ODD)})
    assert with_sum.peek() == [{"group": "g", "sum": 1}]


def test_a_variant_in_a_struct_type_is_refused_before_a_record_is_read(tmp_path: Path, spark: SparkSession) -> None:
    with foldlog.open(tmp_path / "log") as log:
        log.create_topic("events")
    events = fl.topic("events", key="id", schema=T.StructType([T.StructField("x", T.VariantType())]))
    fold = fl.fold(events, into=FileView(tmp_path / "view.json"), name="mirror")(lambda rows: rows)
    with pytest.raises(FoldlogError, match="there is no reading VARIANT from JSON"):
        fl.run([fold], tmp_path / "log", once=True, spark=spark)
