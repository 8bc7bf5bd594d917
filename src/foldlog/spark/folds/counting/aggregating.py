"""Counts a range of rows on the executors: the plan that gives one row of partial results for each group.

Windows are computed in SQL. Plain measures are, too; those with a state are counted in Arrow, task by task, and merged
after a shuffle by group. A session is counted in pieces: all events of a group in one span of the gap's length are
certainly of one session. The driver, and then the view, merge pieces that overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 as everybody calls it
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from foldlog.errors import FoldError
from foldlog.spark.folds.reading import quoted
from foldlog.spark.folds.unstorable import ROW_SIGNS, row_signs_of_unheld, signs_of_unheld
from foldlog.views.contract import View
from foldlog.views.counters.measures import Aggregation, Measure
from foldlog.views.counters.merging import input_name, lifted, merged
from foldlog.views.counters.windows import DAY_MS, WINDOW_END, WINDOW_START, Sessions, Window

if TYPE_CHECKING:
    import pyarrow as pa

Task = Callable[[Iterator[Any]], Iterator[Any]]
"""What Spark runs over the batches of a partition."""

_WINDOW: Final = "__window"
"""The start of the window of a row, before rows are grouped."""

_SPAN: Final = "__span"
"""The span that a session's piece is in."""

_HELD_ROWS: Final = 200_000
"""How many partial results a task keeps before it merges them."""


def aggregated(view: View, result: DataFrame, columns: pa.Schema, *, apart: str | None, is_near: bool) -> DataFrame:
    """The function's result, counted: `columns`, signs of values that the view cannot hold and, if `apart` names a
    column, whether the rows are of the first task. If the rows are near, `collected` has to count them: Spark evaluates
    what is left while it plans, where an aggregation would be a job.
    """
    aggregation = view.aggregation
    if aggregation is None:
        raise FoldError(f"{view.place} counts nothing")
    # Of no rows at all, SQL still makes the one row of counters without groups.
    if aggregation.is_plain and not (is_near and view.holds_unicode() and aggregation.group_columns()):
        return _in_sql(view, aggregation, result, columns, apart)
    if not view.holds_unicode():
        raise FoldError(
            f"{view.place} is in a database whose encoding is not UTF-8, where counters have no first, last, top,"
            " quantiles and different values; use a database with ENCODING 'UTF8'"
        )
    return _in_arrow(view, aggregation, result, columns, apart, is_near=is_near)


def collected(aggregation: Aggregation, columns: pa.Schema, found: pa.Table) -> pa.Table:
    """What the plan gave, with one row for each group, or piece of a session, that has the same signs."""
    if _WINDOW in found.column_names:
        signs = [name for name in found.column_names if name in ROW_SIGNS]
        return _counted(found, aggregation, columns, signs)
    return found


def _in_sql(
    view: View, aggregation: Aggregation, result: DataFrame, columns: pa.Schema, apart: str | None
) -> DataFrame:
    # Written in SQL: an expression made of Column objects costs some five calls into the JVM for each of its parts,
    # which was 20 ms a range.
    groups = [quoted(name) for name in aggregation.by]
    window = aggregation.window
    bounds: list[str] = []
    moments: list[str] = []
    if isinstance(window, Sessions):
        moments = [quoted(window.column), _session_end(window)]
        span_us = f"unix_micros({quoted(window.column)})"
        groups.append(f"{span_us} - pmod({span_us}, {window.gap_ms * 1000}L) AS {_SPAN}")
        bounds = [f"min({moments[0]}) AS {WINDOW_START}", f"max({moments[1]}) AS {WINDOW_END}"]
    elif window is not None and window.every_ms:
        # The measures' columns are selected with it: a generator stands in a SELECT only.
        inputs = [quoted(name) for name in aggregation.inputs()]
        result = result.selectExpr(*inputs, f"explode_outer({_starts(window)}) AS {_WINDOW}")
        moments = [_WINDOW]
    elif window is not None:
        moments = [_start(window)]
    if moments and not bounds:
        groups.append(f"{moments[0]} AS {WINDOW_START}")
    if apart is not None:
        # Evaluated before the shuffle, where the rows still are in the task that read them.
        groups.append(f"spark_partition_id() = 0 AS {apart}")
    partials = []
    for name, how, column in aggregation.partials():
        kind = from_arrow_type(columns.field(name).type).simpleString()
        partials.append(f"CAST({how}({1 if column is None else quoted(column)}) AS {kind}) AS {quoted(name)}")
    # Checked over the aggregated rows, not the result: a larger text may hide an unholdable one in this range only.
    signs = signs_of_unheld(view, aggregation, result, moments)
    return result.groupBy(*map(F.expr, groups)).agg(*map(F.expr, [*bounds, *partials, *signs]))


def _in_arrow(
    view: View, aggregation: Aggregation, result: DataFrame, columns: pa.Schema, apart: str | None, *, is_near: bool
) -> DataFrame:
    import pyarrow as pa

    window = aggregation.window
    inputs = _inputs(aggregation, dict(result.dtypes))
    if apart is not None:
        inputs[apart] = "spark_partition_id() = 0"
    moments = [] if window is None else [_WINDOW]
    if isinstance(window, Sessions):
        moments.append(_session_end(window))
    given = result.selectExpr(*(f"{expression} AS {quoted(name)}" for name, expression in inputs.items()))
    signs = row_signs_of_unheld(view, aggregation, given, moments)
    given = given.selectExpr("*", *(f"{sign} AS {name}" for name, sign in signs.items()))
    if is_near:
        return given
    kept = [
        *([pa.field(apart, pa.bool_())] if apart is not None else []),
        *(pa.field(one, pa.string()) for one in signs),
    ]
    names = [one.name for one in kept]
    ddl = from_arrow_schema(pa.schema([*columns, *kept]))
    found = given.mapInArrow(_counter(aggregation, columns, names), ddl)
    groups = [name for name in (*aggregation.by, *names) if name not in signs]
    if aggregation.sessions is None and window is not None:
        groups.append(WINDOW_START)
    shuffled = found.repartition(*map(F.expr, map(quoted, groups))) if groups else found.coalesce(1)
    return shuffled.mapInArrow(_merger(aggregation, names), ddl)


