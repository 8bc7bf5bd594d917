"""Spark's real reasons, in a line: workers that die, results that are too large, functions that raise, and a driver
that ran out of memory. Each failure is a real one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from foldlog.spark.folds.spark_errors import brief_spark_error
from folds_model import append, payment


def test_a_function_that_raises_is_told_with_its_file_and_line(spark: SparkSession) -> None:
    @F.udf("string")
    def refuses(_: int) -> str:
        raise ValueError("not paid")

    with pytest.raises(Exception, match="not paid") as raised:
        spark.range(1).select(refuses("id")).toArrow()
    told = brief_spark_error(raised.value)
    assert re.fullmatch(r"ValueError: not paid \(test_spark_errors\.py, line \d+\)", told), told


def test_the_real_reason_is_told_of_a_worker_that_dies(spark: SparkSession) -> None:
    @F.udf("string")
    def dies(_: int) -> str:
        os._exit(3)

    with pytest.raises(Exception, match=r"getResult|Job aborted") as raised:
        spark.range(1).select(dies("id")).toArrow()
    assert brief_spark_error(raised.value).startswith("a Python worker of Spark's ended in the middle of its work")


def test_the_real_reason_is_told_of_a_result_that_is_too_large(spark: SparkSession) -> None:
    context: Any = spark.sparkContext._jsc
    settings = context.sc().conf()
    before = settings.get("spark.driver.maxResultSize", "1g")
    settings.set("spark.driver.maxResultSize", "1k")
    try:
        with pytest.raises(Exception, match=r".") as raised:
            spark.range(10_000).toArrow()
    finally:
        settings.set("spark.driver.maxResultSize", before)
    assert "spark.driver.maxResultSize allows 1024.0 B; allow more" in brief_spark_error(raised.value)


DRIVER = """
import sys
import foldlog.spark as fl
from foldlog.spark.session import fold_session
from foldlog.views.contract import View
sys.path.insert(0, {tests!r})
from file_view import FileView
from pathlib import Path

spark = fold_session("local[1]", settings={{"spark.driver.memory": "512m"}})
payments = fl.topic("payments", key="tx_id", schema="amount_paise BIGINT")

@fl.fold(payments, into=FileView(Path({view!r})))
def huge(rows): return rows.selectExpr("*", "size(sequence(1, 500000000 + amount_paise)) AS n")

try:
    fl.run([huge], {directory!r}, once=True, spark=spark)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.faults
def test_a_driver_without_memory_is_told_as_that(directory: Path, tmp_path: Path) -> None:
    append(directory, ("a", payment()))
    tests = str(Path(__file__).resolve().parents[2])
    script = DRIVER.format(tests=tests, view=str(tmp_path / "view.json"), directory=str(directory))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert "memory; give it more, as in --conf spark.driver.memory=" in done.stdout
