"""The runner: plans ranges, has Spark read and fold them, and applies each change to its view with a new bookmark.

One thread moves all feeds; a second one has Spark compute the next range while the views store this one; a third one
tries a fold while the second computes its first range. There is no Spark checkpoint and no other state: every feed
begins at its view's bookmark, and a view that has moved on meanwhile refuses a change computed for its old bookmark. To
follow a range: `step`, `_begin`, `_compute`, `_apply`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from py4j.clientserver import ClientServer
from pyspark.sql import DataFrame, SparkSession

from foldlog.clock import Clock, SystemClock
from foldlog.errors import FoldError, FoldlogError, SchemaChanged, StaleBookmark
from foldlog.limits import (
    FAULTY_RECORDS_MAX,
    FOLD_NEAR_BYTES,
    FOLD_NEAR_OFFSETS,
    FOLD_STAGED_OFFSETS_MIN,
    FOLD_TRIAL_YOUNG_OFFSETS,
)
from foldlog.spark.folds.dead_letters import bury
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.deltas import (
    PlannedFold,
    PreparedFold,
    in_offset_order,
    prepare,
    ranges_read,
)
from foldlog.spark.folds.faults import Folded, RecordFault, fault_ranges, letters_of, without_faults
from foldlog.spark.folds.feed import Feed, State, checked_bookmark, ends_of, is_for_good, lag_of, topic_of
from foldlog.spark.folds.fingerprint import PlanChanged, logic_to_store, unsteady, with_logic
from foldlog.spark.folds.moved_keys import with_growths
from foldlog.spark.folds.ranges import RANGE_BYTES, RangeSizes, after, beyond, grown_bytes, held_bytes, next_ranges
from foldlog.spark.folds.reading import Count, Seen, TopicFrames
from foldlog.spark.folds.reference import (
    ReadSample,
    TrialSample,
    check_trial,
    fold_sample,
    long_delta,
    read_sample,
    sampled,
    try_steps,
)
from foldlog.spark.folds.replay import beginning
from foldlog.spark.folds.spark_errors import brief_spark_error, is_damage, is_gone, why_gone
from foldlog.spark.origins.ledger import Ledger
from foldlog.spark.origins.origin import Bounds, OffsetRange, Origin, TopicFacts, open_origin
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import Delta
from foldlog.views.reduce.view import ReduceView
from foldlog.views.staging import StagedDelta, StageRefusal, ViewStage, staged_of

if TYPE_CHECKING:
    import pyarrow as pa

RANGES_AHEAD_MAX: Final = 2
"""The maximum number of ranges read ahead, however many folds have positions of their own."""

OnProgress = Callable[[Feed], None]

_log = logging.getLogger("foldlog")

WAIT_S: Final = 1.0
"""How long the runner waits for Spark between two calls of `on_wait`."""

Result = TypeVar("Result")

Change = Delta | StagedDelta
"""What a range changes: rows that the driver has, or that executors have written."""

_REPLANNED_MAX: Final = 3
"""How often a range is planned anew because its function returned another plan; after that the fold is refused."""

LOOK_EVERY_MS: Final = 1000
"""How often the bookmark of a view that is at the end is read again."""


@dataclass(frozen=True)
class _Standing:
    """Where a feed is: the bookmark its view stores, and the one to read from, which includes new partitions."""

    feed: Feed
    stored: Bookmark
    base: Bookmark

    @property
    def is_young(self) -> bool:
        """Whether so little is in the view that the fold's trial had hardly anything to split."""
        return self.base.read < FOLD_TRIAL_YOUNG_OFFSETS and not self.base.reached

    @property
    def needs_trial(self) -> bool:
        """Whether the fold has to be tried: not if it was, as it is now, before the view it rebuilds stored anything.
        A view with mixed logic went on with a function that was never tried.
        """
        prepared = self.feed.prepared
        return self.is_young and (prepared is None or prepared.logic != self.feed.tried)

    def sample(self, ranges: Sequence[OffsetRange], bounds: Mapping[int, Bounds]) -> list[OffsetRange]:
        """The ranges to try the fold on: these, and what precedes them in the topic and is still in the log."""
        earlier = {number: max(start, bounds[number].start) for number, start in self.base.origins.items()}
        whole = [one._replace(start=min(one.start, earlier.get(one.partition, one.start))) for one in ranges]
        named = {one.partition for one in ranges}
        for number, at in self.base.positions.items():
            if number not in named and earlier[number] < at.offset:
                whole.append(OffsetRange(self.base.topic, number, earlier[number], at.offset))
        return sampled(whole)

    def sharing(self, ends: Mapping[int, int]) -> object:
        """A key: feeds with equal keys can share a read."""
        fold = self.feed.fold
        # Equal in everything that decides which rows Spark reads, and how: one shared read gives each feed what it
        # would have read alone. A feed that fails, is rewound or lags has another position, and so leaves the group.
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
    """Spark's result for a range: for each feed its change or its error, and the dead letters: records that did not
    parse, or that its fold fails at.
    """

    deltas: Sequence[Change | Exception]
    dead: Sequence[pa.Table | None]
    seen: Seen
    refusals: Mapping[int, StageRefusal] = field(default_factory=dict)
    """Why executors have not written a change that they might have written, by the number of the feed."""
    first: Delta | None = None
    """The change by the beginning of the range, if that was computed apart; the only feed's delta is then by the rest.
    """


