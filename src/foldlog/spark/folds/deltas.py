"""What a range of the log means for a view: the fold's function run by Spark, and its result brought to the driver.

The result of a range is bounded, so it fits the driver; counters are aggregated in Spark first, so little comes at all.
Nothing is stored here. To follow a range: `PreparedFold.delta`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.accumulators import Accumulator
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 as everybody calls it
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema

from foldlog.errors import FoldError, FoldlogError
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.law import check_law, used_columns
from foldlog.spark.folds.reading import Seen, TopicFrames
from foldlog.spark.folds.shipping import ship
from foldlog.spark.folds.spark_errors import brief_spark_error
from foldlog.spark.origins.origin import OffsetRange
from foldlog.views.contract import DELETED, META, OFFSET, PARTITION, TIMESTAMP, TOPIC, Delta, Shape
from foldlog.views.measures import WINDOW_START, Aggregation

if TYPE_CHECKING:
    import pyarrow as pa

_CARRIED: Final = (PARTITION, OFFSET, TIMESTAMP, DELETED)
"""META that a fold has to let through; the topic is one for all rows."""


@dataclass(frozen=True)
class PreparedFold:
    """A fold that was checked against its topic's columns: what it makes of them, and which it needs."""

    fold: Fold
    frames: TopicFrames
    shape: Shape
    used: frozenset[str]
    is_plain: bool = False
    """The fold takes its rows as they are: Spark need not look at them."""

    @property
    def needs_key(self) -> bool:
        """Whether a record without a key is a dead letter."""
        return self.fold.view.is_keyed

    def rows(self, given: DataFrame) -> pa.Table:
        """The fold's rows of a DataFrame of the topic's, as the view takes them. Runs Spark."""
        import pyarrow as pa

        found = _final(self.fold, given, self.shape).toArrow()
        if self.fold.view.aggregation is not None:
            return found.select(self.shape.columns.names).cast(self.shape.columns)
        meta = to_arrow_schema(given.select(*_CARRIED).schema, timezone="UTC")
        table = _as(found, pa.schema([*self.shape.columns, *meta]))
        return in_offset_order(table).append_column(
            TOPIC, pa.repeat(pa.scalar(self.fold.topic.name, pa.string()), table.num_rows)
        )

    def delta(self, given: DataFrame, ranges: Sequence[OffsetRange], seen: Accumulator[Seen]) -> Delta:
        """The change of the view. `seen` counts what reading `given` meets."""
        table = self.rows(given)
        if self.fold.view.is_keyed:
            table = self._with_deletions(table, ranges, seen.value)
        return Delta(table, ranges_read(ranges))

    def _with_deletions(self, table: pa.Table, ranges: Sequence[OffsetRange], seen: Seen) -> pa.Table:
        """A record that the fold gives no rows of deletes what its key had, as a tombstone does.

        So a keyed view is always the fold of the newest record of each key: a row that a filter no longer lets through
        is gone, and a compacted topic gives the same view. Where rows are missing, the keys are read once more. A
        tombstone that the fold made a row of (`_deleted` set to false) stays that row.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        places = _places(table)
        if 0 < seen.records - seen.dead <= len(places.unique()):  # none are counted if Spark found it need not read
            return table
        found = self.frames.keys(ranges)
        missing = found.filter(pc.invert(pc.is_in(_places(found), value_set=places)))
        if not len(missing):
            return table
        deletions = missing.set_column(
            missing.column_names.index(DELETED), DELETED, pa.repeat(pa.scalar(True), len(missing))
        )
        columns = [
            deletions[name] if name in deletions.column_names else pa.nulls(len(missing), table.schema.field(name).type)
            for name in table.column_names
        ]
        more = _as(pa.table(columns, names=table.column_names), table.schema)
        return in_offset_order(pa.concat_tables([table, more]))


def prepare(fold: Fold, frames: TopicFrames) -> PreparedFold:
    """Run the fold's function over no rows: UnlawfulFold, or another FoldError, if it cannot be right."""
    ship(fold)
    rows = frames.empty()
    given = _given(fold, rows)
    try:
        result = fold(given)
        check_law(fold.name, given, result)
        shape = _shape(fold, result)
        final = _final(fold, rows, shape)
        is_plain = result is rows and fold.view.aggregation is None
        return PreparedFold(fold, frames, shape, used_columns(final), is_plain)
    except AnalysisException as error:
        raise FoldError(f"fold {fold.name!r} cannot be planned: {brief_spark_error(error)}") from error
    except FoldlogError:
        raise
    except Exception as error:
        raise FoldError(f"fold {fold.name!r} failed before it ran: {type(error).__name__}: {error}") from error


