"""The state of the demo as numbers: one line for the log, one for each fold, one for each other reader."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import foldlog
from foldlog.client.fold_bulletin import Status
from foldlog.demo.payments import PARTITIONS, TOPIC
from foldlog.demo.pipeline import FOLDS, Bulletins
from foldlog.demo.readers import Reader, left_to_read
from foldlog.demo.writer import Writer

RATE_WINDOW_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class BoardLine:
    """One line of the table. `count` is how many records the log holds, or how many of them the reader has read; `lag`
    how many are left to read, None for the log itself.
    """

    name: str
    what: str
    count: int
    per_s: float
    lag: int | None
    state: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """Everything the table shows, at one moment."""

    elapsed_s: float
    lines: tuple[BoardLine, ...]


def short_state(state: str) -> str:
    """
    >>> short_state("caught up"), short_state("running, rebuild under way")
    ('caught up', 'rebuild')
    """
    return state.rpartition(", ")[2].removesuffix(" under way")


class Rate:
    """How fast a count has grown over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, count: int, now_s: float) -> float:
        """
        >>> rate = Rate()
        >>> rate.of(0, 10.0), rate.of(300, 12.0)
        (0.0, 150.0)
        """
        self._seen.append((now_s, count))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= RATE_WINDOW_S:
            self._seen.popleft()
        then_s, before = self._seen[0]
        return max(0, count - before) / (now_s - then_s) if now_s > then_s else 0.0


class Observer:
    """Reads the log's files, as any other process may, and never writes. For one thread; close it."""

    def __init__(self, directory: Path, writer: Writer, readers: Sequence[Reader], labels: Mapping[str, str]) -> None:
        """`labels` describe each fold and each reader in a few words."""
        self._log = foldlog.open(directory, mode="r")
        self._bulletins = Bulletins(self._log)
        self._writer = writer
        self._readers = readers
        self._labels = labels
        self._runner_pid: int | None = None
        self._started_s = time.monotonic()
        self._rates: dict[str, Rate] = {}

    def close(self) -> None:
        self._log.close()

    def expect(self, runner_pid: int | None) -> None:
        """Set the process that runs the folds now; None if none does."""
        self._runner_pid = runner_pid

    def look(self) -> Board:
        now_s = time.monotonic()
        ends = {number: end for number, (_, end) in self._log.offsets(TOPIC).items()}
        statuses = self._bulletins.latest()
        written = BoardLine(
            TOPIC,
            f"the log, {PARTITIONS} partitions",
            sum(ends.values()),
            self._rate(TOPIC, self._writer.acknowledged, now_s),
            None,
        )
        folds = [self._fold(fold, statuses.get(fold), ends, now_s) for fold in FOLDS]
        readers = [self._reader(reader, ends, now_s) for reader in self._readers]
        return Board(now_s - self._started_s, (written, *folds, *readers))

    def _fold(self, name: str, status: Status | None, ends: Mapping[int, int], now_s: float) -> BoardLine:
        if status is None:
            return BoardLine(name, self._labels[name], 0, 0.0, sum(ends.values()), self._state(None))
        rows = sum(status.bookmark.values())
        lag = max(0, sum(ends.values()) - rows)
        return BoardLine(name, self._labels[name], rows, self._rate(name, rows, now_s), lag, self._state(status))

    def _state(self, status: Status | None) -> str:
        """The state that the running pipeline published; "killed" without one, "starting" if it has published none."""
        if self._runner_pid is None:
            return "killed"
        is_its_own = status is not None and status.runner.endswith(f":{self._runner_pid}")
        return short_state(status.state) if status is not None and is_its_own else "starting"

    def _reader(self, reader: Reader, ends: Mapping[int, int], now_s: float) -> BoardLine:
        if reader.group is None:
            read = reader.digests.ends
            lag = sum(end - read.get(number, 0) for number, end in ends.items())
        else:
            lag = left_to_read(self._log, reader.group)
        rate = self._rate(reader.name, reader.records, now_s)
        return BoardLine(reader.name, self._labels[reader.name], reader.records, rate, max(0, lag))

    def _rate(self, name: str, count: int, now_s: float) -> float:
        return self._rates.setdefault(name, Rate()).of(count, now_s)
