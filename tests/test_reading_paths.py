"""ARCHITECTURE.md's reading paths of an append, a produce request and a woken fetch are the ways that they take.

Each is walked in this process under a profiler, which sees the file of every Python function that is called, and the
files entered are compared with those that the path names, in the order of the first visit: one that is entered and not
named hides a part of the way, one that is named and not entered leads astray. Compiled modules do not show, so the path
may name them as it likes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import traced_paths
from foldlog.records.loops import COMPILED
from traced_paths import TracedPath

ARCHITECTURE = Path(__file__).resolve().parent.parent / "ARCHITECTURE.md"

PATHS: dict[str, tuple[Callable[[Path], TracedPath], int, int | None]] = {
    "append": (traced_paths.append, 14, 35),
    "produce_request": (traced_paths.produce_request, 18, None),
    "woken_fetch": (traced_paths.woken_fetch, 20, None),
}
"""By the name in the marker: what walks it, and how many files and switches between files it may have at most."""

STEPS = re.compile(r"<!-- traced: (\w+) -->\n\n?((?:[0-9-].*\n(?: .*\n)*)+)")
FILE = re.compile(r"^(?:\d+\.|-) `([\w/]+\.py)`", re.MULTILINE)


def named_files() -> dict[str, list[str]]:
    """The files of each traced path: those that its steps begin with."""
    return {name: FILE.findall(steps) for name, steps in STEPS.findall(ARCHITECTURE.read_text(encoding="utf-8"))}


def differences(named: list[str], entered: list[str]) -> str:
    """What to change in the steps; "" if they are the way."""
    missing = [file for file in entered if file not in named]
    astray = [file for file in dict.fromkeys(named) if file not in entered]
    told = [f"{file} is entered, and no step begins with it: add one" for file in missing]
    told += [f"{file} is not entered, and a step begins with it: take it out" for file in astray]
    if not told and list(dict.fromkeys(named)) != entered:
        told = ["the steps are in another order than the first visits"]
    return "".join(f"\n  {sentence}" for sentence in told)


@pytest.mark.skipif(not COMPILED, reason="without the compiled loops, their twins in Python are on the way as well")
@pytest.mark.parametrize("name", PATHS)
def test_a_reading_path_names_the_files_that_are_entered(name: str, tmp_path: Path) -> None:
    walk, files_max, switches_max = PATHS[name]
    traced = walk(tmp_path / "log")
    told = differences(named_files()[name], traced.files)
    assert not told, (
        f"ARCHITECTURE.md, the steps below '<!-- traced: {name} -->':{told}\n  the way is {' → '.join(traced.files)}"
    )
    assert len(traced.files) <= files_max, f"{len(traced.files)} files, at most {files_max}: {traced.files}"
    if switches_max is not None:
        assert traced.switches <= switches_max, f"{traced.switches} switches between files, at most {switches_max}"


def test_every_traced_path_is_in_the_map() -> None:
    assert named_files().keys() == PATHS.keys()


def test_a_step_that_is_missing_one_too_many_and_one_in_another_place_are_told() -> None:
    told = differences(["log/partition.py", "log/gone.py"], ["log/partition.py", "log/hidden.py"])
    assert "log/hidden.py is entered, and no step begins with it" in told
    assert "log/gone.py is not entered, and a step begins with it" in told
    assert "in another order" in differences(["log/a.py", "log/b.py"], ["log/b.py", "log/a.py"])
    assert not differences(["log/a.py", "log/b.py", "log/a.py"], ["log/a.py", "log/b.py"])
