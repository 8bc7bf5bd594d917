"""The runner: plans ranges, has Spark read and fold them, and hands each view its change with its new bookmark.

One thread moves all feeds; a second one has Spark compute the next range while the views store this one. There is no
Spark checkpoint and nothing else to lose: every feed begins where its view's bookmark says, and a view that has moved
on meanwhile refuses what was computed for its old place. To follow a range: `step`, `_begin`, `_compute`, `_apply`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession

from foldlog.clock import Clock, SystemClock
from foldlog.errors import FoldError, FoldlogError, SchemaChanged, StaleBookmark
from foldlog.limits import FOLD_TRIAL_YOUNG_OFFSETS
from foldlog.spark.folds.dead_letters import bury
from foldlog.spark.folds.deltas import PlannedFold, PreparedFold, in_offset_order, prepare, ranges_read
from foldlog.spark.folds.faults import Folded, letters_of, places_at, without_faults
from foldlog.spark.folds.feed import Feed, State, ends_of, is_for_good, lag_of, placed, starting_bookmark
from foldlog.spark.folds.fingerprint import PlanChanged, logic_to_store, unsteady, with_logic
from foldlog.spark.folds.moved_keys import with_growths
from foldlog.spark.folds.ranges import RANGE_BYTES, RangeSizes, after, beyond, next_ranges
from foldlog.spark.folds.reading import Seen, TopicFrames
from foldlog.spark.folds.reference import long_delta, sampled, try_fold
from foldlog.spark.folds.spark_errors import brief_spark_error, is_damage, is_gone, why_gone
from foldlog.spark.origins.ledger import Ledger
from foldlog.spark.origins.origin import Bounds, OffsetRange, Origin, TopicFacts
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import Delta

if TYPE_CHECKING:
    import pyarrow as pa

RANGES_AHEAD_MAX: Final = 2
"""How many ranges are kept that were read ahead, however many folds stand at places of their own."""

OnProgress = Callable[[Feed], None]

WAIT_S: Final = 1.0
"""How long a runner waits for Spark before it says that it is still there."""

Result = TypeVar("Result")

_REPLANNED_MAX: Final = 3
"""How often a range is planned anew because its function gave another plan; then it gives another one each time."""

LOOK_EVERY_MS: Final = 1000
"""How often a view that has read everything is asked for its bookmark."""


@dataclass(frozen=True)
class _Standing:
    """Where a feed stands: what its view stores, and where to read from, with partitions that it meets just now."""

    feed: Feed
    stored: Bookmark
    base: Bookmark

    @property
    def is_young(self) -> bool:
        """So little of the topic is in the view that there was hardly anything to cut when the fold was tried."""
        return self._read < FOLD_TRIAL_YOUNG_OFFSETS and not self.base.reached

    @property
    def _read(self) -> int:
        return sum(at.offset - self.base.origins[number] for number, at in self.base.positions.items())

    def sample(self, ranges: Sequence[OffsetRange], bounds: Mapping[int, Bounds]) -> list[OffsetRange]:
        """What to try the fold on: these ranges, and what stands before them in the topic, as far as it is there."""
        earlier = {number: max(start, bounds[number].start) for number, start in self.base.origins.items()}
        whole = [one._replace(start=min(one.start, earlier.get(one.partition, one.start))) for one in ranges]
        named = {one.partition for one in ranges}
        for number, at in self.base.positions.items():
            if number not in named and earlier[number] < at.offset:
                whole.append(OffsetRange(self.base.topic, number, earlier[number], at.offset))
        return sampled(whole)

    def sharing(self, ends: Mapping[int, int]) -> object:
        """Feeds with equal ones can share a read."""
        fold = self.feed.fold
        # Equal in all that decides which rows Spark reads, and how: one read then gives each of them what it would have
        # read alone. Whoever fails, is rewound or lags has another position, and so leaves the others by itself.
        positions = tuple(sorted((number, at.offset) for number, at in self.base.positions.items()))
        reach = tuple(sorted(ends.items()))
        how = (
            fold.view.is_keyed,
            self.feed.range_bytes,
            self.feed.prepared is not None and self.feed.prepared.is_plain,
            id(self.feed) if self.feed.goes_long else 0,
        )
        return (id(fold.topic), self.base.topic_id, positions, reach, how)


@dataclass(frozen=True)
class _Outcome:
    """What Spark made of a range: for each feed its change or what went wrong, and the records that did not parse, or
    that its fold fails at.
    """

    deltas: Sequence[Delta | Exception]
    dead: Sequence[pa.Table | None]
    seen: Seen


@dataclass(frozen=True)
class _Batch:
    """One range that is being computed, for feeds that stand at the same place."""

    standings: Sequence[_Standing]
    ranges: tuple[OffsetRange, ...]
    bounds: Mapping[int, Bounds]
    began_ms: float
    outcome: Future[_Outcome]

    def new(self, standing: _Standing) -> Bookmark:
        return after(standing.base, self.ranges, self.bounds)


def is_unread(bookmark: Bookmark) -> bool:
    """Whether a view with this bookmark has read nothing yet."""
    return not bookmark.reached and all(
        at.offset == bookmark.origins[number] for number, at in bookmark.positions.items()
    )


def _planned(prepared: PreparedFold, given: DataFrame) -> PlannedFold | Exception:
    try:
        return prepared.plan(given)
    except Exception as error:  # noqa: BLE001 one fold's trouble is not the others'
        return error


def _merged_letters(one: pa.Table | None, other: pa.Table | None) -> pa.Table | None:
    """The letters of both, in the order of their places."""
    import pyarrow as pa

    if one is None or other is None:
        return other if one is None else one
    return in_offset_order(pa.concat_tables([one.cast(other.schema), other]))


def _all_of(used: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    """The columns that somebody uses; None as soon as nobody knows of one."""
    columns: set[str] = set()
    for one in used:
        if one is None:
            return None
        columns |= one
    return frozenset(columns)


def awaited(outcome: Future[Result], meanwhile: Callable[[], None], every_s: float = WAIT_S) -> Result:
    """What it comes to, or raises; `meanwhile` is called again and again until then."""
    while not wait([outcome], every_s).done:
        meanwhile()
    return outcome.result()


class Runner:
    """Moves feeds. One thread calls `step`; on it, `on_progress` is told after every range and every failure, and
    `on_wait` is called now and then while Spark takes its time over one."""

    def __init__(
        self,
        spark: SparkSession,
        origin: Origin,
        ledger: Ledger,
        feeds: Iterable[Feed] = (),
        *,
        range_bytes: int = RANGE_BYTES,
        clock: Clock | None = None,
        on_progress: OnProgress | None = None,
        on_wait: Callable[[], None] | None = None,
    ) -> None:
        self.feeds = list(feeds)
        self.origin = origin
        self.ledger = ledger
        self.clock = clock or SystemClock()
        self._spark = spark
        self._range_bytes = range_bytes
        self._on_progress = on_progress or (lambda feed: None)
        self._on_wait = on_wait or (lambda: None)
        self._sizes = RangeSizes(origin)
        self._frames: dict[tuple[int, str], TopicFrames] = {}
        self._ahead: list[_Batch] = []
        # One thread beside ours: Spark computes the next range while a view stores this one. More would only compete
        # for the same executors, and hold more ranges in the driver's memory.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="foldlog-spark")

    def close(self) -> None:
        """Wait for what Spark is computing, and let go of the views. The origin and the ledger are their owner's."""
        self._pool.shutdown(cancel_futures=True)
        for feed in self.feeds:
            feed.view.close()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def drain(self, stop: Event | None = None) -> None:
        """Until nothing is left to read, everything failed for good, or `stop` is set. Waits out retries."""
        stop = stop or Event()
        while not stop.is_set():
            if self.step():
                continue
            waiting = [feed for feed in self.feeds if feed.state == State.WAITING]
            if not waiting:
                return
            soonest_ms = min(feed.retry_at_ms for feed in waiting)
            stop.wait(max(0.0, soonest_ms - self.clock.monotonic_ms()) / 1000)

    def step(self) -> bool:
        """One range for every group of feeds that stand at the same place; whether there was any.

        A feed's failure is the feed's. FoldError only if Spark has ended: then nothing can go on.
        """
        now_ms = self.clock.monotonic_ms()
        self._forget_idle()
        topics: dict[str, tuple[TopicFacts, dict[int, Bounds]]] = {}
        groups: dict[object, list[_Standing]] = {}
        reach: dict[object, tuple[Mapping[int, int], Mapping[int, Bounds]]] = {}
        for feed in self.feeds:
            if not feed.is_ready or (feed.state == State.WAITING and now_ms < feed.retry_at_ms):
                continue
            try:
                name = feed.fold.topic.name
                if name not in topics:
                    # The ends first: a growth that they may lie behind is then among the facts.
                    bounds = self.origin.bounds(name)
                    topics[name] = (self.origin.topic(name), bounds)
                facts, bounds = topics[name]
                standing = self._stand(feed, facts, bounds)
                in_order = with_growths(feed, standing.base, self.origin, facts, bounds)
                ends = ends_of(feed, standing.base, in_order, bounds)
            except Exception as error:  # noqa: BLE001 one feed's trouble is not the others'
                self._fail(feed, error)
                continue
            feed.lag = lag_of(feed, standing.base, bounds)
            key = standing.sharing(ends)
            groups.setdefault(key, []).append(standing)
            reach[key] = (ends, bounds)
        moved = [self._serve(standings, *reach[key]) for key, standings in groups.items()]
        return any(moved)

    # --- where a feed stands --------------------------------------------------------------------------------------

    def _stand(self, feed: Feed, facts: TopicFacts, bounds: Mapping[int, Bounds]) -> _Standing:
        frames = self._frames_of(feed, facts)
        if feed.prepared is None or feed.prepared.frames is not frames:  # the topic may be another one by now
            feed.prepared = prepare(feed.fold, frames)
        if feed.bookmark is None:
            start = feed.start or starting_bookmark(facts, bounds)
            feed.bookmark = feed.view.prepare(feed.prepared.shape, start, loading=feed.is_loading)
        feed.is_placed = False
        base = self._with_logic(feed, placed(feed, self.origin, facts, bounds))
        feed.is_placed = True
        return _Standing(feed, feed.bookmark, base)

    def _with_logic(self, feed: Feed, base: Bookmark) -> Bookmark:
        """The bookmark with what the fold does now; FoldError if its view was made by another function."""
        if feed.prepared is None or feed.bookmark is None:
            raise FoldError(f"fold {feed.name!r} was not prepared")
        logic = logic_to_store(
            feed.fold.name,
            feed.bookmark,
            feed.prepared.logic,
            has_rows=not is_unread(base),
            accept_change=feed.accept_change,
        )
        before = feed.bookmark.logic
        if before is not None and (logic.mixes > before.mixes or logic.plan != before.plan):
            # At once, and not with the next range: who asks has to be told, and is told once.
            # A change of the bookmark alone, and compared like any other: a runner with the older function that stores
            # after this is refused, and finds out.
            accepted = with_logic(feed.bookmark, logic)
            feed.view.move(feed.bookmark, accepted)
            feed.bookmark = accepted
        return with_logic(base, logic)

    def _frames_of(self, feed: Feed, facts: TopicFacts) -> TopicFrames:
        topic = feed.fold.topic
        key = (id(topic), facts.topic_id)
        if key not in self._frames:
            self._frames[key] = TopicFrames(self._spark, topic, self.origin.spec, facts.topic_id)
        return self._frames[key]

    def _fail(self, feed: Feed, error: BaseException) -> None:
        if isinstance(error, StaleBookmark):
            # Somebody else moved the view on, or moved its bookmark: that is where to go on from.
            feed.bookmark = None
            return
        if isinstance(error, PlanChanged) and feed.prepared is not None:
            again = self._looked_at_again(feed, feed.prepared)
            if again is None:
                return
            error = again
        if is_gone(self._spark):
            raise FoldError(f"{why_gone(error)}; the views are whole, run the folds again") from error
        if isinstance(error, SchemaChanged):
            error = SchemaChanged(error.place, error.why, feed.fold.name)
        if not isinstance(error, FoldlogError):
            told = FoldError(f"fold {feed.name!r} failed in Spark: {brief_spark_error(error)}")
            if is_damage(error):
                feed.fail(told, self.clock.monotonic_ms(), for_good=True)
            else:
                feed.fail_again(told, self.clock.monotonic_ms())
        else:
            feed.fail(error, self.clock.monotonic_ms(), for_good=is_for_good(error))
        self._on_progress(feed)

    def _looked_at_again(self, feed: Feed, prepared: PreparedFold) -> Exception | None:
        """What its function does now is taken note of, as at a start: the next step sees whether the view may be of
        another function. What is wrong with it, if it cannot be right. The view keeps the columns that it was promised.
        """
        feed.replanned += 1
        if feed.replanned >= _REPLANNED_MAX:
            return unsteady(feed.fold.name)
        try:
            feed.prepared = replace(prepared, logic=prepare(feed.fold, prepared.frames).logic)
        except Exception as error:  # noqa: BLE001 one feed's trouble is not the others'
            return error
        return None

    # --- one range ------------------------------------------------------------------------------------------------

    def _serve(self, standings: list[_Standing], ends: Mapping[int, int], bounds: Mapping[int, Bounds]) -> bool:
        """Compute the next range of these feeds, begin the one after it, and store this one."""
        batch = self._read_ahead(standings) or self._begin(standings, ends, bounds)
        if batch is None:
            return self._caught_up(standings)
        try:
            outcome = awaited(batch.outcome, self._on_wait)
        except Exception as error:  # noqa: BLE001 whatever Spark fails with
            for standing in standings:
                self._fail(standing.feed, error)
            return True
        if outcome.seen.bytes:
            offsets = sum(one.stop - one.start for one in batch.ranges)
            self._sizes.met(batch.ranges[0].topic, offsets, outcome.seen.bytes)
        # Begun before this one is stored, as if that had worked: most often it does. If it does not, the feed stands
        # elsewhere the next time, and `_read_ahead` drops what was begun for a place where nobody stands.
        following = [_Standing(one.feed, batch.new(one), batch.new(one)) for one in standings]
        if len(self._ahead) < RANGES_AHEAD_MAX and all(isinstance(delta, Delta) for delta in outcome.deltas):
            ahead = self._begin(following, ends, bounds)
            if ahead is not None:
                self._ahead.append(ahead)
        for standing, delta, dead in zip(standings, outcome.deltas, outcome.dead, strict=True):
            try:
                self._apply(standing, batch, delta, dead, outcome.seen)
            except Exception as error:  # noqa: BLE001 one feed's trouble is not the others'
                self._fail(standing.feed, error)
        return True

    def _caught_up(self, standings: Sequence[_Standing]) -> bool:
        """Nothing is left for these feeds; whether one of them has more to do after all."""
        has_more = False
        for standing in standings:
            feed = standing.feed
            try:
                if self._was_moved(feed):
                    has_more = True
                    continue
                is_done = feed.on_caught_up() if feed.on_caught_up is not None else False
            except Exception as error:  # noqa: BLE001 a swap may fail like an apply
                self._fail(feed, error)
                continue
            feed.recovered()
            changed = feed.state != State.CAUGHT_UP
            feed.state = State.DONE if is_done else State.CAUGHT_UP
            if feed.on_caught_up is not None and not is_done:
                feed.state, has_more = State.RUNNING, True  # a replay with another round before it
            feed.rows_per_s = 0.0
            if changed:
                self._on_progress(feed)
        return has_more

    def _was_moved(self, feed: Feed) -> bool:
        """Whether somebody moved the bookmark of a feed that waits at the end, or removed its view. It is looked for
        now and then: a feed that reads finds out by itself, when the view refuses what it read.
        """
        now_ms = self.clock.monotonic_ms()
        if feed.on_caught_up is not None or now_ms - feed.looked_ms < LOOK_EVERY_MS:
            return False
        feed.looked_ms = now_ms
        if feed.view.bookmark() == feed.bookmark:
            return False
        feed.bookmark = None
        return True

    def _read_ahead(self, standings: Sequence[_Standing]) -> _Batch | None:
        """What was begun for exactly these feeds at exactly this place. What was begun for another place is dropped."""
        feeds = {id(one.feed) for one in standings}
        for batch in [one for one in self._ahead if any(id(other.feed) in feeds for other in one.standings)]:
            self._ahead.remove(batch)
            begun = [(id(one.feed), one.base) for one in batch.standings]
            if begun == [(id(one.feed), one.base) for one in standings]:
                return batch
            batch.outcome.cancel()
        return None

    def _forget_idle(self) -> None:
        """What was begun for feeds that have failed, are paused or gone is not kept for them: it may be large."""
        ready = {id(feed) for feed in self.feeds if feed.is_ready}
        for batch in [one for one in self._ahead if any(id(other.feed) not in ready for other in one.standings)]:
            self._ahead.remove(batch)
            batch.outcome.cancel()

    def _begin(
        self, standings: Sequence[_Standing], ends: Mapping[int, int], bounds: Mapping[int, Bounds]
    ) -> _Batch | None:
        first = standings[0]
        reach = {number: end for number, end in ends.items() if end > (first.base.offset(number) or 0)}
        if not reach:
            return None
        budget = self._sizes.budget(first.base, reach, first.feed.range_bytes or self._range_bytes)
        # A verification cuts where the fold did not: a function that depends on the cut gives other rows then.
        if first.feed.goes_long:
            budget = random.randint(max(1, budget // 3), budget)
        ranges = tuple(next_ranges(first.base, reach, budget))
        if first.feed.goes_long:
            outcome = self._pool.submit(self._compute_long, standings, ranges)
        else:
            outcome = self._pool.submit(self._compute, standings, ranges, bounds)
        return _Batch(standings, ranges, bounds, self.clock.monotonic_ms(), outcome)

    def _compute(
        self, standings: Sequence[_Standing], ranges: Sequence[OffsetRange], bounds: Mapping[int, Bounds]
    ) -> _Outcome:
        """On the second thread: the change of each view; of those that hold next to nothing yet, after a trial."""
        prepared = [one.feed.prepared for one in standings if one.feed.prepared is not None]
        outcome = self._compute_short(prepared, ranges)
        deltas = [
            self._tried(one, ranges, delta, standing.sample(ranges, bounds))
            if standing.is_young and isinstance(delta, Delta)
            else delta
            for standing, one, delta in zip(standings, prepared, outcome.deltas, strict=True)
        ]
        return replace(outcome, deltas=deltas)

    def _tried(
        self, prepared: PreparedFold, ranges: Sequence[OffsetRange], delta: Delta, sample: list[OffsetRange]
    ) -> Delta | Exception:
        """The delta, if folding a sample in another way gives the same; else why not."""
        try:
            if sample != list(ranges):
                (short,) = self._compute_short([prepared], sample).deltas
                if isinstance(short, Exception):
                    return short
            else:
                short = delta
            self._try(prepared, sample, short)
        except Exception as error:  # noqa: BLE001 one fold's trouble is not the others'
            return error
        return delta

    def _try(self, prepared: PreparedFold, sample: Sequence[OffsetRange], short: Delta) -> None:
        try:
            try_fold(prepared.fold, prepared.frames, prepared.shape, sample, short)
        except FoldError as error:
            # Two ways give two results if the function is not the same both times: that is no mistake of a way.
            given = prepared.frames.rows(sample, None, needs_key=prepared.needs_key)
            try:
                prepared.plan(given)
            except PlanChanged as changed:
                raise FoldError(str(changed)) from error
            finally:
                prepared.frames.forget(given)
            raise

    def _compute_long(self, standings: Sequence[_Standing], ranges: Sequence[OffsetRange]) -> _Outcome:
        """On the long way, for the one feed that goes it."""
        prepared = standings[0].feed.prepared
        if prepared is None:
            raise FoldError(f"fold {standings[0].feed.name!r} was not prepared")
        delta = long_delta(prepared.fold, prepared.frames, prepared.shape, ranges)
        return _Outcome([delta], [None], Seen())

    def _compute_short(self, prepared: Sequence[PreparedFold], ranges: Sequence[OffsetRange]) -> _Outcome:
        """Spark reads the range once, and runs each fold over it."""
        frames, needs_key = prepared[0].frames, prepared[0].needs_key
        seen = frames.count()
        given = frames.rows(ranges, seen, needs_key=needs_key)
        try:
            planned = [_planned(one, given) for one in prepared]
            deltas: Sequence[Delta | Exception]
            if all(isinstance(one, PlannedFold) and one.is_plain for one in planned):
                seen = frames.count()  # what the functions read by themselves does not count
                table = frames.table(ranges, seen, needs_key=needs_key)
                deltas = [Delta(table, ranges_read(ranges))] * len(planned)
            else:
                deltas = self._folded(frames, given, planned, ranges, seen)
        finally:
            frames.forget(given)
        met = seen.value
        found = [without_faults(one, ranges, delta) for one, delta in zip(prepared, deltas, strict=True)]
        met = met.with_more(seen.value)  # what failed was perhaps not counted, and then counted anew
        faults = [one.faults if isinstance(one, Folded) else () for one in found]
        # A record that a fold fails at has been parsed.
        sound = list(beyond(ranges, places_at(ranges, [fault for some in faults for fault in some])))
        dead = frames.met_dead(sound, met, needs_key=needs_key)
        return _Outcome(
            [one.delta if isinstance(one, Folded) else one for one in found],
            [_merged_letters(dead, letters_of(one, ranges, some)) for one, some in zip(prepared, faults, strict=True)],
            met,
        )

    def _folded(
        self,
        frames: TopicFrames,
        given: DataFrame,
        planned: Sequence[PlannedFold | Exception],
        ranges: Sequence[OffsetRange],
        seen: Accumulator[Seen],
    ) -> list[Delta | Exception]:
        good = [one for one in planned if isinstance(one, PlannedFold)]
        used = _all_of(one.used for one in good)
        if len(good) > 1:
            given.persist()
        deltas: list[Delta | Exception] = []
        with frames.narrowed(used):
            for one in planned:
                if isinstance(one, Exception):
                    deltas.append(one)
                    continue
                try:
                    deltas.append(one.delta(ranges, seen))
                except Exception as error:  # noqa: BLE001 one fold's trouble is not the others'
                    deltas.append(error)
                    if len(good) > 1:
                        # A task that failed may have left its rows, but Spark forgets what it counted: dead records
                        # and tombstones would go unnoticed. What the next fold reads is counted again.
                        given.unpersist(blocking=True)
                        given.persist()
        return deltas

    def _apply(
        self, standing: _Standing, batch: _Batch, delta: Delta | Exception, dead: pa.Table | None, seen: Seen
    ) -> None:
        feed = standing.feed
        if isinstance(delta, Exception):
            raise delta
        # The letters first: a crash between the two writes them again, under the same key. The other way round it would
        # lose them, with a bookmark that says they were dealt with.
        if dead is not None and dead.num_rows and feed.buries:
            bury(feed.fold, dead, self.ledger, strict=feed.strict)
            feed.dead += dead.num_rows
        # Compared and set in the view's own transaction, with the rows: two runners of one fold may both compute a
        # range, and the view takes one of them. Exactly once rests on this, and on nothing that Spark or the log does.
        new = batch.new(standing)
        feed.view.apply(delta, standing.stored, new)
        feed.bookmark = new
        feed.recovered()
        feed.state = State.RUNNING
        now_ms = self.clock.monotonic_ms()
        offsets = sum(one.stop - one.start for one in batch.ranges)
        since_ms = feed.applied_ms if feed.applied_ms > batch.began_ms - 1000 else batch.began_ms
        feed.rows_per_s = offsets / max(0.001, (now_ms - since_ms) / 1000)
        feed.applied_ms = now_ms
        feed.records += seen.records
        feed.rows += delta.rows.num_rows
        feed.last_ranges = batch.ranges
        feed.lag = max(0, feed.lag - offsets)
        self._on_progress(feed)
