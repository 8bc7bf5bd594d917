"""A feed: one fold, the view it writes, and its state. The runner moves it; other code only reads it.

An ordinary feed follows the log into the fold's own view. A replay feeds a shadow of the view, up to given offsets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from foldlog.errors import (
    CallerError,
    CorruptLog,
    FoldError,
    MissingDependency,
    RecordsMissing,
    SchemaChanged,
    UnknownTopic,
    ViewInUse,
)
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.deltas import PreparedFold
from foldlog.spark.folds.ranges import lag, reachable_ends
from foldlog.spark.origins.origin import Bounds, OffsetRange, Origin, TopicFacts, TopicGrowth
from foldlog.spark.topics_read import source_name
from foldlog.views.bookmark import Bookmark, Logic, Position
from foldlog.views.contract import View
from foldlog.views.topic_lists import by_topic, continues, located, numbered, topics_in

SAME_FAILURES_MAX: Final = 8
"""How often a range that fails with the same error is tried: the pauses in between add up to a minute."""

_DIGITS: Final = re.compile(r"[0-9]+")


class State(StrEnum):
    """What a feed is doing."""

    RUNNING = "running"
    CAUGHT_UP = "caught up"
    PAUSED = "paused"
    WAITING = "waiting"  # it failed, and will be tried again
    FAILED = "failed"  # it will not be tried again by itself
    DONE = "done"  # it has reached its `stops`


@dataclass
class Feed:
    """Owned by the runner's thread. `stops` is where a replay or a single run ends; None follows the log."""

    fold: Fold
    view: View
    label: str = ""
    stops: Mapping[int, int] | None = None
    range_bytes: int | None = None
    strict: bool = False
    skip_missing: bool = False
    accept_change: bool = False
    """Continue with a view that another version of the function has written."""
    on_caught_up: Callable[[], bool] | None = None
    """Called whenever nothing is left to read; returns True if the feed is done."""
    peers: list[Feed] = field(default_factory=list, repr=False, compare=False)
    """The feeds that replay a join together, one for each topic, this one among them."""
    start: Bookmark | None = None
    """Where a new view begins; None for the start of the log."""
    is_loading: bool = False
    """The view is a shadow that may be bulk loaded."""
    buries: bool = True
    """Whether dead letters are stored. A verification does not store them: the fold's own feed has."""

    stages: bool = True
    """Whether executors may write rows for the view; False once they could not reach its place."""

    goes_long: bool = False
    """Compute without any shortcut, in ranges of random sizes, and share no read: see `reference.py`."""
    tried: Logic | None = None
    """What the fold did when it was tried, before it first stored what its view has now."""

    prepared: PreparedFold | None = None
    bookmark: Bookmark | None = None
    state: State = State.RUNNING
    error: str | None = None
    failures: int = 0
    repeated: int = 0
    """How often in a row Spark failed with the same error at the same bookmark."""
    replanned: int = 0
    """How often in a row the function gave another plan than before, with nothing stored."""
    retry_at_ms: float = 0.0
    rows: int = 0
    records: int = 0
    dead: int = 0
    lag: int = 0
    grown_bytes: int | None = None
    """The size of its next range, while it reads a backlog whose rows do not pass the driver."""
    rows_per_s: float = 0.0
    last_ranges: tuple[OffsetRange, ...] = ()
    applied_ms: float = 0.0
    range_s: float = 0.0
    """How long the last range took, from the begin of its read to its end in the view."""
    store_s: float = 0.0
    """How long the view took to store it."""
    looked_ms: float = 0.0
    rests_at: tuple[TopicFacts, Mapping[int, Bounds], Bookmark] | None = field(default=None, repr=False)
    """The topic and the bookmark at which nothing was left to do."""
    committed: Bookmark | None = field(default=None, repr=False)
    is_checked: bool = False
    """Whether the log was found to continue from the bookmark; before that, the bookmark may belong to another log."""
    moved_keys: dict[str, tuple[int, tuple[TopicGrowth, ...]]] = field(default_factory=dict, repr=False)
    """By topic id, the bookmark epoch and the growths inferred from moved keys for it: see `moved_keys.py`."""
    _repeats: tuple[str, Bookmark | None] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """For messages: the fold's name, with the label of a replay."""
        return f"{self.fold.title} ({self.label})" if self.label else self.fold.title

    @property
    def is_ready(self) -> bool:
        return self.state in (State.RUNNING, State.CAUGHT_UP, State.WAITING)

    @property
    def progress(self) -> tuple[int, int]:
        """Of a replay: how many offsets it has read, and how many it reads in all."""
        if self.start is None or self.stops is None:
            return 0, 0
        total = sum(max(0, stop - (self.start.offset(number) or 0)) for number, stop in self.stops.items())
        return (0 if self.bookmark is None else max(0, total - self._left(self.bookmark))), total

    def _left(self, bookmark: Bookmark) -> int:
        return sum(max(0, stop - (bookmark.offset(number) or 0)) for number, stop in (self.stops or {}).items())

    def fail(self, error: BaseException, now_ms: float, *, for_good: bool) -> None:
        """Record a failure: the feed is retried after a pause that doubles, or not at all with `for_good`."""
        self.failures += 1
        self.error = str(error)
        self.state = State.FAILED if for_good else State.WAITING
        self.retry_at_ms = now_ms + min(30_000, 250 * 2 ** min(self.failures, 8))

    def fail_again(self, error: BaseException, now_ms: float) -> None:
        """Record a failure in Spark. An executor may have been lost, so the range is retried; but the same error at the
        same bookmark SAME_FAILURES_MAX times in a row is permanent.
        """
        same = _DIGITS.sub("0", str(error)), self.bookmark  # numbers of stages and tasks differ from try to try
        self.repeated = self.repeated + 1 if same == self._repeats else 1
        self._repeats = same
        if self.repeated >= SAME_FAILURES_MAX:
            error = FoldError(
                f"{error} (the same {self.repeated} times; fix the fold and run it again, or resume it:"
                f" foldlog fold resume {self.fold.name})"
            )
        self.fail(error, now_ms, for_good=self.repeated >= SAME_FAILURES_MAX)

    def recovered(self) -> None:
        self.failures = 0
        self.repeated = 0
        self.replanned = 0
        self.error = None


