"""The Spark session that folds run in: the one there is, or one that suits a single machine."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from shutil import which

from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote
from pyspark.util import is_remote_only

from foldlog.errors import FoldError
from foldlog.spark.folds.spark_errors import brief_spark_error
from foldlog.spark.gateway import start_gateway


def fold_session(master: str | None = None, *, log: Path | None = None) -> SparkSession:
    """The active session, or a new one: on `master`, or what spark-submit and Spark's files say, else on this machine.

    Python workers use this interpreter unless PYSPARK_PYTHON names another. Progress bars and the web page stay off
    unless Spark's own settings turn them on: the runner shows its own progress. What Spark prints is appended to `log`,
    or forgotten; under spark-submit it goes where that sends it. FoldError if Spark cannot start.
    """
    if is_remote_only() or is_remote() or "SPARK_REMOTE" in os.environ:
        raise FoldError(
            "folds need a classic Spark session, and this one would be of Spark Connect;"
            " unset SPARK_REMOTE, and install pyspark, not pyspark-client"
        )
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        _need_java()
        wanted = SparkConf(loadDefaults=False)
        if master is not None:
            wanted.setMaster(master)
        start_gateway(wanted, log)
        _quieten()
    try:
        return SparkSession.builder.config(conf=_settings(master)).getOrCreate()
    except Exception as error:
        raise FoldError(f"Spark did not start: {brief_spark_error(error)}") from error


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


def _settings(master: str | None) -> SparkConf:
    """What suits folds, below what spark-submit, Spark's files and the environment say."""
    SparkContext._ensure_initialized()  # the JVM knows those
    settings = SparkConf()
    if master is not None:
        settings.setMaster(master)
    if settings.get("spark.app.name") == "pyspark-shell":
        settings.setAppName("foldlog")  # nobody gave it another name
    suits = {
        "spark.app.name": "foldlog",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    if str(settings.get("spark.master", "local")).startswith("local"):
        # Nobody else has to reach it, and the address that the host's name leads to may be one of a network that goes.
        suits |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for name, value in suits.items():
        settings.setIfMissing(name, value)
    return settings
