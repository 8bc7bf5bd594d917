"""What counters count: measures that can be merged, so that any split of the log gives the same result.

Each measure has partial columns, which a range is aggregated to and which the view stores and merges: count and sum
add, min and max keep the extreme, avg keeps a sum and a count. Sums of floating-point numbers depend on the order of
additions, so they are refused: use an integer of the smallest unit, or DECIMAL.

Windows of event time are fixed, do not overlap and begin at 1970-01-01 UTC, so that a window is identified by its
start, wherever it is computed, and a late event finds its own. Months and years have no fixed width and are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from foldlog.durations import milliseconds
from foldlog.errors import InvalidArgument, brief_repr

Kind = Literal["count", "sum", "min", "max", "avg"]

WINDOW_START: Final = "window_start"
"""The column with the start of a row's window of event time."""

WIDTH_MS_MAX: Final = 366 * 86_400_000
"""A wider window is probably a typing error; a total needs no window."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One value to keep per group. `column` is None for a count of rows."""

    kind: Kind
    column: str | None = None

    def partials(self, name: str) -> list[tuple[str, Literal["count", "sum", "min", "max"], str | None]]:
        """The columns that store this measure: their name, how they are made and merged, and of which column.

        >>> Measure("avg", "amount").partials("mean")
        [('mean__sum', 'sum', 'amount'), ('mean__count', 'count', 'amount')]
        """
        if self.kind == "avg":
            return [(f"{name}__sum", "sum", self.column), (f"{name}__count", "count", self.column)]
        return [(name, self.kind, self.column)]


@dataclass(frozen=True, slots=True)
class Window:
    """Fixed windows of event time: the timestamp column and the width."""

    column: str
    width_ms: int


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Group by columns and, if given, a window; a range's partial results have groups and partials."""

    by: tuple[str, ...]
    window: Window | None
    measures: Mapping[str, Measure]

    def group_columns(self) -> tuple[str, ...]:
        """The columns that make a row of counters unique; any may be null, and null is a group like any other."""
        return (*self.by, WINDOW_START) if self.window is not None else self.by

    def partials(self) -> list[tuple[str, Literal["count", "sum", "min", "max"], str | None]]:
        """All partial columns, in the order of the measures."""
        return [partial for name, measure in self.measures.items() for partial in measure.partials(name)]


def count(column: str | None = None) -> Measure:
    """The number of rows, or of rows with a value in `column`."""
    return Measure("count", _column(column) if column is not None else None)


def sum(column: str) -> Measure:  # noqa: A001 it is `fl.sum`
    """The exact sum of an integer or DECIMAL column; null if there was no value."""
    return Measure("sum", _column(column))


def min(column: str) -> Measure:  # noqa: A001
    """The smallest value of a column."""
    return Measure("min", _column(column))


def max(column: str) -> Measure:  # noqa: A001
    """The largest value of a column."""
    return Measure("max", _column(column))


def avg(column: str) -> Measure:
    """The mean of an integer or DECIMAL column, kept as exact sum and count."""
    return Measure("avg", _column(column))


def _column(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a measure is of a column, such as fl.sum('amount_paise'), not of {name!r}")
    return name


# --- windows ----------------------------------------------------------------------------------------------------------


def parse_width_ms(text: object) -> int:
    """
    >>> parse_width_ms("1 minute"), parse_width_ms("15 seconds"), parse_width_ms("1d")
    (60000, 15000, 86400000)
    """
    width_ms = milliseconds(text) if isinstance(text, str) else None
    if width_ms is None:
        raise InvalidArgument(
            f"{brief_repr(text)} is no width of a window; say a number and a unit, such as '1 minute', '15 seconds',"
            " '1 hour' or '1 day' (units: millisecond, second, minute, hour, day, week)"
        )
    if not 0 < width_ms <= WIDTH_MS_MAX:
        raise InvalidArgument(
            f"a window of {brief_repr(text)} is not between 1 millisecond and 366 days; leave window out for a total"
        )
    return width_ms


def parse_window(window: object) -> Window | None:
    """A window from a user's argument, such as `("at", "1 minute")`; None for no window."""
    if window is None or isinstance(window, Window):
        return window
    if not isinstance(window, tuple | list) or len(window) != 2 or not isinstance(window[0], str) or not window[0]:
        raise InvalidArgument(
            f"window is a timestamp column and a width, such as ('at', '1 minute'), not {brief_repr(window)}"
        )
    return Window(window[0], parse_width_ms(window[1]))
