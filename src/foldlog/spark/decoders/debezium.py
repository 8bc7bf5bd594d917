"""Debezium's change events to rows: `after` gives the columns, and an event that deletes gives a deletion.

Connect's JSON converter writes `{"before": …, "after": …, "op": "u", …}`, or that as `payload` beside the `schema` of
itself. A schema says how dates, times and decimals were written; without one, options say it. Such a schema is larger
than the row and the same in every event, so it is parsed once and recognised by its bytes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

import pyarrow as pa

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.spark.decoders.json_nodes import Constant, Members, Misfit, Node, Number, parse_document, struct_node
from foldlog.spark.decoders.row_columns import Row, build_columns, reasons_array
from foldlog.spark.decoders.text_types import in_zone, is_within_calendar, is_zoned, sql_name
from foldlog.views.contract import DELETED

Times = Literal["millis", "micros"]
Decimals = Literal["precise", "plain"]

_UNITS: Final = {"millis": 1000, "micros": 1}
_DAY_US: Final = 86_400_000_000
_LOGICAL_UNITS: Final = {
    "io.debezium.time.Timestamp": 1000,
    "io.debezium.time.MicroTimestamp": 1,
    "org.apache.kafka.connect.data.Timestamp": 1000,
}
"""Microseconds in one step of the number."""

_NANOS: Final = "io.debezium.time.NanoTimestamp"
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_OPERATIONS: Final = ("c", "u", "r")
_NOT_ROWS: Final = {
    "t": "op 't': the table was truncated, so its rows are gone; empty the view: foldlog fold rebuild",
    "m": "op 'm': a message, and no change of a row",
}
_PAYLOAD: Final = b'"payload":'
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Encoding = Mapping[str, Any] | None
"""Of a field in Connect's own description of a schema; None if there is none."""

Convert = Callable[[Any], Any]


class DebeziumDecoder:
    """See `Decoder`. The schema's columns are those of the table; besides them there is `_deleted`."""

    def __init__(
        self,
        schema: pa.Schema,
        *,
        times: Times | None = None,
        decimals: Decimals = "plain",
        timezone: str | None = None,
    ) -> None:
        """`times` is the unit of numbers for TIMESTAMPs, and `decimals` is "precise" if DECIMALs are bytes in base64,
        as Debezium writes them by default; both for events without a schema. `timezone` is that of texts without one.
        """
        self._rows = _RowReader(schema, times, decimals, timezone)
        self._schema = pa.schema([*self._rows.schema, pa.field(DELETED, pa.bool_())])
        self._after: tuple[Encoding, Encoding] | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray | None]:
        rows: list[Row | None] = []
        reasons: list[str | None] = []
        for value in values.to_pylist():
            row, reason = None, None
            if value is not None:
                try:
                    row = self._read(value)
                except Misfit as misfit:
                    reason = str(misfit)
            rows.append(row)
            reasons.append(reason)
        columns = build_columns(self._schema, rows, reasons)
        return columns, reasons_array(reasons)

    def _read(self, value: bytes) -> Row:
        envelope, encoding = self._rows.unwrapped(value)
        found = dict(envelope)
        op = found.get("op")
        if op == "d":
            return (*[None] * len(self._rows.schema), True)
        if op not in _OPERATIONS:
            if op in _NOT_ROWS:
                raise Misfit(_NOT_ROWS[op])
            raise Misfit("no event of Debezium: it has no 'op' of c, u, r or d; is it a flattened one? Then it is json")
        after = found.get("after")
        if not isinstance(after, Members):
            raise Misfit("no row", ("after",))
        return (*self._rows.read(after, self._after_of(encoding), "after"), False)

    def _after_of(self, encoding: Encoding) -> Encoding:
        if self._after is None or self._after[0] is not encoding:
            self._after = (encoding, _field_of(encoding, "after"))
        return self._after[1]


class DebeziumKeyDecoder:
    """Keys of Debezium's events to the columns of the key: an object, or that as `payload`. See `Decoder`."""

    def __init__(self, schema: pa.Schema, *, times: Times | None = None, timezone: str | None = None) -> None:
        self._rows = _RowReader(schema, times, "plain", timezone)

    @property
    def schema(self) -> pa.Schema:
        return self._rows.schema

    def decode(self, values: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray | None]:
        rows: list[Row | None] = []
        reasons: list[str | None] = []
        for value in values.to_pylist():
            row, reason = None, None
            if value is not None:
                try:
                    row = self._rows.read(*self._rows.unwrapped(value))
                except Misfit as misfit:
                    reason = str(misfit)
            rows.append(row)
            reasons.append(reason)
        columns = build_columns(self.schema, rows, reasons)
        return columns, reasons_array(reasons)


