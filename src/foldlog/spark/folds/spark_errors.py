"""Spark's errors, in one line for people, and whether Spark is there at all."""

from __future__ import annotations

import re
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

_UNFIT_WORKER: Final = "ImportError: the Spark worker on host "
"""How the line begins that foldlog.spark.workers has a worker say of itself."""

_NO_PYTHON: Final = re.compile(
    r'\((?P<host>[^\s()]+) executor [^)]*\): java\.io\.IOException: Cannot run program "(?P<python>[^"]+)"'
)
_OTHER_PYTHON: Final = re.compile(
    r"Python in worker has different version: (?P<worker>[\d.]+) than that in driver: (?P<driver>[\d.]+)"
)


def is_gone(spark: SparkSession) -> bool:
    """Whether the session can never run anything again: it was stopped, or its JVM has died."""
    context = spark.sparkContext._jsc
    if context is None:
        return True
    try:
        return bool(context.sc().isStopped())
    except (Py4JError, OSError):
        return True


def brief_spark_error(error: BaseException) -> str:
    """What a person needs of Spark's message: its first line, or the last line of a Python worker's traceback."""
    text = str(error).strip()
    if isinstance(error, PySparkException) and error.getMessage():
        text = str(error.getMessage()).strip()
    unfit = _unfit_worker(text)
    if unfit is not None:
        return unfit
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for index, line in enumerate(lines):
        if "Traceback (most recent call last)" in line:
            told = [one for one in lines[index + 1 :] if _is_raised(one)]
            if told:
                return _without_our_type(told[0])[:500]
    return lines[0][:500] if lines else type(error).__name__


def _unfit_worker(text: str) -> str | None:
    """What to do about a worker that cannot run Python for this driver; None if the text tells of something else."""
    if (found := _NO_PYTHON.search(text)) is not None:
        return (
            f"the Spark worker on host {found['host']} has no {found['python']}, the Python to use there; install it,"
            " or set PYSPARK_PYTHON to one that every worker has"
        )
    if (found := _OTHER_PYTHON.search(text)) is not None:
        return (
            f"Spark's workers have Python {found['worker']}, and this driver has {found['driver']}; both have to be"
            f" the same: set PYSPARK_PYTHON to a Python {found['driver']} that every worker has"
        )
    return None


def _without_our_type(line: str) -> str:
    """Our own errors are sentences; the types of others say what they mean.

    >>> _without_our_type("foldlog.errors.FoldError: it rains"), _without_our_type("KeyError: 'x'")
    ('it rains', "KeyError: 'x'")
    """
    name, _, text = line.partition(": ")
    return text if name.startswith("foldlog.errors.") or line.startswith(_UNFIT_WORKER) else line


def _is_raised(line: str) -> bool:
    """Whether a line of a traceback is the one with the error: its type, a colon and the message."""
    name, colon, _ = line.partition(":")
    return bool(colon) and " " not in name and name.replace(".", "").replace("_", "").isalnum() and name[-1:].isalpha()
