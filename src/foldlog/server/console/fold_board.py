"""The state of every fold, from the records of `__folds`, as the console shows it. Pure: records in, entries out.

Several runners may run one fold, and all publish under its name; the last status of each is kept, and the entry shows
the one at work, preferably one that has proven to be a runner of this directory. The lag is the distance between the
bookmark and the end of the log: for the last five minutes from the records, so that it exists even if no page was open,
and from the log itself once no runner reports any more. What is kept is bounded, whatever is written to the topic.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from foldlog.client.fold_bulletin import SILENT_AFTER_MS, Command, Status, decode, dropped_fold

HISTORY_MS: Final = 5 * 60 * 1000
SAMPLE_MS: Final = 900
"""Between two points of the history: a little less than the pause between two reports of a runner."""

SILENT_SAMPLE_MS: Final = 2000
"""Between two points of a fold without a live runner: its lag grows with the log."""

FOLDS_MAX: Final = 1000
RUNNERS_MAX: Final = 8

BoundsOf = Callable[[str], dict[int, tuple[int, int]]]
"""Returns start and end of a topic's partitions; empty if there is no such topic."""


@dataclass(frozen=True, slots=True)
class LogAddress:
    """How the command line reaches this log: `-d DIR` or `-b HOST:PORT`."""

    option: str
    value: str


@dataclass
class _Fold:
    """The last status of each of its runners, the newest at the end, and its lag over the last minutes.

    `heard` is by proven or not, and by runner: a record that only uses a runner's name replaces none of the runner's.
    """

    heard: dict[tuple[bool, str], Status] = field(default_factory=dict)
    history: deque[tuple[int, int, float]] = field(default_factory=deque)

    def hear(self, status: Status, *, is_proven: bool) -> None:
        before = self.heard.pop((is_proven, status.runner), None)  # so that the newest is the last
        if before is not None and not status.bookmark:
            # A runner that carries out a command looks its bookmark up again, and has none meanwhile: the entry must
            # not look as if the fold had lost it.
            status = replace(status, bookmark=before.bookmark, lag=before.lag, topics=before.topics)
        if not is_proven:
            status = replace(status, file=None)  # it would appear in a command to type, and names a program
        self.heard[is_proven, status.runner] = status
        alike = [key for key in self.heard if key[0] is is_proven]
        if len(alike) > RUNNERS_MAX:
            del self.heard[alike[0]]
        if self.at_work(status.updated_ms)[0] is status:
            self.add(status.updated_ms, _lag_told(status), status.rows_per_s)

    def add(self, at_ms: int, lag: int, rows_per_s: float) -> None:
        """Add a point to the history; one point from before its beginning is kept, for the line to start from."""
        if self.history and at_ms < self.history[-1][0] + SAMPLE_MS:
            return
        self.history.append((at_ms, lag, rows_per_s))
        while len(self.history) > 1 and self.history[1][0] < at_ms - HISTORY_MS:
            self.history.popleft()

    @property
    def statuses(self) -> list[Status]:
        """The statuses of all runners, the newest last."""
        return list(self.heard.values())

    def at_work(self, now_ms: int) -> tuple[Status, bool]:
        """The runner that is doing something, or the one that reported last; and whether it has proven itself."""

        def rank(item: tuple[tuple[bool, str], Status]) -> tuple[bool, bool, bool]:
            (is_proven, _), status = item
            is_live = status.is_live(now_ms)
            return is_live and is_proven, is_live, is_live and status.doing is not None

        (is_proven, _), status = max(reversed(self.heard.items()), key=rank)  # the first of equals: the newest
        return status, is_proven


