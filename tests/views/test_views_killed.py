"""kill -9 at any moment: a view is always the fold of exactly what its bookmark says, and the next process goes on.

A process applies ranges as quickly as it can and says after each how far it is. It is killed at a random moment after
some random range, again and again, on the same view: nothing that was acknowledged is missing, nothing is there
twice, and no lock stays behind.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from views.applier import CASES, EVENTS, offset_of
from views.view_contract import held, in_order

TESTS = Path(__file__).resolve().parent.parent
KILLS = 4


def kill_at_some_moment(engine: str, path: Path, rng: random.Random) -> int:
    """Start it, let it acknowledge a few ranges, kill it; the last offset it acknowledged."""
    command = [sys.executable, str(TESTS / "views" / "applier.py"), engine, str(path), str(rng.randrange(1000))]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent / 'src'}"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    with process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        began, ranges = time.monotonic(), rng.randrange(1, 12)
        lines += [process.stdout.readline() for _ in range(ranges)]
        assert all(line.strip().isdigit() for line in lines), "it ended by itself"
        # Some moment of the next two ranges, which take as long as those before, however busy the machine is.
        with suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0, 2) * (time.monotonic() - began) / ranges)
        process.kill()
        lines += process.stdout.read().splitlines(keepends=True)
    return max(int(line) for line in lines if line.endswith("\n"))


@pytest.mark.parametrize(
    "engine", [name if name == "sqlite" else pytest.param(name, marks=pytest.mark.faults) for name in sorted(CASES)]
)
def test_a_killed_view_is_exactly_what_its_bookmark_says_and_goes_on(engine: str, tmp_path: Path) -> None:
    rng = random.Random(engine)
    case = CASES[engine](tmp_path)
    before = 0
    for _ in range(KILLS):
        acknowledged = kill_at_some_moment(engine, tmp_path, rng)
        with closing(case.open()) as view:
            here = offset_of(view)
            assert here >= max(acknowledged, before)
            assert here < len(EVENTS)
            assert held(view) == in_order(case.content(EVENTS, here))
        before = here
    assert before > 0
