"""The topic `__folds`, as a runner and the folds' commands use it: read from where they last were, and published to.

What its records are is in `foldlog.client.fold_bulletin`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from foldlog.client.fold_bulletin import FOLDS_CONFIG, FOLDS_TOPIC, Command, Item, Status, decode, encode
from foldlog.clock import Clock
from foldlog.errors import FoldlogError, UnknownTopic
from foldlog.spark.origins.ledger import Entry, Ledger
from foldlog.spark.origins.origin import OffsetRange, Origin

PUBLISH_EVERY_MS: Final = 1000
RETRY_AFTER_MS: Final = 30_000
"""Looking for a writer that does not listen takes seconds: not with every range."""

_log = logging.getLogger("foldlog")


def entry_of(item: Item) -> Entry:
    """A record to append."""
    return Entry(*encode(item))


class Bulletin:
    """Reads `__folds` from where it last was. One thread."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._at: dict[int, int] = {}
        self._topic_id: str | None = None

    def news(self) -> list[Item]:
        """What was written since the last call, in order; everything, the first time."""
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
        for batch in self._origin.read(wanted, ["key", "value"]):
            for row in batch.to_pylist():
                item = decode(row["key"], row["value"])
                if item is not None:
                    yield item


def latest(origin: Origin) -> tuple[dict[str, Status], dict[str, Command]]:
    """The newest status and the newest command of each fold."""
    statuses: dict[str, Status] = {}
    commands: dict[str, Command] = {}
    for item in Bulletin(origin).news():
        if isinstance(item, Status):
            statuses[item.fold] = item
        elif isinstance(item, Command):
            commands[item.fold] = item
    return statuses, commands


class Publisher:
    """Writes statuses and the groups' offsets, at most once a second. What cannot be written is said once, and costs
    nobody a record: the bookmark that counts is the view's.
    """

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._due_ms = 0.0
        self._blocked_until_ms = 0.0
        self._last_problem = ""
        self._has_topic = False

    @property
    def is_due(self) -> bool:
        return self._clock.monotonic_ms() >= self._due_ms

    def publish(self, statuses: Iterable[Status], commits: Iterable[tuple[str, str, Mapping[int, int]]]) -> bool:
        """Whether it worked. After a failure it is not tried again for a while."""
        self._due_ms = self._clock.monotonic_ms() + PUBLISH_EVERY_MS
        return self.append([entry_of(status) for status in statuses], commits)

    def append(self, entries: Iterable[Entry], commits: Iterable[tuple[str, str, Mapping[int, int]]] = ()) -> bool:
        """The same for any records."""
        if self._clock.monotonic_ms() < self._blocked_until_ms:
            return False
        try:
            if not self._has_topic:
                self._ledger.ensure_topic(FOLDS_TOPIC, 1, FOLDS_CONFIG)
                self._has_topic = True
            self._ledger.append(FOLDS_TOPIC, entries)
            for group, topic, offsets in commits:
                self._ledger.commit(group, topic, offsets)
        except FoldlogError as error:
            problem = str(error)
            if problem != self._last_problem:
                _log.warning("the status of the folds cannot be published, they go on without: %s", problem)
            self._last_problem = problem
            self._blocked_until_ms = self._clock.monotonic_ms() + RETRY_AFTER_MS
            return False
        self._last_problem = ""
        return True
