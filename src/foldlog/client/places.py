"""Places in a topic as users write them, after rpk: `start`, `-10`, `100:200`, `@-6h`; and their meaning in a log.

The only grammar for them: the command line, `foldlog fold rewind` and the console parse here, so that a text means the
same everywhere, and gives the same error. docs/places.md describes it. `parse_place` also takes a range; `parse_point`
one point; `parse_points` one point, or one for each partition (`0=1200,1=900`). They return a PlaceSpec or raise an
error with one sentence. `resolve` finds the place's present offsets in a log, for each partition. A range's stop is
exclusive. A start that the log does not hold (any more, or yet) is moved to the nearest offset that it does hold;
`moved_starts` reports that.

A time means the first record whose timestamp is not before it. Timestamps come from producers, and may be out of order:
records before that one can still be younger.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Literal, NamedTuple, Protocol

from foldlog.clock import SystemClock
from foldlog.durations import SHORT_DURATION, milliseconds
from foldlog.errors import InvalidArgument, UnknownPartition, brief_repr
from foldlog.records.batch import MAX_INT64

_POINT_FORMS: Final = "start, end, +10, -10, 100, @2026-01-15T10:30, @10:30 or @-6h"
_PLACE_FORMS: Final = _POINT_FORMS.replace("100,", "100, 100:200,")
_MOST_POINTS: Final = (
    "+10 (after the start), -10 (before the end), 100, @2026-01-15T10:30 (local time, or with Z or +05:30), @10:30"
    " (today), @-6h, @1700000000000 (ms)"
)
_ONE_EACH: Final = "or one for each partition: 0=1200,1=@-6h"

POINT_HELP: Final = f"start, end, {_MOST_POINTS}"
"""For options that take one point, and refuse a range."""

POINTS_HELP: Final = f"{POINT_HELP}; {_ONE_EACH}"

BACK_HELP: Final = f"start, {_MOST_POINTS}; {_ONE_EACH}"
"""For an option that only goes back: before the end."""

PLACE_HELP: Final = f"{POINT_HELP}; or a range: 100:200, :200, @-2h:-1h, @2026-01-15:1d"

_DURATION_MS_MAX: Final = 1000 * 366 * 86_400_000
_ZONE: Final = r"(?:Z|[+-]\d\d:?\d\d)"
_DATE_TIME: Final = rf"\d{{4}}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{{1,6}})?)?{_ZONE}?)?"
_OF_TODAY: Final = rf"\d{{1,2}}:\d\d(?::\d\d)?{_ZONE}?"
_MOMENT: Final = rf"(?:{_DATE_TIME}|{_OF_TODAY}|\d{{13}}|\d{{10}}|-{SHORT_DURATION})"
_TIMES: Final = re.compile(
    rf"(?P<start>{_MOMENT})?(?:(?P<colon>:)(?P<stop>{_MOMENT}|{SHORT_DURATION}|end)?)?", re.ASCII
)
_OFFSETS: Final = re.compile(r"(?P<start>start|end|[+-]?\d+)?(?:(?P<colon>:)(?P<stop>start|end|[+-]?\d+)?)?", re.ASCII)
_TODAY: Final = re.compile(_OF_TODAY, re.ASCII)
_HAS_ZONE: Final = re.compile(rf".*\d{_ZONE}")
_LIKE_A_TIME: Final = re.compile(rf"-?{SHORT_DURATION}|\d{{4}}-\d.*", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LIKE_EACH: Final = re.compile(r"\d+:\d+", re.ASCII)
_OF_TOPIC: Final = re.compile(r"(?!start:|end:)(?P<topic>[A-Za-z_][A-Za-z0-9._-]*):(?P<place>.+)", re.ASCII)
_EACH: Final = re.compile(r"(?P<number>\d{1,10})=(?P<place>.*)", re.ASCII)

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

    `note` says how an ambiguous text was read: a time without a zone. `portable` is the same place in a text that means
    the same on a machine in another zone. If `each` has points, there is one for each of those partitions, `start` is
    not used, and other partitions are not included.
    """

    text: str
    start: Point
    stop: Point | None = None
    note: str | None = None
    portable: str = ""
    each: Mapping[int, Point] = field(default_factory=dict)

    def point(self, partition: int) -> Point:
        """The start in a partition."""
        return self.each.get(partition, self.start)

    @property
    def is_range(self) -> bool:
        return self.stop is not None

    @property
    def names_offsets(self) -> bool:
        """Whether it means something in one topic only."""
        return bool(self.each) or self.start.kind == "offset"


class Span(NamedTuple):
    """The meaning of a place in one partition: from `start` to `stop` (exclusive; None: there is no stop)."""

    start: int
    stop: int | None


