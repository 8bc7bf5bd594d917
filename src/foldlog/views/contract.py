"""The interface of views. A new kind of view derives from `View`; docs/views.md shows one on a page.

The one rule: **a view stores its change and its new bookmark in one transaction**, and refuses with StaleBookmark,
changing nothing, unless the bookmark it stores is the expected one. Exactly-once, rewind and rebuild follow from it,
whatever fails and however many runners there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from foldlog.errors import InvalidArgument
from foldlog.files.paths import tree_bytes
from foldlog.views.bookmark import Bookmark

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.views.counters.measures import Aggregation
    from foldlog.views.lake.compaction import Compaction, CompactionGoal
    from foldlog.views.reduce.stepping import Reduction
    from foldlog.views.staging import Ranges, StagedDelta, ViewStage
    from foldlog.views.table.expiry import Ttl

TOPIC: Final = "_topic"
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
TIMESTAMP: Final = "_timestamp"
DELETED: Final = "_deleted"
META: Final = (TOPIC, PARTITION, OFFSET, TIMESTAMP, DELETED)
"""Columns that every row of a fold has besides its own."""

RECORD: Final = "_record"
"""The column with a digest of the record's key, in views of folds that may change the key column."""

WHOSE_ROWS_UNKNOWN: Final = (
    "the fold may write other keys than its records have, and the view does not know which record each row is of, so it"
    " could not delete them"
)
"""Why such a fold cannot continue with a view that has no column RECORD."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of a fold's rows: the columns without META, and the keys.

    `record_key` is the column by which a record's rows are found again: a newer record of the same key replaces all of
    them, and a tombstone deletes them. It is the column that the topic fills from the record's key (None if it names
    none), or RECORD, one of `columns`, if the fold may have changed that one. `key` makes a row unique: `record_key`,
    or more columns if one record gives several rows, or others if `record_key` is RECORD.

    With `keeps_rows`, a newer record leaves the rows of older ones alone: rows are replaced by their own key, and
    `record_key` tells whose each row is. See `View.keeps_rows`.
    """

    columns: pa.Schema
    record_key: str | None = None
    key: tuple[str, ...] = ()
    keeps_rows: bool = False


