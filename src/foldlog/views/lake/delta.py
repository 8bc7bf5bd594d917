"""Lake tables in the Delta format, through deltalake: no Spark and no jars.

A change and its bookmark are one Delta commit. The bookmark is in the commit's `txn` actions (see `delta_bookmark`),
and Delta refuses a commit whose `txn` names were written by another commit since the table was read: that is the
compare-and-set. Commits of others, such as OPTIMIZE, go on beside it: what they do not conflict with is retried.

A killed process leaves at most files that no commit names; `vacuum` removes them. When `apply` returns, data, commit
and names are fsynced. deltalake itself syncs nothing, so a power cut *during* `apply` may leave a commit whose files
are torn: such a table says that it cannot be read, and is rebuilt.

What is kept of the rows, all of them or the newest of each key, is in `lake_delta_modes`.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from foldlog.errors import InvalidArgument, MissingDependency, SchemaChanged, StaleBookmark, ViewUnavailable
from foldlog.files.paths import (
    absolute,
    exists,
    is_directory,
    is_there,
    names_in,
    opened,
    remove,
    remove_tree,
    sync_directory,
    sync_file,
    sync_parent,
)
from foldlog.limits import LAKE_COMMIT_TRIES
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import RECORD, WHOSE_ROWS_UNKNOWN, Delta, Shape, Snapshot, View
from foldlog.views.lake import delta_bookmark as numbers
from foldlog.views.lake.delta_bookmark import Layout
from foldlog.views.lake.schema import LITTLE_AHEAD, LakeFiles, missing_fields
from foldlog.views.local_paths import local_path

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable


@dataclass(frozen=True, slots=True)
class StoredDelta:
    """What a version of the table says about the fold."""

    commits: int
    bookmark: Bookmark
    layouts: list[Layout]
    layout_number: int

    @property
    def layout(self) -> Layout:
        return self.layouts[self.layout_number]


class DeltaView(View):
    """A directory with one Delta table, of which one fold is the only writer of rows. `mode` says what is kept of them.

    Nothing is held open: every call reads the table's newest version.
    """

    kind = "lake"
    mode: ClassVar[str]

    def __init__(self, path: str) -> None:
        self.path = local_path(path)
        # The last bookmark that was looked up, and of which table and commit it is.
        self._known: tuple[tuple[str, int], tuple[Bookmark, int]] | None = None

    @property
    def place(self) -> str:
        return f"delta:{self.path}"

    def description(self) -> dict[str, object]:
        return {"kind": self.kind, "engine": "delta", "path": self.path, "mode": self.mode}

    def bookmark(self) -> Bookmark | None:
        with self._errors():
            table = self._table()
            return None if table is None else self._stored(table).bookmark

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        wanted = self._schema(shape)
        with self._errors():
            for _ in range(LAKE_COMMIT_TRIES):
                table = self._table()
                if table is None:
                    if self._create(self._loading_schema(wanted) if loading else wanted, shape, start):
                        return start
                    continue
                stored = self._stored(table)
                self._check_layout(stored.layout, shape)
                missing = missing_fields(schema_of(table), wanted, self.place)
                if not missing or self._add_columns(table, missing):
                    return stored.bookmark
        raise self._crowded()

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        self._commit(
            expected, new, lambda table, stored, properties: self._write(delta.rows, table, stored, properties)
        )

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        self._commit(expected, new, lambda table, _, properties: commit_nothing(table, properties))

    def shadow(self, label: str) -> View:
        return type(self)(f"{self.path}.{label}")

    def swap(self, shadow: View) -> None:
        """One overwrite commit that streams the shadow's rows in; the old version stays reachable by time travel."""
        if not isinstance(shadow, DeltaView) or shadow.mode != self.mode:
            raise InvalidArgument(f"{shadow.place} is no shadow of {self.place}")
        with shadow._errors():
            source = shadow._table()
            if source is None:
                raise ViewUnavailable(shadow.place, "there is nothing to put in the place of the old one")
            rows, new = shadow._dataset(source), shadow._stored(source)
        with self._errors():
            for _ in range(LAKE_COMMIT_TRIES):
                if self._overwrite(rows, new):
                    break
            else:
                raise self._crowded()
        shadow.drop()

    def drop_old(self) -> bool:
        """Delete the files that only the version before the last swap has. Time travel ends at the swap then."""
        with self._errors():
            table = self._table()
            old = None if table is None else table.transaction_version(numbers.OLD)
            if table is None or not old:
                return False
            self._delete_files(old - 1, keep=set(table.file_uris()))
            commit_nothing(table, _properties({numbers.OLD: 0}))
            self._sync(table.version())
            return True

    def drop(self) -> None:
        if not is_there(self.path):
            return
        with self._errors():
            table = self._table()
            if table is not None:
                self._stored(table)  # raises where the table is somebody else's
            remove_tree(self.path)

    def scan(self) -> Snapshot:
        with self._errors():
            table = self._table()
            if table is None:
                raise ViewUnavailable(self.place, "it does not exist yet; run the fold")
            return Snapshot(self._stored(table).bookmark, self._batches(table))

    def newest_files(self, limit: int) -> LakeFiles:
        """The files of the newest commits, and how many rows there are, for who wants to see the last of them."""
        import pyarrow as pa

        with self._errors():
            table = self._existing()
            self._stored(table)  # raises where the table is somebody else's
            added = pa.table(table.get_add_actions(flatten=True)).sort_by([("modification_time", "descending")])
            counts = added["num_records"].to_pylist()
            total = None if None in counts else sum(counts)
            paths = [absolute(unquote(path), self.path) for path in added["path"].slice(0, limit).to_pylist()]
            return LakeFiles(schema_of(table), paths, total)

    def _batches(self, table: DeltaTable) -> Iterator[pa.RecordBatch]:
        with self._errors():
            yield from self._dataset(table).to_batches(**LITTLE_AHEAD)

    def _dataset(self, table: DeltaTable) -> Any:
        """The table's files for Arrow to read by itself: through deltalake it could not, while deltalake writes."""
        import pyarrow.fs

        files = pyarrow.fs.SubTreeFileSystem(self.path, pyarrow.fs.LocalFileSystem())
        return table.to_pyarrow_dataset(filesystem=files)

    # What the modes decide.

    @abstractmethod
    def _schema(self, shape: Shape) -> pa.Schema:
        """The table's columns for a fold of this shape."""

    def _loading_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns while it is loaded, of a table with that schema."""
        return schema

    @abstractmethod
    def _write(self, rows: pa.Table, table: DeltaTable, stored: StoredDelta, properties: CommitProperties) -> None:
        """Make one commit of a delta's rows, with these properties."""

    # One commit.

    def _commit(
        self,
        expected: Bookmark,
        new: Bookmark,
        write: Callable[[DeltaTable, StoredDelta, CommitProperties], None],
    ) -> None:
        """Write with `new`; StaleBookmark if the table's bookmark is not, or not any more, the expected one."""
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
                    layout = replace(stored.layout, topic=new.topic, topic_id=new.topic_id)  # a copy is another topic
                    number = self._layout_number(table, stored.layouts, layout)
                    before = table.version()
                    write(table, stored, self._moved(stored, new, number))
                except CommitFailedError:
                    # Somebody's commit came first. If it was another runner's, the bookmark says so now.
                    continue
                self._sync(before + 1)
                return
        raise self._crowded()

    def _moved(self, stored: StoredDelta, new: Bookmark, layout: int, **others: int) -> CommitProperties:
        """What a commit says beside its change: the numbers of the new bookmark, and one commit more."""
        before = numbers.to_numbers(stored.bookmark, stored.layout_number)
        moved = numbers.changes(before, numbers.to_numbers(new, layout))
        return _properties({**moved, numbers.COMMITS: stored.commits + 1, **others}, new)

    def _layout_number(self, table: DeltaTable, layouts: list[Layout], wanted: Layout) -> int:
        """Which of the table's layouts it is. A new one takes a commit of its own, which changes nothing yet."""
        if wanted not in layouts:
            table.alter.set_table_description(numbers.describe(self.mode, [*layouts, wanted]))
            self._sync(table.version())
            return len(layouts)
        return layouts.index(wanted)

    def _overwrite(self, rows: Any, new: StoredDelta) -> bool:
        """The rows of a dataset in place of the table's; False if somebody's commit came first."""
        from deltalake.exceptions import CommitFailedError

        try:
            table = self._existing()
            stored = self._stored(table)
            number = self._layout_number(table, stored.layouts, new.layout)
            version, older = table.version(), table.transaction_version(numbers.OLD)
            properties = self._moved(stored, new.bookmark, number, **{numbers.OLD: version + 1})
            overwrite(table, rows.scanner(**LITTLE_AHEAD).to_reader(), properties)
        except CommitFailedError:
            return False
        self._sync(version + 1)
        if older:
            kept = self._table_at(version)
            self._delete_files(older - 1, keep={*table.file_uris(), *(kept.file_uris() if kept else ())})
        return True

    def _create(self, schema: pa.Schema, shape: Shape, start: Bookmark) -> bool:
        """False if another process was quicker."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        if is_directory(self.path) and any(name != "_delta_log" for name in names_in(self.path)):
            raise ViewUnavailable(self.place, "the directory holds other files; choose an empty one")
        layout = Layout(start.topic, start.topic_id, shape.record_key, shape.key)
        values = {**numbers.to_numbers(start, 0), numbers.COMMITS: 0}
        try:
            DeltaTable.create(
                self.path,
                schema=schema,
                description=numbers.describe(self.mode, [layout]),
                commit_properties=_properties(values, start),
            )
        except DeltaError:
            if self._table() is None:
                raise
            return False
        self._sync(0)
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

    # What is there.

    def _table(self) -> DeltaTable | None:
        _deltalake()
        return self._table_at(None)

    def _table_at(self, version: int | None) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        if not is_directory(f"{self.path}/_delta_log"):
            return None
        try:
            return DeltaTable(self.path, version=version)
        except TableNotFoundError:
            return None

    def _existing(self) -> DeltaTable:
        table = self._table()
        if table is None:
            raise ViewUnavailable(self.place, "it does not exist (any more); run the fold again")
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
        # Looking up each number takes a moment, and they change only with this one.
        which = str(metadata.id), commits
        if self._known is None or self._known[0] != which:
            self._known = which, numbers.from_numbers(table.transaction_version, layouts)
        bookmark, layout_number = self._known[1]
        return StoredDelta(commits, bookmark, layouts, layout_number)

    def _check_layout(self, layout: Layout, shape: Shape) -> None:
        """Only where rows are addressed by key does it matter what the key is."""
        if self.is_keyed and shape.record_key == RECORD and layout.record_key != RECORD:
            raise SchemaChanged(self.place, WHOSE_ROWS_UNKNOWN)
        if self.is_keyed and (layout.record_key, layout.key) != (shape.record_key, shape.key):
            raise SchemaChanged(self.place, f"its key is {layout.key} of {layout.record_key!r} and not {shape.key}")

    def _delete_files(self, version: int, keep: set[str]) -> None:
        """Those of one version. Precisely those: `vacuum` would take what others are writing at the moment as well."""
        from deltalake.exceptions import DeltaError

        try:
            table = self._table_at(version)
        except DeltaError:
            return  # the log's own clean-up has forgotten that version, so its files are vacuum's
        for uri in table.file_uris() if table is not None else ():
            if uri not in keep:
                try:
                    remove(uri)
                except FileNotFoundError:
                    pass

    def _sync(self, version: int) -> None:
        """Make every commit from `version` on durable: the files it adds, itself, and their names."""
        log = f"{self.path}/_delta_log"
        commit = f"{log}/{version:020d}.json"
        while exists(commit):
            with opened(commit) as lines:
                for line in lines:
                    added = json.loads(line).get("add")
                    if added is not None:
                        sync_file(absolute(unquote(added["path"]), self.path))
            sync_file(commit)
            version += 1
            commit = f"{log}/{version:020d}.json"
        sync_directory(self.path)
        sync_directory(log)

    def _crowded(self) -> ViewUnavailable:
        return ViewUnavailable(
            self.place, f"other commits came first {LAKE_COMMIT_TRIES} times in a row; try again when they are done"
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Delta's errors and the disk's as one sentence of ours."""
        exceptions = _deltalake().exceptions
        import pyarrow as pa

        try:
            yield
        except (exceptions.DeltaError, OSError, pa.ArrowException) as error:
            if isinstance(error, MissingDependency):
                raise
            raise ViewUnavailable(self.place, str(error).partition("\n")[0]) from error


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
    """Add rows, which have the table's columns, in a commit with these properties."""
    from deltalake import write_deltalake

    write_deltalake(table, rows, mode="append", commit_properties=properties)


def overwrite(table: DeltaTable, rows: pa.RecordBatchReader, properties: CommitProperties) -> None:
    """Replace all rows, and the columns, in a commit with these properties. Rows are written as they come."""
    from deltalake import write_deltalake

    write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite", commit_properties=properties)


def commit_nothing(table: DeltaTable, properties: CommitProperties) -> None:
    """A commit with its numbers and no change of rows."""
    append(table, schema_of(table).empty_table(), properties)


def schema_of(table: DeltaTable) -> pa.Schema:
    """The table's columns as Arrow has them."""
    import pyarrow as pa

    return pa.schema(table.schema().to_arrow())