def ranges_read(ranges: Sequence[OffsetRange]) -> dict[int, tuple[int, int]]:
    """Per partition what was read."""
    return {one.partition: (one.start, one.stop) for one in ranges}


def _given(fold: Fold, rows: DataFrame) -> DataFrame:
    """What the function gets. Counters count records that say something: a tombstone does not."""
    return rows if fold.view.aggregation is None else rows.filter(~F.col(DELETED))


def _shape(fold: Fold, result: DataFrame) -> Shape:
    names = result.columns
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FoldError(f"fold {fold.name!r} returns two columns {twice!r}; rename or drop one")
    arrow = to_arrow_schema(result.schema, timezone="UTC")
    aggregation = fold.view.aggregation
    if aggregation is not None:
        from foldlog.views.counters import check_aggregation

        columns = check_aggregation(aggregation, arrow)
        return Shape(columns, None, aggregation.group_columns())
    dropped = [name for name in _CARRIED if name not in names]
    if dropped:
        raise FoldError(
            f"fold {fold.name!r} drops {', '.join(dropped)}, by which its view knows what it has;"
            " keep them: rows.select(..., *fl.META)"
        )
    key = fold.topic.key
    if fold.view.is_keyed and key not in names:
        raise FoldError(f"fold {fold.name!r} drops {key!r}, the key of its rows; keep it")
    import pyarrow as pa

    return Shape(pa.schema([field for field in arrow if field.name not in META]), key, (key,) if key else ())


def _final(fold: Fold, rows: DataFrame, shape: Shape) -> DataFrame:
    """All of the plan: what the function makes of the rows, and what the view needs of that."""
    result = fold(_given(fold, rows))
    aggregation = fold.view.aggregation
    if aggregation is not None:
        return _aggregated(result, aggregation, shape.columns)
    return result.select(*(F.col(f"`{name}`") for name in (*shape.columns.names, *_CARRIED)))


def _aggregated(result: DataFrame, aggregation: Aggregation, columns: pa.Schema) -> DataFrame:
    groups: list[Column] = [F.col(f"`{name}`") for name in aggregation.by]
    if aggregation.window is not None:
        at = F.unix_millis(F.col(f"`{aggregation.window.column}`"))
        start = at - F.pmod(at, F.lit(aggregation.window.width_ms))
        groups.append(F.timestamp_millis(start).alias(WINDOW_START))
    makers = {"count": F.count, "sum": F.sum, "min": F.min, "max": F.max}
    partials = [
        makers[how](F.lit(1) if column is None else F.col(f"`{column}`"))
        .cast(from_arrow_type(columns.field(name).type))
        .alias(name)
        for name, how, column in aggregation.partials()
    ]
    return result.groupBy(*groups).agg(*partials)


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same instants and values under the view's types: Spark gives timestamps in the session's zone."""
    return table.select(schema.names).cast(schema)


def _places(table: pa.Table) -> pa.Array:
    """Partition and offset as one value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = (table[PARTITION].cast(pa.string()), table[OFFSET].cast(pa.string()))
    return pc.binary_join_element_wise(*texts, "@").combine_chunks()


def in_offset_order(table: pa.Table) -> pa.Table:
    """Sorted by partition and offset, stably; a shuffle in the fold may have mixed them."""
    import pyarrow.compute as pc

    if len(table) < 2:
        return table
    partition, offset = table[PARTITION].combine_chunks(), table[OFFSET].combine_chunks()
    steps = pc.subtract(partition.slice(1), partition.slice(0, len(partition) - 1))
    onward = pc.greater_equal(offset.slice(1), offset.slice(0, len(offset) - 1))
    is_sorted = pc.all(pc.or_(pc.greater(steps, 0), pc.and_(pc.equal(steps, 0), onward))).as_py()
    if is_sorted:
        return table
    return table.take(pc.sort_indices(table, sort_keys=[(PARTITION, "ascending"), (OFFSET, "ascending")]))
