"""The topic `__folds`: runners publish the status of their folds there, and take commands from it.

It is compacted, so it holds the newest status and the newest command of each fold: `status/<fold>` and
`command/<fold>`, both JSON. Consoles and the command line read it like any topic, and any Kafka client can.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from foldlog.clock import Clock
from foldlog.errors import FoldlogError, InvalidArgument, UnknownTopic
from foldlog.spark.origins.ledger import Entry, Ledger
from foldlog.spark.origins.origin import OffsetRange, Origin

FOLDS_TOPIC: Final = "__folds"
PUBLISH_EVERY_MS: Final = 1000
RETRY_AFTER_MS: Final = 30_000
"""Looking for a writer that does not listen takes seconds: not with every range."""
SILENT_AFTER_MS: Final = 15_000
"""A runner that has not published for so long is taken for gone."""

Verb = Literal["pause", "resume", "rewind", "rebuild", "verify"]
VERBS: Final = ("pause", "resume", "rewind", "rebuild", "verify")

_log = logging.getLogger("foldlog")


@dataclass(frozen=True, slots=True)
class Status:
    """One fold, as its runner last saw it. Offsets are per partition; times are milliseconds since 1970."""

    fold: str
    topic: str
    view: str
    kind: str
    state: str
    bookmark: Mapping[str, int]
    end: Mapping[str, int]
    lag: int
    records: int
    rows: int
    rows_per_s: float
    dead_letters: int
    skipped: int
    last_range: str
    error: str | None
    runner: str
    updated_ms: int
    last_command: str | None = None
    result: str | None = None
    """What the last command came to, in one sentence."""

    def is_live(self, now_ms: int) -> bool:
        """Whether its runner still publishes."""
        return self.state not in ("stopped", "failed") and now_ms - self.updated_ms < SILENT_AFTER_MS


@dataclass(frozen=True, slots=True)
class Command:
    """What somebody asks a running fold to do. `to` is for rewind; `id` tells one request from the next."""

    fold: str
    verb: Verb
    asked_ms: int
    to: str | None = None
    accept_loss: bool = False
    id: str = ""

    @classmethod
    def ask(cls, fold: str, verb: str, now_ms: int, *, to: str | None = None, accept_loss: bool = False) -> Command:
        """A new request."""
        for known in VERBS:
            if verb == known:
                return cls(fold, known, now_ms, to, accept_loss, uuid.uuid4().hex)
        raise InvalidArgument(f"{verb!r} is not something a fold can be asked; there are {', '.join(VERBS)}")


def encode(item: Status | Command) -> Entry:
    """A record of `__folds`."""
    prefix = "status" if isinstance(item, Status) else "command"
    return Entry(f"{prefix}/{item.fold}".encode(), json.dumps(asdict(item), sort_keys=True).encode())


def decode(key: bytes | None, value: bytes | None) -> Status | Command | None:
    """The inverse; None for a tombstone, and for what is not ours: anybody may write to a topic."""
    prefix = (key or b"").partition(b"/")[0]
    if value is None or prefix not in (b"status", b"command"):
        return None
    try:
        fields: dict[str, Any] = json.loads(value)
        if prefix == b"status":
            return Status(**fields)
        command = Command(**fields)
    except (ValueError, TypeError):
        _log.warning("a record of %s with key %r was passed over: it is not a %s", FOLDS_TOPIC, key, prefix.decode())
        return None
    return command if command.verb in VERBS else None


class Bulletin:
    """Reads `__folds` from where it last was. One thread."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._at: dict[int, int] = {}
        self._topic_id: str | None = None

    def news(self) -> list[Status | Command]:
        """What was written since the last call, in order; everything, the first time."""
        try:
            facts = self._origin.topic(FOLDS_TOPIC)
            bounds = self._origin.bounds(FOLDS_TOPIC)
        except UnknownTopic:
            return []
        if facts.topic_id != self._topic_id:
            self._topic_id, self._at = facts.topic_id, {}
        found: list[Status | Command] = []
        for number, (start, end, _) in bounds.items():
            at = max(start, self._at.get(number, start))
            if at < end:
                found.extend(self._read(OffsetRange(FOLDS_TOPIC, number, at, end)))
                self._at[number] = end
        return found

    def _read(self, wanted: OffsetRange) -> Iterator[Status | Command]:
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
        else:
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
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._blocked_until_ms:
            return False
        self._due_ms = now_ms + PUBLISH_EVERY_MS
        try:
            if not self._has_topic:
                self._ledger.ensure_topic(FOLDS_TOPIC, 1, {"cleanup.policy": "compact"})
                self._has_topic = True
            self._ledger.append(FOLDS_TOPIC, [encode(status) for status in statuses])
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
