"""Finds the records that a fold fails at, so that each becomes a dead letter and the fold continues with the others.

A record is at fault if the fold fails on it alone: its function raises, an operation of Spark's rejects one of its
values, or the view cannot hold its rows. That depends on the record only, so every split of the log and every replay
sets the same records aside. Spark reports only that a range has failed; halving the range finds the records. This costs
nothing while no range fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from foldlog.errors import FoldError
from foldlog.limits import FAULTY_RECORDS_MAX
from foldlog.spark.folds.deltas import PreparedFold, coordinates_of, ranges_read, with_tombstones
from foldlog.spark.folds.ranges import beyond
from foldlog.spark.folds.spark_errors import brief_spark_error, is_records_fault
from foldlog.spark.folds.unstorable import UnheldValue, unheld_keys, unheld_values
from foldlog.spark.origins.origin import OffsetRange
from foldlog.views.contract import DELETED, OFFSET, PARTITION, RECORD, Delta

if TYPE_CHECKING:
    import pyarrow as pa


class RecordFault(NamedTuple):
    """One record, and why the fold cannot take it."""

    partition: int
    offset: int
    reason: str


@dataclass(frozen=True)
class Folded:
    """The change of a view, without the records at fault."""

    delta: Delta
    faults: tuple[RecordFault, ...] = ()


def without_faults(
    prepared: PreparedFold, ranges: Sequence[OffsetRange], found: Delta | Exception
) -> Folded | Exception:
    """The result of a range without the records at fault; or the error, if it is not the fault of single records."""
    try:
        if isinstance(found, Delta):
            return _held(prepared, ranges, Folded(found))
        if not _is_records(found):
            return found
        return _held(prepared, ranges, _around_faults(prepared, ranges, found))
    except Exception as error:  # noqa: BLE001 one fold's trouble is not the others'
        return error


def letters_of(prepared: PreparedFold, ranges: Sequence[OffsetRange], faults: Sequence[RecordFault]) -> pa.Table | None:
    """The records at fault as they are in the log, with their reasons; None if there are none."""
    if not faults:
        return None
    reasons = {(one.partition, one.offset): one.reason for one in faults}
    return prepared.frames.letters(fault_ranges(ranges, faults), reasons)


# --- records that the function fails at -----------------------------------------------------------------------------


def _around_faults(prepared: PreparedFold, ranges: Sequence[OffsetRange], error: Exception) -> Folded:
    """Find the records at fault, and fold the rest."""
    faults = tuple(_find(prepared, ranges, error))
    rest = list(beyond(ranges, fault_ranges(ranges, faults)))
    frames = prepared.frames
    seen = frames.count()  # failed tasks were not counted, so start a new count
    given = frames.rows(rest, seen, needs_key=prepared.needs_key)
    try:
        planned = prepared.plan(given)
        with frames.narrowed(planned.used):
            delta = planned.delta(rest, seen)
    finally:
        frames.forget(given)
    rows = with_tombstones(prepared, delta.rows, fault_ranges(ranges, faults))
    return Folded(Delta(rows, ranges_read(ranges)), faults)


def _find(prepared: PreparedFold, ranges: Sequence[OffsetRange], error: Exception) -> Iterator[RecordFault]:
    """Halve the failing ranges down to single records. FoldError if there are too many to blame the records."""
    first = ""
    for count, (at, found) in enumerate(_halved(list(ranges), error, lambda some: _attempt(prepared, some))):
        reason = _reason(prepared, found)
        first = first or f"At offset {at.start} of {at.topic}-{at.partition} it says: {reason}"
        if count == FAULTY_RECORDS_MAX:
            raise FoldError(
                f"fold {prepared.fold.name!r} fails at more than {FAULTY_RECORDS_MAX} records of one range, so it is"
                f" wrong itself; fix the fold. {first}"
            )
        yield RecordFault(at.partition, at.start, reason)


def _attempt(prepared: PreparedFold, ranges: Sequence[OffsetRange]) -> Exception | None:
    """The error that these ranges fail with, None if they do not. Raises errors that are not a record's fault."""
    frames = prepared.frames
    given = frames.rows(ranges, None, needs_key=prepared.needs_key)
    try:
        planned = prepared.plan(given)
        with frames.narrowed(planned.used):
            planned.rows()
    except Exception as found:
        if not _is_records(found):
            raise
        return found
    finally:
        frames.forget(given)
    return None


