"""The project of docs/declarative_pipelines.md, run by `spark-pipelines` as it stands there.

It starts a server of Spark Connect, which takes most of the time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import foldlog

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "declarative_pipelines.md").read_text(encoding="utf-8")
WAIT_S = 400


def block(language: str, number: int = 0) -> str:
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    return found[number]


def write_project(directory: Path) -> None:
    (directory / "transformations").mkdir()
    (directory / "spark-pipeline.yml").write_text(block("yaml").replace("/srv/shop", str(directory)))
    (directory / "transformations" / "payments.py").write_text(block("python").replace("/srv/shop", str(directory)))
    with foldlog.open(directory / "log") as log:
        log.create_topic("payments", partitions=2)
        log.create_topic("large")


def pay(directory: Path, numbers: range) -> None:
    with foldlog.open(directory / "log") as log:
        for number in numbers:
            row = {"merchant": ("tea", "chai")[number % 2], "paise": number}
            log.append("payments", row, key=f"tx{number}")


def run_project(directory: Path) -> None:
    binaries = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-c", block("sh", 1)],
        cwd=directory,
        env={
            **os.environ,
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONF_DIR": str(directory),
        },
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])


@pytest.mark.faults
@pytest.mark.timeout(2 * WAIT_S)
def test_the_project_reads_and_writes_the_log_and_goes_on_where_it_was(tmp_path: Path, spark: SparkSession) -> None:
    pytest.importorskip("grpc", reason="grpcio is not installed; enable with: pip install 'pyspark[pipelines]'")
    write_project(tmp_path)
    pay(tmp_path, range(15))
    run_project(tmp_path)
    pay(tmp_path, range(15, 20))
    run_project(tmp_path)
    with foldlog.open(tmp_path / "log", "r") as log:
        assert sorted(int(record.json()["paise"]) for record in log.read("large")) == list(range(10, 20))
    payments = spark.read.parquet(str(tmp_path / "spark-warehouse" / "payments"))
    assert sorted(row.paise for row in payments.collect()) == list(range(20))
    sums = spark.read.parquet(str(tmp_path / "spark-warehouse" / "by_merchant"))
    assert {row.merchant: row.paise for row in sums.collect()} == {"tea": 90, "chai": 100}
