"""What is missing, or wrong in the command line, is one sentence before anything is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.command import environment
from foldlog.cli.main import main
from foldlog.demo import run
from foldlog.demo.run import java_complaint, missing_pieces

HIDDEN = """
import importlib.util, sys
found = importlib.util.find_spec
hidden = sys.argv[1].split(",")
importlib.util.find_spec = lambda name, *rest: None if name in hidden else found(name, *rest)
from foldlog.cli.main import main
sys.exit(main(["demo", "--once"]))
"""


def java_home(directory: Path, version: str) -> str:
    """A Java that only says which one it is."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return str(directory)


def test_no_java_is_told_with_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_complaint() == (
        f"Spark needs Java, and there is none in JAVA_HOME={tmp_path};"
        " install Java 17 or newer (Debian: apt-get install default-jre-headless)"
    )
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java_complaint().startswith("Spark needs Java, and there is none in PATH; install Java 17")


@pytest.mark.parametrize(("version", "told"), [("1.8.0_402", "than 8"), ("11.0.2", "than 11")])
def test_an_old_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, told: str) -> None:
    monkeypatch.setenv("JAVA_HOME", java_home(tmp_path, version))
    assert f"Spark needs a newer Java {told}; install Java 17" in java_complaint()


@pytest.mark.parametrize("version", ["17.0.15", "21", "no version at all"])
def test_a_java_that_may_do_is_not_complained_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", java_home(tmp_path, version))
    assert java_complaint() == ""


def test_missing_packages_are_one_sentence_with_the_command_that_installs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", java_home(tmp_path, "17"))
    monkeypatch.setattr(run, "find_spec", lambda name: None)
    monkeypatch.setattr(run, "installed_client", lambda: None)
    (told,) = missing_pieces()
    for name in ("pyspark", "456 MB", "tantivy", "deltalake", "confluent-kafka", "pip install 'foldlog["):
        assert name in told


def test_the_command_says_it_and_starts_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN, "deltalake"],
        env={**environment(), "JAVA_HOME": java_home(tmp_path / "java", "17"), "TMPDIR": str(tmp_path / "nothing")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("foldlog: These Python packages are missing: deltalake (the lake table); install")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("rate", ["0", "-5", "20001"])
def test_a_rate_that_nobody_can_write_is_refused(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--once", f"--rate={rate}"]) == 2
    assert f"argument --rate: '{rate}' is not a whole number from 1 to 20000" in capsys.readouterr().err
