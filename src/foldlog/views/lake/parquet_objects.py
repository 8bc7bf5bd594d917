"""Lake tables as Parquet files in an object store, with one object that names them: the manifest.

    s3://shop/payments/
      _foldlog.json                              the manifest: bookmark, columns, and the files of the table
      g-<token>/                                 the files of one generation: a rebuild makes another
        e0-p00000-<start>-<stop>-<token>/        those of one range
          00003-<attempt>.parquet
        _foldlog_staged/                         marks of ranges that are not committed yet: see `staged_files.py`
      _foldlog_rebuild.json                      the manifest of a rebuild under way

An object store has no rename, and a listing shows what was not committed, too. So readers take the files from the
manifest and not from a listing. The manifest is put last, on the condition that nobody has replaced it since it was
read (its tag): that one put is the commit, of the files together with the bookmark. Files that it does not name are not
part of the table, whoever wrote them; the mark of their range tells the next run where they are.

A rebuild fills a generation of its own, and the swap puts its manifest in the place of the old one: nothing is copied.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from foldlog.clock import SystemClock
from foldlog.errors import InvalidArgument, MalformedBytes, MissingDependency, StaleBookmark, ViewUnavailable
from foldlog.limits import LAKE_COMMIT_TRIES
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import TOPIC, Delta, Shape, Snapshot, View
from foldlog.views.generations import shadow_link
from foldlog.views.lake.compaction import Compaction, CompactionGoal, groups_of
from foldlog.views.lake.partitions import (
    PartitionValues,
    check_partition_columns,
    check_partition_values,
    check_same_partitions,
)
from foldlog.views.lake.schema import LITTLE_AHEAD, lake_schema, missing_fields
from foldlog.views.lake.staged_files import STAGED, FileStage, adopt, finish, first_line, new_place
from foldlog.views.lake.storage import ObjectStorage, StorageOptions
from foldlog.views.staging import RangeName, Ranges, StagedDelta, UnheldRows, UnreachableStage, ViewStage

if TYPE_CHECKING:
    import pyarrow as pa

_FORM: Final = 1
_FORSAKEN_MS: Final = 24 * 3_600_000
"""What a compaction has begun and not ended in this time, it never will."""


class NamedFile(NamedTuple):
    """A file of the table: its path below the table's, and what its rows have in the partition columns."""

    path: str
    rows: int
    size_bytes: int
    values: PartitionValues = ()


class LeftFile(NamedTuple):
    """A file that a compaction has joined with others, and since when nobody needs it."""

    path: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class ParquetManifest:
    """A state of the table. `data` is the directory of its generation, `old` that of the one before the last swap."""

    bookmark: Bookmark
    columns: pa.Schema
    data: str
    partition_by: tuple[str, ...] = ()
    files: tuple[NamedFile, ...] = ()
    left: tuple[LeftFile, ...] = ()
    old: str | None = None

    def to_bytes(self) -> bytes:
        """As JSON: `files` is for readers, with the path of each below the table's URL."""
        names = self.partition_by
        files = []
        for one in self.files:
            values = dict(zip(names, one.values, strict=True))
            files.append({"path": one.path, "rows": one.rows, "bytes": one.size_bytes, "values": values})
        fields = {
            "foldlog_parquet": _FORM,
            "bookmark": json.loads(self.bookmark.to_json()),
            "partition_by": names,
            "files": files,
            "left": self.left,
            "data": self.data,
            "old": self.old,
            "arrow_schema": base64.b64encode(self.columns.serialize().to_pybytes()).decode(),
        }
        return json.dumps(fields, indent=1).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> ParquetManifest:
        """The inverse of `to_bytes`; ValueError if it is something else."""
        import pyarrow as pa

        try:
            fields = json.loads(content)
            if fields["foldlog_parquet"] != _FORM:
                raise ValueError(f"it has the form {fields['foldlog_parquet']!r}; a newer version of foldlog wrote it")
            names = tuple(fields["partition_by"])
            files = (
                NamedFile(one["path"], one["rows"], one["bytes"], tuple(one["values"][name] for name in names))
                for one in fields["files"]
            )
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(fields["arrow_schema"])))
            left = tuple(LeftFile(*one) for one in fields["left"])
            bookmark = Bookmark.from_json(json.dumps(fields["bookmark"]))
            return cls(bookmark, schema, fields["data"], names, tuple(files), left, fields["old"])
        except (KeyError, TypeError, AttributeError, MalformedBytes, pa.ArrowException) as error:
            raise ValueError(f"it is no manifest of a view ({error!r})") from error


