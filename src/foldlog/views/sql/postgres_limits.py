"""Values that a PostgreSQL database cannot hold, found by asking it: characters that its encoding lacks, and keys that
are too long for an index. Both depend on the value only, so every split of the log sets the same records aside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from foldlog.limits import POSTGRES_KEY_SURE_BYTES
from foldlog.views.sql.names import TableName, quoted, quoted_list
from foldlog.views.sql.postgres import PostgresDatabase, load_psycopg, runner
from foldlog.views.sql.types import kept_schema, postgres_type

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.views.sql.postgres import Connection

_ALL_OF_UNICODE: Final = ("UTF8", "SQL_ASCII")
"""Database encodings that accept every text: the second stores bytes without checking them."""

_KEYS: Final = TableName("_foldlog_long_keys", "pg_temp")


class PostgresLimits:
    """Asks the database, through separate connections: one thread checks what a view can hold while another one stores
    rows.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._encoding: str | None = None
        self._held: dict[str, bool] = {}

    @contextmanager
    def _asked(self) -> Iterator[Connection]:
        database = self._database.another()
        try:
            with database.transaction() as connection:
                yield connection
        finally:
            database.close()

    def holds_unicode(self) -> bool:
        """See `View.holds_unicode`."""
        if self._encoding is None:
            with self._asked() as connection:
                self._encoding = str(runner(connection)("SHOW server_encoding")[0][0])
        return self._encoding in _ALL_OF_UNICODE

    def unheld_characters(self, characters: frozenset[str]) -> frozenset[str]:
        """See `View.unheld_characters`."""
        if self.holds_unicode():
            return frozenset()
        unknown = characters - self._held.keys()
        if unknown:
            errors = load_psycopg().errors
            refusals = errors.UntranslatableCharacter, errors.CharacterNotInRepertoire
            with self._asked() as connection:
                for one in sorted(unknown):
                    self._held[one] = _is_taken(connection, refusals, "SELECT %s::text", one)
        return frozenset(one for one in characters if not self._held[one])

    def unheld_keys(self, keys: pa.Table) -> pa.ChunkedArray | None:
        """See `View.unheld_keys`. Keys that may be too long are tried, as an index may compress them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        suspects = may_be_too_long(keys)
        if suspects is None:
            return None
        columns = kept_schema(keys.schema)
        types = (f"{quoted(one.name)} {postgres_type(one.type, in_key=True)}" for one in columns)
        marks = ", ".join(["%s"] * len(columns))
        refused = load_psycopg().errors.ProgramLimitExceeded
        found: list[bool] = []
        with self._asked() as connection:
            run = runner(connection)
            run(f"CREATE TEMPORARY TABLE {_KEYS.sql} ({', '.join(types)}) ON COMMIT DROP")
            run(f"CREATE INDEX ON {_KEYS.sql} ({quoted_list(columns.names)})")
            for row in keys.filter(suspects).to_pylist():
                statement = f"INSERT INTO {_KEYS.sql} VALUES ({marks})"
                found.append(not _is_taken(connection, (refused,), statement, *row.values()))
        if not any(found):
            return None
        numbers = pc.indices_nonzero(suspects).filter(pa.array(found, pa.bool_()))
        return pa.chunked_array([pc.is_in(pa.array(range(keys.num_rows), numbers.type), value_set=numbers)])


def _is_taken(connection: Connection, refusals: tuple[type[Exception], ...], statement: str, *values: object) -> bool:
    try:
        with connection.transaction():  # a savepoint: a refusal does not end the transaction
            connection.execute(statement.encode(), values)
    except refusals:
        return False
    return True


def may_be_too_long(keys: pa.Table) -> Any:
    """Flags the rows with more bytes of text and binary than any index is sure to take; None if there are none."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    total: Any = None
    for column in keys.columns:
        if types.is_string(column.type) or types.is_large_string(column.type) or types.is_binary(column.type):
            size = pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())
            total = size if total is None else pc.add(total, size)
    if total is None or (pc.max(total).as_py() or 0) <= POSTGRES_KEY_SURE_BYTES:
        return None
    return pc.greater(total, POSTGRES_KEY_SURE_BYTES)