class FoldBoard:
    """All folds of one log. One thread at a time."""

    def __init__(self) -> None:
        self._folds: dict[str, _Fold] = {}
        self._commands: dict[str, Command] = {}
        self._changed: set[str] = set()
        self._silent_at_ms = 0
        self._sample_at_ms = 0.0
        self.source = LogAddress("-d", "data")

    def hear(self, records: Iterable[tuple[bytes | None, bytes | None, bool]]) -> None:
        """Take in keys, values, and whether their writers have proven themselves, in the order of the topic."""
        for key, value, is_proven in records:
            dropped = dropped_fold(key, value)
            if dropped is not None and self._folds.pop(dropped, None) is not None:
                self._changed.add(dropped)
            item = decode(key, value)
            if isinstance(item, Status) and (item.fold in self._folds or len(self._folds) < FOLDS_MAX):
                self._folds.setdefault(item.fold, _Fold()).hear(item, is_proven=is_proven)
                self._changed.add(item.fold)
            elif isinstance(item, Command) and (item.fold in self._commands or len(self._commands) < FOLDS_MAX):
                self._commands[item.fold] = item
                self._changed.add(item.fold)

    def forget(self) -> None:
        """Forget everything: the topic was deleted or made again."""
        self._changed.update(self._folds)
        self._folds, self._commands = {}, {}

    @property
    def names(self) -> list[str]:
        return sorted(self._folds)

    def status(self, name: str, now_ms: int) -> Status | None:
        """The fold as reported by its runner at work."""
        return self.described(name, now_ms)[0]

    def described(self, name: str, now_ms: int) -> tuple[Status | None, bool]:
        """The fold as reported by its runner at work, and whether that runner has proven itself."""
        fold = self._folds.get(name)
        return (None, False) if fold is None else fold.at_work(now_ms)

    def is_quiet(self, now_ms: int) -> bool:
        """Whether nothing has changed since `changes`, and no runner has fallen silent."""
        return not self._changed and now_ms < min(self._silent_at_ms, self._sample_at_ms)

    def sample(self, now_ms: int, bounds_of: BoundsOf) -> None:
        """Update the lag of folds without a live runner; one whose lag has changed counts as changed."""
        for name, fold in self._folds.items():
            status, _ = fold.at_work(now_ms)
            lag = None if status.is_live(now_ms) else lag_of(status, bounds_of)
            if lag is None:
                continue
            if fold.history and fold.history[-1][1] != lag:
                self._changed.add(name)
            fold.add(now_ms, lag, 0.0)

    def changes(self, now_ms: int) -> list[str]:
        """The folds that have changed since the last call, including those that are gone."""
        if now_ms >= self._silent_at_ms:
            # Seldom, and so for all: runners that have fallen silent are among them.
            self._changed.update(self._folds)
        changed, self._changed = sorted(self._changed), set()
        alive = [one.updated_ms for fold in self._folds.values() for one in fold.statuses if one.is_live(now_ms)]
        self._silent_at_ms = min(alive, default=now_ms + HISTORY_MS) + SILENT_AFTER_MS
        is_all_live = all(fold.at_work(now_ms)[0].is_live(now_ms) for fold in self._folds.values())
        self._sample_at_ms = inf if is_all_live else now_ms + SILENT_SAMPLE_MS
        return changed

    def entry(self, name: str, now_ms: int, bounds_of: BoundsOf) -> dict[str, Any]:
        """A fold as in /api/folds; one that is gone has only its name."""
        fold = self._folds.get(name)
        if fold is None:
            return {"fold": name, "is_gone": True}
        status, is_proven = fold.at_work(now_ms)
        is_live = status.is_live(now_ms)
        topics = _topics(status, bounds_of)
        lag = lag_of(status, bounds_of)
        letters = bounds_of(f"{name}.dead")
        return {
            "fold": name,
            "is_gone": False,
            "topic": status.topic,
            "view": status.view,
            "kind": status.kind,
            "writes": status.writes,
            "engine": status.engine,
            "state": status.state,
            "is_live": is_live,
            "is_stopped": status.stopped or status.state == "stopped",
            "is_proven": is_proven,
            "runner": status.runner,
            "bookmark": dict(status.bookmark),
            "end": topics[status.topic]["end"],
            "lag": status.lag if lag is None else lag,
            "topics": topics if status.topics else None,
            "records": status.records,
            "rows": status.rows,
            "rows_per_s": status.rows_per_s if is_live else 0.0,
            "dead_letters": sum(end - start for start, end in letters.values()),
            "skipped": status.skipped,
            "mixes": status.mixes,
            "error": status.error,
            "updated_ms": status.updated_ms,
            "last_command": status.last_command,
            "command": self._command(name, fold),
            "result": self._result(name, fold, status),
            "doing": dict(status.doing) if status.doing is not None and is_live else None,
            "history": [list(point) for point in fold.history],
            "is_additive": status.adds,
            "can_peek": status.view_description is not None,
            "command_lines": {
                verb: self.command_line(status, verb, "PLACE" if verb == "rewind" else None)
                for verb in ("rewind", "rebuild", "verify")
            },
        }

    def _command(self, name: str, fold: _Fold) -> dict[str, Any] | None:
        """The last command, and whether a runner has taken it."""
        command = self._commands.get(name)
        if command is None:
            return None
        taken = any(status.last_command == command.id for status in fold.statuses)
        return {
            "id": command.id,
            "verb": command.verb,
            "to": command.to,
            "asked_ms": command.asked_ms,
            "is_taken": taken,
        }

    def _result(self, name: str, fold: _Fold, status: Status) -> str | None:
        """The result of the newest command, from the runner that carried it out."""
        command = self._commands.get(name)
        if command is None:
            return status.result
        told = [one for one in reversed(fold.statuses) if one.last_command == command.id and one.result]
        return told[0].result if told else None

    def command_line(self, status: Status, verb: str, to: str | None = None, *, accept_loss: bool = False) -> str:
        """The command to type if no runner can be asked.

        >>> from foldlog.client.fold_bulletin import Status
        >>> status = Status("mirror", "t", "v", "table", "stopped", {}, {}, 0, 0, 0, 0, 0, 0, "", None, "h:1", 0)
        >>> FoldBoard().command_line(status, "rewind", "0=12")
        'foldlog fold rewind mirror --to 0=12 -f folds.py -d data'
        """
        words = ["foldlog", "fold", verb, status.fold]
        if to is not None:
            words += ["--to", to]
        if accept_loss:
            words.append("--accept-loss")
        return shlex.join([*words, "-f", status.file or "folds.py", self.source.option, self.source.value])


