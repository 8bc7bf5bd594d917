"""What the topic `__folds` says of every fold, as the console shows it. Pure: records in, entries out.

Several runners may run one fold, and all publish under its name; what each said last is kept, and the entry shows the
one that is at work. The lag and the speed of the last five minutes come from the records as well, so they are there
although nobody was looking. Anybody may write to the topic: what is kept is bounded.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from foldlog.client.fold_bulletin import SILENT_AFTER_MS, Command, Status, decode, dropped_fold

HISTORY_MS: Final = 5 * 60 * 1000
SAMPLE_MS: Final = 900
"""Between two points of the history: a little less than the pause between two words of a runner."""

FOLDS_MAX: Final = 1000
RUNNERS_MAX: Final = 8

BoundsOf = Callable[[str], dict[int, tuple[int, int]]]
"""Where the partitions of a topic start and end; empty if there is no such topic."""


@dataclass(frozen=True, slots=True)
class Source:
    """How the command line reaches this log: `-d DIR` or `-b HOST:PORT`."""

    option: str
    value: str


@dataclass
class _Fold:
    """What each of its runners said last, the newest at the end, and what was said over the last minutes."""

    statuses: dict[str, Status] = field(default_factory=dict)
    history: deque[tuple[int, int, float]] = field(default_factory=deque)

    def hear(self, status: Status) -> None:
        before = self.statuses.pop(status.runner, None)  # so that the newest is the last
        if before is not None and not status.bookmark:
            # A runner that carries out a command looks its bookmark up again, and knows none meanwhile: the fold has
            # not forgotten everything, and nobody is to think so.
            status = replace(status, bookmark=before.bookmark, lag=before.lag)
        self.statuses[status.runner] = status
        if len(self.statuses) > RUNNERS_MAX:
            del self.statuses[next(iter(self.statuses))]
        if not self.history or status.updated_ms >= self.history[-1][0] + SAMPLE_MS:
            self.history.append((status.updated_ms, status.lag, status.rows_per_s))
            while self.history[0][0] < status.updated_ms - HISTORY_MS:
                self.history.popleft()

    def at_work(self, now_ms: int) -> Status:
        """The runner that has something under way, or the one that spoke last."""
        newest = list(reversed(self.statuses.values()))
        live = [status for status in newest if status.is_live(now_ms)]
        return next((status for status in live if status.doing is not None), (live or newest)[0])


class FoldBoard:
    """All folds of one log. One thread at a time."""

    def __init__(self) -> None:
        self._folds: dict[str, _Fold] = {}
        self._commands: dict[str, Command] = {}
        self._changed: set[str] = set()
        self._silent_at_ms = 0
        self.source = Source("-d", "data")

    def hear(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Keys and values, in the order of the topic."""
        for key, value in records:
            dropped = dropped_fold(key, value)
            if dropped is not None and self._folds.pop(dropped, None) is not None:
                self._changed.add(dropped)
            item = decode(key, value)
            if isinstance(item, Status) and (item.fold in self._folds or len(self._folds) < FOLDS_MAX):
                self._folds.setdefault(item.fold, _Fold()).hear(item)
                self._changed.add(item.fold)
            elif isinstance(item, Command) and (item.fold in self._commands or len(self._commands) < FOLDS_MAX):
                self._commands[item.fold] = item
                self._changed.add(item.fold)

    def forget(self) -> None:
        """The topic is another one by now, or gone."""
        self._changed.update(self._folds)
        self._folds, self._commands = {}, {}

    @property
    def names(self) -> list[str]:
        return sorted(self._folds)

    def status(self, name: str, now_ms: int) -> Status | None:
        """The fold as its runner at work sees it."""
        fold = self._folds.get(name)
        return None if fold is None else fold.at_work(now_ms)

    def is_quiet(self, now_ms: int) -> bool:
        """Whether nothing has changed since `changes`, not even that a runner has fallen silent."""
        return not self._changed and now_ms < self._silent_at_ms

    def changes(self, now_ms: int) -> list[str]:
        """The folds that have changed since the last call, also those that are gone."""
        if now_ms >= self._silent_at_ms:
            # Seldom, and so for all: who has fallen silent meanwhile is among them.
            self._changed.update(self._folds)
        changed, self._changed = sorted(self._changed), set()
        alive = [
            one.updated_ms for fold in self._folds.values() for one in fold.statuses.values() if one.is_live(now_ms)
        ]
        self._silent_at_ms = min(alive, default=now_ms + HISTORY_MS) + SILENT_AFTER_MS
        return changed

    def entry(self, name: str, now_ms: int, bounds_of: BoundsOf) -> dict[str, Any]:
        """A fold as /api/folds shows it; one that is gone has little to show."""
        fold = self._folds.get(name)
        if fold is None:
            return {"fold": name, "is_gone": True}
        status = fold.at_work(now_ms)
        is_live = status.is_live(now_ms)
        bounds = bounds_of(status.topic)
        letters = bounds_of(f"{name}.dead")
        return {
            "fold": name,
            "is_gone": False,
            "topic": status.topic,
            "view": status.view,
            "kind": status.kind,
            "engine": status.engine,
            "state": status.state,
            "is_live": is_live,
            "runner": status.runner,
            "bookmark": dict(status.bookmark),
            "end": {str(number): end for number, (_, end) in bounds.items()} or dict(status.end),
            "lag": lag_of(status, bounds) if bounds else status.lag,
            "records": status.records,
            "rows": status.rows,
            "rows_per_s": status.rows_per_s if is_live else 0.0,
            "dead_letters": sum(end - start for start, end in letters.values()),
            "skipped": status.skipped,
            "error": status.error,
            "updated_ms": status.updated_ms,
            "last_command": status.last_command,
            "command": self._command(name, fold),
            "result": self._result(name, fold, status),
            "doing": dict(status.doing) if status.doing is not None and is_live else None,
            "history": [list(point) for point in fold.history if point[0] >= now_ms - HISTORY_MS],
            "is_additive": status.adds,
            "can_peek": status.view_description is not None,
            "command_lines": {
                verb: self.command_line(status, verb, "PLACE" if verb == "rewind" else None)
                for verb in ("rewind", "rebuild", "verify")
            },
        }

    def _command(self, name: str, fold: _Fold) -> dict[str, Any] | None:
        """What was asked last, and whether a runner has taken it up."""
        command = self._commands.get(name)
        if command is None:
            return None
        taken = any(status.last_command == command.id for status in fold.statuses.values())
        return {
            "id": command.id,
            "verb": command.verb,
            "to": command.to,
            "asked_ms": command.asked_ms,
            "is_taken": taken,
        }

    def _result(self, name: str, fold: _Fold, status: Status) -> str | None:
        """Of the newest command, from whichever runner has carried it out."""
        command = self._commands.get(name)
        if command is None:
            return status.result
        told = [one for one in reversed(fold.statuses.values()) if one.last_command == command.id and one.result]
        return told[0].result if told else None

    def command_line(self, status: Status, verb: str, to: str | None = None, *, accept_loss: bool = False) -> str:
        """What to type where the console has nobody to ask.

        >>> from foldlog.client.fold_bulletin import Status
        >>> status = Status("mirror", "t", "v", "table", "stopped", {}, {}, 0, 0, 0, 0, 0, 0, "", None, "h:1", 0)
        >>> FoldBoard().command_line(status, "rewind", "0:12")
        'foldlog fold rewind mirror --to 0:12 -f folds.py -d data'
        """
        words = ["foldlog", "fold", verb, status.fold]
        if to is not None:
            words += ["--to", to]
        if accept_loss:
            words.append("--accept-loss")
        return shlex.join([*words, "-f", status.file or "folds.py", self.source.option, self.source.value])


def lag_of(status: Status, bounds: dict[int, tuple[int, int]]) -> int:
    """Offsets between the bookmark and the end; what retention has taken nobody can read any more."""
    return sum(
        max(0, end - max(start, status.bookmark.get(str(number), start))) for number, (start, end) in bounds.items()
    )
