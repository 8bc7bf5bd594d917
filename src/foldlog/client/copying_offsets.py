"""Which offset of a source is which in its copy."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from foldlog.limits import COPY_POINTS_MAX


class Point(NamedTuple):
    """What comes next at `source` comes next at `target`, too."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class OffsetMap:
    """Points of one partition, in order: from the first on it is copied, up to the last.

    Between two points the source may have holes, and then the target has none; so records have to be counted there.
    `is_kept`: every record has the offset it had, holes included.
    """

    points: tuple[Point, ...]
    is_kept: bool

    @property
    def end(self) -> Point:
        return self.points[-1]

    def holds(self, offset: int) -> bool:
        """Whether all that comes before it in the source has been copied, or was gone before."""
        return offset <= self.end.source

    def translated(self, offset: int, count: Callable[[int, int], int]) -> int:
        """The offset of the copy from which the same records follow. `count` tells how many records the source has in a
        range. What lies before the copy begins is its beginning, and what lies behind it, its end.

        >>> holes = OffsetMap((Point(100, 0), Point(200, 100), Point(900, 110)), is_kept=False)
        >>> [holes.translated(offset, lambda start, stop: 3) for offset in (7, 150, 500, 2000)]
        [0, 50, 103, 110]
        """
        if self.is_kept:
            return max(self.points[0].target, min(offset, self.end.target))
        at = bisect_right(self.points, offset, key=_source) - 1
        if at < 0:
            return self.points[0].target
        point = self.points[at]
        if offset >= self.end.source:
            return self.end.target
        following = self.points[at + 1]
        if following.source - point.source == following.target - point.target:
            return point.target + offset - point.source
        # The source may have lost more since: then this is earlier, and something is read again rather than missed.
        return min(point.target + count(point.source, offset), following.target)


def _source(point: Point) -> int:
    return point.source


class Trail:
    """The points of a copy while it is under way. It stays small: see COPY_POINTS_MAX."""

    def __init__(self, points: list[Point]) -> None:
        self._points = points

    def add(self, point: Point) -> None:
        if point != self._points[-1]:
            self._points.append(point)
        if len(self._points) > COPY_POINTS_MAX:
            self._points = [*self._points[:-1:2], self._points[-1]]

    def points(self) -> tuple[Point, ...]:
        return tuple(self._points)

    def is_kept(self) -> bool:
        """Whether every record has the offset it had: as many were copied as there are offsets, from the same one on.

        Only the copy of a source without holes is so at a broker, which gives offsets one after the other.
        """
        return all(point.source == point.target for point in self._points)
