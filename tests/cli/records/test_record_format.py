"""Records as text: kcat's letters mean what they mean there, bytes go out as they are into a pipe, and nothing in a
record acts on a terminal. Pure.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.cli.records.format import TABLE_COLUMNS, for_terminal, format_printer, local_time, row_printer
from foldlog.errors import InvalidArgument
from foldlog.records.json_lines import record_lines_for_terminal
from foldlog.records.loops import Record

RECORD = Record("orders", 2, 41, 1_700_000_000_123, 0, b"u1", b'{"n": 1}', (("source", b"web"), ("trace", None)))
TOMBSTONE = Record("orders", 0, 42, -1, 0, None, None)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%t/%p@%o %k %v\\n", b'orders/2@41 u1 {"n": 1}\norders/0@42  \n'),
        ("%s|", b'{"n": 1}||'),
        ("%T %K %S;", b"1700000000123 2 8;-1 -1 -1;"),
        ("%h;", b"source=web,trace=NULL;;"),
        ("%R%s", b'\x00\x00\x00\x08{"n": 1}\xff\xff\xff\xff'),
        ("100%%\\t\\r\\0\\\\\\x41\\x25 %p\\n", b"100%\t\r\x00\\A% 2\n100%\t\r\x00\\A% 0\n"),
        ("é%p", "é2é0".encode()),
        ("-", b"--"),
        ("", b""),
    ],
)
def test_a_format_prints_what_kcat_would(text: str, printed: bytes) -> None:
    assert format_printer(text)([RECORD, TOMBSTONE]) == printed


def test_null_is_nothing_unless_it_is_to_be_seen() -> None:
    assert format_printer("<%k|%v>", null=b"NULL")([RECORD, TOMBSTONE]) == b'<u1|{"n": 1}><NULL|NULL>'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("%q", "has '%q'; there are %t %p"),
        ("a\\q", "has '\\\\q'"),
        ("50%", "ends in the middle of '%'"),
        ("\\", "ends in"),
    ],
)
def test_a_format_that_means_nothing_is_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        format_printer(text)
    assert said in str(refused.value)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_a_pipe_gets_every_byte_as_it_is(key: bytes, value: bytes) -> None:
    assert format_printer("%k%v")([Record("orders", 0, 0, 0, 0, key, value)]) == key + value


@given(st.one_of(st.binary(max_size=60), st.text(max_size=40).map(str.encode)))
def test_nothing_in_a_record_acts_on_a_terminal(data: bytes) -> None:
    record = Record("orders", 0, 0, 0, 0, data, data, ((data.decode(errors="replace"), data),))
    for printed in (
        format_printer("%k %v %h\n", on_terminal=True)([record]),
        row_printer()([record]),
        record_lines_for_terminal([record]),
        for_terminal(data).encode(),
    ):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", printed.decode())
    assert row_printer(TABLE_COLUMNS)([record]).count(b"\n") == 2


def test_rows_stand_under_their_heads_and_wide_cells_do_not_push_the_others() -> None:
    show = row_printer()
    first = show([RECORD]).decode().splitlines()
    assert first[0].split() == ["TIME", "WHERE", "HEADERS", "KEY", "VALUE"]
    assert first[1].index('{"n": 1}') == first[0].index("VALUE")
    assert show([]) == b""
    later = show([TOMBSTONE]).decode().splitlines()
    assert len(later) == 1
    assert later[0].split() == ["-", "orders-0@42", "-", "null", "null"]
    assert later[0].index("orders-0@42") == first[1].index("orders-2@41")


def test_a_time_beyond_the_calendar_is_shown_as_its_number() -> None:
    assert local_time(-1) == "-"
    assert local_time(2**62) == f"{2**62} ms"
    assert re.fullmatch(r"2023-11-1[345] \d\d:\d\d:20\.123", local_time(1_700_000_000_123))


def test_a_row_shows_the_beginning_of_a_huge_value_and_how_much_there_is() -> None:
    record = Record("files", 0, 0, 0, 0, b"big", bytes(10_000_000))
    printed = row_printer(TABLE_COLUMNS)([record])
    assert len(printed) < 300_000
    assert printed.endswith(b"... (10000000 bytes in all; -f '%v' writes them)\n")
