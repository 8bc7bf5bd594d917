"""Rows that Spark's executors write where a view takes them from, so that they do not pass the driver.

    driver     view.stage(ranges, expected)       a place for one range: a directory, or a table of the database
    executors  write_all(stagings, batches, …)    check the rows, write them there, report what was written as parts
    driver     view.apply_staged(staged, …)       commit the reported parts and the bookmark in one transaction

Only parts that were reported are committed, so a task that ran twice, or died after it had written, adds nothing. If a
task meets a row that the view cannot hold, or cannot reach the place, it reports a refusal, and the driver folds the
range itself.

A place is named after its range and is never read as part of the view. It is garbage as soon as the view's bookmark is
past it: from then on the view refuses its commit, whoever holds it, and however long he was stopped (`is_past`). Before
that, another runner might still commit it, so nobody removes it.
"""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import DELETED, META, OFFSET, PARTITION
from foldlog.views.storable import columns_where, is_not_utf8, is_nul, is_out_of_years

if TYPE_CHECKING:
    import pyarrow as pa

Ranges = Mapping[int, tuple[int, int]]
"""What is read of each partition: start inclusive, stop exclusive."""

_NAME: Final = re.compile(r"e([0-9]+)-p([0-9]+)-([0-9]+)-([0-9]+)-([0-9a-f]{16})")


class RangeName(NamedTuple):
    """The name of a range's place: the bookmark's epoch, the first partition of the range with its offsets, and a token
    of its own, as two runners may write the same range.
    """

    epoch: int
    partition: int
    start: int
    stop: int
    token: str

    @classmethod
    def of(cls, ranges: Ranges, expected: Bookmark) -> RangeName:
        """A new name for the range that follows the bookmark `expected`."""
        partition = min(number for number, (start, stop) in ranges.items() if start < stop)
        return cls(expected.epoch, partition, *ranges[partition], uuid.uuid4().hex[:16])

    @classmethod
    def of_swap(cls, epoch: int) -> RangeName:
        """A new name for files that a swap or a compaction brings; past with the next epoch."""
        return cls(epoch, 0, 2**63 - 1, 2**63 - 1, uuid.uuid4().hex[:16])

    @property
    def is_of_no_range(self) -> bool:
        """Whether `of_swap` has made it."""
        return self.start == 2**63 - 1

    @classmethod
    def parse(cls, text: str) -> RangeName | None:
        """The inverse of `str`; None if the text is something else.

        >>> RangeName.parse("e0-p00002-00000000000000000040-00000000000000000090-00112233445566ff").start
        40
        """
        found = _NAME.fullmatch(text)
        return None if found is None else cls(int(found[1]), int(found[2]), int(found[3]), int(found[4]), found[5])

    def __str__(self) -> str:
        return f"e{self.epoch}-p{self.partition:05d}-{self.start:020d}-{self.stop:020d}-{self.token}"

    def is_past(self, stored: Bookmark) -> bool:
        """Whether a view with this bookmark refuses the range for ever. The epoch of a bookmark never falls, and within
        an epoch no offset does; a commit needs the bookmark that the range was read from.
        """
        at = stored.offset(self.partition)
        return stored.epoch > self.epoch or (stored.epoch == self.epoch and at is not None and at > self.start)


class StagedPart(NamedTuple):
    """What one task has written: its name within the place, and what the engine needs to know of it."""

    name: str
    rows: int
    partition: int = -1
    """The topic's partition, if a part has rows of one partition only."""
    size_bytes: int = 0
    statistics: str = ""
    values: tuple[str | None, ...] = ()
    """What its rows have in the columns by which the view is partitioned, as texts."""


class StagedCount(NamedTuple):
    """Of how many records a task has written rows."""

    records: int


class StageRefusal(NamedTuple):
    """Why a task has not written its rows. If it cannot reach the place, it would not reach the next one, either."""

    why: str
    is_unreachable: bool = False


Report = StagedPart | StagedCount | StageRefusal
"""What a task reports."""