@dataclass(frozen=True, slots=True)
class Delta:
    """The change of a view by one range of the log.

    `rows` has the shape's columns and META, in offset order within each partition (`_timestamp` is timestamp[us, UTC],
    `_deleted` a bool that is never null). A row with `_deleted` is a tombstone: only its key and META are filled. For a
    view with an `aggregation`, `rows` is already aggregated, one row per group, and has the aggregation's columns and
    no META. `ranges` is what was read of each partition, start inclusive, stop exclusive, even if it gave no rows.
    """

    rows: pa.Table
    ranges: Mapping[int, tuple[int, int]]

    @property
    def row_count(self) -> int:
        """How many rows it has."""
        return int(self.rows.num_rows)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A view's whole contents and its bookmark, read in one transaction.

    `batches` has the columns of the shape (aggregations: group columns and measures as a reader sees them), with rows
    in any order. Read it to its end, or close it. `others` are the bookmarks of the view's other topics, if it joins
    several.
    """

    bookmark: Bookmark
    batches: Iterator[pa.RecordBatch]
    others: tuple[Bookmark, ...] = ()


class Pace(NamedTuple):
    """How often a view that follows the log is changed at most: each change is a commit, and a commit costs files."""

    every_ms: int
    size_bytes: int
    """So much is stored at once, however recent the last commit is."""


class View(ABC):
    """Derived state and its bookmark. Making one touches nothing; it is used by one thread at a time.

    Every method may raise foldlog's errors: ViewUnavailable if the engine cannot be reached or refuses, in one sentence
    that names its `place`; MissingDependency if its package is not installed.
    """

    kind: ClassVar[str]
    """One word for messages: table, search, counters, lake, changes, reduce."""

    is_keyed: ClassVar[bool] = False
    """Rows are addressed by key: a newer record replaces, a tombstone deletes, a record without key is refused."""

    adds: bool = False
    """Whether reading a range again would add it again: such a view is rebuilt, never rewound."""

    holds_nul: ClassVar[bool] = True
    """Whether texts may contain the character NUL. If not, a record with one is a dead letter, as is a record with a
    value that no view holds: see `foldlog.views.storable`."""

    ttl: Ttl | None = None
    """How long rows stay, by the time that later rows tell: compaction may remove those rows."""

    holds_nan: ClassVar[bool] = True
    """Whether floats may be NaN or infinite. If not, a record with one is a dead letter."""

    keeps_old: ClassVar[bool] = True
    """Whether a swap keeps the old contents until `drop_old`."""

    looks_up: ClassVar[bool] = False
    """Whether it gives rows by key: see `rows_of`."""

    is_transactional: bool = True
    """False if the engine has no transactions: then `apply` has to be idempotent by offset."""

    pace: Pace | None = None
    """Until it is time for a commit, records stay in the log, unread; None for as soon as possible."""

    aggregation: Aggregation | None = None
    """The aggregation to apply before rows come here; only for views that merge partial results."""

    reduction: Reduction | None = None
    """The state machine that makes the view's rows of the fold's; only for views of states: see `views.reduce`."""

    @property
    def follows_keys(self) -> bool:
        """Whether the records of a key have to come in their order."""
        return self.is_keyed or self.reduction is not None

    @property
    def rows_pass_driver(self) -> bool:
        """Whether `apply` is given all rows of a range, which then has to fit the driver's memory. If not, ranges grow
        while there is a backlog.
        """
        return self.aggregation is None

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the view is, for messages, without passwords; two views with the same place are the same view."""

    @abstractmethod
    def bookmark(self) -> Bookmark | None:
        """The stored bookmark; None if the view does not exist yet. Creates nothing."""

    @abstractmethod
    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        """Create the view with the bookmark `start` unless it exists; returns its bookmark. Safe to call concurrently.

        An existing view with fewer columns gets the new ones, null in older rows; what cannot be reconciled (another
        type, another key, a missing column that is part of the key) raises SchemaChanged and changes nothing. A column
        that the view has and the shape no longer has stays, and is null in newer rows.

        `loading` is for a new, empty shadow that is not read before `finish_loading`: the engine's bulk load may be
        used, and indexes built at the end. The view must still end up the same as without it.
        """

    def filled(self, shape: Shape) -> tuple[str, ...]:
        """The columns that must not be null: a record with a null in one is a dead letter. Touches nothing."""
        return ()

    def keeps_rows(self, record_key: tuple[str, ...]) -> bool:
        """Whether rows are replaced by a key of their own, if these columns are the record's key. Then a row stays
        until a newer one has its key; a row with `_deleted` deletes the row of its key; and a row with `_deleted` whose
        key is null, which stands for a tombstone, withdraws all rows of its record key. Touches nothing.
        """
        return False

    def holds_unicode(self) -> bool:
        """Whether texts may contain every character but NUL. If not, see `unheld_characters`."""
        return True

    def unheld_characters(self, characters: frozenset[str]) -> frozenset[str]:
        """Those of the given characters, none of them ASCII, that texts of the view cannot contain."""
        return frozenset()

    def unheld_keys(self, keys: pa.Table) -> pa.ChunkedArray | None:
        """Flags the rows of key columns that are too long for a key; None if none is."""
        return None

    @abstractmethod
    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        """Store the change and `new`, in one transaction, durably; StaleBookmark if the stored one is not `expected`.

        Within a delta the newest row of a key wins (the last in offset order). An empty delta moves the bookmark only.
        """

    def stage(self, ranges: Ranges, expected: Bookmark) -> ViewStage | None:
        """A place where executors write the rows of the range that follows `expected`, which the view may not have
        reached yet; None if the driver has to bring them. What is written there is not part of the view.

        A view whose rows have keys is given a deletion, too, for each record without rows.
        """
        return None

    def apply_staged(self, staged: StagedDelta, expected: Bookmark, new: Bookmark) -> None:
        """`apply`, with rows that executors have written to a place from `stage`. Then, and in `prepare`, places that
        the bookmark is past are removed, whoever made them: see `foldlog.views.staging`.
        """
        raise NotImplementedError(f"{self.place} takes no rows from executors")

    @abstractmethod
    def move(self, expected: Bookmark, new: Bookmark) -> None:
        """Store `new` and leave the content alone; StaleBookmark if the stored one is not `expected`."""

    def rows_of(self, keys: pa.Array, expected: Bookmark) -> pa.Table:
        """The rows with these record keys, read in one transaction; StaleBookmark if the bookmark is not `expected`.
        Only if `looks_up`.
        """
        raise NotImplementedError(f"{self.place} looks up no rows by key")

    def finish_loading(self) -> None:  # noqa: B027 most engines put nothing off
        """After `prepare(loading=True)` and the last `apply`: do the deferred work, before the view is read."""

    @abstractmethod
    def shadow(self, label: str) -> View:
        """A view of the same kind and settings beside this one, for `label` ("rebuild", "verify"). Creates nothing."""

    def check_swap(self) -> None:  # noqa: B027 most engines refuse nothing
        """ViewInUse or ViewUnavailable if a swap would be refused, as far as that can be known before a rebuild."""

    @abstractmethod
    def swap(self, shadow: View) -> None:
        """Replace this view by the shadow, with its bookmark, in one step: readers see the state before or after it.

        The old contents are kept beside it until `drop_old`, and replace those of an earlier swap, unless the view
        says that it keeps none (`keeps_old`). ViewInUse, with nothing changed, if something depends on the old view and
        would be left behind.
        """

    @abstractmethod
    def drop_old(self) -> bool:
        """Remove what the last swap kept. Whether there was something."""

    @abstractmethod
    def drop(self) -> None:
        """Remove the view and its bookmark, if they exist."""

    def compact(self, goal: CompactionGoal) -> Compaction:
        """Join small files, and remove what only older states need. Rows and bookmark stay as they are, and others may
        write meanwhile.
        """
        raise InvalidArgument(f"{self.place} has no files to join; lakes are compacted, and a {self.kind} view is none")

    @abstractmethod
    def scan(self) -> Snapshot:
        """The whole contents and its bookmark, consistently, in batches: a view may be larger than memory."""

    def joined(self, are_keyed: tuple[bool, bool]) -> tuple[View, View] | None:
        """A join of two topics at this place, as each of them changes it: see `foldlog.views.join.side`. Touches
        nothing. `are_keyed` says of each topic whether its newest record of a key counts, or every record. None if the
        engine cannot keep both sides beside the view.
        """
        return None

    def description(self) -> dict[str, object] | None:
        """How another process opens the view for a peek, as JSON without secrets: see `foldlog.views.peek`. Touches
        nothing.

        None if that is not supported, as in custom views.
        """
        return None

    def size_bytes(self) -> int | None:
        """How large it is where it is stored: views in one file count the file. None if that is not known. May take
        as long as listing its files."""
        path = (self.description() or {}).get("path")
        return tree_bytes(path) if isinstance(path, str) and "://" not in path else None

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
        """Close connections; the view can be used again afterwards."""
