"""How things are measured: in turns, several times, the median counts. The machine is never quiet.

What is compared runs alternately in one process, so that whatever disturbs one disturbs the other; ratios are the
median of the ratios of each turn, not the ratio of two medians.
"""

from __future__ import annotations

import gc
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done. `full` is for figures, `quick` shows only that everything runs."""

    repeats: int
    bulk_records: int
    send_records: int
    single_records: int
    producers: int
    read_records: int
    small_log_records: int
    large_log_records: int
    partitions: int
    partition_bytes: int
    unsynced_bytes: tuple[int, ...]
    block_writes: int


FULL = Scale(
    repeats=5,
    bulk_records=1_000_000,
    send_records=600_000,
    single_records=200,
    producers=100,
    read_records=1_000_000,
    small_log_records=10_000,
    large_log_records=10_000_000,
    partitions=1000,
    partition_bytes=5_000_000,
    unsynced_bytes=(0, 16 << 20, 64 << 20, 256 << 20),
    block_writes=2000,
)

QUICK = Scale(
    repeats=1,
    bulk_records=2000,
    send_records=2000,
    single_records=5,
    producers=4,
    read_records=2000,
    small_log_records=100,
    large_log_records=2000,
    partitions=5,
    partition_bytes=20_000,
    unsynced_bytes=(0, 100_000),
    block_writes=20,
)


class Turns:
    """Runs that are compared. Each is a function that returns a speed (something per second)."""

    def __init__(self, repeats: int, runs: Mapping[str, Callable[[], float]]) -> None:
        self._speeds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(repeats):
            for name, run in runs.items():
                gc.collect()
                self._speeds[name].append(run())

    def speed(self, name: str) -> float:
        return statistics.median(self._speeds[name])

    def best(self, name: str) -> float:
        """Where nothing but the processor is waited for, noise only takes away."""
        return max(self._speeds[name])

    def ratio(self, one: str, other: str) -> float:
        """How many times as fast `one` is."""
        pairs = zip(self._speeds[one], self._speeds[other], strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)


class Place:
    """A directory to work in; each run gets a fresh one below it, and gives it back."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._number = 0

    def fresh(self) -> Path:
        self._number += 1
        path = self._root / f"{self._number:04d}"
        path.mkdir(parents=True)
        return path

    def give_back(self, path: Path) -> None:
        shutil.rmtree(path)


def timed(work: Callable[[], object]) -> float:
    """Seconds until there is a result; giving its memory back is not part of them."""
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    del result
    return seconds


def timed_each(work: Callable[[Item], object], items: Iterable[Item]) -> float:
    """Seconds for all of them, one after the other."""
    start = time.perf_counter()
    for item in items:
        work(item)
    return time.perf_counter() - start


def latencies(work: Callable[[int], object], times: int) -> list[float]:
    """Seconds of each call, sorted."""
    found = []
    for number in range(times):
        start = time.perf_counter()
        work(number)
        found.append(time.perf_counter() - start)
    return sorted(found)


def percentile(ordered: list[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
