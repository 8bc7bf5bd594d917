"""The examples of docs/windows.md and docs/history.md, run in an empty directory with a real Spark."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from test_docs import DOCS, blocks_of, page

HERE = "tests/spark/folds/test_docs_windows.py"


def _run(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Executes the page's Python, with its log where Spark's processes find it: they have another directory."""
    monkeypatch.chdir(directory)
    blocks = [one for one in blocks_of(page(DOCS / name)) if one.language == "python" and HERE in (one.not_run or "")]
    assert blocks
    names: dict[str, Any] = {}
    for block in blocks:
        code = block.code.replace('"log"', repr(str(directory / "log")))
        exec(compile("\n" * block.line + code, name, "exec"), names)
    return names


@pytest.mark.faults  # with the other long runs
def test_the_page_about_windows_is_true(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = _run("windows.md", tmp_path, monkeypatch)
    (visit,) = names["visits"].peek()
    assert (visit["clicks"], visit["pages"], visit["left_from"]) == (3, 3, "cart")
    assert str(visit) in capsys.readouterr().out
    (day,) = names["days"].peek()
    assert day["users"] == 1
    assert abs(day["p99_ms"] - 12.5) < 0.125
    names["visits"].close()
    names["days"].close()


def _rows(names: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = names["past"].peek()
    return found


@pytest.mark.faults
def test_the_page_about_history_is_true(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = _run("history.md", tmp_path, monkeypatch)
    assert [row["city"] for row in names["current"].peek()] == ["Oslo"]
    found = {
        row["city"]: (row["valid_from"].month, row["valid_to"] and row["valid_to"].month)
        for row in names["past"].peek()
    }
    assert found == {"Pune": (3, 4), "Rome": (4, 5), "Oslo": (5, None)}
    query = next(one.code for one in blocks_of(page(DOCS / "history.md")) if one.language == "sql")
    with closing(sqlite3.connect("views/live.db")) as opened:
        assert opened.execute(query).fetchall() == [("Rome",)]
    names["current"].close()
    names["past"].close()
