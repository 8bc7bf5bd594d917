"""A pipeline on a Spark standalone cluster, master and two workers, while workers are killed: the same views.

A worker is killed as a machine dies: with its executor and that one's Python processes. Payments are written all the
time, so there is always a range under way. What the cluster makes of the log, from its directory and over the network,
equals what this machine alone makes of it and a recompute in plain Python.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from clusters.spark_cluster import EXECUTOR_MEMORY, SparkCluster
from deltalake import DeltaTable

from fold_commands import (
    PATIENCE_S,
    ROOT,
    FoldCommand,
    environment,
    fold_command,
    records_read,
    run_fold,
    wait_for_more,
    wait_until,
    wait_until_read,
)
from foldlog import Record
from foldlog.demo.descendants import end_all
from foldlog.testing import KafkaBroker
from folds_model import Row, in_order, records_of
from folds_shop import check_as_shown, check_at_its_bookmark, expected, loaded, snapshot_of, write_pipeline
from payment_writer import TOPIC, PaymentWriter
from spark_session import missing_java
from views.staged_contract import places_below

FOLDS = ("table_sqlite", "counters_sqlite")

NEIGHBOUR = "def loud(text): return None if text is None else text.upper()\n"
"""A module beside folds.py, which no worker can import: what is used of it travels there."""

LOUD = """
import neighbour
from pyspark.sql import functions as F

@fl.fold(payments, into=fl.table("{views}/loud.db", "payments"))
def loud(rows): return rows.withColumn("note", F.udf(neighbour.loud)("note"))
"""

SMALL = {
    "spark.executor.memory": EXECUTOR_MEMORY,
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
SETTINGS = [word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}")]


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Whoever kills a worker starts it again. foldlog is there for the workers' Python, as if it were installed."""
    reason = missing_java()
    if reason is not None:
        pytest.skip(reason)
    installed = {"PYTHONPATH": str(ROOT / "src")}
    with SparkCluster.launch(tmp_path_factory.mktemp("spark_cluster"), environment=installed) as cluster:
        yield cluster


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    """A log in a directory, which is served: the same records to be read by either way."""
    with KafkaBroker.launch(path=tmp_path / "data") as launched:
        launched.create_topic(TOPIC, 3)
        yield launched


def pipeline(directory: Path) -> Path:
    directory.mkdir()
    file = write_pipeline(directory / "folds.py", directory / "views", None, FOLDS)
    (directory / "neighbour.py").write_text(NEIGHBOUR)
    file.write_text(file.read_text() + LOUD.format(views=directory / "views"))
    return file


@pytest.mark.timeout(900)  # a minute and a half on a quiet machine of two cores
@pytest.mark.parametrize("way", ["directory", "kafka"])
def test_folds_on_a_cluster_whose_workers_are_killed_equal_local_mode_and_the_recompute(
    way: str, spark_cluster: SparkCluster, broker: KafkaBroker, tmp_path: Path
) -> None:
    """Once with the Python that the workers have, once with one that is sent along in an archive."""
    source = str(tmp_path / "data") if way == "directory" else f"kafka://{broker}"
    file = pipeline(tmp_path / "cluster")
    spark_says = tmp_path / "spark.txt"
    run = ["run", file, "--source", source, "--interval", "50ms", "--spark-log", spark_says]
    run += ["--master", spark_cluster.url, *SETTINGS]
    if way == "kafka":
        run += [
            "--conf",
            f"spark.archives={packed_python(tmp_path)}#env",
            "--conf",
            "spark.pyspark.python=env/bin/python",
        ]
    with fold_command(tmp_path / "run.txt", *run) as runner:
        with PaymentWriter(broker.log, seed=7) as writer:
            for worker in spark_cluster.workers:
                wait_for_more(runner, writer, file, f"before worker {worker.number} was killed")
                has_executor = partial(lambda one: len(one.family) > 1, worker)
                wait_until(has_executor, lambda: f"an executor on every worker: {runner.said()[-2000:]}")
                worker.kill()
                wait_for_more(runner, writer, file, f"without worker {worker.number}")
                worker.start()
                spark_cluster.wait_until_whole()
        wait_until_read(runner, file, len(writer.places()))
        assert runner.stop() == 0, runner.said()
    assert spark_says.read_text().count("Lost executor") >= 2, "the driver has missed both"

    records = records_of(tmp_path / "data", TOPIC)
    assert len(records) == len(writer.places())
    check(file, records)
    if way == "directory":  # the other one has the same records, and the same recompute
        alone = pipeline(tmp_path / "alone")
        run_fold(tmp_path / "alone.txt", "run", alone, "--source", source, "--once")
        check(alone, records)
        assert rows_of_views(file) == rows_of_views(alone)


