"""What a range of the log changes in a view: Spark runs the fold's function, and the result comes to the driver, or is
written by the executors where the view takes it from.

The result of a range is bounded, so it fits the driver; counters are aggregated in Spark first, so their result is
small. Nothing is stored here. To follow a range: `PreparedFold.plan`, `PlannedFold.delta`, `PlannedFold.staged`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from foldlog.errors import FoldError, FoldlogError
from foldlog.limits import FOLD_PLANS_MAX
from foldlog.spark.decoders.key_columns import KEY
from foldlog.spark.driver_rows import evaluated
from foldlog.spark.folds.counting.aggregating import aggregated, collected
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.fingerprint import Doing, PlanChanged, doing_of, logic_of, unsteady
from foldlog.spark.folds.plans import (
    check_plan,
    check_source,
    checked_frame,
    is_cached,
    keeps_tasks,
    kept_columns,
    plan_key,
    plan_text,
    used_columns,
)
from foldlog.spark.folds.reading import Count, Seen, TopicFrames, quoted, staging_frame
from foldlog.spark.folds.shipping import ship
from foldlog.spark.folds.spark_errors import brief_spark_error
from foldlog.spark.folds.unstorable import check_aggregated
from foldlog.spark.origins.origin import OffsetRange
from foldlog.views.bookmark import Logic
from foldlog.views.contract import DELETED, META, OFFSET, PARTITION, RECORD, TIMESTAMP, TOPIC, Delta, Shape, View
from foldlog.views.counters.merging import merged
from foldlog.views.staging import StagedDelta, StageRefusal, Staging, ViewStage, staged_of
from foldlog.views.topic_lists import located

if TYPE_CHECKING:
    import pyarrow as pa

_CARRIED: Final = (PARTITION, OFFSET, TIMESTAMP, DELETED)
"""The META columns that a fold has to return; the topic is the same for all rows."""

_APART: Final = "__apart"
"""Whether a group is of the rows that the first task read."""


@dataclass(frozen=True)
class PlanFacts:
    """What one plan of a fold shows: the topic's columns it needs (None if unknown), whether every row certainly keeps
    the key and the coordinates of its record, whether it certainly keeps `_deleted`, whether rows certainly stay in the
    task that read them, and what the plan does.
    """

    used: frozenset[str] | None
    keeps_key: bool
    keeps_deleted: bool
    keeps_tasks: bool
    doing: Doing


@dataclass(frozen=True)
class PreparedFold:
    """A fold that was checked against its topic's columns, with the shape of its rows."""

    fold: Fold
    frames: TopicFrames
    shape: Shape
    logic: Logic
    is_plain: bool
    """Whether the fold returned its rows unchanged when it was prepared. Each range checks again."""
    _known: dict[tuple[str, int], PlanFacts] = field(default_factory=dict, repr=False)
    """By the plan's key. The function is called for every range, and usually gives the same plan."""

    @property
    def may_stage(self) -> bool:
        """Whether executors may write the rows, as far as the fold is concerned: the driver counts nothing, and adds
        nothing to a row.
        """
        return self.fold.view.aggregation is None and self.shape.record_key != RECORD

    def staging(self, stage: ViewStage) -> Staging:
        """The work of tasks that write to this place."""
        import pyarrow as pa

        columns = pa.schema([*self.shape.columns, *_carried_fields()])
        filled = tuple(name for name in self.fold.view.filled(self.shape) if name in self.shape.columns.names)
        return Staging(stage, columns, filled, self.fold.view.holds_nul)

    @property
    def needs_key(self) -> bool:
        """Whether a record without a key is a dead letter."""
        return self.fold.view.is_keyed

    def plan(self, given: DataFrame, *, apart: bool = False) -> PlannedFold:
        """Call the function on a range's rows and check its plan: PlanChanged if it differs from the prepared one.
        Nothing is read yet, unless the function itself reads. With `apart`, counters of what the first task reads are
        kept apart, if they can be.
        """
        result = checked_frame(self.fold.name, self.fold(_given(self.fold, given)))
        if result is given and self.is_plain:  # otherwise the view has other columns than the topic
            return PlannedFold(self, given, given, frozenset(given.columns), is_plain=True)
        facts = self._facts(given, result)
        apart = apart and facts.keeps_tasks
        # Few rows that no aggregation waits for are taken as the function returns them: see `PlannedFold.rows`.
        is_as_returned = self.frames.is_near and self.fold.view.aggregation is None
        final = result if is_as_returned else self._final(result, apart=apart)
        if self.fold.view.is_keyed and not facts.keeps_key and self.shape.record_key != RECORD:
            raise FoldError(
                f"fold {self.fold.name!r} now changes the column {self.shape.record_key!r}, which it did not when it"
                f" was started, so what it wrote could not be found again; start it again, and rebuild its view:"
                f" foldlog fold rebuild {self.fold.name}"
            )
        if facts.doing.logic(result) != self.logic:
            raise PlanChanged(self.fold.name)
        used = None if is_cached(given, final) else facts.used
        return PlannedFold(
            self,
            given,
            final,
            used,
            keeps_deleted=facts.keeps_deleted,
            is_apart=apart,
            keeps_tasks=facts.keeps_tasks,
        )

    def _final(self, result: DataFrame, *, apart: bool = False) -> DataFrame:
        return _final(self.fold, result, self.shape, apart=apart, is_near=self.frames.is_near)

    def _facts(self, given: DataFrame, result: DataFrame) -> PlanFacts:
        text = plan_text(result, given)
        check_source(self.fold.name, given, text)
        key = plan_key(given, text)
        facts = self._known.get(key)
        if facts is None:
            check_plan(self.fold.name, given, result)
            facts = _plan_facts(self.fold, result, self.shape, _doing(self.fold, result))
            if len(self._known) >= FOLD_PLANS_MAX:
                self._known.clear()
            self._known[key] = facts
        return facts


