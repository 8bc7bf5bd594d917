"""`import foldlog.spark` is enough for `format("foldlog")`, also from an environment that is not activated.

Each case is a process of its own whose PATH leads to a `python3` without foldlog, as a notebook's kernel has it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def test_a_python_that_somebody_chose_stays(tmp_path: Path) -> None:
    show = "import os, foldlog.spark; print([os.environ.get(n) for n in ('PYSPARK_PYTHON', 'PYSPARK_DRIVER_PYTHON')])"
    assert said(show, tmp_path, PYSPARK_PYTHON="/opt/python") == "['/opt/python', None]\n"


def test_without_a_choice_it_is_the_python_that_imports(tmp_path: Path) -> None:
    show = (
        "import os, sys, foldlog.spark; print(os.environ['PYSPARK_PYTHON'] == sys.executable, 'pyspark' in sys.modules)"
    )
    assert said(show, tmp_path) == "True False\n"