class UnreachableStage(Exception):
    """This process cannot write to the place."""


class UnheldRows(Exception):
    """The engine might refuse these rows, or the place is gone: the driver looks after the range."""


class StageWriter(ABC):
    """Writes the rows of one task, in bounded memory."""

    @abstractmethod
    def add(self, rows: pa.Table) -> None:
        """Write rows, which have the shape's columns and META without the topic."""

    @abstractmethod
    def close(self) -> list[StagedPart]:
        """Finish, and tell what was written. Durable, as far as the engine's commit relies on it."""

    @abstractmethod
    def abandon(self) -> None:
        """Remove what was written, after an error."""


class ViewStage(ABC):
    """A place for the rows of one range. Sent to the executors, so it has to be small, and to be pickled."""

    needs_order: bool = False
    """Whether a task has to have all rows of a record, in offset order, as it has if the plan moves no rows."""

    has_one_row_each: bool = False
    """Whether a record may have one row only. What to say to one with several is for the driver."""

    tasks_max: int | None = None
    """How many tasks may write at once; None for any number."""

    @abstractmethod
    def open(self, label: str) -> StageWriter:
        """On an executor: begin to write. `label` is unique to this try of the task. UnreachableStage if it cannot."""

    @abstractmethod
    def is_there(self) -> bool:
        """On the driver: whether nobody has removed the place."""

    def for_deletions(self) -> ViewStage:
        """The place for rows that delete whatever is older than their record, and not its own rows."""
        raise NotImplementedError("only a view whose rows have keys is given deletions")


@dataclass(frozen=True, slots=True)
class StagedDelta:
    """The change of a view by one range, as parts that executors have written. See `contract.Delta`."""

    stage: ViewStage
    parts: tuple[StagedPart, ...]
    ranges: Ranges

    @property
    def row_count(self) -> int:
        """How many rows were written."""
        return sum(part.rows for part in self.parts)

    def with_more(self, other: StagedDelta) -> StagedDelta:
        """With the parts of another job for this range."""
        return replace(self, parts=(*self.parts, *other.parts))


@dataclass(frozen=True)
class Staging:
    """The work of a task; pickled to the executors."""

    stage: ViewStage
    columns: pa.Schema
    """The shape's columns and META without the topic."""
    filled: tuple[str, ...] = ()
    """See `View.filled`."""
    holds_nul: bool = True
    are_deletions: bool = False
    """The rows have only keys and coordinates, and delete what is older than their record."""

    def open(self, label: str) -> StagingWriter:
        return StagingWriter(self, label)

    def typed(self, rows: pa.Table) -> pa.Table:
        """The rows in the view's types."""
        import pyarrow as pa

        if not self.are_deletions:
            return rows.select(self.columns.names).cast(self.columns)
        filled: dict[str, object] = {name: rows[name] for name in self.columns.names if name in rows.column_names}
        filled[DELETED] = pa.repeat(pa.scalar(True), rows.num_rows)
        empty = {one.name: pa.nulls(rows.num_rows, one.type) for one in self.columns if one.name not in filled}
        columns = {**filled, **empty}
        return pa.table({name: columns[name] for name in self.columns.names}).cast(self.columns)

    def check(self, rows: pa.Table) -> str | None:
        """Why the view cannot hold these rows. Which record is at fault is for the driver to find out."""
        import pyarrow.compute as pc

        tests = [is_not_utf8, is_out_of_years, *([] if self.holds_nul else [is_nul])]
        own = rows.select([name for name in self.columns.names if name not in META])
        for test in tests:
            for name, _ in columns_where(own, test):
                return f"column {name!r} has a value that the view cannot hold"
        for name in self.filled:
            if rows[name].null_count and pc.any(pc.and_(pc.is_null(rows[name]), pc.invert(rows[DELETED]))).as_py():
                return f"the key column {name!r} is null in a row"
        return None


