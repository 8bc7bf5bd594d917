"""Which Python Spark runs: the one that imported foldlog, unless another one is configured.

Spark looks for data sources, and runs its workers, with PYSPARK_PYTHON or else the `python3` on PATH. In a virtual
environment that is not activated, such as a notebook's kernel, that is another Python, without foldlog, and Spark then
reports that there is no data source "foldlog". So importing `foldlog.spark` sets the Python to use, without importing
anything of Spark. A configured Python is respected, with a warning if it cannot work: Spark's own error names neither
the Python nor the variable.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from shutil import which
from typing import Any, Final

_log = logging.getLogger("foldlog")

_ENVIRONMENT: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_ASKED: Final = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
"""These select the Python in which the driver's JVM looks for data sources: the first that is set."""

_LOOK: Final = """
from importlib.util import find_spec
print(*[name for name in ("foldlog", "pyspark_foldlog", "crc32c", "cramjam", "pyarrow") if find_spec(name) is None])
"""
_LOOK_S: Final = 10.0


def prefer_this_python() -> None:
    """Set the Python for the JVM that starts next, and for an existing session. A configured Python stays as it is."""
    is_chosen = any(name in os.environ for name in _ENVIRONMENT)
    if not is_chosen and sys.executable:
        for name in _ENVIRONMENT:
            os.environ[name] = sys.executable
    session = _active_session()
    if session is not None:
        context = session.sparkContext
        # The running JVM has its own environment: it has looked with its own Python, and did not find the data source.
        if not is_chosen and context.getConf().get("spark.pyspark.python") is None:
            context.pythonExec = sys.executable
        session.dataSource.register(_source())
    elif is_chosen and "SPARK_REMOTE" not in os.environ:
        _warn_of_choice()


def _active_session() -> Any:
    """The session of this process's own JVM; None if there is none, as with Spark Connect."""
    core: Any = sys.modules.get("pyspark.core.context")
    if core is None or core.SparkContext._active_spark_context is None:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _source() -> type[Any]:
    """The data source in a form for any Python that Spark runs: until it is used, it needs only pyspark there."""
    from pyspark.sql.datasource import DataSource

    class Source(DataSource):
        """Becomes a FoldlogSource. A class inside a function is pickled by value, not by its module."""

        @classmethod
        def name(cls) -> str:
            return "foldlog"

        def __new__(cls, options: Any) -> Any:
            try:
                from foldlog.spark.source.data_source import FoldlogSource
            except ImportError as error:
                import sys

                raise ImportError(
                    f"Spark runs {sys.executable}, which cannot use foldlog: {error}; set PYSPARK_PYTHON to a Python"
                    f" that has it before the session begins, or run: {sys.executable} -m pip install 'foldlog[spark]'"
                ) from None
            return FoldlogSource(options)

    return Source


def _warn_of_choice() -> None:
    """Warn before a JVM starts that will not find the data source. The check takes some 20 ms; none for this Python."""
    name = next(name for name in _ASKED if name in os.environ)
    python = os.environ[name]
    found = which(python)
    if found is not None and os.path.abspath(found) == sys.executable:
        return
    problem = "there is no such program" if found is None else _problem(found)
    if problem is not None:
        _log.warning(
            '%s is %s, and with that Spark looks for the data source "foldlog": %s; Spark will say'
            " DATA_SOURCE_NOT_FOUND. Unset %s, or set it to a Python that has foldlog, such as %s",
            name,
            python,
            problem,
            name,
            sys.executable,
        )


def _problem(python: str) -> str | None:
    """Why a Python cannot use foldlog; None if it can, or does not answer in time."""
    try:
        done = subprocess.run([python, "-c", _LOOK], capture_output=True, text=True, timeout=_LOOK_S, check=False)
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        return f"it does not run ({error.strerror})"
    if done.returncode:
        return "it does not run as a Python"
    missing = done.stdout.split()
    return f"it has no {missing[0]}" if missing else None
