"""What PostgreSQL's catalog tells of the tables to capture: their keys, their columns, and why one cannot be captured.

A table needs something that identifies its rows, or the server itself refuses updates and deletes of it as soon as it
is published. So a table is refused here, before anything is changed in the database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from foldlog.capture.database import RowLayout, Table
from foldlog.capture.from_postgres.values import Encode, TypeInfo, encoder_of
from foldlog.errors import DatabaseRefused

_KEY: Final = """
    SELECT array_agg(attname::text ORDER BY number) FROM pg_index
    CROSS JOIN LATERAL unnest(indkey) WITH ORDINALITY AS part(attnum, number)
    JOIN pg_attribute ON attrelid = indrelid AND pg_attribute.attnum = part.attnum
    WHERE indrelid = pg_class.oid AND number <= indnkeyatts AND
"""

_TABLES: Final = f"""
    SELECT pg_class.oid, nspname, relname, relkind, relpersistence, relispartition, relreplident,
           ({_KEY} indisprimary), ({_KEY} indisreplident), has_table_privilege(pg_class.oid, 'SELECT')
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
"""

_NOT_OURS: Final = """
    WHERE relkind IN ('r', 'p') AND NOT relispartition AND relpersistence = 'p'
          AND nspname <> 'information_schema' AND left(nspname, 3) <> 'pg_'
    ORDER BY nspname, relname
"""

_NAMED: Final = "WHERE pg_class.oid = to_regclass(%(name)s) OR nspname || '.' || relname = %(name)s"

_COLUMNS: Final = """
    SELECT attname, atttypid FROM pg_attribute
    WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
"""Generated columns are not replicated."""

_TYPE: Final = """
    SELECT CASE WHEN typinput = 'array_in'::regproc THEN typelem ELSE 0 END, typbasetype, typdelim
    FROM pg_type WHERE oid = %s
"""

_KINDS: Final = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index"}


class Columns(NamedTuple):
    """The columns of a table, as rows are read: their layout, and what makes JSON of each."""

    layout: RowLayout
    encoders: tuple[Encode, ...]


Ask = Callable[[str, Sequence[object] | Mapping[str, object]], list[tuple[Any, ...]]]
"""Runs a query with its arguments, and returns its rows."""


class TableCatalog:
    """Asks one connection; types are asked for once."""

    def __init__(self, ask: Ask, *, is_numeric_text: bool) -> None:
        self._ask = ask
        self._is_numeric_text = is_numeric_text
        self._types: dict[int, Encode] = {}

    def tables(self, names: Sequence[str]) -> tuple[list[Table], list[str]]:
        """Those of these names, or all; and of all, why some are left out. DatabaseRefused if a named one cannot be."""
        if not names:
            rows = self._ask(_TABLES + _NOT_OURS, ())
            reasons = [reason for row in rows if (reason := _why_not(row)) is not None]
            return [_table(row) for row in rows if _why_not(row) is None], reasons
        found: dict[str, Table] = {}
        for name in names:
            rows = self._ask(_TABLES + _NAMED, {"name": name})
            if not rows:
                raise DatabaseRefused(
                    f"there is no table {name!r} in the database; say schema.table, as \\d in psql shows it"
                )
            reason = _why_not(rows[0])
            if reason is not None:
                raise DatabaseRefused(reason)
            table = _table(rows[0])
            found[table.id] = table
        return list(found.values()), []

    def columns(self, table: Table) -> Columns:
        """As they are in the transaction of the connection."""
        rows = self._ask(_COLUMNS, (int(table.id),))
        layout = RowLayout(table.schema, table.name, [name for name, _ in rows], table.keys)
        return Columns(layout, tuple(self.encoder(oid) for _, oid in rows))

    def encoder(self, oid: int) -> Encode:
        found = self._types.get(oid)
        if found is None:
            found = encoder_of(oid, self._type, is_numeric_text=self._is_numeric_text)
            self._types[oid] = found
        return found

    def _type(self, oid: int) -> TypeInfo | None:
        rows = self._ask(_TYPE, (oid,))
        return TypeInfo(int(rows[0][0]), int(rows[0][1]), _char(rows[0][2])) if rows else None


def _table(row: Sequence[Any]) -> Table:
    oid, schema, name, _, _, _, identity, primary, indexed, _ = row
    return Table(str(oid), schema, name, tuple(indexed if _char(identity) == "i" else primary))


def _why_not(row: Sequence[Any]) -> str | None:
    """Why a table cannot be captured, in one sentence; None if it can."""
    _, schema, name, kind, persistence, is_partition, identity, primary, _, may_select = row
    title = f"{schema}.{name}"
    if _char(kind) not in ("r", "p"):
        return f"{title} is {_KINDS.get(_char(kind), 'no table')}; only tables are captured"
    if is_partition:
        return f"{title} is a partition; capture the table that it is a part of"
    if _char(persistence) != "p":
        return f"{title} is not logged (UNLOGGED or temporary), so its changes are nowhere to be read"
    if _char(identity) == "n":
        return f"{title} has REPLICA IDENTITY NOTHING, so changed rows cannot be told apart; set it to DEFAULT or FULL"
    if primary is None and _char(identity) != "i":
        return (
            f"{title} has no primary key, so its rows have no key in a topic; add one, or a unique index of columns"
            f" that are NOT NULL with ALTER TABLE {title} REPLICA IDENTITY USING INDEX, or leave the table out"
        )
    if not may_select:
        return f"this role may not read {title}; let its owner run: GRANT SELECT ON {title} TO this role"
    return None


def _char(value: Any) -> str:
    """A value of type "char", which psycopg gives as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
