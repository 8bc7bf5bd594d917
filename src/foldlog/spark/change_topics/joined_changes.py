"""A join of two topics whose result is a third: `@fl.fold(orders, customers, into=fl.changes("orders_enriched"))`.

Three topics of rows belong to it: the joined rows, which others read, and the rows of either side, which are internal.
What a range of one topic changes in its side and in the joined rows, and the bookmark after it, are one transaction of
the log, as of every changes topic. The sides are topics because they have to last: the bookmark may be far from the
beginning, and what was read before it may be gone from the log.

Each runner joins in a scratch database, which it makes of the sides when it begins. Triggers note what a change does
to its tables; the rows that differ afterwards are what is written. So the arithmetic is that of a join in a table, to
the statement.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from foldlog.client.fold_bulletin import SIDES_PREFIX
from foldlog.clock import SystemClock
from foldlog.errors import FoldError, InvalidArgument, SchemaChanged, ViewUnavailable
from foldlog.spark.change_topics.changes_log import SWAP_TIMEOUT_MS, TIMEOUT_MS, ChangesLog
from foldlog.spark.change_topics.keyed_rows import KeyedRows, RowChange, closing_batches, differences
from foldlog.spark.change_topics.row_texts import check_columns, key_texts, value_texts
from foldlog.spark.origins.origin import OriginSpec
from foldlog.views.bookmark import Bookmark
from foldlog.views.contract import RECORD, Delta, Shape, Snapshot, View
from foldlog.views.join.rows import SideChange
from foldlog.views.join.side import JoinSide, Writing
from foldlog.views.join.spec import LEFT, RIGHT
from foldlog.views.join.sqlite import ScratchJoin
from foldlog.views.join.state import JOIN_KIND, Declared, JoinState
from foldlog.views.sql.bookmarks import Run
from foldlog.views.sql.names import TableName, quoted, quoted_list
from foldlog.views.sql.types import is_key_type, sqlite_type
from foldlog.views.table.shape import TableShape
from foldlog.views.table.sqlite_values import from_values

if TYPE_CHECKING:
    import pyarrow as pa

    from foldlog.client.transactions import Transaction

_WAS: Final = "_foldlog_was"
_PAIR: Final = (LEFT, RIGHT)

Result = TypeVar("Result")


def side_topics(topic: str) -> tuple[str, str]:
    """The topics of the sides of a join.

    >>> side_topics("orders_enriched")
    ('__joined.left.orders_enriched', '__joined.right.orders_enriched')
    """
    return f"{SIDES_PREFIX}left.{topic}", f"{SIDES_PREFIX}right.{topic}"


@dataclass(frozen=True, slots=True)
class RowsEnd:
    """One of the three topics, and where its records end that belong to a bookmark: see `rows_topic.Written`."""

    topic_id: str
    partitions: int
    ends: Mapping[int, int]
    has_old: bool = False


@dataclass(frozen=True, slots=True)
class JoinBookmark:
    """What the newest record of the bookmark says: the state of the join as texts, the key of the joined rows, and the
    topics of the joined rows and of both sides. `key` is empty until both sides are there.
    """

    bookmarks: str
    settings: str
    key: tuple[str, ...]
    topics: tuple[RowsEnd, RowsEnd, RowsEnd]

    @property
    def topic_id(self) -> str:
        return self.topics[0].topic_id

    @property
    def partitions(self) -> int:
        return self.topics[0].partitions

    @property
    def ends(self) -> Mapping[int, int]:
        return self.topics[0].ends

    @property
    def has_old(self) -> bool:
        return self.topics[0].has_old

    def state(self, location: str) -> JoinState:
        return JoinState.from_json(self.bookmarks, self.settings, location)

    def has_form_of(self, other: JoinBookmark) -> bool:
        return (self.settings, self.key, self.topic_id) == (other.settings, other.key, other.topic_id)

    def has_rows_of(self, other: JoinBookmark | None) -> bool:
        """Whether both are the same rows. The offsets of a transaction that was aborted are not given again."""
        return other is not None and (self.settings, self.topics) == (other.settings, other.topics)

    def to_json(self) -> str:
        topics = [
            {
                "topic_id": one.topic_id,
                "partitions": one.partitions,
                "ends": {str(number): end for number, end in sorted(one.ends.items())},
                "old": one.has_old,
            }
            for one in self.topics
        ]
        fields = {"join": {"bookmarks": self.bookmarks, "settings": self.settings}, "key": self.key, "topics": topics}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: bytes, location: str) -> JoinBookmark:
        try:
            fields = json.loads(text)
            if "join" not in fields:
                raise ViewUnavailable(location, "a fold of one topic writes it; choose another name, or drop that fold")
            first, left, right = (
                RowsEnd(
                    str(one["topic_id"]),
                    int(one["partitions"]),
                    {int(number): int(end) for number, end in one["ends"].items()},
                    bool(one["old"]),
                )
                for one in fields["topics"]
            )
            join = fields["join"]
            return cls(
                str(join["bookmarks"]), str(join["settings"]), tuple(map(str, fields["key"])), (first, left, right)
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ViewUnavailable(location, f"its bookmark cannot be understood ({error})") from error


class TopicJoin(ScratchJoin):
    """The three topics, and the scratch database in which they are joined. Both sides share one; a thread at a time
    changes it.
    """

    def __init__(self, topic: str, key: tuple[str, ...], *, has_old: bool, partitions: int | None) -> None:
        super().__init__(f"topic {topic}")
        self.topic = topic
        self._key = key
        self._has_old = has_old
        self._partitions = partitions
        self._spec: OriginSpec | None = None
        self._opened_log: ChangesLog[JoinBookmark] | None = None
        self._lock = RLock()
        self._transaction: Transaction | None = None
        self._at: JoinBookmark | None = None
        """What the scratch database is made of."""
        self._watched: dict[TableName, _Watched] | None = None
        """The tables that a change has touched, while there is one."""
        self._shadows: dict[str, ScratchJoin] = {}

    def bind(self, spec: OriginSpec) -> None:
        """The log of the topics. Connects to nothing."""
        if spec != self._spec:
            self.close()
            self._spec = spec

    @property
    def log(self) -> ChangesLog[JoinBookmark]:
        if self._opened_log is None:
            if self._spec is None:
                raise FoldError(f"{self.location} is in the log that its fold reads, and nobody has said which that is")
            self._opened_log = ChangesLog(
                self._spec, self.topic, self.location, JoinBookmark.from_json, side_topics(self.topic)
            )
        return self._opened_log

    def close(self) -> None:
        """What was joined is made again of the sides."""
        with self._lock:
            if self._opened_log is not None:
                self._opened_log.close()
                self._opened_log = None
            self._forget()

    def drop(self) -> bool:
        with self._lock:
            existed = self.log.stored() is not None
            self._forget()
            self.log.drop()
            return existed

    def _forget(self) -> None:
        self._at = None
        super().drop()

    def beside(self, ending: str) -> ScratchJoin:
        """A replay of the join, for a label: the same one each time, until it is dropped."""
        label = ending.strip("_")
        if label not in self._shadows:
            self._shadows[label] = ScratchJoin(f"{self.location} ({label})")
        return self._shadows[label]

    def key_of(self, state: JoinState) -> tuple[str, ...]:
        """The columns that are the key of the joined rows: as named; else those of the left side, if a row of it has
        one partner at most; else those that tell both records. Empty until both sides are there.
        """
        if state.result is None:
            return ()
        for name in self._key:
            if name not in state.result.names:
                raise InvalidArgument(
                    f"{self.location} has the key column {name!r}, which the join does not have (it has"
                    f" {', '.join(state.result.names)})"
                )
            if not is_key_type(state.result.field(name).type):
                raise InvalidArgument(
                    f"{self.location} cannot have {name!r} in its key: {state.result.field(name).type} is not exact"
                )
        if self._key:
            return self._key
        left, right = (state.side(number, self.location).record_key for number in (0, 1))
        if state.spec.how != "asof" and (right is None or right not in state.spec.columns_of(1)):
            return _PAIR
        return (LEFT,) if left in (None, RECORD) else (str(left),)

    # --- one transaction ------------------------------------------------------------------------------------------

    def ensure(self, source_partitions: int) -> None:
        """Create the topics that are missing."""
        partitions = self.log.changes.ensure(self._partitions or source_partitions)
        for one in self.log.topics[1:]:
            one.ensure(partitions)
        self.log.ensure_bookmark_topic()

    def transacting(self, work: Callable[[], Result], *, rows: int, timeout_ms: int = TIMEOUT_MS) -> Result:
        """Run `work`, which may use `writing`, in a transaction of the log that commits after it."""

        def write(transaction: Transaction) -> Result:
            self._transaction = transaction
            try:
                return work()
            finally:
                self._transaction = None

        with self._lock:
            return self.log.fenced_from_others(write, rows=rows, timeout_ms=timeout_ms)

    @contextmanager
    def writing(self, *, create: bool = False) -> Iterator[Writing]:
        """The scratch database as of the stored bookmark. What is different at the end is sent with the transaction:
        whether that counts, the next bookmark tells.
        """
        stored = self.log.stored()
        self._bring_to(stored)
        try:
            with super().writing(create=True) as writing:
                self._watched = {}
                yield writing
                self._send(writing, stored)
        finally:
            self._watched = None

    def _bring_to(self, stored: JoinBookmark | None) -> None:
        if stored is None or not stored.has_rows_of(self._at):
            self._forget()
        if stored is None:
            return
        with super().writing(create=True) as writing:
            name = writing.tables.joined.name
            if self._at is None:
                writing.bookmarks.add_row(writing.run, name, JOIN_KIND, stored.bookmarks, stored.settings)
                self._load(writing, stored)
            else:
                writing.bookmarks.set_row(writing.run, name, stored.bookmarks, stored.settings)
        self._at = stored

    def _load(self, writing: Writing, stored: JoinBookmark) -> None:
        state, t = stored.state(self.location), writing.tables
        for number, side in enumerate(state.sides):
            if side is not None:
                columns = side.stored(state.spec)
                self.create_side(writing.run, t.side(number), columns)
                rows = self._rows(1 + number, TableShape(columns, (RECORD,), None), stored.topics[1 + number])
                for batch in closing_batches(rows, self.location):
                    self._fill_batch(writing, t.side(number), batch)
        if state.result is not None:
            self.create_joined(writing.run, t.joined, state.result)
            self.join_all(writing, state)

    def _fill_batch(self, writing: Writing, table: TableName, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        self.fill(writing, table, pa.Table.from_batches([batch]))

    def _rows(self, number: int, shape: TableShape, at: RowsEnd) -> KeyedRows:
        """The rows of one of the topics."""
        topic, rows = self.log.topics[number], KeyedRows(shape)
        try:
            if topic.topic_id() != at.topic_id:
                raise ViewUnavailable(self.location, f"its topic {topic.name} was deleted; rebuild the fold")
            topic.follow(rows, {}, at)
        except BaseException:
            rows.close()
            raise
        return rows

    def _send(self, writing: Writing, stored: JoinBookmark | None) -> None:
        state = self.state(writing)
        if state is None or self._transaction is None:
            raise ViewUnavailable(self.location, "it is written outside of a transaction")
        key = self.key_of(state)
        if stored is None:
            self.log.changes.check_unused()
        elif stored.key not in ((), key):
            raise SchemaChanged(self.location, f"its key is {', '.join(stored.key)}, and the fold's {', '.join(key)}")
        elif stored.has_old != self._has_old:
            has = "has old and new" if stored.has_old else "has only the new row"
            raise SchemaChanged(self.location, f"a record of it {has}, and the fold's is otherwise")
        ends = self._topics() if stored is None else stored.topics
        now_ms, after = SystemClock().now_ms(), list(ends)
        for table, watched in (self._watched or {}).items():
            number = (writing.tables.joined, writing.tables.left, writing.tables.right).index(table)
            if number == 0 and self._key:
                watched.check_unique(writing.run, key, self.location)
            changes = watched.changes(writing.run, key if number == 0 else (RECORD,), self.location)
            sent = self.log.topics[number].send(self._transaction, changes, ends[number], now_ms)
            after[number] = replace(ends[number], ends=sent)
        first, left, right = after
        new = JoinBookmark(state.bookmarks_json(), state.settings_json(), key, (first, left, right))
        if new != stored:
            self.log.send_bookmark(self._transaction, new)
        self._at = new

    def _topics(self) -> tuple[RowsEnd, RowsEnd, RowsEnd]:
        opened = self.log.log
        found = [opened.topic(one.name) for one in self.log.topics]
        first, left, right = (RowsEnd(one.topic_id, one.partition_count, {}) for one in found)
        return replace(first, has_old=self._has_old), left, right

    # --- what a change touches ------------------------------------------------------------------------------------

    def create_side(self, run: Run, table: TableName, columns: pa.Schema) -> None:
        check_columns(columns)
        super().create_side(run, table, columns)

    def create_joined(self, run: Run, table: TableName, columns: pa.Schema) -> None:
        super().create_joined(run, table, columns)
        if self._key:
            run(f"CREATE INDEX joined_key ON {table.sql} ({quoted_list(self._key)})")
        self._watch(run, table, columns, _PAIR)

    def change(self, writing: Writing, state: JoinState, side: int, change: SideChange) -> None:
        t, run = writing.tables, writing.run
        self._watch(run, t.side(side), state.side(side, self.location).stored(state.spec), (RECORD,))
        if state.result is not None:
            self._watch(run, t.joined, state.result, _PAIR)
        super().change(writing, state, side, change)

    def _watch(self, run: Run, table: TableName, columns: pa.Schema, key: tuple[str, ...]) -> None:
        if self._watched is not None:
            watched = _Watched(table, columns, key, len(self._watched))
            watched.begin(run)
            self._watched[table] = watched

    # --- replays --------------------------------------------------------------------------------------------------

    def put(self, shadow: ScratchJoin) -> None:
        """Write what makes the topics those of a replay, and its bookmark."""
        stored, transaction = self.log.stored(), self._transaction
        if stored is None or transaction is None:
            raise ViewUnavailable(self.location, "it does not exist any more; run the fold")
        with shadow.reading() as reading:
            state = shadow.state(reading)
            if state is None or state.is_loading or state.result is None:
                raise ViewUnavailable(shadow.location, "it is not there, or not loaded yet, so it cannot take a place")
            key, before, t = self.key_of(state), stored.state(self.location), reading.tables
            forms = [TableShape(state.result, key, None), *(_side_form(state, n, self.location) for n in (0, 1))]
            were = [
                TableShape(before.result if before.result is not None else state.result, stored.key or key, None),
                *(_side_form(before, n, self.location) if before.sides[n] else forms[1 + n] for n in (0, 1)),
            ]
            ends = list(self._kept_topics(stored))
            for number, table in enumerate((t.joined, t.left, t.right)):
                wanted = _kept_rows(shadow.batches(reading, table, forms[number].columns), forms[number], self.location)
                had_old = stored.topics[number].has_old
                live = self._rows(number, were[number], replace(ends[number], has_old=had_old))
                found = differences(live, wanted, all_anew=had_old != ends[number].has_old)
                sent = self.log.topics[number].send(transaction, found, ends[number], SystemClock().now_ms())
                ends[number] = replace(ends[number], ends=sent)
                live.close()
                wanted.close()
            first, left, right = ends
            self.log.send_bookmark(
                transaction, JoinBookmark(state.bookmarks_json(), state.settings_json(), key, (first, left, right))
            )
        self._forget()

    def _kept_topics(self, stored: JoinBookmark) -> Iterator[RowsEnd]:
        """The topics as stored; one that was made anew since is empty."""
        for now, at in zip(self._topics(), stored.topics, strict=True):
            yield replace(at, has_old=now.has_old) if now.topic_id == at.topic_id else now

    def scanned(self) -> tuple[JoinBookmark, KeyedRows] | None:
        """What is stored, and the joined rows, read from their topic."""

        def rows_at(stored: JoinBookmark) -> KeyedRows:
            result = stored.state(self.location).result
            if result is None:
                raise ViewUnavailable(self.location, "only one side of the join is there yet; run the fold")
            return KeyedRows(TableShape(result, stored.key, None))

        return self.log.settled(rows_at)


@dataclass(frozen=True, slots=True)
class _Watched:
    """Notes each row of a table that is deleted or inserted, as it was before."""

    table: TableName
    columns: pa.Schema
    key: tuple[str, ...]
    number: int

    @property
    def _before(self) -> str:
        return f"_foldlog_before{self.number}"

    def begin(self, run: Run) -> None:
        before, names = self._before, self.columns.names
        parts = ", ".join(f"{quoted(field.name)} {sqlite_type(field.type)}" for field in self.columns)
        run(f"CREATE TEMP TABLE {before} ({_WAS} INTEGER, {parts}, PRIMARY KEY ({quoted_list(self.key)}))")
        # The first note of a row counts: what comes later in the change is not how it was before.
        for name, event, was, values, noted in (
            ("deleted", "DELETE", 1, "OLD", names),
            ("inserted", "INSERT", 0, "NEW", self.key),
        ):
            given = ", ".join(f"{values}.{quoted(one)}" for one in noted)
            run(
                f"CREATE TEMP TRIGGER _foldlog_{name}{self.number} AFTER {event} ON {self.table.sql} BEGIN"
                f" INSERT OR IGNORE INTO {before} ({_WAS}, {quoted_list(noted)}) VALUES ({was}, {given}); END"
            )

    def changes(self, run: Run, key: Sequence[str], location: str) -> list[RowChange]:
        """What is different now, by the key of the rows. Nothing is noted any more."""
        before = self._before
        for name in ("deleted", "inserted"):
            run(f"DROP TRIGGER _foldlog_{name}{self.number}")
        listed = ", ".join(f"t.{quoted(name)}" for name in self.columns.names)
        was = run(f"SELECT {quoted_list(self.columns.names)} FROM {before} WHERE {_WAS}")
        now = run(f"SELECT {listed} FROM {before} b CROSS JOIN {self.table.sql} t WHERE {self._same}")
        old = _by_key(from_values(was, self.columns, location), key, location)
        new = _by_key(from_values(now, self.columns, location), key, location)
        run(f"DROP TABLE {before}")
        found = [RowChange(one, one, old.get(one), text) for one, text in new.items() if old.get(one) != text]
        return found + [RowChange(one, one, text, None) for one, text in old.items() if one not in new]

    @property
    def _same(self) -> str:
        return " AND ".join(f"t.{quoted(one)} = b.{quoted(one)}" for one in self.key)

    def check_unique(self, run: Run, key: Sequence[str], location: str) -> None:
        """FoldError if two joined rows have one key: which of them it stands for would depend on the split."""
        names = ", ".join(f"t.{quoted(one)}" for one in key)
        equal = " AND ".join(f"o.{quoted(one)} = t.{quoted(one)}" for one in key)
        other = " OR ".join(f"o.{quoted(one)} <> t.{quoted(one)}" for one in self.key)
        twice = run(
            f"SELECT {names} FROM {self._before} b CROSS JOIN {self.table.sql} t CROSS JOIN {self.table.sql} o"
            f" WHERE {self._same} AND {equal} AND ({other}) LIMIT 1"
        )
        if twice:
            told = ", ".join(f"{name}={value!r}" for name, value in zip(key, twice[0], strict=True))
            raise FoldError(
                f"{location}: two rows of the join have the key {told}; leave key= out, or name columns that make a row"
                " unique"
            )


def _by_key(rows: pa.RecordBatch, key: Sequence[str], location: str) -> dict[bytes, bytes]:
    import pyarrow as pa

    if not rows.num_rows:
        return {}
    table = pa.Table.from_batches([rows])
    for name in key:
        if table[name].null_count:
            raise FoldError(f"{location}: a row of the join has no {name!r}, which is its key; name other columns")
    return dict(zip(key_texts(table, key), (text.encode() for text in value_texts(table)), strict=True))


def _kept_rows(batches: Iterator[pa.RecordBatch], shape: TableShape, location: str) -> KeyedRows:
    rows = KeyedRows(shape)
    for batch in batches:
        found = _by_key(batch, shape.key, location)
        rows.read(found.keys(), found.values(), location)
    return rows


def _side_form(state: JoinState, number: int, location: str) -> TableShape:
    return TableShape(state.side(number, location).stored(state.spec), (RECORD,), None)


class _JoinedRows(JoinSide):
    """One side of a join whose result is, or is to be, the rows of a topic."""

    kind: ClassVar[str] = "changes"
    holds_nan: ClassVar[bool] = False
    keeps_old: ClassVar[bool] = False

    def description(self) -> dict[str, object] | None:
        return None


class JoinedChanges(_JoinedRows):
    """A topic into which a join is written, as one of its topics changes it."""

    def __init__(self, store: TopicJoin, side: int, are_keyed: tuple[bool, bool], declared: Declared) -> None:
        super().__init__(store, side, are_keyed, declared)
        self._joined = store

    @property
    def topic(self) -> str:
        return self._joined.topic

    def bind(self, spec: OriginSpec) -> None:
        """See `ChangesTopic.bind`."""
        self._joined.bind(spec)

    def ensure(self, source_partitions: int) -> None:
        """See `ChangesTopic.ensure`."""
        self._joined.ensure(source_partitions)

    def wait_readable(self) -> None:
        """See `ChangesTopic.wait_readable`."""
        self._joined.log.wait_readable()

    def bookmark(self) -> Bookmark | None:
        stored = self._joined.log.stored()
        return None if stored is None else stored.state(self.place).bookmarks[self._side]

    def prepare(self, shape: Shape, start: Bookmark, *, loading: bool = False) -> Bookmark:
        self._joined.ensure(max(1, len(start.positions)))
        return self._joined.transacting(partial(super().prepare, shape, start, loading=loading), rows=0)

    def apply(self, delta: Delta, expected: Bookmark, new: Bookmark) -> None:
        self._joined.transacting(partial(super().apply, delta, expected, new), rows=delta.row_count)

    def move(self, expected: Bookmark, new: Bookmark) -> None:
        self._joined.transacting(partial(super().move, expected, new), rows=0)

    def check_swap(self) -> None:
        """A swap writes differences, whatever there is."""

    def shadow(self, label: str) -> _JoinedRows:
        return _JoinedRows(self._joined.beside(label), self._side, self._are_keyed, self.declared)

    def swap(self, shadow: View) -> None:
        """Write what differs, in one transaction. Nothing of the old rows is kept but what the topic still has."""
        store = shadow.store if isinstance(shadow, JoinSide) else None
        if not isinstance(store, ScratchJoin):
            raise InvalidArgument(f"{shadow.place} is not a shadow of {self.place}")
        self._joined.ensure(1)
        self._joined.transacting(lambda: self._joined.put(store), rows=1 << 62, timeout_ms=SWAP_TIMEOUT_MS)
        shadow.drop()

    def drop_old(self) -> bool:
        return False  # the log keeps what it has until it is compacted

    def scan(self) -> Snapshot:
        found = self._joined.scanned()
        if found is None:
            raise ViewUnavailable(self.place, "it does not exist; run the fold")
        stored, rows = found
        marks = stored.state(self.place).bookmarks
        mine, other = marks[self._side], marks[1 - self._side]
        if mine is None or other is None:
            rows.close()
            raise ViewUnavailable(self.place, "only one side of the join is there yet; run the fold")
        return Snapshot(mine, closing_batches(rows, self.place), (other,))

    def size_bytes(self) -> int | None:
        return None


def joined_changes(
    topic: str, key: tuple[str, ...], are_keyed: tuple[bool, bool], *, has_old: bool, partitions: int | None
) -> tuple[View, View]:
    """Both sides of a join that is written to a topic."""
    store, declared = TopicJoin(topic, key, has_old=has_old, partitions=partitions), Declared()
    return JoinedChanges(store, 0, are_keyed, declared), JoinedChanges(store, 1, are_keyed, declared)