@dataclass(frozen=True)
class PlannedFold:
    """The plan of a fold for one range, not computed yet."""

    prepared: PreparedFold
    given: DataFrame
    final: DataFrame
    used: frozenset[str] | None
    """The columns that have to be read; None for all."""
    is_plain: bool = False
    """The fold returns its rows unchanged, so Spark does not have to process them."""
    keeps_deleted: bool = True
    """Every row's _deleted is its record's. If False, the fold may compute _deleted itself."""
    is_apart: bool = False
    """Counters of what the first task reads are apart: see `deltas_apart`."""
    keeps_tasks: bool = True
    """Every row certainly stays in the task that read it."""

    def may_stage(self, stage: ViewStage) -> bool:
        """Whether executors can write this plan's rows to the place. Which records are tombstones, though a function
        says otherwise, only the driver finds out.
        """
        needs_order = stage.needs_order or self.prepared.fold.view.is_keyed
        return self.prepared.may_stage and self.keeps_deleted and (self.keeps_tasks or not needs_order)

    def staged(self, stage: ViewStage, ranges: Sequence[OffsetRange], seen: Count) -> StagedDelta | StageRefusal:
        """The change of the view, as executors have written it: `delta`, without the rows passing the driver."""
        prepared = self.prepared
        staging = prepared.staging(stage)
        read = ranges_read(ranges)
        staged, records = staged_of(stage, staging_frame(self.final, staging), read)
        met = seen.value
        is_whole = not prepared.fold.view.is_keyed or 0 < met.records - met.dead <= records
        if isinstance(staged, StageRefusal) or is_whole:
            return staged
        # As in `_with_deletions`; here of all records, as no executor knows which ones another has rows of.
        deleting = replace(staging, stage=stage.for_deletions(), are_deletions=True)
        more, _ = staged_of(stage, prepared.frames.stage_deletions(ranges, deleting), read)
        return more if isinstance(more, StageRefusal) else staged.with_more(more)

    def rows(self) -> pa.Table:
        """The fold's rows, without RECORD, in offset order; or aggregated. Runs Spark."""
        fold, shape = self.prepared.fold, self.prepared.shape
        if not self.prepared.frames.is_near:
            return as_view_rows(fold, shape, self.final.toArrow())
        # A job costs more than all the rest: a filter over one row took five times as long as no filter.
        found = evaluated(self.final)
        if found is None:
            whole = self.final if fold.view.aggregation is not None else self.prepared._final(self.final)
            found = whole.coalesce(1).toArrow()  # few rows: in one task, nothing has to be shuffled
        return as_view_rows(fold, shape, found)

    def delta(self, ranges: Sequence[OffsetRange], seen: Count) -> Delta:
        """The change of the view. `seen` counts the records that reading the range meets."""
        prepared = self.prepared
        table = _with_topics(prepared.fold, self.rows(), ranges)
        if not self.keeps_deleted and prepared.fold.view.aggregation is None:
            table = with_deleted(table, prepared.frames.tombstones(ranges))
        if prepared.shape.keeps_rows:
            table = self._with_withdrawals(table, ranges, seen.value)
        elif prepared.shape.record_key == RECORD:
            table = with_records(prepared.fold, prepared.shape, table, prepared.frames.keys(ranges))
        elif prepared.fold.view.is_keyed:
            table = self._with_deletions(table, ranges, seen.value)
        elif _erases(prepared.fold.view) and self._lacks_records(coordinates_of(table), seen.value):
            table = with_tombstones(prepared, table, ranges)
        return Delta(table, ranges_read(ranges))

    def deltas_apart(self, first: Sequence[OffsetRange], rest: Sequence[OffsetRange]) -> tuple[Delta, Delta]:
        """The changes of counters by what the first task reads, and by the rest."""
        import pyarrow.compute as pc

        found = self.final.toArrow()
        of_first, of_rest = (
            as_view_rows(self.prepared.fold, self.prepared.shape, found.filter(pc.equal(found[_APART], is_first)))
            for is_first in (True, False)
        )
        return Delta(of_first, ranges_read(first)), Delta(of_rest, ranges_read(rest))

    def _with_deletions(self, table: pa.Table, ranges: Sequence[OffsetRange], seen: Seen) -> pa.Table:
        """Add a deletion for each record that the fold returned no rows for, as for a tombstone.

        So a keyed view is always the fold of the newest record of each key: a row that a filter no longer lets through
        is deleted, and a compacted topic gives the same view. If rows are missing, the keys are read once more.
        """
        coordinates = coordinates_of(table)
        if not self._lacks_records(coordinates, seen):
            return table
        return _with_missing(table, self.prepared.frames.keys(ranges), coordinates)

    def _lacks_records(self, coordinates: pa.Array, seen: Seen) -> bool:
        """Whether records may be missing in rows with these coordinates."""
        # The number of records is 0 if Spark found that it need not read.
        return not 0 < seen.records - seen.dead <= len(coordinates.unique())

    def _with_withdrawals(self, table: pa.Table, ranges: Sequence[OffsetRange], seen: Seen) -> pa.Table:
        """For rows with keys of their own: tell whose each is, and what each tombstone withdraws: see
        `View.keeps_rows`. A record that the fold returned no rows for changes nothing.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        prepared, shape = self.prepared, self.prepared.shape
        if not prepared.fold.topic.keys:
            # Without keys, only records of one partition have an order: it stands for the key.
            owner = pc.binary_join_element_wise("partition", table[PARTITION].cast(pa.string()), " ")
            return _with_keyed_deletions(prepared, table.append_column(RECORD, owner))
        coordinates = coordinates_of(table)
        has_all = 0 < seen.records - seen.dead <= len(coordinates.unique())
        if shape.record_key != RECORD and has_all and not pc.any(table[DELETED], min_count=0).as_py():
            return table
        records = prepared.frames.keys(ranges)
        tombstones = records.filter(records[DELETED])
        if shape.record_key == RECORD:
            table = with_owners(prepared.fold, shape, table, records)
            (column,) = prepared.fold.topic.record_columns
            tombstones = tombstones.append_column(RECORD, record_owners(prepared.fold, tombstones))
            tombstones = tombstones.drop_columns([column])
        # Whatever the function makes of a tombstone, it withdraws what its key has written.
        table = table.filter(pc.invert(pc.is_in(coordinates, value_set=coordinates_of(tombstones))))
        table = _with_keyed_deletions(prepared, table)
        return _with_missing(table, tombstones, coordinates_of(table))


def _with_keyed_deletions(prepared: PreparedFold, table: pa.Table) -> pa.Table:
    """Without the rows that delete and have no key: there is no row that they mean."""
    import pyarrow.compute as pc

    for name in prepared.fold.view.filled(prepared.shape):
        table = table.filter(pc.invert(pc.and_(table[DELETED], pc.is_null(table[name]))))
    return table


def _erases(view: View) -> bool:
    """Whether a tombstone deletes what the view has of its key, whatever the function makes of it."""
    return view.is_keyed or (view.reduction is not None and view.reduction.tombstones == "delete")


def as_view_rows(fold: Fold, shape: Shape, found: pa.Table) -> pa.Table:
    """Spark's result in the view's types and with all META columns."""
    import pyarrow as pa

    aggregation = fold.view.aggregation
    if aggregation is not None:
        found = collected(aggregation, shape.columns, found)
        check_aggregated(fold.view, aggregation, found)
        rows = found.select(shape.columns.names).cast(shape.columns)
        # Pieces of sessions, and groups of which rows have different signs, are still apart.
        return rows if aggregation.is_plain and aggregation.sessions is None else merged(rows, aggregation)
    own = [one for one in shape.columns if one.name != RECORD]
    table = in_offset_order(_as(found, pa.schema([*own, *_carried_fields()])))
    return table.append_column(TOPIC, pa.repeat(pa.scalar(fold.topic.name, pa.string()), table.num_rows))


def _with_topics(fold: Fold, table: pa.Table, ranges: Sequence[OffsetRange]) -> pa.Table:
    """With the topic of each row, if several are read as one."""
    import pyarrow as pa

    if not fold.topic.is_several or TOPIC not in table.column_names:
        return table
    topics = {one.partition: located(one.topic, one.partition)[0] for one in ranges}
    told = pa.array([topics.get(number, fold.topic.name) for number in table[PARTITION].to_pylist()], pa.string())
    return table.set_column(table.column_names.index(TOPIC), TOPIC, told)


def with_deleted(table: pa.Table, tombstones: pa.Table) -> pa.Table:
    """Mark the rows that delete: those of tombstones, even if the fold says otherwise, and those that the fold marks. A
    null of the fold's means that the row deletes only if its record is a tombstone.
    """
    import pyarrow.compute as pc

    said = pc.fill_null(table[DELETED], False)
    if tombstones.num_rows:
        said = pc.or_(said, pc.is_in(coordinates_of(table), value_set=coordinates_of(tombstones)))
    return table.set_column(table.column_names.index(DELETED), table.schema.field(DELETED), said)


def with_records(fold: Fold, shape: Shape, table: pa.Table, records: pa.Table) -> pa.Table:
    """Add to each row the key of its record, and a deletion for each record without rows.

    `records` has the key and META of every record of the range that parses. Rows know their record by its coordinates.
    """
    (column,) = fold.topic.record_columns
    owned = with_owners(fold, shape, table, records)
    records = records.append_column(RECORD, record_owners(fold, records))
    # The column of the key already holds what the fold returned; a deletion is addressed by the record's digest.
    return _with_missing(owned, records.drop_columns([column]), coordinates_of(table))


def with_owners(fold: Fold, shape: Shape, table: pa.Table, records: pa.Table) -> pa.Table:
    """Add to each row the digest of its record's key; `records` as in `with_records`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    records = records.append_column(RECORD, record_owners(fold, records))
    coordinates, all_coordinates = coordinates_of(table), coordinates_of(records)
    numbers = pc.index_in(coordinates, value_set=all_coordinates)
    if numbers.null_count:
        strange = table.filter(pc.is_null(numbers)).slice(0, 1)
        raise FoldError(
            f"fold {fold.name!r} gave a row at offset {strange[OFFSET][0]} of partition {strange[PARTITION][0]}, which"
            " it was not given just now; keep _partition and _offset as they are: select(..., *fl.META)"
        )
    owned = table.append_column(RECORD, records[RECORD].take(numbers))
    return _as(owned, pa.schema([*shape.columns, *(one for one in table.schema if one.name in META)]))


