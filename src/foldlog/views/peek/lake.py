"""A peek into a lake table: its number of rows, and the last ones. Reads a few of its newest files."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import InvalidArgument, ViewUnavailable
from foldlog.limits import PEEK_MS
from foldlog.views.contract import OFFSET, PARTITION, TIMESTAMP
from foldlog.views.peek.peek import Page, Peek, checked_limit
from foldlog.views.peek.values import shown
from foldlog.views.table.shape import load_pyarrow

if TYPE_CHECKING:
    from foldlog.views.lake.delta import DeltaView
    from foldlog.views.lake.iceberg import IcebergHistory
    from foldlog.views.lake.parquet import ParquetHistory
    from foldlog.views.lake.schema import LakeFiles

FILES_MAX: Final = 20
"""How many of the newest files are read: a commit has one or a few."""

WHOLE_GROUP_ROWS_MAX: Final = 100_000
WHOLE_GROUP_BYTES_MAX: Final = 64 << 20
"""A row group up to this size is read whole, for its last rows; of a larger one only the first rows are read."""

SEARCHED_ROWS_MAX: Final = 20_000
"""Rows that are searched for a text."""

_TRIES: Final = 3
"""A rebuild may remove files between finding and reading them."""


class LakePeek(Peek):
    """See `Peek`. Only the last rows; query engines can read the others."""

    kind = "lake"

    def __init__(self, engine: str, path: str, mode: str) -> None:
        load_pyarrow()
        self._view = _view(engine, path, mode)

    def rows(self, limit: int = 50, after: str | None = None) -> Page:
        count = checked_limit(limit)
        if after is not None:
            raise InvalidArgument("of a lake table the last rows are shown; read it with an engine for others")
        return self._last(count, None)

    def search(self, text: str, limit: int = 50) -> Page:
        """Searches the rows of the newest files."""
        return self._last(checked_limit(limit), text.casefold())

    def _last(self, count: int, text: str | None) -> Page:
        missing: OSError | None = None
        for _ in range(_TRIES):
            files = self._view.newest_files(FILES_MAX)
            try:
                rows = _newest_rows(files, count, text)
            except FileNotFoundError as error:
                missing = error
                continue
            except OSError as error:
                raise ViewUnavailable(self._view.place, f"a file of it cannot be read ({error})") from error
            names = tuple(files.schema.names)
            shown_rows = [[shown(row.get(name)) for name in names] for row in rows]
            return Page(names, shown_rows, files.row_count if text is None else None)
        raise ViewUnavailable(self._view.place, "its files are being replaced just now; look again") from missing


def _view(engine: str, path: str, mode: str) -> DeltaView | IcebergHistory | ParquetHistory:
    if engine == "delta":
        from foldlog.views.lake.delta_modes import DeltaHistory, DeltaMirror

        return DeltaMirror(path) if mode == "merge" else DeltaHistory(path)
    if engine == "iceberg":
        from foldlog.views.lake.iceberg import IcebergHistory

        return IcebergHistory.at(path)
    from foldlog.views.lake.parquet import ParquetHistory

    return ParquetHistory(path)


def _newest_rows(files: LakeFiles, count: int, text: str | None) -> list[dict[str, Any]]:
    """Newest first, if the rows have timestamps. If reading takes too long, what was found so far."""
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + PEEK_MS / 1000
    left = count if text is None else SEARCHED_ROWS_MAX
    for number, path in enumerate(files.paths):
        if len(found) >= count or left <= 0 or time.monotonic() > deadline:
            break
        more = files.constants[number] if files.constants else {}
        rows = [{**row, **more} for row in _rows_of(path, left)]
        left -= len(rows)
        found += rows if text is None else [row for row in rows if _holds(row, text)]
    if TIMESTAMP in files.schema.names and OFFSET in files.schema.names:
        found.sort(key=lambda row: (row[TIMESTAMP], row[PARTITION], row[OFFSET]), reverse=True)
    return found[:count]


def _rows_of(path: str, count: int) -> list[dict[str, Any]]:
    """The last rows of a file, last one first; some of them if its last row group is large."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        groups = file.metadata.num_row_groups
        if not groups:
            return []
        last = groups - 1
        group = file.metadata.row_group(last)
        if group.num_rows <= WHOLE_GROUP_ROWS_MAX and group.total_byte_size <= WHOLE_GROUP_BYTES_MAX:
            table = file.read_row_group(last, use_threads=False)
            table = table.slice(max(0, table.num_rows - count))
            return list(reversed(table.to_pylist()))
        batch = next(file.iter_batches(batch_size=count, row_groups=[last]))
        return list(reversed(batch.to_pylist()))


def _holds(row: dict[str, Any], text: str) -> bool:
    return any(text in str(shown(value)).casefold() for value in row.values() if value is not None)
