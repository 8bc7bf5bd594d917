"""One JSON document, read exactly: which values a schema's types accept, and the reason if they do not.

This defines what `JsonDecoder` accepts; its fast path through Arrow's reader has to agree with it. A node converts a
parsed JSON value into one that Arrow builds an array of. Numbers are kept as text until the type is known, so that no
digit is lost. Dates, timestamps and binaries stay text here: `json_values` converts the text of both paths into the
final type.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Protocol

import pyarrow as pa

from foldlog.errors import InvalidArgument
from foldlog.spark.decoders.text_types import is_text_castable, sql_name

_DECIMAL_TEXT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)

_TIME_TEXT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9:.]+(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?")

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
    """The object in a value; Misfit if the value is not exactly one JSON object."""
    try:
        document = _PARSER.decode(value.decode())
    except UnicodeDecodeError as error:
        raise Misfit(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise Misfit(f"not JSON: {error.msg} at character {error.pos}" if value else "empty") from None
    if not isinstance(document, Members):
        raise Misfit(f"{_kind(document)}, not an object")
    return document


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
    """A string that may be a date or a timestamp: checks the position of its letters, and that the day exists.

    The final check is the conversion of all rows together. That is slow if it fails, so texts that certainly are none
    are rejected here.
    """

    type_name: str

    def read(self, value: Any) -> Any:
        text = TextNode(self.type_name).read(value)
        try:
            if _TIME_TEXT.fullmatch(text):
                date.fromisoformat(text[:10])
                return text
        except ValueError:
            pass
        raise Misfit(f"{text[:_SHOWN_CHARS]!r} is not a {self.type_name}")


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
    return TimeNode(sql_name(of)) if pa.types.is_temporal(of) else TextNode(sql_name(of))


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