@dataclass(frozen=True)
class _Batch:
    """One range that is being computed, for feeds at the same position."""

    standings: Sequence[_Standing]
    ranges: tuple[OffsetRange, ...]
    bounds: Mapping[int, Bounds]
    began_ms: float
    outcome: Future[_Outcome]

    def new(self, standing: _Standing) -> Bookmark:
        return after(standing.base, self.ranges, self.bounds)


_Tried = tuple[TrialSample, Delta | None]
"""A sample folded the long way; and the short way, unless the range's delta tells that."""


@dataclass
class _Trial:
    """The trial of one fold on a sample. Its frames are its own: it runs beside the computing of a range."""

    prepared: PreparedFold
    ranges: Sequence[OffsetRange]
    short: Literal["in delta", "apart", "alone"]
    """What tells the short way's result for the sample: the range's delta, a delta of the range's job, its own job."""
    may_fold: Future[bool] = field(default_factory=Future)
    """Done when the function is not called for the range any more; False if the range failed until then."""
    is_begun: bool = False
    """On a thread of its own."""
    folded: Future[_Tried] = field(default_factory=Future)

    @classmethod
    def of(
        cls,
        prepared: PreparedFold,
        ranges: Sequence[OffsetRange],
        sample: list[OffsetRange],
        *,
        is_shared: bool,
        is_staged: bool,
    ) -> _Trial:
        short: Literal["in delta", "apart", "alone"] = "alone"
        if is_staged:
            pass  # the driver does not see the range's rows
        elif sample == list(ranges):
            short = "in delta"
        elif not list(beyond(sample, ranges)):
            # Of aggregated rows nobody can tell which are the sample's, so its groups are kept apart, and stored first.
            short = "in delta" if prepared.fold.view.aggregation is None else "alone" if is_shared else "apart"
        return cls(replace(prepared, frames=prepared.frames.aside), sample, short)


def is_unread(bookmark: Bookmark) -> bool:
    """Whether a view with this bookmark has read nothing yet."""
    return not bookmark.reached and all(
        at.offset == bookmark.origins[number] for number, at in bookmark.positions.items()
    )


def _planned(prepared: PreparedFold, given: DataFrame, *, apart: bool) -> PlannedFold | Exception:
    try:
        return prepared.plan(given, apart=apart)
    except Exception as error:  # noqa: BLE001 one fold's trouble is not the others'
        return error


def previewed(
    fold: Fold, frames: TopicFrames, origin: Origin, ranges: Sequence[OffsetRange]
) -> tuple[dict[int, tuple[int, int]], pa.Table, pa.Table, pa.Table | None]:
    """What a fold makes of these ranges, as a runner would compute it: see `commands.Preview`."""
    prepared = prepare(fold, frames)
    near = frames.near(ranges, origin, needs_key=prepared.needs_key)
    here = replace(prepared, frames=near)
    given = near.rows(ranges, None, needs_key=prepared.needs_key)
    try:
        found = without_faults(here, ranges, here.plan(given).delta(ranges, near.count()))
    except Exception as error:  # noqa: BLE001 of which the records may be the reason
        found = without_faults(here, ranges, error)
    finally:
        near.forget(given)
    if isinstance(found, Exception):
        raise found
    met = near.count().value
    unparsed = near.met_dead(ranges, met, needs_key=prepared.needs_key)
    letters = _merged_letters(unparsed, letters_of(here, ranges, found.faults))
    given_rows = near.table(ranges, None, needs_key=prepared.needs_key)
    return ranges_read(ranges), given_rows, found.delta.rows, letters


def _change(
    planned: PlannedFold,
    ranges: Sequence[OffsetRange],
    seen: Count,
    stage: ViewStage | None,
    refusals: dict[int, StageRefusal],
    number: int,
    *,
    is_cached: bool,
) -> Change:
    """The change of one view: written by the executors, if there is a place, and none of them refuses."""
    if stage is not None and planned.may_stage(stage):
        staged = planned.staged(stage, ranges, seen)
        if isinstance(staged, StagedDelta):
            return staged
        refusals[number] = staged
        if not is_cached:
            seen = planned.prepared.frames.count()  # the records are read, and counted, again
    return planned.delta(ranges, seen)