class ParquetObjects(View):
    """Parquet files in an object store: every row, with partition, offset and time, tombstones included.

    Holds nothing open between calls.
    """

    kind = "lake"
    adds = True

    def __init__(
        self, url: str, options: StorageOptions, partition_by: tuple[str, ...] = (), label: str | None = None
    ) -> None:
        self.url = url
        self.partition_by = partition_by
        self._label = label
        self._options = options
        self._storage = ObjectStorage(url, options)

    @property
    def place(self) -> str:
        return f"parquet:{self.url}" if self._label is None else f"parquet:{self.url}/{self._label}"

    def bookmark(self) -> Bookmark | None:
        with self._errors():
            found = self._find()
            return None if found is None else found[0].bookmark

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        wanted = lake_schema(shape.columns, is_history=True)
        check_partition_columns(shape.columns, self.partition_by, self.place)
        with self._errors():
            if self._find() is None and self._create(wanted, start):
                return start

            def grown(stored: ParquetManifest) -> ParquetManifest:
                import pyarrow as pa

                check_same_partitions(stored.partition_by, self.partition_by, self.place)
                missing = missing_fields(stored.columns, wanted, self.place)
                return replace(stored, columns=pa.schema([*stored.columns, *missing])) if missing else stored

            stored = self._replaced(grown)
            self._sweep(stored)
            return stored.bookmark

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        rows = delta.rows.drop_columns([TOPIC]) if TOPIC in delta.rows.column_names else delta.rows
        check_partition_values(rows, self.partition_by, self.place, holds_empty=True)
        with self._errors():
            if not rows.num_rows:
                self.move(expected, new)
                return
            self._at(expected)
            # Its place is marked like an executor's: of a process that dies here, the next one finds the file.
            stage = self.stage(delta.ranges, expected)
            if not isinstance(stage, FileStage):
                raise self._gone()
            try:
                writer = stage.open("driver")
                writer.add(rows)
                staged = StagedDelta(stage, tuple(writer.close()), delta.ranges)
            except (UnheldRows, UnreachableStage) as error:
                raise ViewUnavailable(self.place, self._options.redacted(str(error))) from error
            self.apply_staged(staged, expected, new)

    def stage(self, ranges: Ranges, expected: Bookmark) -> ViewStage | None:
        with self._errors():
            found = self._find()
            return None if found is None else self._stage(found[0], RangeName.of(ranges, expected))

    def apply_staged(self, staged: StagedDelta, expected: Bookmark, new: Bookmark) -> None:
        with self._errors():
            stored = self._at(expected)
            data = self._data(stored)
            stage = staged.stage
            if not isinstance(stage, FileStage) or stage.data != data:
                raise ViewUnavailable(self.place, "it was replaced by another one meanwhile; the range is read again")
            # A file that was swept must fail the commit before it is made.
            files = tuple(
                NamedFile(f"{stored.data}/{name}", part.rows, part.size_bytes, part.values)
                for name, part in adopt(staged, data)
            )

            def committed(stored: ParquetManifest) -> ParquetManifest:
                if set(files) <= set(stored.files) and files:
                    return stored  # the store has answered a put that succeeded as one that did not
                self._check(stored, expected)
                return replace(stored, bookmark=new, files=(*stored.files, *files))

            after = self._replaced(committed)
            finish(staged)
            self._sweep(after)

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        def moved(stored: ParquetManifest) -> ParquetManifest:
            self._check(stored, expected)
            return replace(stored, bookmark=new)

        with self._errors():
            self._at(expected)
            self._sweep(self._replaced(moved))

    def shadow(self, label: str) -> View:
        shadow_link(label)  # refuses what is no label
        return ParquetObjects(self.url, self._options, self.partition_by, label)

    def swap(self, shadow: View) -> None:
        """One put: the shadow's manifest in the place of this one. The old generation stays until `drop_old`."""
        if not isinstance(shadow, ParquetObjects) or shadow.url != self.url or shadow._label is None:
            raise InvalidArgument(f"{shadow.place} is no shadow of {self.place}")
        with self._errors():
            found = shadow._find()
            if found is None:
                raise ViewUnavailable(shadow.place, "there is nothing to put in the place of the old one")
            fresh = found[0]
            older: list[str] = []

            def swapped(stored: ParquetManifest) -> ParquetManifest:
                older[:] = [] if stored.old is None else [stored.old]
                return fresh if stored.data == fresh.data else replace(fresh, old=stored.data)

            self._replaced(swapped)
            self._storage.remove(shadow._path)
            for data in older:
                self._storage.remove_tree(f"{self.url}/{data}")

    def drop_old(self) -> bool:
        with self._errors():
            found = self._find()
            if found is None or found[0].old is None:
                return False
            self._storage.remove_tree(f"{self.url}/{found[0].old}")
            self._replaced(lambda stored: replace(stored, old=None))
            return True

    def drop(self) -> None:
        with self._errors():
            found = self._find()
            if found is not None:
                # The manifest last: of a process that dies before, another drop finds the rest.
                for data in (found[0].data, found[0].old):
                    if data is not None:
                        self._storage.remove_tree(f"{self.url}/{data}")
            self._storage.remove(self._path)

    def compact(self, goal: CompactionGoal) -> Compaction:
        """Join small files of the same partition values. What was joined stays for `keep_ms`, for readers that have an
        older manifest.
        """
        with self._errors():
            stored = self._existing()
            self._sweep(stored, SystemClock().now_ms() - _FORSAKEN_MS)
            joined = written = 0
            for group in _small_groups(stored.files, goal.target_bytes):
                count = self._join(stored, group)
                joined, written = joined + (len(group) if count else 0), written + count
            since_ms = SystemClock().now_ms() - goal.keep_ms
            stored = self._existing()
            gone = {one.path for one in stored.left if one.since_ms <= since_ms}
            for path in gone:
                self._storage.remove(f"{self.url}/{path}")
            if gone:
                stored = self._replaced(
                    lambda now: replace(now, left=tuple(one for one in now.left if one.path not in gone))
                )
            return Compaction(joined, written, len(gone), len(stored.files))

    def _join(self, stored: ParquetManifest, group: list[NamedFile]) -> int:
        """Write the rows of some files into one, and name that in their place; how many were written: none if another
        commit has replaced one of them meanwhile.
        """
        # Past with the next epoch: a runner that goes on meanwhile does not remove it.
        stage = self._stage(stored, RangeName.of_swap(stored.bookmark.epoch))
        writer = stage.open("00000-joined")
        for batch in self._batches(stored.columns, [one.path for one in group]):
            import pyarrow as pa

            writer.add(pa.Table.from_batches([batch]))
        staged = StagedDelta(stage, tuple(writer.close()), {})
        files = tuple(
            NamedFile(f"{stored.data}/{name}", part.rows, part.size_bytes, part.values)
            for name, part in adopt(staged, self._data(stored))
        )
        now_ms = SystemClock().now_ms()
        old = set(group)

        def replaced(now: ParquetManifest) -> ParquetManifest:
            if not old <= set(now.files):
                return now
            kept = [one for one in now.files if one not in old]
            left = [LeftFile(one.path, now_ms) for one in group]
            return replace(now, files=(*files, *kept), left=(*now.left, *left))

        after = self._replaced(replaced)
        is_named = set(files) <= set(after.files)
        if not is_named:
            for one in files:
                self._storage.remove(f"{self.url}/{one.path}")
        finish(staged)
        return len(files) if is_named else 0

    def scan(self) -> Snapshot:
        with self._errors():
            stored = self._existing()
            return Snapshot(stored.bookmark, self._batches(stored.columns, [one.path for one in stored.files]))

    def size_bytes(self) -> int | None:
        with self._errors():
            found = self._find()
            return None if found is None else sum(one.size_bytes for one in found[0].files)

    def _batches(self, columns: pa.Schema, paths: list[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow.dataset as ds

        with self._errors():
            if paths:
                keys = [self._storage.key(f"{self.url}/{path}") for path in paths]
                files = ds.dataset(keys, schema=columns, format="parquet", filesystem=self._storage.arrow_files())
                yield from files.to_batches(**LITTLE_AHEAD)

    def _stage(self, stored: ParquetManifest, name: RangeName) -> FileStage:
        data = self._data(stored)
        return FileStage(
            new_place(self._storage, data, name),
            stored.columns,
            self.place,
            storage=self._storage,
            data=data,
            partition_by=self.partition_by,
        )

    def _sweep(self, stored: ParquetManifest, forsaken_ms: int | None = None) -> None:
        """Remove what was written for ranges that the bookmark is past and that the manifest does not name; and what
        compactions have left that began before `forsaken_ms`.
        """
        data = self._data(stored)
        kept = {f"{self.url}/{one[0]}" for one in (*stored.files, *stored.left)}
        for text in self._storage.names(f"{data}/{STAGED}"):
            name, mark = RangeName.parse(text), f"{data}/{STAGED}/{text}"
            if name is None:
                continue
            is_forsaken = (
                forsaken_ms is not None and name.is_of_no_range and self._storage.modified_ms(mark) < forsaken_ms
            )
            if not is_forsaken and not name.is_past(stored.bookmark):
                continue
            for one in self._storage.names(f"{data}/{text}"):
                if f"{data}/{text}/{one}" not in kept:
                    self._storage.remove(f"{data}/{text}/{one}")
            # Last: until then the next sweep finds the files again.
            self._storage.remove_place(mark)

    # The manifest.

    @property
    def _path(self) -> str:
        return f"{self.url}/_foldlog.json" if self._label is None else f"{self.url}/_foldlog_{self._label}.json"

    def _data(self, stored: ParquetManifest) -> str:
        return f"{self.url}/{stored.data}"

    def _find(self) -> tuple[ParquetManifest, Mapping[str, Any]] | None:
        """The manifest and its tag; None if there is none."""
        try:
            content, tag = self._storage.tagged(self._path)
        except FileNotFoundError:
            return None
        try:
            found = ParquetManifest.from_bytes(content)
        except ValueError as error:
            raise ViewUnavailable(self.place, f"its manifest {self._path} cannot be read: {error}") from error
        if self._label is not None:
            main = ParquetObjects(self.url, self._options)._find()
            if main is not None and main[0].data == found.data:
                # Of a process that died in a swap, which was done by then.
                self._storage.remove(self._path)
                return None
        return found, tag

    def _existing(self) -> ParquetManifest:
        found = self._find()
        if found is None:
            raise ViewUnavailable(self.place, "it does not exist yet; run the fold")
        return found[0]

    def _create(self, columns: pa.Schema, start: Bookmark) -> bool:
        """False if another process has created it first."""
        strange = [name for name in self._storage.names(self.url) if not name.startswith(("_foldlog", "g-"))]
        if strange:
            raise ViewUnavailable(
                self.place, f"the directory holds other files ({', '.join(strange[:3])}); choose an empty one"
            )
        fresh = ParquetManifest(start, columns, f"g-{uuid.uuid4().hex[:12]}", self.partition_by)
        return self._storage.put(self._path, fresh.to_bytes(), None)

    def _replaced(self, change: Callable[[ParquetManifest], ParquetManifest]) -> ParquetManifest:
        """Put a changed manifest in the place of the one that was read; what is stored then."""
        for _ in range(LAKE_COMMIT_TRIES):
            found = self._find()
            if found is None:
                raise self._gone()
            stored, tag = found
            changed = change(stored)
            if changed == stored or self._storage.put(self._path, changed.to_bytes(), tag):
                return changed
        raise ViewUnavailable(
            self.place, f"other commits came first {LAKE_COMMIT_TRIES} times in a row; try again when they are done"
        )

    def _at(self, expected: Bookmark) -> ParquetManifest:
        """The manifest; StaleBookmark if its bookmark is not the expected one."""
        found = self._find()
        if found is None:
            raise StaleBookmark(self.place, "nothing, since it does not exist", expected.to_json())
        self._check(found[0], expected)
        return found[0]

    def _check(self, stored: ParquetManifest, expected: Bookmark) -> None:
        if stored.bookmark.to_json() != expected.to_json():
            raise StaleBookmark(self.place, stored.bookmark.to_json(), expected.to_json())

    def _gone(self) -> ViewUnavailable:
        return ViewUnavailable(self.place, "it does not exist (any more); run the fold again")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of Arrow and of the store as ViewUnavailable, in one sentence without secrets."""
        try:
            import pyarrow as pa
            import pyarrow.parquet
        except ImportError:
            raise MissingDependency("a lake view in Parquet", "pyarrow", "views") from None
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, MissingDependency):
                raise
            raise ViewUnavailable(self.place, self._options.redacted(first_line(error))) from error


def _small_groups(files: tuple[NamedFile, ...], target_bytes: int) -> list[list[NamedFile]]:
    """Files to join: neighbours with the same values in the partition columns."""
    by_values: dict[Any, list[NamedFile]] = {}
    for one in files:
        by_values.setdefault(one.values, []).append(one)
    return [
        [some[number] for number in group]
        for some in by_values.values()
        for group in groups_of([one.size_bytes for one in some], target_bytes)
    ]
