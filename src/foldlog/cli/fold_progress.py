"""How running folds look: on a terminal a table that redraws itself, elsewhere a line per range."""

from __future__ import annotations

import logging
import os
import shutil
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TextIO

if TYPE_CHECKING:
    from foldlog.spark.folds.feed import Feed

_REDRAW_S: Final = 0.1
_HEADS: Final = ("FOLD", "STATE", "ROWS/S", "LAG", "RECORDS", "DEAD", "LAST RANGE")
_NUMBERS: Final = frozenset((2, 3, 4, 5))
_NARROWEST: Final = (0, 9, 9, 9, 11, 4, 0)
"""Columns keep this width, so that the table does not jump while numbers grow."""


class Progress(Protocol):
    """Told of what happens while folds run. `hear` may be called by a signal handler; the rest by one thread."""

    def show(self, feed: Feed) -> None:
        """A range was stored, a feed changed its state, or it failed."""
        ...

    def doing(self, what: str) -> None:
        """What takes a while just now; nothing if it is empty."""
        ...

    def note(self, text: str) -> None:
        """Something a person should know, which is no fold's own failure."""
        ...

    def hear(self, text: str) -> None:
        """A signal came, and this is what it means."""
        ...


@contextmanager
def progress_for(stream: TextIO, names: Iterable[str] = ()) -> Iterator[Progress]:
    """The one that suits where it is written to. Warnings of the package become notes."""
    progress: RedrawnTable | Lines = RedrawnTable(stream, names) if stream.isatty() else Lines(stream)
    handler = _Notes(progress)
    logger = logging.getLogger("foldlog")
    logger.addHandler(handler)
    try:
        yield progress
    finally:
        logger.removeHandler(handler)
        progress.finish()


class _Notes(logging.Handler):
    """A warning that is printed by itself would stand in the middle of a table that is redrawn."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.WARNING)
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        self._progress.note(record.getMessage())


class Lines:
    """One line per range, for files and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._at_end: set[str] = set()

    def show(self, feed: Feed) -> None:
        if feed.error:
            self._print(f"{feed.name}: {error_text(feed)}")
        elif feed.rows_per_s:
            self._print(
                f"{feed.name}: {ranges_text(feed)}  {feed.records} records in all, {feed.rows_per_s:.0f} rows/s,"
                f" lag {feed.lag}{_dead_text(feed)}"
            )
        elif feed.state != "caught up" or feed.name not in self._at_end:
            # That it has caught up is told once: from then on the lag of each range says it.
            self._print(f"{feed.name}: {feed.state}")
        if not feed.lag:
            self._at_end.add(feed.name)

    def doing(self, what: str) -> None:
        """A file has no use for it."""

    def note(self, text: str) -> None:
        self._print(text)

    def hear(self, text: str) -> None:
        _write_now(self._stream, text)

    def finish(self) -> None:
        """Everything is printed."""

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class RedrawnTable:
    """A table that is drawn over itself. Not for two threads."""

    def __init__(self, stream: TextIO, names: Iterable[str] = ()) -> None:
        self._stream = stream
        self._feeds: dict[str, Feed | None] = dict.fromkeys(names)
        self._doing = ""
        self._lines = 0
        self._drawn_s = 0.0

    def show(self, feed: Feed) -> None:
        self._feeds[feed.name] = feed
        self._doing = ""
        if time.monotonic() - self._drawn_s >= _REDRAW_S or feed.error or not feed.rows_per_s:
            self._draw()

    def doing(self, what: str) -> None:
        self._doing = what
        self._draw()

    def note(self, text: str) -> None:
        columns, _ = shutil.get_terminal_size()
        self._clear()
        self._stream.write("\n".join(textwrap.wrap(text, columns - 1)) + "\n")
        self._draw()

    def hear(self, text: str) -> None:
        self._lines += 1
        _write_now(self._stream, text)

    def finish(self) -> None:
        self._doing = ""
        if self._lines:
            self._draw()

    def _clear(self) -> None:
        """Up over what was drawn before, and nothing from there to the end of the screen."""
        back = f"\x1b[{self._lines}F" if self._lines else ""
        self._stream.write(f"{back}\x1b[J")
        self._lines = 0

    def _draw(self) -> None:
        self._drawn_s = time.monotonic()
        columns, rows = shutil.get_terminal_size()
        # One line more than the terminal has would scroll, and what scrolled away cannot be drawn over.
        lines = table_lines(self._feeds, self._doing, columns - 1)[: rows - 1]
        self._clear()
        self._stream.write("".join(f"{line}\n" for line in lines))
        self._stream.flush()
        self._lines = len(lines)


def table_lines(feeds: dict[str, Feed | None], doing: str, width: int) -> list[str]:
    """The table, what is wrong below it, and what takes a while; no line longer than `width`."""
    cells = [_HEADS, *(_cells(name, feed) for name, feed in feeds.items())]
    widths = [
        max(narrowest, *(len(row[index]) for row in cells)) if index < len(_HEADS) - 1 else 0
        for index, narrowest in enumerate(_NARROWEST)
    ]
    lines = [_row(row, widths)[:width] for row in cells]
    for feed in feeds.values():
        if feed is not None and feed.error:
            lines += textwrap.wrap(f"{feed.name}: {error_text(feed)}", width)
    return [*lines, *textwrap.wrap(doing, width)]


def _cells(name: str, feed: Feed | None) -> tuple[str, ...]:
    if feed is None:
        return (name, "starting", "", "", "", "", "")
    return (
        name,
        str(feed.state),
        f"{feed.rows_per_s:,.0f}",
        f"{feed.lag:,}",
        f"{feed.records:,}",
        str(feed.dead),
        ranges_text(feed),
    )


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if index in _NUMBERS else cell.ljust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def error_text(feed: Feed) -> str:
    """What is wrong with a feed, and whether that is the end of it."""
    return f"{feed.state}: {feed.error}" + ("; it is tried again" if feed.state == "waiting" else "")


def ranges_text(feed: Feed) -> str:
    """What was read last, per partition."""
    return " ".join(f"{one.partition}:{one.start}-{one.stop}" for one in feed.last_ranges) or "-"


def _dead_text(feed: Feed) -> str:
    return f", {feed.dead} dead" if feed.dead else ""


def _write_now(stream: TextIO, text: str) -> None:
    """Past the stream's buffer, which may be in use by what the signal interrupted."""
    os.write(stream.fileno(), f"{text}\n".encode())
