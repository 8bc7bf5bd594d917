"""Lake tables that are partitioned by columns: a file has the rows of one value of each, so that a query for some
values reads some files.

A value is a text in the table's log, so only columns with one text for each value can be used: texts, whole numbers,
dates and booleans. For times, add a column with their date in the fold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from foldlog.errors import InvalidArgument, SchemaChanged, brief_repr
from foldlog.limits import LAKE_PARTITIONS_MAX
from foldlog.views.contract import META, OFFSET, PARTITION
from foldlog.views.staging import UnheldRows

if TYPE_CHECKING:
    import pyarrow as pa

_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""The directory of rows without a value, by Hive's convention."""

PartitionValues = tuple[str | None, ...]
"""What the rows of a file have in the partition columns, as texts."""


def partition_columns(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """
    >>> partition_columns("day"), partition_columns(["country", "day"]), partition_columns(None)
    (('day',), ('country', 'day'), ())
    """
    if given is not None and not isinstance(given, str | list | tuple):
        raise InvalidArgument(
            f"partition_by names columns, such as 'day' or ['country', 'day'], not {brief_repr(given)}"
        )
    names: tuple[Any, ...] = () if given is None else (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"partition_by names columns, such as 'day', not {brief_repr(name)}")
        if name in META:
            raise InvalidArgument(
                f"partition_by={name!r} is not a column of the fold's; derive one of it, such as its date"
            )
    if len(set(names)) < len(names):
        raise InvalidArgument(f"partition_by names a column twice: {', '.join(names)}")
    return names


def check_partition_columns(columns: pa.Schema, names: Sequence[str], place: str) -> None:
    """InvalidArgument if the fold's rows cannot be partitioned so."""
    from pyarrow import types

    for name in names:
        number = columns.get_field_index(name)
        if number < 0:
            raise InvalidArgument(f"{place} is partitioned by {name!r}, and the fold gives no such column")
        kind = columns.field(number).type
        fits = (types.is_string, types.is_large_string, types.is_integer, types.is_date32, types.is_boolean)
        if not any(test(kind) for test in fits):
            raise InvalidArgument(
                f"{place} cannot be partitioned by {name!r}, which is {kind}: a text, a whole number, a date or a"
                " boolean can be; add such a column in the fold, as to_date() makes one of a time"
            )
    if names and set(names) >= set(columns.names):
        raise InvalidArgument(f"{place} is partitioned by all of its columns, so its files would have none")


def check_same_partitions(stored: Sequence[str], wanted: Sequence[str], place: str) -> None:
    """SchemaChanged if an existing table is partitioned in another way."""
    if tuple(stored) != tuple(wanted):
        here, there = (", ".join(names) or "nothing" for names in (wanted, stored))
        raise SchemaChanged(place, f"it is partitioned by {there} and not by {here}")


def check_partition_values(rows: pa.Table, names: Sequence[str], place: str, *, holds_empty: bool) -> None:
    """InvalidArgument if the rows of one range have a value that a partition cannot have, or too many."""
    if not names or not rows.num_rows:
        return
    import pyarrow.compute as pc

    for name in names:
        column = rows[name]
        if holds_empty or str(column.type) not in ("string", "large_string"):
            continue
        for text, told in (("", "an empty text"), (_HIVE_NULL, f"the text {_HIVE_NULL!r}")):
            if pc.any(pc.equal(column, text)).as_py():
                raise InvalidArgument(
                    f"column {name!r}, by which {place} is partitioned, has {told}, which would be read as null;"
                    " give it another value in the fold"
                )
    count = rows.select(list(names)).group_by(list(names)).aggregate([]).num_rows
    if count > LAKE_PARTITIONS_MAX:
        raise InvalidArgument(
            f"one range has {count} values of {', '.join(names)}, by which {place} is partitioned: as many files, when"
            f" {LAKE_PARTITIONS_MAX} are the most; choose a column with fewer values, such as a date"
        )


def has_unheld_text(values: PartitionValues) -> bool:
    """Whether one of the values would be read as null where a file's path, or Delta's log, is all that tells them."""
    return "" in values or _HIVE_NULL in values


def split_rows(rows: pa.Table, names: Sequence[str], place: str) -> Iterator[tuple[PartitionValues, pa.Table]]:
    """The rows of each value of these columns; within it in offset order. UnheldRows if there are too many."""
    if not names or not rows.num_rows:
        if rows.num_rows:
            yield (), rows
        return
    groups = rows.select(list(names)).group_by(list(names)).aggregate([]).to_pylist()
    if len(groups) == 1:
        yield _texts(groups[0], names), rows
        return
    if len(groups) > LAKE_PARTITIONS_MAX:
        raise UnheldRows(f"a task has {len(groups)} values of {', '.join(names)}, by which {place} is partitioned")
    order = [(name, "ascending") for name in names]
    order += [(name, "ascending") for name in (PARTITION, OFFSET) if name in rows.column_names and name not in names]
    ordered = rows.sort_by(order)
    yield from _runs(ordered, names)


def _runs(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[PartitionValues, pa.Table]]:
    """Sorted rows, cut where a value changes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    changes: Any = pa.repeat(pa.scalar(False), rows.num_rows - 1)
    for name in names:
        column = rows[name].combine_chunks()
        before, here = column.slice(0, len(column) - 1), column.slice(1)
        same = pc.or_(pc.fill_null(pc.equal(before, here), False), pc.and_(pc.is_null(before), pc.is_null(here)))
        changes = pc.or_(changes, pc.invert(same))
    starts = [0, *(one + 1 for one in pc.indices_nonzero(changes).to_pylist())]
    for start, stop in zip(starts, [*starts[1:], rows.num_rows], strict=True):
        part = rows.slice(start, stop - start)
        yield _texts(part.slice(0, 1).select(list(names)).to_pylist()[0], names), part


def _texts(row: dict[str, Any], names: Sequence[str]) -> PartitionValues:
    return tuple(partition_text(row[name]) for name in names)


def hive_directory(names: Sequence[str], values: PartitionValues) -> str:
    """The directories of these values below a table's, as Hive and Spark name them; with a slash at the end.

    >>> hive_directory(["country", "day"], ("A/B", None)), hive_directory([], ())
    ('country=A%2FB/day=__HIVE_DEFAULT_PARTITION__/', '')
    """
    texts = (_HIVE_NULL if value is None else quote(value, safe=" ") for value in values)
    return "".join(f"{quote(name, safe=' ')}={text}/" for name, text in zip(names, texts, strict=True))


def hive_values(path: str) -> dict[str, str | None]:
    """The values that such a path tells, as texts.

    >>> hive_values("country=A%2FB/day=__HIVE_DEFAULT_PARTITION__/p00000.parquet")
    {'country': 'A/B', 'day': None}
    """
    parts = [one.partition("=") for one in path.split("/")[:-1]]
    return {unquote(name): None if text == _HIVE_NULL else unquote(text) for name, _, text in parts}


def hive_partitioning(columns: pa.Schema, names: Sequence[str]) -> Any:
    """For Arrow to read these columns from such paths; None for no columns."""
    if not names:
        return None
    import pyarrow as pa
    import pyarrow.dataset as ds

    return ds.HivePartitioning(pa.schema([columns.field(name) for name in names]), null_fallback=_HIVE_NULL)


def partition_text(value: Any) -> str | None:
    """A value as a table's log has it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
