"""A DuckDB file for views.

Only one process at a time can have the file open, so it is opened for each transaction and closed after it: between two
ranges a person may open it and look. A process that finds it open waits a while, and then reports which process holds
it.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from foldlog.errors import MissingDependency, ViewUnavailable
from foldlog.files.paths import exists, make_parents
from foldlog.views.sql.bookmarks import Run

if TYPE_CHECKING:
    import pyarrow as pa

_POLL_S: Final = 0.02
_HOLDER: Final = re.compile(r"PID (\d+)")

_writers: dict[str, threading.Lock] = {}
"""A lock for each file, for the threads of this process: DuckDB itself would let them in all at once."""


class DuckdbDatabase:
    """Holds nothing open between transactions. `location` is for messages."""

    def __init__(self, path: str, location: str, *, wait_ms: int) -> None:
        self._path = path
        self._location = location
        self._wait_ms = wait_ms

    def exists(self) -> bool:
        """Whether the file exists."""
        return exists(self._path)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other thread of this process writes meanwhile."""
        with _writers.setdefault(self._path, threading.Lock()):
            yield

    @contextmanager
    def transaction(self, *, too_large: str | None = None) -> Iterator[Any]:
        """A connection in a transaction, which is committed at the end. `too_large` tells of numbers out of range."""
        duckdb = load_duckdb()
        try:
            connection = self._connected(duckdb)
            try:
                connection.execute("BEGIN TRANSACTION")
                yield connection
                connection.execute("COMMIT")
            finally:
                # Closing rolls back an uncommitted transaction; closing the last connection writes the WAL to the file.
                connection.close()
        except (duckdb.OutOfRangeException, duckdb.ConversionException) as error:
            raise ViewUnavailable(self._location, too_large or f"DuckDB says: {_one_line(error)}") from error
        except duckdb.Error as error:
            raise ViewUnavailable(self._location, f"DuckDB says: {_one_line(error)}") from error

    def _connected(self, duckdb: Any) -> Any:
        make_parents(self._path)
        deadline = time.monotonic() + self._wait_ms / 1000
        while True:
            try:
                return duckdb.connect(self._path)
            except duckdb.IOException as error:
                if "lock" not in str(error):
                    raise
                if time.monotonic() > deadline:
                    raise ViewUnavailable(self._location, _who_holds_it(str(error))) from error
                time.sleep(_POLL_S)


def batches_of(connection: Any, statement: str, rows: int) -> Iterator[pa.RecordBatch]:
    """The result of a query, in batches."""
    found = connection.sql(statement)
    # DuckDB 1 has only the other name.
    reader = getattr(found, "to_arrow_reader", None) or found.fetch_record_batch
    yield from reader(rows)


def load_duckdb() -> Any:
    """The driver, or MissingDependency."""
    try:
        import duckdb
    except ImportError as error:
        raise MissingDependency("a view in DuckDB", "duckdb", "views") from error
    return duckdb


def runner(connection: Any) -> Run:
    """Executes statements on the connection."""

    def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = connection.execute(statement, list(values)).fetchall()
        return rows

    return run


def without_zones(rows: pa.Table) -> pa.Table:
    """Timestamps in UTC without a zone: to show a type with a zone, DuckDB needs an extension."""
    import pyarrow as pa
    from pyarrow import types

    for number, field in enumerate(rows.schema):
        if types.is_timestamp(field.type):
            column = rows.column(number).cast(pa.timestamp("us", field.type.tz and "UTC")).cast(pa.timestamp("us"))
            rows = rows.set_column(number, field.name, column)
    return rows


def duckdb_type(kind: Any) -> str:
    """DuckDB's name of the type; nested ones are JSON, as text."""
    from pyarrow import types

    if types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    names = (
        (types.is_boolean, "BOOLEAN"),
        (types.is_int64, "BIGINT"),
        (types.is_int32, "INTEGER"),
        (types.is_int16, "SMALLINT"),
        (types.is_integer, "TINYINT"),
        (types.is_float64, "DOUBLE"),
        (types.is_floating, "FLOAT"),
        (types.is_date, "DATE"),
        (types.is_timestamp, "TIMESTAMP"),
        (types.is_binary, "BLOB"),
    )
    return next((name for test, name in names if test(kind)), "VARCHAR")


def _who_holds_it(sentence: str) -> str:
    holder = _HOLDER.search(sentence)
    who = f"process {holder[1]}" if holder is not None else "another process"
    return f"{who} has the file open, and DuckDB lets one process at a time; close it there"


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
