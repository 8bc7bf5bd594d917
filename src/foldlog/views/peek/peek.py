"""A peek into a view, for people, by another process than the one that writes it.

`open_peek(view.description())` returns a `Peek`: a few rows, rows that contain some text, numbers over time. It only
reads, takes bounded time and memory, never delays a writer for longer than that, and works across a rebuild: it shows
the view before or after. The description comes from a topic that others may write, so nothing in it is trusted: it
names a location, that has to hold a view that a fold made, and its names are quoted in every statement. PostgreSQL is
accessed with the rights of the user that runs this process (libpq's defaults, ~/.pgpass).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Self

from foldlog.errors import InvalidArgument, brief_repr
from foldlog.limits import PEEK_ROWS_MAX


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows, as JSON values. `total` is the number of all rows, None if counting would take long. `next` continues
    after the last of them, None if there are no more."""

    columns: tuple[str, ...]
    rows: list[list[object]]
    total: int | None = None
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart: (start of the window in milliseconds since 1970, number), oldest first."""

    name: str
    points: list[tuple[int, int | float]]


class Peek(ABC):
    """A peek into one view. Opens it for each call and holds nothing in between; any thread, one at a time.

    ViewUnavailable, in one sentence, if the view does not exist or its engine cannot be read; InvalidArgument for a
    question without an answer; MissingDependency.
    """

    kind: ClassVar[str]

    @abstractmethod
    def rows(self, limit: int = 50, after: str | None = None) -> Page:
        """The newest rows, or those that the engine finds fastest; `after` is the `next` of another page."""

    @abstractmethod
    def search(self, text: str, limit: int = 50) -> Page:
        """Rows that contain the text; in a search view, the best hits of a query."""

    def series(self, measure: str | None = None) -> list[Series] | None:
        """The lines of a chart; None if there are no numbers over time. Without `measure`, of the first one."""
        return None

    def close(self) -> None:  # noqa: B027 not every engine holds something open
        """Close what is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_peek(description: Mapping[str, object]) -> Peek:
    """The peek for a view's `description`. Nothing is opened yet. InvalidArgument if it describes no view."""
    kind, engine = _text(description, "kind"), _text(description, "engine")
    if kind in ("table", "counters") and engine in ("sqlite", "postgresql", "duckdb"):
        from foldlog.views.peek.sources import source_of

        source = source_of(engine, _location(description, engine), _text(description, "name"), kind)
        if kind == "counters":
            from foldlog.views.peek.counters import CountersPeek

            return CountersPeek(source)
        from foldlog.views.peek.table import TablePeek

        return TablePeek(source)
    if kind == "search" and engine in ("tantivy", "fts5"):
        from foldlog.views.peek.search import FtsPeek, TantivyPeek

        path = _location(description, engine)
        return TantivyPeek(path) if engine == "tantivy" else FtsPeek(path)
    if kind == "lake" and engine in ("delta", "iceberg", "parquet"):
        from foldlog.views.peek.lake import LakePeek

        return LakePeek(engine, _location(description, engine), str(description.get("mode", "append")))
    raise InvalidArgument(f"a {brief_repr(kind)} in {brief_repr(engine)} cannot be looked into by this foldlog")


def checked_limit(limit: object) -> int:
    """The limit, if it is allowed."""
    if type(limit) is not int or not 0 < limit <= PEEK_ROWS_MAX:
        raise InvalidArgument(f"a look gives between 1 and {PEEK_ROWS_MAX} rows, not {brief_repr(limit)}")
    return limit


def _location(description: Mapping[str, object], engine: str) -> str:
    location = _text(description, "url" if engine == "postgresql" else "path")
    if engine != "postgresql" and not location.startswith("/"):
        raise InvalidArgument(f"{brief_repr(location)} is no absolute path, and means another place in every process")
    return location


def _text(description: Mapping[str, object], name: str) -> str:
    found = description.get(name)
    if not isinstance(found, str) or not found or "\0" in found:
        raise InvalidArgument(f"a view's description has a text for {name!r}, not {brief_repr(found)}")
    return found
