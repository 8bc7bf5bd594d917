"""Spark's real reasons, in a line: workers that die, results that are too large, functions that raise, and a driver
that ran out of memory; and which of them may be one record's doing. Each failure is a real one.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from foldlog.spark.folds.spark_errors import brief_spark_error, is_records_fault, raised_in
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


def asserting(value: int) -> int:
    if value == 13:
        raise AssertionError  # what `assert` does; pytest would give it a message
    return value


def raising_a_bare_type(value: int) -> int:
    if value == 13:
        raise ValueError
    return value


def with_an_annotated_line(value: int) -> int:
    ratio: int = 100 // (value - 13)
    return ratio


def raising_in_lines(value: int) -> int:
    try:
        return 100 // (value - 13)
    except ZeroDivisionError as error:
        raise LookupError("no such rate\nsecond: line\n\nKeyError: third") from error


def ending_an_iteration(value: int) -> int:
    return int(next(iter([]))) if value == 13 else value


def raising_many(value: int) -> int:
    if value == 13:
        raise ExceptionGroup("many", [ValueError("a: b"), KeyError("c")])
    return value


FUNCTIONS: dict[Callable[[int], int], str] = {
    asserting: "AssertionError",
    raising_a_bare_type: "ValueError",
    with_an_annotated_line: "ZeroDivisionError: integer division or modulo by zero",
    raising_in_lines: "LookupError: no such rate",
    ending_an_iteration: "StopIteration",
    raising_many: "ExceptionGroup: many (2 sub-exceptions)",
}


@pytest.mark.parametrize("simplified", ["true", "false"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda one: str(one.__name__))
def test_what_a_function_raises_at_a_value_is_told_and_may_be_the_records(
    spark: SparkSession, function: Callable[[int], int], simplified: str
) -> None:
    """Spark takes its own frames out of a traceback, and the errors that led to one, unless it is told not to."""
    spark.conf.set("spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled", simplified)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    try:
        with pytest.raises(Exception, match=r".") as raised:
            spark.range(10, 20).select(F.udf(function, "long")("id")).toArrow()
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
        spark.conf.unset("spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled")
    lines = inspect.getsourcelines(function)
    told = brief_spark_error(raised.value)
    found = re.fullmatch(rf"{re.escape(FUNCTIONS[function])} \(test_spark_errors\.py, line (\d+)\)", told)
    assert found is not None, told
    assert lines[1] < int(found[1]) < lines[1] + len(lines[0])
    assert is_records_fault(raised.value)


VALUES = {
    "map_from_arrays(array('a', if(id = 13, 'a', 'b')), array(1, 2))": "DUPLICATED_MAP_KEY",
    "size(array_repeat('x', cast(if(id = 13, 2147483647, 1) AS INT)))": "create array with 2147483647 elements",
    "size(sequence(1, if(id = 13, 21474836470, 1)))": "COLLECTION_SIZE_LIMIT_EXCEEDED",
    "xpath_string(if(id = 13, '<a', '<a>1</a>'), 'a')": "Error loading expression 'a'",
    "length(repeat('abc', cast(if(id = 13, 2000000000, 1) AS INT)))": "integer overflow",
    "from_json(if(id = 13, '{', '{}'), 'a INT', map('mode', 'FAILFAST'))": "MALFORMED_RECORD_IN_PARSING",
    "assert_true(id <> 13)": "is not true",
}


@pytest.mark.parametrize("expression", VALUES)
def test_what_an_operation_does_not_take_may_be_the_records(spark: SparkSession, expression: str) -> None:
    with pytest.raises(Exception, match=r".") as raised:
        spark.range(10, 20).selectExpr(expression).toArrow()
    assert VALUES[expression] in brief_spark_error(raised.value)
    assert is_records_fault(raised.value)


@pytest.mark.faults
def test_a_file_that_is_gone_a_plan_that_cannot_be_and_a_cancelled_job_are_no_records_fault(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.range(3).write.parquet(str(tmp_path / "rates"))
    rates = spark.read.parquet(str(tmp_path / "rates"))
    shutil.rmtree(tmp_path / "rates")
    context = spark.sparkContext

    def cancelled() -> None:
        timer = threading.Timer(1.0, lambda: context.cancelJobGroup("test"))
        context.setJobGroup("test", "to be cancelled", interruptOnCancel=True)
        timer.start()
        try:
            spark.range(10**13).selectExpr("max(hash(id))").toArrow()  # which would take days
        finally:
            timer.join()
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

    for attempt in (
        lambda: spark.range(3).join(rates, "id").toArrow(),
        lambda: spark.range(3).select("nowhere").toArrow(),
        lambda: spark.range(3).repartition(-1).toArrow(),
        lambda: spark.range(3).selectExpr("(SELECT id FROM range(2)) AS one").toArrow(),
        cancelled,
    ):
        with pytest.raises(Exception, match=r".") as raised:
            attempt()
        assert not is_records_fault(raised.value), brief_spark_error(raised.value)


def test_a_traceback_is_told_apart_from_what_stands_around_it() -> None:
    text = (
        "Job aborted: org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "/app/folds.py", line 3, in f\n    kind: str = "a: b"\n           ^^^^\n'
        "__main__.f.<locals>.Odd: one: two\nthree: four\n\n\tat org.apache.spark.Task: x\n"
    )
    raised = raised_in(text)
    assert raised is not None
    assert (raised.type, raised.name, raised.message) == ("__main__.f.<locals>.Odd", "Odd", "one: two")
    assert raised.frames == (("/app/folds.py", 3),)
    assert raised_in("no: traceback") is None


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
