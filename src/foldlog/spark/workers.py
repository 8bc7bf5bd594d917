"""Checks Spark's Python workers, which may be on other machines, and explains in one sentence why they cannot work.

The objects sent to a task refer to this package, so a worker without it, or with another version of it, would fail
while unpickling them. So they are sent as bytes, with a small function that needs only Python and checks first.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from importlib import import_module
from threading import Thread
from typing import Any, Final, TypeVar

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from foldlog.errors import FoldError
from foldlog.spark.folds.spark_errors import brief_spark_error

Sent = TypeVar("Sent")

FIRST_EXECUTOR_S: Final = 15.0
"""How long to wait for a cluster's first executor before reporting it: the interval of Spark's own log message."""


def packed_for_workers(value: Sent) -> Callable[[], Sent]:
    """A function that returns the value, here or on a worker. On a worker it raises ImportError, with a message that
    `spark_errors` recognises, unless this version of foldlog and what the value needs are installed there.
    """
    packed: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    version: str = import_module("foldlog").__version__

    def unpacked() -> Any:
        # Spark pickles this function by value. It must not use this module: that would have to be imported first.
        import pickle
        import socket
        import sys
        from importlib import import_module

        where = f"the Spark worker on host {socket.gethostname()}"
        try:
            found = import_module("foldlog").__version__
            if found == version:
                return pickle.loads(packed)
        except ImportError as error:
            raise ImportError(
                f"{where} cannot use foldlog: {error}; run there: {sys.executable} -m pip install"
                f" 'foldlog[spark]=={version}', or set PYSPARK_PYTHON to a Python that has it"
            ) from None
        raise ImportError(
            f"{where} has foldlog {found}, and the driver has {version}; run there: {sys.executable} -m"
            f" pip install 'foldlog[spark]=={version}', or set PYSPARK_PYTHON to a Python that has it"
        )

    return unpacked


def await_workers(spark: SparkSession, tell: Callable[[str], None], tell_after_s: float = FIRST_EXECUTOR_S) -> None:
    """Return once a worker of the cluster has run a task. Calls `tell` once if that takes long, and waits on: a cluster
    may be busy for hours. FoldError if a worker reports that it cannot run folds.
    """
    context = spark.sparkContext
    greeting = packed_for_workers(None)

    def greet(numbers: Any) -> Any:
        greeting()
        return numbers

    done: Future[None] = Future()

    def run() -> None:
        try:
            context.parallelize([0], 1).mapPartitions(greet).collect()
            done.set_result(None)
        except BaseException as error:  # noqa: BLE001 for the thread that waits
            done.set_exception(error)

    # Not a pool's thread: Python waits for those before it exits, even after Ctrl-C.
    Thread(target=run, name="foldlog-workers", daemon=True).start()
    if not wait([done], tell_after_s).done:
        tell(_no_executor(spark))
    try:
        done.result()
    except Exception as error:
        raise FoldError(f"Spark's workers cannot run folds: {brief_spark_error(error)}") from error


def _no_executor(spark: SparkSession) -> str:
    settings = spark.sparkContext.getConf()
    driver = f"{settings.get('spark.driver.host')}:{settings.get('spark.driver.port')}"
    return (
        f"{spark.sparkContext.master} has not given a worker yet, and it is waited for: it may have no free cores, or"
        " less memory than asked for (--conf spark.executor.memory=1g), or its workers cannot reach this driver at"
        f" {driver} (--conf spark.driver.host=ADDRESS)"
    )
