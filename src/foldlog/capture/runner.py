"""Runs a capture: the snapshot, then the stream, one transaction of the log for each of the database's.

The order that makes it exactly once:

1. `CapturedLog.take` fences whoever wrote before, and reads the bookmark.
2. The database keeps changes from a position on (`CapturedDatabase.prepare`). Before it is asked to, an empty bookmark
   is written: so what it keeps under our name is ours, whenever this process is killed.
3. Tables without a whole snapshot get one. It has a position, too: what committed before is in it, and the stream
   leaves those changes of the table out.
4. The stream goes on from the bookmark's position. A transaction of the log holds a transaction's changes and the
   position after it. Only then the database is told that it may forget them.

A snapshot compares: where the topic has a row already, only what differs is written, and what is gone is deleted. The
first one finds an empty topic. One after a kill, or after changes were lost, brings the topic to the table's state.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from foldlog.capture.captured_log import CaptureBookmark, CapturedLog, FollowedTable
from foldlog.capture.database import (
    DELETE,
    INSERT,
    READ,
    UPDATE,
    CapturedDatabase,
    DatabaseStatus,
    Fragments,
    NothingNew,
    RowChanged,
    RowLayout,
    SchemaMoved,
    Table,
    TableReplaced,
    TablesTruncated,
    TransactionBegins,
    TransactionEnds,
)
from foldlog.capture.declaration import Capture
from foldlog.capture.records import Events, RowRecord
from foldlog.capture.topic_rows import TopicRows, members
from foldlog.client.log import Log
from foldlog.clock import Clock, SystemClock
from foldlog.errors import CaptureError, ChangesLost, DatabaseUnavailable, InvalidArgument

IDLE_EVERY_MS: Final = 10_000
"""How often the bookmark follows a database in which nothing of ours changes: it can forget only what is behind it."""

SNAPSHOT_COMMIT_MS: Final = 5 * 60_000
"""A snapshot that takes longer is written in several transactions: one may not be open for more than 15 minutes."""

_RETRY_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
_UNFIT: Final = re.compile(r"[^a-zA-Z0-9._-]")


@dataclass(slots=True)
class Captured:
    """What a run has done so far."""

    transactions: int = 0
    records: int = 0
    snapshot_rows: int = 0
    position: int | None = None


Tell = Callable[[str], None]


def topic_name(capture: Capture, table: Table) -> str:
    """The topic of a table: as the capture says, or made of the capture's name and the table's."""
    chosen = capture.topics.get(table.title) or capture.topics.get(table.name)
    return chosen or _UNFIT.sub("_", f"{capture.name}.{table.title}")


class CaptureRunner:
    """One capture into one log, by one thread. `stop` ends it after the transaction under way."""

    def __init__(
        self,
        capture: Capture,
        log: Log,
        *,
        stop: threading.Event | None = None,
        tell: Tell | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.captured: Final = Captured()
        self._capture = capture
        self._store = CapturedLog(log, capture.name)
        self._stop = stop or threading.Event()
        self._tell = tell or (lambda _: None)
        self._clock = clock or SystemClock()
        self._bookmark = CaptureBookmark("", "")
        self._begun = TransactionBegins(0, 0, 0)
        self._events: Events | None = None
        """Of the transaction that is read."""
        self._read = 0
        """How far the stream was read; the bookmark is there after the next commit."""
        self._together = 0
        self._stored_ms = 0.0
        self._moved: frozenset[str] = frozenset()
        """Tables that have become other ones under the stream."""
        self._newest: dict[str, TopicRows] = {}
        self._kept_newest: set[str] = set()
        """Topics whose newest rows are needed again: their table leaves values out that did not change."""

    def run(self, *, once: bool = False, again: bool = False) -> None:
        """Until `stop`; with `once`, until everything is written that had committed when the stream began. `again`
        begins with a snapshot of every table. A connection that is lost is made again, unless `once`."""
        failures = 0
        while not self._stop.is_set():
            before = self.captured.position
            try:
                self._attempt(once=once, again=again)
            except SchemaMoved as moved:
                again = False
                self._moved = moved.tables
                self._tell(f"{moved}; its tables are compared with their topics")
            except DatabaseUnavailable as error:
                if self._stop.is_set():
                    return
                again = again and self.captured.position is None
                failures = 0 if self.captured.position != before else failures + 1
                if once or self.captured.position is None:
                    raise
                self._tell(f"{error}; trying again")
                self._stop.wait(_RETRY_S[min(failures, len(_RETRY_S) - 1)])
            else:
                return

    def _attempt(self, *, once: bool, again: bool) -> None:
        source = self._capture.source(self._tell, self._stop)
        try:
            tables = self._begin(source, again)
            if self._snapshot(source, tables, is_expected=again):
                self._follow(source, source.end() if once else None)
        finally:
            self._store.abort()
            for topic in list(self._newest):
                self._newest.pop(topic).close()
            source.close()

    # --- before the stream ----------------------------------------------------------------------------------------

    def _begin(self, source: CapturedDatabase, again: bool) -> list[Table]:
        """Fence, compare the bookmark with the database, and let it keep changes; the tables to capture."""
        source.wait_until_free()
        stored = self._store.take()
        identity, tables = source.identity(), source.tables()
        if stored is not None and stored.position is not None and not again:
            self._check_same(stored, source, identity, tables)
        is_new = stored is None
        bookmark = stored or CaptureBookmark(source.kind, identity)
        if is_new or again or bookmark.position is None:
            if is_new:
                source.check_unused()
            bookmark.kind, bookmark.identity, bookmark.is_changed = source.kind, identity, True
            bookmark.position = None
            for name, table in bookmark.tables.items():
                bookmark.follow(name, replace(table, since=None))
        self._bookmark = bookmark
        self._assign(tables, again)
        stale = source.stale(tables) | (self._moved & {table.id for table in tables})
        self._moved = frozenset()
        for name in stale:
            bookmark.follow(name, replace(bookmark.tables[name], since=None))
        if stale or bookmark.position is None:
            self._store.commit(bookmark)
        bookmark.position = source.prepare(tables, bookmark.position, anew=again)
        return tables

    def _check_same(
        self, stored: CaptureBookmark, source: CapturedDatabase, identity: str, tables: Sequence[Table]
    ) -> None:
        name = self._capture.name
        if stored.kind != source.kind:
            raise CaptureError(
                f"capture {name!r} of this log is one of {stored.kind}, not of {source.kind}; give this one another"
                " name"
            )
        if stored.identity != identity:
            raise ChangesLost(name, source.why_another())
        for table in tables:
            known = stored.tables.get(table.id)
            if known is not None and known.since is not None and known.keys != table.keys:
                raise ChangesLost(
                    name,
                    f"the primary key of {table.title} was ({', '.join(known.keys)}) and is ({', '.join(table.keys)})",
                )

    def _assign(self, tables: Sequence[Table], again: bool) -> None:
        """Give every table its topic. A topic with records that the bookmark does not know is somebody else's."""
        followed = self._bookmark.tables
        ours = {table.topic for table in followed.values()}
        taken: dict[str, str] = {}
        for table in tables:
            known = followed.get(table.id)
            # A table that was renamed goes on in its topic, unless the capture says where.
            is_named = table.title in self._capture.topics or table.name in self._capture.topics
            topic = known.topic if known is not None and not is_named else topic_name(self._capture, table)
            if topic in taken:
                raise InvalidArgument(
                    f"tables {taken[topic]} and {table.title} would both go into topic {topic!r}; name a topic for one"
                    f" of them: --table {table.title}=TOPIC"
                )
            taken[topic] = table.title
            topic_id, partitions = self._store.ensure_topic(topic, self._capture.partitions, self._capture.topic_config)
            since = known.since if known is not None else None
            if known is None or known.topic_id != topic_id:
                since = None
                if topic not in ours and not again and self._store.has_records(topic):
                    raise CaptureError(
                        f"topic {topic!r} has records that this capture did not write; name another topic for"
                        f" {table.title}, or bring this one to the table's state with --snapshot again"
                    )
            elif known.partitions != partitions:
                raise CaptureError(
                    f"topic {topic!r} had {known.partitions} partitions and has {partitions}, so keys have moved;"
                    " delete it, and run again: the table gets a new snapshot"
                )
            found = FollowedTable(table.title, topic, topic_id, partitions, table.keys, since)
            if found != known:
                self._bookmark.follow(table.id, found)
        for name in set(followed) - {table.id for table in tables}:
            if followed[name].since is not None:  # left out now; if it comes back, it is compared
                self._bookmark.follow(name, replace(followed[name], since=None))

    def _snapshot(self, source: CapturedDatabase, tables: Sequence[Table], *, is_expected: bool) -> bool:
        """Of the tables without one; False if asked to stop."""
        missing = [table for table in tables if self._bookmark.tables[table.id].since is None]
        if not missing:
            return True
        names = ", ".join(table.title for table in missing[:5]) + (" and more" if len(missing) > 5 else "")
        self._tell(f"snapshot {'again ' if is_expected else ''}of {names}")
        self._stored_ms = self._clock.monotonic_ms()
        with source.snapshot(missing) as snapshot:
            begun = TransactionBegins(snapshot.position, 0, self._clock.now_ms())
            events = Events(self._capture.form, self._capture.name, source, begun, is_snapshot=True)
            for table in missing:
                with closing(snapshot.rows(table)) as rows:
                    if not self._snapshot_table(source, table, rows, events, begun):
                        return False
            for table in missing:
                followed = self._bookmark.tables[table.id]
                self._bookmark.follow(table.id, replace(followed, since=snapshot.position))
            self._commit(self._bookmark.position)
        self._tell(f"snapshot done, rows written: {self.captured.snapshot_rows}")
        return True

    def _snapshot_table(
        self,
        source: CapturedDatabase,
        table: Table,
        rows: Iterable[tuple[RowLayout, Fragments]],
        events: Events,
        begun: TransactionBegins,
    ) -> bool:
        """Write what differs between the table and its topic; False if asked to stop."""
        topic, form = self._bookmark.tables[table.id].topic, self._capture.form
        newest = self._store.newest(topic, form) if self._store.has_records(topic) else None
        position, commit, now_ms = begun.position, source.position_text(begun.position), begun.committed_ms
        layout: RowLayout | None = None
        try:
            for layout, row in rows:
                if self._stop.is_set():
                    return False
                if newest is not None and newest.pop(form.key(layout, row)) == layout.document(row):
                    continue
                for record in events.put(READ, layout, row, None, position, now_ms):
                    self._send(topic, record, commit, now_ms)
                self.captured.snapshot_rows += 1
                if self._clock.monotonic_ms() - self._stored_ms > SNAPSHOT_COMMIT_MS:
                    self._store.commit(self._bookmark)
                    self._stored_ms = self._clock.monotonic_ms()
            empty = layout or RowLayout(table.schema, table.name, table.keys, table.keys)
            for key, before in newest.drain() if newest is not None else ():
                for record in events.delete_key(key, empty, before, position, now_ms):
                    self._send(topic, record, commit, now_ms)
        finally:
            if newest is not None:
                newest.close()
        return True

    # --- the stream -----------------------------------------------------------------------------------------------

    def _follow(self, source: CapturedDatabase, end: int | None) -> None:
        """Until `stop`, or until the stream has come to `end`."""
        self._read = position = self._bookmark.position or 0
        self._together, self._stored_ms = 0, self._clock.monotonic_ms()
        self.captured.position = position
        source.confirm(position)
        snapshots = {table.since for table in self._bookmark.tables.values() if table.since is not None}
        with closing(source.stream(position, snapshots)) as stream:
            for event in stream:
                if isinstance(event, RowChanged):
                    self._write(source, event)
                elif isinstance(event, TransactionBegins):
                    self._begun = event
                    self._events = Events(self._capture.form, self._capture.name, source, event)
                elif isinstance(event, TablesTruncated):
                    self._truncate(source, event)
                elif isinstance(event, TableReplaced):
                    self._replace(event)
                elif self._settle(source, event, end):
                    return

    def _settle(self, source: CapturedDatabase, event: TransactionEnds | NothingNew, end: int | None) -> bool:
        """Between two transactions: commit what is due. Whether this was the end."""
        self._read = max(self._read, event.position)
        is_done = self._stop.is_set() or (end is not None and self._read >= end)
        is_due = is_done or self._clock.monotonic_ms() - self._stored_ms >= IDLE_EVERY_MS
        if self._store.is_begun:
            # Several together only while more is there to be read: else readers would wait for nothing.
            self._together += isinstance(event, TransactionEnds)
            is_due = is_due or self._together >= self._capture.together or isinstance(event, NothingNew)
        if is_due and (self._store.is_begun or self._read > (self._bookmark.position or 0)):
            self._commit(self._read)
            self._stored_ms = self._clock.monotonic_ms()
            source.confirm(self._read)
            self.captured.transactions += self._together
            self._together = 0
        return is_done

    def _commit(self, position: int | None) -> None:
        self._bookmark.position = position
        self._store.commit(self._bookmark)
        self.captured.position = position
        for topic in set(self._newest) - self._kept_newest:
            self._newest.pop(topic).close()

    def _followed(self, table: str) -> FollowedTable | None:
        """Where a change goes; None if the table is not captured, or its snapshot has the change."""
        followed = self._bookmark.tables.get(table)
        if followed is None or followed.since is None or self._begun.position < followed.since:
            return None
        return followed

    def _write(self, source: CapturedDatabase, change: RowChanged) -> None:
        followed, events, begun = self._followed(change.table), self._events, self._begun
        if followed is None or events is None:
            return
        layout, form = change.layout, self._capture.form
        if layout.key_names != followed.keys:
            raise ChangesLost(self._capture.name, f"the primary key of {followed.title} is another one now")
        now_ms = self._clock.now_ms()
        before = layout.document(change.old) if change.old is not None and change.is_old_whole else None
        records: list[RowRecord] = []
        if change.op == DELETE:
            records += events.delete(layout, change.old or (), before, change.position, now_ms)
        elif change.new is not None:
            op, old, new = change.op, change.old, change.new
            if None in new:
                new = self._completed(followed, change)
            if op == UPDATE and old is not None and form.key(layout, old) != form.key(layout, new):
                records += events.delete(layout, old, before, change.position, now_ms)
                op, before = INSERT, None
            records += events.put(op, layout, new, before, change.position, now_ms)
        commit = source.position_text(begun.position)
        for record in records:
            self._send(followed.topic, record, commit, min(begun.committed_ms, now_ms))

    def _completed(self, followed: FollowedTable, change: RowChanged) -> Fragments:
        """The new row, with the values that the database left out because they did not change."""
        layout, old, new = change.layout, change.old, change.new or ()
        if change.is_old_whole and old is not None:
            return [value if value is not None else old[index] for index, value in enumerate(new)]
        self._kept_newest.add(followed.topic)
        # The key never is left out: the row was looked for with it.
        row = self._rows_of(followed.topic).get(self._capture.form.key(layout, old if old is not None else new))
        known = {} if row is None else members(row)
        filled = []
        for name, value in zip(layout.columns, new, strict=True):
            if value is None:
                value = known.get(name)
            if value is None:
                raise ChangesLost(
                    self._capture.name,
                    f"PostgreSQL leaves out large values that did not change, and topic {followed.topic!r} no longer"
                    f" has column {name!r} of {followed.title}; ALTER TABLE {followed.title} REPLICA IDENTITY FULL"
                    " lets it send them",
                )
            filled.append(value)
        return filled

    def _truncate(self, source: CapturedDatabase, event: TablesTruncated) -> None:
        begun, events = self._begun, self._events
        for table in event.tables:
            followed = self._followed(table)
            if followed is None or events is None:
                continue
            schema, _, name = followed.title.rpartition(".")
            layout = RowLayout(schema, name, followed.keys, followed.keys)
            now_ms = self._clock.now_ms()
            for key, before in self._rows_of(followed.topic).drain():
                for record in events.delete_key(key, layout, before, begun.position, now_ms):
                    self._send(followed.topic, record, source.position_text(begun.position), now_ms)

    def _replace(self, event: TableReplaced) -> None:
        """The bookmark stays before the event until the tables are compared; then they have snapshots of after it."""
        moved = frozenset(table for table in event.tables if self._followed(table) is not None)
        if moved:
            raise SchemaMoved(f"another table is {', '.join(sorted(moved))} now", moved)

    def _rows_of(self, topic: str) -> TopicRows:
        if topic not in self._newest:
            self._newest[topic] = self._store.newest(topic, self._capture.form)
        return self._newest[topic]

    def _send(self, topic: str, record: RowRecord, commit: str, timestamp_ms: int) -> None:
        self._store.send(topic, record, commit, timestamp_ms)
        self.captured.records += 1
        if topic in self._newest:
            self._newest[topic].put(record.key, record.row)


