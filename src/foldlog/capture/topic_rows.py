"""The newest row of each key of a topic, in a temporary file that SQLite keeps and nobody else sees.

It is read from the log where a change alone does not say enough: a truncation names no keys, a value that did not
change may be left out, and a second snapshot writes what differs. A table may be larger than memory, so no dict.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]  # it is documented nowhere, and as old as the module
from typing import Final

_DECODER: Final = json.JSONDecoder()

CACHE_KIB: Final = 64 << 10
"""Held in memory before SQLite writes to its temporary file."""


def members(document: str) -> dict[str, str]:
    """The members of an object that was written without spaces, each as the text it has there.

    >>> members('{"id":1,"price":1.10,"tags":["a","b"]}')
    {'id': '1', 'price': '1.10', 'tags': '["a","b"]'}
    """
    found: dict[str, str] = {}
    at = 1
    while document[at] == '"':
        name, at = scanstring(document, at + 1, True)
        _, end = _DECODER.raw_decode(document, at + 1)
        found[name] = document[at + 1 : end]
        at = end + 1
        if document[end] == "}":
            break
    return found


class TopicRows:
    """Rows by key, as they stand in records. One thread."""

    def __init__(self, records: Iterable[tuple[bytes, str | None]]) -> None:
        """From a topic's records in their order: each key with its row, or None where it was deleted."""
        self._database: Final = sqlite3.connect("", isolation_level=None)
        self._database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._database.execute("CREATE TABLE newest (key BLOB PRIMARY KEY, row TEXT) WITHOUT ROWID")
        self._database.execute("BEGIN")
        # A deletion is kept as such for now: statements of one kind can be executed many at a time.
        self._database.executemany("INSERT OR REPLACE INTO newest VALUES (?, ?)", records)
        self._database.execute("DELETE FROM newest WHERE row IS NULL")

    def get(self, key: bytes) -> str | None:
        found = self._database.execute("SELECT row FROM newest WHERE key = ?", (key,)).fetchone()
        return None if found is None else found[0]

    def put(self, key: bytes, row: str | None) -> None:
        if row is None:
            self._database.execute("DELETE FROM newest WHERE key = ?", (key,))
        else:
            self._database.execute("INSERT OR REPLACE INTO newest VALUES (?, ?)", (key, row))

    def pop(self, key: bytes) -> str | None:
        found = self.get(key)
        if found is not None:
            self.put(key, None)
        return found

    def drain(self) -> Iterator[tuple[bytes, str]]:
        """Every key that is left, with its row, in order; they are gone then."""
        while True:
            some = self._database.execute("SELECT key, row FROM newest ORDER BY key LIMIT 1000").fetchall()
            if not some:
                return
            self._database.execute("DELETE FROM newest WHERE key <= ?", (some[-1][0],))
            yield from some

    def close(self) -> None:
        self._database.close()
