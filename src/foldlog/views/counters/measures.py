"""What counters count: measures that can be merged, so that any split of the log gives the same result.

Each measure has partial columns, which a range is aggregated to and which the view keeps and merges: count adds, sum
adds, min and max keep the extreme, avg keeps a sum and a count. Sums of floating-point numbers depend on the order of
additions, so they are refused: use an integer of the smallest unit, or DECIMAL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from foldlog.errors import InvalidArgument

Kind = Literal["count", "sum", "min", "max", "avg"]

WINDOW_START: Final = "window_start"
"""The column that says which window of event time a row of counters is for."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing to keep per group. `column` is None for a count of rows."""

    kind: Kind
    column: str | None = None

    def partials(self, name: str) -> list[tuple[str, Literal["count", "sum", "min", "max"], str | None]]:
        """The columns this measure is kept in: their name, how they are made and merged, and of which column.

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
    """Group by columns and, if there is one, a window; a range's partial results have the columns of `columns()`."""

    by: tuple[str, ...]
    window: Window | None
    measures: Mapping[str, Measure]

    def group_columns(self) -> tuple[str, ...]:
        """What makes a row of counters unique; any of them may be null, and null is a group of its own."""
        return (*self.by, WINDOW_START) if self.window is not None else self.by

    def partials(self) -> list[tuple[str, Literal["count", "sum", "min", "max"], str | None]]:
        """All partial columns, in the order of the measures."""
        return [partial for name, measure in self.measures.items() for partial in measure.partials(name)]


def count(column: str | None = None) -> Measure:
    """How many rows, or how many with a value in `column`."""
    return Measure("count", _column(column) if column is not None else None)


def sum(column: str) -> Measure:  # noqa: A001 it is `fl.sum`
    """The exact sum of an integer or DECIMAL column; null while there was no value."""
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
