"""Backfill: the rows of some keys are computed anew from all their records, and replaced in a view that goes on.

A view is the fold of the records between where it begins and its bookmark. Of a keyed view, the rows of one key depend
on that key's records alone. So they can be replaced by what the fold makes of these records now, in one change that
leaves the bookmark where it is: the view holds what its bookmark says, before and after. It is of use where rows were
changed by hand, or where what a function reads from outside has changed for some keys; what has changed for all of them
needs a rebuild.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from foldlog.client.places import parse_place
from foldlog.clock import SystemClock
from foldlog.errors import FoldError, InvalidArgument, StaleBookmark, brief_repr
from foldlog.limits import FOLD_BACKFILL_KEYS_MAX
from foldlog.spark.decoders.record_types import ByKey
from foldlog.spark.folds.commands import Source, opened, session_of
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.ranges import next_ranges, reachable_ends
from foldlog.spark.folds.replay import described, range_in, what_is_missing
from foldlog.spark.origins.origin import Bounds, OffsetRange, Origin, TopicFacts, TopicGrowth
from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import DELETED, OFFSET, PARTITION, RECORD, TIMESTAMP, TOPIC, Delta

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from foldlog.spark.folds.commands import Spark

_TRIES: Final = 20

_RANGE_OFFSETS: Final = 100_000
"""How many offsets are looked through at once: if all were of these keys, Spark would still keep them in its plan."""


@dataclass(frozen=True, slots=True)
class Backfilled:
    """What a backfill has done: how many keys it looked for, and how many records and rows it found of them."""

    keys: int
    records: int
    rows: int


def backfill(
    fold: Fold,
    source: Source,
    *,
    keys: Iterable[str | bytes] = (),
    of: str | None = None,
    spark: Spark | None = None,
) -> Backfilled:
    """Replace the rows of these record keys, or of all keys with a record in the range `of` (docs/places.md, such as
    "@2026-01-15:1d"), by what the fold makes of all their records up to the view's bookmark.

    A runner may go on meanwhile. The records of these keys have to fit the driver's memory.
    """
    given = _checked(fold, keys, of)
    with opened(source, [fold]) as (origin, _):
        try:
            return _Backfill(fold, origin, spark).done(given, of)
        finally:
            fold.close()


def _checked(fold: Fold, keys: Iterable[str | bytes], of: str | None) -> set[bytes]:
    """The keys as bytes; InvalidArgument or FoldError if nothing can be done with them, or with this view."""
    if isinstance(keys, str | bytes):
        raise InvalidArgument(f"keys= is a list of record keys, as in keys=[{keys!r}]")
    given = list(keys)
    if not all(isinstance(one, str | bytes) for one in given):
        raise InvalidArgument("keys= are record keys, as text or as bytes")
    if bool(given) == (of is not None):
        raise InvalidArgument("a backfill needs keys, or a range of records whose keys are meant: one of the two")
    if len(fold.parts) > 1 or not fold.view.is_keyed or fold.view.kind not in ("table", "search", "lake"):
        raise FoldError(
            f"{fold.view.place} cannot be backfilled by key: its rows depend on more than one key's records;"
            f" rebuild it: foldlog fold rebuild {fold.name}"
        )
    if fold.topic.is_several:
        raise FoldError(
            f"fold {fold.name!r} reads several topics as one, and a key means another record in each; rebuild its view:"
            f" foldlog fold rebuild {fold.name}"
        )
    if not fold.topic.keys:
        raise FoldError(f"topic {fold.topic.name!r} names no key, so there are no keys to backfill; rebuild the view")
    return {one.encode() if isinstance(one, str) else one for one in given}


class _Backfill:
    """One backfill under way. Owned by the thread that asked for it."""

    def __init__(self, fold: Fold, origin: Origin, spark: Spark | None) -> None:
        self._fold = fold
        self._origin = origin
        self._session: SparkSession | None = None
        self._spark = spark
        name = fold.topic.name
        self._bounds: dict[int, Bounds] = origin.bounds(name)
        self._facts: TopicFacts = origin.topic(name)

    def done(self, keys: set[bytes], of: str | None) -> Backfilled:
        stored = self._stored()
        if of is not None:
            keys = self._keys_in(of, stored)
        if not keys:
            return Backfilled(0, 0, 0)
        narrowed = copy(self._fold)
        narrowed.topic = replace(self._fold.topic, only=ByKey(tuple(sorted(keys)), self._fold.topic.only))
        parts: list[pa.Table] = []
        records = 0
        cursor = _at_origins(stored)
        for _ in range(_TRIES):
            for ranges in self._ranges(cursor, stored):
                rows, count = self._computed(narrowed, ranges, stored)
                parts.append(rows)
                records += count
            cursor = stored
            try:
                rows_stored = self._apply(parts, stored)
            except StaleBookmark:
                stored = self._followed(stored)  # its runner has stored a range meanwhile, which is read, too
                continue
            return Backfilled(len(keys), records, rows_stored)
        raise FoldError(f"fold {self._fold.name!r} moved on {_TRIES} times while it was backfilled; pause its runner")

    def _stored(self) -> Bookmark:
        stored = self._fold.view.bookmark()
        if stored is None:
            raise FoldError(f"fold {self._fold.name!r} has no view yet, so there is nothing to backfill; run it first")
        missing = what_is_missing(self._fold, stored, self._origin)
        if missing:
            raise FoldError(f"fold {self._fold.name!r} cannot be backfilled to what it is: {missing}")
        if stored.reached:
            raise FoldError(
                f"the view of fold {self._fold.name!r} was rewound to {described(stored)}, and holds more than that;"
                " run the fold first"
            )
        return stored

    def _followed(self, before: Bookmark) -> Bookmark:
        now = self._stored()
        if now.epoch != before.epoch or now.origins != before.origins:
            raise FoldError(f"the view of fold {self._fold.name!r} was moved or rebuilt meanwhile; backfill it again")
        return now

    def _keys_in(self, of: str, stored: Bookmark) -> set[bytes]:
        now_ms = SystemClock().now_ms()
        place = parse_place(of, now_ms=now_ms)
        if not place.is_range:
            raise InvalidArgument(f"{brief_repr(of)} is not a range; give two ends, as in 100:200 or @2026-01-15:1d")
        found: set[bytes] = set()
        spans = range_in(place, stored, self._bounds, self._origin, now_ms)
        for _, batch in self._origin.read_all(spans, ["key"], topic_id=stored.topic_id):
            found.update(key for key in batch.column("key").to_pylist() if key is not None)
            if len(found) > FOLD_BACKFILL_KEYS_MAX:
                raise FoldError(
                    f"records of more than {FOLD_BACKFILL_KEYS_MAX} keys are in {of!r}; rebuild the view instead:"
                    f" foldlog fold rebuild {self._fold.name}"
                )
        return found

    def _ranges(self, cursor: Bookmark, stored: Bookmark) -> Iterator[list[OffsetRange]]:
        """From the cursor to the bookmark; up to each growth of the topic first, so that keys' records are in order."""
        stops = {number: at.offset for number, at in stored.positions.items()}
        cursor = cursor.met(dict.fromkeys(stops, 0))
        facts = self._with_growths(cursor, stops)
        bounds = {number: self._bounds[number]._replace(end=stop) for number, stop in stops.items()}
        while True:
            ends = reachable_ends(cursor, facts, bounds)
            ranges = next_ranges(
                cursor, {number: min(end, stops[number]) for number, end in ends.items()}, _RANGE_OFFSETS
            )
            if not ranges:
                return
            yield ranges
            cursor = cursor.advanced({one.partition: Position(one.stop) for one in ranges})

    def _with_growths(self, cursor: Bookmark, stops: dict[int, int]) -> TopicFacts:
        from foldlog.spark.folds.moved_keys import ends_of_moved_keys

        if self._facts.growths is not None or len(stops) < 2:
            return self._facts
        name = self._fold.topic.name
        ranges = [OffsetRange(name, number, cursor.offset(number) or 0, stop) for number, stop in sorted(stops.items())]
        ends = ends_of_moved_keys(self._origin, ranges, self._facts.topic_id)
        return replace(self._facts, growths=(TopicGrowth(len(ranges), ends),) if any(ends) else ())

    def _computed(self, narrowed: Fold, ranges: Sequence[OffsetRange], stored: Bookmark) -> tuple[pa.Table, int]:
        """The change by the records of these keys, and how many there are."""
        from foldlog.spark.folds.deltas import prepare
        from foldlog.spark.folds.reading import TopicFrames
        from foldlog.spark.folds.runner import previewed

        self._session = self._session or session_of(self._spark)  # started once, and as late as this
        frames = TopicFrames(self._session, narrowed.topic, self._origin.spec, self._facts.topic_id)
        prepared = prepare(narrowed, frames)
        if stored.logic is not None and prepared.logic.plan != stored.logic.plan:
            raise FoldError(
                f"the function of fold {self._fold.name!r} is not the one that its view was made with; rebuild the"
                " view, or run the fold with --accept-change first"
            )
        self._fold.view.prepare(prepared.shape, stored)
        _, given, rows, _ = previewed(narrowed, frames, self._origin, ranges)
        if prepared.shape.keeps_rows:
            rows = _withdrawn(narrowed, given, rows, prepared.shape.record_key or RECORD)
        return rows, given.num_rows

    def _apply(self, parts: Sequence[pa.Table], stored: Bookmark) -> int:
        import pyarrow as pa

        rows = pa.concat_tables(parts) if parts else None
        if rows is None or not rows.num_rows:
            return 0
        # Another epoch: what a runner has read for the old bookmark does not know of this.
        self._fold.view.apply(Delta(rows, {}), stored, stored.moved({}))
        return int(rows.num_rows)


