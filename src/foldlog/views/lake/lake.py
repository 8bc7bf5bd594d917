"""Lake views: a fold's rows as an open table that every engine reads. Delta, Iceberg, or plain Parquet files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, get_args

from foldlog.durations import milliseconds
from foldlog.errors import InvalidArgument, brief_repr
from foldlog.files.paths import PathLike, as_text
from foldlog.views.contract import Pace, View
from foldlog.views.lake.partitions import partition_columns
from foldlog.views.lake.storage import StorageOptions, checked_url, is_url
from foldlog.views.local_paths import local_path
from foldlog.views.table.table import key_columns

Format = Literal["delta", "iceberg", "parquet"]
Mode = Literal["append", "merge"]

COMMIT_BYTES: Final = 64 << 20
"""A range of the runner's: more of a backlog at once would not make a larger commit."""


def lake(
    path: str | PathLike[str],
    format: Format = "delta",  # noqa: A002 Spark's word
    mode: Mode = "append",
    key: str | Sequence[str] | None = None,
    *,
    partition_by: str | Sequence[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    catalog: str | Mapping[str, str] | None = None,
    commit_every: str | None = None,
    commit_bytes: int = COMMIT_BYTES,
) -> View:
    """A view at `path`, a directory on a local or shared file system, or a URL such as "s3://bucket/payments". Touches
    nothing yet.

    `append` keeps every row, with `_partition`, `_offset`, `_timestamp` and `_deleted`: the topic as a table. `merge`
    keeps the newest row of each key, and a tombstone deletes; only Delta supports that efficiently.

    `key` is for `merge`: the columns that make a row unique; by default the column of the record's key. With more
    columns, one record may give several rows, and a newer record of the same key replaces them all.

    `partition_by` names columns by whose values the files are split. `storage_options` are settings of the object
    store, as deltalake names them. `catalog` is for Iceberg: a name in pyiceberg's configuration, or the catalog's
    settings; then `path` is the table's name there, such as "shop.payments". docs/lakes.md shows each.

    `commit_every`, such as "10s", is the least time between two commits while the log is followed; `commit_bytes` of
    records are committed at once all the same. Each commit is at least one file.

    >>> lake("views/payments").place.startswith("delta:/")
    True
    """
    if format not in get_args(Format):
        raise InvalidArgument(f"a lake's format is one of {', '.join(get_args(Format))}, not {brief_repr(format)}")
    if mode not in get_args(Mode):
        raise InvalidArgument(f"a lake's mode is one of {', '.join(get_args(Mode))}, not {brief_repr(mode)}")
    location: object = as_text(path)
    if not isinstance(location, str) or not location:
        raise InvalidArgument(f"a lake is a directory, such as 'views/payments', not {brief_repr(location)}")
    if is_url(location):
        checked_url(location)
    if key is not None and mode == "append":
        raise InvalidArgument("a lake that appends has no key=: every row is kept; use mode='merge'")
    options, columns = StorageOptions(storage_options), partition_columns(partition_by)
    pace = _pace(commit_every, commit_bytes)
    if catalog is not None and format != "iceberg":
        raise InvalidArgument(f"a lake of format {format!r} has no catalog=; only Iceberg's tables are in one")
    if options and (catalog is not None or not is_url(location)):
        where = "catalog=, beside its own" if format == "iceberg" else "a table in an object store, 's3://...'"
        raise InvalidArgument(f"storage_options= are for {where}")
    if format != "delta" and mode == "merge":
        why = "upserts through pyiceberg are very slow" if format == "iceberg" else "Parquet files cannot be changed"
        raise InvalidArgument(f"a lake of format {format!r} only appends ({why}); use format='delta' to merge")
    if format == "delta":
        made = _delta(location, mode, key, options, columns)
    else:
        made = _iceberg(location, catalog, columns) if format == "iceberg" else _parquet(location, options, columns)
    made.pace = pace
    return made


def _pace(every: object, size_bytes: object) -> Pace | None:
    if isinstance(size_bytes, bool) or not isinstance(size_bytes, int) or size_bytes < 1:
        raise InvalidArgument(f"commit_bytes={brief_repr(size_bytes)} is not a number of bytes, such as {COMMIT_BYTES}")
    if every is None:
        return None
    every_ms = milliseconds(every) if isinstance(every, str) else None
    if every_ms is None or every_ms < 1:
        raise InvalidArgument(f"commit_every={brief_repr(every)} is not a time such as '10s' or '5m'")
    return Pace(every_ms, size_bytes)


def _delta(
    location: str,
    mode: Mode,
    key: str | Sequence[str] | None,
    options: StorageOptions,
    partition_by: tuple[str, ...],
) -> View:
    from foldlog.views.lake.delta_modes import DeltaHistory, DeltaMirror

    if mode == "append":
        return DeltaHistory(location, options, partition_by)
    return DeltaMirror(location, options, partition_by, key_columns(key))


def _iceberg(location: str, catalog: str | Mapping[str, str] | None, partition_by: tuple[str, ...]) -> View:
    from foldlog.views.lake.iceberg import IcebergHistory
    from foldlog.views.lake.iceberg_catalogs import given_catalog

    if catalog is not None:
        return IcebergHistory(*given_catalog(catalog, location), None, partition_by)
    if is_url(location):
        raise InvalidArgument(
            "an Iceberg table in an object store needs a catalog that names its newest state:"
            " lake('shop.payments', 'iceberg', catalog={'type': 'rest', 'uri': '...'})"
        )
    return IcebergHistory.at(local_path(location), partition_by)


def _parquet(location: str, options: StorageOptions, partition_by: tuple[str, ...]) -> View:
    if is_url(location):
        from foldlog.views.lake.parquet_objects import ParquetObjects

        return ParquetObjects(checked_url(location), options, partition_by)
    from foldlog.views.lake.parquet import ParquetHistory

    return ParquetHistory(location, partition_by=partition_by)
