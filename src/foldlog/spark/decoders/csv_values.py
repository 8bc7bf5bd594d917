"""CSV values to columns of a schema: each value is one record, as RFC 4180 writes it, its fields in the schema's order.

Values without a quote are split by Arrow, all together; those with one are read one by one. Both ways end in texts,
which `text_types` casts, so a field means the same whichever way it was read.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.spark.decoders.text_types import cast_rows, in_utc, in_zone, is_text_castable, sql_name

_ENDS: Final = ("\r\n", "\n", "\r")
_SHOWN_CHARS: Final = 40


class _NoCsv(Exception):
    """A value is not one record of CSV; the message is the reason."""


class CsvDecoder:
    """See `Decoder`. A field that is not quoted and is the `null` text (nothing, by default) is null; a quoted one is a
    text, be it empty. A value with more or fewer fields than the schema has columns is a reason.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        delimiter: str = ",",
        quote: str = '"',
        null: str = "",
        timezone: str | None = None,
    ) -> None:
        options: tuple[tuple[str, object], ...] = (("delimiter", delimiter), ("quote", quote))
        for name, given in options:
            if not isinstance(given, str) or len(given) != 1 or given in "\r\n":
                raise InvalidArgument(f"{name}={brief_repr(given)} of format 'csv' is not one character")
        if delimiter == quote:
            raise InvalidArgument(f"delimiter and quote of format 'csv' are both {delimiter!r}")
        if {delimiter, quote, "\r", "\n"} & set(null):
            raise InvalidArgument(f"null={brief_repr(null)} of format 'csv' is not a text that can stand in a field")
        if not len(schema):
            raise InvalidArgument("a schema needs at least one field")
        for field in schema:
            if not is_text_castable(field.type):
                raise InvalidArgument(
                    f"field {field.name!r}: there is no reading {sql_name(field.type)} from CSV; declare it as STRING"
                )
        self._delimiter = delimiter
        self._quote = quote
        self._null = null
        self._wanted = in_zone(schema, timezone)
        self._schema = pa.schema([in_utc(field).with_nullable(True) for field in schema])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray | None]:
        reasons: list[str | None] = [None] * len(values)
        columns = self._split(values, reasons)
        arrays: list[pa.Array] = []
        for field, texts in zip(self._wanted, columns, strict=True):
            array, misfits = (texts, []) if field.type == pa.string() else cast_rows(texts, field.type)
            for row in misfits:
                shown = str(texts[row].as_py())[:_SHOWN_CHARS]
                reasons[row] = reasons[row] or f"{field.name}: {shown!r} is not a {sql_name(field.type)}"
            if not field.nullable:
                for row in pc.indices_nonzero(pc.and_(pc.is_null(texts), pc.is_valid(values))).to_pylist():
                    reasons[row] = reasons[row] or f"{field.name}: null"
            arrays.append(array)
        if not any(reasons):
            return arrays, None
        told = pa.array(reasons, pa.string())
        good = pc.is_null(told)
        return [pc.if_else(good, array, pa.scalar(None, array.type)) for array in arrays], told

    def _split(self, values: pa.BinaryArray, reasons: list[str | None]) -> list[pa.StringArray]:
        """The fields as texts, a column each; adds the reasons of values that are no CSV of this schema."""
        texts = self._texts(values, reasons)
        unusual = pc.or_(
            pc.match_substring(texts, self._quote),
            pc.or_(pc.match_substring(texts, "\n"), pc.match_substring(texts, "\r")),
        )
        parts = pc.split_pattern(texts, self._delimiter)
        lengths = pc.list_value_length(parts)
        fits = pc.fill_null(pc.and_(pc.equal(lengths, len(self._wanted)), pc.invert(unusual)), False)
        rows: dict[int, list[str | None]] = {}
        for row in pc.indices_nonzero(pc.and_(pc.invert(fits), pc.is_valid(texts))).to_pylist():
            try:
                rows[row] = self._read(texts[row].as_py())
            except _NoCsv as error:
                reasons[row] = str(error)
        empty = pa.scalar([""] * len(self._wanted), parts.type)
        whole = pc.if_else(fits, parts, empty)
        columns: list[pa.StringArray] = []
        for number in range(len(self._wanted)):
            column = pc.list_element(whole, number)
            is_there = pc.and_(fits, pc.not_equal(column, self._null))
            column = pc.if_else(is_there, column, pa.scalar(None, pa.string()))
            if rows:
                mask = pa.array([row in rows for row in range(len(values))], pa.bool_())
                column = pc.replace_with_mask(
                    column, mask, pa.array([one[number] for one in rows.values()], pa.string())
                )
            columns.append(column)
        return columns

    def _texts(self, values: pa.BinaryArray, reasons: list[str | None]) -> pa.StringArray:
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            pass
        texts: list[str | None] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                reasons[row] = f"not UTF-8 at byte {error.start}"
        return pa.array(texts, pa.string())

    def _read(self, text: str) -> list[str | None]:
        """The fields of a record, one character after the other where there are quotes."""
        for end in _ENDS:
            if text.endswith(end):
                text = text[: -len(end)]
                break
        fields: list[str | None] = []
        at = 0
        while True:
            field, at = self._quoted(text, at) if text.startswith(self._quote, at) else self._plain(text, at)
            fields.append(field)
            if at == len(text):
                break
            at += 1  # the delimiter
        if len(fields) != len(self._wanted):
            raise _NoCsv(f"{len(fields)} fields, and the schema has {len(self._wanted)} columns")
        return fields

    def _plain(self, text: str, at: int) -> tuple[str | None, int]:
        end = text.find(self._delimiter, at)
        end = len(text) if end < 0 else end
        field = text[at:end]
        if self._quote in field:
            raise _NoCsv(
                f"a quote inside a field that does not begin with one, at character {at + field.index(self._quote)}"
            )
        if "\n" in field or "\r" in field:
            raise _NoCsv("more than one line")
        return None if field == self._null else field, end

    def _quoted(self, text: str, at: int) -> tuple[str, int]:
        parts: list[str] = []
        at += 1
        while True:
            end = text.find(self._quote, at)
            if end < 0:
                raise _NoCsv("a quote is not closed")
            parts.append(text[at:end])
            at = end + 1
            if not text.startswith(self._quote, at):
                break
            parts.append(self._quote)  # written twice
            at += 1
        if at < len(text) and text[at] != self._delimiter:
            raise _NoCsv(f"text after a closed quote, at character {at}")
        return "".join(parts), at
