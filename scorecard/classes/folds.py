"""Drivers, executors, workers and brokers are killed while folds run; every view is what its bookmark says.

These need Spark and a PostgreSQL server, so the tests of the house are run as they are, in a pytest of their own; each
kills until it has done so often enough.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from faults import test_planted_answers as planted
from scorecard.card import ROOT
from scorecard.outcome import FaultClass, Outcome, Plant, passes, shuffled, until

TESTS = (
    "tests/spark/folds/test_kills.py",
    "tests/spark/sink/test_sink_faults.py",
    "tests/spark/sink/test_sink_wire_faults.py",
    "tests/spark/change_topics/test_changes_killed.py",
    "tests/views/test_views_killed.py",
    "tests/views/table/test_table_kill.py",
)


def run(seed: int, seconds: float) -> Outcome:
    outcome = Outcome()
    order = shuffled(list(TESTS), seed)
    for number in until(seconds):
        if number == len(order):
            break  # each has its own seed and would only do the same again
        run_tests(order[number], outcome)
    return outcome


def run_tests(path: str, outcome: Outcome) -> None:
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "faults or not faults", "-k", "kill", path]
        ran = subprocess.run([*command, f"--junitxml={report}"], cwd=ROOT, capture_output=True, text=True, check=False)
        if not report.exists():
            outcome.found("not run", ran.stdout[-500:] + ran.stderr[-500:], " ".join(command[1:]))
            return
        cases = list(ET.parse(report).iter("testcase"))
    for case in cases:
        name = case.attrib["name"]
        if case.find("skipped") is not None:
            outcome.notes[f"not run here: {name}"] = case.find("skipped").attrib.get("message", "")  # type: ignore[union-attr]
            continue
        outcome.done[f"runs with kills/{Path(path).stem.removeprefix('test_').replace('_', ' ')}"] += 1
        broken = case.find("failure") if case.find("failure") is not None else case.find("error")
        if broken is not None:
            what = re.sub(r"\s+", " ", broken.attrib.get("message", ""))
            outcome.found("wrong view", f"{name}: {what}", f"pytest -m '' {path} -k {name.partition('[')[0]}")


CLASS = FaultClass(
    name="folds",
    title="Kills under folds",
    what="""Spark drivers, their JVMs, Python workers, processes that write views, and brokers are killed at random
moments while folds run into SQLite, PostgreSQL, search indexes, counters and lakes, and while streams write back into
the log. After every kill each view is the fold of exactly what its bookmark says, computed again in plain Python; no
batch of a sink is there twice or in part.""",
    finds=("wrong view", "not run"),
    share=0.12,
    short_share=0.0,
    run=run,
    plants=(
        Plant(
            "a bookmark before its rows, outside their transaction",
            passes(planted.test_a_bookmark_outside_its_transaction_is_found, when="before"),
        ),
        Plant(
            "a bookmark after its rows, outside their transaction",
            passes(planted.test_a_bookmark_outside_its_transaction_is_found, when="after"),
        ),
    ),
)
