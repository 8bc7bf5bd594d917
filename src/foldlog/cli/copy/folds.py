"""Translates bookmarks of folds into the offsets of a copy, so that a pipeline continues there where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from foldlog.client.copy.groups import translate
from foldlog.client.copy.offsets import CopyPoint, OffsetMap, TranslatedOffset
from foldlog.client.copy.targets import Route
from foldlog.errors import UnknownTopic
from foldlog.views.bookmark import Bookmark, Position

if TYPE_CHECKING:
    from foldlog.client.copy.copying import Copying, Plan
    from foldlog.client.log import Log
    from foldlog.spark.folds.declaration import Fold
    from foldlog.spark.origins.origin import OriginSpec

MOVED: Final = "moved"
WOULD_MOVE: Final = "would be moved"
_MAY_MOVE: Final = (
    "its engine goes by offsets: it would be moved if those of the copy are the same, which shows when it is made, and"
    " is to be rebuilt there if not"
)

_BELOW_ANY: Final = -2
"""-1 means "none" in a view that stores its bookmark as numbers (views/lake/delta_bookmark.py)."""


_CHANGES: Final = "changes"
_IN_THE_LOG: Final = "its view is a topic of the log, which it makes anew there: do not copy that topic"
_SEVERAL: Final = "it reads several topics as one: drop it, and run it on the copies"
_READS_COPY: Final = "it reads the copy already"
_NOT_BEGUN: Final = "it has not begun: it begins with the copy"


@dataclass(frozen=True, slots=True)
class FoldMove:
    """The outcome for one fold's bookmark: "moved", or why it was left as it is; before a copy "would be moved"."""

    fold: str
    view: str
    outcome: str
    before: Mapping[int, int]
    after: Mapping[int, int]

    @property
    def is_left(self) -> bool:
        """Whether the view stays with the source, though the pipeline is to continue in the copy."""
        return self.outcome not in (MOVED, WOULD_MOVE, _MAY_MOVE, _READS_COPY, _NOT_BEGUN)


Ways: TypeAlias = Mapping[int, tuple[Route, OffsetMap]]
"""For each partition of a fold's topic its route, and the mapping of its offsets."""


class _Translation:
    """Translates the offsets of one fold. Each is cached, since records may have to be counted."""

    def __init__(self, copying: Copying, ways: Ways) -> None:
        self.ways = ways
        self._source = copying.source
        self._known: dict[tuple[int, int], TranslatedOffset] = {}

    def find(self, number: int, offset: int) -> TranslatedOffset:
        route, offsets = self.ways[number]
        if offsets.is_kept:
            return TranslatedOffset(offset, offset)
        if (number, offset) not in self._known:
            self._known[number, offset] = translate(self._source, route, offsets, offset)
        return self._known[number, offset]


def move_folds(
    folds: Sequence[Fold], copying: Copying, maps: Mapping[Route, OffsetMap], source: OriginSpec
) -> list[FoldMove]:
    """Give the views of a pipeline that fold copied topics the bookmarks of the copies.

    A view that is not moved stays with the source, and continues there.
    """
    return _each_fold(folds, maps, lambda fold, ways: _moved(fold, copying, ways, source))


def plan_folds(folds: Sequence[Fold], copying: Copying, plans: Sequence[Plan], source: OriginSpec) -> list[FoldMove]:
    """What `move_folds` would do, as far as it is known before anything is copied. Changes nothing."""
    keeps = copying.target.keeps_offsets

    def planned(plan: Plan) -> OffsetMap:
        at = plan.resume.at
        points = tuple(
            dict.fromkeys((*plan.resume.points, at, CopyPoint(at.source + plan.remaining, at.target + plan.remaining)))
        )
        return OffsetMap(points, is_kept=keeps or all(point.source == point.target for point in points))

    def look(fold: Fold, ways: Ways) -> FoldMove:
        move = _begun(fold, copying, _Translation(copying, ways), source)
        if not isinstance(move, Bookmark):
            return move
        is_sure = keeps or fold.view.is_transactional
        offsets = _offsets(move)
        return FoldMove(fold.name, fold.view.place, WOULD_MOVE if is_sure else _MAY_MOVE, offsets, offsets)

    return _each_fold(folds, {plan.span.route: planned(plan) for plan in plans}, look)


def _each_fold(
    folds: Sequence[Fold], maps: Mapping[Route, OffsetMap], look: Callable[[Fold, Ways], FoldMove]
) -> list[FoldMove]:
    from foldlog.spark.topics_read import reads_topic

    moves: list[FoldMove] = []
    for fold in (part for one in folds for part in one.parts):
        if fold.topic.is_several and any(reads_topic(fold.topic, route.topic) for route in maps):
            moves.append(FoldMove(fold.name, fold.view.place, _SEVERAL, {}, {}))
            continue
        routes = {route.partition: route for route in maps if route.topic == fold.topic.name}
        if not routes:
            continue
        if fold.view.kind == _CHANGES:
            moves.append(FoldMove(fold.name, fold.view.place, _IN_THE_LOG, {}, {}))
            continue
        try:
            moves.append(look(fold, {number: (route, maps[route]) for number, route in routes.items()}))
        finally:
            fold.close()
    return moves


