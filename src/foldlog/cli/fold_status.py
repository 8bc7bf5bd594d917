"""`foldlog fold status`: where each fold stands, as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from foldlog.spark.folds.commands import FoldState

_HEADS: Final = ("FOLD", "STATE", "LAG", "BOOKMARK", "END", "DEAD", "SKIPPED", "VIEW")
_WIDE_HEADS: Final = ("TOPIC", "KIND", "RUNNER")
_SHOWN_PARTITIONS: Final = 6


def status_lines(states: Sequence[FoldState], *, is_wide: bool = False) -> list[str]:
    """A table for people, and below it what is wrong. A wide one has more columns, and every partition."""
    rows = [_HEADS + (_WIDE_HEADS if is_wide else ()), *(_cells(state, is_wide) for state in states)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*table, *(f"{state.fold}: {state.error}" for state in states if state.error)]


def status_json(states: Sequence[FoldState]) -> str:
    """Everything there is to know, for programs."""
    return json.dumps([asdict(state) for state in states], indent=2)


def _cells(state: FoldState, is_wide: bool) -> tuple[str, ...]:
    shown = len(state.end) if is_wide else _SHOWN_PARTITIONS
    cells = (
        state.fold,
        _doing(state),
        "-" if state.lag is None else str(state.lag),
        offsets_text(state.bookmark or {}, shown),
        offsets_text(state.end, shown),
        str(state.dead_letters),
        str(state.skipped),
        state.view,
    )
    if not is_wide:
        return cells
    return (*cells, state.topic, state.kind, state.published.runner if state.published else "-")


def _doing(state: FoldState) -> str:
    if state.lag is None:
        return "mismatch"
    told = state.published
    if told is not None and (state.is_running or told.state in ("failed", "paused")):
        return told.state
    return "never run" if state.bookmark is None else "not running"


def offsets_text(offsets: Mapping[int, int], shown_partitions: int = _SHOWN_PARTITIONS) -> str:
    """
    >>> offsets_text({0: 7, 1: 9})
    '0:7 1:9'
    >>> offsets_text(dict.fromkeys(range(50), 3))
    '0:3 1:3 2:3 3:3 4:3 5:3 and 44 more'
    """
    shown = [f"{number}:{offset}" for number, offset in list(offsets.items())[:shown_partitions]]
    more = len(offsets) - len(shown)
    return " ".join(shown + ([f"and {more} more"] if more else [])) or "-"
