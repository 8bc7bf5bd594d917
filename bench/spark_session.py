"""The Spark session of the benchmark, as `foldlog fold run` makes it, and what is the same in all of its sections."""

from __future__ import annotations

import importlib.util
import logging
import shutil
from functools import wraps
from typing import TYPE_CHECKING, Protocol

from bench.measuring import Place, Scale
from bench.table import ROW_HEAD, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

STREAM_END_S = 600


class Section(Protocol):
    """A section that needs Spark."""

    def __call__(self, place: Place, scale: Scale, spark: SparkSession) -> Table: ...


def with_spark(title: str) -> Callable[[Section], Callable[[Place, Scale], Table]]:
    """Give a section the session. Where Spark cannot run, its table says why, and the other sections go on."""

    def decorate(section: Section) -> Callable[[Place, Scale], Table]:
        @wraps(section)
        def run(place: Place, scale: Scale) -> Table:
            reason = why_not()
            if reason is not None:
                return Table(title, ROW_HEAD, [], [f"Not measured: {reason}."])
            return section(place, scale, spark=session())

        return run

    return decorate


def why_not() -> str | None:
    """Why there can be no Spark here; None if there can."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed"
    return "there is no Java" if shutil.which("java") is None else None


def session() -> SparkSession:
    """The one there is, or a new one. Not that of the tests, whose compiler is turned down for a quick start."""
    from foldlog.spark.session import fold_session

    logging.getLogger("foldlog").setLevel(logging.ERROR)
    return fold_session()


def cores(spark: SparkSession) -> int:
    """Tasks that run at the same time."""
    return spark.sparkContext.defaultParallelism


def to_nowhere(frame: DataFrame) -> None:
    """Make Spark compute every row, and throw it away: its own noop sink."""
    frame.write.format("noop").mode("overwrite").save()


def stream_to_nowhere(frame: DataFrame, checkpoint: str) -> tuple[int, float]:
    """Read a stream, with AvailableNow, into nothing; how many rows it had, and the seconds of its micro-batches."""
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    if not query.awaitTermination(STREAM_END_S):
        query.stop()
        raise RuntimeError(f"the stream did not end within {STREAM_END_S} s")
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    return (
        sum(int(one["numInputRows"]) for one in progress),
        sum(int(one["durationMs"]["triggerExecution"]) for one in progress) / 1000,
    )
