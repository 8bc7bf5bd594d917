"""The long way: the change of a view by a range, computed without any shortcut; and the trial of a fold by it.

This code uses no plans, used columns, packed batches, shared reads or counts. The driver reads the records' keys
itself, Spark runs the function over a frame with all columns, and deletions, the records that rows belong to and
counters are computed independently. So a bug of the short way (`deltas`, `runner`) is detected and not repeated.

`verify` replays this way. And before a fold first stores anything, a sample is folded both ways, split at random
offsets for the long one: `fold_sample`, `check_trial`.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from foldlog.client.places import places_text
from foldlog.errors import FoldError, UnlawfulFold
from foldlog.limits import FAULTY_RECORDS_MAX, FOLD_TRIAL_OFFSETS
from foldlog.spark.folds.counting.recounting import are_in_time, held_counters, recounted
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.reading import TopicFrames, quoted
from foldlog.spark.folds.spark_errors import is_records_fault
from foldlog.spark.origins.origin import OffsetRange
from foldlog.views.contract import DELETED, META, OFFSET, PARTITION, RECORD, TIMESTAMP, TOPIC, Delta, Shape
from foldlog.views.reduce.plain import check_steps
from foldlog.views.topic_lists import located

if TYPE_CHECKING:
    import pyarrow as pa

_ROW: Final = "__row"
"""A constant column, for counters that use no other."""

_FAULTY_RANGES: Final = 10
"""A range here may be as long as this many ranges of a run, each with FAULTY_RECORDS_MAX records at fault."""

Ranges = Sequence[OffsetRange]
Coordinates = set[tuple[int, int]]


def long_delta(fold: Fold, frames: TopicFrames, shape: Shape, ranges: Ranges) -> Delta:
    """The change of the view by these ranges. Reads them twice, except for counters."""
    (delta,) = long_deltas(fold, frames, shape, [ranges])
    return delta


def long_deltas(
    fold: Fold, frames: TopicFrames, shape: Shape, pieces: Sequence[Ranges], sample: ReadSample | None = None
) -> list[Delta]:
    """The change by each of the pieces, for each of which the function is called. They may be those of a sample."""
    records: list[pa.Table | None] = [None] * len(pieces)
    if fold.view.aggregation is None and sample is None:
        records = [frames.records(piece, needs_key=fold.view.is_keyed) for piece in pieces]
    elif fold.view.aggregation is None and sample is not None:
        names = [*fold.topic.record_columns, *META]
        records = [one.select(names) for one in sample.parts]
    tombstones = [set() if one is None else _tombstones(one) for one in records]
    try:
        whole = _given_rows(fold, frames, pieces, tombstones, sample)
    except Exception as error:
        if not is_records_fault(error):
            raise
        whole = [None] * len(pieces)
    found = [
        _parts(fold, frames, shape, piece, gone, rows)
        for piece, gone, rows in zip(pieces, tombstones, whole, strict=True)
    ]
    return [
        _delta(fold, frames, shape, piece, *given)
        for piece, given in zip(pieces, zip(records, tombstones, found, strict=True), strict=True)
    ]


def _delta(
    fold: Fold,
    frames: TopicFrames,
    shape: Shape,
    ranges: Ranges,
    records: pa.Table | None,
    tombstones: Coordinates,
    given: tuple[list[pa.Table], Coordinates],
) -> Delta:
    """The change by these ranges, of which the function returned these parts and failed at those records."""
    import pyarrow as pa

    parts, faulty = given
    found = pa.concat_tables(parts or _given_rows(fold, frames, [[]], [tombstones]))
    if fold.view.aggregation is not None:
        return Delta(recounted(found, fold.view.aggregation, shape), _spans(ranges))
    rows = _in_order(_typed(shape, found, ranges[0].topic if ranges else fold.topic.name))
    if shape.keeps_rows and records is not None:
        rows = _with_withdrawals(fold, shape, rows, _sound(records, faulty))
    elif fold.view.is_keyed and records is not None:
        rows = _with_records(fold, shape, rows, _sound(records, faulty))
        if shape.record_key != RECORD:
            # A key that the view cannot hold is not in it, so no deletion is needed.
            keys, deleted = rows[shape.record_key], rows[DELETED].to_pylist()
            kept = [not gone or _is_held(fold, keys.slice(number, 1)) for number, gone in enumerate(deleted)]
            rows = rows.filter(pa.array(kept, pa.bool_()))
    if fold.view.reduction is not None and fold.view.reduction.tombstones == "delete" and records is not None:
        rows = _with_tombstones(rows, records)
    return Delta(rows, _spans(ranges))


def _parts(
    fold: Fold,
    frames: TopicFrames,
    shape: Shape,
    ranges: Ranges,
    tombstones: Coordinates,
    rows: pa.Table | None = None,
) -> tuple[list[pa.Table], Coordinates]:
    """All rows that the function returns, in parts, and the coordinates of the records that it fails at, or whose rows
    the view cannot hold. These are found by folding smaller and smaller ranges, down to single records. `rows` is what
    the function returns for the whole, if that is known.
    """
    error: Exception | None = None
    try:
        if rows is None:
            (rows,) = _given_rows(fold, frames, [ranges], [tombstones])
    except Exception as raised:
        if not is_records_fault(raised):
            raise
        error = raised
    else:
        if _are_held(fold, shape, rows):
            return [rows], set()
        if fold.view.aggregation is None:
            return _without_unheld(fold, shape, rows)
    if _count(ranges) == 1:
        return [], {(one.partition, one.start) for one in ranges if one.start < one.stop}
    parts: list[pa.Table] = []
    faulty: Coordinates = set()
    for some in _smaller(ranges):
        more, where = _parts(fold, frames, shape, some, tombstones)
        parts += more
        faulty |= where
    if error is not None and not faulty:
        raise error  # the parts work one by one, so no record is at fault
    if len(faulty) > FAULTY_RECORDS_MAX * _FAULTY_RANGES:
        raise FoldError(f"fold {fold.name!r} fails at {len(faulty)} records of {_count(ranges)}; fix it") from error
    return parts, faulty


def _without_unheld(fold: Fold, shape: Shape, rows: pa.Table) -> tuple[list[pa.Table], Coordinates]:
    """The rows of records whose rows can all be held, and the coordinates of the other records."""
    import pyarrow as pa

    coordinates = list(zip(rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist(), strict=True))
    unheld: Coordinates = set()
    parts = [(0, len(coordinates))]
    while parts:
        start, stop = parts.pop()
        if _are_held(fold, shape, rows.slice(start, stop - start)):
            continue
        if stop - start == 1:
            unheld.add(coordinates[start])
        else:
            middle = (start + stop) // 2
            parts += [(start, middle), (middle, stop)]
    return [rows.filter(pa.array([coordinate not in unheld for coordinate in coordinates], pa.bool_()))], unheld


def _smaller(ranges: Ranges) -> Iterator[list[OffsetRange]]:
    """Each partition separately; a single partition in quarters."""
    if len(ranges) > 1:
        yield from ([one] for one in ranges)
        return
    (one,) = ranges
    step = -(-(one.stop - one.start) // 4)
    for start in range(one.start, one.stop, step):
        yield [one._replace(start=start, stop=min(one.stop, start + step))]


def _given_rows(
    fold: Fold,
    frames: TopicFrames,
    pieces: Sequence[Ranges],
    tombstones: Sequence[Coordinates],
    sample: ReadSample | None = None,
) -> list[pa.Table]:
    """The function's result for each of the pieces. For counters, only the columns that they count."""
    if sample is None:
        given: Sequence[DataFrame] = [frames.rows(piece, None, needs_key=fold.view.is_keyed) for piece in pieces]
    else:
        given = sample.given
    try:
        results = [_result(fold, one) for one in given]
        if sample is not None and all(result is one for result, one in zip(results, given, strict=True)):
            found = list(sample.parts)  # Spark would only hand them back
        else:
            found = _computed(results)
    finally:
        for one in given:
            frames.forget(one)
    if fold.view.aggregation is None:
        return [_with_deleted(rows, gone) for rows, gone in zip(found, tombstones, strict=True)]
    return [_live(rows) if DELETED in rows.column_names else rows for rows in found]