def topic_of(feed: Feed, origin: Origin) -> str:
    """The name by which the feed's topic is read: see `foldlog.spark.topics_read`."""
    if not feed.fold.topic.is_several:
        return feed.fold.topic.name
    return source_name(feed.fold, origin, feed.bookmark or feed.view.bookmark() or feed.start)


def starting_bookmark(facts: TopicFacts, bounds: Mapping[int, Bounds], epoch: int = 0) -> Bookmark:
    """A bookmark before the first record that the log holds."""
    return Bookmark(
        facts.name,
        facts.topic_id,
        {number: Position(bound.start) for number, bound in bounds.items()},
        {number: bound.start for number, bound in bounds.items()},
        epoch,
    )


def checked_bookmark(feed: Feed, origin: Origin, facts: TopicFacts, bounds: Mapping[int, Bounds]) -> Bookmark:
    """The feed's bookmark, with new partitions added, after checking that the log still continues from it.

    RecordsMissing if it does not, with the cause and what to do. With `skip_missing`, the feed continues from what the
    log still holds, and the bookmark counts what was skipped.
    """
    bookmark = feed.bookmark
    if bookmark is None:
        raise FoldError(f"fold {feed.name!r} has no bookmark yet")
    # A partition that the topic has gained starts at 0, even if retention has removed its first records.
    met = bookmark.met(dict.fromkeys(bounds, 0))
    if not continues(facts.topic_id, met.topic_id):
        known = zip(topics_in(met.topic_id), topics_in(facts.topic_id), strict=False)
        other = next((topic for topic, (one, now) in enumerate(known) if one != now), 0)
        raise _missing(feed, met, min((n for n in met.positions if n >= numbered(other, 0)), default=0), "recreated")
    if feed.fold.view.follows_keys:
        _refuse_growth(feed, bookmark, met, facts)
    met = replace(met, topic=facts.name, topic_id=facts.topic_id)
    for number in sorted(met.positions):
        position = met.positions[number]
        cause = origin.missing(facts.name, met.topic_id, number, position.offset, position.leader_epoch)
        if cause is None:
            continue
        if not feed.skip_missing or cause not in ("expired", "deleted"):
            raise _missing(feed, met, number, cause, bounds.get(number))
        start = bounds[number].start
        met = met.advanced(
            {number: Position(start, bounds[number].leader_epoch)}, skipped=max(0, start - position.offset)
        )
    return met