def record_owners(fold: Fold, records: pa.Table) -> pa.Array:
    """A digest for the key of each record, by which views know whose a row is. Of several topics that are read as one,
    the key is that of its topic: two topics have no order, so a record of one cannot replace that of another.
    """
    (column,) = fold.topic.record_columns
    return record_digests(records[column], records[TOPIC].to_pylist() if fold.topic.is_several else None)


def record_digests(keys: pa.ChunkedArray, topics: Sequence[str] | None = None) -> pa.Array:
    """A digest for a record's key, for views that must not show the key: 32 hexadecimal digits."""
    import pyarrow as pa
    from pyarrow import types

    is_bytes = types.is_binary(keys.type) or types.is_large_binary(keys.type)
    texts = keys.to_pylist() if is_bytes else [None if one is None else one.encode() for one in _texts(keys)]
    if topics is not None:  # no topic has a NUL in its name
        texts = [None if one is None else f"{of}\0".encode() + one for of, one in zip(topics, texts, strict=True)]
    return pa.array([None if one is None else blake2b(one, digest_size=16).hexdigest() for one in texts], pa.string())


def _texts(keys: pa.ChunkedArray) -> list[str | None]:
    import pyarrow as pa

    texts: list[str | None] = keys.cast(pa.string()).to_pylist()
    return texts


