"""What the server's catalog tells of the tables to capture: keys, columns, and why one cannot be captured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from foldlog.capture.database import RowLayout, Table
from foldlog.capture.from_mysql.values import CODECS, Encode, encoder_of
from foldlog.errors import DatabaseRefused
from foldlog.views.sql.mysql import backquoted

_TABLES: Final = """
    SELECT TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s ORDER BY TABLE_NAME
"""

_KEYS: Final = """
    SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = %s AND INDEX_NAME = 'PRIMARY' ORDER BY TABLE_NAME, SEQ_IN_INDEX
"""

_CASCADES: Final = """
    SELECT TABLE_NAME, CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE FROM information_schema.REFERENTIAL_CONSTRAINTS
    WHERE CONSTRAINT_SCHEMA = %s
          AND (DELETE_RULE IN ('CASCADE', 'SET NULL') OR UPDATE_RULE IN ('CASCADE', 'SET NULL'))
"""

_COLUMNS: Final = """
    SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, EXTRA
    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""

_CHECKS: Final = """
    SELECT CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = %s AND TABLE_NAME = %s
"""

ENGINES: Final = frozenset({"InnoDB", "ROCKSDB"})
"""Those with transactions: a snapshot of them shows one moment."""

Ask = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]
"""Runs a query with its arguments, and returns its rows."""


class SnapshotColumns(NamedTuple):
    """The columns of a table, as a snapshot reads them: their layout, what is selected, what makes JSON of each."""

    layout: RowLayout
    selected: tuple[str, ...]
    encoders: tuple[Encode, ...]


class DeclaredColumns(NamedTuple):
    """What the binlog does not say of a table's columns: types it does not tell apart, and which are generated."""

    types: dict[str, str]
    generated: frozenset[str]


class MySqlCatalog:
    """Asks one connection about one database."""

    def __init__(self, ask: Ask, schema: str, *, is_mariadb: bool, has_quiet_cascades: bool) -> None:
        self._ask = ask
        self._schema = schema
        self._is_mariadb = is_mariadb
        self._has_quiet_cascades = has_quiet_cascades

    def tables(self, names: Sequence[str]) -> tuple[list[Table], list[str]]:
        """Those of these names, or all; and of all, why some are left out. DatabaseRefused if a named one cannot be."""
        there = {name: (kind, engine) for name, kind, engine in self._ask(_TABLES, (self._schema,))}
        keys: dict[str, list[str]] = {}
        for table, column in self._ask(_KEYS, (self._schema,)):
            keys.setdefault(table, []).append(column)
        quiet = {}
        if self._has_quiet_cascades:
            quiet = {table: (name, rules) for table, name, *rules in self._ask(_CASCADES, (self._schema,))}
        found: list[Table] = []
        left_out: list[str] = []
        for given in names or there:
            name = given.removeprefix(f"{self._schema}.")
            if name not in there:
                raise DatabaseRefused(
                    f"there is no table {given!r} in database {self._schema!r}; there are"
                    f" {', '.join(sorted(there)[:20]) or 'none'}"
                )
            kind, engine = there[name]
            reason = self._why_not(name, kind, engine, keys.get(name, []), quiet.get(name))
            if reason is None:
                found.append(Table(name, "", name, tuple(keys[name])))
            elif names:
                raise DatabaseRefused(reason)
            elif kind == "BASE TABLE":
                left_out.append(reason)
        return found, left_out

    def _why_not(
        self, name: str, kind: str, engine: str | None, keys: Sequence[str], cascade: tuple[str, list[str]] | None
    ) -> str | None:
        """Why a table cannot be captured, in one sentence; None if it can."""
        title = f"{self._schema}.{name}"
        if kind != "BASE TABLE":
            return f"{title} is a {kind.lower()}; only tables are captured"
        if engine not in ENGINES:
            return (
                f"{title} has the engine {engine}, which has no transactions, so no snapshot of it shows one moment;"
                f" run: ALTER TABLE {title} ENGINE=InnoDB, or leave the table out"
            )
        if not keys:
            return f"{title} has no primary key, so its rows have no key in a topic; add one, or leave the table out"
        if cascade is not None:
            constraint, rules = cascade
            return (
                f"{title} has a foreign key {constraint!r} with ON DELETE {rules[0]}, ON UPDATE {rules[1]}: rows that"
                " it changes are not in the binlog of this server; use RESTRICT, or leave the table out"
            )
        return self._unreadable(name)

    def _unreadable(self, name: str) -> str | None:
        for column, _, definition, charset, *_ in self._ask(_COLUMNS, (self._schema, name)):
            where = f"column {column!r} of {self._schema}.{name}"
            if "/*" in definition and "COMPRESSED" in definition.upper():
                return f"{where} is COMPRESSED, which is not captured; change it, or leave the table out"
            if charset is not None and charset != "binary" and charset not in CODECS:
                return f"{where} has the character set {charset}, which Python cannot read; leave the table out"
        return None

    def snapshot_columns(self, table: Table, *, is_numeric_text: bool) -> SnapshotColumns:
        declared = self.declared(table.name)
        rows = self._ask(_COLUMNS, (self._schema, table.name))
        rows = [row for row in rows if row[0] not in declared.generated]
        layout = RowLayout("", table.name, [row[0] for row in rows], table.keys)
        chosen = [encoder_of(declared.types[row[0]], row[2], is_numeric_text=is_numeric_text) for row in rows]
        selected = tuple(form.format(backquoted(row[0])) for row, (form, _) in zip(rows, chosen, strict=True))
        return SnapshotColumns(layout, selected, tuple(encode for _, encode in chosen))

    def declared(self, table: str) -> DeclaredColumns:
        """As the table is now. MariaDB's JSON is a text with a check."""
        rows = self._ask(_COLUMNS, (self._schema, table))
        types = {name: str(kind).lower() for name, kind, *_ in rows}
        if self._is_mariadb:
            checks = {clause.lower() for (clause,) in self._ask(_CHECKS, (self._schema, table))}
            for name in types:
                if f"json_valid({backquoted(name)})".lower() in checks:
                    types[name] = "json"
        # MySQL calls a default that is an expression DEFAULT_GENERATED.
        extras = {row[0]: str(row[4]).upper().replace("DEFAULT_GENERATED", "") for row in rows}
        generated = frozenset(name for name, extra in extras.items() if "GENERATED" in extra)
        return DeclaredColumns(types, generated)
