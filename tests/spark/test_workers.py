"""What Spark's Python workers are sent, read by Pythons that lack foldlog, have another one, or have this one.

The workers are plain Python processes here: they read what they are sent as Spark's do. tests/clusters has the same on
a real cluster.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import foldlog
from foldlog.errors import FoldError
from foldlog.spark.folds.ranges import lag
from foldlog.spark.folds.spark_errors import brief_spark_error
from foldlog.spark.workers import await_workers, packed_for_workers

SOURCE = Path(foldlog.__file__).parents[1]
READ = "import base64, pickle, sys; print(pickle.loads(base64.b64decode(sys.stdin.read()))().__name__)"


def worker(*python_path: Path) -> subprocess.CompletedProcess[str]:
    """A Python that is sent a function of foldlog's, and prints its name."""
    function: bytes = cloudpickle.dumps(packed_for_workers(lag))  # type: ignore[no-untyped-call]
    sent = base64.b64encode(function).decode()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, python_path))}
    command = [sys.executable, "-c", READ]
    return subprocess.run(command, input=sent, env=environment, capture_output=True, text=True, timeout=60, check=False)


def foldlog_that(says: str, directory: Path) -> Path:
    (directory / "foldlog").mkdir()
    (directory / "foldlog" / "__init__.py").write_text(says + "\n")
    return directory


def test_a_worker_with_this_foldlog_reads_what_it_is_sent() -> None:
    done = worker(SOURCE)
    assert (done.stdout, done.stderr) == ("lag\n", "")
    assert packed_for_workers(lag)() is lag


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (
            "raise ModuleNotFoundError('No module named foldlog')",
            "cannot use foldlog: No module named foldlog; run",
        ),
        (
            "raise ModuleNotFoundError('No module named crc32c')",
            "cannot use foldlog: No module named crc32c; run",
        ),
        ('__version__ = "0.0.1"', f"has foldlog 0.0.1, and the driver has {foldlog.__version__}; run there: "),
    ],
)
def test_a_worker_without_it_or_with_another_one_says_so_in_one_sentence(says: str, told: str, tmp_path: Path) -> None:
    done = worker(foldlog_that(says, tmp_path))
    sentence = brief_spark_error(RuntimeError(f"An exception was thrown from the Python worker:\n{done.stderr}"))
    assert sentence.startswith("the Spark worker on host ")
    assert told in sentence
    assert f"{sys.executable} -m pip install 'foldlog[spark]=={foldlog.__version__}'" in sentence
    assert "PYSPARK_PYTHON" in sentence


def test_a_worker_without_that_python_or_with_another_version_is_one_sentence() -> None:
    """Spark's own words, which are pages of Java, as Spark 4.3 says them."""
    missing = (
        "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.3 in"
        ' stage 0.0 (TID 3) (10.0.0.7 executor 1): java.io.IOException: Cannot run program "/opt/py/bin/python":'
        " error=2, No such file or directory\n\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)"
    )
    assert brief_spark_error(RuntimeError(missing)) == (
        "the Spark worker on host 10.0.0.7 has no /opt/py/bin/python, the Python to use there; install it, or set"
        " PYSPARK_PYTHON to one that every worker has"
    )
    other = (
        "Job aborted due to stage failure: Traceback (most recent call last):\n"
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different"
        " version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.\n"
    )
    assert brief_spark_error(RuntimeError(other)) == (
        "Spark's workers have Python 3.12, and this driver has 3.11; both have to be the same: set PYSPARK_PYTHON to a"
        " Python 3.11 that every worker has"
    )


def test_a_cluster_that_gives_no_worker_is_told_of_once_and_waited_for(spark: SparkSession) -> None:
    told: list[str] = []
    await_workers(spark, told.append, tell_after_s=0)
    (note,) = told
    assert note.startswith("local[2] has not given a worker yet, and it is waited for: ")
    assert "--conf spark.driver.host=ADDRESS" in note


def test_a_worker_that_cannot_work_is_an_error_before_anything_is_read(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foldlog, "__version__", "9.9.9")  # of the driver: what the workers have is another one
    with pytest.raises(FoldError) as caught:
        await_workers(spark, lambda text: None)
    sentence = r"Spark's workers cannot run folds: the Spark worker on host \S+ has foldlog \S+, and the driver has 9\."
    assert re.match(sentence, str(caught.value))


def test_a_worker_begins_with_everything_imported_and_without_sparks_archives(spark: SparkSession) -> None:
    """Two tasks that fail take their workers with them, so those that answer are forked anew."""

    def fail(numbers: Iterable[int]) -> Iterable[int]:
        raise ValueError("a worker dies with its task")

    def look(numbers: Iterable[int]) -> Iterable[tuple[bool, list[str]]]:
        missing = {"pandas", "pyarrow.compute", "pyspark.worker", "foldlog.spark.folds.reading"} - set(sys.modules)
        yield not missing, [place for place in sys.path if "pyspark.zip" in place or "py4j-" in place]

    numbers = spark.sparkContext.parallelize(range(2), 2)
    with pytest.raises(PySparkException, match="a worker dies with its task"):
        numbers.mapPartitions(fail).collect()
    assert numbers.mapPartitions(look).collect() == [(True, [])] * 2
