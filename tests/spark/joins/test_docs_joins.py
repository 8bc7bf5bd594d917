"""The examples of docs/joins.md, in the order of the page, with a real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.folds.test_docs_folds import follow
from test_docs import DOCS, blocks_of, page

HERE = "tests/spark/joins/test_docs_joins.py"


@pytest.mark.faults  # with the other long runs
def test_the_page_of_joins_is_true(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = DOCS / "joins.md"
    blocks = [block for block in blocks_of(page(path)) if block.language == "sh" or HERE in (block.not_run or "")]
    run = follow(path, blocks, tmp_path)
    assert [command[1] for command in run] == ["run", "run", "verify", "verify"]
