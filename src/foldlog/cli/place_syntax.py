"""Places in a topic as people write them, after rpk: `start`, `-10`, `100:200`, `@-6h`; and what they mean in a log.

`parse_place` is pure: text in, a PlaceSpec out, or one sentence about what is wrong. `resolve` asks a log where the
place is now, in each partition. A range's stop is exclusive. A start that the log does not hold (any more, or yet) is
moved to the nearest offset that it does hold; `moved_starts` tells of it.

A time means the first record whose timestamp is not before it. Timestamps come from producers, and may be out of order:
records before that one can still be younger.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple, Protocol

from foldlog.clock import SystemClock
from foldlog.errors import InvalidArgument, brief_repr
from foldlog.records.batch import MAX_INT64

PLACE_FORMS: Final = "start, end, +10, -10, 100, 100:200, @2026-01-15T10:30 or @-6h"
POINT_HELP: Final = (
    "start, end, +10 (after the start), -10 (before the end), 100, @2026-01-15T10:30 (local time, or with Z or +05:30),"
    " @-6h, @1700000000000 (ms)"
)
"""For options that take one point, and refuse a range."""

PLACE_HELP: Final = f"{POINT_HELP}; or a range: 100:200, :200, @-2h:-1h, @2026-01-15:1d"

_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION_MS_MAX: Final = 1000 * 366 * 86_400_000
_DURATION: Final = r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+"
_ZONE: Final = r"(?:Z|[+-]\d\d:?\d\d)"
_DATE_TIME: Final = rf"\d{{4}}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{{1,6}})?)?{_ZONE}?)?"
_MOMENT: Final = rf"(?:{_DATE_TIME}|\d{{13}}|\d{{10}}|-{_DURATION})"
_TIMES: Final = re.compile(rf"(?P<start>{_MOMENT})?(?:(?P<colon>:)(?P<stop>{_MOMENT}|{_DURATION}|end)?)?", re.ASCII)
_OFFSETS: Final = re.compile(r"(?P<start>start|end|[+-]?\d+)?(?:(?P<colon>:)(?P<stop>start|end|[+-]?\d+)?)?", re.ASCII)
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_HAS_ZONE: Final = re.compile(rf".*\d{_ZONE}")
_LIKE_A_TIME: Final = re.compile(rf"-?{_DURATION}|\d{{4}}-\d.*", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BEGINS_WITH_MINUS: Final = re.compile(r"-\d.*")

Kind = Literal["start", "end", "offset", "after_start", "before_end", "time", "ago", "after_time"]


_SIGNS: Final[Mapping[str, Kind]] = {"+": "after_start", "-": "before_end"}


class Point(NamedTuple):
    """One end of a place. `value` is an offset, a count of offsets, or milliseconds, by `kind`."""

    kind: Kind
    value: int = 0

    @property
    def is_time(self) -> bool:
        return self.kind in ("time", "ago", "after_time")


@dataclass(frozen=True, slots=True)
class PlaceSpec:
    """A place as it was written: where it starts, and where it stops (exclusive), if it does.

    `note` tells how something was read that could be read in two ways: a time without a zone.
    """

    text: str
    start: Point
    stop: Point | None = None
    note: str | None = None

    @property
    def is_range(self) -> bool:
        return self.stop is not None


class Span(NamedTuple):
    """What a place means in one partition: from `start` to `stop` (exclusive; None: there is no stop)."""

    start: int
    stop: int | None


class HasOffsets(Protocol):
    """What `resolve` asks of a log, in a directory or behind a broker."""

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]: ...

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int | None]: ...


# --- text to places -------------------------------------------------------------------------------------------------


def parse_place(text: str) -> PlaceSpec:
    """The place that a text means; InvalidArgument says what is wrong with it.

    >>> parse_place("100:200").stop
    Point(kind='offset', value=200)
    >>> parse_place("@-6h").start
    Point(kind='ago', value=21600000)
    >>> parse_place("end").start.kind, parse_place(":end").start.kind
    ('end', 'start')
    """
    if not isinstance(text, str):
        raise InvalidArgument(f"{brief_repr(text)} is not a place in a topic; give {PLACE_FORMS}")
    spec = _times(text, text[1:]) if text.startswith("@") else _offsets(text)
    start, stop = spec.start, spec.stop
    if stop is not None and _is_backwards(start, stop):
        raise InvalidArgument(f"{text!r} stops before it starts; write the earlier one first")
    return spec


def _offsets(text: str) -> PlaceSpec:
    found = _OFFSETS.fullmatch(text)
    if found is None or not text or text == ":":
        if _LIKE_A_TIME.fullmatch(text):
            meant = f"@-{text}" if text[-1].isalpha() and text[0].isdigit() and "-" not in text else f"@{text}"
            raise InvalidArgument(f"{brief_repr(text)} is not a place in a topic; a time begins with @, as in {meant}")
        raise InvalidArgument(f"{brief_repr(text)} is not a place in a topic; give {PLACE_FORMS}")
    start = _offset_point(found["start"] or "start", text)
    if not found["colon"]:
        return PlaceSpec(text, start)
    # "100:" is "100", as rpk has it: a stop that is not written is none.
    return PlaceSpec(text, start, _offset_point(found["stop"], text) if found["stop"] else None)


def _offset_point(point: str, text: str) -> Point:
    if point == "start":
        return Point("start")
    if point == "end":
        return Point("end")
    digits = point.lstrip("+-")
    if len(digits) > 19 or int(digits) > MAX_INT64:
        raise InvalidArgument(f"{brief_repr(text)} is not a place in a topic; offsets are below 2**63")
    return Point(_SIGNS.get(point[0], "offset"), int(digits))


def _times(text: str, rest: str) -> PlaceSpec:
    found = _TIMES.fullmatch(rest)
    if found is None or rest in ("", ":"):
        raise InvalidArgument(
            f"{brief_repr(text)} is not a time; give @2026-01-15, @2026-01-15T10:30, @2026-01-15T10:30:00Z,"
            " @1700000000000 (13 digits: ms), @-6h, or a range of them such as @-2h:-1h"
        )
    notes: list[str] = []
    start = _time_point(found["start"], text, notes) if found["start"] else Point("start")
    stop = _time_point(found["stop"], text, notes) if found["stop"] else None
    if stop is not None and stop.kind == "after_time" and not start.is_time:
        raise InvalidArgument(f"{text!r} has no time to count {found['stop']} from; begin it with one, as in @-2h:1h")
    return PlaceSpec(text, start, stop, "; ".join(notes) or None)


def _time_point(point: str, text: str, notes: list[str]) -> Point:
    if point == "end":
        return Point("end")
    if point.isdigit():
        return Point("time", int(point) * (1000 if len(point) == 10 else 1))
    if re.fullmatch(f"-?{_DURATION}", point):
        duration_ms = sum(float(count) * _UNIT_MS[unit] for count, unit in _DURATION_PART.findall(point))
        if duration_ms > _DURATION_MS_MAX:
            raise InvalidArgument(f"{brief_repr(text)} is further away than a thousand years")
        return Point("ago" if point.startswith("-") else "after_time", round(duration_ms))
    try:
        moment = datetime.fromisoformat(point)
        local = moment.astimezone()
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"{point!r} in {text!r} is not a time of the calendar: {error}") from None
    if not _HAS_ZONE.fullmatch(point):
        notes.append(f"{point} is taken as local time, {local.isoformat(timespec='minutes')}")
    return Point("time", (local - _EPOCH) // timedelta(milliseconds=1))


def _is_backwards(start: Point, stop: Point) -> bool:
    """Whether it surely is, wherever the log starts and ends, and whatever time it is."""
    if (start.kind == "end" and stop.kind != "end") or (stop.kind == "start" and start.kind != "start"):
        return True
    if start.kind != stop.kind:
        return False
    return start.value < stop.value if start.kind in ("before_end", "ago") else start.value > stop.value


def take_places(parser: argparse.ArgumentParser) -> None:
    """Let the parser's options take a value such as "-10:end", which argparse takes for an option otherwise."""
    parser._negative_number_matcher = _BEGINS_WITH_MINUS  # it has no other way to tell them


