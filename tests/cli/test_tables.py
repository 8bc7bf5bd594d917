"""What commands show, purely: tables that line up, JSON that is whole, units as people write them."""

from __future__ import annotations

import io
import json
import sys

import pytest

from cli.screen import Terminal
from foldlog.cli.output import remark
from foldlog.cli.parsing import Arguments
from foldlog.cli.tables import Column, has_colours, print_table, show, table_lines
from foldlog.cli.topic.facts import parse_settings, setting_text
from foldlog.cli.units import parse_duration_ms, parse_size_bytes, size_text
from foldlog.durations import duration_text
from foldlog.errors import InvalidArgument

COLUMNS = (
    Column("name", "NAME"),
    Column("count", "COUNT", is_number=True),
    Column("note", "NOTE", is_wide=True),
)
ROWS: list[dict[str, object]] = [
    {"name": "orders", "count": 7, "note": None},
    {"name": "p", "count": 12345, "note": "kept", "more": 1},
]


def test_columns_line_up_numbers_to_the_right_and_wide_ones_only_when_asked_for() -> None:
    assert table_lines(COLUMNS, ROWS) == ["NAME    COUNT", "orders      7", "p       12345"]
    assert table_lines(COLUMNS, ROWS, is_wide=True)[1:] == ["orders      7  -", "p       12345  kept"]


def drawn(monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, object]], *, is_wide: bool) -> Terminal:
    """A terminal of 40 columns, with the table on it."""
    for name, value in (("TERM", "xterm"), ("COLUMNS", "40"), ("LINES", "25")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    show(Arguments(format="wide" if is_wide else "text"), COLUMNS, rows)
    return terminal


def test_the_heads_are_bold_on_a_terminal_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = drawn(monkeypatch, ROWS, is_wide=True)
    assert terminal.lines() == table_lines(COLUMNS, ROWS, is_wide=True)
    head, *others = terminal.getvalue().splitlines()
    assert head.startswith("\x1b[1mNAME")
    assert "\x1b" not in "".join(others)


def test_a_cell_that_is_too_long_for_a_terminal_goes_on_below_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a-rather-long-name-of-a-topic-" * 2
    _, first, *others = drawn(monkeypatch, [{"name": name, "count": 7}], is_wide=False).lines()
    assert first.endswith("  7")
    assert "".join([first[:33].rstrip(), *others]) == name


def test_a_table_without_rows_is_its_heads_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn(monkeypatch, ROWS, is_wide=True)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    print_table(Arguments(format="text"), COLUMNS, [])
    assert terminal.lines() == table_lines(COLUMNS, [])


def test_a_short_cell_is_never_broken_on_a_terminal_that_is_too_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"name": "orders-of-2026-in-kolkata", "count": 12_345, "note": "digest 97422ed5e41b", "more": "x" * 60}
    first = drawn(monkeypatch, [row], is_wide=True).lines()[1]
    assert first.split() == ["orders-of-2026-in-kolkat", "12345", "digest", "97422ed5e41b"]


def test_colours_are_for_terminals_whose_owner_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert has_colours(Terminal())
    assert not has_colours(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colours(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colours(Terminal())


def test_json_has_every_field_and_no_rows_are_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    show(Arguments(format="json"), COLUMNS, ROWS)
    assert json.loads(capsys.readouterr().out) == ROWS
    show(Arguments(format="json"), COLUMNS, [], nothing="there is nothing")
    printed = capsys.readouterr()
    assert (json.loads(printed.out), printed.err) == ([], "")


def test_a_table_without_rows_is_a_remark_so_that_programs_read_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show(Arguments(format="text"), COLUMNS, [], nothing="there is nothing")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "there is nothing\n")


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("7d", 604_800_000),
        ("1w", 604_800_000),
        ("0s", 0),
        ("1.5 h", 5_400_000),
        ("10MS", 10),
        ("7d12h", 648_000_000),
        ("2 days 1 minute", 172_860_000),
    ],
)
def test_times_are_read_as_people_write_them(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    ("text", "expected_bytes"),
    [("0", 0), ("1K", 1024), ("1kb", 1024), ("1 KiB", 1024), ("1.5MiB", 1_572_864), ("2tib", 2 << 40)],
)
def test_sizes_are_read_as_people_write_them(text: str, expected_bytes: int) -> None:
    assert parse_size_bytes(text) == expected_bytes


def test_a_large_number_keeps_its_last_digits() -> None:
    assert parse_duration_ms("9223372036854775.807s") == 2**63 - 1


@pytest.mark.parametrize("text", ["", "d", "7 dogs", "-1d", "1e3s", "7", "1.2.3h", "٣d"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a time, such as 250ms"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["", "GiB", "1XB", "1 G i B", "-1"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a size, such as 512KiB"):
        parse_size_bytes(text)


def test_sizes_and_times_are_shown_short() -> None:
    assert [size_text(size) for size in (0, 1023, 1024, 5 << 40, 3 << 60)] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 TiB", "3072.0 PiB",
    ]  # fmt: skip
    assert [duration_text(ms) for ms in (0, 1, 1000, 7_200_000, 86_400_000)] == ["0ms", "1ms", "1s", "2h", "1d"]


def test_settings_take_times_and_sizes_and_nothing_means_the_default() -> None:
    assert parse_settings(
        ["retention.ms=1d12h", "retention.bytes=-1", "cleanup.policy=compact,delete", "segment.ms="]
    ) == {
        "retention.ms": "129600000",
        "retention.bytes": "-1",
        "cleanup.policy": "compact,delete",
        "segment.ms": None,
    }
    for wrong in ("retention.ms", "=1", " =1"):
        with pytest.raises(InvalidArgument, match="is not -c NAME=VALUE"):
            parse_settings([wrong])
    with pytest.raises(InvalidArgument, match=r"retention\.ms='soon' is not a time"):
        parse_settings(["retention.ms=soon"])


def test_a_setting_is_shown_with_what_a_person_calls_it() -> None:
    assert setting_text("segment.bytes", "1073741824") == "1073741824 (1.0 GiB)"
    assert setting_text("flush.ms", str(2**63 - 1)) == str(2**63 - 1)
    assert setting_text("max.message.bytes", "1048588") == "1048588", "it is not quite 1.0 MiB"
    assert setting_text("cleanup.policy", "delete") == "delete"
    assert setting_text("retention.ms", "500") == "500"


def test_a_remark_on_a_terminal_breaks_between_words_and_keeps_its_own_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "10")
    remark("\nthree records written")
    assert screen.getvalue() == "\nthree\nrecords\nwritten\n"