class HasOffsets(Protocol):
    """The part of a log that `resolve` needs, for a directory or a broker."""

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]: ...

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int | None]: ...


# --- text to places -------------------------------------------------------------------------------------------------


def parse_place(text: str, *, zone: str | None = None, now_ms: int | None = None) -> PlaceSpec:
    """Parse a place or a range. Raises InvalidArgument with what is wrong.

    A time without a zone is in `zone` (a name such as Europe/Berlin), or in that of this machine. `now_ms` determines
    the present day.

    >>> parse_place("100:200").stop
    Point(kind='offset', value=200)
    >>> parse_place("@-6h").start
    Point(kind='ago', value=21600000)
    >>> parse_place("end").start.kind, parse_place(":end").start.kind
    ('end', 'start')
    """
    spec = _parsed(text, _Times(zone, now_ms), takes_range=True)
    start, stop = spec.start, spec.stop
    if stop is not None and _is_backwards(start, stop):
        raise InvalidArgument(f"{text!r} stops before it starts; write the earlier one first")
    return spec


def _parsed(text: object, times: _Times, *, takes_range: bool) -> PlaceSpec:
    """`takes_range` is for the errors: they suggest only what is allowed."""
    if not isinstance(text, str):
        raise _no_place(text, takes_range)
    if _EACH.match(text):
        raise InvalidArgument(f"{brief_repr(text)} names partitions; give one place for all, such as 100 or @-6h")
    return _times(text, times, takes_range) if text.startswith("@") else _offsets(text, takes_range)


def _no_place(text: object, takes_range: bool) -> InvalidArgument:
    forms = _PLACE_FORMS if takes_range else _POINT_FORMS
    return InvalidArgument(f"{brief_repr(text)} is not a place in a topic; give {forms}")


def parse_point(text: str, *, zone: str | None = None, now_ms: int | None = None) -> PlaceSpec:
    """Parse one point; a range is refused."""
    spec = _parsed(text, _Times(zone, now_ms), takes_range=False)
    if spec.is_range:
        raise InvalidArgument(f"{text!r} is a range; give one place, such as 100 or @-6h")
    return spec


def topic_and_place(text: str) -> tuple[str | None, str]:
    """A topic and a place in it, where a text may name both.

    >>> topic_and_place("orders:0=12"), topic_and_place("@2026-01-15T10:30"), topic_and_place("100:200")
    (('orders', '0=12'), (None, '@2026-01-15T10:30'), (None, '100:200'))
    """
    found = _OF_TOPIC.fullmatch(str(text))
    return (found["topic"], found["place"]) if found else (None, str(text))


def parse_topic_points(text: str) -> PlaceSpec:
    """`parse_points`, of a text that may name a topic first.

    >>> parse_topic_points("orders:0=12").portable
    'orders:0=12'
    """
    topic, place = topic_and_place(text)
    spec = parse_points(place)
    return spec if topic is None else replace(spec, text=text, portable=f"{topic}:{spec.portable}")


def parse_points(text: str, *, zone: str | None = None, now_ms: int | None = None) -> PlaceSpec:
    """Parse one point, or one for each of some partitions.

    >>> parse_points("0=1200,1=end").each
    {0: Point(kind='offset', value=1200), 1: Point(kind='end', value=0)}
    """
    if not _EACH.match(str(text)):
        try:
            return parse_point(text, zone=zone, now_ms=now_ms)
        except InvalidArgument as error:
            if _LIKE_EACH.fullmatch(str(text)):
                raise InvalidArgument(f"{error} (one for each partition is 0=1200,1=900)") from None
            if str(error).endswith(_POINT_FORMS):
                raise InvalidArgument(f"{error}, or one for each partition: 0=1200,1=900") from None
            raise
    specs: dict[int, PlaceSpec] = {}
    for part in text.split(","):
        found = _EACH.fullmatch(part)
        if found is None:
            raise InvalidArgument(
                f"{brief_repr(part)} in {brief_repr(text)} names no partition; write one place for each: 0=1200,1=900"
            )
        number = int(found["number"])
        if number in specs:
            raise InvalidArgument(f"{brief_repr(text)} names partition {number} twice; give it one place")
        specs[number] = parse_point(found["place"], zone=zone, now_ms=now_ms)
    return PlaceSpec(
        text,
        Point("start"),
        None,
        "; ".join(dict.fromkeys(spec.note for spec in specs.values() if spec.note)) or None,
        ",".join(f"{number}={spec.portable}" for number, spec in specs.items()),
        {number: spec.start for number, spec in specs.items()},
    )


