"""Events of the binlog, parsed: what a table's columns are, and the rows that changed. Without any I/O.

With `binlog_row_metadata=FULL` a description of the table stands before its rows, as it was at that moment: names,
signs, character sets, the choices of enums, the primary key. So a change is understood, whatever became of the table.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from foldlog.capture.from_mysql import values
from foldlog.capture.from_mysql.values import BinlogColumn, decode

QUERY, STOP, ROTATE, FORMAT, XID, TABLE_MAP, HEARTBEAT = 2, 3, 4, 15, 16, 19, 27
GTID, ANONYMOUS_GTID, XA_PREPARE, PARTIAL_UPDATE, PAYLOAD, HEARTBEAT_V2, TAGGED_GTID = 33, 34, 38, 39, 40, 41, 42
MARIADB_GTID, MARIADB_QUERY_COMPRESSED = 162, 165
INCIDENT: Final = 26

_ROWS: Final = {
    23: ("c", 1, False),
    24: ("u", 1, False),
    25: ("d", 1, False),
    30: ("c", 2, False),
    31: ("u", 2, False),
    32: ("d", 2, False),
    166: ("c", 1, True),
    167: ("u", 1, True),
    168: ("d", 1, True),
    169: ("c", 2, True),
    170: ("u", 2, True),
    171: ("d", 2, True),
}
"""Events of rows: the operation, the version, and whether MariaDB has compressed it."""

_HEADER: Final = Struct("<IBIIIH")
HEADER_BYTES: Final = _HEADER.size

_ARTIFICIAL: Final = 0x20
_STANDALONE: Final = 0x01
_MYSQL_GTID_SIZE: Final = 25
_COMMITTED: Final = 42
"""Where the time of the commit is in the event that begins a transaction of MySQL."""

_NUMERIC: Final = frozenset(
    {
        values.TINY,
        values.SHORT,
        values.INT24,
        values.LONG,
        values.LONGLONG,
        values.NEWDECIMAL,
        values.FLOAT,
        values.DOUBLE,
        values.YEAR,
    }
)
_CHARACTER: Final = frozenset({values.STRING, values.VAR_STRING, values.VARCHAR, values.BLOB})
_TWO_BYTES: Final = frozenset(
    {values.BIT, values.NEWDECIMAL, values.STRING, values.VAR_STRING, values.ENUM, values.SET}
)
_ONE_BYTE: Final = frozenset(
    {
        values.FLOAT,
        values.DOUBLE,
        values.BLOB,
        values.GEOMETRY,
        values.JSON,
        values.TIMESTAMP2,
        values.DATETIME2,
        values.TIME2,
        242,
    }
)
_COMPRESSED: Final = {140: 1, 141: 2}
"""MariaDB's columns that are COMPRESSED, and how many bytes describe one."""


class BinlogEvent(NamedTuple):
    """An event without its checksum. `end` is where the next one begins, 0 if the server made it for the stream."""

    kind: int
    seconds: int
    server_id: int
    size: int
    end: int
    body: bytes


class Query(NamedTuple):
    """A statement, and the database that was in use."""

    schema: str
    text: str


@dataclass(slots=True)
class TableMap:
    """A table as the binlog describes it. `columns` have no names unless the metadata is FULL."""

    schema: str
    name: str
    columns: list[BinlogColumn]
    keys: tuple[str, ...]
    is_described: bool


class RowsEvent(NamedTuple):
    """Rows of one table: the operation, which columns the images have, and the images' bytes."""

    op: str
    table_id: int
    width: int
    before: int
    """Bits of the columns of the image before, or of the only one."""
    after: int
    images: bytes


def parse_event(packet: bytes, *, has_checksum: bool) -> BinlogEvent:
    """A packet of the stream, which begins with a zero. ValueError if its checksum is wrong."""
    seconds, kind, server_id, size, end, flags = _HEADER.unpack_from(packet, 1)
    body = packet[1 + HEADER_BYTES :]
    if has_checksum:
        if zlib.crc32(packet[1:-4]) != int.from_bytes(packet[-4:], "little"):
            raise ValueError(f"the checksum of the event before {end} is wrong")
        body = body[:-4]
    return BinlogEvent(kind, seconds, server_id, size, 0 if flags & _ARTIFICIAL else end, body)


def checksum_of_format(body: bytes) -> bool:
    """Whether events after this description of the format have a checksum. The description itself always has one."""
    return body[-5] == 1


def rotation(body: bytes) -> tuple[str, int]:
    """The next file, and where in it the stream goes on."""
    return body[8:].decode(), int.from_bytes(body[:8], "little")


