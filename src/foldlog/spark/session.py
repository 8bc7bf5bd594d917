"""The Spark session that folds run in: the active one, or a new one for a single machine."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import which
from threading import Thread
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote
from pyspark.util import is_remote_only

from foldlog.environment import CORES
from foldlog.errors import FoldError
from foldlog.spark.folds.spark_errors import brief_spark_error
from foldlog.spark.workers import await_workers

_MASTER: Final = "spark.master"
_PYTHON: Final = "spark.pyspark.python"
_SHUFFLE: Final = "spark.sql.shuffle.partitions"
_DAEMON: Final = "spark.python.daemon.module"
_CONNECT: Final = "sc://"
_STANDALONE: Final = "spark://"
DAEMON_MODULE: Final = "foldlog.spark.daemon"
_ANSWER_S: Final = 5.0
"""How long a master may take to accept a connection."""


def fold_session(
    master: str | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> SparkSession:
    """The active session, or a new one: on `master`, or as spark-submit and Spark's files say, else on this machine.

    `settings` are Spark's, by name, and override its files. Python workers use this interpreter unless PYSPARK_PYTHON
    or spark.pyspark.python names another. Progress bars and the web page stay off unless Spark's own settings turn them
    on: the runner shows its own progress. Spark's output is appended to `log`, or discarded; under spark-submit it goes
    where that sends it. On a cluster, `tell` is called if no worker comes. FoldError if Spark cannot start, or the
    cluster's workers cannot run folds.
    """
    given = {**(settings or {}), **({} if master is None else {_MASTER: master})}
    if is_remote_only() or is_remote() or "SPARK_REMOTE" in os.environ or given.get(_MASTER, "").startswith(_CONNECT):
        raise FoldError(
            "folds need a classic Spark session, and this one would be of Spark Connect;"
            " give spark://host:port or another classic master, unset SPARK_REMOTE, and install pyspark, not"
            " pyspark-client"
        )
    _need_master(given.get(_MASTER, ""))
    _quieten()
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    _choose_python(given.get(_PYTHON))
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        _need_java()
        wanted = SparkConf(loadDefaults=False)
        wanted.setAll(list(given.items()))
        start_gateway(wanted, log)
    try:
        found = _settings(given)
        _choose_python(found.get(_PYTHON))
        session = SparkSession.builder.config(conf=found).getOrCreate()
    except Exception as error:
        raise FoldError(f"Spark did not start: {brief_spark_error(error)}") from error
    if not _is_local(found):
        await_workers(session, tell)
        if not found.contains(_SHUFFLE):
            session.conf.set(_SHUFFLE, str(session.sparkContext.defaultParallelism))
    return session


def _choose_python(python: str | None) -> None:
    """Set the Python of the workers, which may be on other machines, and of what the driver's JVM runs here."""
    if python:
        os.environ["PYSPARK_PYTHON"] = python
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _quieten() -> None:
    """Stop PySpark from printing each error of a plan, with its Java stack, before it raises it."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _need_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if which("java", path=os.path.join(home, "bin")) if home else which("java"):
        return
    where = f"JAVA_HOME={home}" if home else "PATH"
    raise FoldError(
        f"Spark needs Java 17 or newer, and there is none in {where}; install it (Debian: default-jre-headless)"
    )


def _need_master(master: str) -> None:
    """FoldError unless a standalone master answers at one of its addresses. Spark itself would try for a minute, and
    then report a stopped context.
    """
    if not master.startswith(_STANDALONE):
        return
    problems: list[str] = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
            return
        except (OSError, ValueError, OverflowError) as error:
            problems.append(f"{address}: {error}")
    raise FoldError(f"no Spark master answers at {'; '.join(problems)}; give its address as spark://host:7077")


def _is_local(settings: SparkConf) -> bool:
    return str(settings.get(_MASTER, "local")).startswith("local")


def _settings(given: Mapping[str, str]) -> SparkConf:
    """Defaults that suit folds; spark-submit, Spark's files and the environment override them."""
    SparkContext._ensure_initialized()  # the JVM reads those
    settings = SparkConf()
    settings.setAll(list(given.items()))
    if settings.get("spark.app.name") == "pyspark-shell":
        settings.setAppName("foldlog")  # no name was given
    suits = {
        "spark.app.name": "foldlog",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    if _is_local(settings):
        suits[_SHUFFLE] = str(CORES)
        # Nothing else connects to it, and the address that the host's name resolves to may be on a network that goes.
        suits |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # Not on a cluster: its machines may lack foldlog, and `await_workers` reports that.
        suits[_DAEMON] = DAEMON_MODULE
    for name, value in suits.items():
        settings.setIfMissing(name, value)
    return settings


KEPT_LINES: Final = 200
"""Lines of the JVM's output that are kept, to explain a failed start."""

_LAST_WORDS_S: Final = 5.0
"""How long to wait for the end of a dead JVM's output: a child process may still hold the pipe."""


# --- the JVM --------------------------------------------------------------------------------------------------------
# PySpark gives the JVM this process's standard error, where it prints a greeting, warnings, and Java stacks of
# cancelled work. And it leaves the JVM in this process group, so that Ctrl-C kills Python workers in mid-range.


def start_gateway(conf: SparkConf, log: Path | None = None) -> None:
    """Start the JVM that the next SparkContext uses. All its output goes to `log`, or is discarded.

    It exits with this process, however that ends: it reads a pipe that only this process holds open. FoldError if it
    does not start.
    """
    output = _Output(log)
    options = {"stdout": output.writable, "stderr": output.writable, "start_new_session": True}
    try:
        gateway = launch_gateway(conf, options)  # type: ignore[no-untyped-call]
    except (PySparkRuntimeError, OSError) as error:
        output.let_go()
        raise FoldError(f"Spark did not start: {output.reason() or error}") from error
    finally:
        output.let_go()
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


class _Output:
    """The JVM's output: a file, or a pipe that a thread reads as long as the JVM lives."""

    def __init__(self, log: Path | None) -> None:
        self._log = log
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._reader: Thread | None = None
        self._is_open = True
        if log is not None:
            self.writable = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            return
        readable, self.writable = os.pipe()
        self._reader = Thread(target=self._read, args=(readable,), name="foldlog-spark-output", daemon=True)
        self._reader.start()

    def let_go(self) -> None:
        """Close this process's end for writing, so that the reader ends with the JVM."""
        if self._is_open:
            os.close(self.writable)
            self._is_open = False

    def reason(self) -> str:
        """Why a JVM ended, judging by its last output: the first line with an error, or the last line."""
        if self._reader is None:
            return f"{self._log} has what it said"
        self._reader.join(_LAST_WORDS_S)
        lines = [line for line in self._lines if line and not line.startswith("at ")]
        complaints = [line for line in lines if "Exception" in line or "Error" in line or "error" in line]
        told = (complaints or lines[-1:] or [""])[0]
        return told.rpartition("Exception: ")[2][:500]

    def _read(self, readable: int) -> None:
        with os.fdopen(readable, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self._lines.append(line.strip())