def _lag_told(status: Status) -> int:
    """The lag at the moment of a status, from its bookmark and ends; its own number if a partition is not read yet."""
    if status.topics or not status.end or not status.end.keys() <= status.bookmark.keys():
        return status.lag
    return sum(max(0, end - status.bookmark[number]) for number, end in status.end.items())


def bookmarks_of(status: Status) -> dict[str, dict[str, int]]:
    """By topic, what a fold has read of each partition."""
    found = {status.topic: dict(status.bookmark)}
    for topic, told in (status.topics or {}).items():
        at = told.get("bookmark") if isinstance(told, dict) else None
        if isinstance(at, dict):
            found[topic] = {number: offset for number, offset in at.items() if type(offset) is int}
    return found


def _topics(status: Status, bounds_of: BoundsOf) -> dict[str, dict[str, dict[str, int]]]:
    """By topic, where a fold is, and where the log ends, or ended when the fold told."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for topic, at in bookmarks_of(status).items():
        ends = {str(number): end for number, (_, end) in bounds_of(topic).items()}
        told = status.end if topic == status.topic else {}
        found[topic] = {"bookmark": at, "end": ends or dict(told)}
    return found


def lag_of(status: Status, bounds_of: BoundsOf) -> int | None:
    """Offsets between the bookmark and the end, in all topics of a fold; those that retention removed do not count.
    None if none of the topics is there.
    """
    known = {topic: bounds_of(topic) for topic in bookmarks_of(status)}
    if not any(known.values()):
        return None
    return sum(
        max(0, end - max(start, at.get(str(number), start)))
        for topic, at in bookmarks_of(status).items()
        for number, (start, end) in known[topic].items()
    )
