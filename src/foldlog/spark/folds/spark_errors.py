"""Spark's errors: as one line for people, whether a record is at fault, and whether the session is gone."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from contextlib import suppress
from subprocess import TimeoutExpired
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from foldlog.errors import CorruptLog

_UNFIT_WORKER: Final = "ImportError: the Spark worker on host "
"""How the error begins that foldlog.spark.workers makes a worker raise about itself."""

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
_NOT_THE_USERS: Final = ("/site-packages/", "/dist-packages/", "/pyspark/", "/lib/python", "<string>")
_EMPTY_WORDS: Final = ("Exception thrown in awaitResult", "An error occurred while calling")
_OUT_OF_MEMORY: Final = "java.lang.OutOfMemoryError"

_OF_VALUES: Final = ("22", "23", "54", "P0001")
"""Classes of SQL states for values that an operation rejects: a division by zero, a duplicate key, an array that would
be too long; and the state of raise_error() and assert_true()."""

_OF_SURROUNDINGS: Final = (
    *("08", "0A", "21", "25", "40", "42", "46", "53"),
    *("55", "56", "57", "58", "HV", "HY", "KD", "XXK"),
)
"""Classes of SQL states that no record causes: connections, unsupported or wrong requests, memory, files and other
storage, cancelled jobs."""

_IN_A_TASK: Final = "org.apache.spark.executor.Executor"
"""In the stack trace of an error that occurred while rows were computed, not while they were planned."""

_WHILE_PLANNING: Final = "ConvertToLocalRelation"
"""Likewise, of rows that the plan itself holds: Spark evaluates projections of them while it plans."""

_OUTSIDE_JAVA: Final = re.compile(
    r"^java\.(io|net|nio\.file|nio\.channels|sql|security)\.|^(javax\.net|org\.apache\.hadoop|com\.amazonaws)\."
    r"|^java\.lang\.(Interrupted|OutOfMemory|NoClassDef|ClassNotFound|NoSuch|Linkage|UnsatisfiedLink|Illegal(State|Monitor))"
    r"|^org\.apache\.spark\.(memory|network|rpc|scheduler|shuffle|storage)\.|Timeout|Connect|Cancel|TaskKilled"
    r"|ExecutorLost|FetchFailed|TaskResultLost|TaskCommitDenied"
)
"""Errors of the JVM that no record causes, by their class, or by Spark's name for them."""

_FAILED_BY: Final = re.compile(r"^[\w.$]+")

_OUTSIDE: Final = ImportError, OSError, MemoryError, KeyboardInterrupt
"""Errors of the environment, which no record causes."""

_OUTSIDE_NAMES: Final = re.compile(
    r"Connect|Timeout|TimedOut|Unavailable|OperationalError|InterfaceError|Network|Socket|SSL|PySparkImport|Pickling|Py4J"
)
"""Errors of libraries that derive from Exception: a service could not be reached."""

_READER: Final = "/foldlog/spark/folds/reading.py"
"""An error in this file occurs before the fold's function has seen a record."""

_DAMAGE: Final = f"{CorruptLog.__module__}.{CorruptLog.__qualname__}: "
"""How a traceback's line begins that reports damage."""

_HEADLINE: Final = "Traceback (most recent call last)"
_FRAME: Final = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)')
_BAR: Final = re.compile(r"^\s*\| ?")
_OF_A_LIBRARY: Final = "pyspark."
"""Prefix of the types that PySpark wraps around other errors."""

_END_S: Final = 5.0
"""How long a JVM that does not answer may take to exit."""

_EXIT_OUT_OF_MEMORY: Final = 52
"""Spark's exit code for a JVM whose heap is full."""


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
    """Why Spark is gone, judging by its JVM's exit code and the last error, as the beginning of a sentence."""
    process = getattr(SparkContext._gateway, "proc", None)
    code = None
    if process is not None:
        with suppress(TimeoutExpired):  # connections close before it exits; after a mere stop it runs on
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
    """The essence of Spark's message: the root cause in one line, and for a Python function its file and line."""
    texts = list(_texts(error))
    for text in texts:
        told = _known_trouble(text)
        if told is not None:
            return told
    for text in texts:
        raised = raised_in(text)
        if raised is not None:
            return _without_our_type(raised.line)[:500] + _where(raised)
    for text in texts:
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        if first and not first.startswith(_EMPTY_WORDS):
            failure = _TASK_FAILURE.search(first)
            return (first if failure is None else failure["why"])[:500]
    return type(error).__name__


def is_damage(error: BaseException) -> bool:
    """Whether a worker found the log damaged: it has read twice, so a retry finds the same."""
    return any(line.strip().startswith(_DAMAGE) for text in _texts(error) for line in text.splitlines())


def is_records_fault(error: BaseException) -> bool:
    """Whether a record may be at fault: true unless the error is known to come from the environment, such as a missing
    module, a failed connection, a lost file, a dead worker or an invalid plan. The caller then folds single records, so
    an error that no record causes alone stays an error.
    """
    if not isinstance(error, CapturedException | Py4JJavaError) or isinstance(error, AnalysisException):
        return False
    if any(_known_trouble(text) is not None for text in _texts(error)):
        return False
    raised = next((found for text in _texts(error) if (found := raised_in(text)) is not None), None)
    return _is_functions(raised) if raised is not None else _is_values(error)


