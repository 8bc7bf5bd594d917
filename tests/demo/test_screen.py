"""What the demo shows: a table that fits the terminal and is drawn over itself there, plain lines everywhere else."""

from __future__ import annotations

import io
import re

import pytest

from foldlog.demo.board import Board, BoardLine
from foldlog.demo.claims import Checklist
from foldlog.demo.screen import Screen, summary, table_lines

PLACES = "Kafka clients 127.0.0.1:18840 ── console http://127.0.0.1:21177/"
BOARD = Board(
    91.0,
    (
        BoardLine("payments", "the log, 3 partitions", 41_250, 1500.0, None),
        BoardLine("per_minute", "counters per minute", 402, 21.4, 450, "running"),
        BoardLine("emails", "group, 150 a second", 4620, 150.0, 36_630),
    ),
)


class Terminal(io.StringIO):
    """What is written to it is what a terminal would get."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


@pytest.mark.parametrize("width", [40, 79, 119])
def test_no_line_of_the_table_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, table_lines(BOARD, PLACES, width))) <= width


def test_the_table_has_rows_rates_and_lags() -> None:
    head, titles, payments, per_minute, emails = table_lines(BOARD, PLACES, 79)
    assert head.startswith(f"── 1:31 ── {PLACES}")
    assert titles.split() == ["WHAT", "IT", "IS", "ROWS", "ROWS/S", "LAG"]
    assert payments.split()[-2:] == ["41,250", "1,500"]
    assert per_minute.split()[-4:] == ["402", "21", "450", "running"]
    assert emails.split()[-3:] == ["4,620", "150", "36,630"]


def test_on_a_terminal_the_table_is_drawn_over_itself_and_the_story_stays_above(terminal: Terminal) -> None:
    screen = Screen(terminal)
    screen.show(BOARD)
    screen.say("something happened")
    written = terminal.getvalue()
    # Five lines up, and away with them; then the sentence, then the table again.
    assert re.search(r"\x1b\[5F\x1b\[J  something happened\n.*payments", written, re.DOTALL)
    screen.hide()
    assert terminal.getvalue().endswith("\x1b[5F\x1b[J")


def test_a_line_that_was_typed_below_the_table_is_cleared_with_it(terminal: Terminal) -> None:
    screen = Screen(terminal)
    screen.show(BOARD)
    screen.line_was_typed()
    screen.hide()
    assert terminal.getvalue().endswith("\x1b[6F\x1b[J")


def test_colours_stay_off_where_they_are_not_wanted(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    Screen(terminal).title("An act")
    assert "\x1b" not in terminal.getvalue()


def test_elsewhere_there_are_lines_and_the_table_only_now_and_then() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    for elapsed_s in (0.0, 1.0, 4.9, 5.0):
        screen.show(Board(elapsed_s, BOARD.lines))
    written = stream.getvalue()
    assert "\x1b" not in written
    assert written.count("payments 41,250 rows") == 2
    assert "emails 4,620 rows, lag 36,630" in summary(BOARD)


def test_the_checklist_tells_what_holds_and_what_does_not() -> None:
    stream = io.StringIO()
    checklist = Checklist()
    checklist.add("nothing is lost", holds=True, numbers="7 of 7")
    assert checklist.all_hold
    Screen(stream).checklist(checklist)
    assert "✓ nothing is lost\n    7 of 7\n" in stream.getvalue()
    assert stream.getvalue().endswith("All 1 hold.\n")


def test_one_line_that_does_not_hold_is_enough() -> None:
    stream = io.StringIO()
    checklist = Checklist()
    checklist.add("nothing is lost", holds=True, numbers="7 of 7")
    checklist.add("nothing is doubled", holds=False, numbers="1 twice")
    assert not checklist.all_hold
    Screen(stream).checklist(checklist)
    assert "✗ nothing is doubled\n    1 twice\n" in stream.getvalue()
    assert stream.getvalue().endswith("1 of 2 do not hold.\n")


def test_a_checklist_on_which_nothing_stands_does_not_hold() -> None:
    assert not Checklist().all_hold


def test_a_story_that_broke_off_holds_nothing() -> None:
    stream = io.StringIO()
    checklist = Checklist()
    checklist.add("nothing is lost", holds=True, numbers="7 of 7")
    checklist.trouble = "the broker did not start"
    assert not checklist.all_hold
    Screen(stream).checklist(checklist)
    assert "✗ the demo came to its end\n    the broker did not start\n" in stream.getvalue()
