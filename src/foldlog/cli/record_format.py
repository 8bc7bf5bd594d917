"""Records as text: kcat's format letters, plain values, and rows for people.

A format is compiled once; a printer then turns records into bytes, many at a time. In a pipe the bytes of keys, values
and headers go out as they are. On a terminal, control characters and what is not UTF-8 are shown as \\xNN: a record
must not be able to move the cursor or change the title of a window.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from foldlog.cli.record_json import record_lines
from foldlog.errors import InvalidArgument, brief_repr
from foldlog.records.loops import Record

Printer = Callable[[Iterable[Record]], bytes]
"""Turns records into what is printed of them. One for each run: rows for people remember how wide their columns are."""

FORMAT_HELP: Final = (
    "how to print a record, in kcat's letters: %%t topic, %%p partition, %%o offset, %%T timestamp in ms, %%k key, %%s"
    " or %%v value, %%K and %%S their sizes (-1 for null), %%h headers; \\n \\t \\r \\0 \\\\ \\xNN; %%%% for a percent"
    " sign"
)
LETTERS: Final = "%t %p %o %T %k %s %v %K %S %R %h %%"

_TOKEN: Final = re.compile(r"%(?P<letter>.)|\\x(?P<code>[0-9a-fA-F]{2})|\\(?P<escape>.)|(?P<plain>[^%\\]+)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\udc80-\udcff]")
_UNPRINTABLE_IN_A_ROW: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\udc80-\udcff]")

_KEY_WIDTH_MAX: Final = 24
_NULL: Final = "null"


def format_printer(text: str, *, null: bytes = b"", on_terminal: bool = False) -> Printer:
    """A printer by kcat's letters; InvalidArgument names the first thing in the format that means nothing.

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
    """A template for the % of bytes, and what fills it."""
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
    """Bytes as text that is safe to print: line breaks and tabs stay, everything else that acts is shown as \\\\xNN.

    >>> for_terminal(b"Zo\\xc3\\xab \\x1b[2J \\xff")
    'Zoë \\\\x1b[2J \\\\xff'
    """
    text = str(data, "utf-8", "surrogateescape")
    return unprintable.sub(lambda found: f"\\x{ord(found[0]) & 0xFF:02x}", text)


def in_a_row(data: bytes | None) -> str:
    """The same for a cell of a table, on one line."""
    return _NULL if data is None else for_terminal(data, _UNPRINTABLE_IN_A_ROW)


def headers_in_a_row(headers: Iterable[tuple[str, bytes | None]]) -> str:
    """
    >>> headers_in_a_row([("source", b"web"), ("trace", None)])
    'source=web trace=null'
    """
    return " ".join(f"{in_a_row(name.encode())}={in_a_row(data)}" for name, data in headers)


def local_time(timestamp_ms: int) -> str:
    """A record's time, as people read it, in local time; a dash where it has none or none that a calendar has."""
    if timestamp_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(timestamp_ms // 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S") + (
            f".{timestamp_ms % 1000:03d}"
        )
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


def row_printer() -> Printer:
    """Rows for people: when, where, key, value and headers. Columns grow with what they have shown so far."""
    widths = [len("TIME"), len("WHERE"), len("KEY")]
    is_headed = False

    def rows(records: Iterable[Record]) -> Iterator[str]:
        nonlocal is_headed
        batch = list(records)
        cells = [_cells(record) for record in batch]
        for row in cells:
            for column, limit in ((0, 99), (1, 99), (2, _KEY_WIDTH_MAX)):
                widths[column] = max(widths[column], min(len(row[column]), limit))
        if cells and not is_headed:
            is_headed = True
            yield _row(("TIME", "WHERE", "KEY", "VALUE", "HEADERS"), widths)
        for row in cells:
            yield _row(row, widths)

    return lambda records: "".join(rows(records)).encode()


def _cells(record: Record) -> tuple[str, ...]:
    return (
        local_time(record.timestamp_ms),
        f"{record.topic}-{record.partition}@{record.offset}",
        in_a_row(record.key),
        in_a_row(record.value),
        headers_in_a_row(record.headers),
    )


def _row(cells: tuple[str, ...], widths: list[int]) -> str:
    when, where, key, value, headers = cells
    line = f"{when:<{widths[0]}}  {where:<{widths[1]}}  {key:<{widths[2]}}  {value}  {headers}"
    return line.rstrip() + "\n"


def printer_for(form: str, text: str | None, *, null: bytes, on_terminal: bool) -> Printer:
    """The printer that the options ask for: `-f` wins over `--format`."""
    if text is not None:
        return format_printer(text, null=null, on_terminal=on_terminal)
    if form == "json":
        return record_lines
    if form == "wide":
        return row_printer()
    return format_printer("%v\\n", null=null, on_terminal=on_terminal)