def places_text(offsets: Mapping[int, int]) -> str:
    """An offset in each partition, as it is shown and can be typed again.

    >>> places_text({0: 7, 1: 9})
    '0=7,1=9'
    """
    return ",".join(f"{number}={offset}" for number, offset in sorted(offsets.items()))


def ranges_text(ranges: Iterable[tuple[int, int, int]]) -> str:
    """Ranges of partitions, each with its start and the offset it stops before.

    >>> ranges_text([(0, 7, 9), (1, 0, 4)])
    '0=7:9,1=0:4'
    """
    return ",".join(f"{number}={start}:{stop}" for number, start, stop in ranges)


def topics_ranges_text(spans: Iterable[tuple[str, int, int, int]]) -> str:
    """Ranges of partitions; with the topics, if they are of several.

    >>> topics_ranges_text([("orders", 0, 3, 9), ("payments", 1, 0, 4)])
    'orders 0=3:9; payments 1=0:4'
    """
    found: dict[str, list[tuple[int, int, int]]] = {}
    for topic, *span in spans:
        found.setdefault(topic, []).append((span[0], span[1], span[2]))
    texts = {topic: ranges_text(some) for topic, some in found.items()}
    return "; ".join(text if len(texts) == 1 else f"{topic} {text}" for topic, text in texts.items())


def _offsets(text: str, takes_range: bool) -> PlaceSpec:
    found = _OFFSETS.fullmatch(text)
    if found is None or not text or text == ":":
        if _LIKE_A_TIME.fullmatch(text):
            meant = f"@-{text}" if text[-1].isalpha() and text[0].isdigit() and "-" not in text else f"@{text}"
            raise InvalidArgument(f"{brief_repr(text)} is not a place in a topic; a time begins with @, as in {meant}")
        raise _no_place(text, takes_range)
    start = _offset_point(found["start"] or "start", text)
    if not found["colon"]:
        return PlaceSpec(text, start, portable=text)
    # "100:" is "100", as in rpk: without a stop there is none.
    return PlaceSpec(text, start, _offset_point(found["stop"], text) if found["stop"] else None, portable=text)


def _offset_point(point: str, text: str) -> Point:
    if point == "start":
        return Point("start")
    if point == "end":
        return Point("end")
    digits = point.lstrip("+-")
    if len(digits) > 19 or int(digits) > MAX_INT64:
        raise InvalidArgument(f"{brief_repr(text)} is not a place in a topic; offsets are below 2**63")
    return Point(_SIGNS.get(point[0], "offset"), int(digits))


@dataclass(slots=True)
class _Times:
    """Reads the times of one text, and collects notes about them."""

    zone: str | None
    now_ms: int | None
    notes: list[str] = field(default_factory=list)

    def moment(self, point: str, text: str) -> datetime:
        """The date and time of a text, with its zone."""
        zone = None if _HAS_ZONE.fullmatch(point) else self._zone()
        try:
            if _TODAY.fullmatch(point):
                hour, _, rest = point.partition(":")
                clock = datetime.fromisoformat(f"2000-01-01T{hour:0>2}:{rest}")
                today = self._now().astimezone(clock.tzinfo or zone)
                moment = clock.replace(year=today.year, month=today.month, day=today.day)
            else:
                moment = datetime.fromisoformat(point)
            if moment.tzinfo is not None:
                known = moment
            else:
                known = moment.astimezone() if zone is None else moment.replace(tzinfo=zone)
                self.notes.append(f"{point} is taken as local time, {known.isoformat(timespec='minutes')}")
            known.astimezone(UTC)  # a day of the year 1, or 9999, may not exist in another zone
        except (ValueError, OverflowError) as error:
            raise InvalidArgument(f"{point!r} in {text!r} is not a time of the calendar: {error}") from None
        return known

    def _now(self) -> datetime:
        return _EPOCH + timedelta(milliseconds=SystemClock().now_ms() if self.now_ms is None else self.now_ms)

    def _zone(self) -> tzinfo | None:
        """The zone; None is that of this machine."""
        if self.zone is None:
            return None
        from zoneinfo import ZoneInfo  # few places need it

        try:
            return ZoneInfo(self.zone)
        except (KeyError, ValueError, OSError):
            raise InvalidArgument(
                f"the time zone {brief_repr(self.zone)} is not known here; write the time with Z or +05:30"
            ) from None


