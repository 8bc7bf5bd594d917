"""Lake tables in the Iceberg format, through pyiceberg.

    views/payments/
      catalog.db                    which tables there are, and where the newest metadata of each is
      payments-5f0c.../             foldlog.payments: data and metadata

or wherever a given catalog names and keeps them: see `iceberg_catalogs.py`.

A change and its bookmark are one commit of the catalog: a snapshot with the rows, and the table property
`foldlog.bookmark`, which does not expire with snapshots. Every commit makes a snapshot, even without rows, because that
is what Iceberg compares: a commit is refused if the newest snapshot is not the one that was read. Files on a local disk
are fsynced before the catalog names them, and SQLite syncs itself: a power cut leaves the old state or the new.

A rebuild fills a second table. The swap is one commit of the first one: a snapshot that names the second one's files in
the place of its own. For that, the second table's columns have the ids of the first one's, as far as they are the same.

Rows are only appended. Executors write the files of large ranges, and the commit names them: see `staged_files.py`. A
process that is killed while it writes rows itself may leave files that no snapshot names; they do no harm.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from foldlog.clock import SystemClock
from foldlog.errors import InvalidArgument, MalformedBytes, MissingDependency, StaleBookmark, ViewUnavailable
from foldlog.files.paths import make_parents
from foldlog.limits import LAKE_COMMIT_TRIES, LAKE_ROW_GROUP_ROWS
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import TOPIC, Delta, Shape, Snapshot, View
from foldlog.views.lake.compaction import Compaction, CompactionGoal, groups_of
from foldlog.views.lake.iceberg_catalogs import IcebergCatalog, OwnCatalog
from foldlog.views.lake.partitions import check_partition_columns, check_partition_values, check_same_partitions
from foldlog.views.lake.schema import LakeFiles, fitted, lake_schema, missing_fields
from foldlog.views.lake.staged_files import FileStage, adopt, finish, first_line, new_place, sweep
from foldlog.views.lake.storage import ArrowStorage, LakeStorage, LocalStorage, StorageOptions, is_url
from foldlog.views.staging import RangeName, Ranges, StagedDelta, StagedPart, ViewStage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction

BOOKMARK: Final = "foldlog.bookmark"
OLD: Final = "foldlog.old"
"""The property with the snapshot that the last swap replaced, until it is dropped."""

_FORSAKEN_MS: Final = 24 * 3_600_000
"""What a compaction has begun and not ended in this time, it never will."""

_PARTITION_FIELD: Final = 3
"""Where the partition is in the record of a data file: by the format, the fourth field."""

INT_BITS_MIN: Final = 32
"""Iceberg has integers of 32 and of 64 bits."""

_PROPERTIES: Final = {
    # A refused commit must not be retried before the bookmark was checked.
    "commit.retry.num-retries": "0",
    # Every commit writes new metadata; a hundred old versions are enough.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class IcebergHistory(View):
    """An Iceberg table: every row, with partition, offset and time, tombstones included.

    Nothing is held open between calls.
    """

    kind = "lake"
    adds = True

    def __init__(
        self, catalog: IcebergCatalog, name: str, label: str | None = None, partition_by: tuple[str, ...] = ()
    ) -> None:
        self.catalog = catalog
        self.partition_by = partition_by
        self._main = name
        self._name = name if label is None else f"{name}__{label}"

    @classmethod
    def at(cls, path: str, partition_by: tuple[str, ...] = ()) -> IcebergHistory:
        """The table of a directory."""
        return cls(OwnCatalog(path), re.sub(r"[^A-Za-z0-9_]", "_", path.rpartition("/")[2]), None, partition_by)

    @property
    def place(self) -> str:
        if isinstance(self.catalog, OwnCatalog):
            return self.catalog.place if self._name == self._main else f"{self.catalog.place}/{self._name}"
        return f"{self.catalog.place}/{'.'.join((*self.catalog.namespace, self._name))}"

    def description(self) -> dict[str, object] | None:
        if not isinstance(self.catalog, OwnCatalog):
            return None  # whoever peeks has no settings of the catalog
        return {"kind": self.kind, "engine": "iceberg", "path": self.catalog.path}

    def bookmark(self) -> Bookmark | None:
        with self._opened() as catalog:
            table = self._table(catalog)
            return None if table is None else self._read_bookmark(table)

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        wanted = lake_schema(shape.columns, is_history=True, int_bits_min=INT_BITS_MIN)
        check_partition_columns(shape.columns, self.partition_by, self.place)
        with self._opened(create=True) as catalog:
            from pyiceberg.exceptions import CommitFailedException

            for _ in range(LAKE_COMMIT_TRIES):
                table = self._table(catalog)
                if table is None:
                    if self._create(catalog, wanted, start):
                        return start
                    continue
                partitions = _partitions_of(table)
                if partitions is not None:  # a partition by the month of a time, say, is the doing of somebody else
                    check_same_partitions(partitions, self.partition_by, self.place)
                missing = missing_fields(_schema_of(table), wanted, self.place)
                try:
                    if missing:
                        _add_columns(table, missing)
                except CommitFailedException:
                    continue
                stored = self._read_bookmark(table)
                self._sweep(table, stored)
                return stored
        raise self._crowded()

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        rows = delta.rows.drop_columns([TOPIC]) if TOPIC in delta.rows.column_names else delta.rows

        def write(table: Table, transaction: Transaction, said: dict[str, str]) -> None:
            transaction.append(fitted(rows, _schema_of(table), self.place), snapshot_properties=said)

        check_partition_values(rows, self.partition_by, self.place, holds_empty=True)
        self._commit(expected, new, write)

    def stage(self, ranges: Ranges, expected: Bookmark) -> ViewStage | None:
        with self._opened() as catalog:
            table = self._table(catalog)
            if table is None:
                return None
            from pyiceberg.io.pyarrow import schema_to_pyarrow
            from pyiceberg.schema import sanitize_column_names

            if sanitize_column_names(table.schema()) != table.schema():
                return None  # files have other names for such columns, which only pyiceberg knows to write
            storage, partitions = _storage_of(table), _partitions_of(table)
            if storage is None or partitions != self.partition_by:
                return None  # somebody has chosen other files, or partitions, that only pyiceberg knows to write
            # With field ids, by which Iceberg finds a column, whatever it is renamed to.
            files = schema_to_pyarrow(table.schema(), include_field_ids=True)
            place = new_place(storage, _root_of(table), RangeName.of(ranges, expected))
            return FileStage(
                place,
                _schema_of(table),
                self.place,
                files,
                storage=storage,
                data=_data_of(table),
                partition_by=self.partition_by,
            )

    def apply_staged(self, staged: StagedDelta, expected: Bookmark, new: Bookmark) -> None:
        def write(table: Table, transaction: Transaction, said: dict[str, str]) -> None:
            data = _data_of(table)
            if isinstance(_storage_of(table), LocalStorage):
                make_parents(f"{data}/")
            found = adopt(staged, data)
            with transaction.update_snapshot(snapshot_properties=said).fast_append() as appended:
                for name, part in found:
                    appended.append_data_file(_data_file(table, f"{data}/{name}", part))

        self._commit(expected, new, write, staged)

    def _sweep(self, table: Table, stored: Bookmark, forsaken_ms: int | None = None) -> None:
        def is_committed(prefix: str) -> bool:
            return any(f"/{prefix}" in path for path in files_of(table, table.metadata.snapshots))

        storage = _storage_of(table)
        if storage is not None:
            sweep(storage, _root_of(table), _data_of(table), stored, is_committed, forsaken_ms=forsaken_ms)

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        def write(table: Table, transaction: Transaction, said: dict[str, str]) -> None:
            transaction.append(_schema_of(table).empty_table(), snapshot_properties=said)

        self._commit(expected, new, write)

    def shadow(self, label: str) -> View:
        return IcebergHistory(self.catalog, self._main, label, self.partition_by)

    def swap(self, shadow: View) -> None:
        """One commit that names the shadow's files in the place of the old ones; time travel still reaches those."""
        if not isinstance(shadow, IcebergHistory) or shadow._main != self._main:
            raise InvalidArgument(f"{shadow.place} is no shadow of {self.place}")
        with self._opened() as catalog:
            from pyiceberg.exceptions import CommitFailedException

            source = self._table(catalog, shadow._name)
            if source is None:
                raise ViewUnavailable(shadow.place, "there is nothing to put in the place of the old one")
            for _ in range(LAKE_COMMIT_TRIES):
                table = self._table(catalog)
                if table is None:
                    raise ViewUnavailable(self.place, "it does not exist any more; run the fold again")
                before = _number(table.properties.get(OLD))
                try:
                    self._take_over(table, source)
                except CommitFailedException:
                    continue
                if before is not None:
                    self._expire(catalog, before)
                catalog.drop_table((*self.catalog.namespace, shadow._name))
                self._remove_metadata(source)
                return
        raise self._crowded()

    def drop_old(self) -> bool:
        """Expire what came before the last swap, and delete its files."""
        with self._opened() as catalog:
            table = self._table(catalog)
            old = None if table is None else _number(table.properties.get(OLD))
            if table is None or old is None:
                return False
            self._expire(catalog, old)
            with self._required(catalog).transaction() as transaction:
                transaction.remove_properties(OLD)
            return True

    def compact(self, goal: CompactionGoal) -> Compaction:
        """Join data files, and expire snapshots with the files that only they name; not what the last swap replaced."""
        with self._opened() as catalog:
            table = self._required(catalog)
            stored = self._read_bookmark(table)
            self._sweep(table, stored, SystemClock().now_ms() - _FORSAKEN_MS)
            joined = written = 0
            for group in _small_groups(table, goal.target_bytes):
                count = self._join(catalog, table, group, stored)
                joined, written = joined + (len(group) if count else 0), written + count
            table = self._required(catalog)
            since_ms = SystemClock().now_ms() - goal.keep_ms
            kept = _number(table.properties.get(OLD))
            older = [one.snapshot_id for one in table.metadata.snapshots if one.timestamp_ms <= since_ms]
            removed = self.expire(catalog, [one for one in older if one != kept])
            return Compaction(joined, written, removed, len(list(live_files(self._required(catalog)))))

    def _join(self, catalog: Any, table: Table, group: list[DataFile], stored: Bookmark) -> int:
        """Write the rows of some files into one, and name that in their place; how many were written: none if another
        commit has replaced one of them meanwhile.
        """
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        storage = _storage_of(table)
        if storage is None:
            return 0
        files = schema_to_pyarrow(table.schema(), include_field_ids=True)
        # Past with the next epoch: a runner that goes on meanwhile does not remove it.
        place = new_place(storage, _root_of(table), RangeName.of_swap(stored.epoch))
        stage = FileStage(
            place,
            _schema_of(table),
            self.place,
            files,
            storage=storage,
            data=_data_of(table),
            partition_by=self.partition_by,
        )
        writer = stage.open("00000-joined")
        for one in group:
            for rows in _rows_of(storage, one.file_path):
                writer.add(rows)
        staged = StagedDelta(stage, tuple(writer.close()), {})
        if isinstance(storage, LocalStorage):
            make_parents(f"{_data_of(table)}/")
        found = adopt(staged, _data_of(table))
        paths = {one.file_path for one in group}
        for _ in range(LAKE_COMMIT_TRIES):
            table = self._required(catalog)
            old = [one for one in live_files(table) if one.file_path in paths]
            if len(old) < len(paths):
                break
            try:
                said = {"foldlog.compaction": "true"}
                with table.transaction() as transaction, _overwriting(transaction, said) as joined:
                    for one in old:
                        joined.delete_data_file(one)
                    for name, part in found:
                        joined.append_data_file(_data_file(table, f"{_data_of(table)}/{name}", part))
            except CommitFailedException:
                continue
            finish(staged)
            return len(found)
        for name, _ in found:
            storage.remove(f"{_data_of(table)}/{name}")
        finish(staged)
        return 0

    def drop(self) -> None:
        with self._opened() as catalog:
            table = self._table(catalog)
            if catalog is None or table is None:
                return
            self._read_bookmark(table)  # raises if the table is not a fold's
            main = self._table(catalog, self._main)
            # Of a process that died in a swap, the table may have taken over the files already.
            kept = set() if main is None or self._name == self._main else files_of(main, main.metadata.snapshots)
            storage = _storage_of(table)
            files = files_of(table, table.metadata.snapshots)
            if storage is not None:
                files.update(storage.files(_root_of(table)))
            catalog.drop_table((*self.catalog.namespace, self._name))
            self._remove(table, {one.removeprefix("file://") for one in files} - kept)
            if storage is not None and not kept:
                storage.remove_tree(_root_of(table))
            is_empty = not any(catalog.list_tables(namespace) for namespace in catalog.list_namespaces())
        if is_empty:
            with self._errors():
                self.catalog.emptied()

    def scan(self) -> Snapshot:
        with self._opened() as catalog:
            table = self._table(catalog)
            if table is None:
                raise ViewUnavailable(self.place, "it does not exist yet; run the fold")
            return Snapshot(self._read_bookmark(table), self._batches(table))

    def newest_files(self, limit: int) -> LakeFiles:
        """The files of the newest commits, and the number of rows, for a peek at the last rows."""
        with self._opened() as catalog:
            table = self._table(catalog)
            if table is None:
                raise ViewUnavailable(self.place, "it does not exist yet; run the fold")
            self._read_bookmark(table)
            snapshot = table.current_snapshot()
            if snapshot is None:
                return LakeFiles(_schema_of(table), [], 0)
            paths: list[str] = []
            for manifest in sorted(snapshot.manifests(table.io), key=lambda one: -one.sequence_number):
                if len(paths) >= limit:
                    break
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                paths += [entry.data_file.file_path.removeprefix("file://") for entry in entries]
            total = None if snapshot.summary is None else snapshot.summary["total-records"]
            return LakeFiles(_schema_of(table), paths[:limit], None if total is None else int(total))

    def _batches(self, table: Table) -> Iterator[pa.RecordBatch]:
        with self._errors():
            yield from table.scan().to_arrow_batch_reader()

    # One commit.

    def _commit(
        self,
        expected: Bookmark,
        new: Bookmark,
        write: Callable[[Table, Transaction, dict[str, str]], None],
        staged: StagedDelta | None = None,
    ) -> None:
        """Write with `new`, which may be what was staged; StaleBookmark if the bookmark is not the expected one."""
        with self._opened() as catalog:
            from pyiceberg.exceptions import CommitFailedException

            for _ in range(LAKE_COMMIT_TRIES):
                table = self._table(catalog)
                stored = None if table is None else self._read_bookmark(table)
                if table is None or stored is None or stored.to_json() != expected.to_json():
                    found = "nothing, since it does not exist" if stored is None else stored.to_json()
                    raise StaleBookmark(self.place, found, expected.to_json())
                try:
                    with table.transaction() as transaction:
                        said = {BOOKMARK: new.to_json()}
                        write(table, transaction, said)
                        transaction.set_properties(said)
                    if staged is not None:
                        finish(staged)
                    self._sweep(table, new)
                    return
                except CommitFailedException:
                    # Another commit came first. If it was another runner's, the bookmark shows it now.
                    continue
        raise self._crowded()

    def _take_over(self, table: Table, source: Table) -> None:
        """Make the files of another table this one's, in one commit, with its columns and its bookmark."""
        from pyiceberg.table.update import (
            AddPartitionSpecUpdate,
            AddSchemaUpdate,
            SetCurrentSchemaUpdate,
            SetDefaultSpecUpdate,
        )

        bookmark = source.properties[BOOKMARK]
        current = table.current_snapshot()
        with table.transaction() as transaction:
            if table.schema() != source.schema():
                number = max(schema.schema_id for schema in table.metadata.schemas) + 1
                schema = source.schema().model_copy(update={"schema_id": number})
                transaction._apply((AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate()))
            spec_id = next(
                (one.spec_id for one in table.metadata.partition_specs if one.fields == source.spec().fields), None
            )
            if spec_id is None:
                spec_id = max(one.spec_id for one in table.metadata.partition_specs) + 1
                spec = source.spec().model_copy(update={"spec_id": spec_id})
                transaction._apply((AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate()))
            elif spec_id != table.metadata.default_spec_id:
                transaction._apply((SetDefaultSpecUpdate.model_validate({"spec-id": spec_id}),))
            with transaction.update_snapshot(snapshot_properties={BOOKMARK: bookmark}).overwrite() as replaced:
                for old in live_files(table):
                    replaced.delete_data_file(old)
                for new in live_files(source):
                    new.spec_id = spec_id
                    replaced.append_data_file(new)
            said = {BOOKMARK: bookmark}
            transaction.set_properties(said if current is None else {**said, OLD: str(current.snapshot_id)})

    def _expire(self, catalog: Any, last: int) -> None:
        """Remove the snapshots up to this one, and the files that only they name."""
        table = self._required(catalog)
        upto = table.metadata.snapshot_by_id(last)
        if upto is not None:
            older = [
                one for one in table.metadata.snapshots if (one.sequence_number or 0) <= (upto.sequence_number or 0)
            ]
            self.expire(catalog, [one.snapshot_id for one in older])

    def expire(self, catalog: Any, snapshots: list[int]) -> int:
        """Remove these snapshots, but not the current one, and the files that only they name; how many files."""
        from pyiceberg.exceptions import CommitFailedException

        for _ in range(LAKE_COMMIT_TRIES):
            table = self._required(catalog)
            current = table.current_snapshot()
            known = {one.snapshot_id for one in table.metadata.snapshots}
            doomed = [one for one in snapshots if one in known and (current is None or one != current.snapshot_id)]
            if not doomed:
                return 0
            before = files_of(table, table.metadata.snapshots)
            try:
                table.maintenance.expire_snapshots().by_ids(doomed).commit()
            except CommitFailedException:
                continue
            after = self._required(catalog)
            return self._remove(after, before - files_of(after, after.metadata.snapshots))
        raise self._crowded()

    def _remove(self, table: Table, paths: Iterable[str]) -> int:
        """Delete files that no snapshot names any more; how many."""
        count = 0
        for path in sorted(paths):
            try:
                table.io.delete(path)
                count += 1
            except FileNotFoundError:
                pass
        return count

    def _remove_metadata(self, table: Table) -> None:
        """Of a table that the catalog no longer names, whose data files another one has."""
        storage = _storage_of(table)
        if storage is not None:
            for path in storage.files(f"{_root_of(table)}/metadata"):
                storage.remove(path)

    def _create(self, catalog: Any, schema: pa.Schema, start: Bookmark) -> bool:
        """False if another process has created it first."""
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
        from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate

        main = self._table(catalog, self._main) if self._name != self._main else None
        try:
            creating = catalog.create_table_transaction(
                (*self.catalog.namespace, self._name),
                schema,
                location=self.catalog.location(self._name),
                properties={**_PROPERTIES, BOOKMARK: start.to_json()},
            )
            with creating as transaction:
                fresh = transaction.table_metadata.schema()
                chosen = fresh if main is None else _with_ids_of(main, fresh)
                if chosen != fresh:
                    transaction._apply((AddSchemaUpdate(schema=chosen), SetCurrentSchemaUpdate()))
                if self.partition_by:
                    with transaction.update_spec() as spec:
                        for name in self.partition_by:
                            spec.add_identity(name)
        except (TableAlreadyExistsError, CommitFailedException):
            if self._table(catalog) is None:
                raise
            return False
        return True

    # The stored state.

    @contextmanager
    def _opened(self, *, create: bool = False) -> Iterator[Any]:
        """The catalog; None if there is none and `create` is not set."""
        with self._errors():
            catalog = self.catalog.opened(create=create)
            if catalog is None:
                yield None
                return
            with closing(catalog):
                yield catalog

    def _table(self, catalog: Any, name: str | None = None) -> Table | None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        if catalog is None:
            return None
        try:
            found: Table = catalog.load_table((*self.catalog.namespace, name or self._name))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        return found

    def _required(self, catalog: Any) -> Table:
        table = self._table(catalog)
        if table is None:
            raise ViewUnavailable(self.place, "it does not exist any more; run the fold again")
        return table

    def _read_bookmark(self, table: Table) -> Bookmark:
        try:
            return Bookmark.from_json(table.properties[BOOKMARK])
        except (KeyError, MalformedBytes):
            raise ViewUnavailable(self.place, "there is a table that no fold has made; choose another name") from None

    def _crowded(self) -> ViewUnavailable:
        return ViewUnavailable(
            self.place, f"other commits came first {LAKE_COMMIT_TRIES} times in a row; try again when they are done"
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of pyiceberg, its catalog and the disk as ViewUnavailable, in one sentence."""
        try:
            import pyarrow as pa
            from pyiceberg import exceptions
            from sqlalchemy.exc import SQLAlchemyError
        except ImportError:
            raise MissingDependency("a lake view in the Iceberg format", "pyiceberg[sql-sqlite]", "iceberg") from None
        theirs = tuple(
            one for one in vars(exceptions).values() if isinstance(one, type) and one.__module__ == exceptions.__name__
        )
        try:
            yield
        except (SQLAlchemyError, OSError, pa.ArrowException, *theirs) as error:
            if isinstance(error, MissingDependency):
                raise
            raise ViewUnavailable(self.place, self._redacted(first_line(error))) from error

    def _redacted(self, text: str) -> str:
        return self.catalog.options.redacted(text)


# --- tables ---------------------------------------------------------------------------------------------------------


def _add_columns(table: Table, missing: list[pa.Field]) -> None:
    import pyarrow as pa

    with table.update_schema() as update:
        update.union_by_name(pa.schema(missing))


def _with_ids_of(main: Table, fresh: Schema) -> Schema:
    """The columns with the ids that they have in another table, so that it can take over files; new ids for others."""
    from pyiceberg.schema import Schema, assign_fresh_schema_ids

    there = {field.name: field for field in main.schema().fields}
    stored, wanted = _arrow_schema(main.schema()), _arrow_schema(fresh)
    numbers = itertools.count(main.metadata.last_column_id + 1)
    fields = []
    for field in fresh.fields:
        is_same = field.name in there and stored.field(field.name).type.equals(wanted.field(field.name).type)
        if is_same:
            fields.append(there[field.name])
        else:
            fields += assign_fresh_schema_ids(Schema(field), lambda: next(numbers)).fields
    chosen = Schema(*fields)
    return fresh if chosen.fields == fresh.fields else chosen.model_copy(update={"schema_id": fresh.schema_id + 1})


def _data_file(table: Table, path: str, part: StagedPart) -> DataFile:
    """A file that an executor has written, as a commit names it."""
    from pyiceberg.conversions import partition_to_py
    from pyiceberg.io.pyarrow import parquet_file_to_data_file
    from pyiceberg.typedef import Record

    found = parquet_file_to_data_file(table.io, table.metadata, path)
    if part.values:
        # Not as inferred from the file's bounds: a long text has none.
        kinds: list[Any] = [table.schema().find_type(field.source_id) for field in table.spec().fields]
        pairs = zip(kinds, part.values, strict=True)
        found[_PARTITION_FIELD] = Record(
            *(None if text is None else partition_to_py(kind, text) for kind, text in pairs)
        )
    return found


def _overwriting(transaction: Transaction, said: dict[str, str]) -> Any:
    return transaction.update_snapshot(snapshot_properties=said).overwrite()


def _small_groups(table: Table, target_bytes: int) -> list[list[DataFile]]:
    """Files to join: of the same partition, with columns that the table has."""
    by_partition: dict[str, list[DataFile]] = {}
    for one in live_files(table):
        if one.spec_id == table.metadata.default_spec_id:
            by_partition.setdefault(repr(one.partition), []).append(one)
    return [
        [files[number] for number in group]
        for files in by_partition.values()
        for group in groups_of([one.file_size_in_bytes for one in files], target_bytes)
    ]


def _rows_of(storage: LakeStorage, path: str) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(storage.reader(path.removeprefix("file://"))) as file:
        for batch in file.iter_batches(batch_size=LAKE_ROW_GROUP_ROWS):
            yield pa.Table.from_batches([batch])


def live_files(table: Table) -> Iterator[DataFile]:
    """The data files of the newest snapshot."""
    snapshot = table.current_snapshot()
    for manifest in () if snapshot is None else snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file


def files_of(table: Table, snapshots: Iterable[Any]) -> set[str]:
    """All files that these snapshots name: data, manifests, and lists of manifests."""
    found: set[str] = set()
    for snapshot in snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in found:
                found.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                found.update(entry.data_file.file_path for entry in entries)
    return found


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _partitions_of(table: Table) -> tuple[str, ...] | None:
    """The columns by which a table is partitioned; None if it is by something else, such as the month of a time."""
    fields = table.spec().fields
    if any(str(field.transform) != "identity" for field in fields):
        return None
    return tuple(table.schema().find_column_name(field.source_id) or "" for field in fields)


def _storage_of(table: Table) -> LakeStorage | None:
    """Where its files are; None if only pyiceberg knows how to get there."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    if not is_url(_root_of(table)):
        return LocalStorage()
    if not isinstance(table.io, PyArrowFileIO):
        return None
    options = {name: str(value) for name, value in table.io.properties.items() if value is not None}
    return ArrowStorage(table.location(), StorageOptions(options))


def _root_of(table: Table) -> str:
    """The directory of the table: a path if it is on a file system."""
    return table.location().removeprefix("file://").rstrip("/")


def _data_of(table: Table) -> str:
    """The directory of the table's files, as pyiceberg names it."""
    return f"{_root_of(table)}/data"


def _schema_of(table: Table) -> pa.Schema:
    """The table's columns in the form of `lake_schema`."""
    return _arrow_schema(table.schema())


def _arrow_schema(schema: Schema) -> pa.Schema:
    import pyarrow as pa

    return lake_schema(pa.schema(schema.as_arrow()), is_history=False, int_bits_min=INT_BITS_MIN)