def query(event: BinlogEvent) -> Query:
    body = event.body
    schema_size, variables_size = body[8], int.from_bytes(body[11:13], "little")
    start = 13 + variables_size
    text = body[start + schema_size + 1 :]
    if event.kind == MARIADB_QUERY_COMPRESSED:
        text = _inflate(text)
    return Query(body[start : start + schema_size].decode(errors="replace"), text.decode(errors="replace"))


def gtid(event: BinlogEvent) -> tuple[str | None, bool]:
    """The name of the transaction that begins, and whether it is one statement that commits by itself."""
    body = event.body
    if event.kind == MARIADB_GTID:
        sequence, domain, flags = int.from_bytes(body[:8], "little"), int.from_bytes(body[8:12], "little"), body[12]
        return f"{domain}-{event.server_id}-{sequence}", bool(flags & _STANDALONE)
    if event.kind != GTID:
        return None, False
    source = body[1:17].hex()
    number = int.from_bytes(body[17:_MYSQL_GTID_SIZE], "little")
    return f"{source[:8]}-{source[8:12]}-{source[12:16]}-{source[16:20]}-{source[20:]}:{number}", False


def table_map(body: bytes, charsets: Mapping[int, str], *, is_mariadb: bool) -> tuple[int, TableMap]:
    """The table's number in this file, and the table. `charsets` are the server's, by the number of a collation."""
    table_id = int.from_bytes(body[:6], "little")
    schema, at = _name(body, 8)
    name, at = _name(body, at)
    count, at = _number(body, at)
    kinds = body[at : at + count]
    size, at = _number(body, at + count)
    columns = _columns(kinds, body[at : at + size])
    at += size + (count + 7) // 8  # which columns may be NULL
    table = TableMap(schema, name, columns, (), False)
    _describe(table, _fields(body, at), charsets, is_mariadb=is_mariadb)
    return table_id, table


def rows(event: BinlogEvent) -> RowsEvent | None:
    """Which rows changed; None if the event is another one."""
    found = _ROWS.get(event.kind)
    if found is None:
        return None
    op, version, is_compressed = found
    body = event.body
    table_id, at = int.from_bytes(body[:6], "little"), 8
    if version == 2:
        at += int.from_bytes(body[8:10], "little")
    width, at = _number(body, at)
    size = (width + 7) // 8
    before = after = int.from_bytes(body[at : at + size], "little")
    at += size
    if op == "u":
        after = int.from_bytes(body[at : at + size], "little")
        at += size
    images = _inflate(body[at:]) if is_compressed else body[at:]
    return RowsEvent(op, table_id, width, before, after, images)


def images(event: RowsEvent, readers: list[values.Read | None]) -> Iterator[tuple[list[str | None], list[str | None]]]:
    """Each row before and after; of an inserted or deleted one, the same twice. A value is None if the image has none.
    A column without a reader is read as none: there is none such in an image."""
    data, at = event.images, 0
    while at < len(data):
        before, at = _image(data, at, event.before, event.width, readers)
        after = before
        if event.op == "u":
            after, at = _image(data, at, event.after, event.width, readers)
        yield before, after


def _image(
    data: bytes, at: int, present: int, width: int, readers: list[values.Read | None]
) -> tuple[list[str | None], int]:
    size = (present.bit_count() + 7) // 8
    nulls = int.from_bytes(data[at : at + size], "little")
    at += size
    row: list[str | None] = []
    for index in range(width):
        if not present >> index & 1:
            row.append(None)
            continue
        if nulls & 1:
            row.append("null")
        else:
            read = readers[index]
            if read is None:
                raise ValueError("a row has a value that was not described")
            value, at = read(data, at)
            row.append(value)
        nulls >>= 1
    return row, at


def _columns(kinds: bytes, metadata: bytes) -> list[BinlogColumn]:
    found: list[BinlogColumn] = []
    at = 0
    for kind in kinds:
        column = BinlogColumn("", kind, 0)
        if kind == values.VARCHAR:
            column.size = int.from_bytes(metadata[at : at + 2], "little")
            at += 2
        elif kind in _TWO_BYTES:
            first, second = metadata[at], metadata[at + 1]
            at += 2
            _two_bytes(column, first, second)
        elif kind in _ONE_BYTE:
            column.size = metadata[at]
            at += 1
        elif kind in _COMPRESSED:
            at += _COMPRESSED[kind]
        found.append(column)
    return found


