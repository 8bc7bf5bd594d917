"""`changes`: a fold's rows as a topic, keyed and compacted, that other folds and every Kafka client can read.

The view is the newest record of each key. A range writes only what it changes: a record for each row that differs, a
tombstone for each row that is gone. Changes and bookmark are one transaction of the log, see `changes_log.py`; what a
row was before is known from `keyed_rows.py`.

A rebuild is done beside the topic, in this process. Its swap writes, in one transaction, only the differences between
the rebuilt rows and those of the topic: readers read on, and have the rebuilt state when they have read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from foldlog.clock import SystemClock
from foldlog.errors import FoldError, InvalidArgument, SchemaChanged, StaleBookmark, ViewUnavailable, brief_repr
from foldlog.spark.change_topics.changes_log import SWAP_TIMEOUT_MS, TIMEOUT_MS, ChangesBookmark, ChangesLog
from foldlog.spark.change_topics.joined_changes import joined_changes
from foldlog.spark.change_topics.keyed_rows import KeyedRows, RowChange, changes_of, closing_batches, differences
from foldlog.spark.change_topics.row_texts import check_columns
from foldlog.spark.origins.origin import OriginSpec
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import Delta, Shape, Snapshot, View
from foldlog.views.table.shape import TableShape, decide_shape, reconcile
from foldlog.views.table.table import key_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foldlog.client.transactions import Transaction


def changes(
    topic: str, *, key: str | Sequence[str] | None = None, old: bool = False, partitions: int | None = None
) -> ChangesTopic:
    """A view that is a topic of the log that the fold reads: `into=fl.changes("orders_enriched")`.

    `key` are the columns that make a row unique, as in `fl.table`; they are the key of its records. With `old`, a value
    is `{"new": ..., "old": ...}`. `partitions` is how many the topic is made with: as many as the fold's own, if it is
    not given.

    >>> changes("orders_enriched").place
    'topic orders_enriched'
    """
    given: object = topic
    if not isinstance(given, str) or not given:
        raise InvalidArgument(f"changes are written to a topic, named by a string, not by {brief_repr(given)}")
    if old not in (True, False):
        raise InvalidArgument(f"old={brief_repr(old)} of fl.changes({topic!r}) is not True or False")
    if partitions is not None and (type(partitions) is not int or partitions < 1):
        raise InvalidArgument(f"partitions={brief_repr(partitions)} of fl.changes({topic!r}) is not a number of them")
    return ChangesTopic(topic, key_columns(key), has_old=old, partitions=partitions)


class ChangesTopic(View):
    """See the module. Whoever runs the fold says which log it is in, with `bind`."""

    kind: ClassVar[str] = "changes"
    is_keyed: ClassVar[bool] = True
    holds_nan: ClassVar[bool] = False
    keeps_old: ClassVar[bool] = False

    def __init__(self, topic: str, key: tuple[str, ...], *, has_old: bool, partitions: int | None) -> None:
        self.topic = topic
        self.has_old = has_old
        self._key = key
        self._partitions = partitions
        self._spec: OriginSpec | None = None
        self._opened: ChangesLog[ChangesBookmark] | None = None
        self._rows: KeyedRows | None = None
        self._read: dict[int, int] = {}
        """How far the rows are read."""
        self._rows_of: tuple[str, bool] | None = None
        """Of which topic they are, and whether its values have old and new."""
        self._sent: tuple[Mapping[int, int], list[RowChange]] | None = None
        """What was sent last, and where the topic ends behind it: whether that counts, the next bookmark tells."""

    @property
    def place(self) -> str:
        return f"topic {self.topic}"

    def bind(self, spec: OriginSpec) -> None:
        """The log of the topic. Connects to nothing."""
        if spec != self._spec:
            self.close()
            self._spec = spec

    @property
    def _log(self) -> ChangesLog[ChangesBookmark]:
        if self._opened is None:
            if self._spec is None:
                raise FoldError(f"{self.place} is in the log that its fold reads, and nobody has said which that is")
            self._opened = ChangesLog(self._spec, self.topic, self.place, ChangesBookmark.from_json)
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        self._forget_rows()

    def ensure(self, source_partitions: int) -> None:
        """Create the topic, so that other folds can begin to read it. The view exists with its bookmark only."""
        self._log.changes.ensure(self._partitions or source_partitions)

    def wait_readable(self) -> None:
        """Until folds behind it can read all that was committed."""
        self._log.wait_readable()

    def joined(self, are_keyed: tuple[bool, bool]) -> tuple[View, View]:
        return joined_changes(self.topic, self._key, are_keyed, has_old=self.has_old, partitions=self._partitions)

    # --- the bookmark ---------------------------------------------------------------------------------------------

    def bookmark(self) -> Bookmark | None:
        stored = self._log.stored()
        return None if stored is None else stored.bookmark

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        wanted = self.decided(shape)
        stored = self._log.stored()
        if stored is not None and self._reconciled(stored, wanted) == stored.shape:
            return stored.bookmark
        partitions = self._log.changes.ensure(self._partitions or max(1, len(start.positions)))
        self._log.ensure_bookmark_topic()

        def write(transaction: Transaction) -> Bookmark:
            there = self._log.stored()
            if there is None:
                self._log.changes.check_unused()
                topic_id = self._log.changes.topic_id() or ""
                there = ChangesBookmark(start, wanted, topic_id, partitions, {}, self.has_old)
            else:
                there = replace(there, shape=self._reconciled(there, wanted))
            self._log.send_bookmark(transaction, there)
            return there.bookmark

        found = self._log.fenced_from_others(write, rows=0, timeout_ms=TIMEOUT_MS)
        self._forget_rows()
        return found

    def decided(self, shape: Shape) -> TableShape:
        """The form of the topic's rows."""
        found = decide_shape(shape, self._key, self.place, loading=False)
        check_columns(found.columns)
        return found

    def _reconciled(self, stored: ChangesBookmark, wanted: TableShape) -> TableShape:
        if stored.has_old != self.has_old:
            has = "has old and new" if stored.has_old else "has only the new row"
            raise SchemaChanged(self.place, f"a record of it {has}, and the fold's is otherwise")
        return reconcile(stored.shape, wanted, self.place)

    # --- writing --------------------------------------------------------------------------------------------------

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        def write(transaction: Transaction) -> None:
            stored = self._expect(expected)
            rows = self._current(stored)
            found = changes_of(delta, rows, self.place) if delta.row_count else []
            ends = self._log.changes.send(transaction, found, stored, SystemClock().now_ms())
            self._log.send_bookmark(transaction, replace(stored, bookmark=new, ends=ends))
            self._sent = (ends, found)

        self._log.fenced_from_others(write, rows=delta.row_count, timeout_ms=TIMEOUT_MS)

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        def write(transaction: Transaction) -> None:
            self._log.send_bookmark(transaction, replace(self._expect(expected), bookmark=new))

        self._log.fenced_from_others(write, rows=0, timeout_ms=TIMEOUT_MS)

    def _expect(self, expected: Bookmark) -> ChangesBookmark:
        """What is stored, if its bookmark is the expected one; else StaleBookmark."""
        stored = self._log.stored()
        if stored is None or stored.bookmark != expected:
            found = "nothing" if stored is None else stored.bookmark.to_json()
            raise StaleBookmark(self.place, found, expected.to_json())
        return stored

    def _current(self, stored: ChangesBookmark) -> KeyedRows:
        """The rows that belong to the bookmark."""
        of = (stored.topic_id, stored.has_old)
        if self._rows is None or self._rows_of != of or self._rows.shape != stored.shape:
            self._forget_rows()
            self._rows, self._rows_of = KeyedRows(stored.shape), of
        sent, self._sent = self._sent, None
        if sent is not None and sent[0] == stored.ends:
            # No other transaction can end there: the offsets of an aborted one are not given again.
            self._rows.put(sent[1])
            self._read.update(stored.ends)
        self._log.changes.follow(self._rows, self._read, stored)
        return self._rows

    def _forget_rows(self) -> None:
        if self._rows is not None:
            self._rows.close()
        self._rows, self._rows_of, self._read, self._sent = None, None, {}, None

    # --- replays --------------------------------------------------------------------------------------------------

    def shadow(self, label: str) -> ChangesShadow:
        return ChangesShadow(self, label)

    def swap(self, shadow: View) -> None:
        """Write what differs, in one transaction. Nothing of the old rows is kept but what the topic still has."""
        if not isinstance(shadow, ChangesShadow) or shadow.rows is None or shadow.stored is None:
            raise ViewUnavailable(self.place, "there is no shadow to put in its place")
        rebuilt, bookmark = shadow.rows, shadow.stored

        def write(transaction: Transaction) -> None:
            stored = self._log.stored()
            if stored is None:
                raise ViewUnavailable(self.place, "it does not exist any more; run the fold")
            after = replace(stored, bookmark=bookmark, shape=rebuilt.shape, has_old=self.has_old)
            found = differences(self._current(stored), rebuilt, all_anew=stored.has_old != self.has_old)
            ends = self._log.changes.send(transaction, found, after, SystemClock().now_ms())
            self._log.send_bookmark(transaction, replace(after, ends=ends))

        self._log.fenced_from_others(write, rows=1 << 62, timeout_ms=SWAP_TIMEOUT_MS)
        self._forget_rows()
        shadow.drop()

    def drop_old(self) -> bool:
        return False  # the log keeps what it has until it is compacted

    def drop(self) -> None:
        """Delete the topic. A fold that reads it says that its topic is another one when it comes back."""
        self._forget_rows()
        self._log.drop()

    # --- reading --------------------------------------------------------------------------------------------------

    def scan(self) -> Snapshot:
        found = self._log.settled(lambda stored: KeyedRows(stored.shape))
        if found is None:
            raise ViewUnavailable(self.place, "it does not exist; run the fold")
        return Snapshot(found[0].bookmark, closing_batches(found[1], self.place))


