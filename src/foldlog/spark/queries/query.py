"""What a SQL query asks for, in the terms of folds: rows of one topic, or groups and measures of them; or why it cannot
be kept up to date lawfully.

sqlglot parses it, without Spark: a pipeline's file is loaded where no JVM runs, and the view that a fold needs has to
be known by then. It decides the structure only. Every expression goes to Spark as the text that was written, cut out by
the parser's tokens, so that it means what it means in Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import InvalidArgument, MissingDependency, brief_repr
from foldlog.views.counters import measures as m
from foldlog.views.counters.windows import WINDOW_END, WINDOW_START, AnyWindow, sessions, window

if TYPE_CHECKING:
    from sqlglot import exp

    from foldlog.spark.queries.joined import JoinReading

TIME: Final = "__time"
"""The column that windows are of."""

_PER_ROW: Final = "a fold looks at one row at a time"
_CLAUSES: Final = {
    "with_": ("WITH", "write the query without it, or as several folds"),
    "distinct": ("DISTINCT", "a table keeps one row of each key; to count, use count(DISTINCT ...)"),
    "having": ("HAVING", "filter when you query the view: a group may pass the condition later"),
    "order": ("ORDER BY", "order when you query the view"),
    "sort": ("SORT BY", "order when you query the view"),
    "cluster": ("CLUSTER BY", "leave it out"),
    "distribute": ("DISTRIBUTE BY", "leave it out"),
    "limit": ("LIMIT", "limit when you query the view; for the largest of a group, use fl.top() of fl.counters()"),
    "offset": ("OFFSET", "skip when you query the view"),
    "qualify": ("QUALIFY", f"{_PER_ROW}"),
    "windows": ("WINDOW", f"{_PER_ROW}; aggregate with GROUP BY"),
    "laterals": ("LATERAL VIEW", "use explode(...) in the SELECT list"),
    "pivots": ("PIVOT", "group by the column, and pivot when you query the view"),
    "into": ("INTO", "say where with into="),
    "match": ("MATCH_RECOGNIZE", "keep a state of your own: fl.reduce()"),
}
_KNOWN: Final = frozenset({"expressions", "from_", "where", "group", "kind", "joins", "hint", "operation_modifiers"})
_CLOCKS: Final = frozenset(
    {"now", "current_timestamp", "current_date", "current_time", "localtimestamp", "curdate", "unix_timestamp"}
)
_RANDOM: Final = frozenset(
    {
        "rand",
        "random",
        "randn",
        "uuid",
        "shuffle",
        "randstr",
        "uniform",
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
    }
)
_SURROUNDINGS: Final = frozenset(
    {
        "current_user",
        "session_user",
        "user",
        "current_schema",
        "current_database",
        "current_catalog",
        "current_timezone",
        "version",
    }
)
_WINDOWS: Final = ("window", "session_window")
_PREFIX: Final = "foldlog_"


@dataclass(frozen=True)
class SelectItem:
    """A column of the result: its name, the expression as it was written, and as it was parsed."""

    name: str
    text: str
    node: exp.Expression


@dataclass
class SqlQuery:
    """A query that can be kept up to date. Without measures it is rows: `items`, or all columns and `items`."""

    topic: str
    alias: str
    where: str | None = None
    items: list[SelectItem] = field(default_factory=list)
    stars: list[str] = field(default_factory=list)
    """The items that stand for columns, such as `*`."""
    by: list[SelectItem] = field(default_factory=list)
    window: AnyWindow | None = None
    time: str | None = None
    """The expression that windows are of."""
    measures: dict[str, m.Measure] = field(default_factory=dict)
    measured: dict[str, str] = field(default_factory=dict)
    """The columns that measures are of: their expressions."""
    columns: list[tuple[str | None, str]] = field(default_factory=list)
    """The columns that it names, each with what stands before the dot."""

    def check_columns(self, known: Sequence[str]) -> None:
        """InvalidArgument for a column that the topic does not have."""
        there = {one.lower() for one in known}
        owners = {self.alias.lower(), self.topic.lower()}
        for owner, name in self.columns:
            wanted = name if owner is None or owner.lower() in owners else owner
            if wanted.lower() not in there:
                close = get_close_matches(wanted.lower(), there, 1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise InvalidArgument(f"topic {self.topic!r} has no column {wanted!r}; it has {', '.join(known)}{hint}")


def parsed_query(text: object) -> SqlQuery | JoinReading:
    """The query; InvalidArgument, in one sentence, if it is none, or cannot be kept up to date. A join is read further
    once the columns of its topics are known.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidArgument(f"fl.sql() takes a query, such as 'SELECT ... FROM payments', not {brief_repr(text)}")
    sqlglot = _load_sqlglot()
    try:
        statements = [one for one in sqlglot.parse(_for_parser(text), read="spark") if one is not None]
    except sqlglot.errors.SqlglotError as error:
        raise InvalidArgument(f"the query cannot be parsed: {_where(error)}") from None
    if len(statements) != 1:
        raise InvalidArgument(
            f"fl.sql() takes one query, and this is {len(statements)} statements; make a fold of each"
        )
    select = _select(statements[0], text)
    if select.args.get("joins"):
        from foldlog.spark.queries.joined import JoinReading

        return JoinReading(text, select)
    return SelectReading(text, select).query()


