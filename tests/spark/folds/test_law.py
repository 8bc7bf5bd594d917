"""The law of folds: what a plan shows to depend on the split is refused before it runs, and everything else is not.

The plans are real ones, of the session all tests share; nothing is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from foldlog.errors import FoldError, UnlawfulFold
from foldlog.spark.folds.law import check_law, used_columns

Make = Callable[[DataFrame, DataFrame], Any]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    def foldlog_rows(batches: Iterator[Any]) -> Iterator[Any]:
        return batches

    return spark.range(0, 1, 1, 1).mapInArrow(foldlog_rows, "id bigint, a string, items array<int>, _offset bigint")


@pytest.fixture(scope="module")
def static(spark: SparkSession) -> DataFrame:
    return spark.range(3).select(F.col("id"), F.lit("x").alias("s"))


def _text(value: int) -> str:
    return str(value)


UNLAWFUL: dict[str, tuple[Make, str]] = {
    "groupBy": (lambda rows, static: rows.groupBy("a").count(), "aggregates"),
    "agg over all": (lambda rows, static: rows.agg(F.max("id")), "aggregates"),
    "distinct": (lambda rows, static: rows.select("a").distinct(), "duplicates"),
    "dropDuplicates": (lambda rows, static: rows.dropDuplicates(["a"]), "duplicates"),
    "limit": (lambda rows, static: rows.limit(3), "limited number"),
    "offset": (lambda rows, static: rows.offset(3), "skips"),
    "window function": (
        lambda rows, static: rows.withColumn("n", F.row_number().over(Window.partitionBy("a").orderBy("id"))),
        "window function",
    ),
    "sample": (lambda rows, static: rows.sample(0.5), "samples"),
    "exceptAll": (lambda rows, static: rows.select("id").exceptAll(static.select("id")), "subtracts"),
    "intersect": (lambda rows, static: rows.select("id").intersect(static.select("id")), "intersect"),
    "self join": (
        lambda rows, static: rows.join(rows.select(F.col("id").alias("other")), F.col("id") == F.col("other")),
        "each other",
    ),
    "right join": (lambda rows, static: rows.join(static, "id", "right"), "right outer join keeps"),
    "full join": (lambda rows, static: rows.join(static, "id", "full"), "full outer join keeps"),
    "left join from static": (lambda rows, static: static.join(rows, "id", "left"), "left outer join keeps"),
    "anti join from static": (lambda rows, static: static.join(rows, "id", "leftanti"), "left anti join keeps"),
    "union with static": (
        lambda rows, static: rows.select("id").union(static.select("id")),
        "do not come from the topic",
    ),
    "rand": (lambda rows, static: rows.withColumn("r", F.rand()), "another result each time"),
    "uuid": (lambda rows, static: rows.withColumn("r", F.expr("uuid()")), "another result each time"),
    "monotonically_increasing_id": (
        lambda rows, static: rows.withColumn("r", F.monotonically_increasing_id()),
        "another result each time",
    ),
    "nondeterministic udf": (
        lambda rows, static: rows.withColumn("r", F.udf(_text).asNondeterministic()("id")),
        "another result each time",
    ),
    "current_timestamp": (lambda rows, static: rows.withColumn("r", F.current_timestamp()), "looks at the clock"),
    "now inside": (lambda rows, static: rows.filter("a > cast(now() as string)"), "looks at the clock"),
    "current_date": (lambda rows, static: rows.withColumn("r", F.current_date()), "looks at the clock"),
    "applyInArrow": (
        lambda rows, static: rows.groupBy("a").applyInArrow(lambda table: table, rows.schema),
        "groups rows",
    ),
    "static only": (lambda rows, static: static, "does not come from the rows"),
}

LAWFUL: dict[str, Make] = {
    "itself": lambda rows, static: rows,
    "filter": lambda rows, static: rows.filter("id > 0"),
    "select": lambda rows, static: rows.select("id", F.upper("a").alias("a")),
    "explode": lambda rows, static: rows.withColumn("item", F.explode("items")),
    "inner join": lambda rows, static: rows.join(static, "id"),
    "broadcast join": lambda rows, static: rows.join(F.broadcast(static), "id"),
    "left join": lambda rows, static: rows.join(static, "id", "left"),
    "right join from static": lambda rows, static: static.join(rows, "id", "right"),
    "semi and anti join": lambda rows, static: rows.join(static, "id", "leftsemi").join(static, "id", "leftanti"),
    "aggregated static": lambda rows, static: rows.join(static.groupBy("id").count(), "id"),
    "union with itself": lambda rows, static: rows.filter("id > 0").union(rows.filter("id < 0")),
    "udf": lambda rows, static: rows.withColumn("r", F.udf(_text)("id")),
    "sort and repartition": lambda rows, static: rows.orderBy("id").repartition(2),
    "scalar subquery of a static frame": lambda rows, static: rows.filter("id > (select 1)"),
}


@pytest.mark.parametrize("name", UNLAWFUL)
def test_what_would_depend_on_the_split_is_refused_by_name(rows: DataFrame, static: DataFrame, name: str) -> None:
    make, told = UNLAWFUL[name]
    with pytest.raises(UnlawfulFold, match="'per_minute' breaks the law of folds") as refused:
        check_law("per_minute", rows, make(rows, static))
    assert told in str(refused.value)


@pytest.mark.parametrize("name", LAWFUL)
def test_what_looks_at_one_row_at_a_time_is_allowed(rows: DataFrame, static: DataFrame, name: str) -> None:
    check_law("mirror", rows, LAWFUL[name](rows, static))


def test_a_fold_that_returns_no_frame_is_told_so(rows: DataFrame) -> None:
    with pytest.raises(FoldError, match="returned NoneType and not a DataFrame"):
        check_law("mirror", rows, None)


def test_only_the_columns_that_a_fold_uses_are_read(rows: DataFrame, static: DataFrame) -> None:
    assert used_columns(rows) == {"id", "a", "items", "_offset"}
    assert used_columns(rows.filter("id > 0").select("a")) == {"id", "a"}
    assert used_columns(rows.join(static, "id").select("s", "_offset")) == {"id", "_offset"}
