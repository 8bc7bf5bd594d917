"""Where to rewind to, as people write it: an offset, a time, a while ago, or the start.

A time without a zone is local time, of whoever wrote it, as on the whole command line. A command that travels to a
runner on another machine therefore takes the zone along: see `with_zone`.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from foldlog.errors import InvalidArgument
from foldlog.spark.folds.ranges import back_to_growths
from foldlog.spark.origins.origin import Bounds, Origin, TopicFacts
from foldlog.views.bookmark import Bookmark, Position

_AGO: Final = re.compile(r"@?-(?P<count>\d+(\.\d+)?)(?P<unit>ms|s|m|h|d|w)")
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_EACH: Final = re.compile(r"\d+:\d+(,\d+:\d+)*")
_HOW: Final = "give an offset (1200), one per partition (0:1200,1:900), a time (2026-01-15T10:30), -6h, or start"


def time_of(text: str, now_ms: int) -> int | None:
    """The milliseconds since 1970 that a text means; None if it is not a time.

    >>> time_of("-6h", 10 * 3_600_000), time_of("1970-01-01T00:00:01Z", 0), time_of("17", 0)
    (14400000, 1000, None)
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_ms - int(float(ago["count"]) * _UNIT_MS[ago["unit"]])
    if text.isdigit():
        return None
    at = _moment(text)
    return None if at is None else int(at.timestamp() * 1000)


def with_zone(text: str) -> str:
    """A time without a zone with that of this machine; everything else as it is.

    >>> with_zone("-6h"), with_zone("1200"), with_zone("2026-01-15T10:30:00+05:30")
    ('-6h', '1200', '2026-01-15T10:30:00+05:30')
    """
    at = None if text.isdigit() else _moment(text)
    if at is None or at.tzinfo is not None:
        return text
    return at.astimezone().isoformat()


def _moment(text: str) -> datetime | None:
    """The moment of the calendar that a text means. Without a zone, its clock is that of the machine."""
    try:
        at = datetime.fromisoformat(text.removeprefix("@"))
        at.astimezone()  # a day of the year 1, or 9999, may be none in another zone
    except (ValueError, OverflowError):
        return None
    return at


def resolve_rewind(
    to: str, bookmark: Bookmark, facts: TopicFacts, bounds: dict[int, Bounds], origin: Origin, now_ms: int
) -> dict[int, Position]:
    """The positions that `to` means for each partition, never beyond where the bookmark is.

    Where they lie before a growth of the topic, other partitions go back to it, too: see `back_to_growths`.
    InvalidArgument if it means no place at all, or lies beyond the bookmark everywhere.
    """
    stands = {number: at.offset for number, at in bookmark.positions.items()}
    wanted = dict(stands)
    for number, offset in _offsets(to, bookmark, bounds, origin, now_ms).items():
        wanted[number] = min(stands[number], max(offset, bounds[number].start) if number in bounds else offset)
    positions: dict[int, Position] = {}
    for number, offset in back_to_growths(wanted, facts, bounds).items():
        if offset < stands[number]:
            positions[number] = Position(offset, origin.epoch_before(bookmark.topic, number, offset))
    if not positions:
        raise InvalidArgument(
            f"{to!r} is not before the bookmark, so there is nothing to read again; a rewind goes back only"
        )
    return positions


def _offsets(to: str, bookmark: Bookmark, bounds: dict[int, Bounds], origin: Origin, now_ms: int) -> dict[int, int]:
    partitions = sorted(bookmark.positions)
    if to == "start":
        return {number: bounds[number].start for number in partitions if number in bounds}
    if to.isdigit():
        return dict.fromkeys(partitions, int(to))
    if _EACH.fullmatch(to):
        pairs = [pair.split(":") for pair in to.split(",")]
        unknown = [number for number, _ in pairs if int(number) not in bookmark.positions]
        if unknown:
            raise InvalidArgument(f"--to {to} names partition {unknown[0]}; the bookmark has {partitions}")
        return {int(number): int(offset) for number, offset in pairs}
    time_ms = time_of(to, now_ms)
    if time_ms is None:
        raise InvalidArgument(f"{to!r} is not a place to rewind to; {_HOW}")
    found = origin.offsets_at(bookmark.topic, dict.fromkeys(partitions, time_ms))
    return {number: offset for number, offset in found.items() if offset is not None}
