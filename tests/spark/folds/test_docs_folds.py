"""The examples of docs/folds.md, and the folds of README.md, in the order of the page, with a real Spark.

Python blocks are executed, but for one that is a file: it begins with a comment that is the file's name. Shell blocks
are what a person types: each `foldlog fold` in them is run in this process, which has a Spark session already.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from foldlog.cli.main import main
from test_docs import DOCS, ROOT, Block, blocks_of, page

HERE = "tests/spark/folds/test_docs_folds.py"
FILE = re.compile(r"# (?P<name>\w+\.py)\n")


def typed(block: Block) -> list[list[str]]:
    """The `foldlog fold` commands of a shell block. One that would run until somebody stops it runs once."""
    words = [shlex.split(line, comments=True) for line in block.code.splitlines()]
    commands = [line[1:] for line in words if line[:2] == ["foldlog", "fold"]]
    return [line if line[1] != "run" or "--once" in line else [*line, "--once"] for line in commands]


def follow(path: Path, blocks: list[Block], directory: Path) -> list[list[str]]:
    """Do what the blocks say, one after the other; the commands that were run."""
    names: dict[str, Any] = {"__name__": "__main__"}
    run: list[list[str]] = []
    for block in blocks:
        file = FILE.match(block.code)
        if block.language == "sh":
            for command in typed(block):
                assert main(command) == 0, command
                run.append(command)
        elif file is not None:
            (directory / file["name"]).write_text(block.code)
        else:
            exec(compile("\n" * (block.line - 1) + block.code, str(path), "exec"), names)
    return run


PAGES = {
    "folds.md": {"run", "status", "rewind", "rebuild", "verify", "drop"},
    "rows_and_keys.md": {"run", "verify", "rebuild", "backfill"},
}


@pytest.mark.faults  # with the other long runs
@pytest.mark.parametrize("name", PAGES)
def test_the_pages_about_folds_are_true(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = DOCS / name
    blocks = [
        block
        for block in blocks_of(page(path))
        if block.language == "sh" or (block.language == "python" and HERE in (block.not_run or ""))
    ]
    run = follow(path, blocks, tmp_path)
    assert {command[1] for command in run} == PAGES[name]


def test_the_folds_of_the_readme_run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = ROOT / "README.md"
    blocks = blocks_of(page(path))
    library = next(block for block in blocks if block.language == "python")
    (pipeline,) = (block for block in blocks if HERE in (block.not_run or ""))
    shell = next(block for block in blocks if block.language == "sh" and typed(block))
    run = follow(path, [library, pipeline, shell], tmp_path)
    assert [command[1] for command in run][:2] == ["run", "status"]