def _halved(
    ranges: list[OffsetRange], error: Exception, attempt: Callable[[Sequence[OffsetRange]], Exception | None]
) -> Iterator[tuple[OffsetRange, Exception]]:
    """Yields each single offset that fails, with its own error. Raises `error` if the ranges fail only together, as a
    sum that overflows does: then no record is at fault.
    """
    total = sum(one.stop - one.start for one in ranges)
    if total <= 1:
        found = attempt(ranges)  # that it fails was perhaps only inferred
        if found is None:
            raise error
        yield ranges[0], found
        return
    first, second = _halves(ranges, total // 2)
    found = attempt(first)
    if found is not None:
        yield from _halved(first, found, attempt)
        found = attempt(second)
        if found is None:
            return
    # If the first half works, the failure is in the second.
    yield from _halved(second, found or error, attempt)


def _halves(ranges: list[OffsetRange], first: int) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Split into the first `first` offsets, and the rest.

    >>> _halves([OffsetRange("t", 0, 0, 3), OffsetRange("t", 1, 5, 8)], 4)[1]
    [OffsetRange(topic='t', partition=1, start=6, stop=8)]
    """
    before: list[OffsetRange] = []
    after: list[OffsetRange] = []
    for one in ranges:
        middle = min(one.stop, one.start + first)
        first -= middle - one.start
        if middle > one.start:
            before.append(one._replace(stop=middle))
        if one.stop > middle:
            after.append(one._replace(start=middle))
    return before, after


def fault_ranges(ranges: Sequence[OffsetRange], faults: Sequence[RecordFault]) -> list[OffsetRange]:
    """Each of these records as a range of one offset."""
    topic = ranges[0].topic
    return [OffsetRange(topic, one.partition, one.offset, one.offset + 1) for one in faults]


def _is_records(error: Exception) -> bool:
    return isinstance(error, UnheldValue) or is_records_fault(error)


def _reason(prepared: PreparedFold, error: Exception) -> str:
    if isinstance(error, UnheldValue):
        return error.why
    return brief_spark_error(error)


# --- rows that the view cannot hold -----------------------------------------------------------------------------------


def _held(prepared: PreparedFold, ranges: Sequence[OffsetRange], folded: Folded) -> Folded:
    """Remove the records with a row that the view cannot hold, and deletions of keys that it cannot hold."""
    import pyarrow as pa
    import pyarrow.compute as pc

    view, delta = prepared.fold.view, folded.delta
    if view.aggregation is not None:
        return folded
    reasons = _unheld(prepared, delta.rows)
    if not reasons:
        return folded
    faults: dict[tuple[int, int], RecordFault] = {}
    for reason, flags in reasons:
        bad = delta.rows.select([PARTITION, OFFSET]).filter(pc.and_(flags, pc.invert(delta.rows[DELETED])))
        for coordinates in zip(bad[PARTITION].to_pylist(), bad[OFFSET].to_pylist(), strict=True):
            faults.setdefault(coordinates, RecordFault(*coordinates, reason))
    # All rows of such a record are removed, even those that could be held: a record is in the view, or it is not.
    texts = pa.array([f"{partition}@{offset}" for partition, offset in faults], pa.string())
    rows = delta.rows.filter(pc.invert(pc.is_in(coordinates_of(delta.rows), value_set=texts)))
    found = tuple(sorted(faults.values()))
    rows = with_tombstones(prepared, rows, fault_ranges(ranges, found))
    return Folded(replace(delta, rows=_holdable_deletions(prepared, rows)), (*folded.faults, *found))


def _unheld(prepared: PreparedFold, rows: pa.Table) -> list[tuple[str, pa.ChunkedArray]]:
    """The reasons why rows cannot be held, each with a flag per row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    view = prepared.fold.view
    found = list(unheld_values(view, rows.select([name for name in prepared.shape.columns.names if name != RECORD])))
    filled = [name for name in view.filled(prepared.shape) if name in rows.column_names]
    for name in filled:
        if _has_live_null(rows, name):
            reason = f"its key column {name!r} is null, for which {view.place} has no place"
            found.append((reason, pc.is_null(rows[name])))
    if filled:
        # Ask only about keys without another fault, of rows to be kept.
        asked = reduce(pc.and_, (pc.invert(flags) for _, flags in found), pc.invert(rows[DELETED]))
        keys = pa.table({name: pc.if_else(asked, rows[name], pa.scalar(None, rows[name].type)) for name in filled})
        found += unheld_keys(view, keys)
    return found


def _has_live_null(rows: pa.Table, name: str) -> bool:
    import pyarrow.compute as pc

    if not rows[name].null_count:
        return False
    return bool(pc.any(pc.and_(pc.is_null(rows[name]), pc.invert(rows[DELETED])), min_count=0).as_py())


def _holdable_deletions(prepared: PreparedFold, rows: pa.Table) -> pa.Table:
    """Remove deletions of keys that the view cannot hold: they cannot be in it."""
    import pyarrow.compute as pc

    key = prepared.shape.record_key
    if key is None or key == RECORD:
        return rows
    for _, flags in unheld_values(prepared.fold.view, rows.select([key])):
        rows = rows.filter(pc.invert(pc.and_(flags, rows[DELETED])))
    return rows