class _RowReader:
    """Reads rows of one schema, as each event's own schema says they were written."""

    def __init__(self, schema: pa.Schema, times: object, decimals: object, timezone: str | None) -> None:
        if times is not None and times not in _UNITS:
            raise InvalidArgument(f"times={brief_repr(times)} of format 'debezium' is not 'millis' or 'micros'")
        if decimals not in ("precise", "plain"):
            raise InvalidArgument(f"decimals={brief_repr(decimals)} of format 'debezium' is not 'precise' or 'plain'")
        struct_node(schema)  # refuses what cannot be read from JSON
        in_zone(schema, timezone)
        self.schema = pa.schema([_nullable(field) for field in schema])
        self._wanted = schema
        self._unit = None if times is None else _UNITS[str(times)]
        self._is_precise = decimals == "precise"
        self._zone = timezone
        self._prefix: bytes | None = None
        self._described: Encoding = None
        self._compiled: tuple[Encoding, Callable[[Members], Row]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_compiled": None}  # made anew where it is needed

    def unwrapped(self, value: bytes) -> tuple[Members, Encoding]:
        """The payload of a value, and the description of it, if it has one."""
        if self._prefix is not None and value.startswith(self._prefix) and value.endswith(b"}"):
            try:
                return parse_document(value[len(self._prefix) : -1]), self._described
            except Misfit:
                pass  # the reason is that of the whole value, whatever was read before
        document = parse_document(value)
        found = dict(document)
        if len(document) != 2 or set(found) != {"schema", "payload"}:
            return document, None
        payload, described = found["payload"], found["schema"]
        if not isinstance(payload, Members):
            raise Misfit("no object", ("payload",))
        encoding = _plain(described) if isinstance(described, Members) else None
        self._remember(value, payload, encoding)
        return payload, encoding

    def _remember(self, value: bytes, payload: Members, encoding: Encoding) -> None:
        """What the value begins with, if its payload comes last and is found there."""
        prefix = value[: value.find(_PAYLOAD) + len(_PAYLOAD)]
        try:
            if parse_document(value[len(prefix) : -1]) == payload:
                self._prefix, self._described = prefix, encoding
        except Misfit:
            pass

    def read(self, row: Members, encoding: Encoding, *path: str) -> Row:
        if self._compiled is None or self._compiled[0] is not encoding:
            self._compiled = (encoding, self._fields_reader(self._wanted, encoding))
        try:
            return self._compiled[1](row)
        except Misfit as misfit:
            raise Misfit(misfit.why, (*path, *misfit.path)) from None

    def _fields_reader(self, fields: Iterable[pa.Field], encoding: Encoding) -> Callable[[Members], Row]:
        """Reads the fields of an object, in order. Made once for each schema: most of an event's time is spent here."""
        converters = [
            (one.name, one.nullable, self._converter(one.type, _field_of(encoding, one.name))) for one in fields
        ]

        def read(row: Members) -> Row:
            found = dict(row)
            if len(found) != len(row):
                raise Misfit("a name stands there twice")
            return tuple(
                _converted(name, is_nullable, convert, found.get(name)) for name, is_nullable, convert in converters
            )

        return read

    def _converter(self, of: pa.DataType, encoding: Encoding) -> Convert:
        logical = (encoding or {}).get("name")
        if pa.types.is_date32(of):
            return _day
        if pa.types.is_timestamp(of):
            return lambda value: self._time(of, value, logical)
        if pa.types.is_decimal128(of) and (logical == _DECIMAL or (encoding is None and self._is_precise)):
            scale = int(((encoding or {}).get("parameters") or {}).get("scale", of.scale))
            return lambda value: _precise(value, scale, of)
        if pa.types.is_struct(of):
            return self._struct_converter(of, encoding)
        if pa.types.is_list(of):
            item, is_nullable = self._converter(of.value_type, (encoding or {}).get("items")), of.value_field.nullable
            return lambda value: [_converted(str(at), is_nullable, item, one) for at, one in enumerate(_items(value))]
        return _bytes if pa.types.is_binary(of) else _leaf(of).read

    def _struct_converter(self, of: pa.StructType, encoding: Encoding) -> Convert:
        names = [one.name for one in of]
        read = self._fields_reader(of, encoding)

        def convert(value: Any) -> Any:
            if not isinstance(value, Members):
                raise Misfit("not an object")
            return dict(zip(names, read(value), strict=True))

        return convert

    def _time(self, of: pa.DataType, value: Any, logical: object) -> int:
        if isinstance(value, Number):
            unit = _LOGICAL_UNITS.get(str(logical), self._unit if logical is None else None)
            if logical == _NANOS:
                return _in_calendar(_whole(value) // 1000, of)
            if unit is None:
                raise Misfit(f"{value} is a number, and its unit is not known; say times='millis' or times='micros'")
            return _in_calendar(_whole(value) * unit, of)
        _leaf(of).read(value)  # checks its spelling
        at = datetime.fromisoformat(value)
        if not is_zoned(of):
            return (at.replace(tzinfo=UTC) - _EPOCH) // _MICRO
        if at.tzinfo is None:
            at = self._there(at, value)
        return _in_calendar((at - _EPOCH) // _MICRO, of)

    def _there(self, at: datetime, shown: str) -> datetime:
        at = at.replace(tzinfo=UTC if self._zone is None else ZoneInfo(self._zone))
        if at.astimezone(UTC) != at.replace(fold=1).astimezone(UTC):
            raise Misfit(f"{shown!r} was shown twice or never by clocks in {self._zone}")
        return at


_MICRO: Final = datetime.resolution


def _nullable(field: pa.Field) -> pa.Field:
    of = field.type
    if pa.types.is_struct(of):
        of = pa.struct([_nullable(child) for child in of])
    elif pa.types.is_list(of):
        of = pa.list_(_nullable(of.value_field))
    return pa.field(field.name, of)


def _converted(name: str, is_nullable: bool, convert: Convert, value: Any) -> Any:
    if value is None:
        if is_nullable:
            return None
        raise Misfit("null or missing", (name,))
    try:
        return convert(value)
    except Misfit as misfit:
        raise misfit.inside(name) from None


def _items(value: Any) -> list[Any]:
    if type(value) is list:
        return value
    raise Misfit("not an array")


def _field_of(encoding: Encoding, name: str) -> Encoding:
    """The description of a field of a struct."""
    for one in (encoding or {}).get("fields") or ():
        if one.get("field") == name:
            found: Mapping[str, Any] = one
            return found
    return None


def _plain(value: Any) -> Any:
    """A parsed document as dicts."""
    if isinstance(value, Members):
        return {name: _plain(item) for name, item in value}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _whole(value: Any) -> int:
    if isinstance(value, Number) and not isinstance(value, Constant):
        try:
            return int(value)
        except ValueError:
            pass
    raise Misfit(f"{str(value)[:40]} is not a whole number")


def _day(value: Any) -> int:
    """Days since 1970; from a number, or from a text."""
    if isinstance(value, Number):
        days = _whole(value)
        if is_within_calendar(days * _DAY_US):
            return days
    elif type(value) is str:
        try:
            return (date.fromisoformat(value) - date(1970, 1, 1)).days
        except ValueError:
            pass
    raise Misfit(f"{str(value)[:40]} is not a DATE")


def _in_calendar(time_us: int, of: pa.DataType) -> int:
    if is_within_calendar(time_us):
        return time_us
    raise Misfit(f"{time_us} µs is not a {sql_name(of)}")


def _bytes(value: Any) -> bytes:
    if type(value) is str:
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass
    raise Misfit("not base64")


def _precise(value: Any, scale: int, of: pa.DataType) -> Decimal:
    """Connect's Decimal: the unscaled number as big-endian bytes, in base64."""
    unscaled = int.from_bytes(_bytes(value), "big", signed=True)
    exact = Decimal(unscaled).scaleb(-scale) if unscaled.bit_length() < 256 else None
    if exact is None:
        raise Misfit(f"more digits than a {sql_name(of)} has")
    found: Decimal = _leaf(of).read(format(exact, "f"))
    return found


@cache
def _leaf(of: pa.DataType) -> Node:
    """What JSON's decoder accepts for a type."""
    return struct_node(pa.schema([pa.field("value", of)])).fields["value"][0]