def _load_sqlglot() -> Any:
    try:
        import sqlglot
        import sqlglot.errors
    except ImportError as error:
        raise MissingDependency("a fold in SQL", "sqlglot", "sql") from error
    return sqlglot


def _where(error: Any) -> str:
    first = error.errors[0] if getattr(error, "errors", None) else None
    if not first:
        return str(error).partition("\n")[0]
    near = str(first.get("highlight") or "").strip()
    return f"{first['description'].rstrip('.')} at line {first['line']}, column {first['col']}" + (
        f", near {near!r}" if near else ""
    )


def refused(what: str, instead: str) -> InvalidArgument:
    return InvalidArgument(f"the query cannot be kept up to date: it has {what}; {instead}")


def _select(statement: Any, text: str) -> exp.Select:
    """The SELECT that the statement is."""
    from sqlglot import exp

    if isinstance(statement, exp.SetOperation):
        raise refused(type(statement).__name__.upper(), "make a fold of each SELECT, or write both to one topic")
    if not isinstance(statement, exp.Select):
        kind = type(statement).__name__.upper()
        raise InvalidArgument(f"fl.sql() takes a SELECT ... FROM a topic, and this is {kind}: {brief_repr(text)}")
    for name, given in statement.args.items():
        if not given or name in _KNOWN:
            continue
        what, instead = _CLAUSES.get(name, (name.strip("_").upper(), "leave it out"))
        raise refused(what, instead)
    for node in statement.walk():
        _check_node(node, statement)
    return statement


def _check_node(node: Any, whole: Any) -> None:
    """InvalidArgument for a part that looks at more than one row, at the clock, or at chance."""
    from sqlglot import exp

    if isinstance(node, exp.Window):
        raise refused(f"a window function, {brief_repr(node.sql('spark'))}", f"{_PER_ROW}; aggregate with GROUP BY")
    if isinstance(node, exp.Query) and node is not whole:
        raise refused("a subquery", "make it a fold of its own, or a static frame in the function of a fold")
    if isinstance(node, exp.TableSample):
        raise refused("TABLESAMPLE", "filter by a hash of the key")
    if isinstance(node, exp.Parameter | exp.Placeholder | exp.SessionParameter):
        raise refused("a parameter", "put its value into the text")
    if isinstance(node, exp.Func):
        name = _function(node)
        if name in _CLOCKS and not (name == "unix_timestamp" and _arguments(node)):
            raise refused(f"{name}()", "it would depend on when the fold ran; use the column _timestamp")
        if name in _RANDOM:
            raise refused(f"{name}()", "it gives something else each time; use a hash of the key")
        if name in _SURROUNDINGS:
            raise refused(f"{name}()", "it would depend on who runs the fold; write a literal")


