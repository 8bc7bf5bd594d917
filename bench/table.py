"""The table of the benchmark: what is measured, what it is compared with, and how figures are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line: ours, beside a limit of the machine or what a user would pick instead.

    `ratio` is ours divided by the other, both as speeds: above 1 we are faster. `target` is what the project has set
    itself, in words, and `met` whether this run reached it; both are empty where there is no target.
    """

    name: str
    ours: str
    other: str
    ratio: float | None = None
    target: str = ""
    met: bool | None = None

    def cells(self) -> list[str]:
        ratio = "" if self.ratio is None else factor(self.ratio)
        met = "" if self.met is None else ("yes" if self.met else "**no**")
        return [self.name, self.ours, self.other, ratio, self.target, met]


@dataclass(frozen=True, slots=True)
class Table:
    """A section of the report. `notes` stand below it."""

    title: str
    head: Sequence[str]
    lines: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        widths = [max(len(line[column]) for line in [self.head, *self.lines]) for column in range(len(self.head))]

        def joined(cells: Iterable[str]) -> str:
            return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

        rule = "| " + " | ".join("-" * width for width in widths) + " |"
        text = [f"## {self.title}", "", joined(self.head), rule, *(joined(line) for line in self.lines)]
        if self.notes:
            text += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(text) + "\n"


ROW_HEAD = ("what", "ours", "beside it", "ratio", "target", "met")


def table_of(title: str, rows: Sequence[Row], notes: Sequence[str] = ()) -> Table:
    return Table(title, ROW_HEAD, [row.cells() for row in rows], notes)


def count(number: float) -> str:
    """1234567 → 1.23 M."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.3g}{unit}"
    return f"{number:.3g}"


def per_second(number: float) -> str:
    return f"{count(number)}/s"


def bytes_per_second(number: float) -> str:
    return f"{number / 1e9:.2f} GB/s" if number >= 1e9 else f"{number / 1e6:.3g} MB/s"


def duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def factor(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 100 else f"{ratio:.3g}x"
