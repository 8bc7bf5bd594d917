"""Rewind, rebuild, verify and drop: what a log allows because it keeps its records.

Nothing here depends on a runner: a running one notices because its view's bookmark has another epoch. A rebuild and a
verification are feeds into a shadow, moved by the same runner code as every other feed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from foldlog.client.places import PlaceSpec, parse_points, places_text, resolve, topic_and_place
from foldlog.clock import Clock, SystemClock
from foldlog.errors import FoldError, FoldlogError, InvalidArgument, StaleBookmark, ViewInUse
from foldlog.limits import FOLD_TRIAL_YOUNG_OFFSETS
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.ranges import RangeSizes, back_to_growths
from foldlog.spark.origins.ledger import Ledger
from foldlog.spark.origins.origin import Bounds, OffsetRange, Origin, TopicFacts
from foldlog.spark.topics_read import gone_topics, source_left, source_name
from foldlog.views.bookmark import Bookmark, Position
from foldlog.views.contract import View
from foldlog.views.digest import Comparison, Digest, compare, digest
from foldlog.views.topic_lists import by_topic, continues, located, numbered, topics_in

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
    """The effect of a rewind: the bookmark before, the bookmark now, and how many offsets are read again. `others` are
    the effects on the other topics of a join.
    """

    before: Bookmark
    now: Bookmark
    others: tuple[Rewound, ...] = ()

    @property
    def each(self) -> tuple[Rewound, ...]:
        """The effect on each topic."""
        return (replace(self, others=()), *self.others)

    @property
    def again(self) -> int:
        return sum(
            at.offset - one.now.positions[number].offset
            for one in self.each
            for number, at in one.before.positions.items()
        )

    def left(self, bookmarks: Iterable[Bookmark]) -> int:
        """How many of these offsets a view with these bookmarks has still to read."""
        stands = {topics_in(one.topic)[0]: one for one in bookmarks}
        return sum(
            max(0, at.offset - (stands[topics_in(one.before.topic)[0]].offset(number) or 0))
            for one in self.each
            if topics_in(one.before.topic)[0] in stands
            for number, at in one.before.positions.items()
        )


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
    """Move the fold's bookmark back; its runner reads on from there. A join goes back in both topics, or, with the
    topic before the place, as in "orders:@-6h", in that one.

    A view that adds would count twice what is read again: FoldError, which names the rebuild.
    """
    return _of_each(fold, to, lambda part, place: _rewound(part, place, origin, clock))


def _rewound(fold: Fold, to: str, origin: Origin, clock: Clock | None) -> Rewound:
    for _ in range(_STALE_TRIES):
        planned = _planned(fold, to, origin, clock)
        try:
            fold.view.move(planned.before, planned.now)
        except StaleBookmark:
            continue  # the runner has moved it first
        return planned
    raise FoldError(f"fold {fold.name!r} moved on {_STALE_TRIES} times while it was to be rewound; pause its runner")


def planned_rewind(fold: Fold, to: str, origin: Origin, *, clock: Clock | None = None) -> Rewound:
    """What a rewind would do. Changes nothing."""
    return _of_each(fold, to, lambda part, place: _planned(part, place, origin, clock))


def _of_each(fold: Fold, to: str, go: Callable[[Fold, str], Rewound]) -> Rewound:
    """The effect on the topics that `to` is about. A topic that has nothing to read again stays where it is."""
    if fold.topic.is_several:
        return go(fold, to)
    named, place = topic_and_place(to)
    parts = [part for part in fold.parts if named in (None, part.topic.name)]
    if not parts:
        known = ", ".join(part.topic.name for part in fold.parts)
        raise InvalidArgument(f"fold {fold.name!r} does not read topic {named!r}; it reads {known}")
    if len(parts) > 1 and parse_points(place).names_offsets:
        raise InvalidArgument(
            f"{to!r} has offsets, and fold {fold.name!r} reads {len(parts)} topics; say of which:"
            f" {parts[0].topic.name}:{place}"
        )
    found: list[Rewound] = []
    refusal: InvalidArgument | None = None
    for part in parts:
        try:
            found.append(go(part, place))
        except InvalidArgument as error:
            refusal = error
    if not found:
        raise refusal or InvalidArgument(f"{to!r} is not before the bookmark")
    return replace(found[0], others=tuple(found[1:]))


def _planned(fold: Fold, to: str, origin: Origin, clock: Clock | None) -> Rewound:
    if fold.view.adds:
        raise FoldError(
            f"{fold.view.place} adds up what it reads, so reading it again would count it twice;"
            f" rebuild it instead: foldlog fold rebuild {fold.name}"
        )
    stored = fold.view.bookmark()
    if stored is None:
        raise FoldError(f"fold {fold.name!r} has no view yet, so there is nothing to rewind; run it first")
    name = source_name(fold, origin, stored)
    bounds, facts = origin.bounds(name), origin.topic(name)  # in this order, as the runner does
    check_same_topic(fold, stored, facts)
    now_ms = (clock or SystemClock()).now_ms()
    if fold.topic.is_several:
        return Rewound(stored, stored.moved(_resolved_of_several(to, stored, facts, bounds, origin, now_ms)))
    return Rewound(stored, stored.moved(resolve_rewind(to, stored, facts, bounds, origin, now_ms)))


def described(bookmark: Bookmark) -> str:
    """The positions as text.

    >>> described(Bookmark("t", "id", {0: Position(7), 1: Position(9)}, {0: 0, 1: 0}))
    '0=7,1=9'
    >>> described(Bookmark("t,u", "a,b", {0: Position(7), 100_000: Position(9)}, {0: 0, 100_000: 0}))
    't 0=7; u 0=9'
    """
    return numbered_text(bookmark.topic, {number: position.offset for number, position in bookmark.positions.items()})


def numbered_text(name: str, offsets: Mapping[int, int]) -> str:
    """Offsets of partitions as text; with the topics, if several are read as one."""
    texts = {topic: places_text(own) for topic, own in by_topic(name, offsets).items()}
    return "; ".join(text if len(texts) == 1 else f"{topic} {text}" for topic, text in texts.items() if text)


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
    if not continues(facts.topic_id, bookmark.topic_id):
        raise FoldError(
            f"{fold.view.place} was folded from another topic that was also named {facts.name!r};"
            f" rebuild it: foldlog fold rebuild {fold.name} --accept-loss"
        )


# --- missing records ------------------------------------------------------------------------------------------------

_CUT: Final = ("truncated", "unwritten")


def what_is_missing(fold: Fold, bookmark: Bookmark, origin: Origin) -> str:
    """Why a replay cannot reproduce the view; empty if it can."""
    gone_topic = gone_topics(fold, origin, bookmark)
    if gone_topic:
        return gone_topic
    name = source_name(fold, origin, bookmark)
    bounds, facts = origin.bounds(name), origin.topic(name)  # in this order, as the runner does
    if not continues(facts.topic_id, bookmark.topic_id):
        return f"the view was folded from another topic that was also named {facts.name!r}"
    gone = {
        number: (origin, bounds[number].start)
        for number, origin in sorted(bookmark.origins.items())
        if number in bounds and bounds[number].start > origin
    }
    if gone:
        told = ", ".join(f"{start - origin} of {_told(name, number)}" for number, (origin, start) in gone.items())
        return f"the log now starts later than the view does: it no longer holds {told} (records at most)"
    for number, at in sorted(bookmark.positions.items()):
        if origin.missing(facts.name, facts.topic_id, number, at.offset, at.leader_epoch) in _CUT:
            return f"the log was cut below what the view has read of {_told(name, number)}, or is an older copy"
    if bookmark.skipped:
        return f"the view went on without {bookmark.skipped} records that were gone when it got there"
    return _missing_by_compaction(fold, facts) if facts.is_compacted else ""


def _missing_by_compaction(fold: Fold, facts: TopicFacts) -> str:
    if fold.view.adds:
        return f"topic {facts.name!r} is compacted, and the view adds up records that compaction may have removed"
    if fold.view.ttl is not None:
        return f"topic {facts.name!r} is compacted, and rows expire by times of records that may have been removed"
    if fold.keeps_rows or not fold.topic.keys:
        return f"topic {facts.name!r} is compacted, and the view has rows of records that compaction may have removed"
    return ""


def _told(name: str, number: int) -> str:
    topic, partition = located(name, number)
    return f"partition {partition}" if topic == name else f"partition {partition} of {topic}"


def refuse_loss(fold: Fold, missing: str, *, accept_loss: bool) -> None:
    """FoldError if a rebuild would lose rows, unless `accept_loss`."""
    if missing and not accept_loss:
        raise FoldError(
            f"fold {fold.name!r} cannot be rebuilt to what it is: {missing};"
            f" to have what the log holds: foldlog fold rebuild {fold.name} --accept-loss"
        )


# --- where a view begins --------------------------------------------------------------------------------------------


def beginning(
    fold: Fold, origin: Origin, facts: TopicFacts, bounds: dict[int, Bounds], now_ms: int, start: str | None = None
) -> Bookmark:
    """The first bookmark of a view that begins at `start`, or else where the fold says. It is decided once: the
    bookmark keeps where the view begins, and `verify` and `rebuild` begin there, whatever that place means later.
    """
    from foldlog.spark.folds.feed import starting_bookmark

    first = starting_bookmark(facts, bounds)
    place = start or fold.start
    if place is None:
        return first
    known = {number: (at.start, at.end) for number, at in bounds.items()}
    spans = resolve(parse_points(place, now_ms=now_ms), _Asked(origin, known), facts.name, bounds=known, now_ms=now_ms)
    # One that is not named begins at its start.
    at = {number: spans[number].start if number in spans else bound.start for number, bound in bounds.items()}
    positions = {number: Position(one, origin.epoch_before(facts.name, number, one)) for number, one in at.items()}
    return replace(first, positions=positions, origins=at)


def _rebuilt_from(fold: Fold, stored: Bookmark, origin: Origin, start: str | None) -> Bookmark:
    """Where a rebuild begins: `start`; else where the view began, if its fold has a start; else at the first record."""
    from foldlog.spark.folds.feed import starting_bookmark

    name = source_left(fold, origin, stored)
    bounds, facts = origin.bounds(name), origin.topic(name)  # in this order, as the runner does
    if start is not None:
        return beginning(fold, origin, facts, bounds, SystemClock().now_ms(), start)
    first = starting_bookmark(facts, bounds)
    if fold.start is None or not continues(facts.topic_id, stored.topic_id):
        return first
    at = {number: max(bound.start, stored.origins.get(number, 0)) for number, bound in bounds.items()}
    positions = {number: Position(one, origin.epoch_before(facts.name, number, one)) for number, one in at.items()}
    return replace(first, positions=positions, origins=at)


def _begins_later(stored: Bookmark, start: Bookmark) -> str:
    """Why a view that begins there would lack records that the stored one has; empty if it would not."""
    later = {number: at for number, at in start.origins.items() if at > stored.origins.get(number, at)}
    return f"it would begin at {numbered_text(start.topic, later)}, behind records that the view has" if later else ""


# --- rebuild --------------------------------------------------------------------------------------------------------


def rebuild_feeds(
    fold: Fold,
    origin: Origin,
    *,
    accept_loss: bool = False,
    on_swapped: Callable[[], None],
    start_at: str | None = None,
) -> list[Feed]:
    """Feeds, one for each topic, that replay the log into a shadow from its start; the last one to end swaps the shadow
    in as the view. `start_at` is a place to begin at, instead of where the view began.

    The view keeps serving, and its own feeds may continue. A shadow that a crash left behind is dropped first.
    """
    stored = [_bookmark_to_rebuild(part) for part in fold.parts]
    starts = [_rebuilt_from(part, at, origin, start_at) for part, at in zip(fold.parts, stored, strict=True)]
    # Checked before anything is read: a replay takes hours, and should not end with a swap that is refused.
    for part, bookmark, start in zip(fold.parts, stored, starts, strict=True):
        missing = what_is_missing(part, bookmark, origin) or _begins_later(bookmark, start)
        refuse_loss(fold, missing, accept_loss=accept_loss)
    fold.view.check_swap()
    return _Rebuild(fold, stored, starts, origin, on_swapped).feeds


class _Rebuild:
    """The feeds of one rebuild, and what is to do when they have caught up."""

    def __init__(
        self,
        fold: Fold,
        stored: Sequence[Bookmark],
        starts: Sequence[Bookmark],
        origin: Origin,
        on_swapped: Callable[[], None],
    ) -> None:
        self._fold = fold
        self._origin = origin
        self._on_swapped = on_swapped
        self._shadows = [part.view.shadow("rebuild") for part in fold.parts]
        self._shadows[0].drop()
        self._rounds = iter(range(CATCH_UP_ROUNDS))
        self.feeds = [
            _rebuild_feed(part, view, at, start, origin)
            for part, view, at, start in zip(fold.parts, self._shadows, stored, starts, strict=True)
        ]
        for feed in self.feeds:
            feed.on_caught_up = partial(self._caught_up, feed)
            feed.peers = self.feeds

    def _caught_up(self, feed: Feed) -> bool:
        from foldlog.spark.folds.feed import State

        if any(other.state is not State.DONE for other in self.feeds if other is not feed):
            return True  # the last one does the rest
        if feed.is_loading:
            self._shadows[0].finish_loading()
            for one in self.feeds:
                one.is_loading = False
        behind = self._behind()
        for one in behind:
            one.state = State.RUNNING
        if not behind:
            self._swap()
        return feed not in behind

    def _behind(self) -> list[Feed]:
        """The feeds that read in another round what was written meanwhile."""
        ends = [_ends(self._origin.bounds(source_name(feed.fold, self._origin, feed.bookmark))) for feed in self.feeds]
        behind = [feed for feed, end in zip(self.feeds, ends, strict=True) if end != feed.stops]
        if not behind or next(self._rounds, None) is None:
            return []
        for feed, end in zip(self.feeds, ends, strict=True):
            feed.stops = end
        return behind

    def _swap(self) -> None:
        for feed, shadow in zip(self.feeds, self._shadows, strict=True):
            _check_unchanged(feed, shadow)
        try:
            self._fold.view.swap(self._shadows[0])
        except ViewInUse:
            self._shadows[0].drop()  # the obstacle appeared during the replay; leave nothing behind
            raise
        finally:
            for shadow in self._shadows:
                shadow.close()
        self._on_swapped()


def _bookmark_to_rebuild(fold: Fold) -> Bookmark:
    stored = fold.view.bookmark()
    if stored is None:
        raise FoldError(f"fold {fold.name!r} has no view yet; to build it: foldlog fold run")
    return stored


def _rebuild_feed(fold: Fold, shadow: View, stored: Bookmark, begin: Bookmark, origin: Origin) -> Feed:
    from foldlog.spark.folds.feed import Feed

    bounds = origin.bounds(begin.topic)
    # One epoch further: after the swap, a runner that holds the old view's bookmark is refused, even if the offsets
    # happen to be the same.
    start = replace(begin, epoch=stored.epoch + 1)
    # Dead letters are stored: with another schema, other records may not parse.
    return Feed(
        fold,
        shadow,
        label="rebuild",
        start=start,
        stops=_ends(bounds),
        is_loading=True,
        tried=None if stored.read < FOLD_TRIAL_YOUNG_OFFSETS else stored.logic,
    )


def _check_unchanged(feed: Feed, shadow: View) -> None:
    """StaleBookmark if another rebuild of this fold has restarted the shadow, or is writing it: the shadow is not
    locked while it is loaded.
    """
    stored = shadow.bookmark()
    if stored is None or stored != feed.bookmark:
        found = "nothing" if stored is None else stored.to_json()
        raise StaleBookmark(shadow.place, found, "" if feed.bookmark is None else feed.bookmark.to_json())


def _ends(bounds: Mapping[int, Bounds]) -> dict[int, int]:
    return {number: bound.end for number, bound in bounds.items()}


# --- verify ---------------------------------------------------------------------------------------------------------


class Verification:
    """Replays what a view has read into a scratch view, split differently and the long way, and compares the two."""

    def __init__(self, fold: Fold, origin: Origin, *, range_bytes: int) -> None:
        self.fold = fold
        self._origin = origin
        self._scratches = [part.view.shadow("verify") for part in fold.parts]
        self._digest: Digest | None = None
        self._bookmarks = [_bookmark(part) for part in fold.parts]
        self._missing = next(filter(None, map(self._unprovable, fold.parts, self._bookmarks)), "")
        if not self._missing:
            snapshot = fold.view.scan()
            self._bookmarks, self._digest = [snapshot.bookmark, *snapshot.others], digest(snapshot.batches)
        self._range_bytes = range_bytes

    def _unprovable(self, part: Fold, bookmark: Bookmark) -> str:
        return what_is_missing(part, bookmark, self._origin) or _not_read_again(bookmark)

    def feeds(self) -> list[Feed]:
        """The feeds to run, one for each topic; none if a replay would prove nothing."""
        if self._missing:
            return []
        self._scratches[0].drop()
        feeds = [
            self._feed(part, scratch, bookmark)
            for part, scratch, bookmark in zip(self.fold.parts, self._scratches, self._bookmarks, strict=True)
        ]
        for feed in feeds:
            feed.peers = feeds
        return feeds

    def _feed(self, part: Fold, scratch: View, bookmark: Bookmark) -> Feed:
        from foldlog.spark.folds.feed import Feed

        # From where the view began, which may be after the topic's first record. `what_is_missing` has checked that the
        # log still reaches back so far.
        start = replace(
            bookmark,
            positions={number: Position(at) for number, at in bookmark.origins.items()},
            epoch=0,
            logic=None,
        )
        stops = {number: at.offset for number, at in bookmark.positions.items()}
        return Feed(
            part,
            scratch,
            label="verify",
            stops=stops,
            range_bytes=min(self._range_bytes, self._in_parts(start, stops)),
            start=start,
            buries=False,
            goes_long=True,
            on_caught_up=lambda: True,
        )

    def discard(self) -> None:
        """Remove the scratch view. If that fails, the next verification does it."""
        with suppress(FoldlogError):
            self._scratches[0].drop()
        for scratch in self._scratches:
            scratch.close()

    def _in_parts(self, start: Bookmark, stops: Mapping[int, int]) -> int:
        """A range size that gives several ranges: reading a small topic in one range again would prove little."""
        offsets = sum(stop - start.positions[number].offset for number, stop in stops.items())
        if not offsets:
            return self._range_bytes
        budget = RangeSizes(self._origin).budget(start, stops, self._range_bytes)
        return max(1, self._range_bytes * offsets // (budget * VERIFY_RANGES))

    def verdict(self) -> Verdict:
        """The result, once the feeds are done."""
        first = self._bookmarks[0]
        if self._missing or self._digest is None:
            return Verdict(self.fold.name, "not provable", first, missing=self._missing)
        replayed = digest(self._scratches[0].scan().batches)
        if replayed == self._digest:
            return Verdict(self.fold.name, "equal", first, self._digest, replayed)
        # "different" is the last answer: if compaction may have removed records that the view has read, the log cannot
        # prove the view wrong.
        compacted = next(filter(None, map(self._compacted, self.fold.parts, self._bookmarks)), "")
        if compacted:
            return Verdict(self.fold.name, "not provable", first, self._digest, replayed, missing=compacted)
        return self._different(replayed)

    def _compacted(self, part: Fold, bookmark: Bookmark) -> str:
        """Why compaction may have caused the difference; empty if it cannot have."""
        name = bookmark.topic
        if not self._origin.topic(name).is_compacted:
            return ""
        if any(bound.end > (bookmark.offset(number) or 0) for number, bound in self._origin.bounds(name).items()):
            return (
                f"topic {name!r} is compacted, and records that the view has may have given way to newer ones that it"
                " has not read; let the fold catch up, and verify again"
            )
        return ""

    def _different(self, replayed: Digest) -> Verdict:
        """The verdict "different"; with the rows that differ, if the view has not moved on."""
        comparison: Comparison | None = None
        if [part.view.bookmark() for part in self.fold.parts] == self._bookmarks:
            comparison = compare(lambda: _rows(self.fold.view), lambda: _rows(self._scratches[0]))
        first = self._bookmarks[0]
        return Verdict(self.fold.name, "different", first, self._digest, replayed, comparison=comparison)


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
    told = numbered_text(bookmark.topic, bookmark.reached)
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


def _resolved_of_several(
    to: str, bookmark: Bookmark, facts: TopicFacts, bounds: dict[int, Bounds], origin: Origin, now_ms: int
) -> dict[int, Position]:
    """`resolve_rewind` in several topics that are read as one: in all of them, or, as in "orders-eu:@-6h", in one. A
    topic that has nothing to read again stays where it is."""
    named, place = topic_and_place(to)
    topics = topics_in(bookmark.topic)
    if named is None and len(topics) > 1 and parse_points(place).names_offsets:
        raise InvalidArgument(
            f"{to!r} has offsets, and {len(topics)} topics are read; say of which: {topics[0]}:{place}"
        )
    if named is not None and named not in topics:
        raise InvalidArgument(f"topic {named!r} has not been read; {', '.join(topics)} have")
    positions: dict[int, Position] = {}
    refusal: InvalidArgument | None = None
    for topic, one in enumerate(facts.each or (facts,)):
        if one.name not in topics or named not in (None, one.name):
            continue
        stands = by_topic(bookmark.topic, bookmark.positions)[one.name]
        own = by_topic(facts.name, bounds)[one.name]
        part = replace(bookmark, topic=one.name, positions=stands)
        try:
            found = resolve_rewind(place, part, one, own, origin, now_ms)
        except InvalidArgument as error:
            refusal = error
        else:
            positions |= {numbered(topic, number): at for number, at in found.items()}
    if not positions:
        raise refusal or InvalidArgument(f"{to!r} is not before the bookmark")
    return positions


def range_in(
    place: PlaceSpec, bookmark: Bookmark, bounds: dict[int, Bounds], origin: Origin, now_ms: int
) -> list[OffsetRange]:
    """The offsets of a range that a view has read, in each partition."""
    known = {number: (at.start, at.end) for number, at in bounds.items() if number in bookmark.positions}
    spans = resolve(place, _Asked(origin, known), bookmark.topic, bounds=known, now_ms=now_ms)
    found = []
    for number, span in sorted(spans.items()):
        start = max(span.start, bookmark.origins[number])
        stop = min(bookmark.positions[number].offset, known[number][1] if span.stop is None else span.stop)
        if start < stop:
            found.append(OffsetRange(bookmark.topic, number, start, stop))
    return found


class _Asked:
    """Answers the queries of `resolve` from an origin."""

    def __init__(self, origin: Origin, known: dict[int, tuple[int, int]]) -> None:
        self._origin = origin
        self._known = known

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        return self._known

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int | None]:
        return self._origin.offsets_at(topic, dict.fromkeys(self._known, timestamp_ms))