def _function(node: Any) -> str:
    """The name of a function as it is written, in lower case."""
    from sqlglot import exp

    if isinstance(node, exp.Anonymous):
        return str(node.this).lower().removeprefix(_PREFIX)
    return str(node.sql_name()).lower()


def _arguments(node: Any) -> list[Any]:
    return [one for one in node.args.values() if one]


class SelectReading:
    """One SELECT, with the text of its parts."""

    def __init__(self, text: str, select: exp.Select) -> None:
        self._select = select
        self.clauses = _clauses(text)
        self._names: set[str] = set()

    def query(self) -> SqlQuery:
        from sqlglot import exp

        source = self._select.args.get("from_")
        table = None if source is None else source.this
        if not isinstance(table, exp.Table) or not table.name:
            raise InvalidArgument("the query reads no topic; write SELECT ... FROM the name of a topic")
        if table.args.get("db") is not None:
            raise InvalidArgument(
                f"the query reads {table.sql('spark')!r}; name a topic, in `backticks` if it has a dot or a dash"
            )
        found = SqlQuery(table.name, table.alias or table.name, self.clauses.get("where", [None])[0])
        found.columns = list(self._columns())
        parts, texts = self._select.expressions, self.clauses["select"]
        if len(parts) != len(texts):
            raise InvalidArgument("the SELECT list of the query cannot be read; write it as expressions and AS names")
        aggregated = self._select.args.get("group") is not None or any(_aggregate(part) for part in parts)
        for part, text in zip(parts, texts, strict=True):
            if is_star(part):
                if aggregated:
                    raise refused("* beside aggregates", "name the columns that it groups by")
                found.stars.append(text)
            else:
                found.items.append(self.item(part, text))
        return _Grouping(found, self._select, self.clauses).query() if aggregated else found

    def _columns(self) -> Iterator[tuple[str | None, str]]:
        from sqlglot import exp

        named = {part.alias.lower() for part in self._select.expressions if isinstance(part, exp.Alias)}
        group = self._select.args.get("group")
        for column in _columns_of(self._select):
            owner = column.table or None
            if owner is not None and owner.lower() in _WINDOWS:
                continue
            if column.parent is group and owner is None and column.name.lower() in named:
                continue  # the name of an expression
            yield _owner_and_name(column)

    def item(self, part: Any, text: str) -> SelectItem:
        from sqlglot import exp

        node, name = part, part.name if isinstance(part, exp.Column) else ""
        if isinstance(part, exp.Alias):
            node, name = part.this, part.alias
        elif isinstance(part, exp.Dot):
            name = part.expression.name
        if _window_part(node) is not None and not isinstance(part, exp.Alias):
            name = WINDOW_START if _window_part(node) == "start" else WINDOW_END
        if not name:
            raise InvalidArgument(f"{brief_repr(text)} needs a name: {text} AS name")
        if name.lower() in self._names:
            raise InvalidArgument(f"the query gives two columns the name {name!r}; rename one: ... AS name")
        self._names.add(name.lower())
        return SelectItem(name, _without_alias(text, isinstance(part, exp.Alias)), node)


def _columns_of(node: Any) -> Iterator[Any]:
    from sqlglot import exp

    for column in node.find_all(exp.Column):
        if not isinstance(column.this, exp.Star) and not column.find_ancestor(exp.Lambda):
            yield column


def _owner_and_name(column: Any) -> tuple[str | None, str]:
    parts = [one.name for one in column.parts]
    return (parts[0], parts[1]) if len(parts) > 1 else (None, parts[0])


def owners_and_names(node: Any) -> list[tuple[str | None, str]]:
    """The columns in an expression, each with what stands before the dot."""
    return [_owner_and_name(column) for column in _columns_of(node)]


