"""The change of a table by a range of the log: only the newest record of each record key, in whole Arrow columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foldlog.errors import FoldError, SchemaChanged, brief_repr
from foldlog.views.contract import DELETED, META, OFFSET, PARTITION, RECORD, Delta
from foldlog.views.sql.types import is_nested, kept_schema
from foldlog.views.table.shape import TableShape
from foldlog.views.topic_lists import where_at

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Change:
    """`rows` (the table's columns, unique by its key) replace the table's rows with the same keys.

    `tombstones` are the record keys to delete. If a record may have several rows, `replaced` are the record keys whose
    rows are deleted first; otherwise it is empty. `gone` are rows to delete by their own keys: the columns of the key,
    and the record key.
    """

    rows: pa.Table
    tombstones: pa.ChunkedArray | None
    replaced: pa.ChunkedArray | None
    gone: pa.Table | None = None

    @property
    def is_empty(self) -> bool:
        return self.rows.num_rows == 0 and self.tombstones is None and self.gone is None


def decide_change(delta: Delta, shape: TableShape, location: str) -> Change:
    """Later rows of a delta are newer. If a record has a tombstone and a row, the row counts, for the fold made it.

    FoldError if a row has no key, or two rows of one record have the same.
    """
    if shape.appends:
        return Change(conformed(delta.rows, shape, location), None, None)
    if shape.keeps_rows:
        return _change_of_rows(delta.rows, shape, location)
    has_tombstones = _any(delta.rows[DELETED])
    if has_tombstones and shape.record_key is None:
        first = _position_of_first(delta.rows[DELETED])
        raise FoldError(
            f"{location} cannot tell what the tombstone at {where_at(delta.rows, first)} deletes: the topic names no"
            " key column; name it, as in fl.topic(..., key='id'), or filter out what is _deleted in the fold"
        )
    rows, are_single = _newest_records(delta.rows, shape, location)
    tombstones = None
    if has_tombstones and shape.record_key is not None:
        rows, tombstones = _without_tombstones(rows, shape.record_key)
    if shape.replaces_records or not are_single:
        _check_unique(rows, shape, location)
    replaced = rows[shape.record_columns[0]].unique() if shape.replaces_records and rows.num_rows else None
    return Change(conformed(rows, shape, location), tombstones, None if replaced is None else _chunked(replaced))


def _newest_records(rows: pa.Table, shape: TableShape, location: str) -> tuple[pa.Table, bool]:
    """All rows, tombstones included, of the newest record of each record key; and whether that is one row each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in shape.record_columns:
        _check_not_null(rows, name, location)
    codes = _codes([rows[name] for name in shape.record_columns], rows.num_rows)
    numbers = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))
    grouped = pa.table({"code": codes, "number": numbers}).group_by("code", use_threads=False)
    # Codes and groups both come in order of first appearance: the n-th maximum is the newest row of code n.
    last = grouped.aggregate([("number", "max")])["number_max"]
    if len(last) == rows.num_rows:
        return rows, True
    newest = pc.subtract(last.combine_chunks(), pa.scalar(1, pa.int64())).take(codes)
    is_newest = pc.and_(
        pc.equal(rows[OFFSET], rows[OFFSET].take(newest)), pc.equal(rows[PARTITION], rows[PARTITION].take(newest))
    )
    kept = rows.filter(is_newest)
    return kept, kept.num_rows == len(last)


def _without_tombstones(rows: pa.Table, record_key: str) -> tuple[pa.Table, pa.ChunkedArray | None]:
    """Live rows, and the keys of records without any."""
    import pyarrow.compute as pc

    live = rows.filter(pc.invert(rows[DELETED]))
    keys = rows.filter(rows[DELETED])[record_key].unique()
    if live.num_rows:
        keys = keys.filter(pc.invert(pc.is_in(keys, value_set=live[record_key].combine_chunks())))
    return live, _chunked(keys) if len(keys) else None


