"""What commands show: as a table for people, or as JSON for programs.

`--format text` (the default) is a table of the main columns, `wide` one of all columns, `json` one document: a list of
objects with every field, numbers as numbers, times in milliseconds since 1970.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from foldlog.cli.exit_codes import DONE
from foldlog.cli.output import remark, say

FORMATS: Final = ("text", "wide", "json")

_GAP: Final = "  "
_BOLD: Final = "\x1b[1m"
_PLAIN: Final = "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the field of a row that it shows, and how.

    `is_wide` ones are for `--format wide` only; `is_optional` ones are left out where no row knows its value.
    """

    field: str
    head: str
    is_number: bool = False
    is_wide: bool = False
    is_optional: bool = False
    text: Callable[[object], str] = str

    def cell(self, row: Mapping[str, object]) -> str:
        """A dash stands for what is not known, so that columns can be cut at spaces."""
        value = row.get(self.field)
        return "-" if value is None or value == "" else self.text(value)


def add_format_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        metavar="FORMAT",
        choices=FORMATS,
        default="text",
        help="text (the default), wide (with all columns) or json",
    )


def add_quiet_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="only the names, one a line")


def show_names(names: Sequence[str]) -> int:
    """A name a line, for the loops of shells; the exit code."""
    for name in names:
        say(name)
    return DONE


def show(
    arguments: argparse.Namespace,
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, object]],
    *,
    nothing: str | None = None,
) -> None:
    """Print the rows. Without any, `nothing` is remarked instead of a table without lines."""
    if arguments.format == "json":
        show_json(list(rows))
    elif not rows:
        if nothing is not None:
            remark(nothing)
    else:
        print_table(arguments, columns, rows)


def print_table(arguments: argparse.Namespace, columns: Sequence[Column], rows: Sequence[Mapping[str, object]]) -> None:
    """The table, for people: where a command shows more than one."""
    for line in table_lines(columns, rows, is_wide=arguments.format == "wide", is_bold=has_colours(sys.stdout)):
        say(line)


def show_json(document: object) -> None:
    """One document. What is no JSON of itself (a named tuple, an id) is shown as its text."""
    say(json.dumps(document, indent=2, ensure_ascii=False, default=str))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one thing: a sentence for people, and its fields for programs."""

    sentence: str
    fields: Mapping[str, object]


def show_outcomes(arguments: argparse.Namespace, outcomes: Sequence[Outcome]) -> None:
    """A line for each, or one list as JSON."""
    if arguments.format == "json":
        show_json([outcome.fields for outcome in outcomes])
        return
    for outcome in outcomes:
        say(outcome.sentence)


def table_lines(
    columns: Sequence[Column], rows: Sequence[Mapping[str, object]], *, is_wide: bool = False, is_bold: bool = False
) -> list[str]:
    """The table, its heads first; no spaces at the ends of lines."""
    shown = [
        column
        for column in columns
        if (is_wide or not column.is_wide)
        and not (column.is_optional and all(row.get(column.field) is None for row in rows))
    ]
    cells = [[column.head for column in shown], *([column.cell(row) for column in shown] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(shown))]
    lines = [
        _GAP.join(
            cell.rjust(width) if column.is_number else cell.ljust(width)
            for column, cell, width in zip(shown, line, widths, strict=True)
        ).rstrip()
        for line in cells
    ]
    return [f"{_BOLD}{lines[0]}{_PLAIN}" if is_bold else lines[0], *lines[1:]]


def has_colours(stream: TextIO | None) -> bool:
    """Whether it is a terminal whose owner has not asked for plain text (NO_COLOR, TERM=dumb)."""
    if stream is None or not stream.isatty():
        return False
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
