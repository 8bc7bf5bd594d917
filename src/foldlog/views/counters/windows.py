"""Windows of event time: fixed ones, overlapping ones, calendar ones of a time zone, and sessions.

A window is a function of an event's own time alone, so a late event finds its window wherever and whenever it is read.
Fixed windows begin at 1970-01-01 UTC, in milliseconds, and their start identifies them. Hopping windows overlap: an
event counts in each window that it is in. With a zone, windows follow the clock on the wall there: days begin at local
midnight, weeks on Monday, months on the first. An hour that the clock repeats in autumn is part of one window.

A session is a set of events of one group, each closer than the gap to the next. It begins with its first event and ends
the gap after its last one, as in Spark and Flink. An event that comes late may extend a session, or join two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from zoneinfo import ZoneInfo

from foldlog.durations import duration_text, milliseconds
from foldlog.errors import InvalidArgument, brief_repr

WINDOW_START: Final = "window_start"
"""The column with the start of a row's window of event time."""

WINDOW_END: Final = "window_end"
"""The column with the end of a session: the gap after its last event."""

WIDTH_MS_MAX: Final = 366 * 86_400_000
"""A wider window is probably a typing error; a total needs no window."""

HOPS_MAX: Final = 1000
"""In how many windows an event may be."""

DAY_MS: Final = 86_400_000
WEEK_MS: Final = 7 * DAY_MS

MONDAY_MS: Final = -3 * DAY_MS
"""A Monday, counted from 1970-01-01, which was a Thursday."""

_MONTHS: Final = re.compile(r"\s*([0-9]{1,3})\s*(month|quarter|year)s?\s*", re.IGNORECASE)
_MONTHS_OF: Final = {"month": 1, "quarter": 3, "year": 12}


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of the timestamp column: a fixed width or, if `months` is not 0, calendar months.

    One begins every `every_ms`, if that is not 0, and so they overlap. Without a zone they are UTC's.
    """

    column: str
    width_ms: int
    every_ms: int = 0
    zone: str | None = None
    months: int = 0

    @property
    def step_ms(self) -> int:
        """From the start of a window to the next one's."""
        return self.every_ms or self.width_ms

    @property
    def origin_ms(self) -> int:
        """Where one of the windows begins, in local time. Calendar weeks begin on Monday."""
        return MONDAY_MS if self.zone is not None and self.step_ms % WEEK_MS == 0 else 0

    def __str__(self) -> str:
        width = f"{self.months} months" if self.months else duration_text(self.width_ms)
        every = f" every {duration_text(self.every_ms)}" if self.every_ms else ""
        zone = f" in {self.zone}" if self.zone is not None else ""
        return f"{width}{every} of {self.column}{zone}"


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions by the timestamp column: events closer than the gap belong together."""

    column: str
    gap_ms: int

    def __str__(self) -> str:
        return f"sessions of {self.column} with a gap of {duration_text(self.gap_ms)}"


AnyWindow = Window | Sessions


def window(column: str, width: str, *, every: str | None = None, zone: str | None = None) -> Window:
    """Windows of event time by a TIMESTAMP column.

    `every` lets a window begin more often than one ends: `window("at", "1 hour", every="15 minutes")`. `zone` is a time
    zone, such as "Asia/Kolkata", whose days, weeks, months, quarters and years may be windows, or parts of its days.

    >>> window("at", "1 day", zone="Asia/Kolkata")
    Window(column='at', width_ms=86400000, every_ms=0, zone='Asia/Kolkata', months=0)
    """
    name = _column(column)
    if zone is not None:
        _check_zone(zone)
    found = _MONTHS.fullmatch(str(width))
    if found is not None:
        return _calendar(name, width, int(found[1]) * _MONTHS_OF[found[2].lower()], every, zone)
    width_ms = parse_width_ms(width)
    every_ms = 0 if every is None else parse_width_ms(every)
    if every_ms > width_ms:
        raise InvalidArgument(
            f"windows of {brief_repr(width)} every {brief_repr(every)} would leave out what is between them;"
            " let every= be no longer than the window"
        )
    made = Window(name, width_ms, 0 if every_ms == width_ms else every_ms, zone)
    if -(-width_ms // made.step_ms) > HOPS_MAX:
        raise InvalidArgument(
            f"with windows of {brief_repr(width)} every {brief_repr(every)}, each row would count in more than"
            f" {HOPS_MAX} windows; let them begin less often"
        )
    if zone is not None and any(one % DAY_MS and DAY_MS % one for one in (width_ms, made.step_ms)):
        raise InvalidArgument(
            f"windows in a zone begin at the same time on every day, so {brief_repr(width)} has to be a part of a day,"
            " such as '6 hours', or days, weeks, months or years"
        )
    return made


def _calendar(column: str, width: str, months: int, every: str | None, zone: str | None) -> Window:
    if every is not None:
        raise InvalidArgument(f"windows of {brief_repr(width)} follow the calendar, and do not overlap; omit every=")
    if months not in (1, 2, 3, 4, 6, 12):
        raise InvalidArgument(
            f"a window of {brief_repr(width)} is no part of a year; say '1 month', '1 quarter' or '1 year'"
        )
    return Window(column, 0, 0, zone or "UTC", months)


def sessions(column: str, gap: str) -> Sessions:
    """Sessions by a TIMESTAMP column: events of a group that are closer than `gap` belong together.

    >>> sessions("at", "30 minutes")
    Sessions(column='at', gap_ms=1800000)
    """
    return Sessions(_column(column), parse_width_ms(gap))


def parse_width_ms(text: object) -> int:
    """
    >>> parse_width_ms("1 minute"), parse_width_ms("15 seconds"), parse_width_ms("1d")
    (60000, 15000, 86400000)
    """
    width_ms = milliseconds(text) if isinstance(text, str) else None
    if width_ms is None:
        raise InvalidArgument(
            f"{brief_repr(text)} is no width of a window; give a number and a unit, such as '1 minute', '15 seconds',"
            " '1 hour' or '1 day' (units: millisecond, second, minute, hour, day, week; of a window that does not"
            " overlap, also month, quarter, year)"
        )
    if not 0 < width_ms <= WIDTH_MS_MAX:
        raise InvalidArgument(
            f"a window of {brief_repr(text)} is not between 1 millisecond and 366 days; leave window out for a total"
        )
    return width_ms


def parse_window(given: object) -> AnyWindow | None:
    """A window from a user's argument, such as `("at", "1 minute")`; None for no window."""
    if given is None or isinstance(given, Window | Sessions):
        return given
    if not isinstance(given, tuple | list) or len(given) != 2 or not isinstance(given[0], str) or not given[0]:
        raise InvalidArgument(
            f"window is a timestamp column and a width, such as ('at', '1 minute'), or fl.window(...) or"
            f" fl.sessions(...), not {brief_repr(given)}"
        )
    return window(given[0], given[1])


