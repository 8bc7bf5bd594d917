"""One tantivy index that holds the rows of a search view, and its bookmark in the same commit.

tantivy's commit has no room for a bookmark (its Python API has no payload), so the bookmark is a separate document:
replaced in every commit, found by its term, and excluded from searches and counts. Fields of a row's document:

    _foldlog_key      the record's key as one term, by which a newer record or a tombstone deletes
    _foldlog_order    a number that rises with every document: a scan reads ranges of it
    _foldlog_row      all columns, as row_json writes them; in the bookmark's document: the bookmark
    <text columns>    indexed, not stored

A commit is durable when `commit` returns: tantivy syncs its files, and the rename of meta.json is synced here. After a
kill, the last commit is intact; the lock is an flock and is released.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from foldlog.environment import CORES
from foldlog.errors import InvalidArgument, MalformedBytes, MissingDependency, ViewUnavailable
from foldlog.files.paths import sync_directory
from foldlog.limits import VIEW_LOCK_WAIT_MS, VIEW_SCAN_ROWS
from foldlog.views.bookmark import Bookmark
from foldlog.views.row_json import decode_rows, encode_rows
from foldlog.views.search.settings import SearchSettings
from foldlog.views.search.terms import key_terms

if TYPE_CHECKING:
    import pyarrow as pa

RESERVED_PREFIX: Final = "_foldlog"
KEY: Final = "_foldlog_key"
ORDER: Final = "_foldlog_order"
ROW: Final = "_foldlog_row"
BOOKMARK_KEY: Final = "\0bookmark"
"""The key of the bookmark's document, which cannot be a record's: see `terms.key_term`."""

HEAP_BYTES: Final = 128 << 20
"""How much a writer collects before it writes a segment: more makes no difference."""

TWO_THREADS_ROWS: Final = 10_000
"""With fewer rows, a second indexing thread only makes twice as many segments to merge."""

_LOCK_POLL_S: Final = 0.005
_LOCK_BUSY: Final = "LockBusy"


@dataclass(frozen=True, slots=True)
class Committed:
    """The contents of the bookmark's document: `next_order` is the first unused order number."""

    bookmark: Bookmark
    settings: SearchSettings
    next_order: int

    def to_bytes(self) -> bytes:
        fields = {
            "bookmark": self.bookmark.to_json(),
            "settings": self.settings.to_json(),
            "next_order": self.next_order,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Committed:
        try:
            fields = json.loads(data)
            bookmark, settings = Bookmark.from_json(fields["bookmark"]), SearchSettings.from_json(fields["settings"])
            return cls(bookmark, settings, int(fields["next_order"]))
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedBytes("search view's bookmark", f"it cannot be understood ({error!r})", 0) from error


def load_tantivy() -> Any:
    """The package, or MissingDependency."""
    try:
        import tantivy
    except ImportError:
        raise MissingDependency("a tantivy search view", "tantivy", "views") from None
    return tantivy


@contextmanager
def explained(location: str) -> Iterator[None]:
    """tantivy's errors, mostly ValueErrors and OSErrors, as ViewUnavailable."""
    try:
        yield
    except (InvalidArgument, MalformedBytes):
        raise
    except (ValueError, OSError, RuntimeError) as error:
        raise ViewUnavailable(location, f"tantivy says: {error}") from error


class SearchIndex:
    """The index in one directory. Its `Searcher`s are snapshots: later commits do not change what they read."""

    def __init__(self, path: str, location: str, wait_ms: int = VIEW_LOCK_WAIT_MS) -> None:
        self.path = path
        self._location = location
        self._wait_ms = wait_ms
        self._tantivy = load_tantivy()
        with explained(location):
            self._index = self._tantivy.Index.open(path)
            # Reload on demand: the other policy keeps a thread that watches the directory.
            self._index.config_reader("manual")
        self._schema = self._index.schema

    @staticmethod
    def create(path: str, start: Bookmark, settings: SearchSettings, location: str) -> None:
        """Create an index without rows, in an empty directory."""
        reserved = [name for name in settings.text if name.startswith(RESERVED_PREFIX)]
        if reserved:
            raise InvalidArgument(f"text={reserved[0]!r} cannot be searched: names that begin so belong to the index")
        tantivy = load_tantivy()
        builder = tantivy.SchemaBuilder()
        builder.add_text_field(KEY, tokenizer_name="raw", index_option="basic")
        builder.add_unsigned_field(ORDER, fast=True)
        builder.add_bytes_field(ROW, stored=True)
        for name in settings.text:
            builder.add_text_field(name)
        with explained(location):
            tantivy.Index(builder.build(), path=path, reuse=False)
        index = SearchIndex(path, location)
        with index.writing(0) as writer:
            writer.commit(Committed(start, settings, 0))

    def searcher(self) -> Any:
        """A snapshot of the last commit."""
        with explained(self._location):
            self._index.reload()
            return self._index.searcher()

    def committed(self, searcher: Any) -> Committed:
        """The contents of a snapshot's bookmark document."""
        with explained(self._location):
            hits = searcher.search(self._bookmark_query(), 1, count=False).hits
            data = searcher.doc(hits[0][1]).get_first(ROW) if hits else None
        if data is None:
            raise ViewUnavailable(
                self._location, "its index holds no bookmark, so nothing wrote it but another program"
            )
        return Committed.from_bytes(bytes(data))

    @contextmanager
    def writing(self, row_count: int) -> Iterator[IndexWriting]:
        """The only writer; waits for another one. Changes that are not committed when the block ends are lost."""
        threads = 2 if row_count >= TWO_THREADS_ROWS and CORES > 1 else 1
        writer = self._writer(threads)
        try:
            yield IndexWriting(self._tantivy, self._schema, writer, self.path, self._location)
        finally:
            # Without this, running merges would be lost, and segments would pile up. It also releases the lock, which a
            # reference in a traceback would keep. Uncommitted changes stay uncommitted.
            with explained(self._location):
                writer.wait_merging_threads()

    def search(self, searcher: Any, query: str, settings: SearchSettings, limit: int) -> list[dict[str, object]]:
        """The best rows first; all words have to occur unless the query says otherwise."""
        try:
            parsed = self._index.parse_query(query, list(settings.text), conjunction_by_default=True)
        except ValueError as error:
            raise InvalidArgument(
                f"the query {query!r} cannot be understood ({error}): put text with punctuation into double quotes;"
                f" the searched columns are {', '.join(settings.text)}"
            ) from error
        with explained(self._location):
            rows = self._rows(searcher, self._of_rows(parsed), limit)
        return decode_rows(rows, settings.columns).to_pylist() if rows else []

    def scan(self, searcher: Any, committed: Committed) -> Iterator[pa.RecordBatch]:
        """All rows of a snapshot, in batches of bounded size.

        Ranges of the order number with too many rows are halved; the rows of such a range are close together on disk.
        """
        ranges = [(0, committed.next_order)]
        while ranges:
            start, stop = ranges.pop()
            with explained(self._location):
                query = self._tantivy.Query.range_query(
                    self._schema, ORDER, self._tantivy.FieldType.Unsigned, start, stop, include_upper=False
                )
                count = searcher.search(query, 1, count=True).count if stop > start else 0
                if count > VIEW_SCAN_ROWS:
                    middle = (start + stop) // 2
                    ranges += [(middle, stop), (start, middle)]
                    continue
                rows = self._rows(searcher, query, count) if count else []
            if rows:
                yield decode_rows(rows, committed.settings.columns)

    def newest(self, searcher: Any, before: int, limit: int) -> list[tuple[int, str]]:
        """The last rows with an order number below `before`: their numbers and texts."""
        if before < 1:
            return []
        with explained(self._location):
            query = self._tantivy.Query.range_query(
                self._schema, ORDER, self._tantivy.FieldType.Unsigned, 0, before, include_upper=False
            )
            hits = searcher.search(query, limit, count=False, order_by_field=ORDER).hits
            return [(order, bytes(searcher.doc(address).get_first(ROW)).decode()) for order, address in hits]

    def _rows(self, searcher: Any, query: Any, limit: int) -> list[str]:
        hits = searcher.search(query, limit, count=False).hits
        return [bytes(searcher.doc(address).get_first(ROW)).decode() for _, address in hits]

    def _of_rows(self, query: Any) -> Any:
        occur = self._tantivy.Occur
        return self._tantivy.Query.boolean_query([(occur.Must, query), (occur.MustNot, self._bookmark_query())])

    def _bookmark_query(self) -> Any:
        return self._tantivy.Query.term_query(self._schema, KEY, BOOKMARK_KEY, index_option="basic")

    def _writer(self, threads: int) -> Any:
        deadline = time.monotonic() + self._wait_ms / 1000
        while True:
            try:
                return self._index.writer(HEAP_BYTES, threads)
            except ValueError as error:
                if _LOCK_BUSY not in str(error):
                    raise ViewUnavailable(self._location, f"tantivy says: {error}") from error
                if time.monotonic() > deadline:
                    raise ViewUnavailable(
                        self._location,
                        f"another process has been writing to it for {self._wait_ms} ms; try again later",
                    ) from error
                time.sleep(_LOCK_POLL_S)


class IndexWriting:
    """The writer of one transaction: deletions and rows, then one `commit` with the bookmark."""

    def __init__(self, tantivy: Any, schema: Any, writer: Any, path: str, location: str) -> None:
        self._tantivy = tantivy
        self._schema = schema
        self._writer = writer
        self._path = path
        self._location = location

    def delete(self, keys: Sequence[object]) -> None:
        """Delete all earlier rows of these keys."""
        if not keys:
            return
        with explained(self._location):
            query = self._tantivy.Query.term_set_query(self._schema, KEY, key_terms(keys))
            # One query is three times as fast as one term at a time.
            self._writer.delete_documents_by_query(query)

    def add(self, rows: pa.Table, settings: SearchSettings, next_order: int) -> int:
        """Add each row as a document; returns the next free order number."""
        for batch in rows.combine_chunks().to_batches(max_chunksize=VIEW_SCAN_ROWS):
            keys = key_terms(batch.column(settings.record_key).to_pylist())
            contents = map(str.encode, encode_rows(batch))
            texts = [batch.column(name).to_pylist() for name in settings.text]
            with explained(self._location):
                self._add_all(zip(keys, contents, *texts, strict=True), settings.text, next_order)
            next_order += batch.num_rows
        return next_order

    def _add_all(self, documents: Iterator[Any], text: tuple[str, ...], order: int) -> None:
        """Calls for each field are faster than a dict, or JSON, for each document."""
        new_document, add_document = self._tantivy.Document, self._writer.add_document
        for key, content, *values in documents:
            document = new_document()
            document.add_text(KEY, key)
            document.add_unsigned(ORDER, order)
            document.add_bytes(ROW, content)
            for name, value in zip(text, values, strict=True):
                if value is not None:
                    document.add_text(name, value)
            add_document(document)
            order += 1

    def commit(self, committed: Committed) -> None:
        """Commit with the bookmark, durably."""
        with explained(self._location):
            self._writer.delete_documents_by_term(KEY, BOOKMARK_KEY)
            document = self._tantivy.Document()
            document.add_text(KEY, BOOKMARK_KEY)
            document.add_bytes(ROW, committed.to_bytes())
            self._writer.add_document(document)
            self._writer.commit()
            sync_directory(self._path)