def _change_of_rows(rows: pa.Table, shape: TableShape, location: str) -> Change:
    """The change of a table whose rows have keys of their own: see `View.keeps_rows`.

    A row whose record is withdrawn later in the range counts for nothing. Of the others, all with one key have to be of
    one record key: only its records have an order. The last of them counts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    record_key = shape.record_columns[0]
    _check_not_null(rows, record_key, location)
    numbers = pa.array(range(rows.num_rows), pa.int64())
    has_no_key = pc.and_(rows[DELETED], pc.is_null(rows[shape.key[0]])).combine_chunks()
    withdrawn = rows[record_key].filter(has_no_key)
    if len(withdrawn):
        records = rows[record_key].combine_chunks()
        last = pa.table({"record": withdrawn, "number": numbers.filter(has_no_key)})
        last = last.group_by("record", use_threads=False).aggregate([("number", "max")])
        latest = (
            last["number_max"].combine_chunks().take(pc.index_in(records, value_set=last["record"].combine_chunks()))
        )
        rows = rows.filter(pc.greater(numbers, pc.fill_null(latest, -1)))
    newest, gone = _newest_rows(rows, shape, location)
    tombstones = withdrawn.unique() if len(withdrawn) else None
    return Change(
        conformed(newest, shape, location),
        None if tombstones is None else _chunked(tombstones),
        None,
        gone if gone.num_rows else None,
    )


def _newest_rows(rows: pa.Table, shape: TableShape, location: str) -> tuple[pa.Table, pa.Table]:
    """The newest row of each key; and the keys, with their record key, of those that are deleted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in shape.key:
        _check_not_null(rows, name, location)
    codes = _codes([rows[name] for name in shape.key], rows.num_rows)
    record_key = shape.record_columns[0]
    of_rows = pa.table(
        {
            "code": codes,
            "number": pa.array(range(rows.num_rows), pa.int64()),
            "owner": _codes([rows[record_key]], rows.num_rows),
            "place": _codes([rows[PARTITION], rows[OFFSET]], rows.num_rows),
        }
    )
    grouped = of_rows.group_by("code", use_threads=False)
    found = grouped.aggregate(
        [("number", "max"), ("number", "count"), ("owner", "min"), ("owner", "max"), ("place", "count_distinct")]
    )
    twice = found.filter(pc.not_equal(found["owner_min"], found["owner_max"]))
    if twice.num_rows:
        first, *_, last = pc.indices_nonzero(pc.equal(codes, twice["code"][0])).to_pylist()
        raise written_by_two(
            location, f"{_key_text(rows, shape, last)}, at {where_at(rows, first)} and at {where_at(rows, last)}"
        )
    twice = found.filter(pc.less(found["place_count_distinct"], found["number_count"]))
    if twice.num_rows:
        last = twice["number_max"][0].as_py()
        raise FoldError(
            f"{location} cannot hold two rows with the same key ({_key_text(rows, shape, last)}) of one record, at"
            f" {where_at(rows, last)}; name more columns that tell them apart, as in fl.table(..., key=['id', 'line'])"
        )
    kept = rows.take(found["number_max"].combine_chunks())
    names = list(dict.fromkeys((*shape.key, record_key)))
    return kept.filter(pc.invert(kept[DELETED])), kept.filter(kept[DELETED]).select(names)


def _key_text(rows: pa.Table, shape: TableShape, number: int) -> str:
    return ", ".join(f"{name}={brief_repr(rows[name][number].as_py())}" for name in shape.key)


def written_by_two(location: str, which: str) -> FoldError:
    """The error for a row that records of two keys, or of two partitions without keys, have written."""
    return FoldError(
        f"{location} cannot hold one row of two record keys ({which}): there is no order between them, so nobody can"
        " tell which is newer; write all records of a row with the same record key, or add the record's key to the"
        " table's: fl.table(..., key=[...], replaces='row')"
    )


