"""`foldlog version` tells what is installed, and its extras are those of the package."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import foldlog
from foldlog.cli.main import main
from foldlog.cli.version import EXTRAS, REQUIRED, installed_version
from foldlog.records.loops import COMPILED

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TOGETHER = {"all", "dev", "docs"}
"""Extras that are made of others."""


def names(requirements: list[str]) -> set[str]:
    """
    >>> sorted(names(["psycopg[binary]>=3.2", "pyarrow>=17"]))
    ['psycopg', 'pyarrow']
    """
    return {re.split(r"[\[<>=;~! ]", text, maxsplit=1)[0] for text in requirements}


def test_it_tells_people_and_programs_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    text = capsys.readouterr().out
    assert main(["version", "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["version"] == foldlog.__version__
    assert facts["python"] == platform.python_version()
    assert facts["kernels"] == ("compiled" if COMPILED else "python")
    assert text.startswith(f"foldlog {foldlog.__version__}, with ")
    for package, version in [*facts["requires"].items(), *facts["extras"]["arrow"].items()]:
        assert f"{package} {version or '(missing)'}" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_a_package_that_is_not_there_has_no_version() -> None:
    assert installed_version("no-such-package-of-foldlog") is None


def test_the_extras_are_those_of_the_package() -> None:
    declared = {
        extra: names(requirements)
        for extra, requirements in PROJECT["optional-dependencies"].items()
        if extra not in TOGETHER
    }
    assert {extra: set(EXTRAS[extra]) for extra in declared} == declared
    assert set(REQUIRED) == names(PROJECT["dependencies"])


NOT_BUILT = """
import sys
sys.modules["foldlog.records.kernels"] = None  # as where it could not be compiled
from foldlog.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("words", [["version"], ["topic", "create", "orders", "-d", "data"]])
def test_kernels_that_were_not_built_are_told_by_version_and_by_nothing_else(words: list[str], tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "FOLDLOG_PURE_PYTHON"}
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", NOT_BUILT, *words],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    told = "they were not built; install a C compiler and foldlog again"
    assert (told in " ".join(done.stdout.split())) == (words == ["version"])
