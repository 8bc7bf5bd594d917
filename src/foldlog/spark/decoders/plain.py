"""Keys, and values that are not parsed: text and raw bytes."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from foldlog.errors import InvalidArgument
from foldlog.spark.decoders.decoder import VALUE
from foldlog.spark.decoders.text_types import cast_rows, is_text_castable, sql_name

_ONE_SPELLING: Final = r"^[0-9-]{10}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{0,5}[1-9])?"
"""The only spelling of a timestamp: with seconds, and a fraction without trailing zeros."""


class PlainDecoder:
    """A value as one column: STRING if it is text (UTF-8), else BINARY. See `Decoder`."""

    def __init__(self, schema: pa.Schema | None = None, *, is_text: bool) -> None:
        self._key_like = PlainKeyDecoder(pa.string() if is_text else pa.binary())
        name = VALUE
        if schema is not None:
            if len(schema) != 1 or schema.field(0).type != self._key_like.type:
                format_name = "text" if is_text else "raw"
                raise InvalidArgument(
                    f"format {format_name!r} has one column of type {sql_name(self._key_like.type)}, not"
                    f" {', '.join(f'{field.name} {sql_name(field.type)}' for field in schema) or 'none'}"
                )
            name = schema.field(0).name
        self._schema = pa.schema([pa.field(name, self._key_like.type)])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray | None]:
        column, reasons = self._key_like.decode(values)
        return [column], reasons


class PlainKeyDecoder:
    """A key as one column: as it is, or parsed from text. See `KeyDecoder`.

    docs/decoders.md defines how numbers, dates and times are written. Each value has one spelling, so that two keys of
    the log never become one row: their records may be in different partitions, without an order.
    """

    def __init__(self, type: pa.DataType) -> None:  # noqa: A002 what it is
        if not is_text_castable(type) or pa.types.is_floating(type):
            raise InvalidArgument(
                f"a key cannot be {sql_name(type)}; it can be STRING, BINARY, an integer, DECIMAL, BOOLEAN, DATE,"
                " TIMESTAMP or TIMESTAMP_NTZ"
            )
        self._type = type

    @property
    def type(self) -> pa.DataType:
        return self._type

    def decode(self, keys: pa.BinaryArray) -> tuple[pa.Array, pa.StringArray | None]:
        if pa.types.is_binary(self._type):
            return keys.cast(self._type), None
        texts, is_not_text = _as_text(keys)
        column, misfits = (texts, []) if pa.types.is_string(self._type) else cast_rows(texts, self._type)
        others = _other_spellings(texts, column)
        if not is_not_text and not misfits and others is None:
            return column, None
        reasons: list[str | None] = [None] * len(keys)
        if others is not None:
            column = pc.if_else(others, pa.scalar(None, column.type), column)
            for row in pc.indices_nonzero(others).to_pylist():
                reasons[row] = f"not the one spelling of a {sql_name(self._type)} key"
        for row in misfits:
            reasons[row] = f"not a {sql_name(self._type)}"
        for row in is_not_text:
            reasons[row] = "not UTF-8"
        return column, pa.array(reasons, pa.string())


def _other_spellings(texts: pa.StringArray, column: pa.Array) -> pa.BooleanArray | None:
    """The texts that are a decimal or a timestamp in another spelling; None if there are none."""
    if pa.types.is_decimal128(column.type):
        is_other = pc.not_equal(column.cast(pa.string()), texts)
    elif pa.types.is_timestamp(column.type):
        zone = "" if column.type.tz is None else "Z"
        is_other = pc.invert(pc.match_substring_regex(texts, _ONE_SPELLING + zone + "$"))
    else:
        return None
    found = pc.fill_null(pc.and_(is_other, column.is_valid()), False)
    return found if pc.any(found, min_count=0).as_py() else None


def _as_text(keys: pa.BinaryArray) -> tuple[pa.StringArray, list[int]]:
    """The keys as strings, and the rows that are not UTF-8, which are null."""
    try:
        return keys.cast(pa.string()), []
    except pa.ArrowInvalid:
        pass
    is_bad = [False] * len(keys)
    for row, key in enumerate(keys.to_pylist()):
        try:
            (key or b"").decode()
        except UnicodeDecodeError:
            is_bad[row] = True
    texts = pc.if_else(pa.array(is_bad), pa.scalar(None, keys.type), keys).cast(pa.string())
    return texts, [row for row, bad in enumerate(is_bad) if bad]