def _two_bytes(column: BinlogColumn, first: int, second: int) -> None:
    if column.kind == values.BIT:
        column.size = second * 8 + first
    elif column.kind == values.NEWDECIMAL:
        column.size, column.scale = first, second
    else:
        # A length over 255 has its upper bits, inverted, where the type leaves room for them.
        column.kind, column.size = first | 0x30, second | (((first & 0x30) ^ 0x30) << 4)


def _fields(body: bytes, at: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while at < len(body):
        size, start = _number(body, at + 1)
        found[body[at]] = body[start : start + size]
        at = start + size
    return found


def _describe(table: TableMap, fields: Mapping[int, bytes], charsets: Mapping[int, str], *, is_mariadb: bool) -> None:
    """What the optional fields say of the columns. 4 are their names, which only FULL has."""
    if 4 not in fields:
        return
    columns = table.columns
    for column, name in zip(columns, _texts(fields[4]), strict=True):
        column.name = name.decode()
    _signs([column for column in columns if column.kind in _NUMERIC], fields.get(1, b""))
    is_text = _CHARACTER | {values.GEOMETRY} if is_mariadb else _CHARACTER
    _charsets([column for column in columns if column.kind in is_text], fields, 2, 3, charsets)
    choosing = [column for column in columns if column.kind in (values.ENUM, values.SET)]
    _charsets(choosing, fields, 10, 11, charsets)
    for kind, field in ((values.SET, 5), (values.ENUM, 6)):
        lists = _choices(fields.get(field, b""))
        for column, choices in zip((column for column in choosing if column.kind == kind), lists, strict=True):
            column.choices = tuple(decode(choice, column.charset) for choice in choices)
    if 8 in fields:
        table.keys = tuple(columns[index].name for index in _numbers(fields[8]))
    elif 9 in fields:  # pairs, with the length of a prefix
        table.keys = tuple(columns[index].name for index in _numbers(fields[9])[::2])
    table.is_described = True


def _signs(columns: list[BinlogColumn], data: bytes) -> None:
    """A bit for each number, the highest first."""
    signs, bits = int.from_bytes(data, "big"), 8 * len(data)
    for number, column in enumerate(columns[:bits]):
        column.is_unsigned = bool(signs >> (bits - 1 - number) & 1)


def _charsets(
    columns: list[BinlogColumn], fields: Mapping[int, bytes], default: int, each: int, charsets: Mapping[int, str]
) -> None:
    """Either one collation for all, and those that differ; or one for each."""
    if each in fields:
        chosen = dict(enumerate(_numbers(fields[each])))
        usual = 0
    else:
        usual, *others = _numbers(fields.get(default, b"\0"))
        chosen = dict(zip(others[::2], others[1::2], strict=True))
    for index, column in enumerate(columns):
        collation = chosen.get(index, usual)
        column.charset = charsets.get(collation, f"of collation {collation}")


def _choices(data: bytes) -> list[list[bytes]]:
    found: list[list[bytes]] = []
    at = 0
    while at < len(data):
        count, at = _number(data, at)
        some: list[bytes] = []
        for _ in range(count):
            size, start = _number(data, at)
            at = start + size
            some.append(data[start:at])
        found.append(some)
    return found


def _texts(data: bytes) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    while at < len(data):
        size, start = _number(data, at)
        at = start + size
        found.append(data[start:at])
    return found


def _numbers(data: bytes) -> list[int]:
    found: list[int] = []
    at = 0
    while at < len(data):
        number, at = _number(data, at)
        found.append(number)
    return found


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of one byte, or of the 2, 3 or 8 after it."""
    first = data[at]
    if first < 0xFB:
        return first, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def _name(data: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + data[at]
    return data[at + 1 : end].decode(), end + 1


def _inflate(data: bytes) -> bytes:
    """What MariaDB compresses with log_bin_compress: a byte that says how many follow with the size, then zlib."""
    return zlib.decompress(data[1 + (data[0] & 7) :])


def table_names(body: bytes) -> tuple[str, str]:
    """Of a table's description, its database and name alone."""
    schema, at = _name(body, 8)
    return schema, _name(body, at)[0]


def committed_ms(event: BinlogEvent) -> int:
    """When the transaction that begins here committed. MySQL says it to the microsecond, MariaDB to the second."""
    if event.kind in (GTID, ANONYMOUS_GTID) and len(event.body) >= _COMMITTED + 7:
        micros = int.from_bytes(event.body[_COMMITTED : _COMMITTED + 7], "little") & ((1 << 55) - 1)
        if micros:
            return micros // 1000
    return event.seconds * 1000
