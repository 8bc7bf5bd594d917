"""The Spark session that folds run in: the one there is, or one that suits a single machine."""

from __future__ import annotations

import os
import sys
from shutil import which

from pyspark.sql import SparkSession

from foldlog.errors import FoldError


def fold_session(master: str | None = None) -> SparkSession:
    """The active session, or a new one: on `master`, or what spark-submit and Spark's files say, else on this machine.

    Python workers use this interpreter unless PYSPARK_PYTHON names another. Progress bars and the web page stay off:
    the runner shows its own progress.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if which("java") is None and not os.environ.get("JAVA_HOME"):
        raise FoldError("Spark needs Java 17 or newer, and there is none; install it (Debian: openjdk-17-jre-headless)")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("foldlog")
    if master is not None:
        builder = builder.master(master)
    cores = os.cpu_count() or 1
    return (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
