"""The log's side of a capture: its topics, its bookmark, and transactions that hold both.

Beside the captured topics there is one for the bookmark, compacted, with two keys. `position` is written with every
transaction, and says how far the database was read; `tables` is written when it changes, and says which table goes
into which topic. `position` names the offset of its `tables`, so that both are found from the end, however long the
topic is.

Records and the bookmark after them are one transaction of the log. Its transactional id is the capture's: whoever uses
it fences who did before, and only then reads the bookmark. So of two processes one writes, and a killed one leaves
nothing that the next one would write again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from foldlog.broker.topics.names import CAPTURE_PREFIX
from foldlog.capture.records import COMMIT_HEADER, OP_HEADER, RecordForm, RowRecord
from foldlog.capture.topic_rows import TopicRows
from foldlog.client.fold_bulletin import FOLDS_CONFIG
from foldlog.client.handle_types import SendFuture
from foldlog.client.log import Log
from foldlog.client.transactions import Transaction
from foldlog.errors import (
    CaptureError,
    CaptureRunning,
    FoldlogError,
    InvalidTransactionState,
    LogNotFound,
    ProducerFenced,
    RecordTooLarge,
    TopicExists,
    UnknownTopic,
)
from foldlog.limits import TRANSACTION_TIMEOUT_MAX_MS

COMMITTED: Final = "read_committed"
POSITION_KEY: Final = b"position"
TABLES_KEY: Final = b"tables"

TOPIC_CONFIG: Final = {"cleanup.policy": "compact"}
"""Of a captured topic: the newest record of each key stays, so that the topic holds the table."""


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """A table in a topic. `since` is the position of its snapshot: what committed before is in it. None until a whole
    one is written."""

    title: str
    topic: str
    topic_id: str
    partitions: int
    keys: tuple[str, ...]
    since: int | None


@dataclass(slots=True)
class CaptureBookmark:
    """How far a database was read, and by which tables. `position` is None until the database keeps changes for us."""

    kind: str
    identity: str
    position: int | None = None
    tables: dict[str, FollowedTable] = field(default_factory=dict)
    is_changed: bool = True
    """Whether tables are other ones than the log has: most commits only move the position."""

    def follow(self, name: str, table: FollowedTable) -> None:
        self.tables[name] = table
        self.is_changed = True

    def tables_json(self) -> bytes:
        fields = {
            "version": 1,
            "kind": self.kind,
            "identity": self.identity,
            "tables": {name: asdict(table) for name, table in sorted(self.tables.items())},
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, tables: bytes, position: int | None) -> CaptureBookmark:
        fields = json.loads(tables)
        if fields["version"] != 1:
            raise ValueError(f"version {fields['version']} is a later foldlog's")
        found = {
            str(name): FollowedTable(**{**table, "keys": tuple(table["keys"])})
            for name, table in fields["tables"].items()
        }
        return cls(str(fields["kind"]), str(fields["identity"]), position, found, is_changed=False)


class CapturedLog:
    """The opened log of one capture. One thread."""

    def __init__(self, log: Log, name: str) -> None:
        self._log = log
        self._name = name
        self._bookmark_topic: Final = f"{CAPTURE_PREFIX}{name}"
        self._transactional_id: Final = f"foldlog-capture-{name}"
        self._tables_offset: int | None = None
        """Where the topic has what belongs to the key `tables`."""
        self._transaction: Transaction | None = None
        self._last: dict[str, SendFuture] = {}
        """Of each topic, the last record of the transaction that is under way."""

    # --- the bookmark ---------------------------------------------------------------------------------------------

    def take(self) -> CaptureBookmark | None:
        """Become the one who writes, and read how far the one before has come; None if there was none."""
        try:
            self._log.create_topic(self._bookmark_topic, 1, FOLDS_CONFIG)
        except TopicExists:
            pass
        # Fences whoever held the id, and ends what that one left open: from here on the bookmark stays as it is.
        self._begun().abort()
        self._transaction = None
        return self.stored()

    def stored(self) -> CaptureBookmark | None:
        """The committed bookmark; None if there is none."""
        self._tables_offset = None
        try:
            start, end = self._log.offsets(self._bookmark_topic, isolation=COMMITTED)[0]
        except (UnknownTopic, LogNotFound):
            return None
        value = self._newest(POSITION_KEY, start, end)
        if value is None:
            return None
        try:
            fields = json.loads(value)
            tables = self._tables_at(int(fields["tables"]), start, end)
            position = fields["position"]
            return CaptureBookmark.from_json(tables, None if position is None else int(position))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CaptureError(
                f"the bookmark of capture {self._name!r} in topic {self._bookmark_topic!r} cannot be understood"
                f" ({error}); delete that topic, and run the capture with --snapshot again"
            ) from error

    def _newest(self, key: bytes, start: int, end: int) -> bytes | None:
        """From the end back: a bookmark is followed by a marker, and by what was aborted."""
        look = 16
        while True:
            first = max(start, end - look)
            records = self._log.read(self._bookmark_topic, 0, start=first, stop=end, isolation=COMMITTED)
            values = [record.value for record in records if record.key == key]
            if values or first == start:
                return values[-1] if values else None
            look *= 8

    def _tables_at(self, offset: int, start: int, end: int) -> bytes:
        """From where the position says it is; a topic that was copied may have it elsewhere."""
        found: bytes | None = None
        if start <= offset < end:
            records = self._log.read(self._bookmark_topic, 0, start=offset, stop=offset + 1, isolation=COMMITTED)
            found = next((record.value for record in records if record.key == TABLES_KEY), None)
        if found is not None:
            self._tables_offset = offset
            return found
        found = self._newest(TABLES_KEY, start, end)
        if found is None:
            raise ValueError("it names no tables")
        return found

    # --- topics ---------------------------------------------------------------------------------------------------

    def ensure_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> tuple[str, int]:
        """Create it unless it exists; its id, and how many partitions it has."""
        try:
            made = self._log.create_topic(topic, partitions, {**TOPIC_CONFIG, **config})
        except TopicExists:
            made = self._log.topic(topic)
        return made.topic_id, made.partition_count

    def has_records(self, topic: str) -> bool:
        return any(
            next(self._log.read(topic, number, max_records=1, isolation=COMMITTED), None) is not None
            for number in self._log.offsets(topic)
        )

    def newest(self, topic: str, form: RecordForm) -> TopicRows:
        """What the topic holds: all that was committed, and what the transaction under way has written."""
        try:
            return TopicRows(self._rows(topic, form))
        except (ValueError, KeyError, IndexError, RecursionError) as error:
            raise CaptureError(
                f"topic {topic!r} has a record that no capture of this kind has written ({error}); choose another topic"
                " for the table, or delete this one and run the capture with --snapshot again"
            ) from error

    def _rows(self, topic: str, form: RecordForm) -> Iterator[tuple[bytes, str | None]]:
        if topic in self._last:
            self._flush(topic)
        for number, (start, end) in self._log.offsets(topic, isolation=COMMITTED).items():
            committed = self._log.read(topic, number, start=start, stop=end, isolation=COMMITTED)
            # Nobody else writes here, and `take` has ended what was open. So behind the last stable offset there is
            # what this transaction has written, and what was committed and a cluster has not marked yet.
            ours = self._log.read(topic, number, start=end, isolation="read_uncommitted")
            for records in (committed, ours):
                for record in records:
                    if record.key is not None:
                        yield record.key, form.row_of(record.value)

    # --- writing --------------------------------------------------------------------------------------------------

    def send(self, topic: str, record: RowRecord, commit: str, timestamp_ms: int) -> None:
        """As part of the transaction under way; the first record begins one."""
        headers = ((OP_HEADER, record.op.encode()), (COMMIT_HEADER, commit.encode()))
        try:
            self._last[topic] = self._begun().send(
                topic, record.value, record.key, headers=headers, timestamp_ms=timestamp_ms
            )
        except RecordTooLarge as error:
            raise CaptureError(
                f"a row is too large for topic {topic!r}: {error}, and run again: foldlog topic alter {topic}"
                " --config max.message.bytes=BYTES"
            ) from error
        except InvalidTransactionState as error:
            raise self._fenced() from error

    def commit(self, bookmark: CaptureBookmark) -> None:
        """Everything that was sent, and the bookmark: durable on return, or not there at all."""
        transaction = self._begun()
        try:
            if self._tables_offset is None or bookmark.is_changed:
                sent = transaction.send(self._bookmark_topic, bookmark.tables_json(), TABLES_KEY)
                self._tables_offset = sent.result().offset
            position: dict[str, Any] = {"position": bookmark.position, "tables": self._tables_offset}
            transaction.send(self._bookmark_topic, json.dumps(position, separators=(",", ":")), POSITION_KEY)
            transaction.commit()
            bookmark.is_changed = False
        except ProducerFenced as error:
            raise self._fenced() from error
        self._transaction = None
        self._last.clear()

    def abort(self) -> None:
        """Whatever was sent does not count. After an error it may be over already."""
        transaction, self._transaction = self._transaction, None
        self._tables_offset = None
        self._last.clear()
        if transaction is not None:
            try:
                transaction.abort()
            except FoldlogError:
                pass  # whoever takes the id next aborts it

    @property
    def is_begun(self) -> bool:
        return self._transaction is not None

    def _begun(self) -> Transaction:
        if self._transaction is None:
            self._transaction = self._log.transaction(self._transactional_id, timeout_ms=TRANSACTION_TIMEOUT_MAX_MS)
        return self._transaction

    def _flush(self, topic: str) -> None:
        try:
            self._last[topic].result()
        except ProducerFenced as error:
            raise self._fenced() from error

    def _fenced(self) -> CaptureRunning:
        return CaptureRunning(
            f"another process writes capture {self._name!r} now, or a transaction was open for more than"
            f" {TRANSACTION_TIMEOUT_MAX_MS // 60_000} minutes; run it in one place at a time"
        )
