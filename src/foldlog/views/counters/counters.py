"""`counters(place, by=[...], window=..., measures={...})`: live numbers by group and window of event time.

A range is aggregated in Spark and merged into the view, so a late event counts in its own window and there is no other
state. The engine follows from the location: `postgresql://...`, a path that ends in .duckdb, else SQLite.

In each engine `SELECT * FROM counters` (or another `name`) shows the groups and the measures. That is an SQL view over
the table with the partial results, `counters__1`; a rebuild makes `counters__2` and points the view at it. You may
index the table; do not write to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.files.paths import PathLike, as_text
from foldlog.views.counters.measures import Aggregation, Measure
from foldlog.views.counters.settings import check_aggregation
from foldlog.views.counters.view import CountersView
from foldlog.views.counters.windows import AnyWindow, parse_window
from foldlog.views.sql.postgres import is_postgres_url

if TYPE_CHECKING:
    from typing import Any

__all__ = ["aggregation_of", "check_aggregation", "counters"]

DUCKDB_ENDINGS = (".duckdb", ".ddb")
DUCKDB_PREFIX = "duckdb:///"


def counters(
    url_or_path: str | PathLike[str],
    by: Sequence[str] | str = (),
    window: tuple[str, str] | AnyWindow | None = None,
    measures: Mapping[str, Measure] | None = None,
    name: str = "counters",
    over: Literal["records", "current"] = "records",
) -> CountersView[Any]:
    """Counters at a URL or path, by the columns `by` and a window such as `("at", "1 minute")`. Nothing is created yet.

    `fl.window()` and `fl.sessions()` make other windows. Without `by` and `window` there is a single row.

    With `over="current"` the rows of each key's newest record are counted, and not every record: what an older one
    added is withdrawn. See docs/current.md.
    """
    aggregation = aggregation_of(by, window, measures)
    text: object = as_text(url_or_path)
    if over not in ("records", "current"):
        raise InvalidArgument(f"over={brief_repr(over)} is neither 'records' nor 'current'")
    if over == "current":
        return _current(text, aggregation, name)
    if isinstance(text, str) and is_postgres_url(text):
        from foldlog.views.counters.postgres import PostgresCounters

        return PostgresCounters(text, aggregation, name)
    if isinstance(text, str) and (text.startswith(DUCKDB_PREFIX) or text.endswith(DUCKDB_ENDINGS)):
        from foldlog.views.counters.duckdb import DuckdbCounters

        return DuckdbCounters(text.removeprefix(DUCKDB_PREFIX), aggregation, name)
    from foldlog.views.counters.sqlite import SqliteCounters

    return SqliteCounters(text, aggregation, name)


def _current(place: object, aggregation: Aggregation, name: str) -> CountersView[Any]:
    from foldlog.views.counters.current import PostgresCurrent, SqliteCurrent, check_current

    check_current(aggregation)
    if isinstance(place, str) and is_postgres_url(place):
        return PostgresCurrent(place, aggregation, name)
    if isinstance(place, str) and (place.startswith(DUCKDB_PREFIX) or place.endswith(DUCKDB_ENDINGS)):
        raise InvalidArgument(
            f"{place} is DuckDB's, which looks up no rows by key; keep counters of current rows in SQLite or PostgreSQL"
        )
    return SqliteCurrent(place, aggregation, name)


def aggregation_of(by: object, window: object, measures: object) -> Aggregation:
    """The aggregation from a user's arguments; InvalidArgument, in one sentence, if it cannot be counted."""
    names = (by,) if isinstance(by, str) else by
    if not isinstance(names, Sequence) or not all(isinstance(one, str) and one for one in names):
        raise InvalidArgument(f"by= names the columns to count by, such as ['merchant'], not {brief_repr(by)}")
    if len(set(names)) != len(names):
        raise InvalidArgument(f"by= names a column twice: {', '.join(names)}")
    if not isinstance(measures, Mapping) or not measures:
        raise InvalidArgument("measures= says what to count, such as {'payments': fl.count()}")
    for title, measure in measures.items():
        if not isinstance(title, str) or not title:
            raise InvalidArgument(f"a measure has a name, such as 'payments', not {brief_repr(title)}")
        if not isinstance(measure, Measure):
            raise InvalidArgument(
                f"measure {title!r} is one of fl.count, fl.sum, fl.min, fl.max, fl.avg, fl.count_distinct,"
                f" fl.approx_count_distinct, fl.quantile, fl.first, fl.last and fl.top, not {brief_repr(measure)}"
            )
    return Aggregation(tuple(names), parse_window(window), dict(measures))
