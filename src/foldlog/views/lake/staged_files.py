"""Parquet files of a lake table that executors write, and what becomes of those that are not committed.

    views/payments/_foldlog_staged/
      e0-p00000-<start>-<stop>-<token>/       the place of a range (`RangeName`), made by the driver
        00003-<attempt>.parquet               what a task has written

A commit moves the reported files out, into the table's own directory, and then names them in the table. The empty
directory stays until that is done: if the process dies in between, it tells the next one which files to look for.
Executors never make the directory. So one that cannot see the driver's file system notices, and one that wakes up after
its range was swept writes nothing. Readers and maintenance jobs of all formats skip names with an underscore.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from foldlog.files.paths import (
    discard_tree,
    is_directory,
    is_there,
    make_parents,
    names_in,
    remove,
    rename,
    size_of,
    sync_directory,
    sync_parent,
    written,
)
from foldlog.limits import LAKE_ROW_GROUP_BYTES, LAKE_ROW_GROUP_ROWS
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import PARTITION
from foldlog.views.lake.schema import fitted
from foldlog.views.staging import RangeName, StagedDelta, StagedPart, StageWriter, UnreachableStage, ViewStage

if TYPE_CHECKING:
    import pyarrow as pa

STAGED: Final = "_foldlog_staged"
"""The directory with the places of all ranges."""

_TEXT_MAX: Final = 64
"""A longer text is no bound of a file: a bound may be cut, and then it is another text."""


@dataclass(frozen=True)
class FileStage(ViewStage):
    """A directory for the files of one range."""

    directory: str
    columns: pa.Schema = field(repr=False)
    """The table's columns."""
    place: str
    """The view's, for messages."""
    file_schema: pa.Schema | None = field(default=None, repr=False)
    """The columns as the files have them, if that differs: with field ids, for example."""
    is_split: bool = False
    """Whether a file has rows of one partition of the topic only."""

    @property
    def name(self) -> str:
        return self.directory.rpartition("/")[2]

    def open(self, label: str) -> StageWriter:
        if not is_directory(self.directory):
            raise UnreachableStage(f"the directory {self.directory} is not there, or not on a shared file system")
        return FileWriter(self, label)

    def is_there(self) -> bool:
        return is_directory(self.directory)

    def arranged(self, rows: pa.Table) -> pa.Table:
        """The rows with the columns of the table."""
        content = fitted(rows, self.columns, self.place)
        return content if self.file_schema is None else content.cast(self.file_schema)


