"""The examples of docs/spark.md, run one after the other in an empty directory with a real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from test_docs import DOCS, blocks_of, page

EXCUSE = "it needs Spark; tests/spark/test_docs_spark.py runs it"


@pytest.mark.faults  # with the other long runs
def test_the_examples_run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = DOCS / "spark.md"
    blocks = [block for block in blocks_of(page(path)) if block.language == "python"]
    assert [block.not_run for block in blocks] == [EXCUSE] * 4
    monkeypatch.chdir(tmp_path)
    # The Python processes of Spark keep the directory they were started in: their paths are made absolute here.
    names = {"spark": spark}
    for block in blocks:
        code = block.code.replace('"log"', repr(str(tmp_path / "log"))).replace(
            '"checkpoint"', repr(str(tmp_path / "cp"))
        )
        exec(compile("\n" * block.line + code, str(path), "exec"), names)