def _result(fold: Fold, given: DataFrame) -> DataFrame:
    aggregation = fold.view.aggregation
    if aggregation is None:
        return fold(given)
    result = fold(given.where(f"NOT {DELETED}"))
    said = (DELETED,) if DELETED in result.columns else ()
    names = dict.fromkeys((*aggregation.inputs(), *said))
    return result.selectExpr(f"1 AS {_ROW}", *map(quoted, names))  # in SQL: a Column costs ten calls into the JVM


def _computed(results: Sequence[DataFrame]) -> list[pa.Table]:
    """The rows of each, in one job if they have the same columns: a small job costs 50 ms before it reads anything."""
    import pyarrow as pa

    first = results[0]
    if len(results) == 1 or any(one.dtypes != first.dtypes for one in results):
        return [one.toArrow() for one in results]
    # Their plans stay apart below the union, each over its own frame: no piece sees another's rows.
    told = (one.selectExpr(str(number), "*") for number, one in enumerate(results))
    found = reduce(DataFrame.union, told).toArrow()
    numbers, rows = found.column(0).to_pylist(), found.remove_column(0)
    return [rows.filter(pa.array([one == piece for one in numbers], pa.bool_())) for piece in range(len(results))]


def _tombstones(records: pa.Table) -> Coordinates:
    columns = (records[name].to_pylist() for name in (PARTITION, OFFSET, DELETED))
    return {(partition, offset) for partition, offset, gone in zip(*columns, strict=True) if gone}


