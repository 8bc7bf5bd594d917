"""The topics of a changes view in its log: the changes, compacted; and beside them its bookmark, in a topic with one
key.

What a range changes and the bookmark after it are one transaction of the log. The transactional id is the topic's own:
its coordinator fences who held it before, so that of two writers one commits, and the other finds another bookmark.
That is how a bookmark is compared and set, in a directory and on a cluster alike. A record of the bookmark says where
the changes end that belong to it: whoever reads both reads one state.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from foldlog.client.backends.directory import directory_of
from foldlog.client.backends.served.broker import RemoteBroker
from foldlog.client.fold_bulletin import CHANGES_PREFIX, FOLDS_CONFIG
from foldlog.client.handle_types import SendFuture
from foldlog.client.log import Log, connect_log, open_shared
from foldlog.client.transactions import Transaction
from foldlog.errors import (
    ConcurrentTransactions,
    DirectoryLocked,
    FoldlogError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    LogNotFound,
    RefusedByBroker,
    TopicExists,
    UnknownTopic,
    ViewUnavailable,
)
from foldlog.spark.change_topics.keyed_rows import KeyedRows
from foldlog.spark.change_topics.rows_topic import COMMITTED, RowsTopic, Written, wait_marked
from foldlog.spark.origins.origin import ISOLATION_LEVEL, OriginSpec
from foldlog.views.bookmark import Bookmark
from foldlog.views.table.shape import TableShape

BOOKMARK_KEY: Final = b"bookmark"

TIMEOUT_MS: Final = 60_000
"""Of a range's transaction. Readers wait for the end of one whose writer died, unless another writer comes first."""

SWAP_TIMEOUT_MS: Final = 900_000
"""Of a rebuild's transaction, which may write every row: Kafka's maximum for it."""

_SETTLE_TRIES: Final = 20
"""How often rows are read on because the fold has: each time there is less."""

_KEPT_MOMENT_ROWS: Final = 2000
"""Up to so many rows, a directory that nobody serves is opened once for the whole transaction; with more, others who
write it would wait too long."""

_TRIES: Final = 12
"""How often a transaction is begun that other writers fence: the pauses in between add up to some seconds."""

_FENCED: Final = (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    ConcurrentTransactions,
)

_UNKNOWN_SERVER_ERROR: Final = -1

Result = TypeVar("Result")


class TopicBookmark(Written, Protocol):
    """What the newest record of the bookmark says of the topic of that id."""

    @property
    def topic_id(self) -> str: ...

    def to_json(self) -> str: ...

    def has_form_of(self, other: Any) -> bool:
        """Whether rows of the one are rows of the other, too."""


Stored = TypeVar("Stored", bound=TopicBookmark)


