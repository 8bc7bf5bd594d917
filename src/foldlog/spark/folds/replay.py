"""Rewind, rebuild, verify and drop: what a log allows because it keeps its records.

Nothing here depends on a runner: a running one notices because its view's bookmark has another epoch. A rebuild and a
verification are feeds into a shadow, moved by the same runner code as every other feed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from foldlog.client.places import parse_points, places_text, resolve
from foldlog.clock import Clock, SystemClock
from foldlog.errors import FoldError, FoldlogError, InvalidArgument, StaleBookmark, ViewInUse
from foldlog.limits import FOLD_TRIAL_YOUNG_OFFSETS
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.ranges import RangeSizes, back_to_growths
from foldlog.spark.origins.ledger import Ledger
from foldlog.spark.origins.origin import Bounds, Origin, TopicFacts
from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import View
from foldlog.views.digest import Comparison, Digest, compare, digest

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.spark.folds.feed import Feed

VERIFY_RANGES: Final = 5
"""The minimum number of ranges in which a verification reads a topic."""

CATCH_UP_ROUNDS: Final = 3
"""How often a rebuild reads what was written while it was reading: less each time. A topic with a steady writer never
ends, so the fold's own feed reads the rest.
"""

_STALE_TRIES: Final = 20


@dataclass(frozen=True, slots=True)
class Rewound:
    """The effect of a rewind: the bookmark before, the bookmark now, and how many offsets are read again."""

    before: Bookmark
    now: Bookmark

    @property
    def again(self) -> int:
        return sum(at.offset - self.now.positions[number].offset for number, at in self.before.positions.items())

    def left(self, bookmark: Bookmark) -> int:
        """How many of these offsets a view with this bookmark has still to read."""
        return sum(max(0, at.offset - (bookmark.offset(number) or 0)) for number, at in self.before.positions.items())


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a verification. `missing` says why it is not provable."""

    fold: str
    answer: Literal["equal", "different", "not provable"]
    bookmark: Bookmark
    view: Digest | None = None
    replay: Digest | None = None
    missing: str = ""
    comparison: Comparison | None = None


def rewind(fold: Fold, to: str, origin: Origin, *, clock: Clock | None = None) -> Rewound:
    """Move the fold's bookmark back; its runner reads on from there.

    A view that adds would count twice what is read again: FoldError, which names the rebuild.
    """
    for _ in range(_STALE_TRIES):
        planned = planned_rewind(fold, to, origin, clock=clock)
        try:
            fold.view.move(planned.before, planned.now)
        except StaleBookmark:
            continue  # the runner has moved it first
        return planned
    raise FoldError(f"fold {fold.name!r} moved on {_STALE_TRIES} times while it was to be rewound; pause its runner")


def planned_rewind(fold: Fold, to: str, origin: Origin, *, clock: Clock | None = None) -> Rewound:
    """What a rewind would do. Changes nothing."""
    if fold.view.adds:
        raise FoldError(
            f"{fold.view.place} adds up what it reads, so reading it again would count it twice;"
            f" rebuild it instead: foldlog fold rebuild {fold.name}"
        )
    stored = fold.view.bookmark()
    if stored is None:
        raise FoldError(f"fold {fold.name!r} has no view yet, so there is nothing to rewind; run it first")
    bounds, facts = origin.bounds(fold.topic.name), origin.topic(fold.topic.name)  # in this order, as the runner does
    check_same_topic(fold, stored, facts)
    now_ms = (clock or SystemClock()).now_ms()
    return Rewound(stored, stored.moved(resolve_rewind(to, stored, facts, bounds, origin, now_ms)))


def described(bookmark: Bookmark) -> str:
    """The positions as text.

    >>> described(Bookmark("t", "id", {0: Position(7), 1: Position(9)}, {0: 0, 1: 0}))
    '0=7,1=9'
    """
    return places_text({number: position.offset for number, position in bookmark.positions.items()})


def drop(fold: Fold, ledger: Ledger, *, old_only: bool = False) -> None:
    """Remove the fold's view with its bookmark, and its group; with `old_only` only what the last rebuild replaced."""
    if old_only:
        if not fold.view.drop_old():
            raise FoldError(f"{fold.view.place} keeps nothing of an older rebuild")
        return
    for label in ("rebuild", "verify"):
        fold.view.shadow(label).drop()
    fold.view.drop_old()
    fold.view.drop()
    ledger.delete_group(fold.group)


def check_same_topic(fold: Fold, bookmark: Bookmark, facts: TopicFacts) -> None:
    if bookmark.topic_id != facts.topic_id:
        raise FoldError(
            f"{fold.view.place} was folded from another topic that was also named {facts.name!r};"
            f" rebuild it: foldlog fold rebuild {fold.name} --accept-loss"
        )


# --- missing records ------------------------------------------------------------------------------------------------

_CUT: Final = ("truncated", "unwritten")


