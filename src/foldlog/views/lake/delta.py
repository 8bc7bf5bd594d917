"""Lake tables in the Delta format, through deltalake: no Spark and no jars.

A change and its bookmark are one Delta commit. The bookmark is in the commit's `txn` actions (see `delta_bookmark.py`),
and Delta refuses a commit whose `txn` names were written by another commit since the table was read: that is the
compare-and-set. Other commits, such as OPTIMIZE, may run concurrently: a commit that they conflict with is retried.

Executors write the files of large ranges, and the commit names them: see `staged_files.py`. A process that is killed
while it writes rows itself leaves at most files that no commit names; `vacuum` removes them. When `apply` returns,
data, commit and names are fsynced. deltalake itself syncs nothing, so a power cut *during* `apply` may leave a commit
whose files are torn: reading such a table fails, and it has to be rebuilt.

Which rows are kept, all of them or the newest of each key, is decided in `delta_modes.py`.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from foldlog.errors import InvalidArgument, MissingDependency, SchemaChanged, StaleBookmark, ViewUnavailable
from foldlog.files.paths import absolute, exists, opened, sync_directory, sync_file, sync_parent
from foldlog.limits import LAKE_COMMIT_TRIES
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import RECORD, WHOSE_ROWS_UNKNOWN, Delta, Shape, Snapshot, View
from foldlog.views.lake import delta_bookmark as numbers
from foldlog.views.lake.compaction import Compaction, CompactionGoal
from foldlog.views.lake.delta_bookmark import Layout
from foldlog.views.lake.partitions import check_partition_columns, check_same_partitions, partition_text
from foldlog.views.lake.schema import LITTLE_AHEAD, LakeFiles, missing_fields
from foldlog.views.lake.staged_files import adopt, bounds_of, finish, first_line, new_place, sweep
from foldlog.views.lake.storage import (
    PATIENCE,
    LakeStorage,
    LocalStorage,
    ObjectStorage,
    StorageOptions,
    checked_url,
    is_url,
    metadata_of,
)
from foldlog.views.local_paths import local_path
from foldlog.views.staging import RangeName, Ranges, StagedDelta, ViewStage

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable


@dataclass(frozen=True, slots=True)
class StoredDelta:
    """The fold's state in one version of the table."""

    commits: int
    bookmark: Bookmark
    layouts: list[Layout]
    layout_number: int

    @property
    def layout(self) -> Layout:
        return self.layouts[self.layout_number]


