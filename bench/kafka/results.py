"""What was measured, round by round, as it is kept in bench/kafka_results.json, and the figures made of it.

A section of the file is one run of one section: rerunning a section replaces it, and leaves the others.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.kafka.effort import Effort

Case = Mapping[str, str | int]

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Measurement:
    """One side in one round of one case: the figures by their names, units last."""

    case: Case
    side: str
    round: int
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SectionRun:
    """All rounds of a section, and where and how they were measured."""

    name: str
    command: str
    day: str
    effort: Effort
    seconds: float
    load_average: float
    versions: Mapping[str, str]
    machine: Mapping[str, str]
    limits: Mapping[str, float]
    measurements: Sequence[Measurement] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of the rounds, and the least and the most."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


class Rounds:
    """The measurements of a section, asked by case, side and figure."""

    def __init__(self, measurements: Iterable[Measurement]) -> None:
        self._found: dict[tuple[str, str, str], dict[int, float]] = {}
        self._cases: dict[str, Case] = {}
        for one in measurements:
            key = _key(one.case)
            self._cases.setdefault(key, one.case)
            for figure, value in one.figures.items():
                self._found.setdefault((key, one.side, figure), {})[one.round] = value

    def cases(self, **wanted: str | int) -> list[Case]:
        """Those with these properties, in the order they were measured."""
        return [case for case in self._cases.values() if all(case.get(name) == value for name, value in wanted.items())]

    def has(self, case: Case, side: str, figure: str) -> bool:
        return (_key(case), side, figure) in self._found

    def spread(self, case: Case, side: str, figure: str) -> Spread:
        return Spread.of(list(self._found[_key(case), side, figure].values()))

    def ratio(self, case: Case, one: str, other: str, figure: str) -> float:
        """`one` by `other`: the median of the ratios of each round, not the ratio of two medians."""
        mine, theirs = self._found[_key(case), one, figure], self._found[_key(case), other, figure]
        both = sorted(mine.keys() & theirs.keys())
        return statistics.median(mine[number] / theirs[number] for number in both)


def _key(case: Case) -> str:
    return json.dumps(dict(case), sort_keys=True)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all are not above (nearest rank).

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50), percentile([1.0, 2.0, 3.0, 4.0], 99)
    (2.0, 4.0)
    """
    if not ordered:
        raise ValueError("a percentile of nothing")
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def merged(
    before: Mapping[str, SectionRun], measured: Mapping[str, SectionRun], order: Sequence[str]
) -> dict[str, SectionRun]:
    """What was measured in place of what was kept under the same name; the rest stays."""
    found = {**before, **measured}
    return {name: found[name] for name in order if name in found}


def load(path: Path) -> dict[str, SectionRun]:
    """The sections by name; none where there is no file yet."""
    if not path.exists():
        return {}
    return decoded(json.loads(path.read_text(encoding="utf-8")))


def save(path: Path, sections: Mapping[str, SectionRun]) -> None:
    """A measurement a line, so that a difference between two runs can be read."""
    document = encoded(sections)
    lines = {name: section.pop("measurements") for name, section in document["sections"].items()}
    for name, section in document["sections"].items():
        section["measurements"] = f"@{name}"
    text = json.dumps(document, indent=1, ensure_ascii=False)
    for name, measurements in lines.items():
        rows = ",\n".join(f"    {json.dumps(one, ensure_ascii=False)}" for one in measurements)
        text = text.replace(f'"measurements": "@{name}"', f'"measurements": [\n{rows}\n   ]')
    path.write_text(text + "\n", encoding="utf-8")


def encoded(sections: Mapping[str, SectionRun]) -> dict[str, Any]:
    return {"format": FORMAT, "sections": {name: asdict(section) for name, section in sections.items()}}


def decoded(document: Mapping[str, Any]) -> dict[str, SectionRun]:
    if document.get("format") != FORMAT:
        raise ValueError(f"results of format {document.get('format')}, not {FORMAT}: measure again with --write")
    found = {}
    for name, section in document["sections"].items():
        measurements = tuple(Measurement(**one) for one in section["measurements"])
        found[name] = SectionRun(**{**section, "effort": Effort(**section["effort"]), "measurements": measurements})
    return found