def what_is_missing(fold: Fold, bookmark: Bookmark, origin: Origin) -> str:
    """Why a replay cannot reproduce the view; empty if it can."""
    bounds, facts = origin.bounds(fold.topic.name), origin.topic(fold.topic.name)  # in this order, as the runner does
    if bookmark.topic_id != facts.topic_id:
        return f"the view was folded from another topic that was also named {facts.name!r}"
    gone = {
        number: (origin, bounds[number].start)
        for number, origin in sorted(bookmark.origins.items())
        if number in bounds and bounds[number].start > origin
    }
    if gone:
        told = ", ".join(f"{start - origin} of partition {number}" for number, (origin, start) in gone.items())
        return f"the log now starts later than the view does: it no longer holds {told} (records at most)"
    for number, at in sorted(bookmark.positions.items()):
        if origin.missing(facts.name, facts.topic_id, number, at.offset, at.leader_epoch) in _CUT:
            return f"the log was cut below what the view has read of partition {number}, or is an older copy"
    if bookmark.skipped:
        return f"the view went on without {bookmark.skipped} records that were gone when it got there"
    if facts.is_compacted and fold.view.adds:
        return f"topic {facts.name!r} is compacted, and the view adds up records that compaction may have removed"
    if facts.is_compacted and fold.keeps_rows:
        return f"topic {facts.name!r} is compacted, and the view has rows of records that compaction may have removed"
    return ""


def refuse_loss(fold: Fold, missing: str, *, accept_loss: bool) -> None:
    """FoldError if a rebuild would lose rows, unless `accept_loss`."""
    if missing and not accept_loss:
        raise FoldError(
            f"fold {fold.name!r} cannot be rebuilt to what it is: {missing};"
            f" to have what the log holds: foldlog fold rebuild {fold.name} --accept-loss"
        )


# --- rebuild --------------------------------------------------------------------------------------------------------


def rebuild_feed(fold: Fold, origin: Origin, *, accept_loss: bool = False, on_swapped: Callable[[], None]) -> Feed:
    """A feed that replays the log into a shadow from its start, and then swaps the shadow in as the view.

    The view keeps serving, and its own feed may continue. A shadow that a crash left behind is dropped first.
    """
    from foldlog.spark.folds.feed import Feed, starting_bookmark

    stored = fold.view.bookmark()
    if stored is None:
        raise FoldError(f"fold {fold.name!r} has no view yet; to build it: foldlog fold run")
    bounds, facts = origin.bounds(fold.topic.name), origin.topic(fold.topic.name)  # in this order, as the runner does
    # Checked before anything is read: a replay takes hours, and should not end with a swap that is refused.
    refuse_loss(fold, what_is_missing(fold, stored, origin), accept_loss=accept_loss)
    fold.view.check_swap()
    shadow = fold.view.shadow("rebuild")
    shadow.drop()
    # One epoch further: after the swap, a runner that holds the old view's bookmark is refused, even if the offsets
    # happen to be the same.
    start = starting_bookmark(facts, bounds, stored.epoch + 1)
    # Dead letters are stored: with another schema, other records may not parse.
    feed = Feed(
        fold,
        shadow,
        label="rebuild",
        start=start,
        stops=_ends(bounds),
        is_loading=True,
        tried=None if stored.read < FOLD_TRIAL_YOUNG_OFFSETS else stored.logic,
    )
    rounds = iter(range(CATCH_UP_ROUNDS))

    def caught_up() -> bool:
        if feed.is_loading:
            shadow.finish_loading()
            feed.is_loading = False
        # What was written meanwhile is read in the next round.
        ends = _ends(origin.bounds(fold.topic.name))
        if ends != feed.stops and next(rounds, None) is not None:
            feed.stops = ends
            return False
        # The shadow is not locked while it is loaded: its bookmark shows whether another process has changed it.
        stored = shadow.bookmark()
        if stored is None or stored != feed.bookmark:
            # Another rebuild of this fold has restarted the shadow, or is writing it.
            found = "nothing" if stored is None else stored.to_json()
            raise StaleBookmark(shadow.place, found, "" if feed.bookmark is None else feed.bookmark.to_json())
        try:
            fold.view.swap(shadow)
        except ViewInUse:
            shadow.drop()  # the obstacle appeared during the replay; leave nothing behind
            raise
        finally:
            shadow.close()
        on_swapped()
        return True

    feed.on_caught_up = caught_up
    return feed


def _ends(bounds: Mapping[int, Bounds]) -> dict[int, int]:
    return {number: bound.end for number, bound in bounds.items()}


# --- verify ---------------------------------------------------------------------------------------------------------


