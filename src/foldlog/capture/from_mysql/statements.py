"""What statements of the binlog do to the tables that are captured. In row format there are few: definitions of tables,
and the begin and end of transactions. Pure functions of texts.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final, NamedTuple

_COMMENT: Final = re.compile(r"/\*(?!M?!)[\s\S]*?\*/|(?:--[ \t]|#)[^\n]*(?=\n|$)|/\*M?!\d*|\*/")
"""Comments; and the marks around what looks like one and is not: /*!50000 … */."""

_PART: Final = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[^\s`\".,;()]+)"
_NAME: Final = rf"({_PART}(?:\s*\.\s*{_PART})?)"
_TRUNCATE: Final = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{_NAME}", re.IGNORECASE)
_CREATE: Final = re.compile(rf"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}", re.IGNORECASE)
_RENAME: Final = re.compile(r"RENAME\s+TABLES?\s+(?:IF\s+EXISTS\s+)?(.+)", re.IGNORECASE | re.DOTALL)
_RENAMED: Final = re.compile(rf"{_NAME}\s+(?:(?:NO)?WAIT\s+(?:\d+\s+)?)?TO\s+{_NAME}", re.IGNORECASE)
_ALTER: Final = re.compile(
    rf"ALTER\s+(?:ONLINE\s+)?(?:IGNORE\s+)?TABLE\s+(?:IF\s+EXISTS\s+)?{_NAME}(.*)", re.IGNORECASE | re.DOTALL
)
_ALTER_RENAME: Final = re.compile(rf"\bRENAME\s+(?!COLUMN\b|INDEX\b|KEY\b)(?:TO\s+|AS\s+|=\s*)?{_NAME}", re.IGNORECASE)
_ALTER_ROWS: Final = re.compile(
    r"\b(?:TRUNCATE|DROP|EXCHANGE|CONVERT|DISCARD|IMPORT)\s+(?:PARTITION|TABLESPACE)\b", re.IGNORECASE
)


class Effect(Enum):
    """What a statement is, as far as a capture is concerned."""

    NOTHING = auto()
    BEGINS = auto()
    COMMITS = auto()
    ROLLS_BACK = auto()
    CHANGES_ROWS = auto()
    """A change that was logged as a statement: which rows it changed is not known."""
    TRUNCATES = auto()
    REPLACES = auto()
    """Tables of these names are other ones now, or have other rows, and no event says which."""


_ALONE: Final = (
    (re.compile(r"(?:BEGIN|START\s+TRANSACTION|XA\s+START)\b", re.IGNORECASE), Effect.BEGINS),
    (re.compile(r"COMMIT\b", re.IGNORECASE), Effect.COMMITS),
    (re.compile(r"ROLLBACK\b", re.IGNORECASE), Effect.ROLLS_BACK),
    (re.compile(r"(?:INSERT|UPDATE|DELETE|REPLACE|LOAD\s+DATA|WITH)\b", re.IGNORECASE), Effect.CHANGES_ROWS),
)


class Statement(NamedTuple):
    """A statement's effect, and the tables it is about: database and name."""

    effect: Effect
    tables: tuple[tuple[str, str], ...] = ()


def effect_of(text: str, schema: str) -> Statement:
    """
    >>> effect_of("/* x */ TRUNCATE TABLE `a b`", "shop")
    Statement(effect=<Effect.TRUNCATES: 6>, tables=(('shop', 'a b'),))
    >>> effect_of("RENAME TABLE orders TO old.orders, new TO orders", "shop").tables
    (('shop', 'orders'), ('old', 'orders'), ('shop', 'new'), ('shop', 'orders'))
    >>> effect_of("ALTER TABLE t ADD COLUMN c INT", "shop").effect.name
    'NOTHING'
    """
    plain = _COMMENT.sub(" ", text).strip()
    for form, effect in _ALONE:
        if form.match(plain):
            return Statement(effect)
    for form, effect in ((_TRUNCATE, Effect.TRUNCATES), (_CREATE, Effect.REPLACES)):
        if found := form.match(plain):
            return Statement(effect, (_table(found[1], schema),))
    if found := _RENAME.match(plain):
        pairs = _RENAMED.findall(found[1])
        return Statement(Effect.REPLACES, tuple(_table(name, schema) for pair in pairs for name in pair))
    if found := _ALTER.match(plain):
        return _altered(found[1], found[2], schema)
    return Statement(Effect.NOTHING)


def _altered(name: str, change: str, schema: str) -> Statement:
    table = _table(name, schema)
    if renamed := _ALTER_RENAME.search(change):
        return Statement(Effect.REPLACES, (table, _table(renamed[1], schema)))
    return Statement(Effect.REPLACES, (table,)) if _ALTER_ROWS.search(change) else Statement(Effect.NOTHING)


def _table(text: str, schema: str) -> tuple[str, str]:
    parts = [_plain(part) for part in re.findall(_PART, text)]
    return (parts[0], parts[1]) if len(parts) == 2 else (schema, parts[0])


def _plain(part: str) -> str:
    quote = part[0]
    return part[1:-1].replace(quote * 2, quote) if quote in '`"' else part
