"""`import foldlog.spark` is enough for `format("foldlog")`, also from an environment that is not activated.

Each case is a process of its own whose PATH leads to a `python3` without foldlog, as a notebook's kernel has it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from venv import EnvBuilder

import pytest

import foldlog

READ = """
rows = spark.read.format("foldlog").option("subscribe", "payments").load({log!r})
print("rows", rows.count())
"""
SESSION = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
"""
IMPORT = "import foldlog.spark as fl\n"


def said(script: str, tmp_path: Path, **environment: str) -> str:
    """What a script prints where `python3` is one that knows neither foldlog nor pyspark."""
    other = tmp_path / "bin"
    other.mkdir()
    (other / "python3").write_text("#!/bin/sh\nexec false\n")
    (other / "python3").chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "VIRTUAL_ENV"))}
    path = os.pathsep.join([str(other), "/usr/bin", "/bin"])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**inherited, "PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout + done.stderr[-3000:]


@pytest.mark.faults
@pytest.mark.parametrize("order", [IMPORT + SESSION, SESSION + IMPORT], ids=["import first", "session first"])
def test_the_source_is_found_without_an_activated_environment(order: str, tmp_path: Path) -> None:
    with foldlog.open(tmp_path / "log") as log:
        log.create_topic("payments")
        log.append("payments", b"1")
    assert "rows 1" in said(order + READ.format(log=str(tmp_path / "log")), tmp_path)


SOURCES = str(Path(foldlog.__file__).parents[1])
HERE = f"import sys; sys.path.insert(0, {SOURCES!r})\n"
"""For a process whose own children are not to find foldlog by PYTHONPATH."""
SHOW = "import os, foldlog.spark; print([os.environ.get(n) for n in ('PYSPARK_PYTHON', 'PYSPARK_DRIVER_PYTHON')])"


def other_python(tmp_path: Path) -> str:
    """An interpreter of an environment without packages; Spark gives pyspark to any."""
    EnvBuilder(symlinks=True).create(tmp_path / "other")
    return str(tmp_path / "other" / "bin" / "python")


def test_a_python_that_somebody_chose_stays_and_it_is_said_why_it_will_not_do(tmp_path: Path) -> None:
    told = said(SHOW, tmp_path, PYSPARK_PYTHON="/opt/python")
    assert told.startswith(
        "['/opt/python', None]\nPYSPARK_PYTHON is /opt/python, and with that Spark looks for the data"
    )
    assert "there is no such program; Spark will say DATA_SOURCE_NOT_FOUND. Unset PYSPARK_PYTHON, or set it to" in told
    assert told.rstrip().endswith(sys.executable)


@pytest.mark.parametrize(
    ("python", "problem"), [("python3", "it does not run as a Python"), ("other", "it has no foldlog")]
)
def test_a_chosen_python_that_cannot_use_foldlog_is_named_with_its_variable(
    python: str, problem: str, tmp_path: Path
) -> None:
    chosen = python if python == "python3" else other_python(tmp_path)
    told = said(HERE + SHOW, tmp_path, PYTHONPATH="", PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=chosen)
    assert f"PYSPARK_DRIVER_PYTHON is {chosen}, and with that Spark looks for the data source" in told
    assert f"{problem}; Spark will say" in told


def test_what_spark_looks_for_says_which_python_lacks_what(tmp_path: Path) -> None:
    """As where only the sources are on PYTHONPATH."""
    python = other_python(tmp_path)
    done = subprocess.run(
        [python, "-c", "import pyspark_foldlog"],
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    sentence = f"ImportError: Spark looks for data sources with {python}, which cannot use foldlog: No module named "
    assert done.stderr.splitlines()[-1].startswith(sentence)
    assert len(done.stderr.splitlines()) < 8


def test_of_a_chosen_python_that_can_use_foldlog_nothing_is_said(tmp_path: Path) -> None:
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    for number, chosen in enumerate([sys.executable, str(wrapper)]):
        place = tmp_path / str(number)
        place.mkdir()
        assert said(SHOW, place, PYSPARK_PYTHON=chosen) == f"[{chosen!r}, None]\n"


@pytest.mark.faults
@pytest.mark.parametrize("has_sources", [True, False])
def test_a_session_that_was_there_first_says_which_python_cannot_use_foldlog(has_sources: bool, tmp_path: Path) -> None:
    """With the sources alone on PYTHONPATH, another Python finds foldlog and not what it needs."""
    chosen = other_python(tmp_path)
    script = HERE + SESSION + IMPORT + READ.format(log=str(tmp_path / "log"))
    told = said(script, tmp_path, PYSPARK_PYTHON=chosen, PYTHONPATH=SOURCES if has_sources else "")
    assert f"ImportError: Spark runs {chosen}, which cannot use foldlog: No module named" in told
    assert "set PYSPARK_PYTHON to a Python that has it before the session begins" in told


def test_without_a_choice_it_is_the_python_that_imports(tmp_path: Path) -> None:
    show = (
        "import os, sys, foldlog.spark; print(os.environ['PYSPARK_PYTHON'] == sys.executable, 'pyspark' in sys.modules)"
    )
    assert said(show, tmp_path) == "True False\n"
