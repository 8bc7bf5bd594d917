"""The search view in tantivy: a directory of generations, each an index that holds its own bookmark.

Readers continue with the generation they have open when another one replaces it. A search sees what was committed when
it began. Rows of one commit come in tantivy's order of relevance; their scores are not specified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from foldlog.errors import InvalidArgument, StaleBookmark, ViewUnavailable
from foldlog.files.paths import is_file
from foldlog.limits import VIEW_LOCK_WAIT_MS
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import Delta, Shape, Snapshot, View
from foldlog.views.generations import CURRENT, Generations, shadow_link
from foldlog.views.local_paths import local_path
from foldlog.views.newest import newest
from foldlog.views.search.settings import checked_limit, checked_text, settings_of
from foldlog.views.search.tantivy_index import Committed, SearchIndex, load_tantivy


class TantivySearch(View):
    """`link` names the generation in the directory: the current one, or a shadow's."""

    kind: ClassVar[str] = "search"
    is_keyed: ClassVar[bool] = True

    def __init__(
        self, path: str, text: Sequence[str] | str, *, link: str = CURRENT, wait_ms: int = VIEW_LOCK_WAIT_MS
    ) -> None:
        self._path = local_path(path)
        self._text = checked_text(text)
        self._link = link
        self._wait_ms = wait_ms
        self._generations = Generations(self._path, self.place, wait_ms)

    @property
    def place(self) -> str:
        return f"search {self._path}" if self._link == CURRENT else f"search {self._path} ({self._link})"

    def description(self) -> dict[str, object]:
        return {"kind": self.kind, "engine": "tantivy", "path": self._path}

    def bookmark(self) -> Bookmark | None:
        index = self._find()
        return None if index is None else index.committed(index.searcher()).bookmark

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        load_tantivy()
        self._refuse_other_engine()
        wanted = settings_of(shape, self._text)
        if self._generations.create(self._link, lambda path: SearchIndex.create(path, start, wanted, self.place)):
            return start
        with self._generations.reading():
            index = self._open()
            stored = index.committed(index.searcher())
            if stored.settings.grown_to(wanted, self.place) == stored.settings:
                return stored.bookmark
            with index.writing(0) as writer:
                stored = index.committed(index.searcher())
                writer.commit(replace(stored, settings=stored.settings.grown_to(wanted, self.place)))
            return stored.bookmark

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        self._open(expected)
        with self._generations.reading():
            index = self._open(expected)
            with index.writing(delta.rows.num_rows) as writer:
                stored = self._expect(index, expected)
                next_order = stored.next_order
                if delta.rows.num_rows:
                    change = newest(delta.rows, stored.settings.record_key, stored.settings.key)
                    rows = stored.settings.fitted(change.rows, self.place)
                    writer.delete(change.keys)
                    next_order = writer.add(rows, stored.settings, next_order)
                writer.commit(Committed(new, stored.settings, next_order))

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        self._open(expected)
        with self._generations.reading():
            index = self._open(expected)
            with index.writing(0) as writer:
                writer.commit(replace(self._expect(index, expected), bookmark=new))

    def shadow(self, label: str) -> TantivySearch:
        return TantivySearch(self._path, self._text, link=shadow_link(label), wait_ms=self._wait_ms)

    def swap(self, shadow: View) -> None:
        if not isinstance(shadow, TantivySearch) or shadow._path != self._path or shadow._link == self._link:
            raise InvalidArgument(f"{shadow.place} is no shadow of {self.place}")
        self._generations.promote(shadow._link)

    def drop_old(self) -> bool:
        return self._generations.drop_old()

    def drop(self) -> None:
        self._refuse_other_engine()
        self._generations.drop(self._link)

    def scan(self) -> Snapshot:
        index = self._open()
        searcher = index.searcher()
        committed = index.committed(searcher)
        return Snapshot(committed.bookmark, index.scan(searcher, committed))

    def search(self, query: str, limit: int = 10) -> list[dict[str, object]]:
        """The best matching rows, best first, for a query in tantivy's syntax.

        All words have to occur: `chai point`; also `"chai point"`, `merchant:chai`, `chai OR tea`, `chai -point`,
        `"chai po"*`. InvalidArgument if the query cannot be parsed.
        """
        index = self._open()
        searcher = index.searcher()
        return index.search(searcher, query, index.committed(searcher).settings, checked_limit(limit))

    def _find(self) -> SearchIndex | None:
        """Opened for each call, in a millisecond: the generation may have been replaced, or dropped and recreated."""
        self._refuse_other_engine()
        path = self._generations.find(self._link)
        return None if path is None else SearchIndex(path, self.place, self._wait_ms)

    def _open(self, expected: Bookmark | None = None) -> SearchIndex:
        index = self._find()
        if index is None and expected is not None:
            raise StaleBookmark(self.place, "no bookmark, as if it had been dropped,", expected.to_json())
        if index is None:
            raise ViewUnavailable(self.place, "there is no such view; run the fold to make it")
        return index

    def _expect(self, index: SearchIndex, expected: Bookmark) -> Committed:
        """Called under the writer's lock, so that the bookmark stays the same until the commit."""
        stored = index.committed(index.searcher())
        if stored.bookmark != expected:
            raise StaleBookmark(self.place, stored.bookmark.to_json(), expected.to_json())
        return stored

    def _refuse_other_engine(self) -> None:
        if is_file(self._path):
            raise ViewUnavailable(
                self.place, "there is a file, as SQLite FTS5 makes it, and tantivy has a directory; say engine='fts5'"
            )
