"""Takes the measurements of a section in turns: round by round, and in a round one side after the other."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench.kafka.effort import QUICK, Effort
from bench.kafka.results import Case, Measurement
from bench.kafka.watching import Watch
from bench.measuring import Place

Figures = dict[str, float]


@dataclass
class Recorder:
    """What a section has found so far, and what it works with. Owned by one thread."""

    place: Place
    effort: Effort
    where: Mapping[str, str] = field(default_factory=dict)
    """Only cases with these properties are measured."""
    measurements: list[Measurement] = field(default_factory=list)

    def in_turns(self, case: Case, runs: Mapping[str, Callable[[], Figures]], *, rounds: int | None = None) -> None:
        """Every side in every round; the next round begins with another side, so that none is always the first."""
        if any(str(case.get(name)) != value for name, value in self.where.items()):
            return
        names = list(runs)
        for number in range(self.effort.rounds if rounds is None else rounds):
            turn = number % len(names)
            for side in [*names[turn:], *names[:turn]]:
                self.add(case, side, number, runs[side]())

    def add(self, case: Case, side: str, number: int, figures: Figures) -> None:
        self.measurements.append(Measurement(dict(case), side, number, figures))
        told = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        print(f"  {' '.join(map(str, case.values()))}, {side}, round {number + 1}: {told}", file=sys.stderr, flush=True)

    def settle(self) -> None:
        """What a measurement left unwritten is not for the next one to wait for. The sync is the whole machine's:
        beside others at work, a quick run, which measures nothing, waited for it longer than for all else."""
        gc.collect()
        if self.effort != QUICK:
            os.sync()


def watched(pid: int, work: Callable[[], Figures]) -> Figures:
    """The figures of the work, with what the broker used for it."""
    watch = Watch(pid)
    figures = work()
    used = watch.used()
    return {**figures, "cpu_s": used.cpu_s, "peak_bytes": used.peak_bytes}
