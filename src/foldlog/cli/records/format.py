"""Records as text: kcat's format letters, plain values, and rows for people.

A format is compiled once; a printer then turns records into bytes, many at a time. In a pipe the bytes of keys, values
and headers go out as they are. On a terminal, control characters and what is not UTF-8 are shown as \\xNN: a record
must not be able to move the cursor or change the title of a window.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.limits import CELL_BYTES_MAX
from foldlog.records.loops import Record

Printer = Callable[[Iterable[Record]], bytes]
"""Turns records into output. One per run: rows for people remember the widths of their columns."""

LETTERS: Final = "%t %p %o %T %k %s %v %K %S %R %h %%"

_TOKEN: Final = re.compile(r"%(?P<letter>.)|\\x(?P<code>[0-9a-fA-F]{2})|\\(?P<escape>.)|(?P<plain>[^%\\]+)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\udc80-\udcff]")
_UNPRINTABLE_IN_A_ROW: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\udc80-\udcff]")

_NULL: Final = "null"


def format_printer(text: str, *, null: bytes = b"", on_terminal: bool = False) -> Printer:
    """A printer for kcat's letters; InvalidArgument names the first invalid part of the format.

    >>> format_printer("%t/%p@%o %k %v\\\\n")([Record("orders", 0, 7, 5, 0, b"u1", b"paid")])
    b'orders/0@7 u1 paid\\n'
    """
    template, fields = _compiled(text, null, on_terminal)
    if not fields:
        constant = template % ()
        return lambda records: b"".join([constant for _ in records])
    if len(fields) == 1:
        (only,) = fields
        return lambda records: b"".join([template % only(record) for record in records])
    return lambda records: b"".join([template % tuple([field(record) for field in fields]) for record in records])


def _compiled(text: str, null: bytes, on_terminal: bool) -> tuple[bytes, list[Callable[[Record], Any]]]:
    """A template for bytes' % operator, and the functions that fill it."""
    known = _fields(null, on_terminal)
    template, fields, at = bytearray(), list[Callable[[Record], Any]](), 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise InvalidArgument(f"the format {brief_repr(text)} ends in the middle of {text[at:]!r}")
        letter, code, escape = found["letter"], found["code"], found["escape"]
        if letter == "%":
            template += b"%%"
        elif letter is not None:
            if letter not in known:
                raise InvalidArgument(f"the format {brief_repr(text)} has {found[0]!r}; there are {LETTERS}")
            directive, field = known[letter]
            template += directive
            fields.append(field)
        elif code is not None:
            template += bytes([int(code, 16)]).replace(b"%", b"%%")
        elif escape is not None:
            if escape not in _ESCAPES:
                raise InvalidArgument(
                    f"the format {brief_repr(text)} has {found[0]!r}; there are \\n \\t \\r \\0 \\\\ \\xNN"
                )
            template += _ESCAPES[escape]
        else:
            template += found["plain"].encode(errors="surrogateescape")
        at = found.end()
    return bytes(template), fields


def _fields(null: bytes, on_terminal: bool) -> dict[str, tuple[bytes, Callable[[Record], Any]]]:
    topics: dict[str, bytes] = {}

    def topic(record: Record) -> bytes:
        name = record.topic
        return topics.get(name) or topics.setdefault(name, name.encode())

    def key(record: Record) -> bytes:
        data: bytes | None = record.key
        return null if data is None else data

    def value(record: Record) -> bytes:
        data: bytes | None = record.value
        return null if data is None else data

    def headers(record: Record) -> bytes:
        return b",".join([name.encode() + b"=" + (b"NULL" if data is None else data) for name, data in record.headers])

    def framed_size(record: Record) -> bytes:
        return _size(record.value).to_bytes(4, "big", signed=True)

    shown_key, shown_value, shown_headers = (
        (_shown(field) if on_terminal else field) for field in (key, value, headers)
    )
    return {
        "t": (b"%b", topic),
        "p": (b"%d", lambda record: record.partition),
        "o": (b"%d", lambda record: record.offset),
        "T": (b"%d", lambda record: record.timestamp_ms),
        "k": (b"%b", shown_key),
        "K": (b"%d", lambda record: _size(record.key)),
        "s": (b"%b", shown_value),
        "v": (b"%b", shown_value),
        "S": (b"%d", lambda record: _size(record.value)),
        "R": (b"%b", framed_size),
        "h": (b"%b", shown_headers),
    }


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _shown(field: Callable[[Record], bytes]) -> Callable[[Record], bytes]:
    return lambda record: for_terminal(field(record)).encode()


