"""Names of tables and columns in SQL: checked once, when a view is made, and always quoted.

All engines get the rules of the strictest: PostgreSQL silently cuts names after 63 bytes, and SQLite treats two names
that differ only in case as the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from foldlog.errors import InvalidArgument, brief_repr

NAME_BYTES_MAX: Final = 63
"""PostgreSQL's NAMEDATALEN - 1."""

BOOKMARKS: Final = "_foldlog_bookmarks"
"""The table that holds the bookmarks of all views of a database (of a schema, in PostgreSQL)."""

OLD: Final = "__old"
"""Suffix of the table that a swap leaves behind."""

TABLE_NAME_BYTES_MAX: Final = NAME_BYTES_MAX - len("__rebuild_load_key")
"""Leaves room for the names beside a table: its shadow, what the shadow is loaded into, and an index of that."""

_TAKEN_ENDINGS: Final = (OLD, "__rebuild", "__verify")


class TableName(NamedTuple):
    """A table, and the schema it is in; without one, the engine's default.

    >>> TableName("pay ments", "shop").sql
    '"shop"."pay ments"'
    """

    name: str
    schema: str | None = None

    @property
    def sql(self) -> str:
        """Quoted, for a statement."""
        return quoted(self.name) if self.schema is None else f"{quoted(self.schema)}.{quoted(self.name)}"

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"

    def beside(self, ending: str) -> TableName:
        """A table with this suffix, in the same schema."""
        return TableName(self.name + ending, self.schema)


def quoted(name: str) -> str:
    """A quoted SQL identifier.

    >>> quoted('an "odd" name')
    '"an ""odd"" name"'
    """
    return '"' + name.replace('"', '""') + '"'


def quoted_list(names: Sequence[str]) -> str:
    """Several quoted identifiers, separated by commas."""
    return ", ".join(map(quoted, names))


def table_name(text: object, *, with_schema: bool) -> TableName:
    """The table for a user's name: "payments", or "shop.payments" if the engine has schemas.

    >>> table_name("shop.payments", with_schema=True)
    TableName(name='payments', schema='shop')
    """
    if not isinstance(text, str) or not text:
        raise InvalidArgument(f"a table has a name, such as 'payments', not {brief_repr(text)}")
    if "." not in text:
        return TableName(_checked_table(text))
    if not with_schema:
        raise InvalidArgument(f"{brief_repr(text)} cannot be a table of SQLite: it has no schemas; leave out the dot")
    schema, _, name = text.partition(".")
    if not schema or not name or "." in name:
        raise InvalidArgument(f"{brief_repr(text)} is neither a table nor schema.table")
    _check_characters(schema, "schema", NAME_BYTES_MAX)
    return TableName(_checked_table(name), schema)


def check_columns(names: Sequence[str]) -> None:
    """InvalidArgument unless these can be the columns of one table."""
    seen: dict[str, str] = {}
    for name in names:
        _check_characters(name, "column", NAME_BYTES_MAX)
        twin = seen.setdefault(name.lower(), name)
        if twin is not name:
            raise InvalidArgument(
                f"columns {twin!r} and {name!r} differ in case only, which SQL cannot tell apart; rename one"
            )


def _checked_table(name: str) -> str:
    _check_characters(name, "table", TABLE_NAME_BYTES_MAX)
    lower = name.lower()
    if lower.startswith(("sqlite_", "_foldlog", "pg_")):
        raise InvalidArgument(f"{name!r} cannot be the name of a view: names that begin so belong to the engine")
    if lower.endswith(_TAKEN_ENDINGS):
        raise InvalidArgument(
            f"{name!r} cannot name a view: what a rebuild makes beside one ends in {', '.join(_TAKEN_ENDINGS)}"
        )
    return name


def _check_characters(name: str, what: str, bytes_max: int) -> None:
    if not name or not name.isprintable():
        raise InvalidArgument(f"{brief_repr(name)} cannot be the name of a {what}: it has to be printable characters")
    if len(name.encode()) > bytes_max:
        raise InvalidArgument(f"{brief_repr(name)} is too long to name a {what}: {bytes_max} bytes are the most")
