"""Lake tables in the Iceberg format, through pyiceberg, with a catalog that is a SQLite file in the same directory.

    views/payments/
      catalog.db                    which tables there are, and where the newest metadata of each is
      payments-5f0c.../             foldlog.payments: data and metadata

A change and its bookmark are one commit of the catalog: a snapshot with the rows, and the table property
`foldlog.bookmark`, which does not expire with snapshots. Every commit makes a snapshot, even without rows, because that
is what Iceberg compares: a commit is refused if the newest snapshot is not the one that was read. Files are fsynced
before the catalog names them, and SQLite syncs itself: a power cut leaves the old state or the new.

Rows are only appended. Executors write the files of large ranges, and the commit names them: see `staged_files.py`. A
process that is killed while it writes rows itself may leave files that no snapshot names; they do no harm.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import InvalidArgument, MalformedBytes, MissingDependency, StaleBookmark, ViewUnavailable
from foldlog.files.paths import (
    discard_tree,
    exists,
    make_parents,
    names_in,
    put_first,
    remove,
    remove_tree,
    sync_parent,
)
from foldlog.limits import LAKE_COMMIT_TRIES
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import TOPIC, Delta, Shape, Snapshot, View
from foldlog.views.lake.schema import LakeFiles, fitted, lake_schema, missing_fields
from foldlog.views.lake.staged_files import FileStage, adopt, finish, new_place, sweep
from foldlog.views.local_paths import local_path
from foldlog.views.staging import RangeName, Ranges, StagedDelta, ViewStage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table, Transaction

NAMESPACE: Final = "foldlog"
"""The namespace of the tables, and the name of the catalog."""

BOOKMARK: Final = "foldlog.bookmark"
FILES: Final = "foldlog.views.lake.iceberg_files.SyncedFiles"
INT_BITS_MIN: Final = 32
"""Iceberg has integers of 32 and of 64 bits."""

_CATALOG: Final = "catalog.db"
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

    def __init__(self, path: str, label: str | None = None) -> None:
        self.path = local_path(path)
        self._main = re.sub(r"[^A-Za-z0-9_]", "_", self.path.rpartition("/")[2])
        self._name = self._main if label is None else f"{self._main}__{label}"

    @property
    def place(self) -> str:
        return f"iceberg:{self.path}" if self._name == self._main else f"iceberg:{self.path}/{self._name}"

    def description(self) -> dict[str, object]:
        return {"kind": self.kind, "engine": "iceberg", "path": self.path}

    def bookmark(self) -> Bookmark | None:
        with self._opened() as catalog:
            table = self._table(catalog)
            return None if table is None else self._read_bookmark(table)

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        wanted = lake_schema(shape.columns, is_history=True, int_bits_min=INT_BITS_MIN)
        with self._opened(create=True) as catalog:
            from pyiceberg.exceptions import CommitFailedException

            for _ in range(LAKE_COMMIT_TRIES):
                table = self._table(catalog)
                if table is None:
                    if self._create(catalog, wanted, start):
                        return start
                    continue
                missing = missing_fields(_schema_of(table), wanted, self.place)
                try:
                    if missing:
                        self._add_columns(table, missing)
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
            # With field ids, by which Iceberg finds a column, whatever it is renamed to.
            files = schema_to_pyarrow(table.schema(), include_field_ids=True)
            place = new_place(table.location(), RangeName.of(ranges, expected))
            return FileStage(place, _schema_of(table), self.place, files)

    def apply_staged(self, staged: StagedDelta, expected: Bookmark, new: Bookmark) -> None:
        def write(table: Table, transaction: Transaction, said: dict[str, str]) -> None:
            from pyiceberg.io.pyarrow import parquet_file_to_data_file

            data = _data_of(table)
            make_parents(f"{data}/")
            names = [name for name, _ in adopt(staged, data)]
            with transaction.update_snapshot(snapshot_properties=said).fast_append() as appended:
                for name in names:
                    found = parquet_file_to_data_file(table.io, table.metadata, f"{data}/{name}")
                    appended.append_data_file(found)

        self._commit(expected, new, write, staged)

    def _sweep(self, table: Table, stored: Bookmark) -> None:
        def is_committed(prefix: str) -> bool:
            files = table.inspect.all_files()["file_path"].to_pylist() if table.metadata.snapshots else []
            return any(path.rpartition("/")[2].startswith(prefix) for path in files)

        sweep(table.location(), _data_of(table), stored, is_committed)

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        def write(table: Table, transaction: Transaction, said: dict[str, str]) -> None:
            transaction.append(_schema_of(table).empty_table(), snapshot_properties=said)

        self._commit(expected, new, write)

    def shadow(self, label: str) -> View:
        return IcebergHistory(self.path, label)

    def swap(self, shadow: View) -> None:
        """Rename both tables in one transaction of the catalog. A reader of the old table can still read it."""
        if not isinstance(shadow, IcebergHistory) or shadow.path != self.path:
            raise InvalidArgument(f"{shadow.place} is no shadow of {self.place}")
        with self._opened() as catalog:
            if self._table(catalog, shadow._name) is None:
                raise ViewUnavailable(shadow.place, "there is nothing to put in the place of the old one")
            older = self._table(catalog, self._old)
            _rename(catalog, {self._old: None, self._name: self._old, shadow._name: self._name})
            self._remove_files(older)

    def drop_old(self) -> bool:
        with self._opened() as catalog:
            return self._drop(catalog, self._old)

    def drop(self) -> None:
        with self._opened() as catalog:
            if catalog is None:
                return
            self._drop(catalog, self._name)
            if self._name == self._main:
                self._drop(catalog, self._old)
            is_empty = not any(catalog.list_tables(namespace) for namespace in catalog.list_namespaces())
        if is_empty:
            with self._errors():
                remove_tree(self.path)

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

    @property
    def _old(self) -> str:
        return f"{self._name}__old"

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

    def _create(self, catalog: SqlCatalog, schema: pa.Schema, start: Bookmark) -> bool:
        """False if another process has created it first."""
        from pyiceberg.exceptions import TableAlreadyExistsError

        try:
            catalog.create_table(
                (NAMESPACE, self._name),
                schema,
                # A name of its own: a shadow that is swapped in keeps its files where they are.
                location=f"{self.path}/{self._name}-{uuid.uuid4().hex}",
                properties={**_PROPERTIES, BOOKMARK: start.to_json()},
            )
        except TableAlreadyExistsError:
            return False
        return True

    def _add_columns(self, table: Table, missing: list[pa.Field]) -> None:
        import pyarrow as pa

        with table.update_schema() as update:
            update.union_by_name(pa.schema(missing))

    # The stored state.

    @contextmanager
    def _opened(self, *, create: bool = False) -> Iterator[Any]:
        """The catalog; None if there is none and `create` is not set.

        Opened for each call: a connection to a catalog that was dropped and created again would write to the deleted
        file.
        """
        with self._errors():
            path = f"{self.path}/{_CATALOG}"
            if create and not exists(path):
                self._make_catalog(path)
            if not exists(path):
                yield None
                return
            with closing(self._catalog(path)) as catalog:
                yield catalog

    def _catalog(self, path: str) -> SqlCatalog:
        from pyiceberg.catalog.sql import SqlCatalog
        from sqlalchemy import URL

        uri = URL.create("sqlite", database=path).render_as_string()
        return SqlCatalog(NAMESPACE, uri=uri, warehouse=self.path, **{"py-io-impl": FILES})

    def _make_catalog(self, path: str) -> None:
        """An empty one; of several processes that make it at once, one is the first."""
        make_parents(path)
        sync_parent(self.path)
        strange = [name for name in names_in(self.path) if not name.startswith(_CATALOG)]
        if strange and not exists(path):
            raise ViewUnavailable(self.place, "the directory holds other files; choose an empty one")
        draft = f"{path}.{uuid.uuid4().hex}"
        try:
            with closing(self._catalog(draft)) as catalog:
                catalog.create_namespace(NAMESPACE)
            # Atomically: pyiceberg would fail on a catalog that another process has only half created.
            put_first(draft, path)
        finally:
            remove(draft)

    def _table(self, catalog: Any, name: str | None = None) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        if catalog is None:
            return None
        try:
            found: Table = catalog.load_table((NAMESPACE, name or self._name))
        except NoSuchTableError:
            return None
        return found

    def _read_bookmark(self, table: Table) -> Bookmark:
        try:
            return Bookmark.from_json(table.properties[BOOKMARK])
        except (KeyError, MalformedBytes):
            raise ViewUnavailable(self.place, "there is a table that no fold has made; choose another path") from None

    def _drop(self, catalog: Any, name: str) -> bool:
        table = self._table(catalog, name)
        if table is None:
            return False
        self._read_bookmark(table)  # raises if the table is not a fold's
        catalog.drop_table((NAMESPACE, name))
        self._remove_files(table)
        return True

    def _remove_files(self, table: Table | None) -> None:
        """Remove the files of a table that the catalog no longer names."""
        if table is not None:
            discard_tree(table.location())

    def _crowded(self) -> ViewUnavailable:
        return ViewUnavailable(
            self.place, f"other commits came first {LAKE_COMMIT_TRIES} times in a row; try again when they are done"
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of pyiceberg, its catalog and the disk as ViewUnavailable, in one sentence."""
        try:
            import pyarrow as pa
            from pyiceberg.exceptions import ValidationError
            from sqlalchemy.exc import SQLAlchemyError
        except ImportError:
            raise MissingDependency("a lake view in the Iceberg format", "pyiceberg[sql-sqlite]", "iceberg") from None
        try:
            yield
        except (SQLAlchemyError, OSError, pa.ArrowException, ValidationError) as error:
            if isinstance(error, MissingDependency):
                raise
            raise ViewUnavailable(self.place, str(error).partition("\n")[0]) from error


def _rename(catalog: SqlCatalog, names: dict[str, str | None]) -> None:
    """In this order, in one transaction; None removes the entry."""
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import delete, update
    from sqlalchemy.orm import Session

    with Session(catalog.engine) as session:
        for old, new in names.items():
            which = (
                IcebergTables.catalog_name == catalog.name,
                IcebergTables.table_namespace == NAMESPACE,
                IcebergTables.table_name == old,
            )
            if new is None:
                session.execute(delete(IcebergTables).where(*which))
            else:
                session.execute(update(IcebergTables).where(*which).values(table_name=new))
        session.commit()


def _data_of(table: Table) -> str:
    """The directory of the table's files, as pyiceberg names it."""
    return f"{table.location()}/data"


def _schema_of(table: Table) -> pa.Schema:
    """The table's columns in the form of `lake_schema`."""
    import pyarrow as pa

    schema = table.schema().as_arrow()
    return lake_schema(pa.schema(schema), is_history=False, int_bits_min=INT_BITS_MIN)
