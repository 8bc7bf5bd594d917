"""Parquet files of a lake table that executors write, and what becomes of those that are not committed.

    views/payments/_foldlog_staged/
      e0-p00000-<start>-<stop>-<token>/       the place of a range (`RangeName`), made by the driver
        00003-<attempt>.parquet               what a task has written

A commit moves the reported files out, into the table's own directory, and then names them in the table. The empty
directory stays until that is done: if the process dies in between, it tells the next one which files to look for.
Executors never make the directory. So one that cannot see the driver's file system notices, and one that wakes up after
its range was swept writes nothing. Readers and maintenance jobs of all formats skip names with an underscore.

In an object store nothing can be moved. There the place is an object, a mere mark, and tasks write their files where
they stay, below the place's name in the table's directory; a task looks for the mark before it writes, and again after
that. The table does not name them before the commit, so nobody reads them, and the mark says which ones to look for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from foldlog.limits import LAKE_ROW_GROUP_BYTES, LAKE_ROW_GROUP_ROWS
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import PARTITION
from foldlog.views.lake.partitions import PartitionValues, has_unheld_text, split_rows
from foldlog.views.lake.schema import fitted
from foldlog.views.lake.storage import LakeStorage, LocalStorage, OpenedFile
from foldlog.views.staging import (
    RangeName,
    StagedDelta,
    StagedPart,
    StageWriter,
    UnheldRows,
    UnreachableStage,
    ViewStage,
)

if TYPE_CHECKING:
    import pyarrow as pa

STAGED: Final = "_foldlog_staged"
"""The directory with the places of all ranges."""

_TEXT_MAX: Final = 64
"""A longer text is no bound of a file: a bound may be cut, and then it is another text."""


@dataclass(frozen=True)
class FileStage(ViewStage):
    """A place for the files of one range."""

    directory: str
    columns: pa.Schema = field(repr=False)
    """The table's columns."""
    place: str
    """The view's, for messages."""
    file_schema: pa.Schema | None = field(default=None, repr=False)
    """The columns as the files have them, if that differs: with field ids, for example."""
    is_split: bool = False
    """Whether a file has rows of one partition of the topic only."""
    storage: LakeStorage = field(default_factory=LocalStorage, repr=False)
    data: str = ""
    """Where the table's own files are, if files cannot be moved there."""
    partition_by: tuple[str, ...] = ()
    """A file has one value in each of these columns."""
    keeps_partition: bool = True
    """Whether the files have these columns, too."""

    @property
    def name(self) -> str:
        return self.directory.rpartition("/")[2]

    def open(self, label: str) -> StageWriter:
        try:
            is_there = self.storage.has_place(self.directory)
        except OSError as error:
            raise UnreachableStage(f"{self.directory} cannot be reached there: {first_line(error)}") from error
        if not is_there:
            where = "not on a shared file system" if self.storage.moves else "not for this process to see"
            raise UnreachableStage(f"{self.directory} is not there, or {where}")
        return FileWriter(self, label)

    def is_there(self) -> bool:
        return self.storage.has_place(self.directory)

    def path_of(self, name: str) -> str:
        """Where a task writes the file of this name."""
        return f"{self.directory}/{name}" if self.storage.moves else f"{self.data}/{self.name}/{name}"

    def arranged(self, rows: pa.Table) -> pa.Table:
        """The rows with the columns of the table."""
        content = fitted(rows, self.columns, self.place)
        return content if self.file_schema is None else content.cast(self.file_schema)


class FileWriter(StageWriter):
    """Writes a task's rows into one file, or one for each partition. Holds one row group, of whichever file."""

    def __init__(self, stage: FileStage, label: str) -> None:
        self._stage = stage
        self._label = label
        self._by = (*((PARTITION,) if stage.is_split else ()), *stage.partition_by)
        self._files: dict[PartitionValues, _OpenFile] = {}

    def add(self, rows: pa.Table) -> None:
        for values, part in split_rows(rows, self._by, self._stage.place):
            if not self._stage.keeps_partition and has_unheld_text(values):
                raise UnheldRows("a partition column has a text that would be read as null")  # the driver says which
            if values not in self._files:
                number = f"-{len(self._files)}" if self._by else ""
                self._files[values] = _OpenFile(self._stage, f"{self._label}{number}.parquet", values)
            content = self._stage.arranged(part)
            if not self._stage.keeps_partition:
                content = content.drop_columns(list(self._stage.partition_by))
            self._files[values].add(content)
        while len(self._files) > 1 and sum(one.held_bytes for one in self._files.values()) > LAKE_ROW_GROUP_BYTES:
            max(self._files.values(), key=lambda one: one.held_bytes).flush()

    def close(self) -> list[StagedPart]:
        parts = [file.close() for file in self._files.values()]
        if not self._stage.storage.moves and not self._stage.is_there():
            # It was swept while this task wrote, and nobody would look for these files again.
            self.abandon()
            raise UnheldRows(f"{self._stage.directory} was removed meanwhile")
        return parts

    def abandon(self) -> None:
        for file in self._files.values():
            file.abandon()


