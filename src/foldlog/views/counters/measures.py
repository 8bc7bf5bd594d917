"""What counters count: measures that can be merged, so that any split of the log gives the same result.

Each measure has partial columns, which a range is aggregated to and which the view stores and merges: count and sum
add, min and max keep the extreme, avg keeps a sum and a count, first and last keep a value with what it is ordered by.
The others keep a state from which their value is computed (see `states`). All of these are exactly the same for any
split, also where the value is an estimate. Sums of floating-point numbers depend on the order of additions, so they are
refused: use an integer of the smallest unit, or DECIMAL.

A measure does not see rows with null in its column, or in the column that it is ordered by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.views.counters.windows import WINDOW_END, WINDOW_START, AnyWindow, Sessions

Kind = Literal[
    "count", "sum", "min", "max", "avg", "count_distinct", "approx_count_distinct", "quantile", "first", "last", "top"
]
How = Literal["count", "sum", "min", "max", "values", "registers", "buckets", "first", "last", "order", "top"]
Partial = tuple[str, How, str | None]
"""A partial column: its name, how it is made and merged, and of which column."""

PLAIN: Final = ("count", "sum", "min", "max", "avg")
"""The kinds that Spark computes and every engine merges in SQL."""

_STATES: Final[Mapping[str, How]] = {
    "count_distinct": "values",
    "approx_count_distinct": "registers",
    "quantile": "buckets",
    "top": "top",
}
"""The kinds with a state, stored beside the value, and what it consists of."""

DECIMAL_DIGITS_MAX: Final = 38
"""The maximum of Arrow's and Spark's DECIMAL, and so of every sum."""

TOP_MAX: Final = 1000
REGISTER_BITS: Final = (4, 16)
BUCKET_BITS: Final = (1, 12)


@dataclass(frozen=True, slots=True)
class Measure:
    """One value to keep per group. `column` is None for a count of rows.

    `size` is the number of values of a top, or how fine an estimate is, in bits. `rank` is a quantile's, from 0 to 1.
    """

    kind: Kind
    column: str | None = None
    order_by: str | None = None
    size: int = 0
    rank: float = 0.0

    def partials(self, name: str) -> list[Partial]:
        """The partial columns of this measure.

        >>> Measure("avg", "amount").partials("mean")
        [('mean__sum', 'sum', 'amount'), ('mean__count', 'count', 'amount')]
        """
        if self.kind == "avg":
            return [(f"{name}__sum", "sum", self.column), (f"{name}__count", "count", self.column)]
        if self.kind == "first" or self.kind == "last":
            return [(name, self.kind, self.column), (f"{name}__order", "order", self.order_by)]
        state = self.state
        if state is not None:
            return [(f"{name}__{state}", state, self.column)]
        return [(name, self.kind, self.column)]  # type: ignore[list-item]  # the kinds that are left are such

    @property
    def state(self) -> How | None:
        """What the state of this measure consists of; None if it has none."""
        return _STATES.get(self.kind)

    def __str__(self) -> str:
        order = f" by {self.order_by}" if self.order_by is not None else ""
        rank = f", {self.rank:g}" if self.kind == "quantile" else ""
        size = f", {self.size}" if self.size else ""
        return f"{self.kind}({self.column or ''}{order}{rank}{size})"


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Group by columns and, if given, a window; a range's partial results have groups and partials."""

    by: tuple[str, ...]
    window: AnyWindow | None
    measures: Mapping[str, Measure]

    @property
    def sessions(self) -> Sessions | None:
        """The sessions, if the window is of that kind."""
        return self.window if isinstance(self.window, Sessions) else None

    @property
    def is_plain(self) -> bool:
        """Whether Spark and the engines compute and merge every measure in SQL."""
        return all(one.kind in PLAIN for one in self.measures.values())

    def group_columns(self) -> tuple[str, ...]:
        """The columns that make a row of counters unique; any may be null, and null is a group like any other."""
        return (*self.by, WINDOW_START) if self.window is not None else self.by

    def partials(self) -> list[Partial]:
        """All partial columns, in the order of the measures."""
        return [partial for name, measure in self.measures.items() for partial in measure.partials(name)]

    def columns(self) -> list[str]:
        """The columns of an aggregated range, in order."""
        ends = [WINDOW_END] if self.sessions is not None else []
        return [*self.group_columns(), *ends, *(name for name, _, _ in self.partials())]

    def inputs(self) -> list[str]:
        """The columns of the fold's rows that are counted, each once."""
        window = [] if self.window is None else [self.window.column]
        measured = [one for each in self.measures.values() for one in (each.column, each.order_by) if one is not None]
        return list(dict.fromkeys([*self.by, *window, *measured]))

    def kept(self) -> list[str]:
        """Those of which the view stores values as they are."""
        whole = ("min", "max", "first", "last", "count_distinct", "top")
        measured = [
            one
            for each in self.measures.values()
            if each.kind in whole
            for one in (each.column, each.order_by)
            if one is not None
        ]
        return list(dict.fromkeys([*self.by, *measured]))


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


def count_distinct(column: str) -> Measure:
    """The exact number of different values. Each group keeps all of them: for many, see `approx_count_distinct`."""
    return Measure("count_distinct", _column(column))


def approx_count_distinct(column: str, error: float = 0.02) -> Measure:
    """The number of different values, estimated by a HyperLogLog with this standard error, relative to the number.

    >>> approx_count_distinct("user").size  # 4096 registers
    12
    """
    share = _share("the error of fl.approx_count_distinct()", error)
    least, most = REGISTER_BITS
    bits = math.ceil(2 * math.log2(1.04 / share))
    if bits > most:
        raise InvalidArgument(f"an error of {share:g} needs too many registers; the least is 0.0041")
    return Measure("approx_count_distinct", _column(column), size=sorted((least, bits))[1])


def quantile(column: str, rank: float, error: float = 0.01) -> Measure:
    """A quantile of a numeric column, such as 0.5 or 0.99, within `error` relative to the value: a DDSketch.

    >>> quantile("latency_ms", 0.99).size  # 64 buckets from each power of two to the next
    6
    """
    given: object = rank
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        raise InvalidArgument(f"a quantile is a number from 0 to 1, such as 0.99, not {brief_repr(rank)}")
    share = _share("the error of fl.quantile()", error)
    least, most = BUCKET_BITS
    bits = math.ceil(-math.log2(share)) - 1
    if bits > most:
        raise InvalidArgument(f"an error of {share:g} needs too many buckets; the least is 0.000123")
    return Measure("quantile", _column(column), size=sorted((least, bits))[1], rank=float(rank))


def first(column: str, *, order_by: str) -> Measure:
    """The value at the smallest `order_by`; of several there, the smallest."""
    return Measure("first", _column(column), _column(order_by))


def last(column: str, *, order_by: str) -> Measure:
    """The value at the largest `order_by`; of several there, the largest."""
    return Measure("last", _column(column), _column(order_by))


def top(column: str, number: int, *, order_by: str) -> Measure:
    """The values at the `number` largest `order_by`, as a list, largest first; of equal ones, larger values first."""
    given: object = number
    if isinstance(given, bool) or not isinstance(given, int) or not 0 < given <= TOP_MAX:
        raise InvalidArgument(f"fl.top() keeps from 1 to {TOP_MAX} values, not {brief_repr(number)}")
    return Measure("top", _column(column), _column(order_by), number)


def _column(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a measure is of a column, such as fl.sum('amount_paise'), not of {name!r}")
    return name


def _share(what: str, given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < 1:
        raise InvalidArgument(f"{what} is a number between 0 and 1, such as 0.02, not {brief_repr(given)}")
    return float(given)
