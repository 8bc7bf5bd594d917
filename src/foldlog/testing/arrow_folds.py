"""Folds on given records without Spark, for functions that need none: those that return their rows, or that use Python
functions of Arrow or pandas (`mapInArrow`, `mapInPandas`) and choose columns by name.

`ArrowRows` stands for a DataFrame while such a function runs. Whatever else the function asks of it is NeedsSpark, and
the caller runs the fold with Spark. What a view makes of the rows is a model in plain Python, which shares nothing with
the engines, nor with what Spark computes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import foldlog
from foldlog.errors import FoldError, InvalidArgument
from foldlog.spark.decoders.decoder import decoder_for, key_decoder
from foldlog.testing.fold_law import GivenRecord, Row, Step
from foldlog.views.contract import DELETED, META, OFFSET, PARTITION, TIMESTAMP, TOPIC
from foldlog.views.counters.measures import Aggregation
from foldlog.views.counters.windows import WINDOW_START, AnyWindow, Window
from foldlog.views.ddl import columns_of
from foldlog.views.growing import MORE, GrowingView, is_column_name
from foldlog.views.reduce.states import State
from foldlog.views.reduce.stepping import Reduction, step_groups
from foldlog.views.table.expiry import Ttl, check_ttl

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.spark.folds.declaration import DeclaredTopic, Fold

_CARRIED: Final = (PARTITION, OFFSET, TIMESTAMP, DELETED)


class NeedsSpark(Exception):
    """The fold can only be run by Spark."""


class ArrowRows:
    """Rows as a fold's function gets them, in Arrow: as much of a DataFrame as needs no plan."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    @property
    def schema(self) -> Any:
        """Spark's StructType of the columns; this needs pyspark, but no session."""
        try:
            from pyspark.sql.pandas.types import from_arrow_schema
        except ImportError as error:
            raise NeedsSpark from error
        return from_arrow_schema(self.table.schema)

    def select(self, *columns: Any) -> ArrowRows:
        """Columns by their names."""
        wanted = [one for some in columns for one in (some if isinstance(some, list | tuple) else [some])]
        if not all(isinstance(one, str) and one in self.columns for one in wanted):
            raise NeedsSpark
        return ArrowRows(self.table.select(wanted))

    def drop(self, *columns: Any) -> ArrowRows:
        """The other columns."""
        if not all(isinstance(one, str) for one in columns):
            raise NeedsSpark
        return ArrowRows(self.table.drop_columns([one for one in columns if one in self.columns]))

    def repartition(self, *_: Any) -> ArrowRows:
        """Rows have no partitions here."""
        return self

    coalesce = repartition

    def mapInArrow(self, func: Callable[..., Iterable[Any]], schema: Any, **_: Any) -> ArrowRows:  # noqa: N802 Spark's
        """What the function makes of the batches."""
        import pyarrow as pa

        wanted = _declared(schema)
        made = [_fitted(one, wanted) for one in func(iter(self._batches()))]
        return ArrowRows(pa.Table.from_batches(made, wanted))

    def mapInPandas(self, func: Callable[..., Iterable[Any]], schema: Any, **_: Any) -> ArrowRows:  # noqa: N802 Spark's
        """What the function makes of the batches, as pandas' frames."""
        import pyarrow as pa

        wanted = _declared(schema)
        frames = (batch.to_pandas() for batch in self._batches())
        made = [pa.RecordBatch.from_pandas(one, wanted, preserve_index=False) for one in func(frames)]
        return ArrowRows(pa.Table.from_batches(made, wanted))

    def _batches(self) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = self.table.combine_chunks().to_batches()
        return found

    def __getattr__(self, name: str) -> Any:
        raise NeedsSpark(name)


def _declared(schema: Any) -> pa.Schema:
    """The columns of a user's schema: DDL or a StructType."""
    if isinstance(schema, str):
        try:
            return columns_of(schema)
        except InvalidArgument as error:
            raise NeedsSpark from error
    try:
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(schema, timezone="UTC")
    except Exception as error:
        raise NeedsSpark from error


