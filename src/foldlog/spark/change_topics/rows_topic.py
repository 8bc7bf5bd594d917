"""Rows as a compacted topic: the newest record of each key is the row.

A changes topic is one; each side of a join whose result is a topic is another. Whoever writes it keeps where the
records end that belong to a bookmark, so that whoever reads both has one state.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from foldlog.client.handle_types import SendFuture
from foldlog.client.log import Log
from foldlog.client.outgoing import partition_for_key
from foldlog.client.transactions import Transaction
from foldlog.errors import FoldError, LogNotFound, TopicExists, UnknownTopic, ViewUnavailable
from foldlog.spark.change_topics.keyed_rows import KeyedRows, RowChange

COMMITTED: Final = "read_committed"

_READ_OFFSETS: Final = 100_000
"""Read at once from each partition of the topic."""

_MARKED_WAIT_MS: Final = 30_000
_MARKED_LOOK_MS: Final = 10
"""Marking takes a cluster some milliseconds; one without a coordinator waits for another."""


class Written(Protocol):
    """What a bookmark says of a topic of rows. `ends` is where the records end that belong to it, per partition;
    `partitions` how many the topic had when it was made: keys stay where they are when it grows. With `has_old`, values
    have the old row, too.
    """

    @property
    def partitions(self) -> int: ...

    @property
    def ends(self) -> Mapping[int, int]: ...

    @property
    def has_old(self) -> bool: ...


class RowsTopic:
    """A topic in a log, which is opened with the first use. `location` names its view in errors."""

    def __init__(self, log: Callable[[], Log], name: str, location: str) -> None:
        self._log = log
        self.name = name
        self._location = location

    def topic_id(self) -> str | None:
        """None if it does not exist."""
        try:
            return self._log().topic(self.name).topic_id
        except (UnknownTopic, LogNotFound):
            return None

    def ensure(self, partitions: int) -> int:
        """Create the topic unless it exists; how many partitions it has. FoldError if it is not one for rows."""
        log = self._log()
        try:
            return log.create_topic(self.name, partitions, {"cleanup.policy": "compact"}).partition_count
        except TopicExists:
            pass
        policy = log.topic_config(self.name)["cleanup.policy"].value
        if policy != "compact":
            raise FoldError(
                f"topic {self.name!r} exists with cleanup.policy={policy}, and rows would expire in it; changes need"
                " cleanup.policy=compact: alter the topic, or choose another name"
            )
        return log.topic(self.name).partition_count

    def check_unused(self) -> None:
        """FoldError if the topic has records, which no fold of ours wrote."""
        log = self._log()
        for number in log.offsets(self.name):
            if next(log.read(self.name, number, max_records=1, isolation=COMMITTED), None) is not None:
                raise FoldError(
                    f"topic {self.name!r} has records that no fold has written there; choose another name for the"
                    " changes, or delete the topic"
                )

    def follow(self, rows: KeyedRows, read: dict[int, int], at: Written) -> None:
        """Read what the topic has from `read` to the ends that belong to the bookmark, and note it in `read`."""
        log = self._log()
        for number, (start, _) in sorted(wait_marked(log, self.name, at.ends, self._location).items()):
            first, end = max(start, read.get(number, 0)), at.ends.get(number, 0)
            while first < end:
                stop = min(end, first + _READ_OFFSETS)
                found = log.read_arrow(
                    self.name,
                    {number: first},
                    {number: stop},
                    partitions=[number],
                    columns=("key", "value"),
                    isolation=COMMITTED,
                )
                values: list[bytes | None] = found["value"].to_pylist()
                if at.has_old:
                    values = [None if value is None else new_part(value) for value in values]
                rows.read(found["key"].to_pylist(), values, self._location)
                first = stop
            read[number] = max(read.get(number, 0), end)

    def send(self, transaction: Transaction, changes: Iterable[RowChange], at: Written, now_ms: int) -> dict[int, int]:
        """Put the changes on their way; where the topic ends behind them, once all of them are in the log."""
        last: dict[int, SendFuture] = {}
        for change in changes:
            partition = partition_for_key(change.key, at.partitions)
            # Brokers refuse a time that lies far ahead, and librdkafka takes 0 for now.
            time_ms = None if change.time_ms is None or change.time_ms < 0 else max(1, min(change.time_ms, now_ms))
            for value in value_of(change, has_old=at.has_old):
                last[partition] = transaction.send(
                    self.name, value, change.key, partition=partition, timestamp_ms=time_ms
                )
        return {**at.ends, **{number: sent.result().offset + 1 for number, sent in last.items()}}


def wait_marked(log: Log, topic: str, ends: Mapping[int, int], location: str) -> dict[int, tuple[int, int]]:
    """The offsets of a topic, once all that was committed up to these ends can be read: a cluster marks partition by
    partition, after it has answered.
    """
    deadline = time.monotonic() + _MARKED_WAIT_MS / 1000
    while True:
        found = log.offsets(topic, isolation=COMMITTED)
        if all(found[number][1] >= end for number, end in ends.items() if number in found):
            return found
        if time.monotonic() > deadline:
            raise ViewUnavailable(location, "a transaction is open in it for long; see foldlog transaction list")
        time.sleep(_MARKED_LOOK_MS / 1000)


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
