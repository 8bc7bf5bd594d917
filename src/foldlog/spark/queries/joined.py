"""A SQL query over two topics, in the terms of `fl.join`: what each side is, and what they are joined on; or why it
cannot be kept up to date.

Spark never has the rows of both topics, so every expression has to be of one of them: see `foldlog.spark.joins`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.spark.queries.query import (
    SelectReading,
    as_column,
    is_star,
    owners_and_names,
    refused,
    split_at_and,
    tokens_of,
)
from foldlog.views.contract import META

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from sqlglot import exp

    from foldlog.spark.joins import Join

_HOWS = {"": "inner", "INNER": "inner", "LEFT": "left", "LEFT OUTER": "left"}


@dataclass
class SqlSide:
    """A topic of the query, what is selected of it, and the conditions on its rows alone."""

    topic: str
    alias: str
    known: Sequence[str] | None = None
    """The columns of its rows; None if only Spark knows them."""
    where: list[str] = field(default_factory=list)
    items: dict[str, str] = field(default_factory=dict)
    """The expressions, by the names of their columns."""
    has_star: bool = False

    def has(self, column: str) -> bool:
        return self.known is not None and column.lower() in (one.lower() for one in (*self.known, *META))

    def name_of(self, column: str) -> str:
        """The name under which a column is selected; its own, if it is not."""
        spelled = {f"`{self.alias}`.`{column}`", f"{self.alias}.{column}", column, f"`{column}`"}
        spelled = {one.lower() for one in spelled}
        return next((name for name, text in self.items.items() if text.lower() in spelled), column)

    def keep(self, column: str, name: str) -> None:
        """Have a column, whether it is selected or not."""
        if name not in self.items and not (self.has_star and name.lower() == column.lower()):
            self.items[name] = f"`{self.alias}`.`{column}`"

    def frame(self, rows: DataFrame) -> DataFrame:
        """The side, of the rows of its topic. A record that a condition leaves out has no row on its side."""
        rows = rows.alias(self.alias)
        for condition in self.where:
            rows = rows.where(condition)
        given = [as_column(text, name) for name, text in self.items.items()]
        if self.has_star:
            return rows.selectExpr(f"`{self.alias}`.*", *given)
        return rows.selectExpr(*given, *META)


@dataclass
class SqlJoin:
    """Two sides, joined on columns that both have. It is the function of a fold of two topics."""

    left: SqlSide
    right: SqlSide
    how: str
    on: dict[str, str] = field(default_factory=dict)

    def __call__(self, left: DataFrame, right: DataFrame) -> Join:
        from foldlog.spark.joins import join

        return join(self.left.frame(left), self.right.frame(right), on=self.on, how=self.how)


class JoinReading:
    """A SELECT ... FROM a topic JOIN another ON ..., with the text of its parts."""

    def __init__(self, text: str, select: exp.Select) -> None:
        joins = select.args["joins"]
        if len(joins) > 1:
            raise refused("two joins", "a fold joins two topics; keep one join, and join the other when you query it")
        if select.args.get("group") is not None or any(_aggregates(part) for part in select.expressions):
            raise refused("an aggregate over a join", "keep the join in a table, and aggregate when you query it")
        self._select = select
        self._reading = SelectReading(text, select)
        self._join = joins[0]
        words = " ".join(str(self._join.args.get(name) or "") for name in ("method", "side", "kind")).split()
        how = _HOWS.get(" ".join(words).upper())
        if how is None:
            raise refused(f"a {' '.join(words).upper()} JOIN", "joins that are maintained are INNER and LEFT")
        left, right = _table(select.args["from_"].this), _table(self._join.this)
        self._found = SqlJoin(left, right, how)
        if left.alias.lower() == right.alias.lower():
            raise InvalidArgument(f"the query joins {left.topic!r} with itself; a fold joins two topics")

    @property
    def topics(self) -> tuple[str, str]:
        return self._found.left.topic, self._found.right.topic

    def query(self, known: Sequence[Sequence[str] | None], keys: Sequence[Sequence[str]]) -> SqlJoin:
        """The join, of topics with these columns and keys. Views know the rows of a topic by its key, so each side
        keeps it."""
        found = self._found
        found.left.known, found.right.known = known
        pairs = self._pairs()
        for text in self._reading.clauses.get("where", []):
            for condition in split_at_and(text):
                self._filter(condition)
        for part, text in zip(self._select.expressions, self._reading.clauses["select"], strict=True):
            self._take(part, text)
        for left, right in pairs:
            self._joined_on(left, right)
        for side, own in zip((found.left, found.right), keys, strict=True):
            for key in own:
                side.keep(key, key)
        return found

    def _pairs(self) -> list[tuple[str, str]]:
        """The columns that are equal, of the left side and of the right. Other conditions are each side's own."""
        using = self._join.args.get("using")
        if using:
            return [(one.name, one.name) for one in using]
        if self._join.args.get("on") is None:
            raise refused("a join without ON", "say what is equal: JOIN customers c ON o.customer = c.customer")
        pairs: list[tuple[str, str]] = []
        for condition in split_at_and(_on_text(self._reading.clauses["from"][0])):
            sides = self._sides(_parsed(condition))
            if sides == {0, 1}:
                pairs.append(self._equal(condition))
            elif sides == {1} or self._found.how == "inner":
                (self._found.left if sides == {0} else self._found.right).where.append(condition)
            else:
                raise refused(
                    f"the condition {brief_repr(condition)} on the left side of a LEFT JOIN",
                    "left rows stay without a partner, which this would decide; write it in WHERE",
                )
        if not pairs:
            raise refused("a join that nothing is equal in", "write ON o.customer = c.customer")
        return pairs

    def _equal(self, condition: str) -> tuple[str, str]:
        from sqlglot import exp

        node = _parsed(condition)
        given = [node.this, node.expression] if isinstance(node, exp.EQ) else []
        if len(given) != 2 or not all(isinstance(one, exp.Column) for one in given):
            raise refused(
                f"ON {condition}", "joins are maintained on columns that are equal: ON o.customer = c.customer"
            )
        by_side = {next(iter(self._sides(one))): self._column(one) for one in given}
        return by_side[0], by_side[1]

    def _column(self, node: Any) -> str:
        """The column's own name, without what stands before it."""
        ((owner, name),) = owners_and_names(node)
        return name if owner is None or self._named(owner) is not None else owner

    def _filter(self, condition: str) -> None:
        sides = self._sides(_parsed(condition))
        if sides == {0, 1}:
            raise refused(f"the condition {brief_repr(condition)} on both topics", "filter when you query the view")
        if 1 in sides and self._found.how == "left":
            raise refused(
                f"the condition {brief_repr(condition)} on the right side of a LEFT JOIN",
                "write it in ON, which keeps left rows without a partner, or join INNER",
            )
        (self._found.right if sides == {1} else self._found.left).where.append(condition)

    def _take(self, part: Any, text: str) -> None:
        if is_star(part):
            owner = part.table if hasattr(part, "table") else ""
            for number, side in enumerate((self._found.left, self._found.right)):
                if not owner or self._named(owner) == number:
                    side.has_star = True
            return
        item = self._reading.item(part, text)
        sides = self._sides(item.node)
        if sides == {0, 1}:
            raise refused(
                f"{brief_repr(item.text)}, which computes with both topics",
                "select the columns, and compute when you query the view",
            )
        (self._found.right if sides == {1} else self._found.left).items[item.name] = item.text

    def _joined_on(self, left: str, right: str) -> None:
        """Both sides have the columns that they are joined on, selected or not."""
        found = self._found
        names = [side.name_of(column) for side, column in ((found.left, left), (found.right, right))]
        if found.how == "left" and names[0] == names[1] and names[1] in found.right.items:
            own = found.right.items[names[1]]
            raise InvalidArgument(
                f"{brief_repr(own)} is null where there is no partner, and {names[0]!r} is the left side's; rename it:"
                f" {own} AS right_{names[1]}"
            )
        found.left.keep(left, names[0])
        found.right.keep(right, names[1])
        found.on[names[0]] = names[1]

    def _sides(self, node: Any) -> set[int]:
        """The sides whose columns an expression has: none for a literal."""
        return {self._side_of(owner, name) for owner, name in owners_and_names(node)}

    def _named(self, owner: str) -> int | None:
        for number, side in enumerate((self._found.left, self._found.right)):
            if owner.lower() in (side.alias.lower(), side.topic.lower()):
                return number
        return None

    def _side_of(self, owner: str | None, name: str) -> int:
        named = None if owner is None else self._named(owner)
        sides = (self._found.left, self._found.right)
        if named is not None:
            side = sides[named]
            if side.known is not None and not side.has(name):
                raise InvalidArgument(f"topic {side.topic!r} has no column {name!r}; it has {', '.join(side.known)}")
            return named
        column = name if owner is None else owner  # of a struct
        having = [number for number, side in enumerate(sides) if side.has(column)]
        if len(having) == 1:
            return having[0]
        one, other = (f"{side.alias}.{column}" for side in sides)
        raise InvalidArgument(f"say of which topic the column {column!r} is: {one} or {other}")


def _table(node: Any) -> SqlSide:
    from sqlglot import exp

    if not isinstance(node, exp.Table) or not node.name or node.args.get("db") is not None:
        raise InvalidArgument(
            f"the query reads {node.sql('spark')!r}; name a topic, in `backticks` if it has a dot or a dash"
        )
    return SqlSide(node.name, node.alias or node.name)


def _aggregates(part: Any) -> bool:
    from sqlglot import exp

    return part.find(exp.AggFunc) is not None


def _parsed(condition: str) -> Any:
    import sqlglot

    return sqlglot.parse_one(condition, read="spark")


def _on_text(text: str) -> str:
    """What stands behind ON in the clause FROM."""
    return next(_behind_on(text))


def _behind_on(text: str) -> Iterator[str]:
    from sqlglot import TokenType as T

    for token in tokens_of(text):
        if token.token_type == T.ON:
            yield text[token.end + 1 :].strip()
            return
    raise InvalidArgument(f"{brief_repr(text)} cannot be read; write FROM orders o JOIN customers c ON o.x = c.x")
