"""Which Python Spark runs: the one that imported foldlog, unless somebody chose another.

Spark looks for data sources, and runs its workers, with PYSPARK_PYTHON or else the `python3` on PATH. From a virtual
environment that is not activated, such as a notebook's kernel, that is another Python, without foldlog, and Spark then
says that there is no data source "foldlog". Importing `foldlog.spark` therefore says which Python to use; it imports
nothing of Spark for that.
"""

from __future__ import annotations

import os
import sys
from typing import Any

_ENVIRONMENT = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def prefer_this_python() -> None:
    """For the JVM that starts next, and for a session that is there already. What somebody chose stays as it is."""
    is_chosen = any(name in os.environ for name in _ENVIRONMENT)
    if not is_chosen and sys.executable:
        for name in _ENVIRONMENT:
            os.environ[name] = sys.executable
    session = _active_session()
    if session is None:
        return
    context = session.sparkContext
    # The JVM that runs has an environment of its own: it looked with its own Python, and did not find us.
    if not is_chosen and context.getConf().get("spark.pyspark.python") is None:
        context.pythonExec = sys.executable
    from foldlog.spark.source.data_source import FoldlogSource

    session.dataSource.register(FoldlogSource)


def _active_session() -> Any:
    """The session of this process's own JVM; None where there is none, as with Spark Connect."""
    core: Any = sys.modules.get("pyspark.core.context")
    if core is None or core.SparkContext._active_spark_context is None:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()