class StagingWriter:
    """Checks and writes the rows of one task. After a refusal it takes rows and does nothing with them."""

    def __init__(self, staging: Staging, label: str) -> None:
        self._staging = staging
        self._refusal: StageRefusal | None = None
        self._rows = 0
        self._records = 0
        self._last: tuple[int, int] | None = None
        self._writer: StageWriter | None = None
        try:
            self._writer = staging.stage.open(label)
        except (UnreachableStage, UnheldRows) as error:
            self._refuse(_refusal(error))

    def add(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        if self._writer is None or not batch.num_rows:
            return
        rows = self._staging.typed(pa.Table.from_batches([batch]))
        why = self._staging.check(rows)
        if why is not None:
            self._refuse(StageRefusal(why))
            return
        if not self._count(rows) and self._staging.stage.needs_order:
            self._refuse(StageRefusal("the function has changed the order of the rows"))
            return
        try:
            self._writer.add(rows)
        except (UnreachableStage, UnheldRows) as error:
            self._refuse(_refusal(error))

    def close(self) -> list[Report]:
        """What was written, and of how many records; or a refusal, and nothing else."""
        parts: list[StagedPart] = []
        if self._staging.stage.has_one_row_each and self._rows > self._records:
            self._refuse(StageRefusal("a record has several rows, and the key has room for one"))
        try:
            parts = [] if self._writer is None else self._writer.close()
        except (UnreachableStage, UnheldRows) as error:
            self._refuse(_refusal(error))
        return [self._refusal] if self._refusal is not None else [*parts, StagedCount(self._records)]

    def abandon(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abandon()

    def _refuse(self, refusal: StageRefusal) -> None:
        self._refusal = refusal
        self.abandon()

    def _count(self, rows: pa.Table) -> bool:
        """Count the records that have rows. False if the rows do not come in offset order: then rows of one record are
        perhaps not neighbours, and the count is too high.
        """
        import pyarrow.compute as pc

        partition, offset = rows[PARTITION].combine_chunks(), rows[OFFSET].combine_chunks()
        count = rows.num_rows
        first = partition[0].as_py(), offset[0].as_py()
        step = pc.subtract(partition.slice(1), partition.slice(0, count - 1))
        move = pc.subtract(offset.slice(1), offset.slice(0, count - 1))
        is_same = pc.and_(pc.equal(step, 0), pc.equal(move, 0))
        is_back = pc.or_(pc.less(step, 0), pc.and_(pc.equal(step, 0), pc.less(move, 0)))
        in_order = (self._last is None or self._last <= first) and not pc.any(is_back, min_count=0).as_py()
        self._rows += count
        self._records += count - (pc.sum(is_same).as_py() or 0) - (first == self._last)
        self._last = partition[count - 1].as_py(), offset[count - 1].as_py()
        return bool(in_order)


def _refusal(error: UnreachableStage | UnheldRows) -> StageRefusal:
    return StageRefusal(str(error), is_unreachable=isinstance(error, UnreachableStage))


def write_all(stagings: Sequence[Staging], batches: Iterable[pa.RecordBatch], label: str) -> list[list[Report]]:
    """On an executor: write the rows of a task to each of the places; what was written, by place."""
    writers = [one.open(label) for one in stagings]
    try:
        for batch in batches:
            for writer in writers:
                writer.add(batch)
        return [writer.close() for writer in writers]
    except BaseException:
        for writer in writers:
            writer.abandon()
        raise


def staged_of(stage: ViewStage, found: Sequence[Report], ranges: Ranges) -> tuple[StagedDelta | StageRefusal, int]:
    """What the tasks reported, taken together: one refusal is enough, and one that will last is told first. And the
    number of records that have rows.
    """
    refusals = [one for one in found if isinstance(one, StageRefusal)]
    if refusals:
        lasting = any(one.is_unreachable for one in refusals) and stage.is_there()  # else it was swept meanwhile
        return max(refusals, key=lambda one: one.is_unreachable)._replace(is_unreachable=lasting), 0
    parts = tuple(one for one in found if isinstance(one, StagedPart))
    return StagedDelta(stage, parts, ranges), sum(one.records for one in found if isinstance(one, StagedCount))
