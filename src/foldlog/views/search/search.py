"""`search(path, text=[...])`: a full-text view, in tantivy, or in SQLite's FTS5 if tantivy is not installed.

Both keep the newest row of each key, delete on a tombstone, ignore case, require all words of a query by default, and
answer `view.search("chai point")` with whole rows. tantivy searches much faster, and indexes about twice as fast; its
view is a directory, that of FTS5 a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.files.paths import PathLike, as_text
from foldlog.views.search.fts import FtsSearch
from foldlog.views.search.tantivy import TantivySearch

ENGINES = ("tantivy", "fts5")


def search(
    path: str | PathLike[str], text: Sequence[str] | str, engine: str | None = None
) -> TantivySearch | FtsSearch:
    """A search view at `path` over the columns `text`. Nothing is created or opened yet.

    `engine` is "tantivy" or "fts5"; by default tantivy if it is installed.
    """
    location = _checked_path(path)
    if engine is None:
        engine = "tantivy" if find_spec("tantivy") is not None else "fts5"
    if engine not in ENGINES:
        raise InvalidArgument(f"engine={brief_repr(engine)} is unknown; there are {' and '.join(ENGINES)}")
    return TantivySearch(location, text) if engine == "tantivy" else FtsSearch(location, text)


def _checked_path(path: object) -> str:
    text = as_text(path)
    if not isinstance(text, str) or not text or "://" in text or "\0" in text:
        raise InvalidArgument(f"a search view is at a path, such as 'views/search', not at {brief_repr(path)}")
    return text
