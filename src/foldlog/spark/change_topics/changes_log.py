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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from foldlog.client.backends.directory import directory_of
from foldlog.client.backends.served.broker import RemoteBroker
from foldlog.client.fold_bulletin import CHANGES_PREFIX, FOLDS_CONFIG
from foldlog.client.handle_types import SendFuture
from foldlog.client.log import Log, connect_log, open_shared
from foldlog.client.outgoing import partition_for_key
from foldlog.client.transactions import Transaction
from foldlog.errors import (
    ConcurrentTransactions,
    DirectoryLocked,
    FoldError,
    FoldlogError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    LogNotFound,
    RefusedByBroker,
    StaleBookmark,
    TopicExists,
    UnknownTopic,
    ViewUnavailable,
)
from foldlog.spark.change_topics.keyed_rows import KeyedRows, RowChange
from foldlog.spark.origins.origin import ISOLATION_LEVEL, OriginSpec
from foldlog.views.bookmark import Bookmark
from foldlog.views.table.shape import TableShape

COMMITTED: Final = "read_committed"

BOOKMARK_KEY: Final = b"bookmark"

TIMEOUT_MS: Final = 60_000
"""Of a range's transaction. Readers wait for the end of one whose writer died, unless another writer comes first."""

SWAP_TIMEOUT_MS: Final = 900_000
"""Of a rebuild's transaction, which may write every row: Kafka's maximum for it."""

_READ_OFFSETS: Final = 100_000
"""Read at once from each partition of the topic."""

_MARKED_WAIT_MS: Final = 30_000
_MARKED_LOOK_MS: Final = 10
"""Marking takes a cluster some milliseconds; one without a coordinator waits for another."""

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


@dataclass(frozen=True, slots=True)
class ChangesBookmark:
    """What the newest record of the bookmark says. `ends` is where the changes end that belong to it, per partition;
    `partitions` how many the topic had when it was made: keys stay where they are when it grows."""

    bookmark: Bookmark
    shape: TableShape
    topic_id: str
    partitions: int
    ends: Mapping[int, int]
    has_old: bool

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


def value_of(change: RowChange, *, has_old: bool) -> Iterator[bytes | None]:
    """The values of the records for one change. With `has_old`, a deletion says what is deleted, and a tombstone
    follows it: without one, compaction would keep the key for good.

    >>> list(value_of(RowChange(b"k", b"k", b'{"a":1}', None), has_old=True))
    [b'{"new":null,"old":{"a":1}}', None]
    """
    if not has_old:
        yield change.new
        return
    yield b'{"new":%b,"old":%b}' % (change.new or b"null", change.old or b"null")
    if change.new is None:
        yield None


def new_part(value: bytes) -> bytes | None:
    """The row of a value with old and new; None if it was deleted.

    >>> new_part(b'{"new":{"a":1},"old":null}')
    b'{"a":1}'
    """
    text = value.decode()
    start = len('{"new":')
    found, end = json.JSONDecoder().raw_decode(text, start)
    return None if found is None else text[start:end].encode()


