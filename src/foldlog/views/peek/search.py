"""A peek into a search view: search results, and the last rows."""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any, Final

from foldlog.errors import InvalidArgument, MalformedBytes, ViewUnavailable, brief_repr
from foldlog.files.paths import exists
from foldlog.limits import PEEK_COUNT_ROWS_MAX
from foldlog.views.generations import CURRENT, Generations
from foldlog.views.peek.peek import Page, Peek, checked_limit
from foldlog.views.peek.sources import sqlite_reading
from foldlog.views.peek.values import shown
from foldlog.views.row_json import decode_rows
from foldlog.views.search.fts import NAME, StoredIndex
from foldlog.views.search.settings import SearchSettings
from foldlog.views.search.tantivy_index import SearchIndex
from foldlog.views.sql.bookmarks import BookmarkTable, Run
from foldlog.views.sql.names import BOOKMARKS, TableName, quoted
from foldlog.views.table.shape import load_pyarrow

_ORDER_MAX: Final = 2**63 - 1


class _SearchPeek(Peek):
    """An index at a path, of any engine."""

    kind = "search"

    def __init__(self, path: str) -> None:
        load_pyarrow()  # now: importing is slow, and a look has a time limit
        self._path = path
        self._location = f"search {path}"


class TantivyPeek(_SearchPeek):
    """A directory, read like any reader does: a concurrent commit does not change what is read."""

    def rows(self, limit: int = 50, after: str | None = None) -> Page:
        count = checked_limit(limit)
        index = self._index()
        searcher = index.searcher()
        committed = index.committed(searcher)
        found = index.newest(searcher, committed.next_order if after is None else _number(after), count + 1)
        following = str(found[count - 1][0]) if len(found) > count else None
        texts = [text for _, text in found[:count]]
        return _page(texts, committed.settings, searcher.num_docs - 1, following)

    def search(self, text: str, limit: int = 50) -> Page:
        count = checked_limit(limit)
        index = self._index()
        searcher = index.searcher()
        settings = index.committed(searcher).settings
        try:
            found = index.search(searcher, text, settings, count)
        except InvalidArgument:
            plain = plain_words(text)
            found = index.search(searcher, plain, settings, count) if plain else []
        return Page(tuple(settings.columns.names), [[shown(value) for value in row.values()] for row in found])

    def _index(self) -> SearchIndex:
        generations = Generations(self._path, self._location)
        for _ in range(2):
            path = generations.find(CURRENT)
            if path is None:
                raise ViewUnavailable(self._location, "there is no such view; run the fold to make it")
            try:
                return SearchIndex(path, self._location)
            except ViewUnavailable:
                if exists(path):
                    raise  # otherwise a rebuild has just replaced it
        raise ViewUnavailable(self._location, "it is being replaced just now; look again")


class FtsPeek(_SearchPeek):
    """A file of SQLite."""

    def rows(self, limit: int = 50, after: str | None = None) -> Page:
        count = checked_limit(limit)
        before = _ORDER_MAX if after is None else _number(after)
        with sqlite_reading(self._path, self._location) as run:
            stored = self._stored(run)
            table = quoted(stored.rows)
            found = run(f"SELECT id, row FROM {table} WHERE id < ? ORDER BY id DESC LIMIT ?", before, count + 1)
            ((total,),) = run(f"SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT {PEEK_COUNT_ROWS_MAX + 1})")
        following = str(found[count - 1][0]) if len(found) > count else None
        texts = [text for _, text in found[:count]]
        return _page(texts, stored.settings, total if total <= PEEK_COUNT_ROWS_MAX else None, following)

    def search(self, text: str, limit: int = 50) -> Page:
        count = checked_limit(limit)
        with sqlite_reading(self._path, self._location) as run:
            stored = self._stored(run)
            try:
                found = self._matching(run, stored, text, count)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                    raise
                plain = plain_words(text)
                found = self._matching(run, stored, plain, count) if plain else []
        return _page(found, stored.settings, None, None)

    def _matching(self, run: Run, stored: StoredIndex, query: str, count: int) -> list[str]:
        rows, text = quoted(stored.rows), quoted(stored.text)
        found = run(
            f"SELECT {rows}.row FROM {text} JOIN {rows} ON {rows}.id = {text}.rowid"
            f" WHERE {text} MATCH ? ORDER BY {text}.rank LIMIT ?",
            query,
            count,
        )
        return [row for (row,) in found]

    def _stored(self, run: Run) -> StoredIndex:
        has_bookmarks = run("SELECT 1 FROM sqlite_master WHERE name = ?", BOOKMARKS)
        entry = BookmarkTable(TableName(BOOKMARKS)).read(run, NAME) if has_bookmarks else None
        if entry is None:
            raise ViewUnavailable(self._location, "there is no such view; run the fold to make it")
        try:
            return StoredIndex.of(entry, self._location)
        except (ValueError, KeyError, TypeError, MalformedBytes, json.JSONDecodeError) as error:
            raise ViewUnavailable(self._location, f"what is stored of it cannot be understood ({error})") from error


def plain_words(text: str) -> str:
    """The words of a text as a query without syntax, for users who do not know the syntax or are still typing.

    >>> plain_words('merchant:(chai "po')
    '"merchant" "chai" "po"'
    """
    return " ".join(f'"{word}"' for word in re.findall(r"\w+", text))


def _number(after: str) -> int:
    if not after.isascii() or not after.isdigit() or int(after) > _ORDER_MAX:
        raise InvalidArgument(f"after={brief_repr(after)} is not where a page has ended")
    return int(after)


def _page(texts: list[str], settings: SearchSettings, total: int | None, following: str | None) -> Page:
    names = tuple(settings.columns.names)
    found: list[dict[str, Any]] = decode_rows(texts, settings.columns).to_pylist() if texts else []
    return Page(names, [[shown(value) for value in row.values()] for row in found], total, following)