def run(
    capture: Capture,
    log: Log,
    *,
    once: bool = False,
    snapshot_again: bool = False,
    stop: threading.Event | None = None,
    tell: Tell | None = None,
) -> Captured:
    """Write the changes of a database's tables into the log, from where the last run ended. See docs/capture.md.

    The first run begins with a snapshot. `once` returns when everything is written that had committed by then; else it
    goes on until `stop` is set. `snapshot_again` compares every table with its topic first, and writes what differs.
    `tell` gets sentences for people.
    """
    if not isinstance(capture, Capture):
        raise InvalidArgument("run() takes a capture, such as foldlog.capture.postgres('postgresql://…')")
    runner = CaptureRunner(capture, log, stop=stop, tell=tell)
    runner.run(once=once, again=snapshot_again)
    return runner.captured


@dataclass(frozen=True, slots=True)
class CaptureStatus:
    """A capture as the log and the database see it."""

    name: str
    place: str
    bookmark: str | None
    tables: tuple[FollowedTable, ...]
    source: DatabaseStatus


def status(capture: Capture, log: Log) -> CaptureStatus:
    """How far a capture is, and what the database keeps for it."""
    stored = CapturedLog(log, capture.name).stored()
    position = None if stored is None else stored.position
    source = capture.source(lambda _: None, threading.Event())
    try:
        found = source.status(position)
        text = None if position is None else source.position_text(position)
        followed = () if stored is None else tuple(sorted(stored.tables.values(), key=lambda table: table.title))
        return CaptureStatus(capture.name, source.place, text, followed, found)
    finally:
        source.close()


def consent(capture: Capture) -> str | None:
    """The question to ask before a first run puts something on the user's own tables; None if there is none to ask."""
    source = capture.source(lambda _: None, threading.Event())
    try:
        return source.consent()
    finally:
        source.close()


def drop(capture: Capture) -> list[str]:
    """Remove what the capture made in the database, and return what that was. The log is not touched: a run after this
    needs `snapshot_again`."""
    source = capture.source(lambda _: None, threading.Event())
    try:
        return source.drop()
    finally:
        source.close()
