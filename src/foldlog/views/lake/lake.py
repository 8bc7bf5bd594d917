"""Lake views: a fold's rows as an open table that every engine reads. Delta, Iceberg, or plain Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.files.paths import PathLike, as_text
from foldlog.views.contract import View
from foldlog.views.table.table import key_columns

Format = Literal["delta", "iceberg", "parquet"]
Mode = Literal["append", "merge"]


def lake(
    path: str | PathLike[str],
    format: Format = "delta",  # noqa: A002 Spark's word
    mode: Mode = "append",
    key: str | Sequence[str] | None = None,
) -> View:
    """A view at `path`, a directory on a local or shared file system. Touches nothing yet.

    `append` keeps every row, with `_partition`, `_offset`, `_timestamp` and `_deleted`: the topic as a table. `merge`
    keeps the newest row of each key, and a tombstone deletes; only Delta supports that efficiently.

    `key` is for `merge`: the columns that make a row unique; by default the column of the record's key. With more
    columns, one record may give several rows, and a newer record of the same key replaces them all.

    >>> lake("views/payments").place.startswith("delta:/")
    True
    """
    if format not in get_args(Format):
        raise InvalidArgument(f"a lake's format is one of {', '.join(get_args(Format))}, not {brief_repr(format)}")
    if mode not in get_args(Mode):
        raise InvalidArgument(f"a lake's mode is one of {', '.join(get_args(Mode))}, not {brief_repr(mode)}")
    location: object = as_text(path)
    if not isinstance(location, str) or not location or "://" in location:
        raise InvalidArgument(f"a lake is a directory, such as 'views/payments', not {brief_repr(location)}")
    if key is not None and mode == "append":
        raise InvalidArgument("a lake that appends has no key=: every row is kept; use mode='merge'")
    if format == "delta":
        from foldlog.views.lake.delta_modes import DeltaHistory, DeltaMirror

        return DeltaHistory(location) if mode == "append" else DeltaMirror(location, key_columns(key))
    if mode == "merge":
        why = "upserts through pyiceberg are very slow" if format == "iceberg" else "Parquet files cannot be changed"
        raise InvalidArgument(f"a lake of format {format!r} only appends ({why}); use format='delta' to merge")
    if format == "iceberg":
        from foldlog.views.lake.iceberg import IcebergHistory

        return IcebergHistory(location)
    from foldlog.views.lake.parquet import ParquetHistory

    return ParquetHistory(location)