def with_tombstones(prepared: PreparedFold, table: pa.Table, ranges: Sequence[OffsetRange]) -> pa.Table:
    """Add a deletion for each tombstone of these ranges without rows in the table. A key that is to be erased has to go
    even if the fold fails at its tombstone.
    """
    if not _erases(prepared.fold.view) or not ranges:
        return table
    records = prepared.frames.keys(ranges)
    records = records.filter(records[DELETED])
    if prepared.shape.record_key == RECORD and prepared.fold.topic.keys:
        (column,) = prepared.fold.topic.record_columns
        records = records.append_column(RECORD, record_owners(prepared.fold, records)).drop_columns([column])
    return _with_missing(table, records, coordinates_of(table))


def _with_missing(table: pa.Table, records: pa.Table, coordinates: pa.Array) -> pa.Table:
    """Add a deletion for each of the records whose coordinates are not among these."""
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = records.filter(pc.invert(pc.is_in(coordinates_of(records), value_set=coordinates)))
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
    """Run the fold's function over no rows: UnlawfulFold, or another FoldError, if the fold cannot be right."""
    ship(fold)
    rows = frames.empty()
    given = _given(fold, rows)
    try:
        result = fold(given)
        check_plan(fold.name, given, result)
        shape = _shape(fold, result)
        is_plain = result is rows and fold.view.aggregation is None and shape.record_key != RECORD
        doing = _doing(fold, result)
        logic = doing.logic(result)
        if result is not given and _logic_again(fold, given, result, doing) != logic:
            raise unsteady(fold.name)
        # A range's plan is usually this one: asking it for its facts again would take hundreds of calls into the JVM.
        known = {} if is_plain else {plan_key(rows, plan_text(result)): _plan_facts(fold, result, shape, doing)}
        return PreparedFold(fold, frames, shape, logic, is_plain, known)
    except AnalysisException as error:
        raise FoldError(f"fold {fold.name!r} cannot be planned: {brief_spark_error(error)}") from error
    except FoldlogError:
        raise
    except Exception as error:
        raise FoldError(f"fold {fold.name!r} failed before it ran: {type(error).__name__}: {error}") from error
    finally:
        frames.forget(rows)