def for_terminal(data: bytes, unprintable: re.Pattern[str] = _UNPRINTABLE) -> str:
    """Bytes as text that is safe to print: line breaks and tabs stay, other control characters are shown as \\\\xNN.

    >>> for_terminal(b"Zo\\xc3\\xab \\x1b[2J \\xff")
    'Zoë \\\\x1b[2J \\\\xff'
    """
    text = str(data, "utf-8", "surrogateescape")
    return unprintable.sub(lambda found: f"\\x{ord(found[0]) & 0xFF:02x}", text)


def in_a_row(data: bytes | None) -> str:
    """Bytes for a table cell, on one line. Long values are cut, with a note: an unprintable byte takes four characters,
    and time in a regular expression.
    """
    if data is None:
        return _NULL
    text = for_terminal(data[:CELL_BYTES_MAX], _UNPRINTABLE_IN_A_ROW)
    return text if len(data) <= CELL_BYTES_MAX else f"{text}... ({len(data)} bytes in all; -f '%v' writes them)"


def headers_in_a_row(headers: Iterable[tuple[str, bytes | None]]) -> str:
    """
    >>> headers_in_a_row([("source", b"web"), ("trace", None)])
    'source=web trace=null'
    """
    return " ".join(f"{in_a_row(name.encode())}={in_a_row(data)}" for name, data in headers)


def local_time(timestamp_ms: int) -> str:
    """A record's time for people, in local time; a dash if it has none, milliseconds if it is outside the calendar."""
    if timestamp_ms < 0:
        return "-"
    try:
        return f"{_local_second(timestamp_ms // 1000)}.{timestamp_ms % 1000:03d}"
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


@lru_cache(maxsize=16)  # records are roughly in time order, and the calendar is slow
def _local_second(second: int) -> str:
    return datetime.fromtimestamp(second).astimezone().strftime("%Y-%m-%d %H:%M:%S")


class RecordColumn(NamedTuple):
    """A column of rows for people. It grows with its contents, up to `width_max`; 0 for one that is not padded."""

    head: str
    cell: Callable[[Record], str]
    width_max: int = 0


_WHEN: Final = RecordColumn("TIME", lambda record: local_time(record.timestamp_ms), 32)
_WHERE: Final = RecordColumn("WHERE", lambda record: f"{record.topic}-{record.partition}@{record.offset}", 80)
_KEY: Final = RecordColumn("KEY", lambda record: in_a_row(record.key), 24)
_VALUE: Final = RecordColumn("VALUE", lambda record: in_a_row(record.value))
_HEADERS: Final = RecordColumn("HEADERS", lambda record: headers_in_a_row(record.headers) or "-", 24)

ALL_COLUMNS: Final = (_WHEN, _WHERE, _HEADERS, _KEY, _VALUE)
TABLE_COLUMNS: Final = (_KEY, _VALUE)
HISTORY_COLUMNS: Final = (_WHEN, _VALUE)


def row_printer(columns: Sequence[RecordColumn] = ALL_COLUMNS, *, is_bold: bool = False) -> Printer:
    """Rows for people, below a line with the columns' names."""
    heads = [column.head for column in columns]
    widths = [min(len(column.head), column.width_max) for column in columns]
    is_headed = False

    def print_rows(records: Iterable[Record]) -> bytes:
        nonlocal is_headed
        rows = [[column.cell(record) for column in columns] for record in records]
        for index, column in enumerate(columns):
            longest = max((len(row[index]) for row in rows), default=0)
            widths[index] = max(widths[index], min(longest, column.width_max))
        lines = [_row(row, widths) for row in rows]
        if lines and not is_headed:
            is_headed = True
            head = _row(heads, widths)
            lines.insert(0, f"\x1b[1m{head}\x1b[0m" if is_bold else head)
        return "".join([f"{line}\n" for line in lines]).encode()

    return print_rows


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join([cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]).rstrip()