class FileWriter(StageWriter):
    """Writes a task's rows into one file, or one for each partition of the topic."""

    def __init__(self, stage: FileStage, label: str) -> None:
        self._stage = stage
        self._label = label
        self._files: dict[int, _OpenFile] = {}

    def add(self, rows: pa.Table) -> None:
        for partition, part in self._split(rows):
            if partition not in self._files:
                name = f"{self._label}-{partition}.parquet" if self._stage.is_split else f"{self._label}.parquet"
                self._files[partition] = _OpenFile(self._stage.directory, name, partition)
            self._files[partition].add(self._stage.arranged(part))

    def close(self) -> list[StagedPart]:
        return [file.close() for file in self._files.values()]

    def abandon(self) -> None:
        for file in self._files.values():
            file.abandon()

    def _split(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        import pyarrow.compute as pc

        if not self._stage.is_split:
            yield -1, rows
            return
        partitions = rows[PARTITION].unique().to_pylist()
        for partition in partitions:
            yield partition, rows if len(partitions) == 1 else rows.filter(pc.equal(rows[PARTITION], partition))


class _OpenFile:
    """A Parquet file that is being written: holds the rows of one row group."""

    def __init__(self, directory: str, name: str, partition: int) -> None:
        self._path = f"{directory}/{name}"
        self._name = name
        self._partition = partition
        self._rows: list[pa.Table] = []
        self._held = 0
        self._held_bytes = 0
        self._count = 0
        self._context: Any = None
        self._writer: Any = None
        self._file: Any = None

    def add(self, rows: pa.Table) -> None:
        self._rows.append(rows)
        self._held += rows.num_rows
        self._held_bytes += rows.nbytes
        if self._held >= LAKE_ROW_GROUP_ROWS or self._held_bytes >= LAKE_ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> StagedPart:
        """Durable on return, except for the name."""
        self._flush()
        self._writer.close()
        self._context.__exit__(None, None, None)
        statistics = bounds_of(self._path)
        return StagedPart(self._name, self._count, self._partition, size_of(self._path), statistics)

    def abandon(self) -> None:
        """Remove what was written, after an error."""
        if self._file is not None:
            self._file.close()
        if is_there(self._path):
            remove(self._path)

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._held:
            return
        rows = pa.concat_tables(self._rows)
        if self._writer is None:
            self._context = written(self._path)
            try:
                self._file = self._context.__enter__()
            except OSError as error:
                raise UnreachableStage(f"{self._path} cannot be written there: {error.strerror}") from error
            self._writer = pq.ParquetWriter(self._file, rows.schema, compression="zstd")
        self._writer.write_table(rows, row_group_size=LAKE_ROW_GROUP_ROWS)
        self._count += rows.num_rows
        self._rows, self._held, self._held_bytes = [], 0, 0


def new_place(root: str, name: RangeName) -> str:
    """Make the directory for a range. Durable, as files in a directory that is lost would never be found."""
    directory = f"{root}/{STAGED}/{name}"
    make_parents(f"{directory}/")
    sync_parent(directory)
    sync_directory(root)
    return directory


def adopt(staged: StagedDelta, data: str) -> list[tuple[str, StagedPart]]:
    """Move the files that were reported into the directory `data`, durably; their new names there. May be repeated.

    FileNotFoundError if one is missing: the range was swept, or the executor wrote to another file system.
    """
    stage = _file_stage(staged)
    found: list[tuple[str, StagedPart]] = []
    for part in staged.parts:
        name = f"{stage.name}-{part.name}"
        if not is_there(f"{data}/{name}"):
            rename(f"{stage.directory}/{part.name}", f"{data}/{name}")
        if size_of(f"{data}/{name}") != part.size_bytes:
            raise FileNotFoundError(f"{data}/{name} is not the file that was written")
        found.append((name, part))
    sync_directory(data)
    return found


def finish(staged: StagedDelta) -> None:
    """After the commit: remove the place, with what repeated tasks have left there."""
    discard_tree(_file_stage(staged).directory)


def sweep(root: str, data: str, stored: Bookmark, is_committed: Callable[[str], bool]) -> None:
    """Remove the places that the stored bookmark is past, and files that were moved out of them and not committed.

    `is_committed` tells whether any commit of the table names a file whose name begins so.
    """
    if not is_directory(f"{root}/{STAGED}"):
        return
    for text in names_in(f"{root}/{STAGED}"):
        name = RangeName.parse(text)
        if name is None or not name.is_past(stored):
            continue
        moved = [one for one in names_in(data) if one.startswith(f"{text}-")] if is_directory(data) else []
        if moved and not is_committed(text):
            for one in moved:
                remove(f"{data}/{one}")
        # Last: until then the next sweep finds the files again.
        discard_tree(f"{root}/{STAGED}/{text}")


def _file_stage(staged: StagedDelta) -> FileStage:
    if not isinstance(staged.stage, FileStage):
        raise TypeError(f"{type(staged.stage).__name__} has no files")
    return staged.stage


# --- bounds of a file's columns ---------------------------------------------------------------------------------------


def bounds_of(path: str) -> str:
    """The number of rows of a Parquet file, and bounds of its columns, as Delta writes them into its log."""
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(path)
    kinds = metadata.schema.to_arrow_schema()
    low: dict[str, object] = {}
    high: dict[str, object] = {}
    nulls: dict[str, int] = {}
    for number in range(metadata.num_columns):
        column = metadata.schema.column(number)
        if column.path != column.name or kinds.get_field_index(column.name) < 0:
            continue  # inside of a struct, a list or a map
        groups = [metadata.row_group(group).column(number).statistics for group in range(metadata.num_row_groups)]
        if any(one is None or not one.has_null_count for one in groups):
            continue
        nulls[column.name] = sum(one.null_count for one in groups)
        bounded = [one for one in groups if one.has_min_max]
        if not bounded or len(bounded) < sum(one.num_values > 0 for one in groups):
            continue
        ends = _bound(min(one.min for one in bounded), False), _bound(max(one.max for one in bounded), True)
        if None not in ends:
            low[column.name], high[column.name] = ends
    found = {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    return json.dumps(found, separators=(",", ":"))


def _bound(value: Any, is_high: bool) -> object:
    """A value as Delta's log has it; None for a type whose bounds are not worth their risk, such as float with NaN."""
    if isinstance(value, str):
        return value if len(value) <= _TEXT_MAX else None
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, datetime):
        # Delta has milliseconds there: the upper bound is rounded up.
        up = timedelta(milliseconds=1) if is_high and value.microsecond % 1000 else timedelta()
        try:
            whole = value.replace(microsecond=value.microsecond // 1000 * 1000) + up
        except OverflowError:
            return None
        text = whole.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return f"{text}Z" if value.tzinfo is not None else None
    return value.isoformat() if isinstance(value, date) else None