def _at_origins(stored: Bookmark) -> Bookmark:
    return replace(stored, positions={number: Position(at) for number, at in stored.origins.items()})


def _withdrawn(fold: Fold, given: pa.Table, rows: pa.Table, record_key: str) -> pa.Table:
    """The rows behind a withdrawal of all that their record keys have written: see `View.keeps_rows`."""
    import pyarrow as pa

    from foldlog.spark.folds.deltas import record_digests

    (column,) = fold.topic.record_columns
    owners = pa.chunked_array([given[column].unique()])
    if record_key == RECORD:
        owners = pa.chunked_array([record_digests(owners)])
    count = len(owners)
    filled = {
        record_key: owners.cast(rows.schema.field(record_key).type),
        TOPIC: pa.repeat(pa.scalar(fold.topic.name, pa.string()), count),
        PARTITION: pa.repeat(pa.scalar(0, pa.int32()), count),
        OFFSET: pa.repeat(pa.scalar(-1, pa.int64()), count),
        TIMESTAMP: pa.repeat(pa.scalar(0, pa.timestamp("us", "UTC")), count),
        DELETED: pa.repeat(pa.scalar(True), count),
    }
    columns = [filled[one.name] if one.name in filled else pa.nulls(count, one.type) for one in rows.schema]
    return pa.concat_tables([pa.table(columns, schema=rows.schema), rows])
