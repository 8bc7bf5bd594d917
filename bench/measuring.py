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
    spark_repeats: int
    spark_warm_up: bool
    spark_value_bytes: int
    spark_sink_records: int
    fold_records: int
    fold_latencies: int
    fold_idle_s: float
    fold_memory_records: tuple[int, ...]


FULL = Scale(
    repeats=5,
    bulk_records=1_000_000,
    send_records=600_000,
    single_records=600,
    producers=100,
    read_records=1_000_000,
    small_log_records=10_000,
    large_log_records=10_000_000,
    partitions=1000,
    partition_bytes=5_000_000,
    unsynced_bytes=(0, 16 << 20, 64 << 20, 256 << 20),
    block_writes=2000,
    spark_repeats=3,
    spark_warm_up=True,
    spark_value_bytes=200_000_000,
    spark_sink_records=1_000_000,
    fold_records=400_000,
    fold_latencies=200,
    fold_idle_s=30,
    fold_memory_records=(1_000_000, 10_000_000),
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
    spark_repeats=1,
    spark_warm_up=False,
    spark_value_bytes=200_000,
    spark_sink_records=2000,
    fold_records=1000,
    fold_latencies=3,
    fold_idle_s=2,
    fold_memory_records=(1000, 2000),
)


class Turns:
    """Runs that are compared. Each is a function that returns a speed (something per second)."""

    def __init__(self, repeats: int, runs: Mapping[str, Callable[[], float]], *, warm_up: bool = False) -> None:
        """`warm_up`: one turn more, before the others, that does not count."""
        self._speeds: dict[str, list[float]] = {name: [] for name in runs}
        if warm_up:
            for run in runs.values():
                run()
        for _ in range(repeats):
            for name, run in runs.items():
                gc.collect()
                self._speeds[name].append(run())

    def speed(self, name: str) -> float:
        return statistics.median(self._speeds[name])

    def best(self, name: str) -> float:
        """Where nothing but the processor is waited for, noise only takes away."""
        return max(self._speeds[name])

    def spread(self, name: str) -> tuple[float, float]:
        """The slowest and the quickest turn."""
        return min(self._speeds[name]), max(self._speeds[name])

    def ratio(self, one: str, other: str) -> float:
        """How many times as fast `one` is."""
        pairs = zip(self._speeds[one], self._speeds[other], strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)

    def together(self, *names: str) -> float:
        """The speed of doing them one after the other for each item."""
        return statistics.median(self._in_series(names))

    def ratio_together(self, one: str, *others: str) -> float:
        """How many times as fast `one` is as the others one after the other."""
        pairs = zip(self._speeds[one], self._in_series(others), strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)

    def _in_series(self, names: tuple[str, ...]) -> list[float]:
        turns = zip(*(self._speeds[name] for name in names), strict=True)
        return [1 / sum(1 / speed for speed in turn) for turn in turns]


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