class Verification:
    """Replays what a view has read into a scratch view, split differently and the long way, and compares the two."""

    def __init__(self, fold: Fold, origin: Origin, *, range_bytes: int) -> None:
        self.fold = fold
        self._origin = origin
        self._scratch = fold.view.shadow("verify")
        self._digest: Digest | None = None
        self._bookmark = _bookmark(fold)
        self._missing = what_is_missing(fold, self._bookmark, origin) or _not_read_again(self._bookmark)
        if not self._missing:
            snapshot = fold.view.scan()
            self._bookmark, self._digest = snapshot.bookmark, digest(snapshot.batches)
        # From where the view began, which may be after the topic's first record. `what_is_missing` has checked that the
        # log still reaches back so far.
        self._start = replace(
            self._bookmark,
            positions={number: Position(at) for number, at in self._bookmark.origins.items()},
            epoch=0,
            logic=None,
        )
        self._stops = {number: at.offset for number, at in self._bookmark.positions.items()}
        self._range_bytes = min(range_bytes, self._in_parts(origin, range_bytes))

    def feed(self) -> Feed | None:
        """The feed to run; None if a replay would prove nothing."""
        from foldlog.spark.folds.feed import Feed

        if self._missing:
            return None
        self._scratch.drop()
        return Feed(
            self.fold,
            self._scratch,
            label="verify",
            stops=self._stops,
            range_bytes=self._range_bytes,
            start=self._start,
            buries=False,
            goes_long=True,
            on_caught_up=lambda: True,
        )

    def discard(self) -> None:
        """Remove the scratch view. If that fails, the next verification does it."""
        with suppress(FoldlogError):
            self._scratch.drop()
        self._scratch.close()

    def _in_parts(self, origin: Origin, range_bytes: int) -> int:
        """A range size that gives several ranges: reading a small topic in one range again would prove little."""
        offsets = sum(stop - self._start.positions[number].offset for number, stop in self._stops.items())
        if self._missing or not offsets:
            return range_bytes
        budget = RangeSizes(origin).budget(self._start, self._stops, range_bytes)
        return max(1, range_bytes * offsets // (budget * VERIFY_RANGES))

    def verdict(self) -> Verdict:
        """The result, once the feed is done."""
        if self._missing or self._digest is None:
            return Verdict(self.fold.name, "not provable", self._bookmark, missing=self._missing)
        replayed = digest(self._scratch.scan().batches)
        if replayed == self._digest:
            return Verdict(self.fold.name, "equal", self._bookmark, self._digest, replayed)
        # "different" is the last answer: if compaction may have removed records that the view has read, the log cannot
        # prove the view wrong.
        compacted = self._compacted()
        if compacted:
            return Verdict(self.fold.name, "not provable", self._bookmark, self._digest, replayed, missing=compacted)
        return self._different(replayed)

    def _compacted(self) -> str:
        """Why compaction may have caused the difference; empty if it cannot have."""
        name = self.fold.topic.name
        if not self._origin.topic(name).is_compacted:
            return ""
        if any(bound.end > (self._bookmark.offset(number) or 0) for number, bound in self._origin.bounds(name).items()):
            return (
                f"topic {name!r} is compacted, and records that the view has may have given way to newer ones that it"
                " has not read; let the fold catch up, and verify again"
            )
        return ""

    def _different(self, replayed: Digest) -> Verdict:
        """The verdict "different"; with the rows that differ, if the view has not moved on."""
        comparison: Comparison | None = None
        if self.fold.view.bookmark() == self._bookmark:
            comparison = compare(lambda: _rows(self.fold.view), lambda: _rows(self._scratch))
        return Verdict(self.fold.name, "different", self._bookmark, self._digest, replayed, comparison=comparison)


def _rows(view: View) -> Iterator[pa.RecordBatch]:
    return view.scan().batches


def _bookmark(fold: Fold) -> Bookmark:
    stored = fold.view.bookmark()
    if stored is None:
        raise FoldError(f"fold {fold.name!r} has no view yet, so there is nothing to verify; run it first")
    return stored


def _not_read_again(bookmark: Bookmark) -> str:
    """Why a view that was rewound holds more than its bookmark says; empty if it does not."""
    if not bookmark.reached:
        return ""
    told = places_text(bookmark.reached)
    return f"the view was rewound, and has not read again up to {told}, where it was; run the fold first"


def resolve_rewind(
    to: str, bookmark: Bookmark, facts: TopicFacts, bounds: dict[int, Bounds], origin: Origin, now_ms: int
) -> dict[int, Position]:
    """The positions that `to` means for each partition, never beyond the bookmark.

    If they lie before a growth of the topic, other partitions go back to it, too: see `back_to_growths`.
    InvalidArgument if `to` cannot be resolved, or is not before the bookmark in any partition.
    """
    stands = {number: at.offset for number, at in bookmark.positions.items()}
    known = {number: (at.start, at.end) for number, at in bounds.items() if number in stands}
    spans = resolve(parse_points(to, now_ms=now_ms), _Asked(origin, known), bookmark.topic, bounds=known, now_ms=now_ms)
    wanted = stands | {number: min(stands[number], span.start) for number, span in spans.items()}
    positions: dict[int, Position] = {}
    for number, offset in back_to_growths(wanted, facts, bounds).items():
        if offset < stands[number]:
            positions[number] = Position(offset, origin.epoch_before(bookmark.topic, number, offset))
    if not positions:
        raise InvalidArgument(
            f"{to!r} is not before the bookmark, so there is nothing to read again; a rewind goes back only"
        )
    return positions


class _Asked:
    """Answers the queries of `resolve` from an origin."""

    def __init__(self, origin: Origin, known: dict[int, tuple[int, int]]) -> None:
        self._origin = origin
        self._known = known

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        return self._known

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int | None]:
        return self._origin.offsets_at(topic, dict.fromkeys(self._known, timestamp_ms))
