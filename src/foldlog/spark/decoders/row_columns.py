"""Rows of Python values to Arrow columns, for formats whose libraries read one record at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from foldlog.records.schema_ids import NotFramed

_CUTS: Final = 16

Row = tuple[Any, ...]


class Unreadable(Exception):
    """One record cannot be read; the message is the reason."""


def decode_rows(
    schema: pa.Schema, values: pa.BinaryArray, read: Callable[[bytes], Row]
) -> tuple[list[pa.Array], pa.StringArray | None]:
    """The result of `Decoder.decode`, for a function that reads one value or raises Unreadable or NotFramed."""
    rows: list[Row | None] = []
    reasons: list[str | None] = []
    for value in values.to_pylist():
        row, reason = None, None
        if value is not None:
            try:
                row = read(value)
            except (Unreadable, NotFramed) as error:
                reason = str(error)
        rows.append(row)
        reasons.append(reason)
    columns = build_columns(schema, rows, reasons)  # first: it may add reasons
    return columns, reasons_array(reasons)


def build_columns(schema: pa.Schema, rows: Sequence[Row | None], reasons: list[str | None]) -> list[pa.Array]:
    """A column per field. A row that is None is null in all of them, as is a row that does not fit the types, which
    gets its reason here.
    """
    try:
        return _built(schema, rows, reasons)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
        if len(rows) == 1:
            reasons[0] = _first_line(error)
            return _built(schema, rows, reasons)
    step = -(-len(rows) // _CUTS)
    for start in range(0, len(rows), step):
        some = reasons[start : start + step]
        build_columns(schema, rows[start : start + step], some)
        reasons[start : start + step] = some
    return _built(schema, rows, reasons)


def reasons_array(reasons: list[str | None]) -> pa.StringArray | None:
    """The reasons in the form of `Decoder.decode`."""
    return pa.array(reasons, pa.string()) if any(reason is not None for reason in reasons) else None


def _built(schema: pa.Schema, rows: Sequence[Row | None], reasons: list[str | None]) -> list[pa.Array]:
    nothing = (None,) * len(schema)
    kept = [nothing if row is None or reason is not None else row for row, reason in zip(rows, reasons, strict=True)]
    return [pa.array([row[number] for row in kept], field.type) for number, field in enumerate(schema)]


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:120] or type(error).__name__
