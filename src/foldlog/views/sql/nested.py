"""Arrays, structs and maps as JSON that is readable in SQL, and back, exactly.

Numbers, text, booleans and null are JSON's own; a float that JSON cannot express is "NaN", "Infinity" or "-Infinity".
Decimals, dates and times are text, binary is base64. A map is an object if its keys are text, else an array of pairs;
its entries come back in the order of their keys, since neither SQL nor Spark promises an order.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

Convert = Callable[[Any], Any]

_dump: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode_nested(column: Any) -> Any:
    """A column of JSON text for an Arrow column of a nested type; null stays null."""
    import pyarrow as pa

    convert = _to_json(column.type)
    texts = [None if value is None else _dump(convert(value)) for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def decode_nested(texts: Sequence[str | None], kind: Any) -> Any:
    """The inverse of `encode_nested`."""
    import pyarrow as pa

    convert = _from_json(kind)
    return pa.array([None if text is None else convert(json.loads(text)) for text in texts], kind)


def _same(value: Any) -> Any:
    return value


def _or_none(convert: Convert) -> Convert:
    if convert is _same:
        return convert
    return lambda value: None if value is None else convert(value)


def _to_json(kind: Any) -> Convert:
    from pyarrow import types

    if types.is_floating(kind):
        return _float_to_json
    if types.is_decimal(kind):
        return str
    if types.is_binary(kind) or types.is_large_binary(kind):
        return lambda value: b64encode(value).decode("ascii")
    if types.is_timestamp(kind):
        return _time_to_json
    if types.is_date(kind):
        return date.isoformat
    return _nested_to_json(kind) if types.is_nested(kind) else _same


def _nested_to_json(kind: Any) -> Convert:
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind):
        item = _or_none(_to_json(kind.value_type))
        return lambda values: [item(value) for value in values]
    if types.is_map(kind):
        key, item = _to_json(kind.key_type), _or_none(_to_json(kind.item_type))
        if _is_text(kind.key_type):
            return lambda pairs: {name: item(value) for name, value in sorted(pairs, key=_first)}
        return lambda pairs: [[key(name), item(value)] for name, value in sorted(pairs, key=_first)]
    fields = [(field.name, _or_none(_to_json(field.type))) for field in kind]
    return lambda value: {name: convert(value[name]) for name, convert in fields}


def _from_json(kind: Any) -> Convert:
    from pyarrow import types

    if types.is_floating(kind):
        return float
    if types.is_decimal(kind):
        return Decimal
    if types.is_binary(kind):
        return b64decode
    if types.is_timestamp(kind):
        return datetime.fromisoformat
    if types.is_date(kind):
        return date.fromisoformat
    return _nested_from_json(kind) if types.is_nested(kind) else _same


def _nested_from_json(kind: Any) -> Convert:
    from pyarrow import types

    if types.is_list(kind):
        item = _or_none(_from_json(kind.value_type))
        return lambda values: [item(value) for value in values]
    if types.is_map(kind):
        key, item = _from_json(kind.key_type), _or_none(_from_json(kind.item_type))
        if _is_text(kind.key_type):
            return lambda pairs: sorted(((name, item(value)) for name, value in pairs.items()), key=_first)
        return lambda pairs: [(key(name), item(value)) for name, value in pairs]
    fields = [(field.name, _or_none(_from_json(field.type))) for field in kind]
    return lambda value: {name: convert(value.get(name)) for name, convert in fields}


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _float_to_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _time_to_json(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat()
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