def _check_unique(rows: pa.Table, shape: TableShape, location: str) -> None:
    import pyarrow.compute as pc

    for name in shape.key:
        _check_not_null(rows, name, location)
    codes = _codes([rows[name] for name in shape.key], rows.num_rows)
    if rows.num_rows == 0 or pc.max(codes).as_py() == rows.num_rows - 1:
        return
    seen: set[int] = set()
    for number, code in enumerate(codes.to_pylist()):
        if code in seen:
            key = _key_text(rows, shape, number)
            twin = codes.to_pylist().index(code)
            if shape.record_key == RECORD and rows[RECORD][number] != rows[RECORD][twin]:
                raise written_twice(location, f"{key}, at {where_at(rows, twin)} and at {where_at(rows, number)}")
            raise FoldError(
                f"{location} cannot hold two rows with the same key ({key}) of one record, at {where_at(rows, number)};"
                " name more columns that tell them apart, as in fl.table(..., key=['id', 'line'])"
            )
        seen.add(code)


def written_twice(location: str, which: str) -> FoldError:
    """The error for two records with rows of the same key: which one wins would depend on the order of partitions."""
    return FoldError(
        f"{location} cannot hold rows of two records under the same key ({which}): the fold made one key of several,"
        " or reads several topics that have it; let it write keys that differ, or name more columns that tell the rows"
        " apart, as in fl.table(..., key=['id', 'line']), such as one made of _topic"
    )


def _check_not_null(rows: pa.Table, name: str, location: str) -> None:
    column = rows[name]
    if column.null_count:
        first = _position_of_first(column.is_null())
        raise FoldError(
            f"{location} has no place for the row at {where_at(rows, first)}: its key column {name!r} is null;"
            " filter out such rows in the fold, or name another key"
        )


def conformed(rows: pa.Table, shape: TableShape, location: str) -> pa.Table:
    """The table's columns in their order and types; a column that the rows lack is null."""
    import pyarrow as pa

    fields = [field for field in rows.schema if field.name not in META or field.name in shape.columns.names]
    unknown = [field.name for field in fields if field.name not in shape.columns.names]
    if unknown:
        raise SchemaChanged(location, f"it has no column {unknown[0]!r}, which the fold's rows have")
    given = kept_schema(pa.schema(fields))
    columns = []
    for field in shape.columns:
        position = given.get_field_index(field.name)
        if position < 0:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, field.type)]))
        elif given.field(position).type != field.type:
            found = given.field(position).type
            raise SchemaChanged(location, f"its column {field.name!r} is {field.type}, and the fold's is {found}")
        else:
            # Nested values are written as JSON by their own type, which may name its parts differently.
            column = rows[field.name]
            columns.append(column if is_nested(field.type) else column.cast(field.type))
    return pa.table(columns, names=shape.columns.names)


def _codes(columns: list[Any], length: int) -> Any:
    """A code for each row, equal for rows that agree in all columns, assigned by first appearance."""
    import pyarrow as pa
    import pyarrow.compute as pc

    codes: Any = None
    for column in columns:
        encoded = column.combine_chunks().dictionary_encode()
        numbers = encoded.indices.cast(pa.int64())
        if codes is not None:
            numbers = pc.add(pc.multiply(codes, pa.scalar(len(encoded.dictionary), pa.int64())), numbers)
            numbers = numbers.dictionary_encode().indices.cast(pa.int64())
        codes = numbers
    return codes if codes is not None else pa.nulls(length, pa.int64())


def _chunked(array: Any) -> Any:
    import pyarrow as pa

    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def _any(flags: Any) -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(flags).as_py())


def _position_of_first(flags: Any) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    position: int = pc.index(flags, pa.scalar(True)).as_py()
    return position


def where_first(delta: Delta, name: str, matches: Callable[[Any], Any]) -> str:
    """The coordinates of the first row for whose column `matches` is true, for a message."""
    return where_at(delta.rows, _position_of_first(matches(delta.rows[name])))
