"""The bugs planted by hand: plants.toml, read, checked and run."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mutants.copied_tree import CopiedTree, NotRun, Outcome

CLASSES: Final = (
    "durability",
    "order",
    "visibility",
    "fencing",
    "isolation",
    "index",
    "compaction",
    "retention",
    "exactly-once",
    "folds",
    "access",
)
LIMIT_S: Final = 240.0


@dataclass(frozen=True, slots=True)
class Plant:
    """A bug: in `file`, `before` (there exactly once) becomes `after`; one of `tests` has to fail."""

    name: str
    fault: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def planted(self, root: Path) -> str:
        """The text of the file with the bug. ValueError if the place is not there, or there twice."""
        text = (root / self.file).read_text()
        if text.count(self.before) != 1:
            raise ValueError(f"{self.name}: {self.file} holds the text to change {text.count(self.before)} times")
        return text.replace(self.before, self.after)


def load(path: Path = Path(__file__).parent / "plants.toml") -> list[Plant]:
    found = tomllib.loads(path.read_text())["plant"]
    return [
        Plant(one["name"], one["class"], f"src/foldlog/{one['file']}", one["before"], one["after"], tuple(one["tests"]))
        for one in found
    ]


def run(plants: Sequence[Plant], say: Callable[[str], None]) -> list[Plant]:
    """Plant each, run its tests, print the table. Returns those that were not caught."""
    tree = CopiedTree("plants")
    try:
        return _run(tree, plants, say)
    finally:
        tree.close()


def _run(tree: CopiedTree, plants: Sequence[Plant], say: Callable[[str], None]) -> list[Plant]:
    try:
        changed = {plant.name: plant.planted(tree.path) for plant in plants}
    except ValueError as error:
        raise NotRun(f"{error}; find where the bug belongs now, and write it there in plants.toml") from error
    survived = []
    sound: set[str] = set()  # tests that pass where nothing is planted
    for plant in plants:
        with tree.changed(plant.file, changed[plant.name]):
            outcome = tree.run(plant.tests, LIMIT_S)
        if outcome.is_caught and outcome.output and outcome.failed not in sound:
            _check_alone(tree, plant, outcome)
            sound.add(outcome.failed)
        say(_line(plant, outcome))
        if not outcome.is_caught:
            survived.append(plant)
    for line in table(plants, survived):
        say(line)
    return survived


def _check_alone(tree: CopiedTree, plant: Plant, outcome: Outcome) -> None:
    """NotRun if the test fails without the bug, too, or if the bug kept all tests from running."""
    if not outcome.failed:
        raise NotRun(f"{plant.name}: no test can be collected with it:\n{outcome.output[-2000:]}")
    if tree.run([outcome.failed], LIMIT_S).is_caught:
        raise NotRun(f"{outcome.failed} fails without any bug planted")


def _line(plant: Plant, outcome: Outcome) -> str:
    by = f" ({outcome.failed.rpartition('::')[2]})" if outcome.failed else ""
    return f"{outcome.how:<12} {plant.fault:<13} {outcome.seconds:6.1f} s  {plant.name}{by}"


def table(plants: Iterable[Plant], survived: Iterable[Plant]) -> list[str]:
    """One line a fault class, as Markdown."""
    planted = Counter(plant.fault for plant in plants)
    left = Counter(plant.fault for plant in survived)
    lines = ["", "| fault class | planted | caught | survived |", "| --- | --: | --: | --: |"]
    lines += [
        f"| {one} | {planted[one]} | {planted[one] - left[one]} | {left[one]} |" for one in CLASSES if planted[one]
    ]
    total, lost = planted.total(), left.total()
    return [*lines, f"| all | {total} | {total - lost} | {lost} |"]