def _times(text: str, times: _Times, takes_range: bool) -> PlaceSpec:
    rest = text[1:]
    found = _TIMES.fullmatch(rest)
    if found is None or rest in ("", ":"):
        raise InvalidArgument(
            f"{brief_repr(text)} is not a time; give @2026-01-15, @2026-01-15T10:30, @2026-01-15T10:30:00Z, @10:30,"
            " @1700000000000 (13 digits: ms), @-6h" + (", or a range of them such as @-2h:-1h" if takes_range else "")
        )
    start, portable = _time_point(found["start"], text, times) if found["start"] else (Point("start"), "")
    stop = None
    if found["stop"]:
        stop, said = _time_point(found["stop"], text, times)
        portable += f":{said}"
    if stop is not None and stop.kind == "after_time" and not start.is_time:
        raise InvalidArgument(f"{text!r} has no time to count {found['stop']} from; begin it with one, as in @-2h:1h")
    return PlaceSpec(text, start, stop, "; ".join(times.notes) or None, f"@{portable}")


def _time_point(point: str, text: str, times: _Times) -> tuple[Point, str]:
    """A point, and its text for a machine in another zone."""
    if point == "end":
        return Point("end"), point
    if point.isdigit():
        return Point("time", int(point) * (1000 if len(point) == 10 else 1)), point
    duration_ms = milliseconds(point.removeprefix("-"))
    if duration_ms is not None:
        if duration_ms > _DURATION_MS_MAX:
            raise InvalidArgument(f"{brief_repr(text)} is further away than a thousand years")
        return Point("ago" if point.startswith("-") else "after_time", duration_ms), point
    at = times.moment(point, text)
    told = point if _HAS_ZONE.fullmatch(point) and not _TODAY.fullmatch(point) else _with_zone(at)
    return Point("time", (at - _EPOCH) // timedelta(milliseconds=1)), told


def _with_zone(at: datetime) -> str:
    """A text with the zone. Zones of the 19th century have seconds, which the grammar lacks: those become UTC."""
    away = at.utcoffset() or timedelta()
    return (at.astimezone(UTC) if away % timedelta(minutes=1) else at).isoformat()


def _is_backwards(start: Point, stop: Point) -> bool:
    """Whether the range is backwards for certain, wherever the log starts and ends, and whatever time it is."""
    if (start.kind == "end" and stop.kind != "end") or (stop.kind == "start" and start.kind != "start"):
        return True
    if start.kind != stop.kind:
        return False
    return start.value < stop.value if start.kind in ("before_end", "ago") else start.value > stop.value


# --- places in a log ------------------------------------------------------------------------------------------------


def resolve(
    spec: PlaceSpec,
    log: HasOffsets,
    topic: str,
    *,
    bounds: Mapping[int, tuple[int, int]] | None = None,
    now_ms: int | None = None,
) -> dict[int, Span]:
    """The present offsets of the place in each partition that it includes: all, unless it names some.

    The start is always within the log, or at its end. A stop that was written as an offset stays as it is, so it may be
    beyond the end; any other is at most the present end. `bounds` are the log's offsets, if they are known already.
    Raises UnknownPartition if the place names one that does not exist, InvalidArgument if it is not in `bounds`.
    """
    bounds = log.offsets(topic) if bounds is None else bounds
    now_ms = SystemClock().now_ms() if now_ms is None else now_ms
    _check_named(spec, log, topic, bounds)
    if spec.each:
        starts: dict[int, int] = {}
        for number, point in spec.each.items():
            starts |= _resolved(point, None, log, topic, {number: bounds[number]}, now_ms)
    else:
        starts = _resolved(spec.start, None, log, topic, bounds, now_ms)
    stops = {} if spec.stop is None else _resolved(spec.stop, spec.start, log, topic, bounds, now_ms)
    spans: dict[int, Span] = {}
    for number, wanted in starts.items():
        first, end = bounds[number]
        start = min(max(wanted, first), end)
        spans[number] = Span(start, max(stops[number], start) if number in stops else None)
    return spans


def _check_named(spec: PlaceSpec, log: HasOffsets, topic: str, bounds: Mapping[int, tuple[int, int]]) -> None:
    for number in spec.each:
        if number not in bounds:
            known = ", ".join(map(str, sorted(bounds)))
            if number not in (there := log.offsets(topic)):
                raise UnknownPartition(topic, number, max(there, default=-1) + 1)
            raise InvalidArgument(f"{spec.text!r} names partition {number} of {topic}; give one of {known}")


def time_of(point: Point, before: Point | None, now_ms: int) -> int:
    """The time of a point, in milliseconds since 1970; `before` is the start that a duration counts from."""
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
    told: list[str] = []
    for number, (start, end) in sorted(bounds.items()):
        kind, wanted = spec.point(number)
        if kind != "offset":
            continue
        if wanted < start:
            told.append(f"{topic}-{number} no longer holds offset {wanted}; it starts at {start}")
        elif wanted > end:
            told.append(f"{topic}-{number} does not reach offset {wanted} yet; it ends at {end}")
    return told
