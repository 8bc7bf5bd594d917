"""Maps offsets of a source to those of its copy."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from foldlog.limits import COPY_POINTS_MAX


class CopyPoint(NamedTuple):
    """The record that comes next at `source` comes next at `target`, too."""

    source: int
    target: int


class TranslatedOffset(NamedTuple):
    """Where an offset of the source is in the copy: from `earliest` to `latest`.

    The two are the same, unless the source has lost records since they were copied: then it is not known how many of
    those were before the offset.
    """

    earliest: int
    latest: int

    @property
    def is_exact(self) -> bool:
        return self.earliest == self.latest


@dataclass(frozen=True, slots=True)
class OffsetMap:
    """Points of one partition, in order: it is copied from the first to the last.

    Between two points the source may have holes, and the target has none; so records have to be counted there.
    `is_kept`: every record has its old offset, holes included.
    """

    points: tuple[CopyPoint, ...]
    is_kept: bool

    @property
    def end(self) -> CopyPoint:
        return self.points[-1]

    def holds(self, offset: int) -> bool:
        """Whether everything before it in the source was copied, or was gone before."""
        return offset <= self.end.source

    def translated(self, offset: int, count: Callable[[int, int], int]) -> TranslatedOffset:
        """The offset of the copy from which the same records follow. `count` returns how many records the source has in
        a range. Offsets before the copy are its beginning, and offsets behind it its end.

        >>> holes = OffsetMap((CopyPoint(100, 0), CopyPoint(200, 100), CopyPoint(900, 110)), is_kept=False)
        >>> [tuple(holes.translated(offset, lambda start, stop: 5)) for offset in (7, 150, 500, 2000)]
        [(0, 0), (50, 50), (105, 105), (110, 110)]

        Of the ten records from 200 to 900 the source has lost four since; they may have been before 500, or not:

        >>> holes.translated(500, lambda start, stop: 3)
        TranslatedOffset(earliest=103, latest=107)
        """
        first, last = self.points[0], self.end
        if self.is_kept:
            return _exactly(max(first.target, min(offset, last.target)))
        if offset <= first.source:
            return _exactly(first.target)
        if offset >= last.source:
            return _exactly(last.target)
        at = bisect_right(self.points, offset, key=_source) - 1
        point, following = self.points[at], self.points[at + 1]
        # Each offset is at most one record, on both sides of this one.
        earliest = max(point.target, following.target - (following.source - offset))
        latest = min(following.target, point.target + offset - point.source)
        # What the source still has was copied.
        if earliest != latest:
            earliest = max(earliest, point.target + count(point.source, offset))
            latest = min(latest, following.target - count(offset, following.source))
        # The source has more than was copied only if it is read in another way: with aborted records, or without them.
        return TranslatedOffset(min(earliest, latest), max(earliest, latest))


def _exactly(target_offset: int) -> TranslatedOffset:
    return TranslatedOffset(target_offset, target_offset)


def _source(point: CopyPoint) -> int:
    return point.source


class CopyPoints:
    """The points of a copy while it is under way. Their number is limited: see COPY_POINTS_MAX."""

    def __init__(self, points: list[CopyPoint]) -> None:
        self._points = points

    def add(self, point: CopyPoint) -> None:
        if point != self._points[-1]:
            self._points.append(point)
        if len(self._points) > COPY_POINTS_MAX:
            self._points = [*self._points[:-1:2], self._points[-1]]

    def points(self) -> tuple[CopyPoint, ...]:
        return tuple(self._points)

    def is_kept(self) -> bool:
        """Whether every record has its old offset: as many were copied as there are offsets, from the same one on.

        At a broker, which assigns consecutive offsets, only the copy of a source without holes is so.
        """
        return all(point.source == point.target for point in self._points)