class _OpenFile:
    """A Parquet file that is being written: holds the rows of one row group."""

    def __init__(self, stage: FileStage, name: str, values: PartitionValues) -> None:
        self._storage = stage.storage
        self._path = stage.path_of(name)
        self._name = name
        self._partition = int(values[0] or 0) if stage.is_split else -1
        self._values = values[1:] if stage.is_split else values
        self._rows: list[pa.Table] = []
        self._held = 0
        self.held_bytes = 0
        self._count = 0
        self._found: list[Any] = []
        self._writer: Any = None
        self._file: OpenedFile | None = None

    def add(self, rows: pa.Table) -> None:
        self._rows.append(rows)
        self._held += rows.num_rows
        self.held_bytes += rows.nbytes
        if self._held >= LAKE_ROW_GROUP_ROWS or self.held_bytes >= LAKE_ROW_GROUP_BYTES:
            self.flush()

    def close(self) -> StagedPart:
        """Durable on return, except for the name."""
        self.flush()
        self._writer.close()
        if self._file is not None:
            self._file.finish()
        statistics = bounds_of(self._found[0])
        size = self._storage.size(self._path)
        return StagedPart(self._name, self._count, self._partition, size, statistics, self._values)

    def abandon(self) -> None:
        """Remove what was written, after an error."""
        if self._file is not None:
            self._file.discard()
        self._storage.remove(self._path)

    def flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._held:
            return
        rows = pa.concat_tables(self._rows)
        if self._writer is None:
            try:
                self._file = self._storage.writer(self._path)
            except OSError as error:
                raise UnreachableStage(f"{self._path} cannot be written there: {first_line(error)}") from error
            self._writer = pq.ParquetWriter(
                self._file.file, rows.schema, compression="zstd", metadata_collector=self._found
            )
        self._writer.write_table(rows, row_group_size=LAKE_ROW_GROUP_ROWS)
        self._count += rows.num_rows
        self._rows, self._held, self.held_bytes = [], 0, 0


def first_line(error: BaseException) -> str:
    """What an error says, as far as it is for people."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).strip().partition("\n")[0] or type(error).__name__


def new_place(storage: LakeStorage, root: str, name: RangeName) -> str:
    """Make the place of a range. Durable, as files of a place that is lost would never be found."""
    directory = f"{root}/{STAGED}/{name}"
    storage.make_place(root, directory)
    return directory


def adopt(staged: StagedDelta, data: str) -> list[tuple[str, StagedPart]]:
    """Have the files that were reported in the directory `data`, durably; their names there. May be repeated.

    FileNotFoundError if one is missing: the range was swept, or the executor wrote to another file system.
    """
    stage = _file_stage(staged)
    storage = stage.storage
    found: list[tuple[str, StagedPart]] = []
    for part in staged.parts:
        name = f"{stage.name}{'-' if storage.moves else '/'}{part.name}"
        if isinstance(storage, LocalStorage) and not storage.has(f"{data}/{name}"):
            storage.move(f"{stage.directory}/{part.name}", f"{data}/{name}")
        if storage.size(f"{data}/{name}") != part.size_bytes:
            raise FileNotFoundError(f"{data}/{name} is not the file that was written")
        found.append((name, part))
    storage.sync(data)
    return found


def finish(staged: StagedDelta) -> None:
    """After the commit: remove the place, with what repeated tasks have left there."""
    stage = _file_stage(staged)
    if not stage.storage.moves:
        committed = {part.name for part in staged.parts}
        for name in stage.storage.names(f"{stage.data}/{stage.name}"):
            if name not in committed:
                stage.storage.remove(stage.path_of(name))
    stage.storage.remove_place(stage.directory)


def sweep(
    storage: LakeStorage,
    root: str,
    data: str,
    stored: Bookmark,
    is_committed: Callable[[str], bool],
    *,
    forsaken_ms: int | None = None,
) -> None:
    """Remove the places that the stored bookmark is past, and files that were moved out of them and not committed; and
    places of no range, a swap's or a compaction's, that were made before `forsaken_ms`.

    `is_committed` tells whether any commit of the table names a file whose name begins so.
    """
    for text in storage.names(f"{root}/{STAGED}"):
        name = RangeName.parse(text)
        if name is None:
            continue
        is_forsaken = (
            forsaken_ms is not None
            and name.is_of_no_range
            and storage.modified_ms(f"{root}/{STAGED}/{text}") < forsaken_ms
        )
        if not is_forsaken and not name.is_past(stored):
            continue
        moved = [one for one in storage.names(data) if one.startswith(f"{text}-")] if storage.moves else []
        if moved and not is_committed(text):
            for one in moved:
                storage.remove(f"{data}/{one}")
        if not storage.moves and storage.names(f"{data}/{text}") and not is_committed(text):
            storage.remove_tree(f"{data}/{text}")
        # Last: until then the next sweep finds the files again.
        storage.remove_place(f"{root}/{STAGED}/{text}")


def _file_stage(staged: StagedDelta) -> FileStage:
    if not isinstance(staged.stage, FileStage):
        raise TypeError(f"{type(staged.stage).__name__} has no files")
    return staged.stage


# --- bounds of a file's columns ---------------------------------------------------------------------------------------


def bounds_of(metadata: Any) -> str:
    """The number of rows of a Parquet file, and bounds of its columns, as Delta writes them into its log."""
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
