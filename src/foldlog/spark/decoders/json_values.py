"""JSON values to columns of a schema.

The fast path joins the values of a chunk with newlines and passes them to Arrow's reader, at about a million rows a
second and core. That reader returns all rows or none. Values that are not even in braces are left out beforehand. If it
still fails, a compiled screen finds the values that it would reject. Those few are read exactly, by `json_nodes`, which
also finds the reason, and all others by the fast path, in one go. Values that the screen overlooks, or all bad ones if
it was not compiled, are found by cutting the chunk into smaller and smaller ones. So bad records cost little, and the
result of a record never depends on its neighbours.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from foldlog.environment import PURE_PYTHON
from foldlog.errors import InvalidArgument, brief_repr
from foldlog.limits import JSON_CHUNK_BYTES, JSON_EXACT_ROWS
from foldlog.spark.decoders.json_nodes import (
    JSON_SPACE,
    Members,
    Misfit,
    TooDeep,
    as_json,
    is_braced,
    parse_document,
    struct_node,
)
from foldlog.spark.decoders.text_types import cast_text, in_utc, in_zone, sql_name, within_precision
from foldlog.views.growing import MORE

if TYPE_CHECKING:
    from foldlog.spark.decoders.json_screen import Description, Screen
elif PURE_PYTHON:
    Screen = None
else:
    try:
        from foldlog.spark.decoders.json_screen import Screen
    except ImportError:
        Screen = None

_CUTS: Final = 16
"""The number of pieces that a failing chunk is cut into."""

_NULL_DOCUMENT: Final = re.compile(rb"\}[ \t\r\n]*null")
"""Arrow's reader crashes on a null document. Values begin with {, so one could only follow an object."""

_UNBRACED_PART: Final = 64
"""If more than one in this many values has no braces, the screen looks at the chunk."""

_INSERTED_MAX: Final = 256
"""Up to this many rows are inserted by slicing the others; more by a take over all rows."""

_WARY_CHUNKS: Final = 16
"""After a bad record, this many chunks are screened before they are read: cheaper than a failed read."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Consecutive decoded rows."""

    columns: list[pa.Array]
    reasons: pa.StringArray | None

    def __len__(self) -> int:
        return len(self.columns[0])


NewColumns = Literal["ignore", "fail", "keep", "add"]
NEW_COLUMNS: Final = ("ignore", "fail", "keep", "add")


def check_new_columns(rule: object, schema: pa.Schema) -> None:
    """InvalidArgument if it is no rule."""
    if rule not in NEW_COLUMNS:
        raise InvalidArgument(f"on_new_column={brief_repr(rule)} is not one of {', '.join(NEW_COLUMNS)}")
    if rule in ("keep", "add") and MORE in schema.names:
        raise InvalidArgument(f"the schema has a column {MORE!r}, which on_new_column={rule!r} fills; rename it")


