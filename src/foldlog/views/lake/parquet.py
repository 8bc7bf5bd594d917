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

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from foldlog.errors import InvalidArgument, MalformedBytes, MissingDependency, StaleBookmark, ViewUnavailable
from foldlog.files.base import replace_file
from foldlog.files.paths import (
    link_or_copy,
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

    def __init__(self, path: str, link: str = CURRENT) -> None:
        self.root = local_path(path)
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

        def fill(directory: str) -> None:
            replace_file(PosixFiles(), f"{directory}/{_SCHEMA}", _schema_bytes(wanted))
            replace_file(PosixFiles(), f"{directory}/{_BOOKMARK}", _bookmark_bytes(start))

        with self._errors():
            if self._generations.find(self._link) is None and self._generations.create(self._link, fill):
                return start
            with self._writing() as directory:
                if directory is None:
                    raise ViewUnavailable(self.place, "somebody dropped it at the same moment; run the fold again")
                stored = _read_schema(directory)
                missing = missing_fields(stored, wanted, self.place)
                if missing:
                    import pyarrow as pa

                    replace_file(PosixFiles(), f"{directory}/{_SCHEMA}", _schema_bytes(pa.schema([*stored, *missing])))
                bookmark = self._read_bookmark(directory)
                _sweep(directory, bookmark)
                return bookmark

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        with self._errors(), self._writing() as directory:
            directory = self._at(directory, expected)
            for name, rows in self._files_of(delta, _read_schema(directory)):
                _write_rows(f"{directory}/{_PENDING}{name}", rows)
            self._commit(directory, new)

    def stage(self, ranges: Ranges, expected: Bookmark) -> ViewStage | None:
        with self._errors():
            directory = self._generations.find(self._link)
            if directory is None:
                return None
            place = new_place(LocalStorage(), directory, RangeName.of(ranges, expected))
            return FileStage(place, _read_schema(directory), self.place, is_split=True)

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
            rename(f"{stage.directory}/{part.name}", f"{directory}/{_PENDING}{name}")

    def _commit(self, directory: str, new: Bookmark) -> None:
        """Make the files with pending names part of the table, together with the bookmark."""
        # The names first: a bookmark that survives a power cut must find its files.
        sync_directory(directory)
        replace_file(PosixFiles(), f"{directory}/{_BOOKMARK}", _bookmark_bytes(new))
        _settle(directory, new)
        _sweep(directory, new)

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        with self._errors(), self._writing() as directory:
            replace_file(PosixFiles(), f"{self._at(directory, expected)}/{_BOOKMARK}", _bookmark_bytes(new))

    def shadow(self, label: str) -> View:
        return ParquetHistory(self.root, shadow_link(label))

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
                names = sorted(name for name in names_in(directory) if _NAME.fullmatch(name))
            groups = _small_groups(directory, names, goal.target_bytes)
            if not groups:
                return Compaction(files=len(names))
            self._generations.drop(label)  # of a process that died
            self._generations.create(label, lambda _: None)
            draft = str(self._generations.find(label))
            for group in groups:
                _join(directory, group, f"{draft}/{_joined_name(group, names)}", _read_schema(directory))
            gone = {name for group in groups for name in group}
            self._generations.promote(label, lambda: self._fill(draft, directory, gone), keeps_old=False)
        return Compaction(len(gone), len(groups), len(gone), len(names) - len(gone) + len(groups))

    def _fill(self, draft: str, directory: str, gone: set[str]) -> None:
        """Complete the directory that takes the place of another one, under the writers' lock."""
        if self._generations.find(self._link) != directory:
            raise ViewUnavailable(self.place, "it was replaced by another one meanwhile; compact it again")
        bookmark = self._read_bookmark(directory)
        _settle(directory, bookmark)
        for name in names_in(directory):
            if _NAME.fullmatch(name) and name not in gone:
                link_or_copy(f"{directory}/{name}", f"{draft}/{name}")
        for name in (_SCHEMA, _BOOKMARK):
            replace_file(PosixFiles(), f"{draft}/{name}", read_bytes(f"{directory}/{name}"))
        sync_directory(draft)

    def drop(self) -> None:
        with self._errors():
            self._generations.drop(self._link)

    def scan(self) -> Snapshot:
        with self._errors(), self._writing() as directory:
            if directory is None:
                raise ViewUnavailable(self.place, "it does not exist yet; run the fold")
            names = sorted(name for name in names_in(directory) if _NAME.fullmatch(name))
            paths = [f"{directory}/{name}" for name in names]
            return Snapshot(self._read_bookmark(directory), self._batches(paths, _read_schema(directory)))

    def newest_files(self, limit: int) -> LakeFiles:
        """The files of the newest commits, and the number of rows, for a peek at the last rows.

        Does not wait for writers: during a commit, only the files that already have their names are included.
        """
        import pyarrow.parquet as pq

        with self._errors():
            directory = self._generations.find(self._link)
            if directory is None:
                raise ViewUnavailable(self.place, "it does not exist yet; run the fold")
            names = [name for name in names_in(directory) if _NAME.fullmatch(name)]
            paths = [f"{directory}/{name}" for name in names]
            paths.sort(key=lambda path: (modified_ns(path), path), reverse=True)
            is_quick = len(paths) <= _COUNTED_FILES_MAX
            total = sum(pq.read_metadata(path).num_rows for path in paths) if is_quick else None
            return LakeFiles(_read_schema(directory), paths[:limit], total)

    def _batches(self, paths: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        import pyarrow.dataset as ds

        with self._errors():
            if paths:
                # With the current schema: columns that older files lack are null.
                yield from ds.dataset(paths, schema=schema, format="parquet").to_batches(**LITTLE_AHEAD)

    def _files_of(self, delta: Delta, schema: pa.Schema) -> Iterator[tuple[str, pa.Table]]:
        """The files for a range: none for a partition without rows."""
        import pyarrow.compute as pc

        rows = delta.rows.drop_columns([TOPIC]) if TOPIC in delta.rows.column_names else delta.rows
        rows = fitted(rows, schema, self.place)
        found = 0
        for partition, (start, stop) in sorted(delta.ranges.items()):
            part = rows.filter(pc.equal(rows[PARTITION], partition))
            found += part.num_rows
            if part.num_rows:
                yield file_name(partition, start, stop), part
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
    """Files to join: of the same partition, neighbours by their offsets."""
    by_partition: dict[str, list[str]] = {}
    for name in names:
        by_partition.setdefault(name.partition("-")[0], []).append(name)
    return [
        [found[number] for number in group]
        for found in by_partition.values()
        for group in groups_of([size_of(f"{directory}/{name}") for name in found], target_bytes)
    ]


def _joined_name(group: list[str], taken: list[str]) -> str:
    """From the first offset to the last; with a number, if a file of the same range is not among those joined."""
    first, last = (_NAME.fullmatch(name) for name in (group[0], group[-1]))
    if first is None or last is None:
        raise ValueError(f"{group} are no files of a view")
    start, stop = int(first["start"]), max(int(str(_NAME.fullmatch(name)["stop"])) for name in group)  # type: ignore[index]
    partition = int(first["partition"])
    number: int | None = None
    while file_name(partition, start, stop, number) in taken:
        number = 0 if number is None else number + 1
    return file_name(partition, start, stop, number)


def _join(directory: str, names: list[str], path: str, schema: pa.Schema) -> None:
    """Write the rows of some files into one, in their order. Durable on return, except for the name."""
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    rows = ds.dataset([f"{directory}/{name}" for name in names], schema=schema, format="parquet")
    with written(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in rows.to_batches(**LITTLE_AHEAD):
            writer.write_batch(batch)


def _settle(directory: str, bookmark: Bookmark) -> None:
    """Give the files of the last commit their names, and remove those that no commit covers.

    Called under the writers' lock. Every writer settles first, so files up to the bookmark are the last commit's.
    """
    for name in names_in(directory):
        found = _NAME.fullmatch(name.removeprefix(_PENDING))
        if not name.startswith(_PENDING) or found is None:
            continue
        path = f"{directory}/{name}"
        stop = bookmark.offset(int(found["partition"]))
        if stop is not None and int(found["stop"]) <= stop:
            # Not synced: if a power cut takes the new name, the old one is back, and this is done again.
            rename(path, f"{directory}/{found[0]}")
        else:
            remove(path)


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


def _schema_bytes(schema: pa.Schema) -> bytes:
    """A Parquet file with these columns and no rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema).close()
    return bytes(sink.getvalue())


def _read_schema(directory: str) -> pa.Schema:
    import pyarrow.parquet as pq

    return pq.read_schema(f"{directory}/{_SCHEMA}")