def _inputs(aggregation: Aggregation, kinds: dict[str, str]) -> dict[str, str]:
    """The columns that are counted in Arrow, and the window, in SQL by their names."""
    window = aggregation.window
    start = "CAST(NULL AS TIMESTAMP)"
    if isinstance(window, Sessions):
        start = quoted(window.column)
    elif window is not None:
        start = f"explode_outer({_starts(window)})" if window.every_ms else _start(window)
    found = {name: quoted(name) for name in aggregation.inputs()}
    for one in aggregation.measures.values():
        if one.column is not None:
            found[input_name(one, one.column)] = _input(one, one.column, kinds[one.column])
    return found | {_WINDOW: start}


def _counter(aggregation: Aggregation, columns: pa.Schema, kept: list[str]) -> Task:
    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        tables = (_counted(pa.Table.from_batches([batch]), aggregation, columns, kept) for batch in batches)
        yield from _all_merged(tables, aggregation, kept)

    return count


def _merger(aggregation: Aggregation, kept: list[str]) -> Task:
    def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        yield from _all_merged((pa.Table.from_batches([batch]) for batch in batches), aggregation, kept)

    return merge


def _all_merged(tables: Iterator[pa.Table], aggregation: Aggregation, kept: list[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    held: list[pa.Table] = []
    most = _HELD_ROWS
    for table in tables:
        held.append(table)
        if sum(map(len, held)) > most:
            held = [merged(pa.concat_tables(held), aggregation, kept)]
            most = max(_HELD_ROWS, 2 * len(held[0]))
    if held:
        yield from merged(pa.concat_tables(held), aggregation, kept).to_batches()


def _counted(rows: pa.Table, aggregation: Aggregation, columns: pa.Schema, kept: list[str]) -> pa.Table:
    """The partial results of rows that have the inputs of measures, merged where the columns `kept` agree."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = {name: rows[name] for name in aggregation.by}
    if aggregation.window is not None:
        found[WINDOW_START] = rows[_WINDOW].cast(pa.timestamp("us", "UTC"))
    if aggregation.sessions is not None:
        gap = pa.scalar(aggregation.sessions.gap_ms * 1000, pa.duration("us"))
        found[WINDOW_END] = pc.add(found[WINDOW_START], gap)
    found |= lifted(rows, aggregation, columns)
    table = pa.table({name: found[name].cast(columns.field(name).type) for name in columns.names}, schema=columns)
    for name in kept:
        table = table.append_column(name, rows[name])
    return merged(table, aggregation, kept)


def _input(measure: Measure, column: str, kind: str) -> str:
    """The column as `lifted` needs it."""
    name = quoted(column)
    if measure.state == "buckets":
        return f"CAST({name} AS DOUBLE)"
    if measure.state != "registers":
        return name
    # Hashed in the widest type, so that a wider one of the same numbers has the same hashes.
    if kind == "date":
        name = f"CAST(unix_date({name}) AS BIGINT)"
    elif kind in ("boolean", "tinyint", "smallint", "int"):
        name = f"CAST({name} AS BIGINT)"
    elif kind.startswith("decimal"):
        name = f"CAST({name} AS DECIMAL(38, {kind.removesuffix(')').rpartition(',')[2]}))"
    return f"CASE WHEN {name} IS NOT NULL THEN xxhash64({name}) END"


# --- windows ----------------------------------------------------------------------------------------------------------


def _start(window: Window) -> str:
    """The start of the only window that an event is in."""
    at = _local_ms(window)
    if not window.months:
        return _instant(window, f"{at} - pmod({at} - {window.origin_ms}L, {window.step_ms}L)")
    # Of dates, which have no zone: the session's zone must not matter.
    day = f"date_from_unix_date(CAST(({at} - pmod({at}, {DAY_MS}L)) div {DAY_MS}L AS INT))"
    month = f"(month({day}) - 1 - pmod(month({day}) - 1, {window.months}) + 1)"
    return _instant(window, f"CAST(unix_date(make_date(year({day}), {month}, 1)) AS BIGINT) * {DAY_MS}L")


def _starts(window: Window) -> str:
    """The starts of all windows that an event is in, as an array; null without a time."""
    at, step = _local_ms(window), window.step_ms
    last = f"{at} - pmod({at} - {window.origin_ms}L, {step}L)"
    hops = -(-window.width_ms // step)
    found = f"filter(sequence({last}, {last} - {(hops - 1) * step}L, -{step}L), s -> s > {at} - {window.width_ms}L)"
    return f"transform({found}, s -> {_instant(window, 's')})"


def _local_ms(window: Window) -> str:
    column = quoted(window.column)
    return f"unix_millis({column if window.zone is None else f'from_utc_timestamp({column}, {window.zone!r})'})"


def _instant(window: Window, local_ms: str) -> str:
    moment = f"timestamp_millis({local_ms})"
    return moment if window.zone is None else f"to_utc_timestamp({moment}, {window.zone!r})"


def _session_end(window: Sessions) -> str:
    return f"timestamp_micros(unix_micros({quoted(window.column)}) + {window.gap_ms * 1000}L)"