def _is_functions(raised: Raised) -> bool:
    """Whether a user's function raised the error, because of its input."""
    if raised.line.startswith(("foldlog.", _UNFIT_WORKER)) or any(_READER in file for file, _ in raised.frames):
        return False
    kind = getattr(builtins, raised.name, Exception)
    is_outside = isinstance(kind, type) and issubclass(kind, _OUTSIDE)
    return not is_outside and _OUTSIDE_NAMES.search(raised.name) is None


def _is_values(error: BaseException) -> bool:
    """Whether an operation of Spark's may have rejected a value. The outermost SQL state decides; without one, any
    error in a task may be, or of rows that the plan itself holds (a trial's sample), unless one of its causes is of the
    environment.
    """
    causes = list(_causes(error))
    state = next((one.state for one in causes if one.state.startswith((*_OF_VALUES, *_OF_SURROUNDINGS))), "")
    if state:
        return state.startswith(_OF_VALUES)
    trace = getattr(error, "_stackTrace", None) or str(error)
    if _IN_A_TASK not in trace and _WHILE_PLANNING not in trace:
        return False
    return not any(_OUTSIDE_JAVA.search(one.kind) for one in causes)


class _Cause(NamedTuple):
    """One exception of the JVM: its class, or Spark's name for a task's failure; and its SQL state, if any."""

    kind: str
    state: str


def _causes(error: BaseException) -> Iterator[_Cause]:
    """The exceptions of an error, outermost first."""
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if cause is None and isinstance(error, PySparkException):
        yield _Cause("", error.getSqlState() or "")
    try:
        while cause is not None:
            kind = str(cause.getClass().getName())
            state = (cause.getSqlState() or "") if kind.startswith("org.apache.spark.Spark") else ""
            yield _Cause(kind, state)
            failure = _TASK_FAILURE.search(str(cause.getMessage() or ""))
            if failure is not None and (named := _FAILED_BY.match(failure["why"])) is not None:
                yield _Cause(named[0], "")  # from another machine, there may be only this text
            cause = cause.getCause()
    except (Py4JError, OSError):
        yield _Cause("java.io.EOFException", "")  # the JVM is gone, and its objects with it


def _texts(error: BaseException | None) -> Iterator[str]:
    """The messages of an error and of each of its Java causes, outermost first."""
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
    """Advice for known problems with messages of Spark's own; None if the text is about something else."""
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


def _where(raised: Raised) -> str:
    """The line in the user's own file; empty if there is none, or the error is foldlog's."""
    if raised.line.startswith(("foldlog.", _UNFIT_WORKER)):
        return ""
    users = [one for one in raised.frames if not any(part in one[0] for part in _NOT_THE_USERS)]
    if not users:
        return ""
    file, line = users[-1]
    return f" ({file.rpartition('/')[2]}, line {line})"


def _without_our_type(line: str) -> str:
    """Remove the type of foldlog's own errors, which are sentences; other types carry meaning.

    >>> _without_our_type("foldlog.errors.FoldError: it rains"), _without_our_type("KeyError: 'x'")
    ('it rains', "KeyError: 'x'")
    """
    name, _, text = line.partition(": ")
    return text if name.startswith("foldlog.errors.") or line.startswith(_UNFIT_WORKER) else line


# --- tracebacks -------------------------------------------------------------------------------------------------------
# A traceback is a headline, indented frames, and the error, which is not indented: its type, with a colon and a message
# if it has one. Several may follow each other, where one error led to the next; in exception groups each line begins
# with a bar. A line of the source may look like an error (`ratio: int = 1`), but it is indented.


class Raised(NamedTuple):
    """An error: the type's name with its module, the first line of its message, and its frames, outermost first."""

    type: str
    message: str
    frames: tuple[tuple[str, int], ...]

    @property
    def name(self) -> str:
        """The type without its module."""
        return self.type.rpartition(".")[2]

    @property
    def line(self) -> str:
        """As Python prints it.

        >>> Raised("KeyError", "'x'", ()).line, Raised("AssertionError", "", ()).line
        ("KeyError: 'x'", 'AssertionError')
        """
        return f"{self.type}: {self.message}" if self.message else self.type


def raised_in(text: str) -> Raised | None:
    """The error that the text's tracebacks end with; if PySpark only wrapped another error, that one.

    >>> raised_in('Traceback (most recent call last):\\n  File "f.py", line 7, in f\\n    x: int = 1 // 0\\nValueError')
    Raised(type='ValueError', message='', frames=(('f.py', 7),))
    """
    found = list(_all(text.splitlines()))
    own = [one for one in found if not one.type.startswith(_OF_A_LIBRARY)] or found
    return own[-1] if own else None


def _all(lines: list[str]) -> Iterator[Raised]:
    frames: list[tuple[str, int]] = []
    is_inside = is_group = False
    for given in lines:
        if _HEADLINE in given:
            frames, is_inside, is_group = [], True, "Exception Group" in given
            continue
        if not is_inside:
            continue
        line = _BAR.sub("", given, count=1) if is_group else given
        frame = _FRAME.match(line)
        if frame is not None:
            frames.append((frame["file"], int(frame["line"])))
        elif line.strip() and not line[0].isspace():
            kind, _, message = line.partition(":")
            yield Raised(kind.strip(), message.strip(), tuple(frames))
            is_inside = False
