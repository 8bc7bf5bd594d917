"""Which rows of a fold a Delta table keeps: all (`DeltaHistory`), or the newest of each key (`DeltaMirror`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import InvalidArgument, SchemaChanged, ViewUnavailable
from foldlog.limits import LAKE_COMMIT_TRIES, LAKE_SORT_ROWS
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import DELETED, META, OFFSET, PARTITION, RECORD, TIMESTAMP, TOPIC, Delta, Shape, View
from foldlog.views.lake.delta import DeltaView, StoredDelta, append, commit_nothing, overwrite, schema_of
from foldlog.views.lake.delta_bookmark import Layout
from foldlog.views.lake.partitions import check_partition_values
from foldlog.views.lake.schema import LITTLE_AHEAD, fitted, lake_schema
from foldlog.views.lake.staged_files import FileStage, FileWriter
from foldlog.views.lake.storage import StorageOptions
from foldlog.views.newest import newest
from foldlog.views.staging import Ranges, StagedPart, StageWriter, ViewStage
from foldlog.views.table.rows import written_twice

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable

_REPLACES: Final = "_foldlog_replaces"
"""Column of a merge's source: this row deletes its key's rows and is not inserted."""

_ORDER: Final = "_foldlog_order"
"""Column of a bulk load: rises with newer rows. A table with this column is being loaded."""

_SAMPLES: Final = 1000
"""Keys sampled for each part of a bulk load: enough for parts of about the same size."""


class DeltaHistory(DeltaView):
    """Every row, with the partition, offset and time of its record, tombstones included."""

    mode = "append"
    adds = True

    def _schema(self, shape: Shape) -> pa.Schema:
        return lake_schema(shape.columns, is_history=True)

    def _write(self, delta: Delta, table: DeltaTable, stored: StoredDelta, properties: CommitProperties) -> None:
        content = delta.rows.drop_columns([TOPIC]) if TOPIC in delta.rows.column_names else delta.rows
        check_partition_values(content, self.partition_by, self.place, holds_empty=False)
        append(table, fitted(content, schema_of(table), self.place), properties)

    def _stage(
        self, table: DeltaTable, ranges: Ranges, expected: Bookmark, new_place: Callable[[], str]
    ) -> ViewStage | None:
        return FileStage(
            new_place(),
            schema_of(table),
            self.place,
            storage=self._storage,
            data=self.path,
            partition_by=self.partition_by,
            keeps_partition=False,
        )


class DeltaMirror(DeltaView):
    """The newest row of every key: an update replaces, a tombstone deletes.

    A merge rewrites every file with a row to change, as Delta does. If keys come in order (times, counters), few files
    are rewritten; for random keys over a large table use `table` views.

    A bulk load therefore does not merge. It appends every row with its order, each range sorted by key, and at the end
    replaces them all by the newest of each key, one range of keys after the other, in one commit. Executors write the
    files of a load; a merge is the driver's work, as deltalake has to hold the keys of the range in one process.
    """

    mode = "merge"
    is_keyed = True

    def __init__(
        self,
        path: str,
        options: StorageOptions | None = None,
        partition_by: tuple[str, ...] = (),
        key: tuple[str, ...] = (),
    ) -> None:
        super().__init__(path, options, partition_by)
        self._key = key

    def shadow(self, label: str) -> View:
        return DeltaMirror(f"{self.path}.{label}", self._options, self.partition_by, self._key)

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        if not loading:
            self.finish_loading()
        chosen = replace(shape, key=self._key or shape.key)
        return super().prepare(chosen, start, loading=loading)

    def finish_loading(self) -> None:
        with self._errors():
            table = self._table()
            if table is None or not _is_loading(table):
                return
            for _ in range(LAKE_COMMIT_TRIES):
                if self._collapse():
                    return
        raise self._crowded()

    def _schema(self, shape: Shape) -> pa.Schema:
        if shape.record_key is None:
            raise InvalidArgument(f"{self.place} merges by key, and the topic names none; give it one with key=")
        lost = [name for name in (shape.record_key, *shape.key) if name not in shape.columns.names]
        if lost:
            raise SchemaChanged(self.place, f"the fold gives no column {lost[0]!r}, which is part of its key")
        if shape.key and shape.record_key not in (RECORD, *shape.key):
            raise InvalidArgument(
                f"the key of {self.place} ({', '.join(shape.key)}) has to include {shape.record_key!r}, the record's"
                " own key: a newer record or a tombstone could not find the rows it replaces"
            )
        quoted = [name for name in shape.columns.names if '"' in name or "`" in name]
        if quoted:
            raise InvalidArgument(f"{self.place} cannot merge by names with quotes; rename column {quoted[0]!r}")
        return lake_schema(shape.columns, is_history=False)

    def _loading_schema(self, schema: pa.Schema) -> pa.Schema:
        import pyarrow as pa

        if RECORD in schema.names:
            return schema  # merged range by range: otherwise two records with the same key would not be detected
        extra = [(PARTITION, pa.int32()), (OFFSET, pa.int64()), (DELETED, pa.bool_()), (_ORDER, pa.int64())]
        return pa.schema([*schema, *extra])

    def _stage(
        self, table: DeltaTable, ranges: Ranges, expected: Bookmark, new_place: Callable[[], str]
    ) -> ViewStage | None:
        layout = self._stored(table).layout
        if not _is_loading(table) or layout.record_key is None:
            return None
        schema = schema_of(table)
        order = _RecordOrder.of(ranges, expected)
        is_single = _is_single(layout.record_key, layout.key)
        return LoadStage(
            new_place(),
            schema,
            self.place,
            storage=self._storage,
            data=self.path,
            partition_by=self.partition_by,
            keeps_partition=False,
            order=order,
            key=layout.record_key,
            is_single=is_single,
        )

    def _write(self, delta: Delta, table: DeltaTable, stored: StoredDelta, properties: CommitProperties) -> None:
        rows = delta.rows
        record_key = self._record_key(stored.layout)
        if rows[record_key].null_count:
            raise InvalidArgument(f"a row without {record_key!r} has no place in {self.place}; filter it out")
        check_partition_values(rows, self.partition_by, self.place, holds_empty=False)
        if _is_loading(table):
            order = _RecordOrder.of(delta.ranges, stored.bookmark)
            is_single = _is_single(record_key, stored.layout.key)
            content = _loaded(rows, schema_of(table), self.place, order, record_key, is_single)
            append(table, content, properties)
            return
        version = table.version()
        if rows.num_rows:
            self._merge(rows, table, stored.layout, properties)
        if table.version() == version:
            # A merge that changes nothing makes no commit, but the bookmark has to move all the same.
            commit_nothing(table, properties)

    def _merge(self, rows: pa.Table, table: DeltaTable, layout: Layout, properties: CommitProperties) -> None:
        """Delete and insert rows in one merge; a column tells the two kinds apart."""
        import pyarrow as pa
        import pyarrow.compute as pc

        record_key = self._record_key(layout)
        schema = schema_of(table)
        is_single = _is_single(record_key, layout.key)
        if is_single:
            # A row that stays is updated; only deleted keys need a row that replaces.
            last = _last_of_single_keys(_numbered(rows), record_key)
            content, keys = last.filter(pc.invert(last[DELETED])), last.filter(last[DELETED])[record_key]
        else:
            kept = newest(rows, record_key, layout.key)
            content, keys = kept.rows, pa.array(kept.keys, rows.schema.field(record_key).type)
            if record_key == RECORD:
                self._check_written_once(content, keys, table, layout.key)
        content = content.drop_columns([name for name in (*META, _ORDER) if name in content.column_names])
        if not table.file_uris():
            # Nothing to merge with: planning a merge takes as long as writing 100,000 rows.
            if content.num_rows:
                append(table, fitted(content, schema, self.place), properties)
            return
        removals = pa.table({record_key: keys})
        source = pa.concat_tables(
            [
                _marked(fitted(removals, schema, self.place), replaces=True),
                _marked(fitted(content, schema, self.place), replaces=False),
            ]
        )
        name = f'"{record_key}"'
        merger = table.merge(
            source,
            f"stored.{name} = given.{name}" + ("" if is_single else f" AND given.{_REPLACES}"),
            source_alias="given",
            target_alias="stored",
            # The rows are in memory, so deltalake can look at their keys first and skip files without any of them.
            streamed_exec=False,
            commit_properties=properties,
        ).when_matched_delete(f"given.{_REPLACES}")
        if is_single:
            merger = merger.when_matched_update_all(except_cols=[_REPLACES])
        merger.when_not_matched_insert_all(f"NOT given.{_REPLACES}", except_cols=[_REPLACES]).execute()

    def _check_written_once(
        self, content: pa.Table, changed: pa.Array, table: DeltaTable, key: tuple[str, ...]
    ) -> None:
        """FoldError if two records have written the same key: a merge by record would not notice."""
        import pyarrow.compute as pc

        if content[key[0]].null_count:
            raise InvalidArgument(f"a row without {key[0]!r} has no place in {self.place}; filter it out")
        written = set(_tuples(content.select(key)))
        if len(written) < content.num_rows:
            raise written_twice(self.place, "in one range")
        kind, near = content.schema.field(key[0]).type, content[key[0]].unique()
        for batch in self._dataset(table).to_batches(columns=[*key, RECORD], **LITTLE_AHEAD) if written else ():
            is_near = pc.is_in(batch[key[0]].cast(kind), value_set=near)
            stays = pc.invert(pc.is_in(batch[RECORD].cast(changed.type), value_set=changed))
            twice = written.intersection(_tuples(batch.filter(pc.and_(is_near, stays)).select(key)))
            if twice:
                raise written_twice(self.place, ", ".join(map(repr, twice.pop())))

    def _collapse(self) -> bool:
        """Replace the loaded rows by the newest rows of each key; False if another commit came first."""
        import pyarrow as pa
        from deltalake.exceptions import CommitFailedError

        table = self._existing()
        stored = self._stored(table)
        schema = schema_of(table)
        content = pa.schema([field for field in schema if field.name not in (PARTITION, OFFSET, DELETED, _ORDER)])
        reader = pa.RecordBatchReader.from_batches(
            content, _newest_by_range(self._dataset(table), self._record_key(stored.layout), stored.layout.key, content)
        )
        version = table.version()
        try:
            overwrite(table, reader, self._moved(stored, stored.bookmark, stored.layout_number))
        except CommitFailedError:
            return False
        self._sync(version + 1)
        self._delete_files(version, keep=set(table.file_uris()))
        return True

    def _record_key(self, layout: Layout) -> str:
        if layout.record_key is None:
            raise ViewUnavailable(self.place, "its description does not say which column is the key; rebuild it")
        return layout.record_key


def _tuples(rows: pa.Table | pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in rows.columns), strict=True)


def _is_loading(table: DeltaTable) -> bool:
    return _ORDER in schema_of(table).names


def _marked(rows: pa.Table, *, replaces: bool) -> pa.Table:
    import pyarrow as pa

    return rows.append_column(_REPLACES, pa.repeat(pa.scalar(replaces), rows.num_rows))


def _newest_by_range(
    dataset: Any, record_key: str, key: tuple[str, ...], content: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The newest rows of each key, one range of keys after the other. Holds the rows of one range."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    bounds = _key_bounds(dataset, record_key)
    for low, high in pairwise([None, *bounds, None]):
        wanted: Any = None if low is None else ds.field(record_key) >= low
        if high is not None:
            below = ds.field(record_key) < high
            wanted = below if wanted is None else wanted & below
        rows = dataset.to_table(filter=wanted)
        if _is_single(record_key, key):
            last = _last_of_single_keys(rows, record_key)
            kept = last.filter(pc.invert(last[DELETED]))
        else:
            kept = newest(rows.sort_by(_ORDER), record_key, key).rows
        yield from kept.select(content.names).to_batches()


def _is_single(record_key: str, key: tuple[str, ...]) -> bool:
    """Whether a record gives one row. Then its newest one is found without a loop over the rows."""
    return key in ((), (record_key,))


def _numbered(rows: pa.Table) -> pa.Table:
    """With a column for their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return rows.append_column(_ORDER, pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)))


