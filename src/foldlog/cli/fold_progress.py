"""How running folds look: on a terminal a table that redraws itself, elsewhere a line per range."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TextIO

if TYPE_CHECKING:
    from foldlog.spark.folds.feed import Feed

_REDRAW_S: Final = 0.1
_HEADS: Final = ("FOLD", "STATE", "ROWS/S", "LAG", "RECORDS", "DEAD", "LAST RANGE")
_WIDTHS: Final = (24, 10, 10, 12, 12, 6, 0)


class Progress(Protocol):
    """Told of a feed after every range and every failure."""

    def show(self, feed: Feed) -> None: ...


@contextmanager
def progress_for(stream: TextIO) -> Iterator[Progress]:
    """The one that suits where it is written to."""
    if stream.isatty():
        table = RedrawnTable(stream)
        try:
            yield table
        finally:
            table.finish()
    else:
        yield Lines(stream)


class Lines:
    """One line per range, for files and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, feed: Feed) -> None:
        if feed.error:
            line = f"{feed.name}: {feed.state}: {feed.error}"
        elif feed.rows_per_s:
            line = (
                f"{feed.name}: {ranges_text(feed)}  {feed.records} records in all, {feed.rows_per_s:.0f} rows/s,"
                f" lag {feed.lag}{_dead_text(feed)}"
            )
        else:
            line = f"{feed.name}: {feed.state}"
        print(line, file=self._stream, flush=True)


class RedrawnTable:
    """A table that is drawn over itself. Not for two threads."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._feeds: dict[str, Feed] = {}
        self._lines = 0
        self._drawn_s = 0.0

    def show(self, feed: Feed) -> None:
        self._feeds[feed.name] = feed
        if time.monotonic() - self._drawn_s >= _REDRAW_S or feed.error:
            self._draw()

    def finish(self) -> None:
        if self._feeds:
            self._draw()

    def _draw(self) -> None:
        self._drawn_s = time.monotonic()
        width = shutil.get_terminal_size().columns
        lines = [_row(_HEADS), *(_row(_cells(feed)) for feed in self._feeds.values())]
        lines += [f"{feed.name}: {feed.error}" for feed in self._feeds.values() if feed.error]
        # Up over what was drawn before, and clear to the end of the screen: no line is longer than the terminal.
        back = f"\x1b[{self._lines}F" if self._lines else ""
        self._stream.write(back + "\x1b[J" + "".join(f"{line[: width - 1]}\n" for line in lines))
        self._stream.flush()
        self._lines = len(lines)


def _cells(feed: Feed) -> tuple[str, ...]:
    return (
        feed.name,
        str(feed.state),
        f"{feed.rows_per_s:,.0f}",
        f"{feed.lag:,}",
        f"{feed.records:,}",
        str(feed.dead),
        ranges_text(feed),
    )


def _row(cells: tuple[str, ...]) -> str:
    padded = [
        cell.ljust(width) if index in (0, 1, 6) else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=True))
    ]
    return "  ".join(padded).rstrip()


def ranges_text(feed: Feed) -> str:
    """What was read last, per partition."""
    return " ".join(f"{one.partition}:{one.start}-{one.stop}" for one in feed.last_ranges) or "-"


def _dead_text(feed: Feed) -> str:
    return f", {feed.dead} dead" if feed.dead else ""
