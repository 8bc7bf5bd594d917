"""One JSON document, read exactly: which values a schema's types accept, and the reason if they do not.

This defines what `JsonDecoder` accepts; its fast path through Arrow's reader has to agree with it. A node converts a
parsed JSON value into one that Arrow builds an array of. Numbers are kept as text until the type is known, so that no
digit is lost. Dates, timestamps and binaries are checked here and stay text: `json_values` converts the text of both
paths into the final type, all rows together, and none of them fails there any more.
"""

from __future__ import annotations

import base64
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo

import pyarrow as pa

from foldlog.environment import PURE_PYTHON
from foldlog.errors import InvalidArgument
from foldlog.spark.decoders.text_types import is_text_castable, is_zoned, sql_name

_DECIMAL_TEXT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)

_HOUR: Final = "(?:[01][0-9]|2[0-3])"
_SIXTIETH: Final = "[0-5][0-9]"
_DAY: Final = "([0-9]{4}-[0-9]{2}-[0-9]{2})"
_TIME: Final = rf"({_HOUR}(?::{_SIXTIETH})?|{_HOUR}:{_SIXTIETH}:{_SIXTIETH}(?:\.[0-9]+)?)"
_ZONE: Final = f"(Z|[+-]{_HOUR}(?::?{_SIXTIETH})?)?"
_TIME_TEXTS: Final = {
    "DATE": re.compile(_DAY),
    "TIMESTAMP": re.compile(f"{_DAY}(?:[T ]{_TIME}{_ZONE})?"),
    "TIMESTAMP_NTZ": re.compile(f"{_DAY}(?:[T ]{_TIME})?"),
}
"""What `text_types` accepts, but for days that do not exist."""

_ARROWS_CONSTANTS: Final = ("Inf", "-Inf", "-NaN")
"""What Arrow's reader skips in a field that nobody looks at, and Python's parser does not know."""

_CONSTANT: Final = re.compile(r'("(?:[^"\\]|\\.)*")|-?Inf(?:inity)?|-NaN', re.DOTALL)
"""One of these outside of a text."""

JSON_SPACE: Final = b" \t\r\n"

_FOLLOWED_LEVELS: Final = 1000
"""About as deeply nested as Python's parser follows."""

_TOO_DEEP: Final = "nested too deeply"

_SHOWN_CHARS: Final = 40
"""Characters shown of a value that does not fit: enough to recognise it, in a header."""


