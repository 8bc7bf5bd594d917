"""The state of a fold's group: a group holds the fold's position, and a runner reads without joining it.

To Kafka such a group is empty, even if the fold runs. The command line, the console and the metrics all show what is
decided here. Pure: records of `__folds` in, known runners out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from foldlog.client.fold_bulletin import FOLD_GROUP_PREFIX, SILENT_AFTER_MS, Status, decode, dropped_fold


class GroupStanding(NamedTuple):
    """The state of a group, and the number of its readers: its members, and runners of a fold."""

    state: str
    reader_count: int


def standing_of(state: str, member_count: int, runs: tuple[Status, ...] | None) -> GroupStanding:
    """`state` and `member_count` from the coordinator; `runs` from `FoldRuns.of`.

    >>> standing_of("Stable", 2, None), standing_of("Empty", 0, ())
    (GroupStanding(state='Stable', reader_count=2), GroupStanding(state='fold not running', reader_count=0))
    """
    if runs is None:
        return GroupStanding(state, member_count)
    return GroupStanding(f"fold {runs[-1].state}" if runs else "fold not running", member_count + len(runs))


def is_of_a_fold(group: str) -> bool:
    """Whether it is a fold's group, by its name alone."""
    return group.startswith(FOLD_GROUP_PREFIX)


class FoldRuns:
    """The runners of folds, by what they publish. Fed with the records of `__folds` in order; one thread."""

    def __init__(self) -> None:
        self._heard: dict[str, dict[str, Status]] = {}

    def hear(self, key: bytes | None, value: bytes | None, *, is_proven: bool = False) -> None:
        """`is_proven` if the writer has proven to be a runner of this directory: only then its file is believed, which
        appears in commands to type."""
        gone = dropped_fold(key, value)
        if gone is not None:
            self._heard.pop(gone, None)
            return
        item = decode(key, value)
        if isinstance(item, Status):
            # Runners that have fallen silent are dropped: each has another name, and there may have been many.
            heard = self._heard.get(item.fold, {})
            live = {name: one for name, one in heard.items() if item.updated_ms - one.updated_ms < SILENT_AFTER_MS}
            live.pop(item.runner, None)
            self._heard[item.fold] = {**live, item.runner: item if is_proven else replace(item, file=None)}

    def forget(self) -> None:
        self._heard.clear()

    def of(self, group: str, now_ms: int) -> tuple[Status, ...] | None:
        """The live runners of the fold whose position the group holds; None if it is not a known fold's."""
        heard = self._heard.get(group.removeprefix(FOLD_GROUP_PREFIX)) if is_of_a_fold(group) else None
        return None if heard is None else tuple(one for one in heard.values() if one.is_live(now_ms))

    def troubled(self, now_ms: int) -> list[Status]:
        """Of each fold that fails, or whose runner has gone without a word, its last report."""
        found: list[Status] = []
        for heard in self._heard.values():
            live = [one for one in heard.values() if one.is_live(now_ms)]
            last = (live or list(heard.values()))[-1]
            if last.error or (not live and not last.stopped and last.state != "stopped"):
                found.append(last)
        return found
