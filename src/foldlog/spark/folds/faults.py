"""Records that a fold fails at: found, so that each becomes a dead letter, as poison does, and the rest goes on.

A record is at fault if the fold fails of it alone: its function raises, an operation of Spark's does not take one of
its values, or the view cannot hold what comes of it. That depends on nothing but the record, so every split of the log
and every replay sets the same records aside. Spark says only that a range has failed; halving it finds where. Nothing
of this costs anything while no range fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from foldlog.errors import FoldError
from foldlog.limits import FAULTY_RECORDS_MAX
from foldlog.spark.folds.deltas import PreparedFold, places_of, ranges_read, with_tombstones
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
    """The change of a view, without the records that the fold fails at."""

    delta: Delta
    faults: tuple[RecordFault, ...] = ()


def without_faults(
    prepared: PreparedFold, ranges: Sequence[OffsetRange], found: Delta | Exception
) -> Folded | Exception:
    """What came of a range, without the records at fault; what is not the fault of single records stays an error."""
    try:
        if isinstance(found, Delta):
            return _held(prepared, ranges, Folded(found))
        if not _is_records(found):
            return found
        return _held(prepared, ranges, _around_faults(prepared, ranges, found))
    except Exception as error:  # noqa: BLE001 one fold's trouble is not the others'
        return error


def letters_of(prepared: PreparedFold, ranges: Sequence[OffsetRange], faults: Sequence[RecordFault]) -> pa.Table | None:
    """The records at fault as they stand in the log, with their reasons; None if there are none."""
    if not faults:
        return None
    reasons = {(one.partition, one.offset): one.reason for one in faults}
    return prepared.frames.letters(places_at(ranges, faults), reasons)


# --- what the function fails at ---------------------------------------------------------------------------------------


def _around_faults(prepared: PreparedFold, ranges: Sequence[OffsetRange], error: Exception) -> Folded:
    """Find what fails, and fold the rest."""
    faults = tuple(_find(prepared, ranges, error))
    rest = list(beyond(ranges, places_at(ranges, faults)))
    frames = prepared.frames
    seen = frames.count()  # tasks that failed were not counted, so the count begins anew
    given = frames.rows(rest, seen, needs_key=prepared.needs_key)
    try:
        planned = prepared.plan(given)
        with frames.narrowed(planned.used):
            delta = planned.delta(rest, seen)
    finally:
        frames.forget(given)
    rows = with_tombstones(prepared, delta.rows, places_at(ranges, faults))
    return Folded(Delta(rows, ranges_read(ranges)), faults)


def _find(prepared: PreparedFold, ranges: Sequence[OffsetRange], error: Exception) -> Iterator[RecordFault]:
    """Halve what fails until single records are left. FoldError if they are too many to be the records' fault."""
    first = ""
    for count, (at, found) in enumerate(_halved(list(ranges), error, lambda some: _attempt(prepared, some))):
        reason = _reason(prepared, found)
        first = first or f"At offset {at.start} of {at.topic}-{at.partition} it says: {reason}"
        if count == FAULTY_RECORDS_MAX:
            raise FoldError(
                f"fold {prepared.fold.name!r} fails at more than {FAULTY_RECORDS_MAX} records of one range, so it is"
                f" wrong itself; mend the fold. {first}"
            )
        yield RecordFault(at.partition, at.start, reason)


def _attempt(prepared: PreparedFold, ranges: Sequence[OffsetRange]) -> Exception | None:
    """How the fold fails at these ranges; None if it does not. Raises what is no record's fault."""
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
    """Each single offset that fails, with its own error. Raises `error` where the parts of what fails do not: a sum
    that overflows, say, is no record's fault.
    """
    total = sum(one.stop - one.start for one in ranges)
    if total <= 1:
        found = attempt(ranges)  # alone: it was perhaps only concluded that it fails
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
    # What is whole in the first half fails in the second.
    yield from _halved(second, found or error, attempt)


def _halves(ranges: list[OffsetRange], first: int) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """The first so many offsets, and the others.

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


def places_at(ranges: Sequence[OffsetRange], faults: Sequence[RecordFault]) -> list[OffsetRange]:
    """Each of these records as a range of its own."""
    topic = ranges[0].topic
    return [OffsetRange(topic, one.partition, one.offset, one.offset + 1) for one in faults]


def _is_records(error: Exception) -> bool:
    return isinstance(error, UnheldValue) or is_records_fault(error)


def _reason(prepared: PreparedFold, error: Exception) -> str:
    if isinstance(error, UnheldValue):
        return error.why
    return brief_spark_error(error)


# --- what the view cannot hold ----------------------------------------------------------------------------------------


def _held(prepared: PreparedFold, ranges: Sequence[OffsetRange], folded: Folded) -> Folded:
    """Without the records that have a row which the view cannot hold, and without deletions of what it cannot have."""
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
        for place in zip(bad[PARTITION].to_pylist(), bad[OFFSET].to_pylist(), strict=True):
            faults.setdefault(place, RecordFault(*place, reason))
    # All rows of such a record go, also those that could be held: a record is in the view or is not.
    texts = pa.array([f"{partition}@{offset}" for partition, offset in faults], pa.string())
    rows = delta.rows.filter(pc.invert(pc.is_in(places_of(delta.rows), value_set=texts)))
    found = tuple(sorted(faults.values()))
    rows = with_tombstones(prepared, rows, places_at(ranges, found))
    return Folded(replace(delta, rows=_holdable_deletions(prepared, rows)), (*folded.faults, *found))


def _unheld(prepared: PreparedFold, rows: pa.Table) -> list[tuple[str, pa.ChunkedArray]]:
    """Why rows cannot be held, and which."""
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
        # Only those that can be asked about, and are to be kept.
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
    """Nothing is to be deleted under a key that the view cannot hold."""
    import pyarrow.compute as pc

    key = prepared.shape.record_key
    if key is None or key == RECORD:
        return rows
    for _, flags in unheld_values(prepared.fold.view, rows.select([key])):
        rows = rows.filter(pc.invert(pc.and_(flags, rows[DELETED])))
    return rows
