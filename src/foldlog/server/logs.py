"""How the process logs: a line an event on standard error, for people, or as JSON for what collects them.

A line of text: time in UTC, level, logger without `foldlog.`, message. A JSON object has ts, level, logger and message,
and what a call adds with `extra`. What came from a client is escaped: it cannot begin a line of its own.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from types import TracebackType
from typing import Any, Final, TextIO

_COLOURS: Final = {"DEBUG": "\x1b[2m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[1;31m"}
_PLAIN: Final = "\x1b[0m"
_FRAMES_MAX: Final = 8
"""Of an unexpected error: where it happened and how it came there; the JSON line has all of it."""

_OWN_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; whatever else one has came with `extra`."""


def configure(log_format: str, level: str, stream: TextIO | None = None) -> logging.Handler:
    """Log to standard error from here on. Libraries are heard from a warning on; ours from `level` on."""
    stream = stream or sys.stderr
    handler: logging.Handler = logging.StreamHandler(stream) if stream is not None else logging.NullHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines(colours=_wants_colours(stream)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("foldlog").setLevel(level.upper())
    return handler


class TextLines(logging.Formatter):
    """Lines for people. Colours only where somebody looks at them."""

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
    """An object a line. `extra` fields stand beside the others; one that JSON does not know is its text."""

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
        return json.dumps(event, default=str)  # in ASCII: it is the same line whatever the terminal's encoding


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
    return [f"{os.path.basename(each.filename)}:{each.lineno} {each.name}" for each in reversed(summaries)]


def _summary(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _wants_colours(stream: TextIO | None) -> bool:
    """A terminal, unless its owner says no (https://no-color.org)."""
    return stream is not None and stream.isatty() and not os.environ.get("NO_COLOR")
