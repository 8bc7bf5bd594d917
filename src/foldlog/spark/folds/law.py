"""The law of folds, as far as a plan shows it: splitting the log differently must not change the view.

Spark's analysed plan says what a fold does with its rows. What looks at several rows at once (aggregation, windows,
limits), at the clock, at chance, or at rows that do not come from the topic would give another view for another split.
It is refused before anything runs. What happens inside a user's own function cannot be seen; `verify` finds that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame

from foldlog.errors import FoldError, UnlawfulFold

ROWS_FUNCTION: Final = "foldlog_rows"
"""The name of the function that reads the topic, by which its rows are known in a plan."""

_AGGREGATE = "aggregate in the view instead: fl.counters(..., measures={...})"
_PER_ROW = "a fold may look at one row at a time"

_REFUSED: Final[dict[str, tuple[str, str]]] = {
    "Aggregate": ("it aggregates", _AGGREGATE),
    "Pivot": ("it pivots", _AGGREGATE),
    "Distinct": ("it drops duplicates", "a table view keeps one row per key by itself"),
    "Deduplicate": ("it drops duplicates", "a table view keeps one row per key by itself"),
    "DeduplicateWithinWatermark": ("it drops duplicates", "a table view keeps one row per key by itself"),
    "GlobalLimit": ("it takes a limited number of rows", "limit when you query the view"),
    "LocalLimit": ("it takes a limited number of rows", "limit when you query the view"),
    "Offset": ("it skips a number of rows", "skip when you query the view"),
    "Tail": ("it takes the last rows", "order and limit when you query the view"),
    "Window": ("it uses a window function over rows", _AGGREGATE),
    "Sample": ("it samples", "filter by a hash of the key instead"),
    "Except": ("it subtracts rows from each other", "filter, or join a static frame with 'leftanti'"),
    "Intersect": ("it intersects rows", "join a static frame with 'leftsemi'"),
}
_REFUSED_SIGNS: Final = ("Groups", "CoGroup", "AggregateIn", "WindowIn", "TransformWithState")
"""Parts of the names of Python's and Scala's grouped operators."""

_CLOCKS: Final = frozenset(
    {
        "CurrentTimestamp",
        "CurrentTimestampLike",
        "Now",
        "CurrentDate",
        "CurrentTime",
        "LocalTimestamp",
        "CurDateExpressionBuilder",
    }
)
_SUBQUERIES: Final = frozenset({"ScalarSubquery", "Exists", "ListQuery", "LateralSubquery"})


def check_law(fold: str, rows: DataFrame, result: object) -> None:
    """UnlawfulFold if the plan of what a fold returned shows that it breaks the law."""
    if not isinstance(result, DataFrame):
        raise FoldError(
            f"fold {fold!r} returned {type(result).__name__} and not a DataFrame; end it with 'return rows'"
        )
    if not hasattr(rows, "_jdf"):
        raise FoldError("folds need a classic Spark session, and this is a Spark Connect one; unset SPARK_REMOTE")
    plan = _plan(result, "analyzed")
    if not _has_rows(plan):
        raise UnlawfulFold(fold, "what it returns does not come from the rows it is given", "return a change of rows")
    _check(fold, plan)


def used_columns(result: DataFrame) -> frozenset[str]:
    """Which of the topic's columns a fold uses, or returns. The others need not be read."""
    plan = _plan(result, "optimizedPlan")
    wanted = {_id(attribute) for attribute in _items(plan.output())}
    topic_columns: dict[int, str] = {}
    for node in _nodes(plan):
        if _is_rows(node):
            topic_columns.update({_id(attribute): attribute.name() for attribute in _items(node.output())})
        else:
            wanted.update(_id(attribute) for attribute in _items(node.references().toSeq()))
    return frozenset(name for number, name in topic_columns.items() if number in wanted)


def _plan(frame: DataFrame, phase: str) -> Any:
    return getattr(frame._jdf.queryExecution(), phase)()


def _items(sequence: Any) -> Iterator[Any]:
    """A Scala sequence's items."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    if not _is_rows(plan):
        for child in _items(plan.children()):
            yield from _nodes(child)


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName()).rstrip("$")


def _is_rows(node: Any) -> bool:
    return _kind(node).startswith("MapInArrow") and f" {ROWS_FUNCTION}(" in str(node.simpleString(1))


def _has_rows(plan: Any) -> bool:
    return any(_is_rows(node) for node in _nodes(plan))


def _check(fold: str, node: Any) -> None:
    """One node above the topic's rows, and those below it. What stands on static frames only is free."""
    if _is_rows(node):
        return
    kind = _kind(node)
    what = _REFUSED.get(kind)
    if what is None and any(sign in kind for sign in _REFUSED_SIGNS):
        what = ("it groups rows", _AGGREGATE)
    if what is not None:
        raise UnlawfulFold(fold, *what)
    _check_expressions(fold, node)
    children = list(_items(node.children()))
    fed = [_has_rows(child) for child in children]
    if kind == "Union" and not all(fed):
        raise UnlawfulFold(
            fold, "it adds rows that do not come from the topic, again with every range", "join a static frame instead"
        )
    if "Join" in kind and len(children) == 2:
        _check_join(fold, node, *fed)
    for child, is_fed in zip(children, fed, strict=True):
        if is_fed:
            _check(fold, child)


def _check_join(fold: str, node: Any, left: bool, right: bool) -> None:
    if left and right:
        raise UnlawfulFold(
            fold,
            "it joins the topic's rows with each other",
            "join with a static frame, or look the other row up in a view",
        )
    how = str(node.joinType().sql()) if hasattr(node, "joinType") else "LEFT OUTER"
    keeps_left = how.startswith(("LEFT", "FULL"))
    keeps_right = how.startswith(("RIGHT", "FULL"))
    if (keeps_left and right) or (keeps_right and left):
        raise UnlawfulFold(
            fold,
            f"its {how.lower()} join keeps rows of the static frame that have no partner in this range",
            "put the topic's rows on the side that is kept",
        )


def _check_expressions(fold: str, node: Any) -> None:
    for expression in _items(node.expressions()):
        if not expression.deterministic():
            raise UnlawfulFold(
                fold,
                f"{_brief(expression)} gives another result each time",
                f"{_PER_ROW}, and must find the same in it",
            )
        for part in _parts(expression):
            kind = _kind(part)
            if kind in _CLOCKS:
                raise UnlawfulFold(
                    fold, f"{_brief(expression)} looks at the clock", "use the column _timestamp instead"
                )
            if kind in _SUBQUERIES and _has_rows(part.plan()):
                raise UnlawfulFold(fold, "a subquery looks at the topic's other rows", _PER_ROW)


def _parts(expression: Any) -> Iterator[Any]:
    yield expression
    for child in _items(expression.children()):
        yield from _parts(child)


def _brief(expression: Any) -> str:
    text = str(expression.sql())
    return text if len(text) <= 80 else text[:80] + "..."