# --- places in a log ------------------------------------------------------------------------------------------------


def resolve(
    spec: PlaceSpec,
    log: HasOffsets,
    topic: str,
    *,
    bounds: Mapping[int, tuple[int, int]] | None = None,
    now_ms: int | None = None,
) -> dict[int, Span]:
    """Where the place is now in each partition of the topic.

    The start always lies in what the log holds, or at its end. A stop that was written as an offset is left as it is,
    so it may lie beyond the end; any other is at most the end as of now. `bounds` are the log's offsets, if they are
    known already.
    """
    bounds = log.offsets(topic) if bounds is None else bounds
    now_ms = SystemClock().now_ms() if now_ms is None else now_ms
    starts = _resolved(spec.start, None, log, topic, bounds, now_ms)
    stops = {} if spec.stop is None else _resolved(spec.stop, spec.start, log, topic, bounds, now_ms)
    spans: dict[int, Span] = {}
    for number, (first, end) in bounds.items():
        start = min(max(starts[number], first), end)
        spans[number] = Span(start, max(stops[number], start) if number in stops else None)
    return spans


def time_of(point: Point, before: Point | None, now_ms: int) -> int:
    """The milliseconds since 1970 that a point in time means; `before` is the start that a duration counts from."""
    if point.kind == "ago":
        return now_ms - point.value
    if point.kind == "after_time" and before is not None:
        return time_of(before, None, now_ms) + point.value
    return point.value


def _resolved(
    point: Point,
    before: Point | None,
    log: HasOffsets,
    topic: str,
    bounds: Mapping[int, tuple[int, int]],
    now_ms: int,
) -> dict[int, int]:
    if point.is_time:
        found = log.offsets_at(topic, time_of(point, before, now_ms))
        at: dict[int, int] = {}
        for number, (_, end) in bounds.items():
            offset = found.get(number)
            at[number] = end if offset is None else min(offset, end)
        return at
    if point.kind == "start":
        return {number: start for number, (start, _) in bounds.items()}
    if point.kind == "end":
        return {number: end for number, (_, end) in bounds.items()}
    if point.kind == "after_start":
        return {number: min(start + point.value, end) for number, (start, end) in bounds.items()}
    if point.kind == "before_end":
        return {number: max(end - point.value, start) for number, (start, end) in bounds.items()}
    return dict.fromkeys(bounds, point.value)


def moved_starts(spec: PlaceSpec, topic: str, bounds: Mapping[int, tuple[int, int]]) -> list[str]:
    """A sentence for each partition that does not hold the offset that the place names as its start.

    >>> moved_starts(parse_place("5"), "orders", {0: (7, 9), 1: (0, 9)})
    ['orders-0 no longer holds offset 5; it starts at 7']
    """
    wanted = spec.start.value
    if spec.start.kind != "offset":
        return []
    told: list[str] = []
    for number, (start, end) in sorted(bounds.items()):
        if wanted < start:
            told.append(f"{topic}-{number} no longer holds offset {wanted}; it starts at {start}")
        elif wanted > end:
            told.append(f"{topic}-{number} does not reach offset {wanted} yet; it ends at {end}")
    return told
