"""Spark's errors, in one line for people; whose fault they are; and whether Spark is there at all."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from contextlib import suppress
from subprocess import TimeoutExpired
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession

from foldlog.errors import CorruptLog

_UNFIT_WORKER: Final = "ImportError: the Spark worker on host "
"""How the line begins that foldlog.spark.workers has a worker say of itself."""

_NO_PYTHON: Final = re.compile(
    r'\((?P<host>[^\s()]+) executor [^)]*\): java\.io\.IOException: Cannot run program "(?P<python>[^"]+)"'
)
_OTHER_PYTHON: Final = re.compile(
    r"Python in worker has different version: (?P<worker>[\d.]+) than that in driver: (?P<driver>[\d.]+)"
)
_RESULT_TOO_LARGE: Final = re.compile(
    r"Total size of serialized results of \d+ tasks? \((?P<size>[^)]+)\) is bigger than"
    r" (?:local maxResultSize|spark\.driver\.maxResultSize) \(?(?P<most>[\d.]+ \w+)\)?"
)
_LOST_WORKER: Final = re.compile(r"Python worker (exited unexpectedly|failed to connect back)")
_TASK_FAILURE: Final = re.compile(r"most recent failure: Lost task \S+ in stage \S+ \(TID \d+\) \(.*?\): (?P<why>.*)")
_FRAME: Final = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_NOT_THE_USERS: Final = ("/site-packages/", "/dist-packages/", "/pyspark/", "/lib/python")
_EMPTY_WORDS: Final = ("Exception thrown in awaitResult", "An error occurred while calling")
_OUT_OF_MEMORY: Final = "java.lang.OutOfMemoryError"

_DATA_EXCEPTION: Final = "22"
"""The class of SQL states for values that an operation cannot take: a division by zero, a cast that does not fit."""

_RAISED_BY_USER: Final = "P0001"
"""The SQL state of raise_error() and assert_true()."""

_OUTSIDE: Final = ImportError, OSError, MemoryError
"""Errors of the surroundings, and of no record."""

_OUTSIDE_NAMES: Final = re.compile(
    r"Connect|Timeout|TimedOut|Unavailable|OperationalError|InterfaceError|Network|Socket|SSL|PySpark|Py4J"
)
"""Of libraries that derive from Exception: something was not to be reached."""

_READER: Final = "/foldlog/spark/folds/reading.py"
"""What fails in it, fails before the fold's function has seen a record."""

_DAMAGE: Final = f"{CorruptLog.__module__}.{CorruptLog.__qualname__}: "
"""How the line of a traceback begins that says it."""

_END_S: Final = 5.0
"""How long a JVM that no longer answers may take to end."""

_EXIT_OUT_OF_MEMORY: Final = 52
"""With which Spark ends its JVM when its heap is full."""


def is_gone(spark: SparkSession) -> bool:
    """Whether the session can never run anything again: it was stopped, or its JVM has died."""
    context = spark.sparkContext._jsc
    if context is None:
        return True
    try:
        return bool(context.sc().isStopped())
    except (Py4JError, OSError):
        return True


def why_gone(error: BaseException | None = None) -> str:
    """Why Spark is gone, as far as its JVM's end and the last error tell; for a sentence that begins with Spark."""
    process = getattr(SparkContext._gateway, "proc", None)
    code = None
    if process is not None:
        with suppress(TimeoutExpired):  # its connections close before it has ended; a context may be stopped in it
            code = process.wait(_END_S)
    if code == _EXIT_OUT_OF_MEMORY or any(_OUT_OF_MEMORY in text for text in _texts(error)):
        return (
            "Spark's driver ran out of memory; give it more, as in --conf spark.driver.memory=4g, or read less at a"
            " time, as in --range-bytes 16777216"
        )
    if code is not None and code < 0:
        return (
            f"Spark's JVM was killed by signal {-code}, by somebody or, where memory is short, by the system;"
            " give it less to do (--range-bytes) or the machine more memory"
        )
    if code:
        return f"Spark's JVM has ended with code {code}"
    return "Spark has ended, by itself or by somebody's hand"