class ChangesShadow(View):
    """A changes view that is built or compared: rows in this process, without a topic. They live until `drop`."""

    kind: ClassVar[str] = ChangesTopic.kind
    is_keyed: ClassVar[bool] = True
    holds_nan: ClassVar[bool] = False

    def __init__(self, live: ChangesTopic, label: str) -> None:
        self._live = live
        self._label = label
        self.rows: KeyedRows | None = None
        self.stored: Bookmark | None = None

    @property
    def place(self) -> str:
        return f"{self._live.place} ({self._label})"

    def bookmark(self) -> Bookmark | None:
        return self.stored

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        wanted = self._live.decided(shape)
        if self.rows is None or self.stored is None:
            self.rows, self.stored = KeyedRows(wanted), start
        elif self.rows.shape != wanted:
            raise SchemaChanged(self.place, "the fold has changed while it was replayed")
        return self.stored

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        rows = self._expect(expected)
        rows.put(changes_of(delta, rows, self.place) if delta.row_count else ())
        self.stored = new

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        self._expect(expected)
        self.stored = new

    def _expect(self, expected: Bookmark) -> KeyedRows:
        if self.rows is None or self.stored != expected:
            found = "nothing" if self.stored is None else self.stored.to_json()
            raise StaleBookmark(self.place, found, expected.to_json())
        return self.rows

    def shadow(self, label: str) -> ChangesShadow:
        return ChangesShadow(self._live, label)

    def swap(self, shadow: View) -> None:
        raise ViewUnavailable(self.place, "a shadow has none")

    def drop_old(self) -> bool:
        return False

    def drop(self) -> None:
        if self.rows is not None:
            self.rows.close()
        self.rows = self.stored = None

    def scan(self) -> Snapshot:
        if self.rows is None or self.stored is None:
            raise ViewUnavailable(self.place, "it does not exist")
        return Snapshot(self.stored, self.rows.batches(self.place))
