"""A plugin of pytest that writes down which test reaches which line, and how long it takes.

Loaded with `-p mutants.recording`; the environment says where to (MUTANTS_RECORD) and of which files (MUTANTS_SOURCES).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import coverage
import pytest

_PLACE = os.environ["MUTANTS_RECORD"]
_COVERAGE = coverage.Coverage(
    data_file=None, config_file=False, include=json.loads(os.environ["MUTANTS_SOURCES"]), messages=False
)
_SECONDS: dict[str, float] = {}
_FAILED: set[str] = set()


def pytest_configure() -> None:
    _COVERAGE.start()


def pytest_runtest_logstart(nodeid: str) -> None:
    _COVERAGE.switch_context(nodeid)


def pytest_runtest_logfinish() -> None:
    _COVERAGE.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _SECONDS[report.nodeid] = _SECONDS.get(report.nodeid, 0.0) + report.duration
    if report.outcome != "passed":
        _FAILED.add(report.nodeid)


def pytest_sessionfinish() -> None:
    _COVERAGE.stop()
    data = _COVERAGE.get_data()
    tests = sorted(test for test in _SECONDS if test not in _FAILED)
    numbers = {test: number for number, test in enumerate(tests)}
    root = Path.cwd()
    lines = {
        str(Path(file).relative_to(root)): {
            str(line): sorted(numbers[test] for test in reached if test in numbers)
            for line, reached in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    document = {"tests": tests, "seconds": [round(_SECONDS[test], 3) for test in tests], "lines": lines}
    Path(_PLACE).write_text(json.dumps(document))