def _logic_again(fold: Fold, given: DataFrame, result: DataFrame, doing: Doing) -> Logic:
    """The logic of another call of the function, of which the first one's plan does this."""
    again = checked_frame(fold.name, fold(given))
    # A plan of the same key does the same, and comparing keys takes a tenth of the calls into the JVM.
    is_same = plan_key(given, plan_text(again)) == plan_key(given, plan_text(result))
    return doing.logic(again) if is_same else logic_of(again)


def _doing(fold: Fold, result: DataFrame) -> Doing:
    reduction = fold.view.reduction
    return doing_of(result, None if reduction is None else reduction.doing())


def _plan_facts(fold: Fold, result: DataFrame, shape: Shape, doing: Doing) -> PlanFacts:
    kept = kept_columns(result)
    keeps_key = fold.view.is_keyed and kept >= {*fold.topic.keys, PARTITION, OFFSET}
    return PlanFacts(
        used_columns(result, _taken(fold, result, shape)), keeps_key, DELETED in kept, keeps_tasks(result), doing
    )


def _taken(fold: Fold, result: DataFrame, shape: Shape) -> set[str]:
    """The columns of the function's result that `_final` takes."""
    aggregation = fold.view.aggregation
    if aggregation is None:
        return {*(name for name in shape.columns.names if name != RECORD), *_CARRIED}
    return {*aggregation.inputs(), *({DELETED} & set(result.columns))}


def ranges_read(ranges: Sequence[OffsetRange]) -> dict[int, tuple[int, int]]:
    """The offsets that were read of each partition: first, and one past the last."""
    return {one.partition: (one.start, one.stop) for one in ranges}


def _given(fold: Fold, rows: DataFrame) -> DataFrame:
    """The rows for the function. For counters without tombstones, which have no value to count."""
    return rows if fold.view.aggregation is None else rows.filter(f"NOT {DELETED}")


