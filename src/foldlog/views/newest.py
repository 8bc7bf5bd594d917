"""Which rows of a range a keyed view keeps: those of each key's newest record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from foldlog.errors import InvalidArgument
from foldlog.views.contract import DELETED, META, OFFSET, PARTITION

if TYPE_CHECKING:
    import pyarrow as pa


class Newest(NamedTuple):
    """The effect of a range: the rows of all these keys are deleted, and these rows are inserted."""

    keys: list[Any]
    rows: pa.Table


def newest(rows: pa.Table, record_key: str, key: tuple[str, ...]) -> Newest:
    """`rows` of a delta, later ones newer: for each record key only the last record, without tombstones and META.

    A record may give several rows; if several rows of one record have the same `key`, the last one counts.
    """
    import pyarrow as pa

    values = rows[record_key].to_pylist()
    last = dict(zip(values, range(len(values)), strict=True))
    if None in last:
        raise InvalidArgument(f"a row without {record_key!r} has no place in a view with keys; filter it out")
    deleted = rows[DELETED].to_pylist()
    if len(last) == len(values):
        kept = [number for number, is_deleted in enumerate(deleted) if not is_deleted]
    else:
        records = list(zip(rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist(), strict=True))
        kept = [
            number
            for number, value in enumerate(values)
            if not deleted[number] and records[number] == records[last[value]]
        ]
        kept = _last_of_each(rows, kept, (record_key, *key))
    content = rows.drop_columns([name for name in META if name in rows.column_names])
    if len(kept) < rows.num_rows:
        content = content.take(pa.array(kept, pa.int64()))
    return Newest(list(last), content)


def _last_of_each(rows: pa.Table, kept: list[int], key: tuple[str, ...]) -> list[int]:
    import pyarrow as pa

    numbers = pa.array(kept, pa.int64())
    columns = [rows[name].take(numbers).to_pylist() for name in key]
    last = dict(zip(zip(*columns, strict=True), kept, strict=True))
    return sorted(last.values())