class DeltaView(View):
    """A directory with one Delta table, in which only one fold writes rows. `mode` tells which rows are kept.

    Nothing is held open: every call reads the table's newest version.
    """

    kind = "lake"
    mode: ClassVar[str]

    def __init__(self, path: str, options: StorageOptions | None = None, partition_by: tuple[str, ...] = ()) -> None:
        self.path = checked_url(path) if is_url(path) else local_path(path)
        self.partition_by = partition_by
        self._options = options or StorageOptions()
        self._storage: LakeStorage = ObjectStorage(self.path, self._options) if is_url(path) else LocalStorage()
        # The last bookmark that was looked up, with the table and the commit it belongs to.
        self._known: tuple[tuple[str, int], tuple[Bookmark, int]] | None = None

    @property
    def place(self) -> str:
        return f"delta:{self.path}"

    def description(self) -> dict[str, object] | None:
        if is_url(self.path):
            return None  # whoever peeks has no settings of the store
        return {"kind": self.kind, "engine": "delta", "path": self.path, "mode": self.mode}

    def bookmark(self) -> Bookmark | None:
        with self._errors():
            table = self._table()
            return None if table is None else self._stored(table).bookmark

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        wanted = self._schema(shape)
        check_partition_columns(shape.columns, self.partition_by, self.place)
        with self._errors():
            for _ in range(LAKE_COMMIT_TRIES):
                table = self._table()
                if table is None:
                    if self._create(self._loading_schema(wanted) if loading else wanted, shape, start):
                        return start
                    continue
                stored = self._stored(table)
                self._check_layout(stored.layout, shape)
                check_same_partitions(table.metadata().partition_columns, self.partition_by, self.place)
                missing = missing_fields(schema_of(table), wanted, self.place)
                if not missing or self._add_columns(table, missing):
                    self._sweep(stored.bookmark)
                    return stored.bookmark
        raise self._crowded()

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        self._commit(expected, new, lambda table, stored, properties: self._write(delta, table, stored, properties))

    def stage(self, ranges: Ranges, expected: Bookmark) -> ViewStage | None:
        with self._errors():
            table = self._table()
            if table is None:
                return None
            name = RangeName.of(ranges, expected)
            return self._stage(table, ranges, expected, lambda: new_place(self._storage, self.path, name))

    def apply_staged(self, staged: StagedDelta, expected: Bookmark, new: Bookmark) -> None:
        self._commit(expected, new, lambda table, _, properties: self._add(table, staged, properties), staged)

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        self._commit(expected, new, lambda table, _, properties: commit_nothing(table, properties))

    def shadow(self, label: str) -> View:
        return type(self)(f"{self.path}.{label}", self._options, self.partition_by)

    def swap(self, shadow: View) -> None:
        """One overwrite commit that names the shadow's files; the old version stays reachable by time travel."""
        if not isinstance(shadow, DeltaView) or shadow.mode != self.mode:
            raise InvalidArgument(f"{shadow.place} is no shadow of {self.place}")
        with shadow._errors():
            source = shadow._table()
            if source is None:
                raise ViewUnavailable(shadow.place, "there is nothing to put in the place of the old one")
            new = shadow._stored(source)
        with self._errors():
            for _ in range(LAKE_COMMIT_TRIES):
                if self._overwrite(shadow, source, new):
                    break
            else:
                raise self._crowded()
        shadow.drop()

    def drop_old(self) -> bool:
        """Delete the files that only the version before the last swap has. Time travel then ends at the swap."""
        with self._errors():
            table = self._table()
            old = None if table is None else table.transaction_version(numbers.OLD)
            if table is None or not old:
                return False
            self._delete_files(old - 1, keep=set(table.file_uris()))
            commit_nothing(table, _properties({numbers.OLD: 0}))
            self._sync(table.version())
            return True

    def compact(self, goal: CompactionGoal) -> Compaction:
        """OPTIMIZE, and then VACUUM of what commits have removed: files that somebody is writing are not looked at."""
        from deltalake.exceptions import CommitFailedError

        with self._errors():
            for _ in range(LAKE_COMMIT_TRIES):
                table = self._existing()
                self._stored(table)  # raises if the table is not a fold's
                version, old = table.version(), table.transaction_version(numbers.OLD)
                try:
                    told = table.optimize.compact(target_size=goal.target_bytes)
                except CommitFailedError:
                    continue
                self._sync(version + 1)
                removed = self._existing().vacuum(
                    retention_hours=-(-goal.keep_ms // 3_600_000),
                    dry_run=False,
                    enforce_retention_duration=False,
                    # What the last swap replaced is kept until it is dropped.
                    keep_versions=[old - 1] if old else None,
                )
                files = len(self._existing().file_uris())
                return Compaction(told["numFilesRemoved"], told["numFilesAdded"], len(removed), files)
        raise self._crowded()

    def drop(self) -> None:
        with self._errors():
            table = self._table()
            if table is not None:
                self._stored(table)  # raises if the table is not a fold's
            self._storage.remove_tree(self.path)

    def scan(self) -> Snapshot:
        with self._errors():
            table = self._table()
            if table is None:
                raise ViewUnavailable(self.place, "it does not exist yet; run the fold")
            return Snapshot(self._stored(table).bookmark, self._batches(table))

    def newest_files(self, limit: int) -> LakeFiles:
        """The files of the newest commits, and the number of rows, for a peek at the last rows."""
        import pyarrow as pa

        with self._errors():
            table = self._existing()
            self._stored(table)  # raises if the table is not a fold's
            added = pa.table(table.get_add_actions(flatten=True)).sort_by([("modification_time", "descending")])
            counts = added["num_records"].to_pylist()
            total = None if None in counts else sum(counts)
            newest = added.slice(0, limit)
            paths = [self._path_of(path) for path in newest["path"].to_pylist()]
            values = newest.select([f"partition.{name}" for name in table.metadata().partition_columns])
            constants = [{name.removeprefix("partition."): one[name] for name in one} for one in values.to_pylist()]
            return LakeFiles(schema_of(table), paths, total, constants)

    def _batches(self, table: DeltaTable) -> Iterator[pa.RecordBatch]:
        with self._errors():
            yield from self._dataset(table).to_batches(**LITTLE_AHEAD)

    def _dataset(self, table: DeltaTable) -> Any:
        """The table's files, for Arrow to read by itself: deltalake cannot read while it writes."""
        import pyarrow.fs

        if isinstance(self._storage, ObjectStorage):
            root, files = self._storage.key(self.path), self._storage.arrow_files()
        else:
            root, files = self.path, pyarrow.fs.LocalFileSystem()
        return table.to_pyarrow_dataset(filesystem=pyarrow.fs.SubTreeFileSystem(root, files))

    # Decided by the modes.

    @abstractmethod
    def _schema(self, shape: Shape) -> pa.Schema:
        """The table's columns for a fold of this shape."""

    def _loading_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns during a bulk load of a table with that schema."""
        return schema

    @abstractmethod
    def _write(self, delta: Delta, table: DeltaTable, stored: StoredDelta, properties: CommitProperties) -> None:
        """Make one commit of a delta's rows, with these properties."""

    @abstractmethod
    def _stage(
        self, table: DeltaTable, ranges: Ranges, expected: Bookmark, new_place: Callable[[], str]
    ) -> ViewStage | None:
        """See `stage`; `new_place` makes the directory."""

    # One commit.

    def _commit(
        self,
        expected: Bookmark,
        new: Bookmark,
        write: Callable[[DeltaTable, StoredDelta, CommitProperties], None],
        staged: StagedDelta | None = None,
    ) -> None:
        """Write with `new`, which may be what was staged; StaleBookmark if the table's bookmark is not, or no longer,
        the expected one.
        """
        with self._errors():
            from deltalake.exceptions import CommitFailedError

            for _ in range(LAKE_COMMIT_TRIES):
                table = self._table()
                if table is None:
                    raise StaleBookmark(self.place, "nothing, since it does not exist", expected.to_json())
                stored = self._stored(table)
                if stored.bookmark.to_json() != expected.to_json():
                    raise StaleBookmark(self.place, stored.bookmark.to_json(), expected.to_json())
                try:
                    layout = replace(stored.layout, topic=new.topic, topic_id=new.topic_id)  # a copy has another id
                    number = self._layout_number(table, stored.layouts, layout)
                    before = table.version()
                    write(table, stored, self._moved(stored, new, number))
                except CommitFailedError:
                    # Another commit came first. If it was another runner's, the bookmark shows it now.
                    continue
                self._sync(before + 1)
                if staged is not None:
                    finish(staged)
                self._sweep(new)
                return
        raise self._crowded()

    def _add(self, table: DeltaTable, staged: StagedDelta, properties: CommitProperties) -> None:
        """Make one commit of files that executors have written, with these properties."""
        from deltalake.transaction import AddAction, RemoveAction

        # Moved before they are named: a commit whose files were swept must fail, and not be made.
        actions: list[AddAction | RemoveAction] = []
        for name, part in adopt(staged, self.path):
            values = dict(zip(self.partition_by, part.values, strict=True))
            modified_ms = self._storage.modified_ms(f"{self.path}/{name}")
            actions.append(AddAction(name, part.size_bytes, values, modified_ms, True, part.statistics))
        if actions:
            table.create_write_transaction(
                actions, "append", table.schema(), list(self.partition_by), commit_properties=properties
            )
        else:
            commit_nothing(table, properties)

    def _sweep(self, stored: Bookmark) -> None:
        sweep(self._storage, self.path, self.path, stored, self._is_committed)

    def _is_committed(self, prefix: str) -> bool:
        """Whether a commit that is still in the log, or the newest version, names a file that begins so."""
        table = self._table()
        if table is not None and any(f"/{prefix}" in uri for uri in table.file_uris()):
            return True
        log = f"{self.path}/_delta_log"
        for name in sorted(self._storage.names(log), reverse=True):
            if name.endswith(".json"):
                lines = self._storage.read(f"{log}/{name}").splitlines()
                if any(json.loads(line).get("add", {}).get("path", "").startswith(prefix) for line in lines):
                    return True
        return False

    def _moved(self, stored: StoredDelta, new: Bookmark, layout: int, **others: int) -> CommitProperties:
        """The commit's `txn` numbers: the changes to the new bookmark, and the raised commit counter."""
        before = numbers.to_numbers(stored.bookmark, stored.layout_number)
        moved = numbers.changes(before, numbers.to_numbers(new, layout))
        return _properties({**moved, numbers.COMMITS: stored.commits + 1, **others}, new)

    def _layout_number(self, table: DeltaTable, layouts: list[Layout], wanted: Layout) -> int:
        """The number of a layout in the table. A new one takes a commit of its own, which changes nothing yet."""
        if wanted not in layouts:
            table.alter.set_table_description(numbers.describe(self.mode, [*layouts, wanted]))
            self._sync(table.version())
            return len(layouts)
        return layouts.index(wanted)

    def _overwrite(self, shadow: DeltaView, source: DeltaTable, new: StoredDelta) -> bool:
        """Replace the table's rows by those of another table, with its bookmark; False if another commit came first."""
        from deltalake.exceptions import CommitFailedError

        try:
            table = self._existing()
            stored = self._stored(table)
            number = self._layout_number(table, stored.layouts, new.layout)
            version, older = table.version(), table.transaction_version(numbers.OLD)
            properties = self._moved(stored, new.bookmark, number, **{numbers.OLD: version + 1})
            # Past once this swap, or another one, or a rewind is committed: then this commit conflicts.
            name = RangeName.of_swap(max(stored.bookmark.epoch, new.bookmark.epoch - 1))
            directory = new_place(self._storage, self.path, name)
            self._take_over(table, shadow, source, str(name), properties)
        except CommitFailedError:
            return False  # its files are swept
        self._sync(version + 1)
        self._storage.remove_place(directory)
        self._sweep(new.bookmark)
        if older:
            kept = self._table_at(version)
            self._delete_files(older - 1, keep={*table.file_uris(), *(kept.file_uris() if kept else ())})
        return True

    def _take_over(
        self, table: DeltaTable, shadow: DeltaView, source: DeltaTable, prefix: str, properties: CommitProperties
    ) -> None:
        """Make the files of another table this one's: under a second name, as both may die before it is committed."""
        import pyarrow as pa
        from deltalake.transaction import AddAction, RemoveAction

        actions: list[AddAction | RemoveAction] = []
        join = "-" if self._storage.moves else "/"
        for action in pa.table(source.get_add_actions()).to_pylist():
            uri = shadow._path_of(action["path"])
            name = f"{prefix}{join}{uri.rpartition('/')[2]}"
            path = f"{self.path}/{name}"
            self._storage.copy(uri, path)
            values = {column: partition_text(action["partition"][column]) for column in self.partition_by}
            modified_ms, statistics = self._storage.modified_ms(path), bounds_of(metadata_of(self._storage, path))
            actions.append(AddAction(name, action["size_bytes"], values, modified_ms, True, statistics))
        if actions:
            self._storage.sync(self.path)
            table.create_write_transaction(
                actions, "overwrite", source.schema(), list(self.partition_by), commit_properties=properties
            )
        else:
            overwrite(table, schema_of(source).empty_table().to_reader(), properties)

    def _create(self, schema: pa.Schema, shape: Shape, start: Bookmark) -> bool:
        """False if another process has created it first."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        if any(name != "_delta_log" for name in self._storage.names(self.path)):
            raise ViewUnavailable(self.place, "the directory holds other files; choose an empty one")
        layout = Layout(start.topic, start.topic_id, shape.record_key, shape.key)
        values = {**numbers.to_numbers(start, 0), numbers.COMMITS: 0}
        try:
            DeltaTable.create(
                self.path,
                schema=schema,
                partition_by=list(self.partition_by),
                storage_options=self._engine_options,
                description=numbers.describe(self.mode, [layout]),
                commit_properties=_properties(values, start),
            )
        except DeltaError:
            if self._table() is None:
                raise
            return False
        self._sync(0)
        if self._storage.moves:
            sync_parent(self.path)
        return True

    def _add_columns(self, table: DeltaTable, missing: list[pa.Field]) -> bool:
        import pyarrow as pa
        from deltalake import Schema
        from deltalake.exceptions import CommitFailedError

        version = table.version()
        try:
            table.alter.add_columns(list(Schema.from_arrow(pa.schema(missing)).fields))
        except CommitFailedError:
            return False
        self._sync(version + 1)
        return True

    # The stored state.

    def _table(self) -> DeltaTable | None:
        _deltalake()
        return self._table_at(None)

    def _table_at(self, version: int | None) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        if self._storage.moves and not exists(f"{self.path}/_delta_log"):
            return None  # deltalake would make the directory
        try:
            return DeltaTable(self.path, version=version, storage_options=self._engine_options)
        except TableNotFoundError:
            return None

    @property
    def _engine_options(self) -> dict[str, str] | None:
        """The settings for deltalake."""
        if self._storage.moves:
            return dict(self._options) or None
        names = {name.lower() for name in self._options}
        return {**{name: value for name, value in PATIENCE.items() if name not in names}, **self._options}

    def _existing(self) -> DeltaTable:
        table = self._table()
        if table is None:
            raise ViewUnavailable(self.place, "it does not exist any more; run the fold again")
        return table

    def _stored(self, table: DeltaTable) -> StoredDelta:
        metadata = table.metadata()
        described = numbers.read_description(metadata.description)
        commits = table.transaction_version(numbers.COMMITS)
        if described is None or commits is None:
            raise ViewUnavailable(self.place, "there is a Delta table that no fold has made; choose another path")
        mode, layouts = described
        if mode != self.mode:
            raise ViewUnavailable(
                self.place, f"it was made with mode={mode!r} and not {self.mode!r}; drop it, or choose another path"
            )
        # Looking up each number is slow, and they change only together with this one.
        which = str(metadata.id), commits
        if self._known is None or self._known[0] != which:
            self._known = which, numbers.from_numbers(table.transaction_version, layouts)
        bookmark, layout_number = self._known[1]
        return StoredDelta(commits, bookmark, layouts, layout_number)

    def _check_layout(self, layout: Layout, shape: Shape) -> None:
        """SchemaChanged if the key has changed; it only matters if rows are addressed by key."""
        if self.is_keyed and shape.record_key == RECORD and layout.record_key != RECORD:
            raise SchemaChanged(self.place, WHOSE_ROWS_UNKNOWN)
        if self.is_keyed and (layout.record_key, layout.key) != (shape.record_key, shape.key):
            raise SchemaChanged(self.place, f"its key is {layout.key} of {layout.record_key!r} and not {shape.key}")

    def _delete_files(self, version: int, keep: set[str]) -> None:
        """Delete the files of one version, and only those: `vacuum` would also remove files that others are writing."""
        from deltalake.exceptions import DeltaError

        try:
            table = self._table_at(version)
        except DeltaError:
            return  # that version is no longer in the log, so its files are left to vacuum
        for uri in table.file_uris() if table is not None else ():
            if uri not in keep:
                self._storage.remove(uri)

    def _sync(self, version: int) -> None:
        """Make every commit from `version` on durable: the files it adds, itself, and their names. An object is durable
        when it was put.
        """
        if not self._storage.moves:
            return
        log = f"{self.path}/_delta_log"
        commit = f"{log}/{version:020d}.json"
        while exists(commit):
            with opened(commit) as lines:
                for line in lines:
                    added = json.loads(line).get("add")
                    if added is not None:
                        sync_file(self._path_of(added["path"]))
            sync_file(commit)
            version += 1
            commit = f"{log}/{version:020d}.json"
        sync_directory(self.path)
        sync_directory(log)

    def _path_of(self, path: str) -> str:
        """The whole path of a file that the log names so."""
        plain = unquote(path)
        return f"{self.path}/{plain}" if is_url(self.path) else absolute(plain, self.path)

    def _crowded(self) -> ViewUnavailable:
        return ViewUnavailable(
            self.place, f"other commits came first {LAKE_COMMIT_TRIES} times in a row; try again when they are done"
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of Delta and of the disk as ViewUnavailable, in one sentence."""
        exceptions = _deltalake().exceptions
        import pyarrow as pa

        try:
            yield
        except (exceptions.DeltaError, OSError, pa.ArrowException) as error:
            if isinstance(error, MissingDependency):
                raise
            raise ViewUnavailable(self.place, self._options.redacted(_reason(error))) from error


def _reason(error: Exception) -> str:
    """deltalake draws the causes of an error as a tree; the last ones are the reason."""
    lines = [re.sub(r"\x1b\[[0-9;]*m|↳", "", line).strip() for line in str(error).splitlines()]
    told = [line for line in lines if line]
    if isinstance(error, OSError) and not error.strerror and len(told) > 1:
        return f"{told[0]}: {told[1]}: {told[-1]}" if len(told) > 2 else ": ".join(told)
    return first_line(error) if error.__class__.__module__ == "builtins" else (told or [type(error).__name__])[0]


def _deltalake() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError:
        raise MissingDependency("a lake view in the Delta format", "deltalake", "views") from None
    return deltalake


def _properties(values: dict[str, int], bookmark: Bookmark | None = None) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata=None if bookmark is None else {"userMetadata": bookmark.to_json()},
        app_transactions=[Transaction(name, value) for name, value in values.items()],
    )


def append(table: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
    """Append rows, which have the table's columns, in a commit with these properties."""
    from deltalake import write_deltalake

    write_deltalake(table, rows, mode="append", commit_properties=properties)


def overwrite(table: DeltaTable, rows: pa.RecordBatchReader, properties: CommitProperties) -> None:
    """Replace all rows, and the columns, in a commit with these properties. Rows are written as they come."""
    from deltalake import write_deltalake

    write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite", commit_properties=properties)


def commit_nothing(table: DeltaTable, properties: CommitProperties) -> None:
    """A commit with these properties that changes no rows."""
    append(table, schema_of(table).empty_table(), properties)


def schema_of(table: DeltaTable) -> pa.Schema:
    """The table's columns as an Arrow schema."""
    import pyarrow as pa

    return pa.schema(table.schema().to_arrow())