class ChangesLog:
    """The opened log of one changes topic. Used by one thread at a time."""

    def __init__(self, spec: OriginSpec, topic: str, location: str) -> None:
        """Connects to nothing."""
        self._spec = spec
        self.topic = topic
        self.bookmark_topic: Final = bookmark_topic(topic)
        self.transactional_id: Final = f"foldlog-changes-{topic}"
        self._location = location
        self._log: Log | None = None
        self._seen: tuple[str, int, ChangesBookmark | None] | None = None
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

    # --- topics ---------------------------------------------------------------------------------------------------

    def topic_id(self) -> str | None:
        """Of the changes; None if there are none."""
        try:
            return self.log.topic(self.topic).topic_id
        except (UnknownTopic, LogNotFound):
            return None

    def ensure_topic(self, partitions: int, config: Mapping[str, str]) -> int:
        """Create the topic unless it exists; how many partitions it has. FoldError if it is not one for changes."""
        try:
            return self.log.create_topic(
                self.topic, partitions, {**config, "cleanup.policy": "compact"}
            ).partition_count
        except TopicExists:
            pass
        policy = self.log.topic_config(self.topic)["cleanup.policy"].value
        if policy != "compact":
            raise FoldError(
                f"topic {self.topic!r} exists with cleanup.policy={policy}, and rows would expire in it; changes need"
                " cleanup.policy=compact: alter the topic, or choose another name"
            )
        return self.log.topic(self.topic).partition_count

    def check_unused(self) -> None:
        """FoldError if the topic has records, which no fold of ours wrote."""
        for number in self.log.offsets(self.topic):
            if next(self.log.read(self.topic, number, max_records=1, isolation=COMMITTED), None) is not None:
                raise FoldError(
                    f"topic {self.topic!r} has records that no fold has written there; choose another name for the"
                    " changes, or delete the topic"
                )

    def drop(self) -> None:
        """Delete both topics, if they exist. The bookmark last: alone it is not one of the topic that comes next."""
        for name in (self.topic, self.bookmark_topic):
            try:
                self.log.delete_topic(name)
            except (UnknownTopic, LogNotFound):
                pass

    # --- reading --------------------------------------------------------------------------------------------------

    def stored(self) -> ChangesBookmark | None:
        """The committed bookmark; None if there is none, or it is of an earlier topic of that name."""
        try:
            topic_id = self.log.topic(self.bookmark_topic).topic_id
            start, end = self.log.offsets(self.bookmark_topic, isolation=COMMITTED)[0]
        except (UnknownTopic, LogNotFound):
            return None
        if self._seen is None or self._seen[:2] != (topic_id, end):
            self._seen = (topic_id, end, self._newest(start, end))
        found = self._seen[2]
        return None if found is None or found.topic_id != self.topic_id() else found

    def _newest(self, start: int, end: int) -> ChangesBookmark | None:
        """From the end back: a bookmark is followed by a marker, and by what was aborted."""
        look = 16
        while True:
            first = max(start, end - look)
            records = self.log.read(self.bookmark_topic, 0, start=first, stop=end, isolation=COMMITTED)
            values = [record.value for record in records if record.key == BOOKMARK_KEY]
            if values:
                return None if values[-1] is None else ChangesBookmark.from_json(values[-1], self._location)
            if first == start:
                return None
            look *= 8

    def follow(self, rows: KeyedRows, read: dict[int, int], stored: ChangesBookmark) -> None:
        """Read what the topic has from `read` to the ends that belong to the bookmark, and note it in `read`."""
        for number, (start, _) in sorted(self._wait_marked(self.topic, stored.ends).items()):
            at, end = max(start, read.get(number, 0)), stored.ends.get(number, 0)
            while at < end:
                stop = min(end, at + _READ_OFFSETS)
                found = self.log.read_arrow(
                    self.topic,
                    {number: at},
                    {number: stop},
                    partitions=[number],
                    columns=("key", "value"),
                    isolation=COMMITTED,
                )
                values: list[bytes | None] = found["value"].to_pylist()
                if stored.has_old:
                    values = [None if value is None else new_part(value) for value in values]
                rows.read(found["key"].to_pylist(), values, self._location)
                at = stop
            read[number] = max(read.get(number, 0), end)

    def _wait_marked(self, topic: str, ends: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """The offsets of a topic, once all that was committed up to these ends can be read: a cluster marks partition
        by partition, after it has answered.
        """
        deadline = time.monotonic() + _MARKED_WAIT_MS / 1000
        while True:
            found = self.log.offsets(topic, isolation=COMMITTED)
            if all(found[number][1] >= end for number, end in ends.items() if number in found):
                return found
            if time.monotonic() > deadline:
                raise ViewUnavailable(
                    self._location, "a transaction is open in it for long; see foldlog transaction list"
                )
            time.sleep(_MARKED_LOOK_MS / 1000)

    def wait_readable(self) -> None:
        """Until every reader of committed records can read what was committed last."""
        stored = self.stored()
        if stored is not None:
            self._wait_marked(self.topic, stored.ends)

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
            self._wait_marked(self.bookmark_topic, {0: sent.result().offset + 1})
        return result

    def _moment(self, rows: int) -> AbstractContextManager[None]:
        if self._spec.path is None or rows > _KEPT_MOMENT_ROWS:
            return nullcontext()
        broker = directory_of(self.log).broker
        return broker.kept_moment() if isinstance(broker, RemoteBroker) else nullcontext()

    def send(
        self, transaction: Transaction, changes: Iterable[RowChange], stored: ChangesBookmark, now_ms: int
    ) -> dict[int, int]:
        """Put the changes on their way; where the topic ends behind them, once all of them are in the log."""
        last: dict[int, SendFuture] = {}
        for change in changes:
            partition = partition_for_key(change.key, stored.partitions)
            # Brokers refuse a time that lies far ahead, and librdkafka takes 0 for now.
            time_ms = None if change.time_ms is None or change.time_ms < 0 else max(1, min(change.time_ms, now_ms))
            for value in value_of(change, has_old=stored.has_old):
                last[partition] = transaction.send(
                    self.topic, value, change.key, partition=partition, timestamp_ms=time_ms
                )
        return {**stored.ends, **{number: sent.result().offset + 1 for number, sent in last.items()}}

    def send_bookmark(self, transaction: Transaction, stored: ChangesBookmark) -> None:
        sent = transaction.send(self.bookmark_topic, stored.to_json().encode(), BOOKMARK_KEY, partition=0)
        self._sent.append(sent)

    def ensure_bookmark_topic(self) -> None:
        try:
            self.log.create_topic(self.bookmark_topic, 1, FOLDS_CONFIG)
        except TopicExists:
            pass

    def expect(self, expected: Bookmark) -> ChangesBookmark:
        """What is stored, if its bookmark is the expected one; else StaleBookmark."""
        stored = self.stored()
        if stored is None or stored.bookmark != expected:
            found = "nothing" if stored is None else stored.bookmark.to_json()
            raise StaleBookmark(self._location, found, expected.to_json())
        return stored


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


@contextmanager
def changes_log(spec: OriginSpec, topic: str, location: str) -> Iterator[ChangesLog]:
    """For one question."""
    one = ChangesLog(spec, topic, location)
    try:
        yield one
    finally:
        one.close()
