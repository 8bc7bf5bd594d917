"""The Spark session that folds run in: the one there is, or one that suits a single machine."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import which
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote
from pyspark.util import is_remote_only

from foldlog.errors import FoldError
from foldlog.spark.folds.spark_errors import brief_spark_error
from foldlog.spark.gateway import start_gateway
from foldlog.spark.workers import await_workers

_MASTER: Final = "spark.master"
_PYTHON: Final = "spark.pyspark.python"
_SHUFFLE: Final = "spark.sql.shuffle.partitions"
_CONNECT: Final = "sc://"
_STANDALONE: Final = "spark://"
_ANSWER_S: Final = 5.0
"""How long a master may take to accept a connection."""


def fold_session(
    master: str | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> SparkSession:
    """The active session, or a new one: on `master`, or what spark-submit and Spark's files say, else on this machine.

    `settings` are Spark's, by their names, and go before its files. Python workers use this interpreter unless
    PYSPARK_PYTHON or spark.pyspark.python names another. Progress bars and the web page stay off unless Spark's own
    settings turn them on: the runner shows its own progress. What Spark prints is appended to `log`, or forgotten;
    under spark-submit it goes where that sends it. On a cluster, `tell` is told if no worker comes. FoldError if Spark
    cannot start, or the cluster's workers cannot run folds.
    """
    given = {**(settings or {}), **({} if master is None else {_MASTER: master})}
    if is_remote_only() or is_remote() or "SPARK_REMOTE" in os.environ or given.get(_MASTER, "").startswith(_CONNECT):
        raise FoldError(
            "folds need a classic Spark session, and this one would be of Spark Connect;"
            " give spark://host:port or another classic master, unset SPARK_REMOTE, and install pyspark, not"
            " pyspark-client"
        )
    _need_master(given.get(_MASTER, ""))
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    _choose_python(given.get(_PYTHON))
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        _need_java()
        wanted = SparkConf(loadDefaults=False)
        wanted.setAll(list(given.items()))
        start_gateway(wanted, log)
        _quieten()
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
    """For the workers, which may be elsewhere; and for what the driver's JVM runs itself, which is here."""
    if python:
        os.environ["PYSPARK_PYTHON"] = python
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _quieten() -> None:
    """PySpark prints each error of a plan with its Java stack, as JSON, before it raises it."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _need_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if which("java", path=os.path.join(home, "bin")) if home else which("java"):
        return
    place = f"JAVA_HOME={home}" if home else "PATH"
    raise FoldError(
        f"Spark needs Java 17 or newer, and there is none in {place}; install it (Debian: default-jre-headless)"
    )


def _need_master(master: str) -> None:
    """Somebody listens at one of the addresses of a standalone master. Spark itself tries for a minute, and then tells
    of a context that was stopped.
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
    """What suits folds, below what spark-submit, Spark's files and the environment say."""
    SparkContext._ensure_initialized()  # the JVM knows those
    settings = SparkConf()
    settings.setAll(list(given.items()))
    if settings.get("spark.app.name") == "pyspark-shell":
        settings.setAppName("foldlog")  # nobody gave it another name
    suits = {
        "spark.app.name": "foldlog",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    if _is_local(settings):
        suits[_SHUFFLE] = str(os.cpu_count() or 1)
        # Nobody else has to reach it, and the address that the host's name leads to may be one of a network that goes.
        suits |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for name, value in suits.items():
        settings.setIfMissing(name, value)
    return settings