def _plain_changes(
    prepared: Sequence[PreparedFold],
    ranges: Sequence[OffsetRange],
    seen: Count,
    stages: Sequence[ViewStage | None],
    refusals: dict[int, StageRefusal],
) -> list[Change | Exception]:
    """The changes of views whose folds return their rows unchanged. All places are filled by one read, and all others
    share one more.
    """
    frames, needs_key, read = prepared[0].frames, prepared[0].needs_key, ranges_read(ranges)
    changes: list[Change | Exception | None] = [None] * len(prepared)
    numbers = [number for number, stage in enumerate(stages) if stage is not None]
    stagings = [prepared[number].staging(stage) for number, stage in enumerate(stages) if stage is not None]
    if stagings:
        reports = frames.stage(ranges, seen, stagings, needs_key=needs_key)
        for number, staging, found in zip(numbers, stagings, reports, strict=True):
            staged, _ = staged_of(staging.stage, found, read)
            if isinstance(staged, StagedDelta):
                changes[number] = staged
            else:
                refusals[number] = staged
    if all(change is not None for change in changes):
        return [change for change in changes if change is not None]
    # The first read has counted the records.
    table = frames.table(ranges, None if stagings else seen, needs_key=needs_key)
    return [Delta(table, read) if change is None else change for change in changes]


def _outcome(
    prepared: Sequence[PreparedFold],
    ranges: Sequence[OffsetRange],
    changes: Sequence[Change | Exception],
    seen: Count,
    refusals: Mapping[int, StageRefusal],
    first: Delta | None,
) -> _Outcome:
    """What came of a range, once the records at fault are left out, with the dead letters."""
    frames, needs_key = prepared[0].frames, prepared[0].needs_key
    met = seen.value
    found = [
        change if isinstance(change, StagedDelta) else without_faults(one, ranges, change)  # executors have checked it
        for one, change in zip(prepared, changes, strict=True)
    ]
    met = met.with_more(seen.value)  # failed tasks may be missing in the first count
    faults = [one.faults if isinstance(one, Folded) else () for one in found]
    # Records that a fold fails at have been parsed, so they are not among the dead.
    sound = list(beyond(ranges, fault_ranges(ranges, [fault for some in faults for fault in some])))
    dead = frames.met_dead(sound, met, needs_key=needs_key)
    return _Outcome(
        [one.delta if isinstance(one, Folded) else one for one in found],
        [_merged_letters(dead, letters_of(one, ranges, some)) for one, some in zip(prepared, faults, strict=True)],
        met,
        refusals,
        first,
    )


def _stepped(
    standing: _Standing, ranges: Sequence[OffsetRange], view: ReduceView, delta: Delta, dead: pa.Table | None
) -> tuple[Delta, pa.Table | None]:
    """The change of a view of states by a range's rows, and the dead letters, with those of the records that the step
    fails at. Only now: a range is read before the states that it begins with are stored.
    """
    prepared, fold = standing.feed.prepared, standing.feed.fold
    if prepared is None or fold.topic.key is None:
        raise FoldError(f"fold {standing.feed.name!r} was not prepared")
    change, found = view.step(delta, fold.topic.key, standing.stored, plainly=standing.feed.goes_long)
    faults = [RecordFault(*one) for one in sorted(found.faults)]
    if len(faults) > FAULTY_RECORDS_MAX and not standing.feed.goes_long:
        at = faults[0]
        raise FoldError(
            f"the step of fold {fold.name!r} fails at {len(faults)} records of one range, so it is wrong itself; mend"
            f" it. At offset {at.offset} of {fold.topic.name}-{at.partition}: {at.reason}"
        )
    return change, _merged_letters(dead, letters_of(prepared, ranges, faults))


def _kept_apart(trials: Iterable[_Trial | None]) -> Sequence[OffsetRange]:
    """The sample whose groups the range's job keeps apart, if there is one."""
    return next((one.ranges for one in trials if one is not None and one.short == "apart"), ())


def _merged_letters(one: pa.Table | None, other: pa.Table | None) -> pa.Table | None:
    """The letters of both, ordered by partition and offset."""
    import pyarrow as pa

    if one is None or other is None:
        return other if one is None else one
    return in_offset_order(pa.concat_tables([one.cast(other.schema), other]))