class _Grouping:
    """A query with aggregates, as groups and measures of counters."""

    def __init__(self, query: SqlQuery, select: exp.Select, clauses: dict[str, list[str]]) -> None:
        self._query = query
        self._select = select
        self._texts = clauses.get("group", [])

    def query(self) -> SqlQuery:
        groups = self._groups()
        for item in self._query.items:
            if _aggregate(item.node) is not None:
                self._measure(item)
            elif _window_part(item.node) is not None:
                self._window_column(item)
            elif any(item.node == one for one in groups):
                self._query.by.append(item)
            elif _aggregates_inside(item.node):
                raise refused(
                    f"{brief_repr(item.text)}, which computes with aggregates",
                    "select each aggregate with a name, and compute when you query the view",
                )
            else:
                raise InvalidArgument(
                    f"{brief_repr(item.text)} is neither aggregated nor in GROUP BY; add it there, or aggregate it"
                )
        self._check_selected(groups)
        if not self._query.measures:
            raise refused("GROUP BY without an aggregate", "select one, such as count(*) AS n")
        return self._query

    def _groups(self) -> list[Any]:
        """The expressions that it groups by, without the window."""
        from sqlglot import exp

        group = self._select.args.get("group")
        if group is None:
            return []
        for name, given in group.args.items():
            if given and name != "expressions":
                raise refused(f"GROUP BY {name.replace('_', ' ').upper()}", "name the columns to group by")
        found: list[Any] = []
        for one, text in zip(group.expressions, self._texts, strict=False):
            if isinstance(one, exp.Cube | exp.Rollup | exp.GroupingSets):
                raise refused(type(one).__name__.upper(), "make a fold of each grouping")
            if isinstance(one, exp.Func) and _function(one) in _WINDOWS:
                self._set_window(one, text)
            else:
                found.append(self._resolved(one))
        return found

    def _resolved(self, one: Any) -> Any:
        """The expression that a part of GROUP BY means: a number, or a name, is that of a part of SELECT."""
        from sqlglot import exp

        items = self._query.items
        if isinstance(one, exp.Literal) and not one.is_string:
            number = int(one.name) if one.name.isdigit() else 0
            if not 1 <= number <= len(items):
                raise InvalidArgument(f"GROUP BY {one.name} is not the number of a column of the query")
            return items[number - 1].node
        if isinstance(one, exp.Column) and not one.table:
            named = next((item for item in items if item.name.lower() == one.name.lower()), None)
            if named is not None and named.node != one:
                return named.node
        return one

    def _set_window(self, node: Any, text: str) -> None:
        if self._query.window is not None:
            raise refused("two windows", "make a fold of each")
        arguments = _split(text[text.index("(") + 1 : text.rindex(")")])
        widths = [one.strip() for one in arguments[1:]]
        if not widths or not all(one[:1] in "'\"" and len(one) > 2 for one in widths):
            raise InvalidArgument(f"{brief_repr(text)} is not a window such as window(at, '5 minutes')")
        lengths = [one[1:-1] for one in widths]
        self._query.time = arguments[0].strip()
        if _function(node) == "session_window":
            if len(lengths) != 1:
                raise refused(brief_repr(text), "a session has one gap, as in session_window(at, '5 minutes')")
            self._query.window = sessions(TIME, lengths[0])
        elif len(lengths) <= 2:
            self._query.window = window(TIME, lengths[0], every=lengths[1] if len(lengths) == 2 else None)
        else:
            raise refused("a window with a start of its own", "windows begin at 1970-01-01 UTC; leave it out")

    def _window_column(self, item: SelectItem) -> None:
        if self._query.window is None:
            raise InvalidArgument(f"{brief_repr(item.text)} needs GROUP BY window(column, '5 minutes')")
        part = _window_part(item.node)
        has_end = type(self._query.window).__name__ == "Sessions"
        if part == "end" and not has_end:
            raise refused(brief_repr(item.text), "it is window_start plus the width; add it when you query the view")
        wanted = WINDOW_START if part == "start" else WINDOW_END
        if item.name.lower() != wanted:
            raise InvalidArgument(f"counters name it {wanted}; write {item.text} AS {wanted}")

    def _measure(self, item: SelectItem) -> None:
        from sqlglot import exp

        node, condition = item.node, None
        text = item.text
        if isinstance(node, exp.Filter):
            node = node.this
            text, condition = _filtered(item.text)
        inside = text[text.index("(") + 1 : text.rindex(")")].strip()
        kind = _aggregate(node)
        argument = node.this
        if isinstance(argument, exp.Distinct):
            if kind != "count" or len(argument.expressions) != 1:
                raise refused(brief_repr(item.text), "DISTINCT is maintained for count(DISTINCT one_column) only")
            kind, inside = "count_distinct", inside[len("DISTINCT") :].strip()
        elif len(_split(inside)) != 1:
            raise refused(brief_repr(item.text), "give it one column")
        if kind is None:
            raise refused(brief_repr(item.text), "maintained are count, sum, min, max, avg and count(DISTINCT ...)")
        if kind == "count" and isinstance(argument, exp.Star | exp.Literal):
            if condition is None:
                self._query.measures[item.name] = m.count()
                return
            inside = "1"
        column = f"__{len(self._query.measured)}"
        self._query.measured[column] = inside if condition is None else f"CASE WHEN {condition} THEN {inside} END"
        self._query.measures[item.name] = getattr(m, kind)(column)

    def _check_selected(self, groups: list[Any]) -> None:
        """Every group is a column of the result: its rows could not be told apart otherwise."""
        for one in groups:
            if not any(item.node == one for item in self._query.by):
                raise InvalidArgument(f"GROUP BY {one.sql('spark')} is not selected; add it to the SELECT list")
        shown = {item.name.lower() for item in self._query.items}
        if self._query.window is not None and WINDOW_START not in shown:
            raise InvalidArgument(f"the window is not selected; add window.start AS {WINDOW_START} to the SELECT list")