class JsonDecoder:
    """Each value is one JSON object; its declared fields become columns, others are skipped. See `Decoder`.

    A value that does not fit its type is a reason, never a silent null: text for a number, a number out of range or
    with more digits than the type holds, a duplicate field. A missing field is null, as is an explicit null; in a NOT
    NULL column both are a reason. docs/decoders.md has the table of types.
    """

    def __init__(self, schema: pa.Schema, *, timezone: str | None = None, on_new_column: NewColumns = "ignore") -> None:
        """`timezone` is that of timestamps without one, such as 'Asia/Kolkata'; UTC by default. `on_new_column` says
        what becomes of fields that the schema does not name: "ignore" skips them, "fail" makes the record a dead
        letter, "keep" adds the column `_more`, a map of them to their JSON. "add" does so, too, for a view that makes
        columns of it: see `foldlog.views.growing`.
        """
        check_new_columns(on_new_column, schema)
        schema = in_zone(schema, timezone)
        self._node = struct_node(schema)
        self._news = on_new_column
        if on_new_column in ("keep", "add"):
            schema = schema.append(pa.field(MORE, pa.map_(pa.string(), pa.string())))
        self._wanted = schema
        self._schema = pa.schema([in_utc(_nullable(field)) for field in schema])
        self._transport = pa.schema([pa.field(field.name, _transport(field.type)) for field in schema])
        self._has_map = on_new_column == "fail" or any(_contains_map(field.type) for field in schema)
        self._screen = None if self._has_map else _screen_of(schema)
        self._wary_chunks = 0

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.BinaryArray) -> tuple[list[pa.Array], pa.StringArray | None]:
        present = values.drop_null() if values.null_count else values
        whole = self._decode_present(present)
        columns, reasons = whole.columns, whole.reasons
        if values.null_count == 0:
            return columns, reasons
        rows = _rows_of_present(values)
        return [column.take(rows) for column in columns], None if reasons is None else reasons.take(rows)

    def _decode_present(self, values: pa.BinaryArray) -> _Piece:
        """Decode chunk by chunk on the fast path; rows left out on the way are read exactly at the end, all at once."""
        pieces: list[_Piece] = []
        left_out: list[pa.BooleanArray] = []
        for chunk in _chunks(values):
            if self._has_map:
                pieces.append(self._read_exactly(chunk))
                continue
            doubted = None if self._wary_chunks else _unbraced(chunk)
            quick = None if self._wary_chunks else self._read_quickly(_without(chunk, doubted), doubted is not None)
            if quick is None:
                doubted = self._doubted(chunk)
                self._wary_chunks = max(0, self._wary_chunks - 1) if doubted is None else _WARY_CHUNKS
                fine = _without(chunk, doubted)
                quick = None if self._screen is None else self._read_braced(fine)
                pieces.extend(self._search(fine) if quick is None else [quick])
            else:
                pieces.append(quick)
            left_out.append(_none_of(chunk) if doubted is None else doubted)
        if not any(pc.any(one, min_count=0).as_py() for one in left_out):
            return _joined(pieces, self._schema)
        doubted = pa.concat_arrays(left_out)
        exact = self._read_exactly(values.filter(doubted))
        return _interleaved(_joined(pieces, self._schema), exact, doubted)

    def _doubted(self, values: pa.BinaryArray) -> pa.BooleanArray | None:
        """The values that Arrow's reader would reject, as far as the screen finds them; None if it finds none."""
        if self._screen is None or not len(values):
            return None
        _, offsets, data = values.buffers()
        found = self._screen.doubts(
            memoryview(offsets).cast("B").cast("i")[values.offset : values.offset + len(values) + 1],
            None if data is None else memoryview(data).cast("B"),
        )
        if 1 not in found:
            return None
        return pa.Array.from_buffers(pa.uint8(), len(found), [None, pa.py_buffer(found)]).cast(pa.bool_())

    def _search(self, values: pa.BinaryArray) -> list[_Piece]:
        """Cut around values that Arrow's reader rejects, until few enough are left to read them exactly."""
        quick = self._read_quickly(values)
        if quick is not None:
            return [quick]
        if len(values) <= JSON_EXACT_ROWS:
            return [self._read_exactly(values)]
        step = -(-len(values) // _CUTS)
        return [piece for start in range(0, len(values), step) for piece in self._search(values.slice(start, step))]

    def _read_quickly(self, values: pa.BinaryArray, are_braced: bool = False) -> _Piece | None:
        """Read with Arrow's reader; None if it finds anything unusual.

        Each value begins with { and ends with }, and a raw newline inside a string is an error. So a value can neither
        end inside a string nor, followed by the next one's {, inside an object or an array: it holds whole documents,
        at least one, and as many rows as values means exactly one each.
        """
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:
            return None  # not UTF-8
        if not are_braced and not _are_braced(texts):
            texts = pc.utf8_trim(texts, characters=JSON_SPACE.decode())
            if not _are_braced(texts):
                return None
        buffer = _lines(texts)
        return None if _NULL_DOCUMENT.search(buffer) else self._read_lines(buffer, len(values))

    def _read_braced(self, values: pa.BinaryArray) -> _Piece | None:
        """Like `_read_quickly`, for values that the screen found to be one object each, with only space around it."""
        try:
            return self._read_lines(_lines(values.cast(pa.string())), len(values))
        except pa.ArrowInvalid:
            return None  # not UTF-8

    def _read_lines(self, buffer: pa.Buffer, rows: int) -> _Piece | None:
        try:
            table = pj.read_json(
                pa.BufferReader(buffer),
                pj.ReadOptions(use_threads=False, block_size=buffer.size + 1),
                pj.ParseOptions(
                    explicit_schema=self._transport, newlines_in_values=True, unexpected_field_behavior="ignore"
                ),
            )
            if table.num_rows != rows:
                return None
            columns = [_single(column) for column in table.columns]
            return _Piece([_finish(*pair) for pair in zip(columns, self._wanted, strict=True)], None)
        except (pa.ArrowInvalid, Misfit):
            return None

    def _read_exactly(self, values: pa.BinaryArray) -> _Piece:
        """Read one by one, with a reason for each value that does not fit."""
        rows: list[dict[str, object]] = []
        reasons: list[str | None] = []
        deep: list[int] = []
        for number, value in enumerate(values.to_pylist()):
            try:
                rows.append(self._read(parse_document(value)))
                reasons.append(None)
            except Misfit as misfit:
                rows.append({})
                reasons.append(str(misfit))
                if isinstance(misfit, TooDeep) and not self._has_map and is_braced(value):
                    deep.append(number)
        if not deep:
            return self._built(rows, reasons)
        # A value that Arrow's reader accepts among others has to be accepted alone.
        numbers, accepted = self._accepted(values.take(pa.array(deep, pa.int32())))
        followed = {deep[number] for number in numbers}
        kept = [number for number in range(len(rows)) if number not in followed]
        others = self._built([rows[number] for number in kept], [reasons[number] for number in kept])
        is_followed = pa.array([number in followed for number in range(len(rows))], pa.bool_())
        return _interleaved(others, _joined(accepted, self._schema), is_followed)

    def _read(self, document: Members) -> dict[str, object]:
        """One record; with what the schema does not name, as it was asked for."""
        found: dict[str, object] = self._node.read(document)
        if self._news != "ignore":
            news = [(name, item) for name, item in document if name not in self._node.fields]
            if news and self._news == "fail":
                raise Misfit("a new column, which the schema does not name", (news[0][0],))
            found[MORE] = [(name, as_json(item)) for name, item in sorted(dict(news).items())] or None
        return found

    def _accepted(self, values: pa.BinaryArray, first: int = 0) -> tuple[list[int], list[_Piece]]:
        """Which values Arrow's reader accepts, counted from `first`, and what they are."""
        quick = self._read_quickly(values)
        if quick is not None:
            return list(range(first, first + len(values))), [quick]
        numbers: list[int] = []
        pieces: list[_Piece] = []
        step = -(-len(values) // _CUTS)
        for start in range(0, len(values), step) if len(values) > 1 else ():
            some_numbers, some_pieces = self._accepted(values.slice(start, step), first + start)
            numbers += some_numbers
            pieces += some_pieces
        return numbers, pieces

    def _built(self, rows: list[dict[str, object]], reasons: list[str | None]) -> _Piece:
        is_fine = pa.array([reason is None for reason in reasons], pa.bool_())
        columns: list[pa.Array] = []
        for field, transport in zip(self._wanted, self._transport, strict=True):
            values = pa.array([row.get(field.name) for row in rows], transport.type)
            # Only of the good rows: a bad one has nulls even where the schema allows none.
            finished = _finish(values.filter(is_fine), field)
            columns.append(finished if len(finished) == len(rows) else finished.take(_positions(is_fine)))
        return _Piece(columns, pa.array(reasons, pa.string()) if any(reasons) else None)


def _screen_of(schema: pa.Schema) -> Screen | None:
    if Screen is None:
        return None
    return Screen(("STRUCT", "", False, 0, 0, tuple(_described(field) for field in schema)))


def _described(field: pa.Field) -> Description:
    """A field as the screen's description."""
    of = field.type
    size, scale = 0, 0
    children: tuple[Description, ...] = ()
    if pa.types.is_struct(of):
        kind, children = "STRUCT", tuple(_described(child) for child in of)
    elif pa.types.is_list(of):
        kind, children = "ARRAY", (_described(of.value_field),)
    elif pa.types.is_integer(of) or pa.types.is_floating(of):
        kind, size = "INTEGER" if pa.types.is_integer(of) else "FLOATING", of.bit_width
    elif pa.types.is_decimal128(of):
        kind, size, scale = "DECIMAL", of.precision, of.scale
    else:
        kind = {pa.binary(): "BASE64"}.get(of, sql_name(of))
    return kind, field.name, field.nullable, size, scale, children


def _transport(of: pa.DataType) -> pa.DataType:
    """The type to ask Arrow's reader for: text if it would parse a type differently."""
    if pa.types.is_struct(of):
        return pa.struct([pa.field(field.name, _transport(field.type)) for field in of])
    if pa.types.is_list(of):
        return pa.list_(pa.field(of.value_field.name, _transport(of.value_type)))
    if pa.types.is_map(of):
        return pa.map_(of.key_type, _transport(of.item_type))
    return pa.string() if pa.types.is_temporal(of) or pa.types.is_binary(of) else of


def _finish(array: pa.Array, wanted: pa.Field) -> pa.Array:
    """From the transport type to the wanted one. Misfit or ArrowInvalid if a value of Arrow's reader does not fit, or
    is null and must not be; those of the exact path fit.
    """
    if array.null_count and not wanted.nullable:
        raise Misfit("null or missing", (wanted.name,))
    of = wanted.type
    if pa.types.is_struct(of):
        children = [_finish_child(array, child, field) for child, field in zip(array.flatten(), of, strict=True)]
        fields = [in_utc(_nullable(field)) for field in of]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null() if array.null_count else None)
    if pa.types.is_list(of):
        values = _finish(array.flatten(), of.value_field)
        offsets = _offsets(array.value_lengths())
        return pa.ListArray.from_arrays(offsets, values, type=pa.list_(in_utc(_nullable(of.value_field))))
    if pa.types.is_map(of):
        return _finish_map(array, of)
    if pa.types.is_binary(of):
        return _from_base64(array, wanted.name)
    if pa.types.is_temporal(of):
        return cast_text(array, of)
    if pa.types.is_floating(of) and not pc.all(pc.is_finite(array), min_count=0).as_py():
        raise Misfit(f"out of range of a {sql_name(of)}", (wanted.name,))
    return within_precision(array) if pa.types.is_decimal128(of) else array


def _finish_child(parent: pa.StructArray, child: pa.Array, field: pa.Field) -> pa.Array:
    # A flattened child is also null where its parent is; those nulls do not count.
    if not field.nullable and child.null_count > parent.null_count:
        raise Misfit("null or missing", (field.name,))
    return _finish(child, field.with_nullable(True))


def _finish_map(array: pa.MapArray, of: pa.MapType) -> pa.Array:
    # Maps come from the exact path, which has just built them: keys and items have no gaps.
    items = _finish(array.items, of.item_field)
    offsets = array.offsets
    if array.null_count:
        is_map = pa.concat_arrays([array.is_valid(), pa.array([True])])
        offsets = pc.if_else(is_map, offsets, pa.scalar(None, pa.int32()))
    return pa.MapArray.from_arrays(
        offsets, array.keys, items, type=pa.map_(of.key_type, in_utc(_nullable(of.item_field)))
    )


def _offsets(lengths: pa.Array) -> pa.Int32Array:
    """The offsets of lists with these lengths; null where a list is."""
    ends = pc.cumulative_sum(pc.fill_null(lengths, 0).cast(pa.int32()))
    starts = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    if lengths.null_count == 0:
        return starts
    is_list = pa.concat_arrays([lengths.is_valid(), pa.array([True])])
    return pc.if_else(is_list, starts, pa.scalar(None, pa.int32()))


def _from_base64(texts: pa.StringArray, name: str) -> pa.BinaryArray:
    try:
        return pa.array(
            [None if text is None else base64.b64decode(text, validate=True) for text in texts.to_pylist()], pa.binary()
        )
    except (binascii.Error, ValueError):
        raise Misfit("not base64", (name,)) from None


def _nullable(field: pa.Field) -> pa.Field:
    """The field, and all fields inside it, nullable: the type of a column with unreadable rows."""
    of = field.type
    if pa.types.is_struct(of):
        of = pa.struct([_nullable(child) for child in of])
    elif pa.types.is_list(of):
        of = pa.list_(_nullable(of.value_field))
    elif pa.types.is_map(of):
        of = pa.map_(of.key_type, _nullable(of.item_field))
    return pa.field(field.name, of)


def _contains_map(of: pa.DataType) -> bool:
    if pa.types.is_map(of):
        return True
    return any(_contains_map(of.field(number).type) for number in range(of.num_fields))


def _chunks(values: pa.BinaryArray) -> list[pa.BinaryArray]:
    """Slices in order, each of about JSON_CHUNK_BYTES, so that the data stays in the cache through all steps."""
    total_bytes = pc.sum(pc.binary_length(values), min_count=0).as_py()
    rows = max(1, len(values) * JSON_CHUNK_BYTES // max(1, total_bytes))
    return [values.slice(start, rows) for start in range(0, len(values), rows)]


def _are_braced(texts: pa.StringArray) -> bool:
    return bool(pc.all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}")), min_count=0).as_py())


def _unbraced(values: pa.BinaryArray) -> pa.BooleanArray | None:
    """The values that certainly are no object, if all others are in braces; None if there are none, or too many."""
    braced = pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}"))
    count = len(values) - (pc.sum(braced).as_py() or 0)
    if not 0 < count <= max(1, len(values) // _UNBRACED_PART):
        return None
    odd = pc.invert(braced)
    return None if any(is_braced(value) for value in values.filter(odd).to_pylist()) else odd


def _without(values: pa.BinaryArray, doubted: pa.BooleanArray | None) -> pa.BinaryArray:
    return values if doubted is None else values.filter(pc.invert(doubted))


def _lines(texts: pa.StringArray) -> pa.Buffer:
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "\n")
    return joined[0].as_buffer()


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _joined(pieces: list[_Piece], schema: pa.Schema) -> _Piece:
    """The pieces concatenated; no rows of the schema if there are none."""
    if len(pieces) < 2:
        return pieces[0] if pieces else _Piece([pa.array([], field.type) for field in schema], None)
    columns = [pa.concat_arrays(parts) for parts in zip(*(piece.columns for piece in pieces), strict=True)]
    if all(piece.reasons is None for piece in pieces):
        return _Piece(columns, None)
    return _Piece(columns, pa.concat_arrays([_reasons_or_nulls(piece) for piece in pieces]))


def _interleaved(fine: _Piece, exact: _Piece, is_exact: pa.BooleanArray) -> _Piece:
    """The rows of both, each at its original index."""
    if len(exact) <= _INSERTED_MAX:
        indices = pc.indices_nonzero(is_exact).to_pylist()
        columns = [_inserted(one, other, indices) for one, other in zip(fine.columns, exact.columns, strict=True)]
        if fine.reasons is None and exact.reasons is None:
            return _Piece(columns, None)
        return _Piece(columns, _inserted(_reasons_or_nulls(fine), _reasons_or_nulls(exact), indices))
    order = pc.if_else(is_exact, pc.add(_positions(is_exact), len(fine)), _positions(pc.invert(is_exact)))
    both = _joined([fine, exact], pa.schema([]))
    columns = [column.take(order) for column in both.columns]
    return _Piece(columns, None if both.reasons is None else both.reasons.take(order))


def _inserted(fine: pa.Array, exact: pa.Array, indices: list[int]) -> pa.Array:
    """Both, with the n-th row of `exact` at the n-th of these indices."""
    parts: list[pa.Array] = []
    taken = 0
    for number, index in enumerate(indices):
        before = index - number  # the number of rows of `fine` before it
        if before > taken:
            parts.append(fine.slice(taken, before - taken))
            taken = before
        parts.append(exact.slice(number, 1))
    return pa.concat_arrays([*parts, fine.slice(taken)])


def _none_of(values: pa.Array) -> pa.BooleanArray:
    return pa.repeat(pa.scalar(False), len(values))


def _reasons_or_nulls(piece: _Piece) -> pa.StringArray:
    return pa.nulls(len(piece), pa.string()) if piece.reasons is None else piece.reasons


def _rows_of_present(values: pa.Array) -> pa.Int32Array:
    """For each row its index among the non-null ones; null for a null."""
    return _positions(values.is_valid())


def _positions(is_present: pa.BooleanArray) -> pa.Int32Array:
    numbers = pc.subtract(pc.cumulative_sum(is_present.cast(pa.int32())), pa.scalar(1, pa.int32()))
    return pc.if_else(is_present, numbers, pa.scalar(None, pa.int32()))