def _all_of(used: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    """The union of the used columns; None if any fold's are unknown."""
    columns: set[str] = set()
    for one in used:
        if one is None:
            return None
        columns |= one
    return frozenset(columns)


def awaited(outcome: Future[Result], meanwhile: Callable[[], None], every_s: float = WAIT_S) -> Result:
    """The future's result, or its exception; calls `meanwhile` every `every_s` until then."""
    while not wait([outcome], every_s).done:
        meanwhile()
    return outcome.result()


class Runner:
    """Moves feeds. One thread calls `step`; on that thread, `on_progress` is called after every range and failure, and
    `on_wait` every WAIT_S while Spark computes."""

    def __init__(
        self,
        spark: SparkSession,
        origin: Origin,
        ledger: Ledger,
        feeds: Iterable[Feed] = (),
        *,
        range_bytes: int | None = None,
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
        self.holds = False
        """Whether views are changed at their own pace: not where somebody waits for everything to be read."""
        self._near_origin: Origin | None = None
        """Used by the second thread only, and so not the runner's own."""
        self._on_progress = on_progress or (lambda feed: None)
        self._on_wait = on_wait or (lambda: None)
        self._sizes = RangeSizes(origin)
        self._frames: dict[tuple[int, str], TopicFrames] = {}
        self._ahead: list[_Batch] = []
        # One more thread: Spark computes the next range while a view stores this one. More threads would only compete
        # for the same executors, and hold more ranges in the driver's memory.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="foldlog-spark")
        self._trial_pool = ThreadPoolExecutor(1, thread_name_prefix="foldlog-trial")

    def close(self) -> None:
        """Wait for what Spark is computing, and close the views. The origin and the ledger belong to the caller."""
        self._pool.shutdown(cancel_futures=True)
        self._trial_pool.shutdown()
        if self._near_origin is not None:
            self._near_origin.close()
        for feed in self.feeds:
            feed.view.close()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def drain(self, stop: Event | None = None) -> None:
        """Step until nothing is left to read, every feed has failed for good, or `stop` is set. Waits for retries."""
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
        """Process one range for every group of feeds at the same position. Whether there was any.

        A feed's failure affects that feed only. FoldError if Spark has ended: then no feed can continue.
        """
        now_ms = self.clock.monotonic_ms()
        self._forget_idle()
        topics: dict[str, tuple[TopicFacts, dict[int, Bounds]]] = {}
        names: dict[int, str] = {}
        groups: dict[object, list[_Standing]] = {}
        reach: dict[object, tuple[Mapping[int, int], Mapping[int, Bounds]]] = {}
        has_more = False
        for feed in self.feeds:
            if not feed.is_ready or (feed.state == State.WAITING and now_ms < feed.retry_at_ms):
                continue
            try:
                name = names[id(feed)] = topic_of(feed, self.origin)
                if name not in topics:
                    # Read the ends first: any growth before these ends is then among the facts.
                    bounds = self.origin.bounds(name)
                    topics[name] = (self.origin.topic(name), bounds)
                facts, bounds = topics[name]
                if feed.state is State.CAUGHT_UP and feed.rests_at == (facts, bounds, feed.bookmark):
                    # Nothing has changed since: checking the bookmark again would find the same, and six folds that
                    # wait took a tenth of a core.
                    has_more = self._was_moved(feed) or has_more
                    continue
                standing = self._stand(feed, facts, bounds)
                in_order = with_growths(feed, standing.base, self.origin, facts, bounds)
                ends = ends_of(feed, standing.base, in_order, bounds)
            except Exception as error:  # noqa: BLE001 one feed's trouble is not the others'
                self._fail(feed, error)
                continue
            feed.lag = lag_of(feed, standing.base, bounds)
            if self._waits_for_more(standing, ends):
                continue
            key = standing.sharing(ends)
            groups.setdefault(key, []).append(standing)
            reach[key] = (ends, bounds)
        moved = [self._serve(standings, *reach[key]) for key, standings in groups.items()]
        for standing in (one for standings in groups.values() for one in standings):
            facts, bounds = topics[names[id(standing.feed)]]
            standing.feed.rests_at = (facts, bounds, standing.stored)
        return has_more or any(moved)

    def _waits_for_more(self, standing: _Standing, ends: Mapping[int, int]) -> bool:
        """Whether it is too early for the view's next commit. The records wait in the log: the bookmark stays where it
        is, and the lag tells of them. A replay, a single run and a feed that failed do not wait.
        """
        feed, pace = standing.feed, standing.feed.view.pace
        if pace is None or not self.holds or feed.stops is not None or feed.state is State.WAITING:
            return False
        left = sum(max(0, end - (standing.base.offset(number) or 0)) for number, end in ends.items())
        is_late = not feed.applied_ms or self.clock.monotonic_ms() - feed.applied_ms >= pace.every_ms
        if not left or is_late or left * self._sizes.of_offset(standing.base.topic) >= pace.size_bytes:
            return False
        feed.state = State.RUNNING
        return True

    # --- positions ------------------------------------------------------------------------------------------------

    def _stand(self, feed: Feed, facts: TopicFacts, bounds: Mapping[int, Bounds]) -> _Standing:
        frames = self._frames_of(feed, facts)
        if feed.prepared is None or feed.prepared.frames is not frames:  # the topic may have been recreated
            feed.prepared = prepare(feed.fold, frames)
        if feed.bookmark is None:
            start = feed.start or beginning(feed.fold, self.origin, facts, dict(bounds), self.clock.now_ms())
            feed.bookmark = feed.view.prepare(feed.prepared.shape, start, loading=feed.is_loading)
        feed.is_checked = False
        base = self._with_logic(feed, checked_bookmark(feed, self.origin, facts, bounds))
        feed.is_checked = True
        return _Standing(feed, feed.bookmark, base)

    def _with_logic(self, feed: Feed, base: Bookmark) -> Bookmark:
        """The bookmark with the fold's current logic; FoldError if its view was written by another function."""
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
            # Stored at once, not with the next range, so that `mixes` counts a change once and status shows it. The
            # bookmark is compared as always: a runner with the older function that stores after this is refused, and
            # finds out.
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
            # Another process moved the view or its bookmark: continue from the stored one.
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
        """Prepare the fold again after its plan has changed: the next step checks whether the view may have another
        function's rows. Returns an error if the fold cannot be right. The view keeps its columns.
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
        self._let_grow(batch, outcome)
        # Begun before this range is stored, assuming that storing works. If it fails, the feed has another position in
        # the next step, and `_read_ahead` drops the batch.
        following = [_Standing(one.feed, batch.new(one), batch.new(one)) for one in standings]
        if len(self._ahead) < RANGES_AHEAD_MAX and not any(isinstance(delta, Exception) for delta in outcome.deltas):
            ahead = self._begin(following, ends, bounds)
            if ahead is not None:
                self._ahead.append(ahead)
        for number, refusal in outcome.refusals.items():
            self._refused(standings[number].feed, refusal)
        for standing, delta, dead in zip(standings, outcome.deltas, outcome.dead, strict=True):
            try:
                self._apply(standing, batch, delta, dead, outcome)
            except Exception as error:  # noqa: BLE001 one feed's trouble is not the others'
                self._fail(standing.feed, error)
        return True

    def _refused(self, feed: Feed, refusal: StageRefusal) -> None:
        """The driver has brought the rows of a range that executors could not write."""
        if refusal.is_unreachable and feed.stages:
            feed.stages = False
            told = "fold %s: the executors cannot write to %s (%s), so its rows go through the driver"
            _log.warning(told, feed.name, feed.view.place, refusal.why)

    def _caught_up(self, standings: Sequence[_Standing]) -> bool:
        """Called when nothing is left for these feeds. Whether one of them has more to do after all."""
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
            feed.grown_bytes = None
            changed = feed.state != State.CAUGHT_UP
            feed.state = State.DONE if is_done else State.CAUGHT_UP
            if feed.on_caught_up is not None and not is_done:
                feed.state, has_more = State.RUNNING, True  # a replay with another round
            feed.rows_per_s = 0.0
            if changed:
                self._on_progress(feed)
        return has_more

    def _was_moved(self, feed: Feed) -> bool:
        """Whether another process moved the bookmark of a feed that waits at the end, or removed its view. Checked
        every LOOK_EVERY_MS only: a feed that reads finds out when the view refuses its change.
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
        """The batch begun for exactly these feeds at this position. Their batches for other positions are dropped."""
        feeds = {id(one.feed) for one in standings}
        for batch in [one for one in self._ahead if any(id(other.feed) in feeds for other in one.standings)]:
            self._ahead.remove(batch)
            begun = [(id(one.feed), one.base) for one in batch.standings]
            if begun == [(id(one.feed), one.base) for one in standings]:
                return batch
            batch.outcome.cancel()
        return None

    def _forget_idle(self) -> None:
        """Drop batches begun for feeds that have failed, are paused or gone: a batch may be large."""
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
        range_bytes = self._size_of_range(standings)
        budget = self._sizes.budget(first.base, reach, range_bytes)
        # A verification splits at random offsets: a function that depends on the split then gives other rows.
        if first.feed.goes_long:
            budget = random.randint(max(1, budget // 3), budget)
        ranges = tuple(next_ranges(first.base, reach, budget))
        offsets = sum(one.stop - one.start for one in ranges)
        is_short = offsets <= FOLD_NEAR_OFFSETS and offsets * range_bytes <= budget * FOLD_NEAR_BYTES
        if first.feed.goes_long:
            outcome = self._pool.submit(self._compute_long, standings, ranges)
        else:
            stages = [self._stage(one, ranges) for one in standings]
            if is_short and not any(stages) and not any(one.needs_trial for one in standings):
                outcome = self._pool.submit(self._compute_near, standings, ranges)
            else:
                outcome = self._pool.submit(self._compute, standings, ranges, bounds, stages)
        return _Batch(standings, ranges, bounds, self.clock.monotonic_ms(), outcome)

    def _size_of_range(self, standings: Sequence[_Standing]) -> int:
        """About how many bytes the next range of these feeds holds: what the smallest of theirs may."""
        feed = standings[0].feed
        fixed = feed.range_bytes or self._range_bytes
        return fixed or min(one.feed.grown_bytes or RANGE_BYTES for one in standings)

    def _let_grow(self, batch: _Batch, outcome: _Outcome) -> None:
        """The next range but one may be larger, if no rows of this one passed the driver: the next has been begun, or
        is about to be, with what is known.
        """
        took_ms = self.clock.monotonic_ms() - batch.began_ms
        cores = self._spark.sparkContext.defaultParallelism
        for standing, delta in zip(batch.standings, outcome.deltas, strict=True):
            feed = standing.feed
            if isinstance(delta, StagedDelta) or not feed.view.rows_pass_driver:
                grown = grown_bytes(feed.grown_bytes or RANGE_BYTES, took_ms, cores)
                here = delta.rows.nbytes if isinstance(delta, Delta) else 0
                feed.grown_bytes = held_bytes(grown, outcome.seen.bytes, here)
            else:
                feed.grown_bytes = None

    def _stage(self, standing: _Standing, ranges: Sequence[OffsetRange]) -> ViewStage | None:
        """A place where executors write the rows of a range; None if the driver brings them."""
        feed = standing.feed
        if feed.prepared is None or not feed.prepared.may_stage or not feed.stages:
            return None
        if sum(one.stop - one.start for one in ranges) < FOLD_STAGED_OFFSETS_MIN:
            return None
        try:
            return feed.view.stage(ranges_read(ranges), standing.base)
        except FoldlogError:
            return None  # if it lasts, storing the rows raises it

    def _compute(
        self,
        standings: Sequence[_Standing],
        ranges: Sequence[OffsetRange],
        bounds: Mapping[int, Bounds],
        stages: Sequence[ViewStage | None],
    ) -> _Outcome:
        """On the second thread: the change of each view; an error instead, if the fold's trial fails."""
        prepared = [one.feed.prepared for one in standings if one.feed.prepared is not None]
        is_shared = len(prepared) > 1
        trials = [
            _Trial.of(one, ranges, standing.sample(ranges, bounds), is_shared=is_shared, is_staged=stage is not None)
            if standing.needs_trial
            else None
            for standing, one, stage in zip(standings, prepared, stages, strict=True)
        ]
        outcome = self._compute_short(prepared, ranges, trials, stages)
        deltas = [
            delta if trial is None or isinstance(delta, Exception) else self._tried(trial, delta, outcome.first)
            for trial, delta in zip(trials, outcome.deltas, strict=True)
        ]
        return replace(outcome, deltas=deltas)

    def _compute_near(self, standings: Sequence[_Standing], ranges: Sequence[OffsetRange]) -> _Outcome:
        """`_compute` for a range that is so short that starting a task takes longer than reading it here."""
        prepared = [one.feed.prepared for one in standings if one.feed.prepared is not None]
        if self._near_origin is None:
            self._near_origin = open_origin(self.origin.spec)
        near = prepared[0].frames.near(ranges, self._near_origin, needs_key=prepared[0].needs_key)
        return self._compute_short([replace(one, frames=near) for one in prepared], ranges)

    def _begin_trial(self, trial: _Trial) -> None:
        """Fold the sample, on the third thread, while the second one plans the range and waits for it. Most of a trial
        is waiting, too: for plans, for a task's start.
        """
        # With PYSPARK_PIN_THREAD=false, threads share Spark's local properties, by which a job names its columns.
        if isinstance(self._spark.sparkContext._gateway, ClientServer):
            trial.is_begun = True
            trial.folded = self._trial_pool.submit(self._fold_sample, trial)

    def _fold_sample(self, trial: _Trial) -> _Tried:
        one = trial.prepared
        sample = read_sample(one.fold, one.frames, trial.ranges)
        # A function is called by one thread at a time.
        if not trial.may_fold.result():
            raise CancelledError
        return self._fold_read(trial, sample)

    def _fold_read(self, trial: _Trial, sample: ReadSample) -> _Tried:
        one = trial.prepared
        tried = fold_sample(one.fold, one.frames, one.shape, sample)
        return tried, self._short_sample(trial) if trial.short == "alone" else None

    def _short_sample(self, trial: _Trial) -> Delta:
        """The short way's result for the sample alone."""
        (short,) = self._compute_short([trial.prepared], trial.ranges).deltas
        if isinstance(short, Exception):
            raise short
        if isinstance(short, StagedDelta):
            raise FoldError(f"the sample of fold {trial.prepared.fold.name!r} was not read by the driver")
        return short

    def _tried(self, trial: _Trial, delta: Change, first: Delta | None) -> Change | Exception:
        """The range's delta, if the trial succeeds; else the error. `first` is as in `_Outcome`."""
        one = trial.prepared
        try:
            if trial.may_fold.result():
                sample, short = trial.folded.result()
            else:  # the function failed while it was planned, as it reads itself, and records were at fault
                sample, short = self._fold_read(trial, read_sample(one.fold, one.frames, trial.ranges))
            if short is None and trial.short == "apart":
                short = first or self._short_sample(trial)  # it could not be kept apart, or records were at fault
            if short is None:
                short = delta if isinstance(delta, Delta) else self._short_sample(trial)
        except Exception as error:  # noqa: BLE001 one fold's trouble is not the others'
            return error
        try:
            check_trial(one.fold, one.frames, one.shape, sample, short, lambda: self._short_sample(trial))
        except FoldError as error:
            return self._explained(trial, error)
        except Exception as error:  # noqa: BLE001 one fold's trouble is not the others'
            return error
        try:
            try_steps(one.fold, sample)
        except Exception as error:  # noqa: BLE001 one fold's trouble is not the others'
            return error
        return delta

    def _explained(self, trial: _Trial, error: FoldError) -> Exception:
        """If the function has changed between the two ways, that explains the difference, and is reported instead."""
        one = trial.prepared
        given = one.frames.rows(trial.ranges, None, needs_key=one.needs_key)
        try:
            one.plan(given)
        except PlanChanged as changed:
            explained = FoldError(str(changed))
            explained.__cause__ = error
            return explained
        except Exception as other:  # noqa: BLE001 one fold's trouble is not the others'
            return other
        finally:
            one.frames.forget(given)
        return error

    def _compute_long(self, standings: Sequence[_Standing], ranges: Sequence[OffsetRange]) -> _Outcome:
        """The result of the long way, for the one feed that uses it."""
        prepared = standings[0].feed.prepared
        if prepared is None:
            raise FoldError(f"fold {standings[0].feed.name!r} was not prepared")
        delta = long_delta(prepared.fold, prepared.frames, prepared.shape, ranges)
        # For the progress alone: nothing counts the records here, and in a compacted topic the offsets are more.
        return _Outcome([delta], [None], Seen(records=sum(one.stop - one.start for one in ranges)))

    def _compute_short(
        self,
        prepared: Sequence[PreparedFold],
        ranges: Sequence[OffsetRange],
        trials: Sequence[_Trial | None] = (),
        stages: Sequence[ViewStage | None] | None = None,
    ) -> _Outcome:
        """The result of the short way: Spark reads the range once, and runs each fold over it. The folds' trials are
        begun with it, and have ended when this returns.
        """
        frames, needs_key = prepared[0].frames, prepared[0].needs_key
        stages = [None] * len(prepared) if stages is None else stages
        seen = frames.count()
        first_ranges = _kept_apart(trials)
        given = frames.rows(ranges, seen, needs_key=needs_key, first=first_ranges)
        tried = [one for one in trials if one is not None]
        for trial in tried:
            self._begin_trial(trial)
        first: Delta | None = None
        refusals: dict[int, StageRefusal] = {}
        try:
            planned = [_planned(one, given, apart=bool(first_ranges)) for one in prepared]
            self._let_fold(trials, planned)
            deltas: Sequence[Change | Exception]
            if all(isinstance(one, PlannedFold) and one.is_plain for one in planned):
                seen = frames.count()  # without what the functions themselves have read
                deltas = _plain_changes(prepared, ranges, seen, stages, refusals)
            elif isinstance(planned[0], PlannedFold) and planned[0].is_apart:
                first, *deltas = self._folded_apart(frames, planned[0], ranges, first_ranges)
            else:
                deltas = self._folded(frames, given, planned, ranges, seen, stages, refusals)
        finally:
            self._let_fold(trials, [None] * len(trials))
            wait([one.folded for one in tried])
            frames.forget(given)
        return _outcome(prepared, ranges, deltas, seen, refusals, first)

    def _let_fold(self, trials: Sequence[_Trial | None], planned: Sequence[PlannedFold | Exception | None]) -> None:
        """The trials of folds that were planned may go on: the range calls their function no more."""
        for trial, one in zip(trials, planned, strict=False):
            if trial is None or trial.may_fold.done():
                continue
            trial.may_fold.set_result(isinstance(one, PlannedFold))
            if not trial.is_begun:
                try:
                    trial.folded.set_result(self._fold_sample(trial))
                except Exception as error:  # noqa: BLE001 as of a future
                    trial.folded.set_exception(error)

    def _folded_apart(
        self, frames: TopicFrames, planned: PlannedFold, ranges: Sequence[OffsetRange], first: Sequence[OffsetRange]
    ) -> tuple[Delta | None, Delta | Exception]:
        """The changes of one fold's counters by the two parts of a range; if they fail, the error instead of both."""
        try:
            with frames.narrowed(planned.used):
                return planned.deltas_apart(first, list(beyond(ranges, first)))
        except Exception as error:  # noqa: BLE001 one fold's trouble is not the others'
            return None, error

    def _folded(
        self,
        frames: TopicFrames,
        given: DataFrame,
        planned: Sequence[PlannedFold | Exception],
        ranges: Sequence[OffsetRange],
        seen: Count,
        stages: Sequence[ViewStage | None],
        refusals: dict[int, StageRefusal],
    ) -> list[Change | Exception]:
        good = [one for one in planned if isinstance(one, PlannedFold)]
        used = _all_of(one.used for one in good)
        is_kept = len(good) > 1 and not frames.is_near
        if is_kept:
            given.persist()
        deltas: list[Change | Exception] = []
        with frames.narrowed(used):
            for number, (one, stage) in enumerate(zip(planned, stages, strict=True)):
                if isinstance(one, Exception):
                    deltas.append(one)
                    continue
                try:
                    deltas.append(_change(one, ranges, seen, stage, refusals, number, is_cached=len(good) > 1))
                except Exception as error:  # noqa: BLE001 one fold's trouble is not the others'
                    deltas.append(error)
                    if is_kept:
                        # A failed task may have left its rows in the cache while Spark discarded its counts, which
                        # would hide dead records and tombstones. So the next fold reads, and counts, again.
                        given.unpersist(blocking=True)
                        given.persist()
        return deltas

    def _apply(
        self, standing: _Standing, batch: _Batch, delta: Change | Exception, dead: pa.Table | None, outcome: _Outcome
    ) -> None:
        feed = standing.feed
        if isinstance(delta, Exception):
            raise delta
        if isinstance(feed.view, ReduceView) and isinstance(delta, Delta):
            delta, dead = _stepped(standing, batch.ranges, feed.view, delta, dead)
        storing_ms = self.clock.monotonic_ms()
        # The letters first: a crash in between writes them again, under the same keys. In the other order, a crash
        # would lose them, while the bookmark says they were handled.
        if dead is not None and dead.num_rows and feed.buries:
            bury(feed.fold, dead, self.ledger, standing.base.topic, strict=feed.strict)
            feed.dead += dead.num_rows
        # The view compares and sets the bookmark in one transaction with the rows: if two runners of a fold both
        # compute a range, the view takes one of them. Exactly once rests on this alone, not on Spark or the log.
        stored = standing.stored
        if outcome.first is not None:
            beginning = [
                OffsetRange(standing.base.topic, number, *span) for number, span in outcome.first.ranges.items()
            ]
            between = after(standing.base, beginning, batch.bounds)
            feed.view.apply(outcome.first, stored, between)
            feed.rows += outcome.first.rows.num_rows
            feed.bookmark = stored = between
        new = batch.new(standing)
        if isinstance(delta, StagedDelta):
            feed.view.apply_staged(delta, stored, new)
        else:
            feed.view.apply(delta, stored, new)
        feed.bookmark = new
        feed.recovered()
        feed.state = State.RUNNING
        now_ms = self.clock.monotonic_ms()
        offsets = sum(one.stop - one.start for one in batch.ranges)
        since_ms = feed.applied_ms if feed.applied_ms > batch.began_ms - 1000 else batch.began_ms
        feed.rows_per_s = offsets / max(0.001, (now_ms - since_ms) / 1000)
        feed.applied_ms = now_ms
        feed.range_s, feed.store_s = (now_ms - batch.began_ms) / 1000, (now_ms - storing_ms) / 1000
        feed.records += outcome.seen.records
        feed.rows += delta.row_count
        feed.last_ranges = batch.ranges
        feed.lag = max(0, feed.lag - offsets)
        self._on_progress(feed)
