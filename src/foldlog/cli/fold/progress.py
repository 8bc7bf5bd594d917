"""The display of running folds: on a terminal a table that is redrawn, elsewhere a line per range."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from foldlog.cli.progress_bar import redraws
from foldlog.cli.tables import Column, rich_table
from foldlog.client.places import topics_ranges_text
from foldlog.clock import Clock, SystemClock
from foldlog.views.topic_lists import located

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from foldlog.spark.folds.feed import Feed

_REDRAWS_PER_S: Final = 10
_COLUMNS: Final = (
    Column("fold", "FOLD"),
    Column("state", "STATE", least_width=9),
    Column("rows_per_s", "ROWS/S", is_number=True, text=lambda value: f"{value:,.0f}", least_width=9),
    Column("lag", "LAG", is_number=True, text=lambda value: f"{value:,}", least_width=9),
    Column("records", "RECORDS", is_number=True, text=lambda value: f"{value:,}", least_width=11),
    Column("dead", "DEAD", is_number=True, least_width=4),
    Column("last_range", "LAST RANGE"),
)
"""Columns keep their width, so that the table does not jump while numbers grow."""


class FoldProgress(Protocol):
    """Displays events while folds run. A signal handler may call `hear`; everything else is called by one thread."""

    def show(self, feed: Feed) -> None:
        """A range was stored, a feed changed its state, or it failed."""
        ...

    def doing(self, what: str) -> None:
        """Show what currently takes a while; nothing if it is empty."""
        ...

    def note(self, text: str) -> None:
        """Show something that a person should know and that is not a fold's failure."""
        ...

    def hear(self, text: str) -> None:
        """Show what a signal that came means."""
        ...


@contextmanager
def progress_for(stream: TextIO, names: Iterable[str] = ()) -> Iterator[FoldProgress]:
    """The display that suits the stream. Warnings of the package become notes."""
    progress: LiveBoard | Lines = LiveBoard(stream, names) if redraws(stream) else Lines(stream)
    handler = _Notes(progress)
    logger = logging.getLogger("foldlog")
    logger.addHandler(handler)
    try:
        yield progress
    finally:
        logger.removeHandler(handler)
        progress.finish()


class _Notes(logging.Handler):
    """Passes warnings on as notes: printed directly, they would end up in the middle of a redrawn table."""

    def __init__(self, progress: FoldProgress) -> None:
        super().__init__(logging.WARNING)
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        self._progress.note(record.getMessage())


class Lines:
    """One line per range, each with the time in UTC, for files and pipes."""

    def __init__(self, stream: TextIO, clock: Clock | None = None) -> None:
        self._stream = stream
        self._clock = clock or SystemClock()
        self._at_end: set[str] = set()

    def show(self, feed: Feed) -> None:
        if feed.error:
            self._print(f"{feed.name}: {error_text(feed)}")
        elif feed.rows_per_s:
            self._print(
                f"{feed.name}: {last_ranges_text(feed)}  {feed.records} records in all, {feed.rows_per_s:.0f} rows/s,"
                f" {feed.range_s:.2f} s, lag {feed.lag}{_dead_text(feed)}"
            )
        elif feed.state != "caught up" or feed.name not in self._at_end:
            # That it has caught up is printed once: from then on the lag of each range shows it.
            self._print(f"{feed.name}: {feed.state}")
        if not feed.lag:
            self._at_end.add(feed.name)

    def doing(self, what: str) -> None:
        """Not shown in a file."""

    def note(self, text: str) -> None:
        self._print(text)

    def hear(self, text: str) -> None:
        _write_now(self._stream, text)

    def finish(self) -> None:
        """Nothing to do: everything is printed already."""

    def _print(self, line: str) -> None:
        at = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        print(f"{at.removesuffix('+00:00')}Z {line}", file=self._stream, flush=True)


class LiveBoard:
    """A table that is redrawn below all notes, by a thread of rich's.

    A signal handler only stores its text: it may have interrupted a write to the same stream.
    """

    def __init__(self, stream: TextIO, names: Iterable[str] = ()) -> None:
        self._stream = stream
        self._feeds: dict[str, Feed | None] = dict.fromkeys(names)
        self._doing = ""
        self._heard = ""
        self._live: Live | None = None

    def show(self, feed: Feed) -> None:
        self._feeds[feed.name] = feed
        self._doing = ""
        if self._live is None or feed.error or not feed.rows_per_s:
            self._draw().refresh()

    def doing(self, what: str) -> None:
        self._doing = what
        self._draw().refresh()

    def note(self, text: str) -> None:
        self._draw().console.print(text, markup=False)

    def hear(self, text: str) -> None:
        self._heard = text
        if self._live is None:
            _write_now(self._stream, text)

    def finish(self) -> None:
        self._doing = self._heard = ""
        if self._live is not None:
            self._live.stop()

    def _draw(self) -> Live:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                get_renderable=lambda: board(self._feeds, self._doing, self._heard),
                console=Console(file=self._stream, highlight=False),
                refresh_per_second=_REDRAWS_PER_S,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",  # one line more than the terminal has would scroll out of reach
            )
            self._live.start()
            self._live.console.show_cursor(True)  # so that a killed process leaves a terminal with a cursor
        return self._live


def board(feeds: Mapping[str, Feed | None], *notes: str) -> RenderableType:
    """The table, the errors below it, and other notes."""
    from rich.console import Group
    from rich.text import Text

    rows = [_row(name, feed) for name, feed in dict(feeds).items()]
    table = rich_table(_COLUMNS, rows, has_one_line_a_row=True)
    wrong = [f"{feed.name}: {error_text(feed)}" for feed in feeds.values() if feed is not None and feed.error]
    return Group(table, *(Text(text) for text in (*wrong, *notes) if text))


def _row(name: str, feed: Feed | None) -> dict[str, object]:
    if feed is None:
        return {"fold": name, "state": "starting"}
    return {
        "fold": name,
        "state": feed.state,
        "rows_per_s": feed.rows_per_s,
        "lag": feed.lag,
        "records": feed.records,
        "dead": feed.dead,
        "last_range": last_ranges_text(feed),
    }


def error_text(feed: Feed) -> str:
    """A feed's error, and whether it is retried."""
    return f"{feed.state}: {feed.error}" + ("; it is tried again" if feed.state == "waiting" else "")


def last_ranges_text(feed: Feed) -> str:
    """The ranges read last, per partition."""
    spans = ((*located(one.topic, one.partition), one.start, one.stop) for one in feed.last_ranges)
    return topics_ranges_text(spans) or "-"


def _dead_text(feed: Feed) -> str:
    return f", {feed.dead} dead" if feed.dead else ""


def _write_now(stream: TextIO, text: str) -> None:
    """Bypasses the stream's buffer, which the interrupted code may be using."""
    os.write(stream.fileno(), f"{text}\n".encode())
