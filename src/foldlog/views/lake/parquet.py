"""Lake tables as plain Parquet files: one for each partition and range, with both in its name.

    views/payments/
      current -> g-000001                                  read this directory
      g-000001/
        p00000-00000000000000000000-00000000000000000040.parquet      partition 0, offsets 0 to 39
        p00001-...
        _foldlog.json                                      the bookmark, with what the names do not tell
        _common_metadata                                   all columns, by Parquet's convention
        _p00000-00000000000000000040-...                   written, and not part of the table yet
        _foldlog_staged/                                   being written by executors: see `staged_files.py`

With `partition_by`, files are in directories as Hive names them, `country=IN/day=2026-11-18/p00000-...`, and have those
columns in their path only; what is not part of the table yet is below `_pending/` then, in the same directories.

The names are a bookmark: nothing below a partition's last one is missing, and a gap between two gave no rows. If
executors wrote a range, several files have its name, each with a number after it.

A range of several partitions is several files, but one commit. The files are written and fsynced under names with an
underscore, which readers of Parquet directories skip. Then `_foldlog.json` is replaced: that is the commit. Then they
get their names. After a crash the next process completes the renames, or removes files that no commit covers. So a
reader never sees a row that is not committed. In the instant between two renames it may see the files of one partition
and not yet those of another: to read all partitions at one point, compare with `_foldlog.json`.

Writers are serialized by a lock (`flock`); on a network file system, that has to work between its machines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from foldlog.errors import InvalidArgument, MalformedBytes, MissingDependency, StaleBookmark, ViewUnavailable
from foldlog.files.base import replace_file
from foldlog.files.paths import (
    discard_tree,
    is_directory,
    link_or_copy,
    make_parents,
    modified_ns,
    names_in,
    read_bytes,
    read_text,
    remove,
    rename,
    size_of,
    sync_directory,
    written,
)
from foldlog.files.posix import PosixFiles
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import PARTITION, TOPIC, Delta, Shape, Snapshot, View
from foldlog.views.generations import CURRENT, Generations, shadow_link
from foldlog.views.lake.compaction import Compaction, CompactionGoal, groups_of
from foldlog.views.lake.partitions import (
    check_partition_columns,
    check_partition_values,
    check_same_partitions,
    hive_directory,
    hive_partitioning,
    hive_values,
    split_rows,
)
from foldlog.views.lake.schema import LITTLE_AHEAD, LakeFiles, fitted, lake_schema, missing_fields
from foldlog.views.lake.staged_files import FileStage, new_place, sweep
from foldlog.views.lake.storage import LocalStorage
from foldlog.views.local_paths import local_path
from foldlog.views.staging import RangeName, Ranges, StagedDelta, ViewStage

if TYPE_CHECKING:
    import pyarrow as pa

_BOOKMARK: Final = "_foldlog.json"
_SCHEMA: Final = "_common_metadata"
_PENDING: Final = "_"
_PENDING_TREE: Final = "_pending"
_PARTITION_BY: Final = b"foldlog.partition_by"
"""In the metadata of `_common_metadata`: the columns by which the files are split, as JSON."""
_COUNTED_FILES_MAX: Final = 1000
"""Files whose rows are counted for a peek: each has to be opened."""

_NAME: Final = re.compile(r"p(?P<partition>[0-9]{5,})-(?P<start>[0-9]{20})-(?P<stop>[0-9]{20})(-[0-9]{5,})?\.parquet")


def file_name(partition: int, start: int, stop: int, number: int | None = None) -> str:
    """
    >>> file_name(3, 0, 40)
    'p00003-00000000000000000000-00000000000000000040.parquet'
    """
    counted = "" if number is None else f"-{number:05d}"
    return f"p{partition:05d}-{start:020d}-{stop:020d}{counted}.parquet"


class ParquetHistory(View):
    """A directory of Parquet files: every row, with partition, offset and time, tombstones included.

    Holds nothing open between calls.
    """

    kind = "lake"
    adds = True

    def __init__(self, path: str, link: str = CURRENT, partition_by: tuple[str, ...] = ()) -> None:
        self.root = local_path(path)
        self.partition_by = partition_by
        self._link = link
        self._generations = Generations(self.root, self.place)

    @property
    def place(self) -> str:
        return f"parquet:{self.root}" if self._link == CURRENT else f"parquet:{self.root}/{self._link}"

    def description(self) -> dict[str, object]:
        return {"kind": self.kind, "engine": "parquet", "path": self.root}

    def bookmark(self) -> Bookmark | None:
        with self._errors():
            directory = self._generations.find(self._link)
            return None if directory is None else self._read_bookmark(directory)

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        wanted = lake_schema(shape.columns, is_history=True)
        check_partition_columns(shape.columns, self.partition_by, self.place)

        def fill(directory: str) -> None:
            replace_file(PosixFiles(), f"{directory}/{_SCHEMA}", _schema_bytes(wanted, self.partition_by))
            replace_file(PosixFiles(), f"{directory}/{_BOOKMARK}", _bookmark_bytes(start))

        with self._errors():
            if self._generations.find(self._link) is None and self._generations.create(self._link, fill):
                return start
            with self._writing() as directory:
                if directory is None:
                    raise ViewUnavailable(self.place, "somebody dropped it at the same moment; run the fold again")
                stored = _read_schema(directory)
                check_same_partitions(_read_partition_by(directory), self.partition_by, self.place)
                missing = missing_fields(stored, wanted, self.place)
                if missing:
                    import pyarrow as pa

                    grown = _schema_bytes(pa.schema([*stored, *missing]), self.partition_by)
                    replace_file(PosixFiles(), f"{directory}/{_SCHEMA}", grown)
                bookmark = self._read_bookmark(directory)
                _sweep(directory, bookmark)
                return bookmark

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        with self._errors(), self._writing() as directory:
            directory = self._at(directory, expected)
            for name, rows in self._files_of(delta, _read_schema(directory)):
                path = _pending_path(directory, name)
                make_parents(path)
                _write_rows(path, rows)
            self._commit(directory, new)

    def stage(self, ranges: Ranges, expected: Bookmark) -> ViewStage | None:
        with self._errors():
            directory = self._generations.find(self._link)
            if directory is None:
                return None
            place = new_place(LocalStorage(), directory, RangeName.of(ranges, expected))
            by = self.partition_by
            return FileStage(
                place, _read_schema(directory), self.place, is_split=True, partition_by=by, keeps_partition=not by
            )

    def apply_staged(self, staged: StagedDelta, expected: Bookmark, new: Bookmark) -> None:
        with self._errors(), self._writing() as directory:
            directory = self._at(directory, expected)
            self._take(directory, staged)
            self._commit(directory, new)

    def _take(self, directory: str, staged: StagedDelta) -> None:
        """Give the files that executors have written the names of a commit that is under way."""
        stage = staged.stage
        if not isinstance(stage, FileStage) or not stage.directory.startswith(f"{directory}/"):
            raise ViewUnavailable(self.place, "it was replaced by another one meanwhile; the range is read again")
        for number, part in enumerate(staged.parts):
            if part.partition not in staged.ranges:
                raise InvalidArgument(f"{part.rows} rows for {self.place} are of partitions that were not read")
            name = file_name(part.partition, *staged.ranges[part.partition], number)
            path = _pending_path(directory, hive_directory(self.partition_by, part.values) + name)
            make_parents(path)
            rename(f"{stage.directory}/{part.name}", path)

    def _commit(self, directory: str, new: Bookmark) -> None:
        """Make the files with pending names part of the table, together with the bookmark."""
        # The names first: a bookmark that survives a power cut must find its files.
        _sync_pending(directory)
        sync_directory(directory)
        replace_file(PosixFiles(), f"{directory}/{_BOOKMARK}", _bookmark_bytes(new))
        _settle(directory, new)
        _sweep(directory, new)

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        with self._errors(), self._writing() as directory:
            replace_file(PosixFiles(), f"{self._at(directory, expected)}/{_BOOKMARK}", _bookmark_bytes(new))

    def shadow(self, label: str) -> View:
        return ParquetHistory(self.root, shadow_link(label), self.partition_by)

    def swap(self, shadow: View) -> None:
        """Replace the link `current`. A reader that has listed the old directory may have to list again."""
        if not isinstance(shadow, ParquetHistory) or shadow.root != self.root:
            raise InvalidArgument(f"{shadow.place} is no shadow of {self.place}")
        with self._errors():
            self._generations.promote(shadow._link)

    def drop_old(self) -> bool:
        with self._errors():
            return self._generations.drop_old()

    def compact(self, goal: CompactionGoal) -> Compaction:
        """Write joined files into a new directory, link the others there, and have `current` name it. A reader that has
        listed the old directory may have to list again.
        """
        label = shadow_link("compact")
        with self._errors():
            with self._writing() as found:
                if found is None:
                    raise ViewUnavailable(self.place, "it does not exist yet; run the fold")
                directory = found
                names = _table_files(directory)
                by = _read_partition_by(directory)
            groups = _small_groups(directory, names, goal.target_bytes)
            if not groups:
                return Compaction(files=len(names))
            self._generations.drop(label)  # of a process that died
            self._generations.create(label, lambda _: None)
            draft = str(self._generations.find(label))
            for group in groups:
                path = f"{draft}/{_joined_name(group, names)}"
                make_parents(path)
                _join(directory, group, path, _file_schema(_read_schema(directory), by))
            gone = {name for group in groups for name in group}
            self._generations.promote(label, lambda: self._fill(draft, directory, gone), keeps_old=False)
        return Compaction(len(gone), len(groups), len(gone), len(names) - len(gone) + len(groups))

    def _fill(self, draft: str, directory: str, gone: set[str]) -> None:
        """Complete the directory that takes the place of another one, under the writers' lock."""
        if self._generations.find(self._link) != directory:
            raise ViewUnavailable(self.place, "it was replaced by another one meanwhile; compact it again")
        bookmark = self._read_bookmark(directory)
        _settle(directory, bookmark)
        for name in _table_files(directory):
            if name not in gone:
                make_parents(f"{draft}/{name}")
                link_or_copy(f"{directory}/{name}", f"{draft}/{name}")
        for name in (_SCHEMA, _BOOKMARK):
            replace_file(PosixFiles(), f"{draft}/{name}", read_bytes(f"{directory}/{name}"))
        _sync_tree(draft)

    def drop(self) -> None:
        with self._errors():
            self._generations.drop(self._link)

    def scan(self) -> Snapshot:
        with self._errors(), self._writing() as directory:
            if directory is None:
                raise ViewUnavailable(self.place, "it does not exist yet; run the fold")
            paths = [f"{directory}/{name}" for name in _table_files(directory)]
            return Snapshot(self._read_bookmark(directory), self._batches(directory, paths))

    def newest_files(self, limit: int) -> LakeFiles:
        """The files of the newest commits, and the number of rows, for a peek at the last rows.

        Does not wait for writers: during a commit, only the files that already have their names are included.
        """
        import pyarrow.parquet as pq

        with self._errors():
            directory = self._generations.find(self._link)
            if directory is None:
                raise ViewUnavailable(self.place, "it does not exist yet; run the fold")
            paths = [f"{directory}/{name}" for name in _table_files(directory)]
            paths.sort(key=lambda path: (modified_ns(path), path), reverse=True)
            is_quick = len(paths) <= _COUNTED_FILES_MAX
            total = sum(pq.read_metadata(path).num_rows for path in paths) if is_quick else None
            newest = paths[:limit]
            constants = [hive_values(path.removeprefix(f"{directory}/")) for path in newest]
            return LakeFiles(_read_schema(directory), newest, total, constants)

    def _batches(self, directory: str, paths: list[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow.dataset as ds

        with self._errors():
            if paths:
                # With the current schema: columns that older files lack are null.
                schema = _read_schema(directory)
                split = hive_partitioning(schema, _read_partition_by(directory))
                found = ds.dataset(
                    paths, schema=schema, format="parquet", partitioning=split, partition_base_dir=directory
                )
                yield from found.to_batches(**LITTLE_AHEAD)

    def _files_of(self, delta: Delta, schema: pa.Schema) -> Iterator[tuple[str, pa.Table]]:
        """The files for a range: none for a partition without rows."""
        import pyarrow.compute as pc

        rows = delta.rows.drop_columns([TOPIC]) if TOPIC in delta.rows.column_names else delta.rows
        rows = fitted(rows, schema, self.place)
        check_partition_values(rows, self.partition_by, self.place, holds_empty=False)
        found = 0
        for partition, (start, stop) in sorted(delta.ranges.items()):
            part = rows.filter(pc.equal(rows[PARTITION], partition))
            found += part.num_rows
            for values, some in split_rows(part, self.partition_by, self.place):
                name = hive_directory(self.partition_by, values) + file_name(partition, start, stop)
                yield name, some.drop_columns(list(self.partition_by))
        if found != rows.num_rows:
            raise InvalidArgument(f"{rows.num_rows - found} rows for {self.place} are of partitions that were not read")

    @contextmanager
    def _writing(self) -> Iterator[str | None]:
        """Excludes other writers, and completes what an earlier one left half done. None if there is no view."""
        if self._generations.find(self._link) is None:
            yield None
            return
        with self._generations.writing():
            directory = self._generations.find(self._link)
            if directory is not None:
                _settle(directory, self._read_bookmark(directory))
            yield directory

    def _at(self, directory: str | None, expected: Bookmark) -> str:
        """The directory; StaleBookmark if its bookmark is not the expected one."""
        stored = None if directory is None else self._read_bookmark(directory)
        if directory is None or stored is None or stored.to_json() != expected.to_json():
            found = "nothing, since it does not exist" if stored is None else stored.to_json()
            raise StaleBookmark(self.place, found, expected.to_json())
        return directory

    def _read_bookmark(self, directory: str) -> Bookmark:
        try:
            return Bookmark.from_json(read_text(f"{directory}/{_BOOKMARK}"))
        except MalformedBytes as error:
            raise ViewUnavailable(self.place, f"{_BOOKMARK} cannot be read: {error}") from error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of Arrow and of the disk as ViewUnavailable, in one sentence."""
        try:
            import pyarrow as pa
            import pyarrow.parquet
        except ImportError:
            raise MissingDependency("a lake view in Parquet", "pyarrow", "views") from None
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise ViewUnavailable(self.place, str(error).partition("\n")[0]) from error


def _small_groups(directory: str, names: list[str], target_bytes: int) -> list[list[str]]:
    """Files to join: of one directory and one partition of the topic, neighbours by their offsets."""
    by_partition: dict[tuple[str, str], list[str]] = {}
    for name in names:
        where, _, base = name.rpartition("/")
        by_partition.setdefault((where, base.partition("-")[0]), []).append(name)
    return [
        [found[number] for number in group]
        for found in by_partition.values()
        for group in groups_of([size_of(f"{directory}/{name}") for name in found], target_bytes)
    ]


def _joined_name(group: list[str], taken: list[str]) -> str:
    """From the first offset to the last; with a number, if a file of the same range is not among those joined."""
    where = group[0][: group[0].rfind("/") + 1]
    found = [_NAME.fullmatch(name.removeprefix(where)) for name in group]
    if not found or None in found:
        raise ValueError(f"{group} are no files of a view")
    partition, start, stop = (int(str(found[0][part])) for part in ("partition", "start", "stop"))  # type: ignore[index]
    stop = max(stop, *(int(str(one["stop"])) for one in found if one is not None))
    number: int | None = None
    while where + file_name(partition, start, stop, number) in taken:
        number = 0 if number is None else number + 1
    return where + file_name(partition, start, stop, number)


def _join(directory: str, names: list[str], path: str, schema: pa.Schema) -> None:
    """Write the rows of some files into one, in their order. Durable on return, except for the name."""
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    rows = ds.dataset([f"{directory}/{name}" for name in names], schema=schema, format="parquet")
    with written(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in rows.to_batches(**LITTLE_AHEAD):
            writer.write_batch(batch)


def _table_files(directory: str) -> list[str]:
    """The table's files, by their paths below the directory, in order."""
    found = [name for name in names_in(directory) if _NAME.fullmatch(name)]
    for name in names_in(directory):
        if "=" in name and is_directory(f"{directory}/{name}"):
            found += [f"{name}/{one}" for one in _table_files(f"{directory}/{name}")]
    return sorted(found)


def _pending_path(directory: str, name: str) -> str:
    """Where a file of the table is before its commit: readers pass over names with an underscore."""
    return f"{directory}/{_PENDING_TREE}/{name}" if "/" in name else f"{directory}/{_PENDING}{name}"


def _pending_files(directory: str) -> Iterator[tuple[str, str]]:
    """The files with pending names, and the paths below the directory that they get."""
    for name in names_in(directory):
        if name.startswith(_PENDING) and _NAME.fullmatch(name.removeprefix(_PENDING)):
            yield f"{directory}/{name}", name.removeprefix(_PENDING)
    tree = f"{directory}/{_PENDING_TREE}"
    if is_directory(tree):
        yield from ((f"{tree}/{name}", name) for name in _table_files(tree))


def _sync_pending(directory: str) -> None:
    if is_directory(f"{directory}/{_PENDING_TREE}"):
        _sync_tree(f"{directory}/{_PENDING_TREE}")


def _sync_tree(directory: str) -> None:
    """Make the names in a directory, and in those below it that hold files of the table, durable."""
    for name in names_in(directory):
        if "=" in name and is_directory(f"{directory}/{name}"):
            _sync_tree(f"{directory}/{name}")
    sync_directory(directory)


def _settle(directory: str, bookmark: Bookmark) -> None:
    """Give the files of the last commit their names, and remove those that no commit covers.

    Called under the writers' lock. Every writer settles first, so files up to the bookmark are the last commit's.
    """
    moved: set[str] = set()
    for path, name in list(_pending_files(directory)):
        found = _NAME.fullmatch(name.rpartition("/")[2])
        if found is None:
            continue
        stop = bookmark.offset(int(found["partition"]))
        if stop is not None and int(found["stop"]) <= stop:
            # Not synced: if a power cut takes the new name, the old one is back, and this is done again.
            make_parents(f"{directory}/{name}")
            rename(path, f"{directory}/{name}")
            moved.add(name)
        else:
            remove(path)
    if is_directory(f"{directory}/{_PENDING_TREE}"):
        # From one directory to another: the new name has to last before the old one is gone for good.
        for where in sorted({name[:end] for name in moved for end, one in enumerate(name) if one == "/"}, reverse=True):
            sync_directory(f"{directory}/{where}")
        sync_directory(directory)
        discard_tree(f"{directory}/{_PENDING_TREE}")


def _sweep(directory: str, bookmark: Bookmark) -> None:
    """Remove what executors have written for ranges that were not committed. Called under the writers' lock."""
    sweep(
        LocalStorage(), directory, directory, bookmark, is_committed=lambda _: False
    )  # nothing is moved out but by a commit


def _write_rows(path: str, rows: pa.Table) -> None:
    """Durable on return, except for the name."""
    import pyarrow.parquet as pq

    with written(path) as file:
        pq.write_table(rows, file, compression="zstd")


def _bookmark_bytes(bookmark: Bookmark) -> bytes:
    return bookmark.to_json().encode()


def _schema_bytes(schema: pa.Schema, partition_by: tuple[str, ...]) -> bytes:
    """A Parquet file with these columns and no rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if partition_by:
        schema = schema.with_metadata({_PARTITION_BY: json.dumps(partition_by)})
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema).close()
    return bytes(sink.getvalue())


def _read_schema(directory: str) -> pa.Schema:
    import pyarrow.parquet as pq

    return pq.read_schema(f"{directory}/{_SCHEMA}").remove_metadata()


def _read_partition_by(directory: str) -> tuple[str, ...]:
    import pyarrow.parquet as pq

    return tuple(json.loads((pq.read_schema(f"{directory}/{_SCHEMA}").metadata or {}).get(_PARTITION_BY, b"[]")))


def _file_schema(schema: pa.Schema, partition_by: tuple[str, ...]) -> pa.Schema:
    """The columns of the files: those of the table that are not in their path."""
    import pyarrow as pa

    return pa.schema([one for one in schema if one.name not in partition_by])
