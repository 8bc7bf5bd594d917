"""What a compaction of a lake is asked to do, and what it has done: `foldlog fold compact`.

It joins small files, and removes what only older states of the table name. It never touches the bookmark, and may run
beside a runner: a commit of either that the other one has overtaken is made again.
"""

from __future__ import annotations

from dataclasses import dataclass

TARGET_BYTES = 128 << 20
"""What files are joined to, unless it is said otherwise: what a scan reads at once."""

KEEP_MS = 7 * 24 * 3_600_000
"""How long older states are kept, unless it is said otherwise, for readers and time travel: Delta's own default."""


@dataclass(frozen=True, slots=True)
class CompactionGoal:
    """Files of less than half of `target_bytes` are joined, up to it. States older than `keep_ms` are removed."""

    target_bytes: int = TARGET_BYTES
    keep_ms: int = KEEP_MS


@dataclass(frozen=True, slots=True)
class Compaction:
    """What was done: `joined` files became `written` ones; `removed` files of older states are gone."""

    joined: int = 0
    written: int = 0
    removed: int = 0
    files: int = 0
    """How many the table has now."""


def groups_of(sizes: list[int], target_bytes: int) -> list[list[int]]:
    """Which neighbours to join, by their numbers: files below half of the target, as many as make one file of it.

    >>> groups_of([10, 20, 900, 30, 40, 50], 100)
    [[0, 1], [3, 4]]
    """
    groups: list[list[int]] = [[]]
    size = 0
    for number, one in enumerate(sizes):
        is_small = one < target_bytes // 2
        if not is_small or size + one > target_bytes:
            groups.append([])
            size = 0
        if is_small:
            groups[-1].append(number)
            size += one
    return [group for group in groups if len(group) > 1]
