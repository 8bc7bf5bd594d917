"""What commands show, purely: tables that line up, JSON that is whole, units as people write them."""

from __future__ import annotations

import argparse
import io
import json
import sys

import pytest

from foldlog.cli.output import remark
from foldlog.cli.tables import Column, has_colours, show, table_lines
from foldlog.cli.topic_facts import parse_settings, setting_text
from foldlog.cli.units import duration_text, parse_duration_ms, parse_size_bytes, size_text
from foldlog.errors import InvalidArgument

COLUMNS = (
    Column("name", "NAME"),
    Column("count", "COUNT", is_number=True),
    Column("note", "NOTE", is_wide=True),
)
ROWS = [{"name": "orders", "count": 7, "note": None}, {"name": "p", "count": 12345, "note": "kept", "more": 1}]


class Terminal(io.StringIO):
    """A stream that says that somebody looks at it."""

    def isatty(self) -> bool:
        return True


def test_columns_line_up_numbers_to_the_right_and_wide_ones_only_when_asked_for() -> None:
    assert table_lines(COLUMNS, ROWS) == ["NAME    COUNT", "orders      7", "p       12345"]
    assert table_lines(COLUMNS, ROWS, is_wide=True)[1:] == ["orders      7  -", "p       12345  kept"]


def test_the_heads_are_bold_on_a_terminal_and_nothing_else_is() -> None:
    lines = table_lines(COLUMNS, ROWS, is_bold=True)
    assert lines[0] == "\x1b[1mNAME    COUNT\x1b[0m"
    assert lines[1:] == table_lines(COLUMNS, ROWS)[1:]


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
    show(argparse.Namespace(format="json"), COLUMNS, ROWS)
    assert json.loads(capsys.readouterr().out) == ROWS
    show(argparse.Namespace(format="json"), COLUMNS, [], nothing="there is nothing")
    printed = capsys.readouterr()
    assert (json.loads(printed.out), printed.err) == ([], "")


def test_a_table_without_rows_is_a_remark_so_that_programs_read_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show(argparse.Namespace(format="text"), COLUMNS, [], nothing="there is nothing")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "there is nothing\n")


@pytest.mark.parametrize(
    ("text", "expected_ms"), [("7d", 604_800_000), ("1w", 604_800_000), ("0s", 0), ("1.5 h", 5_400_000), ("10MS", 10)]
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
        ["retention.ms=1d", "retention.bytes=-1", "cleanup.policy=compact,delete", "segment.ms="]
    ) == {
        "retention.ms": "86400000",
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