@dataclass(frozen=True)
class _RecordOrder:
    """Numbers for the records of a range, by partition: a record's number is its offset, plus this.

    They rise with the offset, then with the partition, and from range to range: a range begins at the sum of all
    positions before it, which it raises by its length. So executors can number rows without knowing of each other.
    The order of a row is twice its record's number, and one more unless it only deletes what is older.
    """

    plus: dict[int, int]
    are_rows: bool = True

    @classmethod
    def of(cls, ranges: Ranges, expected: Bookmark) -> _RecordOrder:
        """
        >>> from foldlog.views.bookmark import Position
        >>> _RecordOrder.of({0: (5, 9), 1: (2, 4)}, Bookmark("t", "id", {0: Position(5), 1: Position(2)}, {})).plus
        {0: 2, 1: 9}
        """
        first = sum(at.offset for at in expected.positions.values())
        plus: dict[int, int] = {}
        for partition, (start, stop) in sorted(ranges.items()):
            plus[partition] = first - start
            first += stop - start
        return cls(plus)

    def of_rows(self, rows: pa.Table) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        which = pc.index_in(rows[PARTITION], value_set=pa.array(self.plus, rows.schema.field(PARTITION).type))
        numbers = pc.add(rows[OFFSET], pa.array(self.plus.values(), pa.int64()).take(which.combine_chunks()))
        return pc.add(pc.multiply(numbers, 2), int(self.are_rows))