def _refuse_growth(feed: Feed, bookmark: Bookmark, met: Bookmark, facts: TopicFacts) -> None:
    """FoldError if a topic has gained partitions, and its brokers do not remember how far the older ones were."""
    before, now = (by_topic(facts.name, one.positions) for one in (bookmark, met))
    for one in facts.each or (facts,):
        if one.growths is None and len(now[one.name]) > len(before[one.name]) > 0:
            raise FoldError(
                f"topic {one.name!r} has gained partitions ({len(before[one.name])} before, {len(now[one.name])} now),"
                " and its brokers do not tell where the older ones ended then, so an older record of a key could"
                " replace a newer one; once all writers use the new ones, rebuild the view:"
                f" foldlog fold rebuild {feed.fold.name}"
            )


_WHY = {
    "recreated": "the bookmark is of another topic: this is another log, or the topic was deleted and created again",
    "expired": "retention removed them before the fold had read them",
    "deleted": "they were deleted before the fold had read them",
    "truncated": "the log was cut below what the fold has read, so its view holds records that no longer exist",
    "unwritten": "the log ends before them, although the fold has read them; it may be another log, or an older copy",
}


def _missing(feed: Feed, bookmark: Bookmark, number: int, cause: str, bounds: Bounds | None = None) -> RecordsMissing:
    rebuild = f"rebuild the view from what the log holds: foldlog fold rebuild {feed.fold.name} --accept-loss"
    if cause in ("expired", "deleted"):
        rebuild = f"go on without them: foldlog fold run ... --skip-missing; or {rebuild}"
    if cause == "recreated":
        rebuild = f"bring the bookmark along, if the topic was copied: foldlog copy --folds FILE; or {rebuild}"
    at = bookmark.offset(number) or 0
    stop = at if bounds is None else max(at, bounds.start)
    return RecordsMissing(*located(bookmark.topic, number), (at, stop), cause, _WHY[cause], rebuild)


def ends_of(feed: Feed, base: Bookmark, facts: TopicFacts, bounds: Mapping[int, Bounds]) -> dict[int, int]:
    """Per partition how far the feed may read now, from `base` on."""
    ends = reachable_ends(base, facts, bounds)
    if feed.stops is None:
        return ends
    return {number: min(end, feed.stops[number]) for number, end in ends.items() if number in feed.stops}


def lag_of(feed: Feed, base: Bookmark, bounds: Mapping[int, Bounds]) -> int:
    """The number of offsets left to read."""
    stops = feed.stops
    if stops is None or not feed.label:
        return lag(base, bounds)  # a single run may stop before the end of the log, and lags all the same
    until = {
        number: bound._replace(end=min(bound.end, stops[number])) for number, bound in bounds.items() if number in stops
    }
    return lag(base, until)


def is_for_good(error: BaseException) -> bool:
    """Whether a retry cannot help: the fold, its topic or its view has to be changed first."""
    hopeless = CallerError | CorruptLog | MissingDependency | SchemaChanged | ViewInUse | RecordsMissing | UnknownTopic
    return isinstance(error, hopeless) or type(error) is FoldError
