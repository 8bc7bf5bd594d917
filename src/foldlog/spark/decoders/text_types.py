"""Text to typed Arrow columns: a key, or a string inside JSON, as a date, a timestamp or a number.

docs/decoders.md documents one spelling per type. Every function works on whole arrays and raises `pa.ArrowInvalid` if
one of the texts does not fit; `cast_rows` finds out which.
"""

from __future__ import annotations

from typing import Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from foldlog.errors import InvalidArgument, brief_repr

UTC_MICROS: Final = pa.timestamp("us", tz="UTC")
NAIVE_MICROS: Final = pa.timestamp("us")

_FINER_THAN_MICROS: Final = r"(\.\d{6})\d+"
_ZONE: Final = r"^[^T ]*[T ].*(Z|[+-]\d\d(:?\d\d)?)$"
_YEAR_1_US: Final = -62_135_596_800_000_000
_YEAR_10000_US: Final = 253_402_300_800_000_000

_SQL_NAMES: Final = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    UTC_MICROS: "TIMESTAMP",
    NAIVE_MICROS: "TIMESTAMP_NTZ",
}


def sql_name(of: pa.DataType) -> str:
    """Spark's name of a type, for messages.

    >>> sql_name(pa.int64()), sql_name(pa.decimal128(10, 2))
    ('BIGINT', 'DECIMAL(10,2)')
    """
    if pa.types.is_decimal128(of):
        return f"DECIMAL({of.precision},{of.scale})"
    if is_zoned(of):
        return "TIMESTAMP"
    return _SQL_NAMES.get(of, str(of))


def is_text_castable(to: pa.DataType) -> bool:
    """Whether `cast_text` supports the type."""
    return to in _SQL_NAMES or pa.types.is_decimal128(to) or is_zoned(to)


def is_zoned(of: pa.DataType) -> bool:
    """Whether it is a timestamp in microseconds with a zone, be it another than UTC: see `in_zone`."""
    return pa.types.is_timestamp(of) and of.unit == "us" and of.tz is not None


def in_zone(schema: pa.Schema, zone: str | None) -> pa.Schema:
    """The schema for `cast_text`, in which texts of timestamps without a zone are in this one; their columns are in UTC
    all the same. InvalidArgument if there is no such zone."""
    if zone is None:
        return schema
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError, TypeError):
        raise InvalidArgument(f"there is no time zone {brief_repr(zone)}; write it as in 'Asia/Kolkata'") from None
    return pa.schema([_retyped(field, zone) for field in schema])


def in_utc(field: pa.Field) -> pa.Field:
    """The inverse of `in_zone`."""
    return _retyped(field, "UTC")


def _retyped(field: pa.Field, zone: str) -> pa.Field:
    of = field.type
    if is_zoned(of):
        of = pa.timestamp("us", tz=zone)
    elif pa.types.is_struct(of):
        of = pa.struct([_retyped(child, zone) for child in of])
    elif pa.types.is_list(of):
        of = pa.list_(_retyped(of.value_field, zone))
    elif pa.types.is_map(of):
        of = pa.map_(of.key_type, _retyped(of.item_field, zone))
    return field.with_type(of)


def cast_text(texts: pa.StringArray, to: pa.DataType) -> pa.Array:
    """The texts as another type; a null stays null. `pa.ArrowInvalid` if any of them does not fit."""
    if pa.types.is_timestamp(to):
        return _cast_timestamps(texts, to)
    if pa.types.is_date32(to):
        return within_calendar(texts.cast(to))
    if pa.types.is_boolean(to):
        return _cast_booleans(texts)
    if pa.types.is_integer(to):
        return _cast_integers(texts, to)
    if pa.types.is_floating(to):
        return _finite(texts.cast(to))
    if pa.types.is_decimal128(to):
        return within_precision(texts.cast(to))
    return texts.cast(to)


