"""The triggers that note changes of SQLite tables: their statements, and what they write, back to JSON. Pure functions.

Each change is a row of `_foldlog_changes_NAME`: which table, which operation, the row before and after as an array of
SQL literals, which SQLite's quote() writes exactly, blobs and floats included.

SQLite fires no trigger for a row that INSERT OR REPLACE removes because of another unique constraint than the primary
key. So before a row is written, the rows are noted that have the same unique values: CANDIDATE. Who reads the changes
looks whether they are still there.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from json.encoder import encode_basestring as json_text
from typing import Final, NamedTuple

from foldlog.capture.database import DELETE, INSERT, UPDATE
from foldlog.views.sql.names import quoted

PREFIX: Final = "_foldlog_"
CANDIDATE: Final = "x"
"""The operation of a row that a REPLACE may remove. It says its key only."""

_NOW_MS: Final = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


class TriggeredTable(NamedTuple):
    """A table as its triggers see it. `uniques` are the columns of its unique constraints beside the primary key."""

    name: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    uniques: tuple[tuple[str, ...], ...]


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def changes_table(capture: str) -> str:
    return f"{PREFIX}changes_{capture}"


def trigger_prefix(capture: str) -> str:
    """No name of a capture has a dot: the triggers of `shop` are not those of `shop_2`."""
    return f"{PREFIX}{capture}."


def create_changes(capture: str) -> str:
    """The table of changes. Its numbers never come again, also after rows were deleted."""
    return (
        f"CREATE TABLE {changes_table(capture)} (seq INTEGER PRIMARY KEY AUTOINCREMENT, tbl TEXT NOT NULL,"
        " op TEXT NOT NULL, old TEXT, new TEXT, at_ms INTEGER NOT NULL)"
    )


def triggers(capture: str, shape: TriggeredTable) -> dict[str, str]:
    """Of one table: names and statements."""
    table = quoted(shape.name)
    old, new = _array("OLD", shape.columns), _array("NEW", shape.columns)
    made = {
        "insert": ("AFTER INSERT", _note(capture, shape, INSERT, "NULL", new)),
        "update": ("AFTER UPDATE", _note(capture, shape, UPDATE, old, new)),
        "delete": ("AFTER DELETE", _note(capture, shape, DELETE, old, "NULL")),
    }
    if shape.uniques:
        same = " OR ".join(
            "(" + " AND ".join(f"{quoted(name)} = NEW.{quoted(name)}" for name in unique) + ")"
            for unique in shape.uniques
        )
        keys = "json_array(" + ", ".join(f"quote({quoted(name)})" for name in shape.keys) + ")"
        candidates = (
            f"INSERT INTO {changes_table(capture)} (tbl, op, old, at_ms)"
            f" SELECT {literal(shape.name)}, '{CANDIDATE}', {keys}, {_NOW_MS} FROM {table} WHERE ({same})"
        )
        itself = " AND ".join(f"{quoted(name)} IS OLD.{quoted(name)}" for name in shape.keys)
        made["before_insert"] = ("BEFORE INSERT", f"{candidates};")
        made["before_update"] = ("BEFORE UPDATE", f"{candidates} AND NOT ({itself});")
    return {
        (name := f"{trigger_prefix(capture)}{what}.{shape.name}"): (
            f"CREATE TRIGGER {quoted(name)} {when} ON {table} FOR EACH ROW BEGIN {statement} END"
        )
        for what, (when, statement) in made.items()
    }


def _note(capture: str, shape: TriggeredTable, op: str, old: str, new: str) -> str:
    return (
        f"INSERT INTO {changes_table(capture)} (tbl, op, old, new, at_ms)"
        f" VALUES ({literal(shape.name)}, '{op}', {old}, {new}, {_NOW_MS});"
    )


def _array(row: str, columns: Sequence[str]) -> str:
    return "json_array(" + ", ".join(f"quote({row}.{quoted(name)})" for name in columns) + ")"


def fragments(text: str | None) -> list[str | None] | None:
    """The row that a change holds, as JSON by column.

    >>> fragments('["1","NULL"]')
    ['1', 'null']
    """
    return None if text is None else [fragment(one) for one in json.loads(text)]


def fragment(quoted_value: str) -> str:
    """What quote() wrote, as JSON. Numbers stay numbers, texts texts; a blob is base64.

    >>> print(*[fragment(text) for text in ("NULL", "7", "1.5", "'it''s'", "X'00FF'", "-9.0e+999")])
    null 7 1.5 "it's" "AP8=" "-Infinity"
    """
    if quoted_value[0] == "'":
        return json_text(quoted_value[1:-1].replace("''", "'"))
    if quoted_value == "NULL":
        return "null"
    if quoted_value[0] in "Xx":
        return f'"{base64.b64encode(bytes.fromhex(quoted_value[2:-1])).decode()}"'
    if quoted_value.endswith("e+999"):  # so SQLite writes the infinities
        return '"-Infinity"' if quoted_value[0] == "-" else '"Infinity"'
    return quoted_value


def value_of(quoted_value: str) -> str | bytes | int | float | None:
    """What quote() wrote, as the value that it was.

    >>> [value_of(text) for text in ("NULL", "7", "1.5", "'it''s'", "X'00FF'")]
    [None, 7, 1.5, "it's", b'\\x00\\xff']
    """
    if quoted_value[0] == "'":
        return quoted_value[1:-1].replace("''", "'")
    if quoted_value == "NULL":
        return None
    if quoted_value[0] in "Xx":
        return bytes.fromhex(quoted_value[2:-1])
    return float(quoted_value) if set(quoted_value) & set(".e") else int(quoted_value)