def packed_python(scratch: Path) -> Path:
    """An environment as venv-pack and conda-pack make them, but for its interpreter, which is this one."""
    python = scratch / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return Path(shutil.make_archive(str(scratch / "env"), "gztar", scratch / "env"))


def check(file: Path, records: list[Record]) -> None:
    folds = loaded(file)
    for name in FOLDS:
        check_at_its_bookmark(folds[name], records)
        check_as_shown(name, records, file.parent / "views", None)
    found = snapshot_of(folds["loud"])
    assert found is not None
    assert found[1] == in_order(
        {**row, "note": row["note"] and row["note"].upper()} for row in expected("table_sqlite", records)
    )


def rows_of_views(file: Path) -> dict[str, list[Row]]:
    snapshots = {name: snapshot_of(fold) for name, fold in loaded(file).items()}
    return {name: [] if one is None else one[1] for name, one in snapshots.items()}


@pytest.mark.timeout(900)
def test_a_worker_with_another_foldlog_is_one_sentence(
    spark_cluster: SparkCluster, broker: KafkaBroker, tmp_path: Path
) -> None:
    """The driver is told by the first worker, before any range is read; nothing of Java or Python reaches a person."""
    other = tmp_path / "other" / "foldlog"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text('__version__ = "0.0.1"\n')
    file = pipeline(tmp_path / "cluster")
    unfit = ("--conf", f"spark.executorEnv.PYTHONPATH={other.parent}")
    arguments = ("run", file, "-b", broker, "--once", "--master", spark_cluster.url, *SETTINGS, *unfit)
    with fold_command(tmp_path / "run.txt", *arguments) as command:
        assert command.finish() == 1
        assert_one_sentence(command, "has foldlog 0.0.1, and the driver has")


def assert_one_sentence(command: FoldCommand, part: str) -> None:
    # On a busy machine there is a note before it, that no worker has come yet.
    lines = [one for one in command.said().splitlines() if "has not given a worker yet" not in one]
    (line,) = lines
    assert line.startswith("foldlog: Spark's workers cannot run folds: the Spark worker on host "), line
    assert part in line


# --- rows that executors write --------------------------------------------------------------------------------------

WRITTEN = ("delta_history", "parquet_history", "table_postgres")
PAYMENTS = 120_000
RANGE = ("--range-bytes", "4500000")  # some 45,000 payments: long enough for executors to write them


def fill_payments(broker: KafkaBroker) -> None:
    with broker.log.producer() as producer:
        for number in range(PAYMENTS):
            content = {"merchant": f"m{number % 50}", "amount_paise": number, "note": "paid in part"}
            value = None if number % 20 == 0 else json.dumps(content).encode()
            producer.send(TOPIC, value=value, key=f"tx{number * 7919 % (PAYMENTS // 2)}")


