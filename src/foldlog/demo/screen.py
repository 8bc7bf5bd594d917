"""The display of the demo: the story scrolls, and on a terminal there is a table below it that is redrawn.

Elsewhere the story is the same and the table is one line now and then. Colours only on a terminal, and not if NO_COLOR
is set.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from threading import RLock
from typing import Final, TextIO

from foldlog.demo.board import Board, BoardLine
from foldlog.demo.claims import Checklist, ChecklistItem

WIDEST: Final = 100
_LINE_EVERY_S: Final = 5.0
_HEADS: Final = ("", "WHAT IT IS", "ROWS", "ROWS/S", "LAG", "")
_BOLD, _DIM, _GREEN, _RED, _CYAN = "1", "2", "32", "31", "36"


class Screen:
    """Used by several threads: the output of each call stays together."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._has_colours = self._is_live and not os.environ.get("NO_COLOR")
        self._lock = RLock()
        self._board: Board | None = None
        self._addresses = ""
        self._drawn = 0
        self._line_due_s = 0.0

    # --- the story ------------------------------------------------------------------------------------------------

    def title(self, text: str) -> None:
        """The beginning of an act."""
        self._tell(["", *self._wrapped(text, "", _BOLD)])

    def say(self, text: str) -> None:
        """A sentence or two of the story."""
        self._tell(self._wrapped(text, "  ", ""))

    def command(self, text: str) -> None:
        """The command that a person would have typed."""
        self._tell([self._paint(f"  $ {text}", _CYAN)])

    def claim(self, claim: ChecklistItem) -> None:
        """A claim, and whether it holds."""
        colour = _GREEN if claim.holds else _RED
        first, *others = self._wrapped(claim.text, "    ", "") or [""]
        numbers = self._wrapped(claim.numbers, "    ", _DIM)
        self._tell([f"  {self._paint(claim.mark, colour)} {first.strip()}", *others, *numbers])

    def checklist(self, checklist: Checklist) -> None:
        self.title("What was claimed, and counted")
        for claim in checklist.claims:
            self.claim(claim)
        held = sum(claim.holds for claim in checklist.claims)
        if checklist.trouble is not None:
            self.claim(ChecklistItem("the demo came to its end", False, checklist.trouble))
        elif checklist.all_hold:
            self.title(f"All {held} hold.")
        else:
            self.title(f"{len(checklist.claims) - held} of {len(checklist.claims)} do not hold.")

    # --- the table ------------------------------------------------------------------------------------------------

    def serve_at(self, addresses: str) -> None:
        """Where the log can be reached: shown above the table."""
        with self._lock:
            self._addresses = addresses

    def show(self, board: Board) -> None:
        """Show the newest numbers."""
        with self._lock:
            self._board = board
            if self._is_live:
                self._clear()
                self._draw()
                self._stream.flush()
            elif board.elapsed_s >= self._line_due_s:
                self._line_due_s = board.elapsed_s + _LINE_EVERY_S
                self._tell(self._wrapped(summary(board), "    ", ""))

    def line_was_typed(self) -> None:
        """The terminal has echoed an Enter, below the table."""
        with self._lock:
            if self._drawn:
                self._drawn += 1

    def hide(self) -> None:
        """Remove the table: from here on only text is printed."""
        with self._lock:
            self._clear()
            self._board = None
            self._stream.flush()

    # --- drawing --------------------------------------------------------------------------------------------------

    def _tell(self, lines: list[str]) -> None:
        with self._lock:
            self._clear()
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._draw()
            self._stream.flush()

    def _clear(self) -> None:
        """Move up over the last drawing, and clear from there to the end of the screen."""
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0

    def _draw(self) -> None:
        if not self._is_live or self._board is None:
            return
        columns, rows = shutil.get_terminal_size()
        # One line more than the terminal has would scroll, and a line that scrolled away cannot be redrawn.
        lines = table_lines(self._board, self._addresses, columns - 1)[: rows - 1]
        for number, line in enumerate(lines):
            self._stream.write(f"{self._paint(line, _DIM) if number < 2 else line}\n")
        self._drawn = len(lines)

    def _wrapped(self, text: str, indent: str, style: str) -> list[str]:
        width = min(WIDEST, shutil.get_terminal_size().columns - 1)
        lines = textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
        return [self._paint(line, style) for line in lines]

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._has_colours and style else text


def table_lines(board: Board, addresses: str, width: int) -> list[str]:
    """The table below the log's addresses; no line longer than `width`."""
    width = min(width, WIDEST)
    minutes, seconds = divmod(int(board.elapsed_s), 60)
    head = f"── {minutes}:{seconds:02d} ── {addresses} "
    rows = [_HEADS, *(_cells(line) for line in board.lines)]
    what = max(0, width - 11 - 4 * 2 - 10 - 8 - 8 - 10 - 2)
    widths = (11, what, 10, 8, 8, 10)
    return [head[:width].ljust(width, "─"), *(_row(row, widths)[:width] for row in rows)]


def _cells(line: BoardLine) -> tuple[str, ...]:
    lag = "" if line.lag is None else f"{line.lag:,}"
    return (line.name, line.what, f"{line.count:,}", f"{line.per_s:,.0f}", lag, line.state)


def _row(cells: tuple[str, ...], widths: tuple[int, ...]) -> str:
    name, what, count, per_s, lag, state = cells
    return (
        f"{name:{widths[0]}}  {what[: widths[1]]:{widths[1]}}  {count:>{widths[2]}}  {per_s:>{widths[3]}}"
        f"  {lag:>{widths[4]}}  {state}"
    ).rstrip()


def summary(board: Board) -> str:
    """The table in one line, for files and pipes."""
    told = [f"{board.elapsed_s:.0f} s"]
    for line in board.lines:
        lag = "" if line.lag is None else f", lag {line.lag:,}"
        told.append(f"{line.name} {line.count:,} rows{lag}")
    return " · ".join(told)