def _with_deleted(rows: pa.Table, tombstones: Coordinates) -> pa.Table:
    """Mark the rows that delete: those of tombstones, and those that the function marks."""
    import pyarrow as pa

    columns = (rows[name].to_pylist() for name in (PARTITION, OFFSET, DELETED))
    gone = [bool(said) or (partition, offset) in tombstones for partition, offset, said in zip(*columns, strict=True)]
    return rows.set_column(rows.column_names.index(DELETED), DELETED, pa.array(gone, pa.bool_()))


def _live(rows: pa.Table) -> pa.Table:
    import pyarrow as pa

    return rows.filter(pa.array([not gone for gone in rows[DELETED].to_pylist()], pa.bool_()))


def _are_held(fold: Fold, shape: Shape, rows: pa.Table) -> bool:
    """Whether the view can hold these rows of the function's result."""
    aggregation = fold.view.aggregation
    if aggregation is None:
        kept = [name for name in rows.column_names if name not in META]
        keys = [name for name in fold.view.filled(shape) if name in kept]
        rows = _live(rows)
    else:
        keys = list(aggregation.by)
        kept = aggregation.kept()
        if not are_in_time(rows, aggregation):
            return False
    if not all(_is_held(fold, rows[name]) for name in kept):
        return False
    if aggregation is None and any(value is None for name in keys for value in rows[name].to_pylist()):
        return False
    return not keys or fold.view.unheld_keys(rows.select(keys)) is None


