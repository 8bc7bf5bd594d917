"""A look into a view, for people, by another process than the one that writes it.

`open_peek(view.description())` gives a `Peek`: a few rows, rows that hold some text, numbers over time. It only reads,
takes a bounded time and memory, never keeps who writes waiting for longer than that, and works across a rebuild: what
it shows is the view before or after. The description comes out of a topic that others may write, so nothing in it is
trusted: it names a place, the place has to hold a view that a fold made, and no statement is made of it but by quoting
names. A PostgreSQL is reached as whoever runs this process is allowed to (libpq's defaults, ~/.pgpass).
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
    """Some rows, as JSON has them. `total` counts all there are, None where that would take long. `next` goes on after
    the last of them, None if there is no more."""

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
    """A look into one view. Opens when asked, holds nothing between two calls; any thread, one at a time.

    ViewUnavailable, in one sentence, where the view is not there, or its engine cannot be read; InvalidArgument for a
    question that has no answer; MissingDependency.
    """

    kind: ClassVar[str]

    @abstractmethod
    def rows(self, limit: int = 50, after: str | None = None) -> Page:
        """The newest rows, or those that engine and view can give soonest; `after` is the `next` of another page."""

    @abstractmethod
    def search(self, text: str, limit: int = 50) -> Page:
        """Rows that hold the text; in a search view, the best hits of a query."""

    def series(self, measure: str | None = None) -> list[Series] | None:
        """What to draw a chart of; None where there are no numbers over time. `measure` is the first one, if None."""
        return None

    def close(self) -> None:  # noqa: B027 not every engine holds something open
        """Let go of what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_peek(description: Mapping[str, object]) -> Peek:
    """The peek that a view's `description` means. Nothing is opened yet. InvalidArgument if it describes no view."""
    kind, engine = _text(description, "kind"), _text(description, "engine")
    if kind in ("table", "counters") and engine in ("sqlite", "postgresql", "duckdb"):
        from foldlog.views.peek.sources import source_of

        source = source_of(engine, _place(description, engine), _text(description, "name"), kind)
        if kind == "counters":
            from foldlog.views.peek.counters import CountersPeek

            return CountersPeek(source)
        from foldlog.views.peek.table import TablePeek

        return TablePeek(source)
    if kind == "search" and engine in ("tantivy", "fts5"):
        from foldlog.views.peek.search import FtsPeek, TantivyPeek

        path = _place(description, engine)
        return TantivyPeek(path) if engine == "tantivy" else FtsPeek(path)
    if kind == "lake" and engine in ("delta", "iceberg", "parquet"):
        from foldlog.views.peek.lake import LakePeek

        return LakePeek(engine, _place(description, engine), str(description.get("mode", "append")))
    raise InvalidArgument(f"a {brief_repr(kind)} in {brief_repr(engine)} cannot be looked into by this foldlog")


def checked_limit(limit: object) -> int:
    """How many rows are wanted, if so many are given."""
    if type(limit) is not int or not 0 < limit <= PEEK_ROWS_MAX:
        raise InvalidArgument(f"a look gives between 1 and {PEEK_ROWS_MAX} rows, not {brief_repr(limit)}")
    return limit


def _place(description: Mapping[str, object], engine: str) -> str:
    place = _text(description, "url" if engine == "postgresql" else "path")
    if engine != "postgresql" and not place.startswith("/"):
        raise InvalidArgument(f"{brief_repr(place)} is no absolute path, and means another place in every process")
    return place


def _text(description: Mapping[str, object], name: str) -> str:
    found = description.get(name)
    if not isinstance(found, str) or not found or "\0" in found:
        raise InvalidArgument(f"a view's description has a text for {name!r}, not {brief_repr(found)}")
    return found
