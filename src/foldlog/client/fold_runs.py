"""What the group of a fold is: its place is a group's, and a runner reads for it without joining.

Kafka's word for such a group is empty, whoever runs the fold. The command line, the console and the metrics all say
what is decided here. Pure: records of `__folds` in, what is known of runners out.
"""

from __future__ import annotations

from typing import NamedTuple

from foldlog.client.fold_bulletin import FOLD_GROUP_PREFIX, SILENT_AFTER_MS, Status, decode, dropped_fold


class GroupStanding(NamedTuple):
    """The state of a group, and how many read with it: its members, and runners of a fold."""

    state: str
    reader_count: int


def standing_of(state: str, member_count: int, runs: tuple[Status, ...] | None) -> GroupStanding:
    """`state` and `member_count` as the coordinator has them; `runs` as `FoldRuns.of` does.

    >>> standing_of("Stable", 2, None), standing_of("Empty", 0, ())
    (GroupStanding(state='Stable', reader_count=2), GroupStanding(state='fold not running', reader_count=0))
    """
    if runs is None:
        return GroupStanding(state, member_count)
    return GroupStanding(f"fold {runs[-1].state}" if runs else "fold not running", member_count + len(runs))


def is_of_a_fold(group: str) -> bool:
    """By its name: whether there is such a fold, its runners say."""
    return group.startswith(FOLD_GROUP_PREFIX)


class FoldRuns:
    """Who runs folds, by what runners publish. Fed with the records of `__folds` in their order; one thread."""

    def __init__(self) -> None:
        self._heard: dict[str, dict[str, Status]] = {}

    def hear(self, key: bytes | None, value: bytes | None) -> None:
        gone = dropped_fold(key, value)
        if gone is not None:
            self._heard.pop(gone, None)
            return
        item = decode(key, value)
        if isinstance(item, Status):
            # A runner that has fallen silent is not kept: each has another name, and there have been many.
            heard = self._heard.get(item.fold, {})
            live = {name: one for name, one in heard.items() if item.updated_ms - one.updated_ms < SILENT_AFTER_MS}
            live.pop(item.runner, None)
            self._heard[item.fold] = {**live, item.runner: item}

    def forget(self) -> None:
        self._heard.clear()

    def of(self, group: str, now_ms: int) -> tuple[Status, ...] | None:
        """The live runners of the fold whose place the group shows; None if it is no fold's."""
        heard = self._heard.get(group.removeprefix(FOLD_GROUP_PREFIX)) if is_of_a_fold(group) else None
        return None if heard is None else tuple(one for one in heard.values() if one.is_live(now_ms))