class Misfit(Exception):
    """A value does not fit the schema: where, and why."""

    def __init__(self, why: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.path = path

    def inside(self, name: str) -> Misfit:
        return Misfit(self.why, (name, *self.path))

    def __str__(self) -> str:
        whole = f"{'.'.join(self.path)}: {self.why}" if self.path else self.why
        # The names of a map's items come from the producer, and may contain half of a surrogate pair.
        return whole.encode(errors="backslashreplace").decode()


class TooDeep(Misfit):
    """A value is nested too deeply for Python's parser; Arrow's follows much deeper."""

    def __init__(self) -> None:
        super().__init__(_TOO_DEEP)


class Number(str):
    """A JSON number as it was written."""

    __slots__ = ()


class Members(list[tuple[str, Any]]):
    """A JSON object as it was written: in order, with duplicate names."""

    __slots__ = ()


class Constant(str):
    """NaN or an infinity, which is not JSON but often written. No type accepts it; a skipped field may have it."""

    __slots__ = ()


_PARSER: Final = json.JSONDecoder(
    object_pairs_hook=Members, parse_int=Number, parse_float=Number, parse_constant=Constant
)


def parse_document(value: bytes) -> Members:
    """The object in a value. Misfit if the value is not exactly one JSON object, TooDeep if Python cannot tell."""
    if len(value) > _FOLLOWED_LEVELS and broken_depth(value) > _FOLLOWED_LEVELS:
        raise Misfit(_TOO_DEEP)  # no object for anybody: following it to the limit takes a hundred times as long
    try:
        document = _parsed(value.decode())
    except UnicodeDecodeError as error:
        raise Misfit(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise Misfit(f"not JSON: {error.msg} at character {error.pos}" if value else "empty") from None
    except RecursionError:
        raise TooDeep from None
    if not isinstance(document, Members):
        raise Misfit(f"{_kind(document)}, not an object")
    return document


def _parsed(text: str) -> Any:
    try:
        return _PARSER.decode(text)
    except json.JSONDecodeError as error:
        if not text.startswith(_ARROWS_CONSTANTS, error.pos):
            raise
        try:
            return _PARSER.decode(_CONSTANT.sub(_pythons_constant, text))
        except json.JSONDecodeError:
            raise error from None


def _pythons_constant(found: re.Match[str]) -> str:
    if found[1]:
        return found[1]
    return "NaN" if found[0] == "-NaN" else found[0].removesuffix("inity") + "inity"


def is_braced(value: bytes) -> bool:
    """Whether it begins and ends as an object does."""
    trimmed = value.strip(JSON_SPACE)
    return trimmed[:1] == b"{" and trimmed[-1:] == b"}"


def _broken_depth(value: bytes) -> int:
    """As the compiled one, of values that are cut off."""
    unclosed = value.count(b"[") - value.count(b"]") + value.count(b"{") - value.count(b"}")
    return 0 if is_braced(value) else unclosed


broken_depth = _broken_depth
if not PURE_PYTHON:
    with suppress(ImportError):
        from foldlog.spark.decoders.json_screen import broken_depth


class Node(Protocol):
    """The values that one type accepts."""

    def read(self, value: Any) -> Any:
        """The value for Arrow; Misfit if it does not fit. Takes what `parse_document` returns, never a null."""
        ...


@dataclass(frozen=True, slots=True)
class BooleanNode:
    """true or false."""

    def read(self, value: Any) -> Any:
        if isinstance(value, bool):
            return value
        raise _not_a(value, "BOOLEAN")


@dataclass(frozen=True, slots=True)
class TextNode:
    """A string that can be written as UTF-8: not half of a surrogate pair."""

    type_name: str

    def read(self, value: Any) -> Any:
        if type(value) is not str:
            raise _not_a(value, self.type_name)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Misfit("half of a surrogate pair") from None
        return value


@dataclass(frozen=True, slots=True)
class TimeNode:
    """A string that is a date or a timestamp, in the years 1 to 9999, also in UTC."""

    type_name: str
    zone: str | None = None
    """Where clocks show texts without a zone; None for UTC."""

    def read(self, value: Any) -> Any:
        text = TextNode(self.type_name).read(value)
        found = _TIME_TEXTS[self.type_name].fullmatch(text)
        try:
            if found is not None:
                _check_calendar(*found.groups())
                if self.zone is not None and found[3] is None:
                    self._check_clock(text)
                return text
        except (ValueError, OverflowError):
            pass
        raise Misfit(f"{text[:_SHOWN_CHARS]!r} is not a {self.type_name}")

    def _check_clock(self, text: str) -> None:
        """Misfit unless clocks of the zone showed this once."""
        shown = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(self.zone or "UTC"))
        if shown.astimezone(UTC) != shown.replace(fold=1).astimezone(UTC):
            raise Misfit(f"{text[:_SHOWN_CHARS]!r} was shown twice or never by clocks in {self.zone}")


def _check_calendar(day: str, time: str = "", zone: str | None = None) -> None:
    """Raise if there is no such day."""
    if zone is None or zone == "Z":
        date.fromisoformat(day)
    else:
        datetime.fromisoformat(f"{day}T{time[:8]}{zone}").astimezone(UTC)  # whole seconds: a zone moves no fraction


@dataclass(frozen=True, slots=True)
class BinaryNode:
    """A string in base64."""

    def read(self, value: Any) -> Any:
        text = TextNode("BINARY").read(value)
        try:
            base64.b64decode(text, validate=True)
        except ValueError:
            raise Misfit("not base64") from None
        return text


@dataclass(frozen=True, slots=True)
class IntegerNode:
    """A number without a fraction, in range. JSON has one kind of number: 1.0 and 1e3 are integers too."""

    type_name: str
    bits: int

    def read(self, value: Any) -> Any:
        if not isinstance(value, Number):
            raise _not_a(value, self.type_name)
        try:
            exact = Decimal(value)
        except InvalidOperation:  # an exponent with more digits than decimal allows
            raise _not_a(value, self.type_name) from None
        # Check the size first: the integer of 1e999999 has a million digits.
        if exact.adjusted() < 20 and exact == exact.to_integral_value():
            number = int(exact)
            if -(1 << self.bits - 1) <= number < 1 << self.bits - 1:
                return number
        raise _not_a(value, self.type_name)


@dataclass(frozen=True, slots=True)
class FloatNode:
    """Any number that is finite in this type."""

    type_name: str
    is_single: bool

    def read(self, value: Any) -> Any:
        if not isinstance(value, Number):
            raise _not_a(value, self.type_name)
        # Directly to float: through a double it would be rounded twice.
        number = pa.scalar(str(value)).cast(pa.float32()).as_py() if self.is_single else float(value)
        if number in (float("inf"), float("-inf")):
            raise _not_a(value, self.type_name)
        return number


@dataclass(frozen=True, slots=True)
class DecimalNode:
    """A number that the type holds exactly; or a string of one, as careful producers send money."""

    precision: int
    scale: int

    def read(self, value: Any) -> Any:
        if isinstance(value, Constant) or not isinstance(value, str) or not _DECIMAL_TEXT.fullmatch(value):
            raise _not_a(value, self._type_name)
        try:
            exact = Decimal(value)
        except InvalidOperation:
            raise _not_a(value, self._type_name) from None
        if exact.is_zero():
            return Decimal(0)
        # By digits: arithmetic would round to the context's precision.
        sign, digits, exponent = exact.as_tuple()
        significant = tuple(bytes(digits).rstrip(b"\0"))
        last = int(exponent) + len(digits) - len(significant)
        if last < -self.scale or exact.adjusted() >= self.precision - self.scale:
            raise _not_a(value, self._type_name)
        # Without trailing zeros: Arrow counts them as digits, and rejects a number with more digits than the type has.
        return Decimal((sign, significant, last))

    @property
    def _type_name(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class ListNode:
    """An array."""

    element: Node
    is_nullable: bool

    def read(self, value: Any) -> Any:
        if type(value) is not list:
            raise _not_a(value, "ARRAY")
        return [read_nullable(self.element, item, self.is_nullable, str(at)) for at, item in enumerate(value)]


@dataclass(frozen=True, slots=True)
class MapNode:
    """An object as a map from its names."""

    value: Node
    is_nullable: bool

    def read(self, value: Any) -> Any:
        if not isinstance(value, Members):
            raise _not_a(value, "MAP")
        names = {name for name, _ in value}
        if len(names) != len(value):
            raise Misfit("a name stands there twice")
        key = TextNode("STRING")
        return [
            (read_nullable(key, name, False, name), read_nullable(self.value, item, self.is_nullable, name))
            for name, item in value
        ]


@dataclass(frozen=True, slots=True)
class StructNode:
    """An object, of which only the declared fields are read; a missing field is null."""

    fields: dict[str, tuple[Node, bool]]

    def read(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, Members):
            raise _not_a(value, "STRUCT")
        found: dict[str, Any] = {}
        for name, item in value:
            declared = self.fields.get(name)
            if declared is None:
                continue
            if name in found:
                raise Misfit("stands there twice", (name,))
            found[name] = read_nullable(declared[0], item, declared[1], name)
        for name, (_, is_nullable) in self.fields.items():
            if not is_nullable and name not in found:
                raise Misfit("missing", (name,))
        return found


def read_nullable(node: Node, value: Any, is_nullable: bool, name: str) -> Any:
    """A value or a null; prefixes a Misfit with the name."""
    if value is None:
        if is_nullable:
            return None
        raise Misfit("null", (name,))
    try:
        return node.read(value)
    except Misfit as misfit:
        raise misfit.inside(name) from None


def struct_node(fields: pa.Schema | pa.StructType) -> StructNode:
    """The node of a whole record; InvalidArgument for the first field that cannot be read from JSON."""
    nodes: dict[str, tuple[Node, bool]] = {}
    for field in fields:
        if field.name in nodes:
            raise InvalidArgument(f"field {field.name!r} stands twice in the schema")
        nodes[field.name] = (_node(field), field.nullable)
    if not nodes:
        raise InvalidArgument("a schema needs at least one field")
    return StructNode(nodes)


def _node(field: pa.Field) -> Node:
    of = field.type
    if pa.types.is_struct(of):
        if any((child.metadata or {}).get(b"variant") for child in of):
            raise InvalidArgument(
                f"field {field.name!r}: there is no reading VARIANT from JSON; declare the fields of a STRUCT, or call"
                " parse_json() on a STRING"
            )
        return struct_node(of)
    if pa.types.is_list(of):
        return ListNode(_node(of.value_field), of.value_field.nullable)
    if pa.types.is_map(of):
        if not pa.types.is_string(of.key_type):
            raise InvalidArgument(f"field {field.name!r}: the names in a JSON object are STRING, not {of.key_type}")
        return MapNode(_node(of.item_field), of.item_field.nullable)
    if is_text_castable(of):
        return _leaf(of)
    raise InvalidArgument(f"field {field.name!r}: there is no reading {sql_name(of)} from JSON")


def _leaf(of: pa.DataType) -> Node:
    if pa.types.is_boolean(of):
        return BooleanNode()
    if pa.types.is_integer(of):
        return IntegerNode(sql_name(of), of.bit_width)
    if pa.types.is_floating(of):
        return FloatNode(sql_name(of), is_single=pa.types.is_float32(of))
    if pa.types.is_decimal128(of):
        return DecimalNode(of.precision, of.scale)
    if pa.types.is_temporal(of):
        is_elsewhere = is_zoned(of) and of.tz != "UTC"
        return TimeNode(sql_name(of), of.tz if is_elsewhere else None)
    return BinaryNode() if pa.types.is_binary(of) else TextNode(sql_name(of))


def as_json(value: Any) -> str:
    """A value of `parse_document` as JSON again: numbers as they were written, objects with their names in order.

    >>> as_json(parse_document(b'{"b": 1.50, "a": [true, null, "x"]}'))
    '{"a":[true,null,"x"],"b":1.50}'
    """
    if isinstance(value, Number | Constant):
        return str(value)
    if isinstance(value, Members):
        members = (f"{as_json(name)}:{as_json(item)}" for name, item in sorted(value, key=_name))
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(as_json, value))}]"
    text = json.dumps(value, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode()  # half of a surrogate pair stays an escape


def _name(member: tuple[str, Any]) -> str:
    return member[0]


def _kind(value: Any) -> str:
    if value is None:
        return "a JSON null"
    if isinstance(value, bool):
        return "a JSON boolean"
    if isinstance(value, Number | Constant):
        return "a JSON number"
    if isinstance(value, str):
        return "a JSON string"
    return "a JSON object" if isinstance(value, Members) else "a JSON array"


def _not_a(value: Any, type_name: str) -> Misfit:
    if isinstance(value, Members | list):
        return Misfit(f"{_kind(value)}, not a {type_name}")
    shown = str(value) if isinstance(value, Number | Constant) else json.dumps(value)
    return Misfit(f"{shown[:_SHOWN_CHARS]} is not a {type_name}")
