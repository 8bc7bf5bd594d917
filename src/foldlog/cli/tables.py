"""Output of commands: as a table for people, or as JSON for programs.

`--format text` (the default) is a table of the main columns, `wide` one of all columns, `json` one document: a list of
objects with every field, numbers as numbers, times in milliseconds since 1970.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TextIO

from foldlog.cli.exit_codes import DONE
from foldlog.cli.output import remark, say
from foldlog.cli.parsing import Arguments, Option, option, switch

if TYPE_CHECKING:
    from rich.table import Table

FORMATS: Final = ("text", "wide", "json")

_LONG_CELL: Final = 24
"""Cells longer than this may be broken."""

_GAP: Final = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the field of a row that it shows, and how.

    `is_wide` ones are for `--format wide` only; `is_optional` ones are left out where no row knows its value. On a
    terminal it is never narrower than `least_width`.
    """

    field: str
    head: str
    is_number: bool = False
    is_wide: bool = False
    is_optional: bool = False
    text: Callable[[object], str] = str
    least_width: int = 0

    def cell(self, row: Mapping[str, object]) -> str:
        """The text of a cell; a dash for an unknown value, so that columns can be split at spaces."""
        value = row.get(self.field)
        return "-" if value is None or value == "" else self.text(value)


def format_option() -> Option:
    return option(
        "--format",
        metavar="FORMAT",
        choices=FORMATS,
        default="text",
        told="text (the default), wide (with all columns) or json",
    )


def quiet_option() -> Option:
    return switch("-q", "--quiet", told="only the names, one per line")


def show_names(names: Sequence[str]) -> int:
    """One name per line, for shell loops; returns the exit code."""
    for name in names:
        say(name)
    return DONE


def show(
    arguments: Arguments,
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, object]],
    *,
    nothing: str | None = None,
) -> None:
    """Print the rows. If there are none, `nothing` is remarked instead of an empty table."""
    if arguments.format == "json":
        show_json(list(rows))
    elif not rows:
        if nothing is not None:
            remark(nothing)
    else:
        print_table(arguments, columns, rows)


def print_table(arguments: Arguments, columns: Sequence[Column], rows: Sequence[Mapping[str, object]]) -> None:
    """Print a table for people: for commands that show more than one."""
    shown = _shown(columns, rows, is_wide=arguments.format == "wide")
    if has_colours(sys.stdout):
        _draw_table(shown, rows)
    else:
        for line in table_lines(shown, rows, is_wide=True):
            say(line)


def _draw_table(shown: Sequence[Column], rows: Sequence[Mapping[str, object]]) -> None:
    """On a terminal the heads are bold, and a cell that is too long is continued below itself.

    A short cell is never broken: if even those do not fit, the terminal wraps the line.
    """
    from rich.console import Console

    least = [min(_LONG_CELL, max([len(column.head), *(len(column.cell(row)) for row in rows)])) for column in shown]
    unbroken = [replace(column, least_width=width) for column, width in zip(shown, least, strict=True)]
    console = Console(file=sys.stdout, highlight=False)
    console.width = max(console.width, sum(least) + len(_GAP) * (len(least) - 1))
    with console.capture() as drawn:
        console.print(rich_table(unbroken, rows))
    for text in drawn.get().splitlines():
        say(text.rstrip())  # padded to the width, a line that is wrapped would have an empty one below it


def rich_table(
    columns: Sequence[Column], rows: Sequence[Mapping[str, object]], *, has_one_line_a_row: bool = False
) -> Table:
    """The table for rich to draw. A cell that is too long goes on below itself, or is cut if a row has one line."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, len(_GAP), 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            Text(column.head),
            justify="right" if column.is_number else "left",
            overflow="ellipsis" if has_one_line_a_row else "fold",
            no_wrap=has_one_line_a_row,
            min_width=column.least_width or None,
        )
    for row in rows:
        table.add_row(*(Text(column.cell(row)) for column in columns))
    return table


def show_json(document: object) -> None:
    """One document. Values that JSON does not know (an id) are shown as text."""
    import json

    say(json.dumps(document, indent=2, ensure_ascii=False, default=str))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for one item: a sentence for people, and its fields for programs."""

    sentence: str
    fields: Mapping[str, object]


def show_outcomes(arguments: Arguments, outcomes: Sequence[Outcome]) -> None:
    """A line for each, or one list as JSON."""
    if arguments.format == "json":
        show_json([outcome.fields for outcome in outcomes])
        return
    for outcome in outcomes:
        say(outcome.sentence)


def table_lines(columns: Sequence[Column], rows: Sequence[Mapping[str, object]], *, is_wide: bool = False) -> list[str]:
    """The table as plain text, heads first; no spaces at the ends of lines."""
    shown = _shown(columns, rows, is_wide)
    cells = [[column.head for column in shown], *([column.cell(row) for column in shown] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(shown))]
    return [
        _GAP.join(
            cell.rjust(width) if column.is_number else cell.ljust(width)
            for column, cell, width in zip(shown, line, widths, strict=True)
        ).rstrip()
        for line in cells
    ]


def _shown(columns: Sequence[Column], rows: Sequence[Mapping[str, object]], is_wide: bool) -> list[Column]:
    return [
        column
        for column in columns
        if (is_wide or not column.is_wide)
        and not (column.is_optional and all(row.get(column.field) is None for row in rows))
    ]


def has_colours(stream: TextIO | None) -> bool:
    """Whether it is a terminal whose user has not asked for plain text (NO_COLOR, TERM=dumb)."""
    if stream is None or not stream.isatty():
        return False
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
