"""Joins between topics, as a fold's function writes them: `fl.join(orders, customers, on="customer_id", how="left")`.

The function only says what each side is, and how they are joined. Spark computes a side from the rows of its own topic,
range by range, by the law of every fold; the view keeps both sides and joins them: see `foldlog.views.join`. So for a
range of one topic the function is called with those rows and with no rows of the other topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pyspark.sql import DataFrame

from foldlog.errors import FoldError, InvalidArgument, UnlawfulFold, brief_repr
from foldlog.spark.folds.plans import column_numbers
from foldlog.spark.folds.reading import topic_schema
from foldlog.views.join.side import JoinSide
from foldlog.views.join.spec import SIDES, JoinSpec, asof_spec, join_spec

if TYPE_CHECKING:
    from foldlog.spark.folds.declaration import JoinPart

Columns = str | Sequence[str] | Mapping[str, str]
"""A column that both sides have, several of them, or a mapping from the left side's to the right side's."""


@dataclass(frozen=True)
class Join:
    """What the function of a fold of two topics returns."""

    left: DataFrame
    right: DataFrame
    spec: JoinSpec


def join(left: DataFrame, right: DataFrame, on: Columns, how: str = "inner") -> Join:
    """Rows of both sides that agree in the columns `on`. With `how="left"`, left rows without a partner stay, with null
    in the right side's columns; with "inner" they do not. Null agrees with nothing.
    """
    return _checked(left, right, join_spec(on, how))


def join_asof(
    left: DataFrame,
    right: DataFrame,
    on: str | Mapping[str, str],
    by: Columns | None = None,
    tolerance: str | int | None = None,
) -> Join:
    """Each left row with the newest right row that is not newer, by the times `on`, of those that agree in `by`.

    With `tolerance`, such as "1 hour", an older right row is no partner. A left row without a partner stays, with null
    in the right side's columns.
    """
    return _checked(left, right, asof_spec(on, by, tolerance))


def _checked(left: object, right: object, spec: JoinSpec) -> Join:
    return Join(_frame(left, "left"), _frame(right, "right"), spec)


def _frame(given: object, which: str) -> DataFrame:
    if isinstance(given, Join):
        raise InvalidArgument(f"the {which} side of a join is a join; a fold joins two topics")
    if not isinstance(given, DataFrame):
        raise InvalidArgument(f"the {which} side of a join is a DataFrame, not {brief_repr(given)}")
    return given


def side_of(part: JoinPart, rows: DataFrame) -> DataFrame:
    """The side of a join that these rows of its topic give."""
    whole = part.whole
    other = _no_rows(whole.parts[1 - part.number], rows)
    given = (rows, other) if part.number == 0 else (other, rows)
    made = cast("Callable[..., object]", whole.function)(*given)
    if not isinstance(made, Join):
        raise _no_join(whole.name, made)
    side = (made.left, made.right)[part.number]
    if side is not rows:
        _check_own(part, side, other)
    if not isinstance(part.view, JoinSide):
        raise FoldError(f"{part.view.place} is no join")
    part.view.declared.declare(made.spec, whole.name)
    return side


def _no_join(fold: str, made: object) -> FoldError:
    if isinstance(made, DataFrame):
        return UnlawfulFold(
            fold,
            "Spark has only the new rows of one topic, so it cannot join them with the other's",
            "return fl.join(left, right, on='...'), which the view keeps up to date",
        )
    return FoldError(f"fold {fold!r} returned {type(made).__name__}; a fold of two topics returns fl.join(left, right)")


def _no_rows(part: JoinPart, rows: DataFrame) -> DataFrame:
    """A frame with the columns of the part's topic, and no rows. Made once for a session: it takes tens of calls into
    the JVM.
    """
    if part.no_rows is None or part.no_rows.sparkSession is not rows.sparkSession:
        part.no_rows = rows.sparkSession.createDataFrame([], topic_schema(part.topic))
    return part.no_rows


def _check_own(part: JoinPart, side: DataFrame, other: DataFrame) -> None:
    """UnlawfulFold if a side uses the rows of the other topic."""
    if column_numbers(other) & column_numbers(side):
        of = part.whole.parts[1 - part.number].topic.name
        raise UnlawfulFold(
            part.name,
            f"the {SIDES[part.number]} side of its join uses the rows of {of!r}, of which Spark has none",
            "let fl.join() bring the two together, and filter each side by its own columns",
        )