@pytest.mark.timeout(900)
def test_executors_write_views_on_a_cluster_with_one_worker_and_with_two_one_of_which_is_killed(
    spark_cluster: SparkCluster,
    broker: KafkaBroker,
    tmp_path: Path,
    postgres_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill_payments(broker)
    (tmp_path / "cluster").mkdir()
    file = write_pipeline(tmp_path / "cluster" / "folds.py", tmp_path / "cluster" / "views", postgres_url, WRITTEN)
    spark_says = tmp_path / "spark.txt"
    common = [
        "--source",
        tmp_path / "data",
        *RANGE,
        "--spark-log",
        spark_says,
        "--master",
        spark_cluster.url,
        *SETTINGS,
    ]

    def seconds(output: str, *arguments: object) -> float:
        began = time.monotonic()
        run_fold(tmp_path / output, *arguments, *common)
        return time.monotonic() - began

    victim = spark_cluster.workers[0]
    with fold_command(tmp_path / "run.txt", "run", file, "--once", *common) as runner:
        wait_until(
            lambda: runner.still_runs() and min(records_read(file).values()) > 0,
            lambda: f"a range in every view: {runner.said()[-2000:]}",
        )
        victim.kill()
        assert runner.finish() == 0, runner.said()
    records = records_of(tmp_path / "data", TOPIC)
    check_written(file, records, postgres_url)
    one = seconds("one.txt", "rebuild", "parquet_history", "-f", file)
    victim.start()
    spark_cluster.wait_until_whole()
    two = seconds("two.txt", "rebuild", "parquet_history", "-f", file)
    seconds("table.txt", "rebuild", "table_postgres", "-f", file)
    check_written(file, records, postgres_url)
    for name in ("run.txt", "one.txt", "two.txt", "table.txt"):
        assert "go through the driver" not in (tmp_path / name).read_text()
    with capsys.disabled():
        print(f"\nrebuild of {PAYMENTS} payments as Parquet: {one:.1f} s with one worker, {two:.1f} s with two")


@pytest.mark.timeout(900)
def test_an_executor_that_is_killed_alone_costs_nothing_and_leaves_nothing(
    spark_cluster: SparkCluster, broker: KafkaBroker, tmp_path: Path
) -> None:
    """Its JVM dies, and the worker that had started it lives on and starts another. Nothing twice, nothing missing, and
    after the next run no file that no commit names.
    """
    fill_payments(broker)
    (tmp_path / "cluster").mkdir()
    names = ("delta_history", "parquet_history")
    file = write_pipeline(tmp_path / "cluster" / "folds.py", tmp_path / "cluster" / "views", None, names)
    spark_says = tmp_path / "spark.txt"
    common = [
        "--source",
        tmp_path / "data",
        *RANGE,
        "--spark-log",
        spark_says,
        "--master",
        spark_cluster.url,
        *SETTINGS,
    ]
    with fold_command(tmp_path / "run.txt", "run", file, "--once", *common) as runner:
        wait_until(
            lambda: runner.still_runs() and min(records_read(file).values()) > 0,
            lambda: f"a range in every view: {runner.said()[-2000:]}",
        )
        worker = spark_cluster.workers[0]
        executor = worker.executor
        assert executor is not None
        assert end_all([executor]) == []
        assert runner.finish() == 0, runner.said()
        assert worker.process.is_running
    assert "Lost executor" in spark_says.read_text()
    records = records_of(tmp_path / "data", TOPIC)
    with broker.log.producer() as producer:
        producer.send(TOPIC, value=json.dumps({"merchant": "m", "amount_paise": 1, "note": "one more"}), key="last")
    run_fold(tmp_path / "next.txt", "run", file, "--once", *common)
    records = records_of(tmp_path / "data", TOPIC)
    for name, fold in loaded(file).items():
        check_at_its_bookmark(fold, records)
        assert len(rows_of_views(file)[name]) == len(expected(name, records))
    assert places_below(file.parent) == []
    table = DeltaTable(next(file.parent.rglob("_delta_log")).parent)
    on_disk = {one.name for one in Path(table.table_uri.removeprefix("file://")).glob("*.parquet")}
    assert on_disk == {uri.rpartition("/")[2] for uri in table.file_uris()}


def check_written(file: Path, records: list[Record], postgres_url: str) -> None:
    for name, fold in loaded(file).items():
        check_at_its_bookmark(fold, records)
        assert len(rows_of_views(file)[name]) == len(expected(name, records))
    assert places_below(file.parent) == []
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT relname FROM pg_class WHERE relpersistence = 'u'").fetchall() == []


# --- Spark's own queries --------------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
def test_streams_from_and_into_the_log_on_a_cluster_are_those_of_local_mode(
    spark_cluster: SparkCluster, broker: KafkaBroker, tmp_path: Path
) -> None:
    """By path and by wire: the source gives the same rows, and the sink writes the same records once."""
    with PaymentWriter(broker.log, seed=8) as writer:
        wait_until(lambda: writer.acknowledged() >= 1000, lambda: f"{writer.acknowledged()} are written")
    places = {"data": str(tmp_path / "data"), "bootstrap": str(broker)}
    there = streamed(spark_cluster.url, tmp_path / "there", **places)
    here = streamed("local[2]", tmp_path / "here", **places)
    assert there == here
    records = records_of(tmp_path / "data", TOPIC)
    assert there["by_path"] == there["by_wire"] == sorted([one.partition, one.offset] for one in records)
    wanted = sorted(contents(records))
    for run in ("there", "here"):
        for way in ("by_path", "by_wire"):
            assert sorted(contents(records_of(tmp_path / "data", f"{run}.{way}"))) == wanted


def contents(records: list[Record]) -> list[tuple[bytes, bytes, int]]:
    """Key, value and partition: the sink's partitioner is the producer's."""
    return [(one.key, one.value or b"", one.partition) for one in records]


def streamed(master: str, scratch: Path, *, data: str, bootstrap: str) -> dict[str, Any]:
    """What tests/stream_child.py says about its run."""
    scratch.mkdir()
    script = ROOT / "tests" / "stream_child.py"
    command = [sys.executable, str(script), master, str(scratch), data, bootstrap, EXECUTOR_MEMORY]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told
