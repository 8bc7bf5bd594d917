"""docs/records_on_the_command_line.md is true: its letters are those that the code knows, all of them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cli.command import parsed
from cli.page_commands import foldlog_commands
from foldlog.cli.records.format import LETTERS, format_printer
from foldlog.records.loops import Record

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "records_on_the_command_line.md").read_text(encoding="utf-8")


def first_cells(head: str) -> list[str]:
    """What the first column of a table holds in backticks."""
    table = PAGE[PAGE.index(f"| {head} |") :].split("\n\n")[0]
    return [code for row in table.splitlines()[2:] for code in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


def test_the_page_has_exactly_the_letters_that_there_are() -> None:
    letters = [cell for cell in first_cells("letter") if cell.startswith("%")]
    assert sorted(letters) == sorted(LETTERS.split())
    for escape in (cell for cell in first_cells("letter") if cell.startswith("\\")):
        format_printer(escape.replace("NN", "41"))([Record("orders", 0, 0, 0, 0, None, None)])


@pytest.mark.parametrize("command", foldlog_commands(PAGE))
def test_every_record_format_on_the_page_is_one(command: str) -> None:
    words = shlex.split(command)[1:]
    found = parsed(words, FOLDLOG_DIR="data")
    if getattr(found, "record_format", None) is not None:
        format_printer(found.record_format)