def cast_rows(texts: pa.StringArray, to: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Casts texts some of which may not fit: those become null, and their row numbers are returned."""
    bad: list[int] = []
    pieces = _cast_pieces(texts, to, 0, bad)
    return pa.concat_arrays(pieces) if len(pieces) > 1 else pieces[0], bad


def _cast_pieces(texts: pa.StringArray, to: pa.DataType, first_row: int, bad: list[int]) -> list[pa.Array]:
    # Few texts are bad: each costs a few casts of shorter and shorter slices; the others are cast in bulk.
    try:
        return [cast_text(texts, to)]
    except pa.ArrowInvalid:
        if len(texts) == 1:
            bad.append(first_row)
            return [pa.nulls(1, UTC_MICROS if is_zoned(to) else to)]
    step = -(-len(texts) // 8)
    return [
        piece
        for start in range(0, len(texts), step)
        for piece in _cast_pieces(texts.slice(start, step), to, first_row + start, bad)
    ]


def within_calendar(times: pa.Array) -> pa.Array:
    """Checks that dates and timestamps are in the years 1 to 9999, the range of Python and most databases."""
    if pa.types.is_date32(times.type):
        numbers, micros_per_unit = times.view(pa.int32()), 86_400_000_000
    else:
        numbers, micros_per_unit = times.view(pa.int64()), 1
    extremes = pc.min_max(numbers).as_py()
    if extremes["min"] is None or all(is_within_calendar(number * micros_per_unit) for number in extremes.values()):
        return times
    raise pa.ArrowInvalid("it is outside the years 1 to 9999")


def is_within_calendar(time_us: int) -> bool:
    """Whether a time in microseconds since 1970 is in the years 1 to 9999."""
    return _YEAR_1_US <= time_us < _YEAR_10000_US


def within_precision(numbers: pa.Decimal128Array) -> pa.Decimal128Array:
    """Checks that decimals have no more digits than their type allows: Arrow checks before it appends zeros."""
    numbers.validate(full=True)
    return numbers


def _cast_timestamps(texts: pa.StringArray, to: pa.DataType) -> pa.Array:
    if to != NAIVE_MICROS and not is_zoned(to):
        raise InvalidArgument(f"timestamps are in microseconds, in a zone or without one, not {to}")
    if to in (UTC_MICROS, NAIVE_MICROS):
        try:
            return within_calendar(texts.cast(to))
        except pa.ArrowInvalid:
            pass  # some are in a spelling that Arrow does not know, or are no timestamps
    texts = pc.replace_substring_regex(texts, _FINER_THAN_MICROS, r"\1")
    if to == NAIVE_MICROS:
        return within_calendar(texts.cast(to))
    has_zone = pc.match_substring_regex(texts, _ZONE)
    nothing = pa.scalar(None, pa.string())
    zoned = pc.if_else(has_zone, texts, nothing).cast(UTC_MICROS)
    plain = within_calendar(pc.if_else(has_zone, nothing, texts).cast(NAIVE_MICROS))
    if to == UTC_MICROS:
        return within_calendar(pc.coalesce(zoned, plain.view(UTC_MICROS)))
    # An hour that the clocks showed twice, or skipped, is no certain time: ArrowInvalid.
    there = pc.assume_timezone(plain, to.tz, ambiguous="raise", nonexistent="raise").cast(UTC_MICROS)
    return within_calendar(pc.coalesce(zoned, there))


def _cast_booleans(texts: pa.StringArray) -> pa.Array:
    is_true = pc.equal(texts, "true")
    if pc.all(pc.or_(is_true, pc.equal(texts, "false")), min_count=0).as_py():
        return is_true
    raise pa.ArrowInvalid("it is neither true nor false")


def _cast_integers(texts: pa.StringArray, to: pa.DataType) -> pa.Array:
    numbers = texts.cast(to)
    # Arrow reads 007 and 0x7 as 7. Different keys must not become the same.
    if pc.all(pc.equal(numbers.cast(pa.string()), texts), min_count=0).as_py():
        return numbers
    raise pa.ArrowInvalid("it is not the plain spelling of an integer")


def _finite(numbers: pa.Array) -> pa.Array:
    if pc.all(pc.is_finite(numbers), min_count=0).as_py():
        return numbers
    raise pa.ArrowInvalid("it is not a finite number that fits")