@dataclass(frozen=True, slots=True)
class ChangesBookmark:
    """Of a fold of one topic: see `TopicBookmark`."""

    bookmark: Bookmark
    shape: TableShape
    topic_id: str
    partitions: int
    ends: Mapping[int, int]
    has_old: bool

    def has_form_of(self, other: ChangesBookmark) -> bool:
        return self.shape == other.shape and self.topic_id == other.topic_id

    def to_json(self) -> str:
        fields = {
            "bookmark": json.loads(self.bookmark.to_json()),
            "shape": json.loads(self.shape.to_json()),
            "topic_id": self.topic_id,
            "partitions": self.partitions,
            "ends": {str(number): end for number, end in sorted(self.ends.items())},
            "old": self.has_old,
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: bytes, location: str) -> ChangesBookmark:
        try:
            fields = json.loads(text)
            return cls(
                Bookmark.from_json(json.dumps(fields["bookmark"])),
                TableShape.from_json(json.dumps(fields["shape"]), location),
                str(fields["topic_id"]),
                int(fields["partitions"]),
                {int(number): int(end) for number, end in fields["ends"].items()},
                bool(fields["old"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, FoldlogError) as error:
            raise ViewUnavailable(location, f"its bookmark cannot be understood ({error})") from error


class ChangesLog(Generic[Stored]):
    """The opened log of one changes topic. Used by one thread at a time. `parse` makes of a record of the bookmark what
    it says; `beside` are topics of rows that are written and dropped with it.
    """

    def __init__(
        self,
        spec: OriginSpec,
        topic: str,
        location: str,
        parse: Callable[[bytes, str], Stored],
        beside: Sequence[str] = (),
    ) -> None:
        """Connects to nothing."""
        self._spec = spec
        self.topic = topic
        self._parse = parse
        self.topics: Final = [RowsTopic(lambda: self.log, name, location) for name in (topic, *beside)]
        self.bookmark_topic: Final = bookmark_topic(topic)
        self.transactional_id: Final = f"foldlog-changes-{topic}"
        self._location = location
        self._log: Log | None = None
        self._seen: tuple[str, int, Stored | None] | None = None
        """The id of the topic of the bookmark, its end, and what was read up to there."""
        self._sent: list[SendFuture] = []
        """The bookmark of the transaction that is under way."""

    def close(self) -> None:
        """It can be used again."""
        log, self._log = self._log, None
        if log is not None:
            with suppress(FoldlogError):  # a transaction that is left open is aborted by whoever comes next
                log.close()

    @property
    def log(self) -> Log:
        if self._log is None:
            self._log = _opened(self._spec)
        return self._log

    def drop(self) -> None:
        """Delete the topics, if they exist. The bookmark last: alone it is not one of the topic that comes next."""
        for name in (*(one.name for one in self.topics), self.bookmark_topic):
            try:
                self.log.delete_topic(name)
            except (UnknownTopic, LogNotFound):
                pass

    @property
    def changes(self) -> RowsTopic:
        return self.topics[0]

    # --- reading --------------------------------------------------------------------------------------------------

    def stored(self) -> Stored | None:
        """The committed bookmark; None if there is none, or it is of an earlier topic of that name."""
        try:
            topic_id = self.log.topic(self.bookmark_topic).topic_id
            start, end = self.log.offsets(self.bookmark_topic, isolation=COMMITTED)[0]
        except (UnknownTopic, LogNotFound):
            return None
        if self._seen is None or self._seen[:2] != (topic_id, end):
            self._seen = (topic_id, end, self._newest(start, end))
        found = self._seen[2]
        return None if found is None or found.topic_id != self.changes.topic_id() else found

    def _newest(self, start: int, end: int) -> Stored | None:
        """From the end back: a bookmark is followed by a marker, and by what was aborted."""
        look = 16
        while True:
            first = max(start, end - look)
            records = self.log.read(self.bookmark_topic, 0, start=first, stop=end, isolation=COMMITTED)
            values = [record.value for record in records if record.key == BOOKMARK_KEY]
            if values:
                return None if values[-1] is None else self._parse(values[-1], self._location)
            if first == start:
                return None
            look *= 8

    def wait_readable(self) -> None:
        """Until every reader of committed records can read what was committed last."""
        stored = self.stored()
        if stored is not None:
            wait_marked(self.log, self.topic, stored.ends, self._location)

    def settled(self, rows_at: Callable[[Stored], KeyedRows]) -> tuple[Stored, KeyedRows] | None:
        """What is stored, and the rows of the topic that belong to it; None if nothing is. `rows_at` makes a place for
        them."""
        stored = self.stored()
        if stored is None:
            return None
        rows, read = rows_at(stored), dict[int, int]()
        try:
            for _ in range(_SETTLE_TRIES):
                self.changes.follow(rows, read, stored)
                # Compaction may have removed rows of this state meanwhile, but only if there are newer ones.
                again = self.stored()
                if again == stored:
                    return stored, rows
                if again is None or not again.has_form_of(stored):
                    break
                stored = again
        except BaseException:
            rows.close()
            raise
        rows.close()
        raise ViewUnavailable(self._location, "it changes faster than it is read; pause the fold, and try again")

    # --- writing --------------------------------------------------------------------------------------------------

    def fenced_from_others(self, write: Callable[[Transaction], Result], *, rows: int, timeout_ms: int) -> Result:
        """Run `write` in a transaction that commits after it, unless it raises: nobody else has written between its
        beginning and its end. It is run again if another writer came between.
        """
        for number in range(_TRIES):
            try:
                return self._once(write, rows=rows, timeout_ms=timeout_ms)
            except _FENCED:
                # Another writer has the id. Leave it the time to finish, then look what the bookmark is by now.
                self.close()
                time.sleep(random.uniform(0, 0.01 * 2 ** min(number, 7)))
            except RefusedByBroker as error:
                # So Apache Kafka answers who is fenced while it commits. The bookmark tells whether that counts.
                if error.code != _UNKNOWN_SERVER_ERROR:
                    raise
                self.close()
            except DirectoryLocked as error:
                raise ViewUnavailable(self._location, str(error)) from error
        raise ViewUnavailable(
            self._location, f"other runners write it all the time ({_TRIES} tries); run the fold once"
        )

    def _once(self, write: Callable[[Transaction], Result], *, rows: int, timeout_ms: int) -> Result:
        self._seen = None
        self._sent.clear()
        with self._moment(rows), self.log.transaction(self.transactional_id, timeout_ms=timeout_ms) as transaction:
            result = write(transaction)
        for sent in self._sent:
            # A cluster answers a commit before it has marked every partition: for a moment nobody can read it.
            wait_marked(self.log, self.bookmark_topic, {0: sent.result().offset + 1}, self._location)
        return result

    def _moment(self, rows: int) -> AbstractContextManager[None]:
        if self._spec.path is None or rows > _KEPT_MOMENT_ROWS:
            return nullcontext()
        broker = directory_of(self.log).broker
        return broker.kept_moment() if isinstance(broker, RemoteBroker) else nullcontext()

    def send_bookmark(self, transaction: Transaction, stored: Stored) -> None:
        sent = transaction.send(self.bookmark_topic, stored.to_json().encode(), BOOKMARK_KEY, partition=0)
        self._sent.append(sent)

    def ensure_bookmark_topic(self) -> None:
        try:
            self.log.create_topic(self.bookmark_topic, 1, FOLDS_CONFIG)
        except TopicExists:
            pass


def bookmark_topic(topic: str) -> str:
    """The topic with the bookmark of a changes topic: where it exists, the other is one.

    >>> bookmark_topic("orders_enriched")
    '__changes.orders_enriched'
    """
    return f"{CHANGES_PREFIX}{topic}"


def _opened(spec: OriginSpec) -> Log:
    if spec.path is not None:
        return open_shared(spec.path)
    properties = {name: value for name, value in spec.properties.items() if name != ISOLATION_LEVEL}
    return connect_log(f"kafka://{spec.bootstrap}", properties)