def _moved(fold: Fold, copying: Copying, ways: Ways, source: OriginSpec) -> FoldMove:
    translation = _Translation(copying, ways)
    bookmark = _begun(fold, copying, translation, source)
    if not isinstance(bookmark, Bookmark):
        return bookmark
    (to_topic,) = {route.to_topic for route, _ in ways.values()}
    new = translated(bookmark, to_topic, copying.target.side.log.topic(to_topic).topic_id, translation)
    fold.view.move(bookmark, new)
    return FoldMove(fold.name, fold.view.place, MOVED, _offsets(bookmark), _offsets(new))


def _begun(fold: Fold, copying: Copying, translation: _Translation, source: OriginSpec) -> Bookmark | FoldMove:
    """The bookmark if it can be moved; else the outcome for the fold."""
    bookmark = fold.view.bookmark()
    if bookmark is None:
        return FoldMove(fold.name, fold.view.place, _NOT_BEGUN, {}, {})
    reason = (
        _reason_to_stay(fold, bookmark, copying, translation.ways)
        or _runner(fold, source)
        or _inexact(bookmark, translation)
    )
    if reason is not None:
        return FoldMove(fold.name, fold.view.place, reason, _offsets(bookmark), _offsets(bookmark))
    return bookmark


def _offsets(bookmark: Bookmark) -> dict[int, int]:
    return {number: at.offset for number, at in bookmark.positions.items()}


def _reason_to_stay(fold: Fold, bookmark: Bookmark, copying: Copying, ways: Ways) -> str | None:
    route, _ = next(iter(ways.values()))
    if bookmark.topic_id == _topic_id(copying.target.side.log, route.to_topic):
        return _READS_COPY
    if bookmark.topic_id != copying.source.log.topic(route.topic).topic_id:
        return "it reads another topic of this name"
    for number, position in sorted(bookmark.positions.items()):
        if number not in ways or not ways[number][1].holds(position.offset):
            return f"it has read further than the copy goes in partition {number}: copy again once it has stopped"
        _, offsets = ways[number]
        if not offsets.is_kept and position.offset < offsets.points[0].source:
            return f"what it reads next in partition {number} was gone before it could be copied: rebuild it there"
    if not fold.view.is_transactional and not all(offsets.is_kept for _, offsets in ways.values()):
        return "its engine goes by offsets, and those of the copy are others: rebuild it there"
    return None


def _inexact(bookmark: Bookmark, translation: _Translation) -> str | None:
    """Why the bookmark cannot be translated exactly. An estimate would repeat records, or lose some."""
    lost = "the source has lost records since they were copied, and"
    read = [(number, at.offset) for number, at in bookmark.positions.items()] + list(bookmark.reached.items())
    for number, offset in sorted(read):
        if not translation.find(number, offset).is_exact:
            return (
                f"{lost} how far it has read partition {number} of the copy cannot be told: run it at the source to the"
                " end and copy again, or rebuild it there"
            )
    for number, offset in sorted(bookmark.origins.items()):
        if not translation.find(number, offset).is_exact:
            return f"{lost} where it began in partition {number} of the copy cannot be told: rebuild it there"
    return None


def _topic_id(log: Log, topic: str) -> str | None:
    """None if the topic does not exist yet."""
    try:
        return log.topic(topic).topic_id
    except UnknownTopic:
        return None


def _runner(fold: Fold, source: OriginSpec) -> str | None:
    """Why a running fold cannot be moved: its runner's next change would be refused, and the runner would fail."""
    from foldlog.spark.folds.commands import status

    (state,) = status([fold], source)
    if not state.is_running or state.published is None:
        return None
    return f"{state.published.runner} is running it: stop that, then copy again"


def translated(bookmark: Bookmark, to_topic: str, topic_id: str, translation: _Translation) -> Bookmark:
    """The bookmark in the offsets of the copy. Its epoch rises, as whenever a bookmark is moved by hand."""

    def earliest(number: int, offset: int) -> int:
        return translation.find(number, offset).earliest

    def origin(number: int, offset: int) -> int:
        """The origin of the copied bookmark: before the copy's start if the view holds records the source had already
        lost, so that a replay of the copy is not taken for everything that the view has read."""
        first = translation.ways[number][1].points[0]
        if offset >= first.source:
            return earliest(number, offset)
        before = first.target - (first.source - offset)
        return before if before >= 0 else min(before, _BELOW_ANY)

    return replace(
        bookmark,
        topic=to_topic,
        topic_id=topic_id,
        positions={number: Position(earliest(number, at.offset)) for number, at in bookmark.positions.items()},
        origins={number: origin(number, at) for number, at in bookmark.origins.items()},
        reached={number: earliest(number, at) for number, at in bookmark.reached.items()},
        epoch=bookmark.epoch + 1,
    )
