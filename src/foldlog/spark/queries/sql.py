"""`sql("SELECT ... FROM payments ...", into=...)`: a fold that is a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.files.paths import PathLike
from foldlog.spark.folds.declaration import DeclaredTopic, Fold, declared_topics, fold
from foldlog.spark.queries.joined import JoinReading
from foldlog.spark.queries.query import TIME, SqlQuery, as_column, parsed_query
from foldlog.views.contract import META, View
from foldlog.views.counters.counters import counters
from foldlog.views.ddl import columns_of
from foldlog.views.table.table import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def sql(
    query: str,
    *,
    into: View | str | PathLike[str],
    name: str | None = None,
    topics: Sequence[DeclaredTopic] = (),
) -> Fold:
    """A fold that keeps the result of a query up to date, as if it were run over the whole topic.

    Without aggregates, a query gives the rows of a view: a table, a search index or a lake. With GROUP BY it gives
    counters. `into` is a view, or the place of one: a path, or a URL of PostgreSQL, where the fold's name is the
    table's. The fold has the name of its view's table, unless `name` is given. FROM names a topic that was declared
    with `topic()` before, or one of `topics`.
    """
    asked = parsed_query(query)
    if isinstance(asked, JoinReading):
        return _join(asked, into, name, topics)
    topic = _topic(asked.topic, topics)
    known = _columns(topic)
    if known is not None:
        asked.check_columns([*known, *META])
    chosen = _name(into, name)
    view = _counters(asked, into, chosen) if asked.measures else _rows(asked, topic, into, chosen)
    return fold(topic, into=view, name=chosen)(SqlFunction(asked, query))


class SqlFunction:
    """The function of a fold that is a query: it gives its rows to Spark with the query's own expressions."""

    def __init__(self, query: SqlQuery, text: str) -> None:
        self._query = query
        self.__doc__ = text

    def __call__(self, rows: DataFrame) -> DataFrame:
        query = self._query
        rows = rows.alias(query.alias)
        if query.where is not None:
            rows = rows.where(query.where)
        if not query.measures:
            taken = {item.name.lower() for item in query.items}
            own = [as_column(item.text, item.name) for item in query.items]
            meta = () if query.stars else (one for one in META if one not in taken)
            return rows.selectExpr(*query.stars, *own, *meta)
        groups = [as_column(item.text, item.name) for item in query.by]
        measured = [as_column(text, column) for column, text in query.measured.items()]
        time = [] if query.time is None else [as_column(query.time, TIME)]
        counted = rows.selectExpr(*groups, *time, *measured)
        # As Spark's own window(): a row without a time is in none.
        return counted if query.time is None else counted.where(f"{TIME} IS NOT NULL")


def _join(asked: JoinReading, into: object, name: str | None, topics: Sequence[DeclaredTopic]) -> Fold:
    """A fold of two topics: see docs/joins.md."""
    left, right = (_topic(one, topics) for one in asked.topics)
    made = asked.query((_columns(left), _columns(right)), (left.keys, right.keys))
    chosen = _name(into, name)
    view = into if isinstance(into, View) else table(into, chosen)  # type: ignore[arg-type]  # it says what is wrong
    return fold(left, right, into=view, name=chosen)(made)


def _topic(name: str, topics: Sequence[DeclaredTopic]) -> DeclaredTopic:
    known = {one.name: one for one in topics} if topics else declared_topics()
    if name in known:
        return known[name]
    there = ", ".join(sorted(known)) or "none"
    raise InvalidArgument(
        f"the query reads {name!r}, which is not a declared topic (there are: {there}); declare it before:"
        f" fl.topic({name!r}, ...)"
    )


def _columns(topic: DeclaredTopic) -> list[str] | None:
    """The columns of a topic's rows; None if only Spark, or a registry, knows them."""
    if topic.headers is not None or topic.key_format is not None:
        return None
    if topic.format in ("text", "raw"):
        return [*topic.keys, "value"]
    if topic.schema is None:
        return None
    try:
        names = columns_of(topic.schema).names if isinstance(topic.schema, str) else topic.schema.names
    except InvalidArgument:
        return None  # Spark says what is wrong with it, or knows more types
    return list(dict.fromkeys([*topic.keys, *names]))


def _name(into: object, name: str | None) -> str:
    if name is not None:
        return name
    described = into.description() if isinstance(into, View) else None
    table_of_view = None if described is None else described.get("name")
    if not isinstance(table_of_view, str):
        raise InvalidArgument("a fold in SQL needs a name, as it has no function: fl.sql(..., name='totals')")
    return table_of_view.rpartition(".")[2]


def _counters(query: SqlQuery, into: View | str | PathLike[str], name: str) -> View:
    if isinstance(into, View):
        raise InvalidArgument(
            f"the query says what is counted, and so makes its counters itself: give the place alone, as in"
            f" into='views/live.db', not {brief_repr(into.place)}"
        )
    by = [item.name for item in query.by]
    return counters(into, by=by, window=query.window, measures=query.measures, name=name)


def _rows(query: SqlQuery, topic: DeclaredTopic, into: View | str | PathLike[str], name: str) -> View:
    view = into if isinstance(into, View) else table(into, name)
    if view.aggregation is not None:
        raise InvalidArgument(
            f"{view.place} counts, and the query has no aggregate; select one, such as count(*) AS n, or use fl.table()"
        )
    taken = {item.name.lower() for item in query.items}
    lost = next((one for one in topic.keys if one.lower() not in taken), None)
    if view.follows_keys and lost is not None and not query.stars and not view.keeps_rows(topic.keys):
        raise InvalidArgument(
            f"a {view.kind} view finds its rows by the record's key, and the query does not select {lost!r}; add it"
        )
    return view
