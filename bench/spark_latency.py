"""From append to visible: a record at a time, with a fold running beside it, until a reader of its view sees it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from bench import broker_process, spark_topics
from bench.measuring import Place, Scale, percentile
from bench.spark_session import with_spark
from bench.spark_views import payments_fold
from bench.table import Row, Table, duration, table_of

import foldlog
import foldlog.spark as fl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from foldlog.spark.folds.declaration import Fold
    from foldlog.views.contract import View

    MakeFold = Callable[[View], Fold]

TITLE = "Folds: from append to visible"
INTERVAL_S = 0.05
WAYS = ("path", "wire")

_LOOK_S = 0.001
_PATIENCE_S = 60.0
_VALUE = b'{"merchant":"chai point","amount_paise":4200,"note":"two chai","at":"2026-01-15T10:30:00Z"}'


@with_spark(TITLE)
def run(place: Place, scale: Scale, spark: SparkSession) -> Table:
    rows = [measure(place, scale, spark, way, fold) for fold in (payments_fold, _filtered_fold) for way in WAYS]
    return table_of(TITLE, rows, _notes(scale))


def _filtered_fold(view: View) -> Fold:
    def paid(rows: DataFrame) -> DataFrame:
        return rows.filter("amount_paise > 0")

    return fl.fold(payments_fold(view).topic, into=view, name="filtered")(paid)


def _notes(scale: Scale) -> list[str]:
    return [
        f"{scale.fold_latencies} records, one by one: p50 / p99. The runner looks every {duration(INTERVAL_S)}.",
        "Appended through a broker in a process of its own, durably; the clock starts before that. Read by SQL.",
        "'empty job' is the least that Spark does: one task without a plan, whose Python worker gives back one number.",
    ]


def measure(place: Place, scale: Scale, spark: SparkSession, way: str, make: MakeFold = payments_fold) -> Row:
    """`way` is where the fold reads: the files, or the broker."""
    home = place.fresh()
    with foldlog.open(home / "log") as log:
        log.create_topic(spark_topics.PAYMENTS)
    seen: list[float] = []
    empty: list[float] = []
    with broker_process.running(home / "log") as broker:
        address = "{}:{}".format(*broker.address)
        source = str(home / "log") if way == "path" else address
        with foldlog.open(home / "log") as log, _running(spark, source, home / "shop.db", make):
            _until_visible(log, home / "shop.db", "warm-up")
            for number in range(scale.fold_latencies):
                seen.append(_until_visible(log, home / "shop.db", f"tx-{number:09d}"))
                empty.append(_seconds(lambda: _empty_job(spark)))
    place.give_back(home)
    into = "SQLite table" if make is payments_fold else "SQLite table behind a filter"
    return Row(
        f"append to visible, {into}, log read by {way}", _told(seen), f"empty job {_told(empty)}",
        percentile(sorted(empty), 50) / percentile(sorted(seen), 50),
    )  # fmt: skip


def _told(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"{duration(percentile(ordered, 50))} / {duration(percentile(ordered, 99))}"


@contextmanager
def _running(spark: SparkSession, source: str, database: Path, make: MakeFold) -> Iterator[None]:
    """The fold, on a thread of its own, until the block ends. What it failed of is raised there."""
    stop = Event()
    failed: list[BaseException] = []

    def follow() -> None:
        try:
            fl.run([make(fl.table(database, "payments"))], source, interval_s=INTERVAL_S, spark=spark, stop=stop)
        except BaseException as error:  # noqa: BLE001 raised where somebody sees it
            failed.append(error)

    thread = Thread(target=follow, name="bench-fold")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]


def _until_visible(log: foldlog.Log, database: Path, key: str) -> float:
    """Seconds from the append to the first look that finds it."""
    begun = time.perf_counter()
    log.append(spark_topics.PAYMENTS, _VALUE, key=key)  # by the broker, which has the directory
    while not _is_there(database, key):
        if time.perf_counter() - begun > _PATIENCE_S:
            raise RuntimeError(f"the view has not got {key!r} within {_PATIENCE_S} s")
        time.sleep(_LOOK_S)
    return time.perf_counter() - begun


def _is_there(database: Path, key: str) -> bool:
    if not database.exists():
        return False
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
        try:
            return opened.execute("SELECT 1 FROM payments WHERE tx_id = ?", (key,)).fetchone() is not None
        except sqlite3.OperationalError:
            return False  # the fold has not made its table yet


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _empty_job(spark: SparkSession) -> None:
    def as_they_are(numbers: Iterable[int]) -> Iterable[int]:
        return numbers

    spark.sparkContext.parallelize([1], 1).mapPartitions(as_they_are).collect()