def _aggregate(node: Any) -> str | None:
    """How an aggregate is maintained; "" if it is one that is not; None if it is none."""
    from sqlglot import exp

    if isinstance(node, exp.Alias):
        node = node.this
    if isinstance(node, exp.Filter):
        node = node.this
    kinds = {exp.Count: "count", exp.Sum: "sum", exp.Min: "min", exp.Max: "max", exp.Avg: "avg"}
    if type(node) in kinds:
        return kinds[type(node)]
    if isinstance(node, exp.ApproxDistinct):
        return "approx_count_distinct"
    if isinstance(node, exp.AggFunc):
        instead = {
            exp.ArgMax: "fl.last(..., order_by=...) of fl.counters() keeps the value at the largest",
            exp.ArgMin: "fl.first(..., order_by=...) of fl.counters() keeps the value at the smallest",
            exp.Quantile: "fl.quantile() of fl.counters() keeps an estimate",
            exp.First: "it depends on the order of rows; fl.first(..., order_by=...) of fl.counters() says which",
            exp.Last: "it depends on the order of rows; fl.last(..., order_by=...) of fl.counters() says which",
        }.get(type(node), "maintained are count, sum, min, max, avg and count(DISTINCT ...)")
        raise refused(brief_repr(node.sql("spark")), instead)
    return None


def _aggregates_inside(node: Any) -> bool:
    from sqlglot import exp

    return node.find(exp.AggFunc) is not None


def is_star(part: Any) -> bool:
    from sqlglot import exp

    return isinstance(part, exp.Star) or (isinstance(part, exp.Column) and isinstance(part.this, exp.Star))


def _window_part(node: Any) -> str | None:
    """ "start" or "end" of `window.start` and `window(...).start`; None if it is neither."""
    from sqlglot import exp

    if isinstance(node, exp.Column) and node.table.lower() in _WINDOWS and node.name.lower() in ("start", "end"):
        return str(node.name.lower())
    if isinstance(node, exp.Dot) and isinstance(node.this, exp.Func) and _function(node.this) in _WINDOWS:
        return str(node.expression.name.lower())
    return None


# --- the text of the parts --------------------------------------------------------------------------------------------


def tokens_of(text: str) -> list[Any]:
    from sqlglot import Dialect

    return list(Dialect.get_or_raise("spark").tokenize(text))


def _for_parser(text: str) -> str:
    """With another name for window(): after GROUP BY, the parser takes it for the clause of window functions."""
    from sqlglot import TokenType as T

    tokens = tokens_of(text)
    for token, following in reversed(list(pairwise(tokens))):
        if token.token_type == T.WINDOW and following.token_type == T.L_PAREN:
            text = text[: token.start] + _PREFIX + text[token.start :]
    return text