def _loaded(
    rows: pa.Table, schema: pa.Schema, location: str, order: _RecordOrder, record_key: str, is_single: bool
) -> pa.Table:
    """Rows of a bulk load as the table has them until it is collapsed; all rows of a record are among them."""
    if is_single:
        # A record has one row, whatever the function made of it; and a key that comes often, few.
        rows = _last_of_single_keys(_numbered(rows), record_key).drop_columns([_ORDER])
    content = rows.append_column(_ORDER, order.of_rows(rows))
    content = content.drop_columns([name for name in (TOPIC, TIMESTAMP) if name in rows.column_names])
    # Sorted, so that reading a range of keys skips most of the file.
    return fitted(content, schema, location).sort_by(record_key)


@dataclass(frozen=True)
class LoadStage(FileStage):
    """A place for the rows of a bulk load: sorted files with all versions."""

    needs_order = True
    order: _RecordOrder = field(default_factory=lambda: _RecordOrder({}))
    key: str = ""
    is_single: bool = True

    def open(self, label: str) -> StageWriter:
        super().open(label)
        return _LoadWriter(self, label)

    def for_deletions(self) -> ViewStage:
        return replace(self, order=replace(self.order, are_rows=False))

    def arranged(self, rows: pa.Table) -> pa.Table:
        return _loaded(rows, self.columns, self.place, self.order, self.key, self.is_single)