def _is_held(fold: Fold, column: pa.ChunkedArray) -> bool:
    """Whether the view can hold the values. Python's str and datetime have the limits that all views have."""
    try:
        values = column.to_pylist()
    except (UnicodeDecodeError, ValueError, OverflowError):
        return False
    letters = set("".join(text for value in values for text in _texts(value)))
    if "\0" in letters and not fold.view.holds_nul:
        return False
    if not fold.view.holds_nan and not all(math.isfinite(one) for value in values for one in _floats(value)):
        return False
    return not fold.view.unheld_characters(frozenset(letter for letter in letters if not letter.isascii()))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        yield from _floats(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _floats(one)


def _sound(records: pa.Table, faulty: Coordinates) -> pa.Table:
    """The records that are not at fault; and all tombstones, which delete even if the function fails at them."""
    import pyarrow as pa

    columns = (records[name].to_pylist() for name in (PARTITION, OFFSET, DELETED))
    sound = [gone or (partition, offset) not in faulty for partition, offset, gone in zip(*columns, strict=True)]
    return records.filter(pa.array(sound, pa.bool_()))


def _typed(shape: Shape, found: pa.Table, read_as: str) -> pa.Table:
    import pyarrow as pa

    meta = {PARTITION: pa.int32(), OFFSET: pa.int64(), TIMESTAMP: pa.timestamp("us", tz="UTC"), DELETED: pa.bool_()}
    wanted = {one.name: one.type for one in shape.columns if one.name != RECORD} | meta
    columns = {name: found[name].cast(kind) for name, kind in wanted.items()}
    columns[TOPIC] = pa.array([located(read_as, number)[0] for number in found[PARTITION].to_pylist()], pa.string())
    return pa.table(columns)


def _in_order(rows: pa.Table) -> pa.Table:
    """Sorted by partition and offset; the rows of one record stay in their order."""
    import pyarrow as pa

    coordinates = list(zip(rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist(), strict=True))
    return rows.take(pa.array(sorted(range(len(coordinates)), key=coordinates.__getitem__), pa.int64()))


def _with_records(fold: Fold, shape: Shape, rows: pa.Table, records: pa.Table) -> pa.Table:
    """Add the digest of the record's key if the view stores it, and a deletion for each record without rows."""
    import pyarrow as pa

    from foldlog.spark.folds.deltas import record_owners

    coordinates = list(zip(records[PARTITION].to_pylist(), records[OFFSET].to_pylist(), strict=True))
    numbers = {coordinate: number for number, coordinate in enumerate(coordinates)}
    owners = [
        numbers.get(coordinate)
        for coordinate in zip(rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist(), strict=True)
    ]
    if None in owners:
        raise FoldError(f"fold {fold.name!r} gave rows at places that it was not given; keep _partition and _offset")
    if shape.record_key == RECORD:
        (column,) = fold.topic.record_columns
        digests = record_owners(fold, records)
        rows = rows.append_column(RECORD, digests.take(pa.array(owners, pa.int64())))
        records = records.drop_columns([column]).append_column(RECORD, digests)
    bare = sorted(set(numbers.values()).difference(owners))
    deletions = records.take(pa.array(bare, pa.int64()))
    columns = {one.name: pa.nulls(len(bare), one.type) for one in rows.schema}
    for name in set(columns).intersection(deletions.column_names):
        columns[name] = deletions[name].cast(rows.schema.field(name).type)
    if DELETED in columns:
        columns[DELETED] = pa.array([True] * len(bare))
    return _in_order(pa.concat_tables([rows, pa.table(columns, schema=rows.schema)]))


def _with_tombstones(rows: pa.Table, records: pa.Table) -> pa.Table:
    """Add the tombstones that the function returned no rows for."""
    import pyarrow as pa

    known = set(zip(rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist(), strict=True))
    bare = [row for row in records.to_pylist() if row[DELETED] and (row[PARTITION], row[OFFSET]) not in known]
    more = pa.Table.from_pylist([{name: row.get(name) for name in rows.column_names} for row in bare], rows.schema)
    return _in_order(pa.concat_tables([rows, more]))


def _with_withdrawals(fold: Fold, shape: Shape, rows: pa.Table, records: pa.Table) -> pa.Table:
    """For rows with keys of their own: whose each is, and one deletion without a key for each tombstone."""
    import pyarrow as pa

    from foldlog.spark.folds.deltas import record_owners

    columns = fold.topic.record_columns
    owner: dict[tuple[int, int], Any] = {}
    gone = _tombstones(records)
    for row in records.to_pylist():
        at = (row[PARTITION], row[OFFSET])
        owner[at] = row[columns[0]] if columns else f"partition {at[0]}"
    if columns and shape.record_key == RECORD:
        owner = dict(zip(owner, record_owners(fold, records).to_pylist(), strict=True))
    found: list[dict[str, Any]] = []
    for row in rows.to_pylist():
        at = (row[PARTITION], row[OFFSET])
        if at not in owner:
            raise FoldError(
                f"fold {fold.name!r} gave rows at places that it was not given; keep _partition and _offset"
            )
        means_nothing = row[DELETED] and any(row[name] is None for name in fold.view.filled(shape))
        if at not in gone and not means_nothing:
            found.append({**row, **({RECORD: owner[at]} if shape.record_key == RECORD else {})})
    for row in records.to_pylist():
        if row[DELETED]:
            bare = dict.fromkeys(shape.columns.names) | {name: row[name] for name in META}
            found.append({**bare, shape.record_key or "": owner[row[PARTITION], row[OFFSET]]})
    meta = [one for one in rows.schema if one.name in META]
    return _in_order(pa.Table.from_pylist(found, pa.schema([*shape.columns, *meta])))


# --- the trial ------------------------------------------------------------------------------------------------------


def sampled(ranges: Ranges) -> list[OffsetRange]:
    """The beginning of these ranges, FOLD_TRIAL_OFFSETS at most."""
    share = max(1, FOLD_TRIAL_OFFSETS // max(1, len(ranges)))
    return [one._replace(stop=min(one.stop, one.start + share)) for one in ranges]


@dataclass(frozen=True)
class ReadSample:
    """Ranges that the driver has read itself, cut in two, with a frame of each piece."""

    ranges: Ranges
    cut_at: str
    read: pa.Table
    pieces: Sequence[Ranges]
    parts: Sequence[pa.Table]
    given: Sequence[DataFrame]


@dataclass(frozen=True)
class TrialSample:
    """A sample, the changes by its pieces, folded the long way, and what a view would hold after them, if its rows are
    aggregated: others are compared as they are, first.
    """

    sample: ReadSample
    deltas: Sequence[Delta]
    counted: Counter[str] | None = None


def read_sample(fold: Fold, frames: TopicFrames, ranges: Ranges, chance: random.Random | None = None) -> ReadSample:
    """What a trial is made of. The function is not called yet, so this may run beside a call of it."""
    first, second = _cut(ranges, chance or random.Random())
    pieces = [piece for piece in (first, second) if piece]
    # The driver reads the sample itself: Spark then has the rows in its plan, and evaluates filters and projections of
    # them while it plans, without a worker. As a job with workers, a trial took 200 ms of processor time.
    read = frames.sample(ranges, needs_key=fold.view.is_keyed)
    parts = [_rows_within(read, piece) for piece in pieces]
    cut_at = places_text({one.partition: one.start for one in second})
    return ReadSample(ranges, cut_at, read, pieces, parts, [frames.local(one) for one in parts])


def fold_sample(fold: Fold, frames: TopicFrames, shape: Shape, sample: ReadSample) -> TrialSample:
    """The first half of a trial, which needs nothing of the short way and may run beside it."""
    deltas = long_deltas(fold, frames, shape, sample.pieces, sample)
    return TrialSample(sample, deltas, None if fold.view.aggregation is None else _held(fold, shape, deltas))


def check_trial(
    fold: Fold, frames: TopicFrames, shape: Shape, tried: TrialSample, short: Delta, alone: Callable[[], Delta]
) -> None:
    """Raises UnlawfulFold if another split gives other rows than the sample's; FoldError if the short way gives other
    rows than the long one. `short` is the short way's result for the sample, or, unless it is aggregated, for ranges
    that contain it; `alone` computes it for the sample alone.
    """
    sample = tried.sample
    within = short if short.ranges == _spans(sample.ranges) else _within(short, sample.ranges)
    if _are_alike(fold, tried.deltas, within):
        return
    found = _held(fold, shape, [within])
    cut = _held(fold, shape, tried.deltas) if tried.counted is None else tried.counted
    if found == cut:
        return
    uncut = replace(sample, pieces=[sample.ranges], parts=[sample.read], given=[frames.local(sample.read)])
    whole = _held(fold, shape, long_deltas(fold, frames, shape, uncut.pieces, uncut))
    what = f"it was tried on {_count(sample.ranges)} records, and gave other rows when"
    advice = "a fold may look at one row at a time, and must always give the same result for it"
    if whole != cut:
        raise UnlawfulFold(fold.name, f"{what} they were cut at {sample.cut_at}, {_difference(whole, cut)}", advice)
    if short.ranges != _spans(sample.ranges) and _held(fold, shape, [alone()]) == whole:
        difference = _difference(found, whole)
        raise UnlawfulFold(fold.name, f"{what} more were folded with them, {difference}", advice)
    raise FoldError(
        f"fold {fold.name!r} was tried on {_count(sample.ranges)} records, and the quick way to read them gave other"
        f" rows than the plain one, {_difference(found, whole)}; nothing was stored. The fold is lawful, and this is a"
        " mistake of foldlog: please report it"
    )


def try_steps(fold: Fold, tried: TrialSample, chance: random.Random | None = None) -> None:
    """The trial of a step, on the rows of the sample: UnlawfulFold if the states depend on how they are split."""
    import pyarrow as pa

    if fold.view.reduction is not None and fold.topic.key is not None:
        rows = _in_order(pa.concat_tables([one.rows for one in tried.deltas]))
        check_steps(fold.name, fold.view.reduction, fold.topic.key, rows, chance or random.Random())


def _are_alike(fold: Fold, pieces: Sequence[Delta], short: Delta) -> bool:
    """Whether the changes are equal row by row, so that views of them hold the same. If not, the views may still."""
    import pyarrow as pa

    if fold.view.aggregation is not None:
        return False  # the groups of two pieces have to be merged first
    rows = _in_order(pa.concat_tables([one.rows for one in pieces]))
    names = rows.column_names
    return sorted(names) == sorted(short.rows.column_names) and all(rows[one].equals(short.rows[one]) for one in names)


def _spans(ranges: Ranges) -> dict[int, tuple[int, int]]:
    return {one.partition: (one.start, one.stop) for one in ranges}


def _within(delta: Delta, ranges: Ranges) -> Delta:
    """The part of a change, not of counters, that is of these ranges."""
    return Delta(_rows_within(delta.rows, ranges), _spans(ranges))


def _rows_within(rows: pa.Table, ranges: Ranges) -> pa.Table:
    import pyarrow.compute as pc

    partitions, offsets = rows[PARTITION], rows[OFFSET]
    parts = [
        pc.and_(
            pc.equal(partitions, one.partition),
            pc.and_(pc.greater_equal(offsets, one.start), pc.less(offsets, one.stop)),
        )
        for one in ranges
    ]
    return rows.filter(reduce(pc.or_, parts))


def _count(ranges: Ranges) -> int:
    return sum(one.stop - one.start for one in ranges)


def _cut(ranges: Ranges, chance: random.Random) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Split each partition's range at a random offset. A range of one offset is not split."""
    first, second = [], []
    for one in ranges:
        at = chance.randint(one.start + 1, max(one.start + 1, one.stop - 1))
        first += [one._replace(stop=min(at, one.stop))]
        second += [one._replace(start=at)] if at < one.stop else []
    return first, second


def _held(fold: Fold, shape: Shape, deltas: Iterable[Delta]) -> Counter[str]:
    """The contents of a view after these changes, in plain Python: each row as a text, with its count."""
    if fold.view.aggregation is not None:
        return held_counters(fold.view.aggregation, deltas)
    rows = (row for delta in deltas for row in delta.rows.to_pylist())
    if not fold.view.is_keyed:
        return Counter(_text(row, ()) for row in rows)
    if shape.keeps_rows:
        return _held_rows(fold, shape, rows)
    held: dict[Any, tuple[tuple[int, int], list[str]]] = {}
    for row in rows:
        key, coordinate = row[shape.record_key], (row[PARTITION], row[OFFSET])
        if held.get(key, (None,))[0] != coordinate:
            held[key] = (coordinate, [])
        if not row[DELETED]:
            held[key][1].append(_text(row, (*META, RECORD)))
    return Counter(text for _, texts in held.values() for text in texts)


def _held_rows(fold: Fold, shape: Shape, rows: Iterable[dict[str, Any]]) -> Counter[str]:
    """As `_held`, of rows with keys of their own. Rows that two record keys write are compared, too: both are kept."""
    key = fold.view.filled(shape)
    kept: dict[tuple[Any, ...], str] = {}
    for row in rows:
        record, own = row[shape.record_key or ""], tuple(row[name] for name in key)
        if row[DELETED] and None in own:
            kept = {at: text for at, text in kept.items() if at[0] != record}
        elif row[DELETED]:
            kept.pop((record, own), None)
        else:
            kept[record, own] = _text(row, (*META, RECORD))
    return Counter(kept.values())


def _text(row: dict[str, Any], without: Sequence[str]) -> str:
    kept = {name: row[name] for name in sorted(row) if name not in without}
    return json.dumps(kept, default=repr, ensure_ascii=False)


def _difference(one: Counter[str], other: Counter[str]) -> str:
    for what, more in (("such as", one - other), ("without", other - one)):
        if more:
            return f"{what} {next(iter(more))[:300]}"
    return "in another number"
