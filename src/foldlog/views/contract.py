"""What a view has to do. Whoever writes one derives from `View`; docs/views.md shows it in a page.

The one rule: **a view stores its change and its new bookmark in one transaction**, and refuses with StaleBookmark,
changing nothing, unless the bookmark it stores is the expected one. Exactly-once, rewind and rebuild follow from it,
whatever fails and whoever else runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from foldlog.views.bookmark import Bookmark

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.views.counters.measures import Aggregation

TOPIC: Final = "_topic"
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
TIMESTAMP: Final = "_timestamp"
DELETED: Final = "_deleted"
META: Final = (TOPIC, PARTITION, OFFSET, TIMESTAMP, DELETED)
"""Columns that every row of a fold carries beside its own."""

RECORD: Final = "_record"
"""The column of the record's own key, as a digest, in views of folds that may write other keys than they are given."""

WHOSE_ROWS_UNKNOWN: Final = (
    "the fold may write other keys than its records have, and the view does not know which record each row is of, so it"
    " could not delete them"
)
"""Why such a fold cannot go on with a view that has no column RECORD."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the rows of a fold look like: the columns without META, and what addresses a row.

    `record_key` is the column by which a record's rows are found again: a newer record of the same key replaces all of
    them, and a tombstone deletes them. It is the column that the topic fills from the record's key (None if it names
    none), or RECORD, one of `columns`, where the fold may have changed that one. `key` is what makes a row unique:
    `record_key`, or more columns where one record gives several rows, or others where `record_key` is RECORD.
    """

    columns: pa.Schema
    record_key: str | None = None
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """What one range of the log means for a view.

    `rows` has the shape's columns and META, in offset order within each partition (`_timestamp` is
    timestamp[us, UTC], `_deleted` a bool that is never null). A row with `_deleted` is a tombstone: only its key and
    META are filled. For a view with an `aggregation`, `rows` is already aggregated, one row per group, and has the
    aggregation's columns and no META. `ranges` is what was read of each partition, start inclusive, stop exclusive:
    also where it gave no rows.
    """

    rows: pa.Table
    ranges: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A view's whole content and the bookmark that belongs to it, read in one transaction.

    `batches` has the columns of the shape (aggregations: group columns and measures as a reader sees them), in any
    order of rows. Read it to its end, or close it.
    """

    bookmark: Bookmark
    batches: Iterator[pa.RecordBatch]


class View(ABC):
    """Derived state and its bookmark. Made without touching anything; one thread at a time uses one.

    Every method may raise foldlog's errors: ViewUnavailable where the engine cannot be reached or refuses, in one
    sentence that names the place; MissingDependency where its package is not installed.
    """

    kind: ClassVar[str]
    """One word for people: table, search, counters, lake."""

    is_keyed: ClassVar[bool] = False
    """Rows are addressed by key: a newer record replaces, a tombstone deletes, a record without key is refused."""

    adds: bool = False
    """Reading a range again would add it again: such a view is rebuilt, never rewound."""

    holds_nul: ClassVar[bool] = True
    """Texts may have the character NUL. Where they may not, a record that would bring one is a dead letter, as is one
    that brings what no view holds: see `foldlog.views.storable`."""

    is_transactional: bool = True
    """False where the engine has no transaction: then `apply` has to be idempotent by offset."""

    aggregation: Aggregation | None = None
    """What to aggregate by before rows come here; only for views that merge partial results."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it is, for people, without passwords; two views of the same place are the same view."""

    @abstractmethod
    def bookmark(self) -> Bookmark | None:
        """What is stored; None if the view does not exist yet. Does not create anything."""

    @abstractmethod
    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        """Make the view with the bookmark `start` unless it exists; the bookmark it has. Safe to call from many.

        An existing view with fewer columns gets the new ones, null in older rows; what cannot be reconciled (another
        type, another key, a missing column that is part of the key) raises SchemaChanged and changes nothing.
        A column that the view has and the shape no longer has stays, and is null in newer rows.

        `loading` is for a new, empty shadow that nobody reads before `finish_loading`: the engine's bulk load may be
        used, and indexes made at the end. The view must still end up the same as without it.
        """

    def filled(self, shape: Shape) -> tuple[str, ...]:
        """The columns that no row may have null in: a record that would bring one is a dead letter. Touches nothing."""
        return ()

    def holds_unicode(self) -> bool:
        """Whether texts may have every other character. Where not, `unheld_characters` tells which they may not."""
        return True

    def unheld_characters(self, characters: frozenset[str]) -> frozenset[str]:
        """Those of the characters, none of them ASCII, that no text of the view may have."""
        return frozenset()

    def unheld_keys(self, keys: pa.Table) -> pa.ChunkedArray | None:
        """Which of these rows, of the columns that make a row unique, are too long to be one; None if none is."""
        return None

    @abstractmethod
    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        """Store the change and `new`, in one transaction, durably; StaleBookmark if the stored one is not `expected`.

        Within a delta the newest row of a key wins (the last in offset order). An empty delta moves the bookmark only.
        """

    @abstractmethod
    def move(self, expected: Bookmark, new: Bookmark) -> None:
        """Store `new` and leave the content alone; StaleBookmark if the stored one is not `expected`."""

    def finish_loading(self) -> None:  # noqa: B027 most engines put nothing off
        """After `prepare(loading=True)` and the last `apply`: make what was put off, before anybody reads it."""

    @abstractmethod
    def shadow(self, label: str) -> View:
        """A view of the same kind and settings beside this one, for `label` ("rebuild", "verify"). Creates nothing."""

    def check_swap(self) -> None:  # noqa: B027 most engines refuse nothing
        """ViewInUse or ViewUnavailable if a swap would be refused, as far as that can be known before a rebuild."""

    @abstractmethod
    def swap(self, shadow: View) -> None:
        """Put the shadow in this view's place with its bookmark, in one step that readers see before or after.

        What was there is kept beside it, in place of an older one, until `drop_old`. ViewInUse, and nothing changed,
        if something depends on the old one that would be left behind.
        """

    @abstractmethod
    def drop_old(self) -> bool:
        """Remove what the last swap kept; whether there was one."""

    @abstractmethod
    def drop(self) -> None:
        """Remove the view and its bookmark; nothing happens if there is none."""

    @abstractmethod
    def scan(self) -> Snapshot:
        """The whole content and its bookmark, consistently, in batches: a view may be larger than memory."""

    def description(self) -> dict[str, object] | None:
        """How another process opens it for a look, as JSON without secrets: see `foldlog.views.peek`. Touches nothing.

        None where nobody can: a view of your own has its own ways to be looked at.
        """
        return None

    def peek(self, limit: int = 20) -> list[dict[str, object]]:
        """A few rows for people."""
        snapshot = self.scan()
        found: list[dict[str, object]] = []
        for batch in snapshot.batches:
            found.extend(batch.slice(0, limit - len(found)).to_pylist())
            if len(found) >= limit:
                break
        return found

    def close(self) -> None:  # noqa: B027 not every engine holds something open
        """Let go of connections; the view can be used again afterwards."""
