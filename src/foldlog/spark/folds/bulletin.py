"""The topic `__folds`, as a runner and the fold commands use it: read incrementally, and appended to.

The records are defined in `foldlog.client.fold_bulletin`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from foldlog.client.fold_bulletin import FOLDS_CONFIG, FOLDS_TOPIC, Command, Item, Status, decode, dropped_fold, encode
from foldlog.client.fold_proof import FoldsKey
from foldlog.clock import Clock
from foldlog.errors import FoldlogError, UnknownTopic
from foldlog.spark.origins.ledger import Ledger, LedgerEntry
from foldlog.spark.origins.origin import OffsetRange, Origin

PUBLISH_EVERY_MS: Final = 1000
UNCHANGED_EVERY_MS: Final = 5000
"""How often a runner whose folds stand still says that it lives: three times before it counts as gone."""

RETRY_AFTER_MS: Final = 30_000
"""A server that does not answer costs seconds, so a failed append or commit is not retried with every range."""

_log = logging.getLogger("foldlog")


def entry_of(item: Item) -> LedgerEntry:
    """A record to append."""
    return LedgerEntry(*encode(item))


def proven(entries: Iterable[LedgerEntry], key: FoldsKey | None, now_ms: int) -> list[LedgerEntry]:
    """The records with a proof made with the key, as readers require; unchanged without a key."""
    if key is None:
        return list(entries)
    return [entry._replace(headers=(*entry.headers, key.proof(entry.key, entry.value, now_ms))) for entry in entries]


class Bulletin:
    """Reads `__folds` incrementally; with a key, only records that carry its proof. For one thread."""

    def __init__(self, origin: Origin, key: FoldsKey | None = None) -> None:
        self._origin = origin
        self._key = key
        self._at: dict[int, int] = {}
        self._topic_id: str | None = None
        self.dropped: set[str] = set()
        """Folds whose status was deleted, and not published since."""

    def news(self) -> list[Item]:
        """The records written since the last call, in order; all of them on the first call."""
        try:
            facts = self._origin.topic(FOLDS_TOPIC)
            bounds = self._origin.bounds(FOLDS_TOPIC)
        except UnknownTopic:
            return []
        if facts.topic_id != self._topic_id:
            self._topic_id, self._at = facts.topic_id, {}
        found: list[Item] = []
        for number, (start, end, _) in bounds.items():
            at = max(start, self._at.get(number, start))
            if at < end:
                found.extend(self._read(OffsetRange(FOLDS_TOPIC, number, at, end)))
                self._at[number] = end
        return found

    def _read(self, wanted: OffsetRange) -> Iterator[Item]:
        for batch in self._origin.read(wanted, ["key", "value", "headers"]):
            for row in batch.to_pylist():
                item = decode(row["key"], row["value"])
                if isinstance(item, Status):
                    self.dropped.discard(item.fold)
                elif (gone := dropped_fold(row["key"], row["value"])) is not None:
                    self.dropped.add(gone)
                if item is not None and self._is_heard(row):
                    yield item

    def _is_heard(self, row: Mapping[str, Any]) -> bool:
        if self._key is None:
            return True
        headers = [(one["key"], one["value"]) for one in row["headers"] or ()]
        if self._key.proven_ms(row["key"], row["value"], headers) is not None:
            return True
        if row["key"].startswith(b"command/"):
            _log.warning("a record %r of %s has no proof of the directory's key: passed over", row["key"], FOLDS_TOPIC)
        return False


def latest(origin: Origin) -> tuple[dict[str, Status], dict[str, Command]]:
    """The newest status and the newest command of each fold, with or without a proof."""
    statuses: dict[str, Status] = {}
    commands: dict[str, Command] = {}
    bulletin = Bulletin(origin)
    for item in bulletin.news():
        if isinstance(item, Status):
            statuses[item.fold] = item
        elif isinstance(item, Command):
            commands[item.fold] = item
    for gone in bulletin.dropped:
        statuses.pop(gone, None)
    return statuses, commands


class Publisher:
    """Publishes statuses and group offsets, at most once a second, and less often if nothing changes. A failure is
    logged once and loses no record: the bookmark that counts is the one in the view.
    """

    def __init__(self, ledger: Ledger, clock: Clock, key: FoldsKey | None = None) -> None:
        self._ledger = ledger
        self._clock = clock
        self._key = key
        # A short run publishes only that it has stopped.
        self._published_ms = clock.monotonic_ms()
        self._openings = _Attempts("the log cannot be written", clock)
        self._statuses = _Attempts("the status of the folds cannot be published", clock)
        self._commits = _Attempts("the bookmarks of the folds cannot be committed to their groups", clock)
        self._has_topic = False

    def is_due(self, *, changed: bool) -> bool:
        """Whether it is time to publish, if something has changed since the last time or not."""
        every_ms = PUBLISH_EVERY_MS if changed else UNCHANGED_EVERY_MS
        return self._clock.monotonic_ms() >= self._published_ms + every_ms

    def publish(self, statuses: Iterable[Status], commits: Iterable[tuple[str, str, Mapping[int, int]]]) -> bool:
        """Commit the group offsets and append the statuses. True if the offsets were committed."""
        self._published_ms = self._clock.monotonic_ms()
        is_committed = False

        def commit() -> None:
            for group, topic, offsets in commits:
                self._ledger.commit(group, topic, offsets)

        def write() -> None:
            nonlocal is_committed
            with self._ledger.together():
                is_committed = self._commits.succeeds(commit)
                self.append([entry_of(status) for status in statuses])

        self._openings.succeeds(write)
        return is_committed

    def append(self, entries: Iterable[LedgerEntry]) -> bool:
        """Append the records, creating the topic first. Whether that worked."""

        def append() -> None:
            if not self._has_topic:
                self._ledger.ensure_topic(FOLDS_TOPIC, 1, FOLDS_CONFIG)
                self._has_topic = True
            self._ledger.append(FOLDS_TOPIC, proven(entries, self._key, self._clock.now_ms()))

        return self._statuses.succeeds(append)


class _Attempts:
    """Runs an action that may fail: logs each new error once, and after a failure skips it for RETRY_AFTER_MS."""

    def __init__(self, trouble: str, clock: Clock) -> None:
        self._trouble = trouble
        self._clock = clock
        self._blocked_until_ms = 0.0
        self._last_problem = ""

    def succeeds(self, action: Callable[[], None]) -> bool:
        if self._clock.monotonic_ms() < self._blocked_until_ms:
            return False
        try:
            action()
        except FoldlogError as error:
            problem = str(error)
            if problem != self._last_problem:
                _log.warning("%s, they go on without: %s", self._trouble, problem)
            self._last_problem = problem
            self._blocked_until_ms = self._clock.monotonic_ms() + RETRY_AFTER_MS
            return False
        self._last_problem = ""
        return True
