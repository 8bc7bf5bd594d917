"""A sample of a room's mutants, each met by the tests that reach its line, and the score."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mutants.copied_tree import CopiedTree, NotRun
from mutants.covering import covering
from mutants.mutations import Mutant, mutants_of
from mutants.rooms import Room

_START_S: Final = 45.0
"""What a fresh process may take beside the tests: Python, pytest, and a JVM where Spark is used."""


@dataclass(slots=True)
class Score:
    """What became of a room's sample."""

    room: str
    seed: int
    candidates: int
    killed: int = 0
    equivalent: int = 0
    unreached: list[Mutant] = field(default_factory=list)
    survivors: list[Mutant] = field(default_factory=list)

    @property
    def tried(self) -> int:
        return self.killed + len(self.survivors) + len(self.unreached)

    def row(self) -> str:
        share = 100 * self.killed / self.tried if self.tried else 0.0
        return (
            f"| {self.room} | {self.candidates} | {self.tried + self.equivalent} | {self.seed} | {self.killed}"
            f" | {self.equivalent} | {len(self.survivors)} | {len(self.unreached)} | {share:.0f} % |"
        )


HEADING: Final = (
    "| room | mutants there are | tried | seed | killed | equivalent | survived | no test reaches it | killed of those"
    " that change something |\n| --- | --: | --: | --: | --: | --: | --: | --: | --: |"
)


def equivalents(path: Path = Path(__file__).parent / "equivalents.toml") -> dict[tuple[str, str, str, str], str]:
    """Mutants that change nothing that anybody can see: (file, line, before, after) → why."""
    return {
        (f"src/foldlog/{one['file']}", one["line"], one["before"], one["after"]): one["reason"]
        for one in tomllib.loads(path.read_text()).get("equivalent", [])
    }


def sample(root: Path, room: Room, count: int, seed: int) -> tuple[int, list[Mutant]]:
    """How many mutants there are, and some of them; the same for the same code, count and seed."""
    found = [mutant for file in room.files(root) for mutant in mutants_of(file, (root / file).read_text())]
    return len(found), random.Random(f"{room.name} {seed}").sample(found, min(count, len(found)))


def run(room: Room, count: int, seed: int, say: Callable[[str], None]) -> Score:
    tree = CopiedTree(room.name)
    try:
        return _run(tree, room, count, seed, say)
    finally:
        tree.close()


def _run(tree: CopiedTree, room: Room, count: int, seed: int, say: Callable[[str], None]) -> Score:
    known = equivalents()
    tests = covering(room, tree)
    candidates, chosen = sample(tree.path, room, count, seed)
    score = Score(room.name, seed, candidates)
    for mutant in chosen:
        if (mutant.file, mutant.context, mutant.before, mutant.after) in known:
            score.equivalent += 1
            continue
        reaching, seconds = tests.reaching(mutant)
        if not reaching:
            score.unreached.append(mutant)
            say(f"no test      {mutant.name}")
            continue
        how = _meet(tree, mutant, reaching, _START_S + 4 * seconds)
        if how == "survived":
            score.survivors.append(mutant)
        else:
            score.killed += 1
        say(f"{how:<12} {mutant.name} ({len(reaching)} tests)")
    return score


def _meet(tree: CopiedTree, mutant: Mutant, tests: Sequence[str], limit_s: float) -> str:
    names = tree.path / "chosen-tests.txt"
    names.write_text("\n".join(tests))
    try:
        with tree.changed(mutant.file, mutant.text((tree.path / mutant.file).read_text())):
            return tree.run([f"@{names}"], limit_s).how
    except NotRun:
        return "caught"  # the module cannot be imported, and so no test of it is found
