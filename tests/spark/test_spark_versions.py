"""The source, the sink and folds with another Spark: the oldest that is supported, and a session of Spark Connect.

Each runs in a process of its own. The older Spark is installed beside this one, from PyPI, and is first on its path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import foldlog
from spark_session import child_environment

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 900
"""For what a quiet machine does in half a minute: half a gigabyte is unpacked, and a Spark starts."""
OLDEST = "4.2"

QUERIES = """
import sys
import foldlog.spark as fl
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.{session}.config("spark.ui.enabled", "false").getOrCreate()
log = sys.argv[1]
rows = spark.read.format("foldlog").option("subscribe", "payments").load(log)
print("batch", rows.count(), spark.version)
large = rows.select("key", "value").where("CAST(get_json_object(CAST(value AS STRING), '$.paise') AS INT) >= 7")
large.write.format("foldlog").option("topic", "large").mode("append").save(log)
stream = spark.readStream.format("foldlog").option("subscribe", "payments").option("startingOffsets", "earliest")
query = (
    stream.load(log)
    .select("key", "value")
    .writeStream.format("foldlog")
    .option("path", log)
    .option("topic", "copied")
    .option("checkpointLocation", log + "-checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
"""

FOLDS = """
@fl.fold(fl.topic("payments", key="tx", schema="paise BIGINT"), into=fl.table(log + "-shop.db", "payments"))
def mirror(rows):
    return rows.withColumn("double", F.col("paise") * 2)

(feed,) = fl.run([mirror], log, once=True, spark=spark)
print("folded", feed.records, feed.rows, fl.verify(mirror, log, spark=spark).answer)
"""


@pytest.fixture(autouse=True)
def another_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that was in this process before has left its Python behind."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/no/such/python")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    with foldlog.open(tmp_path / "log") as opened:
        for name in ("payments", "large", "copied"):
            opened.create_topic(name)
        for number in range(10):
            opened.append("payments", {"paise": number}, key=f"tx{number}")
    return tmp_path / "log"


def said(script: str, log: Path, *first_on_the_path: Path) -> str:
    """What the script printed. Nothing of a Spark session of this process gets into its environment: its Python workers
    would import this Spark beside the JVM of another."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    done = run(
        [sys.executable, "-c", script, str(log)],
        {
            **environment,
            **child_environment(),
            "PYTHONPATH": os.pathsep.join(map(str, (*first_on_the_path, ROOT / "src"))),
        },
    )
    if done.returncode:
        pytest.fail(told_why(done))
    return done.stdout


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        parts = (
            one.decode(errors="replace") if isinstance(one, bytes) else one for one in (error.stdout, error.stderr)
        )
        pytest.fail(f"not done after {WAIT_S} s\n" + "\n".join(filter(None, parts))[-4000:])


def told_why(done: subprocess.CompletedProcess[str]) -> str:
    """The error first: a summary shows one line, and Spark says much after it."""
    errors = [line for line in done.stderr.splitlines() if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return f"{errors[-1] if errors else f'exit code {done.returncode}'}\n{done.stdout[-1000:]}\n{done.stderr[-8000:]}"


def written(log: Path) -> tuple[list[int], list[int]]:
    with foldlog.open(log, "r") as opened:
        large, copied = ([int(record.json()["paise"]) for record in opened.read(name)] for name in ("large", "copied"))
    return sorted(large), sorted(copied)


@pytest.fixture
def older_spark(tmp_path: Path) -> Iterator[Path]:
    """Half a gigabyte, gone after the test."""
    beside = tmp_path / "spark"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(beside)]
    done = run([*command, f"pyspark=={OLDEST}.*", "py4j"])
    try:
        if done.returncode:
            pytest.skip(f"Spark {OLDEST} could not be installed: it needs PyPI; {done.stderr[-200:].strip()}")
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@pytest.mark.faults
@pytest.mark.timeout(WAIT_S + 60)
def test_a_session_of_spark_connect_reads_writes_and_streams(log: Path) -> None:
    pytest.importorskip("grpc", reason="grpcio is not installed; enable with: pip install 'pyspark[connect]'")
    told = said(QUERIES.format(session='remote("local[1]")'), log)
    assert "batch 10 " in told
    assert written(log) == ([7, 8, 9], list(range(10)))


@pytest.mark.faults
@pytest.mark.timeout(2 * WAIT_S + 60)
def test_the_oldest_supported_spark_reads_writes_streams_and_folds(log: Path, older_spark: Path) -> None:
    told = said(QUERIES.format(session='master("local[1]")') + FOLDS, log, older_spark)
    assert f"batch 10 {OLDEST}" in told
    assert "folded 10 10 equal" in told
    assert written(log) == ([7, 8, 9], list(range(10)))
