"""Starts Spark's JVM so that it disturbs nobody: what it prints is kept aside, and no terminal's signals reach it.

PySpark by itself gives the JVM our standard error, where it greets, warns, and prints Java stacks when work is
cancelled. And it leaves the JVM in our process group, so that Ctrl-C kills Python workers in the middle of a range.
"""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from threading import Thread
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from foldlog.errors import FoldError

KEPT_LINES: Final = 200
"""Of what the JVM says, to tell why it did not start; the rest is forgotten."""

_LAST_WORDS_S: Final = 5.0
"""How long to wait for the end of the output of a JVM that has ended: a child of it may still hold the pipe."""


def start_gateway(conf: SparkConf, log: Path | None = None) -> None:
    """Start the JVM that the next SparkContext uses. What it prints, now and later, goes to `log`, or is forgotten.

    It ends with this process, however that ends: it reads a pipe that nobody else writes. FoldError if it does not
    start.
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
    """Where the JVM prints to: a file, or a pipe that a thread reads for as long as the JVM lives."""

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
        """Close our copy of what the JVM writes to: the reader ends when the JVM does."""
        if self._is_open:
            os.close(self.writable)
            self._is_open = False

    def reason(self) -> str:
        """Why a JVM ended, as far as its last words say: the first complaint among them, or the last line."""
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