def _shape(fold: Fold, result: DataFrame) -> Shape:
    names = result.columns
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FoldError(f"fold {fold.name!r} returns two columns {twice!r}; rename or drop one")
    for one in result.schema:
        _check_type(fold, one.name, one.dataType)
    arrow = to_arrow_schema(result.schema, timezone="UTC")
    aggregation = fold.view.aggregation
    if aggregation is not None:
        from foldlog.views.counters.counters import check_aggregation

        columns = check_aggregation(aggregation, arrow)
        return Shape(columns, None, aggregation.group_columns())
    dropped = [name for name in _CARRIED if name not in names]
    if dropped:
        raise FoldError(
            f"fold {fold.name!r} drops {', '.join(dropped)}, by which its view knows what it has;"
            " keep them: rows.select(..., *fl.META)"
        )
    import pyarrow as pa

    # A column that Spark knows to be never null is null in the rows that delete.
    columns = pa.schema([one.with_nullable(True) for one in arrow if one.name not in (*META, KEY)])
    if fold.view.is_keyed:
        return _keyed_shape(fold, columns, result)
    key = fold.topic.key
    if fold.view.reduction is not None and not {key, PARTITION, OFFSET} <= kept_columns(result):
        raise FoldError(
            f"fold {fold.name!r} may change {key!r}, _partition or _offset, and a state follows the records of its key"
            " in their order; return them as they are, and use functions of Spark (filter, withColumn) for the rest"
        )
    return Shape(columns, key, (key,) if key else ())


def _keyed_shape(fold: Fold, columns: pa.Schema, result: DataFrame) -> Shape:
    import pyarrow as pa

    key, keys = fold.topic.key, fold.topic.keys
    lost = next((name for name in keys if name not in columns.names), None)
    if lost is not None and not fold.keeps_rows:
        raise FoldError(f"fold {fold.name!r} drops {lost!r}, the key of its rows; keep it")
    if key and not fold.topic.is_several and {key, PARTITION, OFFSET} <= kept_columns(result):
        return Shape(columns, key, keys, fold.keeps_rows)
    if RECORD in columns.names:
        raise FoldError(
            f"fold {fold.name!r} returns a column {RECORD!r}, in which its view keeps whose rows they are; rename it"
        )
    return Shape(columns.append(pa.field(RECORD, pa.string())), RECORD, keys, fold.keeps_rows)


def _check_type(fold: Fold, column: str, given: DataType) -> None:
    """FoldError for a type that only Spark can interpret: Arrow would get its raw bytes."""
    name = given.typeName()
    if name in ("variant", "geometry", "geography"):
        advice = (
            "take out what you need: variant_get(...), or to_json(...)" if name == "variant" else "return it as text"
        )
        raise FoldError(
            f"fold {fold.name!r} returns {name.upper()} in column {column!r}, which no view can hold; {advice}"
        )
    if isinstance(given, StructType):
        for one in given:
            _check_type(fold, column, one.dataType)
    elif isinstance(given, ArrayType):
        _check_type(fold, column, given.elementType)
    elif isinstance(given, MapType):
        _check_type(fold, column, given.keyType)
        _check_type(fold, column, given.valueType)


def _final(fold: Fold, result: DataFrame, shape: Shape, *, apart: bool, is_near: bool) -> DataFrame:
    """The whole plan: the function's result, then the columns or the aggregation that the view needs."""
    aggregation = fold.view.aggregation
    if aggregation is not None:
        if DELETED in result.columns:
            # Tombstones are already filtered out, so these are the deletions that the fold asks for.
            result = result.filter(f"NOT coalesce(CAST({DELETED} AS BOOLEAN), false)")
        return aggregated(fold.view, result, shape.columns, apart=_APART if apart else None, is_near=is_near)
    own = [name for name in shape.columns.names if name != RECORD]
    return result.selectExpr(*(quoted(name) for name in (*own, *_CARRIED)))


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast to the view's types; Spark returns timestamps in the session's zone."""
    return table.select(schema.names).cast(schema)


def _carried_fields() -> list[pa.Field]:
    import pyarrow as pa

    return [
        pa.field(PARTITION, pa.int32()),
        pa.field(OFFSET, pa.int64()),
        pa.field(TIMESTAMP, pa.timestamp("us", tz="UTC")),
        pa.field(DELETED, pa.bool_()),
    ]


def coordinates_of(table: pa.Table) -> pa.Array:
    """Partition and offset joined into one text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = (table[PARTITION].cast(pa.string()), table[OFFSET].cast(pa.string()))
    return pc.binary_join_element_wise(*texts, "@").combine_chunks()


def in_offset_order(table: pa.Table) -> pa.Table:
    """Sorted by partition and offset, stably; a shuffle in the fold may have changed the order."""
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