class _LoadWriter(StageWriter):
    """Writes files of LAKE_SORT_ROWS, each sorted as a whole. None ends within the rows of a record."""

    def __init__(self, stage: LoadStage, label: str) -> None:
        self._stage = stage
        self._label = label
        self._held: list[pa.Table] = []
        self._count = 0
        self._parts: list[StagedPart] = []

    def add(self, rows: pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self._held.append(rows)
        self._count += rows.num_rows
        if self._count < LAKE_SORT_ROWS:
            return
        whole = pa.concat_tables(self._held)
        last = whole.slice(whole.num_rows - 1)
        is_last = pc.and_(pc.equal(whole[OFFSET], last[OFFSET][0]), pc.equal(whole[PARTITION], last[PARTITION][0]))
        self._write(whole.filter(pc.invert(is_last)))
        self._held = [whole.filter(is_last)]
        self._count = self._held[0].num_rows

    def close(self) -> list[StagedPart]:
        import pyarrow as pa

        if self._count:
            self._write(pa.concat_tables(self._held))
        return self._parts

    def abandon(self) -> None:
        """What was written stays in the place, which is removed as a whole."""

    def _write(self, rows: pa.Table) -> None:
        if rows.num_rows:
            writer = FileWriter(self._stage, f"{self._label}-{len(self._parts)}")
            writer.add(rows)
            self._parts += writer.close()


def _last_of_single_keys(rows: pa.Table, record_key: str) -> pa.Table:
    """The last row of each key, even if it is a tombstone."""
    import pyarrow.compute as pc

    last = rows.select([record_key, _ORDER]).group_by(record_key).aggregate([(_ORDER, "max")])
    return rows.filter(pc.is_in(rows[_ORDER], last[f"{_ORDER}_max"].combine_chunks()))


def _key_bounds(dataset: Any, record_key: str) -> list[Any]:
    """Keys that split the rows into parts of about LAKE_SORT_ROWS."""
    import pyarrow as pa

    total = dataset.count_rows()
    parts = -(-total // LAKE_SORT_ROWS)
    if parts < 2:
        return []
    step = max(1, total // (parts * _SAMPLES))
    samples, skip = [], 0
    for batch in dataset.to_batches(columns=[record_key]):
        # Every step-th key over all batches.
        numbers = range(skip, batch.num_rows, step)
        samples.append(batch[record_key].take(pa.array(numbers, pa.int64())))
        skip = (skip - batch.num_rows) % step
    ordered = pa.concat_arrays(samples).sort()
    bounds = [ordered[len(ordered) * part // parts] for part in range(1, parts)]
    return [bound for number, bound in enumerate(bounds) if not number or bound != bounds[number - 1]]
