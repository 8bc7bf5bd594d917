"""The change of one side of a join by a range of its topic, in whole Arrow columns.

A side keeps the newest row of each key, or, if its topic names no key, every record. Each row knows its record by one
text: the key's, or partition and offset. What has to be equal is one text, too, so that equality means the same in
every engine, whatever types, collations and limits of index keys it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import FoldError
from foldlog.views.contract import DELETED, META, OFFSET, PARTITION, RECORD, Delta
from foldlog.views.join.spec import ON, SIDES, TIME, JoinSpec
from foldlog.views.sql.types import is_nested, kept_schema

if TYPE_CHECKING:
    import pyarrow as pa

LONG: Final = 200
"""A longer text is replaced by its digest: engines limit what an index holds."""


@dataclass(frozen=True, slots=True)
class SideShape:
    """A side's own columns, and the one by which a record's row is found again: the key's, RECORD, or None if every
    record stays.
    """

    columns: pa.Schema
    record_key: str | None

    @property
    def own(self) -> pa.Schema:
        """The columns without RECORD, which every side has."""
        import pyarrow as pa

        return pa.schema([field for field in self.columns if field.name != RECORD])

    def stored(self, spec: JoinSpec) -> pa.Schema:
        """The columns of the side's table."""
        import pyarrow as pa

        times = [(TIME, pa.int64()), (PARTITION, pa.int32()), (OFFSET, pa.int64())] if spec.time else []
        return pa.schema([(RECORD, pa.string()), (ON, pa.string()), *times, *self.own])


@dataclass(frozen=True, slots=True)
class SideChange:
    """The rows of all these `records` go, and `rows`, in the form of the side's table, come."""

    records: pa.Table
    rows: pa.Table


def side_change(delta: Delta, shape: SideShape, spec: JoinSpec, side: int, place: str) -> SideChange:
    """Later rows of a delta are newer. FoldError if a record gives two rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = delta.rows
    records = _records(rows, shape, place)
    rows = rows.drop_columns([RECORD]) if RECORD in rows.column_names else rows
    rows = rows.append_column(RECORD, records)
    rows = rows.filter(pc.invert(rows[DELETED])) if shape.record_key is None else _newest(rows, side, place)
    if shape.record_key is None and len(rows[RECORD].unique()) < rows.num_rows:
        raise _two_rows(side, place)
    live = rows.filter(pc.invert(rows[DELETED]))
    touched = pa.table({RECORD: rows[RECORD].combine_chunks()})
    return SideChange(touched, _stored(live, shape, spec, side))


def _records(rows: pa.Table, shape: SideShape, place: str) -> Any:
    """The text by which each row knows its record. Never empty, so that the empty text can mean none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if shape.record_key is None:
        numbers = (rows[PARTITION].cast(pa.string()), rows[OFFSET].cast(pa.string()))
        return pc.binary_join_element_wise(*numbers, "@")
    texts = _texts(rows[shape.record_key])
    if texts.null_count:
        raise FoldError(f"{place}: a row has no {shape.record_key!r}, by which its record is known; filter it out")
    if pc.any(pc.or_(pc.equal(texts, ""), pc.match_substring_regex(texts, r"^[\\#]")), min_count=0).as_py():
        escaped = pc.or_(pc.equal(texts, ""), pc.match_substring_regex(texts, r"^[\\#]"))
        texts = pc.if_else(escaped, pc.binary_join_element_wise("\\", texts, ""), texts)
    return _short(texts)


def _newest(rows: pa.Table, side: int, place: str) -> pa.Table:
    """One row for each record key: of its newest record, which may be a tombstone."""
    import pyarrow as pa

    codes = rows[RECORD].combine_chunks().dictionary_encode()
    if len(codes.dictionary) == rows.num_rows:
        return rows
    last: dict[int, int] = {}
    coordinates = list(zip(rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist(), strict=True))
    deleted = rows[DELETED].to_pylist()
    for number, code in enumerate(codes.indices.to_pylist()):
        before = last.get(code)
        if before is not None and coordinates[before] == coordinates[number]:
            if not deleted[before] and not deleted[number]:
                raise _two_rows(side, place)
            if deleted[number]:
                continue  # the fold made a row of the record, which counts
        last[code] = number
    return rows.take(pa.array(sorted(last.values()), pa.int64()))


def _two_rows(side: int, place: str) -> FoldError:
    return FoldError(
        f"{place}: a record gave two rows on the {SIDES[side]} side of the join, where it may give one; explode what"
        " the join gives when you query it"
    )


def _stored(rows: pa.Table, shape: SideShape, spec: JoinSpec, side: int) -> pa.Table:
    import pyarrow as pa

    given = kept_schema(pa.schema([one for one in rows.schema if one.name not in META]))
    columns = {}
    for field in shape.own:
        if field.name not in given.names:
            columns[field.name] = pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
        else:
            column = rows[field.name]
            columns[field.name] = column if is_nested(field.type) else column.cast(field.type)
    columns[RECORD] = rows[RECORD]
    columns[ON] = _on([columns[name] for name in spec.columns_of(side)], rows.num_rows)
    time = spec.time_of(side)
    if time is not None:
        columns |= {TIME: _time(columns[time]), PARTITION: rows[PARTITION], OFFSET: rows[OFFSET]}
    return pa.table({name: columns[name] for name in shape.stored(spec).names})


def _on(columns: list[Any], length: int) -> Any:
    """The values as one text; null if one of them is: null is not equal to anything."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts: list[Any] = []
    for column in columns:
        text = _texts(column)
        # With its length before it, so that ("a", "bc") and ("ab", "c") differ.
        parts += [pc.binary_length(text).cast(pa.string()), ":", text]
    if not parts:
        return pa.chunked_array([pa.repeat("", length)])
    return _short(pc.binary_join_element_wise(*parts, "") if len(parts) > 1 else parts[0])


def _time(column: Any) -> Any:
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    if types.is_integer(kind):
        return column.cast(pa.int64())
    zone = kind.tz if types.is_timestamp(kind) else None
    return column.cast(pa.timestamp("us", zone)).cast(pa.int64())


def _texts(column: Any) -> Any:
    """A text for each value, equal exactly for equal values of the type."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_binary(column.type) or types.is_large_binary(column.type):
        return pa.chunked_array(
            [pa.array([None if one is None else one.hex() for one in column.to_pylist()], pa.string())]
        )
    if types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return column.cast(pa.string())


def _short(texts: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.any(pc.greater(pc.binary_length(texts), LONG), min_count=0).as_py():
        return texts
    return pa.chunked_array([pa.array([_digest(one) for one in texts.to_pylist()], pa.string())])


def _digest(text: str | None) -> str | None:
    """Texts of records and of ON begin with a sign of their own, never with #, so that no digest equals one."""
    if text is None or len(text.encode()) <= LONG:
        return text
    return "#" + blake2b(text.encode(), digest_size=16).hexdigest()