def window_to_json(given: AnyWindow | None) -> object:
    """The form in which a view stores it: as older versions do, where they know such a window."""
    if given is None:
        return None
    if isinstance(given, Sessions):
        return {"column": given.column, "gap_ms": given.gap_ms}
    if (given.every_ms, given.zone, given.months) == (0, None, 0):
        return [given.column, given.width_ms]
    return {
        "column": given.column,
        "width_ms": given.width_ms,
        "every_ms": given.every_ms,
        "zone": given.zone,
        "months": given.months,
    }


def window_from_json(stored: object) -> AnyWindow | None:
    """The inverse of `window_to_json`; TypeError or KeyError for anything else."""
    if stored is None:
        return None
    if isinstance(stored, list):
        return Window(*stored)
    if not isinstance(stored, dict):
        raise TypeError(f"{stored!r} is no window")
    return Sessions(**stored) if "gap_ms" in stored else Window(**stored)


def _column(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a window is of a timestamp column, such as 'at', not of {brief_repr(name)}")
    return name


def _check_zone(zone: object) -> None:
    # Names only, such as both Java and Python know: of abbreviations and offsets they think differently.
    if isinstance(zone, str) and ("/" in zone or zone == "UTC"):
        try:
            ZoneInfo(zone)
        except (OSError, ValueError, KeyError):  # it is not found, or no name for a file
            pass
        else:
            return
    raise InvalidArgument(f"{brief_repr(zone)} is no time zone; name one, such as 'Asia/Kolkata' or 'Europe/Berlin'")