def _fitted(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """As Spark takes a batch: columns by name, in the declared types."""
    import pyarrow as pa

    if sorted(batch.schema.names) != sorted(wanted.names):
        raise FoldError(
            f"the function returned the columns {', '.join(batch.schema.names)}, and declares {wanted.names}"
        )
    arrays = [batch.column(one.name).cast(one.type) for one in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def contents_without_spark(fold: Fold) -> Callable[[Sequence[GivenRecord], Sequence[Step]], list[Row]]:
    """A `fold_law.Contents` of a fold. It raises NeedsSpark when it is called, if only Spark can run the fold."""
    known: list[tuple[list[GivenRecord], pa.Table]] = []

    def contents(records: Sequence[GivenRecord], steps: Sequence[Step]) -> list[Row]:
        if not known or known[0][0] != list(records):
            known[:] = [(list(records), decoded(fold.topic, records))]
        whole = known[0][1]
        made = [(step, *_folded(fold, whole, _places(records, step))) for step in steps]
        return _held(fold, [(given, found) for step, given, found in made if not step.is_lost])

    return contents


def decoded(topic: DeclaredTopic, records: Sequence[GivenRecord]) -> pa.Table:
    """The records that parse, as a fold's function gets them: through a log in memory and the topic's decoders."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if topic.key_format is not None or topic.headers is not None or topic.only is not None:
        raise NeedsSpark
    given = _schema(topic)
    fields = None if given is None else pa.schema([one for one in given if one.name != topic.key])
    values = decoder_for(topic.format, fields, **topic.options)
    raw = _written(topic, records)
    arrays, reasons = values.decode(raw["value"].combine_chunks())
    columns: dict[str, Any] = {}
    if topic.key is not None:
        kind = given.field(topic.key).type if given is not None and topic.key in given.names else pa.string()
        columns[topic.key], wrong = key_decoder(kind).decode(raw["key"].combine_chunks())
        reasons = wrong if reasons is None else reasons if wrong is None else pc.coalesce(wrong, reasons)
    filled = zip(values.schema.names, arrays, strict=True)
    columns |= {name: array for name, array in filled if name not in columns}
    columns[TOPIC] = pa.array([topic.name] * raw.num_rows, pa.string())
    columns[PARTITION] = raw["partition"].cast(pa.int32())
    columns[OFFSET] = raw["offset"].cast(pa.int64())
    columns[TIMESTAMP] = raw["timestamp"].cast(pa.timestamp("us", tz="UTC"))
    columns[DELETED] = pc.is_null(raw["value"])
    rows = pa.table(columns)
    return rows if reasons is None else rows.filter(pc.is_null(reasons))


def _schema(topic: DeclaredTopic) -> pa.Schema | None:
    if topic.schema is None:
        return None
    if not isinstance(topic.schema, str):
        return _declared(topic.schema)
    try:
        return columns_of(topic.schema)
    except InvalidArgument as error:
        raise NeedsSpark from error


def _written(topic: DeclaredTopic, records: Sequence[GivenRecord]) -> pa.Table:
    with foldlog.open(":memory:") as log:
        log.create_topic(topic.name, max((one.partition for one in records), default=0) + 1)
        with log.producer() as producer:
            for one in records:
                producer.send(topic.name, one.value, one.key, partition=one.partition, timestamp_ms=one.timestamp_ms)
        return log.read_arrow(topic.name, columns=["partition", "offset", "timestamp", "key", "value"])


def _places(records: Sequence[GivenRecord], step: Step) -> list[tuple[int, int]]:
    """The coordinates of a step's records, in the order in which it reads them."""
    ends: dict[int, int] = {}
    offsets: list[int] = []
    for record in records:
        offsets.append(ends.get(record.partition, 0))
        ends[record.partition] = offsets[-1] + 1
    return [(records[number].partition, offsets[number]) for number in step.numbers]


def _folded(fold: Fold, whole: pa.Table, places: Sequence[tuple[int, int]]) -> tuple[list[Row], list[Row] | pa.Table]:
    """The rows of these records, and what the function makes of them: rows, or a table for a state machine."""
    import pyarrow as pa

    numbers = {place: number for number, place in enumerate(_coordinates(whole))}
    given = whole.take(pa.array([numbers[place] for place in places if place in numbers], pa.int64()))
    wanted = given.filter(pa.array([not gone for gone in given[DELETED].to_pylist()], pa.bool_()))
    result = _result(fold, wanted if fold.view.aggregation is not None else given)
    lost = [name for name in _CARRIED if name not in result.column_names]
    if lost and fold.view.aggregation is None:
        raise FoldError(f"fold {fold.name!r} drops {', '.join(lost)}; keep them: rows.select(..., *fl.META)")
    if fold.view.ttl is not None:
        check_ttl(fold.view.ttl, result.schema, fold.view.place)
    if fold.view.reduction is not None:
        return given.to_pylist(), result
    return given.to_pylist(), result.to_pylist()


def _result(fold: Fold, given: pa.Table) -> pa.Table:
    """What the function returns for these rows, without the records that it fails at."""
    import pyarrow as pa

    from foldlog.spark.folds.declaration import JoinPart

    if isinstance(fold, JoinPart):
        raise NeedsSpark  # its function is called with the rows of both topics
    function: Callable[[Any], Any] = fold.function

    def called(rows: pa.Table) -> pa.Table:
        result = function(ArrowRows(rows))
        if not isinstance(result, ArrowRows):
            raise NeedsSpark
        return result.table

    parts = [called(given.slice(0, 0))]  # a function that fails at no rows is wrong itself
    with suppress(Exception):
        return called(given)
    for number in range(given.num_rows):
        with suppress(Exception):  # a dead letter
            parts.append(called(given.slice(number, 1)))
    return pa.concat_tables(parts)


def _coordinates(rows: pa.Table) -> Iterator[tuple[int, int]]:
    return zip(rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist(), strict=True)


# --- the model of a view ----------------------------------------------------------------------------------------------


def _held(fold: Fold, changes: Sequence[tuple[list[Row], Any]]) -> list[Row]:
    """The rows of a view that stored what the function made of these records, one step after the other."""
    rows = with_new_columns(fold, _kept(fold, changes))
    if fold.view.ttl is None:
        return rows
    told = []
    for given, made in changes:
        gone = {(row[PARTITION], row[OFFSET]) for row in given if row[DELETED]}
        told += [row for row in made if (row[PARTITION], row[OFFSET]) not in gone]
    return unexpired(fold.view.ttl, told, rows)


def with_new_columns(fold: Fold, rows: list[Row]) -> list[Row]:
    """The rows of a view that has a column for each field that its topic's schema does not name, if it is one."""
    if not isinstance(fold.view, GrowingView):
        return rows
    found: list[dict[str, Any]] = []
    for row in rows:
        fields = dict(row[MORE] or ())
        added = {name: text for name, text in fields.items() if is_column_name(name) and name not in row}
        left = [(name, text) for name, text in fields.items() if name not in added]
        values = {name: json.loads(text) if text[0] == '"' or text == "null" else text for name, text in added.items()}
        found.append({**row, MORE: left or None, **values})
    given = list(rows[0]) if rows else []
    names = [*given, *sorted({name for row in found for name in row} - set(given))]
    return [{name: row.get(name) for name in names} for row in found]


def unexpired(ttl: Ttl, told: Iterable[Row], rows: list[Row]) -> list[Row]:
    """Those rows of a view that have not expired by the time that all rows of its fold tell."""

    def in_utc(at: datetime) -> datetime:
        return at if at.tzinfo is not None else at.replace(tzinfo=UTC)

    latest: list[datetime] = []
    for row in told:
        at, stamp = row[ttl.column], row[TIMESTAMP]
        if at is not None and not row[DELETED]:
            has_stamp = stamp >= datetime(1970, 1, 1, tzinfo=UTC)
            latest.append(min(in_utc(at), stamp) if has_stamp else in_utc(at))
    if not latest:
        return rows
    age = max(latest)
    life = timedelta(milliseconds=ttl.ms)
    return [row for row in rows if row[ttl.column] is None or age - in_utc(row[ttl.column]) <= life]


def _kept(fold: Fold, changes: Sequence[tuple[list[Row], Any]]) -> list[Row]:
    """The rows of a view none of whose rows expire."""
    view = fold.view
    if view.reduction is not None:
        return states_after(view.reduction, fold.topic.key or "", [_with_erased(fold, *change) for change in changes])
    if view.aggregation is not None:
        return _counted(view.aggregation, [row for _, made in changes for row in made])
    if not view.is_keyed:
        return [_shown(row) for _, made in changes for row in made if not row[DELETED]]
    if fold.keeps_rows or fold.topic.key is None:
        raise NeedsSpark
    return current_counts(fold, _newest(fold.topic.key, changes))


def current_counts(fold: Fold, rows: list[Row]) -> list[Row]:
    """The newest rows of each key; or their counters, if the view counts current rows."""
    from foldlog.views.counters.current import CurrentCounters

    return _counted(fold.view.asked, rows) if isinstance(fold.view, CurrentCounters) else rows


def _newest(key_column: str, changes: Sequence[tuple[list[Row], Any]]) -> list[Row]:
    """What the function made of the newest record of each key."""
    newest: dict[Any, list[Row]] = {}
    for given, made in changes:
        for record in given:
            key, place = record[key_column], (record[PARTITION], record[OFFSET])
            if key is not None:
                own = [row for row in made if (row[PARTITION], row[OFFSET]) == place]
                newest[key] = [] if record[DELETED] else [_shown(row) for row in own if not row[DELETED]]
    return [row for rows in newest.values() for row in rows]


def _with_erased(fold: Fold, given: list[Row], made: pa.Table) -> pa.Table:
    """With the tombstones that the function returned no rows for, where they delete a state."""
    import pyarrow as pa

    if fold.view.reduction is None or fold.view.reduction.tombstones != "delete":
        return made
    known = set(_coordinates(made))
    gone = [row for row in given if row[DELETED] and (row[PARTITION], row[OFFSET]) not in known]
    if not gone:
        return made
    erased = pa.Table.from_pylist([{name: row.get(name) for name in made.column_names} for row in gone], made.schema)
    order = [(PARTITION, "ascending"), (OFFSET, "ascending")]
    return pa.concat_tables([made, erased]).sort_by(order)


def states_after(reduction: Reduction, key: str, ranges: Iterable[pa.Table]) -> list[Row]:
    """The rows of a view of states after these ranges."""
    states: dict[Any, State] = {}
    for rows in ranges:
        for one, state in step_groups(reduction, key, rows, states).states.items():
            states.pop(one, None)
            if state is not None:
                states[one] = state
    return [{key: one, **state} for one, state in states.items()]


def _counted(aggregation: Aggregation, rows: Sequence[Row]) -> list[Row]:
    window = aggregation.window
    if not aggregation.is_plain or (window is not None and window != Window(window.column, _width_ms(window))):
        raise NeedsSpark
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if not row.get(DELETED):
            groups.setdefault(tuple(_group(aggregation, row).items()), []).append(row)
    return [{**dict(group), **_measured(aggregation, some)} for group, some in groups.items()]


def _group(aggregation: Aggregation, row: Row) -> dict[str, Any]:
    found = {name: row[name] for name in aggregation.by}
    if aggregation.window is None:
        return found
    at = row[aggregation.window.column]
    width = timedelta(milliseconds=_width_ms(aggregation.window))
    found[WINDOW_START] = None if at is None else at - (at - datetime(1970, 1, 1, tzinfo=UTC)) % width
    return found


def _width_ms(window: AnyWindow) -> int:
    """Of fixed windows that do not overlap: the model knows no others."""
    return window.width_ms if isinstance(window, Window) else 0


def _measured(aggregation: Aggregation, rows: Sequence[Row]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, measure in aggregation.measures.items():
        values = [1 if measure.column is None else row[measure.column] for row in rows]
        found[name] = _measure(measure.kind, [one for one in values if one is not None])
    return found


def _measure(kind: str, values: list[Any]) -> Any:
    if kind == "count":
        return len(values)
    if not values:
        return None
    whole: Mapping[str, Callable[[list[Any]], Any]] = {"sum": sum, "min": min, "max": max}
    return whole[kind](values) if kind in whole else sum(values) / len(values)


def _shown(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in META}