def _clauses(text: str) -> dict[str, list[str]]:
    """The text of a query's clauses: the parts of "select" and "group", and "where" as one."""
    from sqlglot import TokenType as T

    heads = {T.SELECT: "select", T.FROM: "from", T.WHERE: "where", T.GROUP_BY: "group", T.SEMICOLON: "end"}
    tokens = tokens_of(text)
    found: dict[str, list[str]] = {}
    name, start, depth = "", 0, 0
    for number, token in enumerate(tokens):
        depth += (token.token_type in (T.L_PAREN, T.L_BRACKET)) - (token.token_type in (T.R_PAREN, T.R_BRACKET))
        head = heads.get(token.token_type) if depth == 0 else None
        if head == "from" and number and tokens[number - 1].token_type == T.DISTINCT:
            continue  # a IS DISTINCT FROM b
        if head is not None and head not in found:
            if name:
                found[name] = [text[start : token.start].strip()]
            name, start = head, token.end + 1
            found[name] = [""]
    end = len(text) if name != "end" else start
    found[name] = [text[start:end].strip()]
    return {one: _split(whole[0]) if one in ("select", "group") else whole for one, whole in found.items()}


def _split(text: str) -> list[str]:
    """The parts between commas, outside of brackets."""
    from sqlglot import TokenType as T

    parts, start, depth = [], 0, 0
    for token in tokens_of(text):
        depth += (token.token_type in (T.L_PAREN, T.L_BRACKET)) - (token.token_type in (T.R_PAREN, T.R_BRACKET))
        if token.token_type == T.COMMA and depth == 0:
            parts.append(text[start : token.start].strip())
            start = token.end + 1
    return [*parts, text[start:].strip()]


def split_at_and(text: str) -> list[str]:
    """The conditions that have all to be true, each as it was written; the whole, if some may be instead of others.

    >>> split_at_and("a BETWEEN 1 AND 2 AND (b OR c) AND d")
    ['a BETWEEN 1 AND 2', '(b OR c)', 'd']
    """
    from sqlglot import TokenType as T

    parts, start, depth, is_between = [], 0, 0, False
    opening, closing = (T.L_PAREN, T.L_BRACKET, T.CASE), (T.R_PAREN, T.R_BRACKET, T.END)
    for token in tokens_of(text):
        depth += (token.token_type in opening) - (token.token_type in closing)
        if depth:
            continue
        if token.token_type == T.OR:
            return [text.strip()]
        if token.token_type == T.BETWEEN:
            is_between = True
        elif token.token_type == T.AND and is_between:
            is_between = False
        elif token.token_type == T.AND:
            parts.append(text[start : token.start].strip())
            start = token.end + 1
    return [*parts, text[start:].strip()]


def as_column(text: str, name: str) -> str:
    """An expression with its name, as Spark takes it."""
    escaped = name.replace("`", "``")
    return f"{text} AS `{escaped}`"


def _without_alias(text: str, has_alias: bool) -> str:
    """The expression of `expression [AS] name`."""
    from sqlglot import TokenType as T

    if not has_alias:
        return text
    tokens = tokens_of(text)
    last = tokens[-2] if len(tokens) > 2 and tokens[-2].token_type == T.ALIAS else tokens[-1]
    return text[: last.start].strip()


def _filtered(text: str) -> tuple[str, str]:
    """The aggregate and the condition of `aggregate FILTER (WHERE condition)`."""
    from sqlglot import TokenType as T

    tokens = tokens_of(text)
    depth = 0
    for number, token in enumerate(tokens):
        depth += (token.token_type == T.L_PAREN) - (token.token_type == T.R_PAREN)
        if depth == 0 and token.token_type == T.R_PAREN:
            rest = tokens[number + 1 :]
            condition = text[rest[2].end + 1 : rest[-1].start].strip()  # FILTER ( WHERE condition )
            return text[: token.end + 1], condition
    raise InvalidArgument(f"{brief_repr(text)} cannot be read; write aggregate FILTER (WHERE condition)")