def brief_spark_error(error: BaseException) -> str:
    """What a person needs of Spark's message: the reason at its root in a line, and of a Python function its line."""
    texts = list(_texts(error))
    for text in texts:
        told = _known_trouble(text)
        if told is not None:
            return told
    for text in texts:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        for index, line in enumerate(lines):
            if "Traceback (most recent call last)" in line:
                told = next((one for one in lines[index + 1 :] if _is_raised(one)), None)
                if told is not None:
                    return _without_our_type(told)[:500] + _where(lines[index + 1 :], told)
    for text in texts:
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        if first and not first.startswith(_EMPTY_WORDS):
            failure = _TASK_FAILURE.search(first)
            return (first if failure is None else failure["why"])[:500]
    return type(error).__name__


def is_damage(error: BaseException) -> bool:
    """Whether a worker found the log damaged: it looked twice, so the next try finds the same."""
    return any(line.strip().startswith(_DAMAGE) for text in _texts(error) for line in text.splitlines())


def is_records_fault(error: BaseException) -> bool:
    """Whether it may be one record's doing: a value that an operation does not take, or that a user's function raises
    at. Not what the surroundings do: a module that is missing, a connection that fails, a worker that dies.
    """
    if any(_known_trouble(text) is not None for text in _texts(error)):
        return False
    if isinstance(error, PythonException):
        lines = [line.strip() for line in str(error).splitlines()]
        raised = next((line for line in lines if _is_raised(line)), "")
        if not raised or raised.startswith(("foldlog.", _UNFIT_WORKER)) or any(_READER in line for line in lines):
            return False
        name = raised.partition(":")[0].rpartition(".")[2]
        kind = getattr(builtins, name, Exception)
        is_outside = isinstance(kind, type) and issubclass(kind, _OUTSIDE)
        return not is_outside and _OUTSIDE_NAMES.search(name) is None
    if isinstance(error, PySparkException):
        state = error.getSqlState() or ""
        return state.startswith(_DATA_EXCEPTION) or state == _RAISED_BY_USER
    return False


def _texts(error: BaseException | None) -> Iterator[str]:
    """What an error says, and each of its causes in Java, from the outside in."""
    if error is None:
        return
    text = str(error)
    if isinstance(error, PySparkException) and error.getMessage():
        text = str(error.getMessage())
    cause: Any = error.java_exception if isinstance(error, Py4JJavaError) else None
    if cause is None:
        yield text.strip()
        return
    try:
        while cause is not None:
            message = cause.getMessage()
            yield f"{cause.getClass().getName()}: {message}" if message is None else str(message).strip()
            cause = cause.getCause()
    except (Py4JError, OSError):
        yield text.strip()  # the JVM is gone, and its objects with it


def _known_trouble(text: str) -> str | None:
    """What to do about trouble that Spark tells of in words of its own; None if the text tells of something else."""
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
    if (found := _RESULT_TOO_LARGE.search(text)) is not None:
        return (
            f"the rows of one range take {found['size']}, and spark.driver.maxResultSize allows {found['most']};"
            " allow more (--conf spark.driver.maxResultSize=4g), or read less at a time (--range-bytes)"
        )
    if _LOST_WORKER.search(text) is not None:
        return (
            "a Python worker of Spark's ended in the middle of its work: it was killed, ran out of memory, or the"
            " fold's function crashed it"
        )
    if _OUT_OF_MEMORY in text:
        return "Spark ran out of memory; give it more, as in --conf spark.driver.memory=4g"
    return None


def _where(lines: list[str], raised: str) -> str:
    """The place in the user's own file, of the lines of a traceback; empty if there is none, or the error is ours."""
    if raised.startswith(("foldlog.", _UNFIT_WORKER)):
        return ""
    frames = [found for line in lines[: lines.index(raised)] if (found := _FRAME.search(line)) is not None]
    users = [one for one in frames if not any(part in one["file"] for part in _NOT_THE_USERS)]
    if not users:
        return ""
    return f" ({users[-1]['file'].rpartition('/')[2]}, line {users[-1]['line']})"


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
