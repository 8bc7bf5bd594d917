"""Which tests reach a line: recorded once for each room, in build/mutants, and again when its code or tests change."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mutants.copied_tree import BUILD, CopiedTree
from mutants.mutations import Mutant
from mutants.rooms import Room

SHOWN_S_MAX: Final = 60.0
"""Of the tests that reach a line, the quickest are run: as many as took this long together when they were recorded."""


@dataclass(frozen=True, slots=True)
class Covering:
    """Tests by line: `lines[file][line]` are places in `tests`, which took `seconds`."""

    tests: list[str]
    seconds: list[float]
    lines: dict[str, dict[str, list[int]]]

    def reaching(self, mutant: Mutant) -> tuple[list[str], float]:
        """The tests that reach one of its lines, the quickest first, and how long they took. What runs at the import
        may concern every test of the room: constants are used elsewhere."""
        by_line = self.lines.get(mutant.file, {})
        if mutant.at_import:
            found = set(range(len(self.tests)))
        else:
            lines = range(mutant.line, mutant.line + mutant.before.count("\n") + 1)
            found = {test for line in lines for test in by_line.get(str(line), ())}
        chosen: list[str] = []
        total = 0.0
        for test in sorted(found, key=lambda test: self.seconds[test]):
            if chosen and total + self.seconds[test] > SHOWN_S_MAX:
                break
            chosen.append(self.tests[test])
            total += self.seconds[test]
        return chosen, total


def covering(room: Room, tree: CopiedTree) -> Covering:
    """What was recorded of the room, or is now: its tests run once, which takes two or three times as long as usual."""
    place = BUILD / f"covering-{room.name}.json"
    mark = _fingerprint(room, tree.path)
    if place.exists():
        stored = json.loads(place.read_text())
        if stored["fingerprint"] == mark:
            return Covering(stored["tests"], stored["seconds"], stored["lines"])
    draft = BUILD / f"covering-{room.name}.tmp"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "mutants.recording"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(tree.path / part) for part in ("src", "tests", ".")),
        "MUTANTS_RECORD": str(draft),
        "MUTANTS_SOURCES": json.dumps([str(tree.path / file) for file in room.files(tree.path)]),
    }
    subprocess.run([*command, *room.asked()], cwd=tree.path, env=environment, check=False)
    found = json.loads(draft.read_text())
    place.write_text(json.dumps({"fingerprint": mark, **found}))
    draft.unlink()
    return Covering(found["tests"], found["seconds"], found["lines"])


def _fingerprint(room: Room, root: Path) -> str:
    """Of the room's code and its tests."""
    digest = hashlib.sha256()
    for path in [root / file for file in room.files(root)] + room.test_files(root):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()
