"""What `make mutants` is made of: a rule changes what it says and nothing else, and every planted bug has its place."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from mutants import plants, sampling
from mutants.covering import Covering
from mutants.mutations import Mutant, mutants_of
from mutants.rooms import ROOMS

ROOT = Path(__file__).resolve().parents[1]

SOURCE = '''
"""A module, of 3 lines."""

LIMIT = 7


class Queue:
    """One, at 1."""

    __slots__ = ("count",)

    def take(self, count: int = 2) -> bool:
        """Take 4."""
        if self.count < count and not self.closed:
            logger.info("took %d", count + 1)
            self.count += count
            self.told.append(count)
            raise ValueError(f"{count + 1} are too many")
        return self.count % 3 == 0
'''


def changes(kind: str) -> set[tuple[str, str]]:
    return {(one.before, one.after) for one in mutants_of("queue.py", SOURCE) if one.kind == kind}


def test_a_rule_changes_one_thing_and_leaves_words_alone() -> None:
    assert changes("comparison") == {
        ("self.count < count", "(self.count <= count)"),
        ("self.count % 3 == 0", "(self.count % 3 != 0)"),
    }
    assert changes("arithmetic") == {("self.count % 3", "(self.count // 3)")}
    assert changes("boolean") == {
        ("self.count < count and not self.closed", "(self.count < count or not self.closed)"),
        ("not self.closed", "(self.closed)"),
    }
    assert changes("constant") == {(str(number), f"({number + by})") for number in (7, 2, 3, 0) for by in (1, -1)}
    assert changes("branch") == {
        ("self.count < count and not self.closed", "(not (self.count < count and (not self.closed)))")
    }
    assert changes("removed") == {("self.count += count", "pass"), ("self.told.append(count)", "pass")}
    assert changes("returned") == {("self.count % 3 == 0", "None")}


def test_every_mutant_is_a_module_that_differs() -> None:
    for mutant in mutants_of("queue.py", SOURCE):
        changed = mutant.text(SOURCE)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE)), mutant.name
    at_import = {one.before for one in mutants_of("queue.py", SOURCE) if one.at_import}
    assert at_import == {"7", "2"}


def test_a_sample_is_the_same_for_the_same_seed() -> None:
    room = ROOMS["access"]
    count, first = sampling.sample(ROOT, room, 10, 1)
    assert count > 500
    assert sampling.sample(ROOT, room, 10, 1) == (count, first)
    assert sampling.sample(ROOT, room, 10, 2)[1] != first


def test_the_quickest_tests_that_reach_a_line_are_run_first() -> None:
    found = Covering(["slow", "quick", "other"], [3.0, 0.1, 1.0], {"queue.py": {"5": [0, 1], "9": [2]}})

    def mutant(line: int, *, at_import: bool = False) -> Mutant:
        return Mutant("queue.py", line, "constant", "1", "(2)", "", at_import, 0, 1)

    assert found.reaching(mutant(5))[0] == ["quick", "slow"]
    assert found.reaching(mutant(6))[0] == []
    assert found.reaching(mutant(1, at_import=True))[0] == ["quick", "other", "slow"]


def test_every_room_is_there() -> None:
    for room in ROOMS.values():
        assert room.files()
        assert all((ROOT / path).exists() for path in (*room.files(), *room.asked()))


def test_there_are_bugs_of_every_class() -> None:
    planted = plants.load()
    by_class = Counter(plant.fault for plant in planted)
    assert set(by_class) == set(plants.CLASSES)
    assert min(by_class.values()) >= 5
    assert by_class.total() >= 60
    assert len({plant.name for plant in planted}) == len(planted)
    assert all((ROOT / test.partition("::")[0]).exists() for plant in planted for test in plant.tests)


@pytest.mark.faults
def test_every_planted_bug_has_its_place() -> None:
    """Not in `make test`: whoever rewrites the line should not have to know. `make mutants` says it, too."""
    for plant in plants.load():
        compile(plant.planted(ROOT), plant.file, "exec")


@pytest.mark.faults
def test_every_equivalent_mutant_is_there_and_says_why() -> None:
    for (file, line, before, after), reason in sampling.equivalents().items():
        found = mutants_of(file, (ROOT / file).read_text())
        assert any((one.context, one.before, one.after) == (line, before, after) for one in found), (file, line)
        assert len(reason) > 15
