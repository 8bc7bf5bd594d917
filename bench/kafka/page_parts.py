"""What the sections of the page are made of: cells, tables, sentences that follow from the figures, and aims."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from bench.kafka.charts import Bar
from bench.kafka.results import Case, Rounds
from bench.kafka.sides import FOLDLOG, KAFKA, LABELS, RELAXED
from bench.table import count, factor

SERIES = {KAFKA: "other", FOLDLOG: "ours", RELAXED: "ours-2"}
ON_PAR = 0.95
"""From this ratio on the two are called level: less than the rounds of one side differ among themselves."""

Write = Callable[[float], str]
Name = Callable[[Case], str]


@dataclass(frozen=True, slots=True)
class Aim:
    """What the project has set itself, what came out, and in how many cases of how many it was reached."""

    text: str
    measured: str
    met: int
    of: int

    def verdict(self) -> str:
        if self.met == self.of:
            return "yes"
        return "**no**" if self.met == 0 else f"**in {self.met} of {self.of} cases**"


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart, and the name of its file."""

    file: str
    title: str
    svg: str


@dataclass(slots=True)
class SectionPage:
    """A section of the page, in the order it is written."""

    title: str
    tables: Sequence[str]
    pictures: Sequence[Picture]
    findings: Sequence[str]
    aims: Sequence[Aim] = field(default_factory=tuple)


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(
        [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
        + [f"| {' | '.join(line)} |" for line in lines]
    )


def cell(rounds: Rounds, case: Case, side: str, figure: str, write: Write) -> str:
    """The median; below it the spread, and what the broker used for it."""
    if not rounds.has(case, side, figure):
        return "-"
    found = rounds.spread(case, side, figure)
    below = [f"{write(found.low)} to {write(found.high)}"]
    if rounds.has(case, side, "cpu_s"):
        below.append(f"CPU {rounds.spread(case, side, 'cpu_s').median:.2f} s")
    if rounds.has(case, side, "peak_bytes"):
        below.append(f"{megabytes(rounds.spread(case, side, 'peak_bytes').median)}")
    return f"**{write(found.median)}**<br><small>{'<br>'.join(below)}</small>"


def bar(rounds: Rounds, case: Case, side: str, figure: str, write: Write, *, name: str = "", series: str = "") -> Bar:
    found = rounds.spread(case, side, figure)
    return Bar(
        series or SERIES[side], name or LABELS[side], found.median, found.low, found.high, write(found.median)
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """`one` beside `other` in several cases, by a figure of which more is better."""

    rounds: Rounds
    cases: Sequence[Case]
    figure: str
    one: str = FOLDLOG
    other: str = KAFKA

    def ratios(self) -> list[float]:
        return [self.ratio(case) for case in self.cases]

    def ratio(self, case: Case) -> float:
        return self.rounds.ratio(case, self.one, self.other, self.figure)

    def reached(self, wanted: float) -> int:
        return sum(ratio >= wanted for ratio in self.ratios())

    def aim(self, text: str, wanted: float) -> Aim:
        return Aim(text, self.range_text(), self.reached(wanted), len(self.cases))

    def range_text(self) -> str:
        ratios = self.ratios()
        if len(ratios) == 1:
            return factor(ratios[0])
        return f"{factor(min(ratios))} to {factor(max(ratios))}, median {factor(statistics.median(ratios))}"

    def sentence(self, what: str, name: Name) -> str:
        """Who is ahead, where, by how much. Where the rounds of the two overlap, nobody is."""
        groups: dict[str, list[str]] = {"ahead": [], "level": [], "behind": []}
        for case in self.cases:
            groups[self._place(case)].append(f"{name(case)} ({factor(self.ratio(case))})")
        parts = [f"{what}: {self.range_text()} of {LABELS.get(self.other, self.other)}."]
        if groups["ahead"]:
            parts.append(f"**Ahead** in {len(groups['ahead'])} of {len(self.cases)}.")
        if groups["behind"]:
            parts.append(f"**Behind** in {len(groups['behind'])}: {'; '.join(groups['behind'])}.")
        if groups["level"]:
            parts.append(f"The rounds overlap in {len(groups['level'])}.")
        return " ".join(parts)

    def _place(self, case: Case) -> str:
        mine, theirs = (self.rounds.spread(case, side, self.figure) for side in (self.one, self.other))
        if mine.low > theirs.high:
            return "ahead"
        return "behind" if mine.high < theirs.low else "level"


def per_second(value: float) -> str:
    return f"{count(value)}/s"


def megabytes(value: float) -> str:
    return f"{value / 1e6:.0f} MB"


def seconds(value: float) -> str:
    """
    >>> seconds(1.5), seconds(0.0123), seconds(0.000042)
    ('1.50 s', '12.3 ms', '42.0 µs')
    """
    if value >= 1:
        return f"{value:.3g} s" if value >= 10 else f"{value:.2f} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.1f} µs"


def written_size(value_bytes: int) -> str:
    return "1 KB" if value_bytes == 1000 else f"{value_bytes} B"
