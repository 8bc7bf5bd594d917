"""A Spark session for tests: two cores, no web page, quick to start, and Python workers of this environment.

Most of a session's start is the JVM loading 15,000 classes. Where it can, it takes them from an archive (AppCDS) that
the first test run makes, once, in the virtual environment beside pyspark, while it goes on: 8.6 s of processor time
from start to the second query with it, 15 s without, 25 s with the JVM's own defaults.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pyspark
import pytest
from pyspark.sql import SparkSession

from foldlog.spark.session import DAEMON_MODULE

JAVA_OLDEST: Final = 17
ENABLE_JAVA: Final = "enable with: apt-get install default-jre-headless"
ARCHIVE_TIMEOUT_S: Final = 150
ARCHIVE_FREE_BYTES: Final = 1 << 30

# The first compiler only, and the simplest collector: tests are over before the others have paid for themselves.
_QUICK: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"
# An archive that does not suit this JVM is passed over; without this it says so on standard output.
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"

_CLASSES: Final = (
    "PythonRDD",
    "PythonSQLUtils",
    "PythonUtils",
    "SimplePythonFunction",
    "functions",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.classic.SparkSession$",
    "org.apache.spark.sql.execution.python.UserDefinedPythonFunction",
    "org.apache.spark.sql.functions",
)


def java_executable() -> Path | None:
    """The java that Spark's scripts would run."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    return None if found is None else Path(found).resolve()


def missing_java() -> str | None:
    """Why Spark cannot start here and what to do; None if it can."""
    java = java_executable()
    if java is None:
        place = "JAVA_HOME" if os.environ.get("JAVA_HOME") else "PATH"
        return f"Spark needs Java {JAVA_OLDEST} or newer, and there is none in {place}; {ENABLE_JAVA}"
    done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    version = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if version is None or int(version[1]) < JAVA_OLDEST:
        return f"Spark needs Java {JAVA_OLDEST} or newer, and {java} is older; {ENABLE_JAVA}"
    return None


def archive_path() -> Path | None:
    """Where the class archive of this JVM and this pyspark is, or would be."""
    java = java_executable()
    if java is None:
        return None
    stamp = java.stat()
    # The directory's path too: an archive is valid for the very jar files that it was made from.
    subject = f"{java} {stamp.st_mtime_ns} {stamp.st_size} {pyspark.__version__} {Path(pyspark.__file__).parent}"
    name = f"foldlog-spark-{hashlib.sha256(subject.encode()).hexdigest()[:16]}.jsa"
    return Path(sys.prefix) / name


@contextmanager
def archive_in_the_making() -> Iterator[None]:
    """Make the archive beside the block, unless it exists or another process makes it. A block that ends first ends it.

    Nobody waits for it: it is for the sessions that come later. It appears whole: a JVM that is given half of one
    crashes.
    """
    archive = archive_path()
    if archive is None or archive.exists() or shutil.disk_usage(archive.parent).free < ARCHIVE_FREE_BYTES:
        yield
        return
    with archive.with_suffix(".lock").open("w") as lock, tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        made = Path(scratch) / "archive.jsa"
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield
            return
        quiet = subprocess.DEVNULL
        command = [sys.executable, __file__, str(made), str(archive)]
        maker = subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(maker.pid, signal.SIGKILL)
            maker.wait()


def java_options() -> str:
    """For the driver's JVM."""
    archive = archive_path()
    use_archive = f" -XX:SharedArchiveFile={archive}" if archive is not None and archive.exists() else ""
    return f"{_QUICK} {_QUIET}{use_archive}"


def child_environment() -> dict[str, str]:
    """For a process that starts a Spark of its own, such as `foldlog fold run`: as quick, and with these workers."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--conf {shlex.quote(f'spark.driver.extraJavaOptions={java_options()}')} pyspark-shell",
        # spark-submit is itself a short Java program that prints the command line of the real one.
        "SPARK_LAUNCHER_OPTS": f"{_QUICK} {_QUIET}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@contextmanager
def running_session(scratch: Path, jars: Sequence[Path] = ()) -> Iterator[SparkSession]:
    """A session for fixtures, stopped at the end of the block. Where Spark cannot start, the test is skipped."""
    reason = missing_java()
    if reason is not None:
        pytest.skip(reason)
    with archive_in_the_making():
        session = start_session(scratch, jars=jars)
        yield session
        session.stop()


def start_session(scratch: Path, options: str | None = None, jars: Sequence[Path] = ()) -> SparkSession:
    """Everything that Spark writes goes below `scratch`. `options` are for the JVM, in place of the usual ones."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = str(_quick_python(scratch))
    os.environ["SPARK_LAUNCHER_OPTS"] = f"{_QUICK} {_QUIET}"
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("foldlog tests")
        .config("spark.ui.enabled", "false")
        .config("spark.python.daemon.module", DAEMON_MODULE)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", java_options() if options is None else options)
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.showConsoleProgress", "false")
        # Rows are few and plans many: to compile each plan takes longer than to run it. Pipelines that tests start as
        # processes of their own have Spark's defaults.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    _keep_classes(session)
    return session


def _keep_classes(session: SparkSession) -> None:
    """PySpark asks the JVM for each of these again whenever it makes a column or a function, and the JVM then looks
    through all its jars: that was a tenth of its time."""
    jvm = session.sparkContext._jvm
    for name in _CLASSES:
        setattr(jvm, name, getattr(jvm, name))


def _quick_python(scratch: Path) -> Path:
    """This Python, for all that Spark starts with it. Spark has it import pyspark from an archive, and so compile it,
    each time: for every stream, and more often, that was most of the time. Its daemon has to cope with that by itself.
    """
    path = scratch / "python"
    ours = shlex.quote(os.environ.get("PYTHONPATH", ""))
    path.write_text(
        f'#!/bin/sh\n[ "$2" = {DAEMON_MODULE} ] || export PYTHONPATH={ours}\nexec {shlex.quote(sys.executable)} "$@"\n'
    )
    path.chmod(0o755)
    return path


def _make_archive(into: Path) -> None:
    """Run a little of everything that tests run, then let the JVM write down which classes that took."""
    with tempfile.TemporaryDirectory() as scratch:
        session = start_session(Path(scratch), f"{_QUICK} {_QUIET} -XX:ArchiveClassesAtExit={into}")
        rows = session.range(100).mapInArrow(lambda batches: batches, "id long")
        rows.selectExpr("id", "id % 7 AS k").groupBy("k").count().toArrow()
        session.createDataFrame([(1, "a")], "id long, name string").join(rows, "id").collect()
        stream = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()
        query = stream.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination(ARCHIVE_TIMEOUT_S)
        gateway = session.sparkContext._gateway
        assert gateway is not None
        session.stop()
        gateway.shutdown()
        # The JVM ends when its input does, and writes the archive before it is gone.
        gateway.proc.stdin.close()
        gateway.proc.wait(ARCHIVE_TIMEOUT_S)


if __name__ == "__main__":
    os.nice(10)
    _make_archive(made := Path(sys.argv[1]).absolute())
    if made.exists():
        made.replace(sys.argv[2])
