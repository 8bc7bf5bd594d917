"""How the process logs: one line per event on standard error, as text or as JSON.

A line of text: time in UTC, level, logger without `foldlog.`, message. A JSON object has ts, level, logger and message,
and the fields that a call adds with `extra`. Text from a client is escaped: it cannot begin a line of its own.

Repeated warnings (`RepeatedLines`) are logged at once the first time, then once per interval with a count: a client
that is set up wrongly tries again many times a second, and so does a producer whose partition refuses its batches. Each
attempt is counted, not logged.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NamedTuple, TextIO

from foldlog.clock import Clock
from foldlog.environment import variable
from foldlog.limits import CONSOLE_RECENT_LINES_MAX

_COLOURS: Final = {"DEBUG": "\x1b[2m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[1;31m"}
_PLAIN: Final = "\x1b[0m"
_FRAMES_MAX: Final = 8
"""Innermost calls shown for an unexpected error; the JSON line has all of them."""

_OWN_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Fields of every record; all others came with `extra`."""


def configure(log_format: str, level: str, stream: TextIO | None = None) -> logging.Handler:
    """Log to standard error from now on: libraries from warnings on, our own loggers from `level` on."""
    stream = stream or sys.stderr
    handler: logging.Handler = logging.StreamHandler(stream) if stream is not None else logging.NullHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines(colours=_wants_colours(stream)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("foldlog").setLevel(level.upper())
    # Who did what is asked for afterwards: it is not for the level to decide.
    logging.getLogger("foldlog.audit").setLevel(logging.INFO)
    return handler


class TextLines(logging.Formatter):
    """Lines of text; coloured only on a terminal."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname:<7}"
        colour = _COLOURS.get(record.levelname) if self._colours else None
        if colour is not None:
            level = f"{colour}{level}{_PLAIN}"
        message = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            message = f"{message}: {_error_text(record.exc_info[1])}"
        return f"{_time_text(record)} {level} {_short_name(record)}: {one_line(message)}"


class JsonLines(logging.Formatter):
    """One JSON object per line. `extra` fields are beside the others; values that JSON does not know become text."""

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = {
            "ts": _time_text(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in _OWN_FIELDS:
                event.setdefault(name, value)
        if record.exc_info and record.exc_info[1] is not None:
            event["error"] = _summary(record.exc_info[1])
            event["traceback"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps(event, default=str)  # in ASCII: independent of the terminal's encoding


def one_line(text: str) -> str:
    r"""
    >>> print(one_line("a\nb\x1b[2J"))
    a\nb\x1b[2J
    """
    if text.isprintable():
        return text
    return "".join(part if part.isprintable() else part.encode("unicode_escape").decode() for part in text)


def _time_text(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _short_name(record: logging.LogRecord) -> str:
    return record.name.removeprefix("foldlog.")


def _error_text(error: BaseException) -> str:
    """The error and the calls that led to it, innermost first, in a line."""
    frames = _frames(error.__traceback__)
    return f"{_summary(error)} ({' < '.join(frames)})" if frames else _summary(error)


def _frames(trace: TracebackType | None) -> list[str]:
    summaries = traceback.extract_tb(trace)[-_FRAMES_MAX:]
    return [f"{each.filename.rpartition('/')[2]}:{each.lineno} {each.name}" for each in reversed(summaries)]


def _summary(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _wants_colours(stream: TextIO | None) -> bool:
    """Whether it is a terminal, unless its owner says no (https://no-color.org)."""
    return stream is not None and stream.isatty() and not variable("NO_COLOR")


logger = logging.getLogger("foldlog.server")

_RECENT_CHARS_MAX: Final = 2000

INTERVAL_MS: Final = 10_000
REMEMBERED_MAX: Final = 1000
"""Bounded, since anyone who reaches the port chooses how many different keys there are."""


@dataclass(slots=True)
class _Told:
    """When a key was last logged, and what was only counted since."""

    at_ms: float
    more: int = 0
    line: str = ""  # the newest line that was only counted


class RepeatedLines:
    """Any thread. Lines with the same key are counted together; at most `remembered_max` keys are known at a time."""

    def __init__(self, clock: Clock, *, interval_ms: float = INTERVAL_MS, remembered_max: int = REMEMBERED_MAX) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        self._remembered_max = remembered_max
        self._lock = threading.Lock()
        self._told: dict[Hashable, _Told] = {}  # in the order in which they were last logged

    def warn(self, key: Hashable, line: str) -> None:
        """Log it, or count it if a line of its key was logged less than an interval ago."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            told = self._told.get(key)
            if told is not None and now_ms - told.at_ms < self._interval_ms:
                told.more += 1
                told.line = line
                return
            lines = [_with_count(line, told.more if told is not None else 0)]
            self._told.pop(key, None)
            self._told[key] = _Told(now_ms)
            if len(self._told) > self._remembered_max:
                oldest = self._told.pop(next(iter(self._told)))
                if oldest.more:
                    lines.append(_with_count(oldest.line, oldest.more - 1))
        for each in lines:
            logger.warning("%s", each)

    def sweep(self) -> None:
        """About once a second: log what was counted and is due, and forget keys that did not come again."""
        now_ms = self._clock.monotonic_ms()
        lines = []
        with self._lock:
            for key, told in list(self._told.items()):
                if now_ms - told.at_ms < self._interval_ms:
                    break
                del self._told[key]
                if told.more:
                    lines.append(_with_count(told.line, told.more - 1))
                    self._told[key] = _Told(now_ms)
        for line in lines:
            logger.warning("%s", line)


def _with_count(line: str, more: int) -> str:
    return f"{line} (and {more} more like it)" if more else line


class RecentLine(NamedTuple):
    """One line of the process's log."""

    at_ms: int
    level: str
    text: str


class RecentLines(logging.Handler):
    """The last warnings and errors of our own loggers, in memory, for who cannot see standard error. Any thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: deque[RecentLine] = deque(maxlen=CONSOLE_RECENT_LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage() if error is None else f"{record.getMessage()}: {_summary(error)}"
        line = one_line(text)[:_RECENT_CHARS_MAX]
        self._lines.append(RecentLine(int(record.created * 1000), record.levelname.lower(), line))

    def begin(self) -> None:
        logging.getLogger("foldlog").addHandler(self)

    def end(self) -> None:
        logging.getLogger("foldlog").removeHandler(self)

    def newest(self) -> list[RecentLine]:
        """Newest first."""
        return list(reversed(self._lines))
