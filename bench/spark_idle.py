"""What a runner of six folds takes of the processor: caught up, and with a hundred records a second.

`python -m bench.spark_idle LOG HOME` is that runner, in a process of its own: it says `ready` when all folds have
caught up, and ends with its input. All of it counts: Python, the JVM and Spark's workers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from bench import broker_process, spark_topics
from bench.measuring import Place, Scale
from bench.spark_session import cores, session, with_spark
from bench.spark_topics import PAYMENTS, PAYMENTS_SCHEMA
from bench.table import Row, Table, count, table_of

import foldlog
import foldlog.spark as fl
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.feed import Feed, State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TITLE = "Folds: at rest"
RATE = 100
AIMS = {0: 0.03, RATE: 0.20}

_RECORDS = 10_000
_TICK_S = 0.1
_ROOT = Path(__file__).resolve().parent.parent


@with_spark(TITLE)
def run(place: Place, scale: Scale, spark: SparkSession) -> Table:
    shares = measure(place, scale.fold_idle_s, cores(spark))
    rows = [
        Row(
            f"six folds, {f'{rate} records a second' if rate else 'caught up'}", f"{share:.1%} of a core",
            f"over {scale.fold_idle_s} s", None, f"<= {AIMS[rate]:.0%}", share <= AIMS[rate],
        )
        for rate, share in shares.items()
    ]  # fmt: skip
    notes = [
        "Processor time of the runner, its JVM and Spark's workers, of one core. It looks at the log every second.",
        "Two tables (one behind a filter), a search index, counters, Parquet and Delta files, all of one topic.",
        f"The topic has {count(_RECORDS)} records at first. A broker of its own serves the log, and is not counted.",
    ]
    return table_of(TITLE, rows, notes)


def measure(place: Place, seconds: float, partitions: int) -> dict[int, float]:
    """The share of a core, by records a second."""
    home = place.fresh()
    spark_topics.make_payments(home / "log", _RECORDS, partitions)
    with broker_process.running(home / "log"), _runner(home) as process:
        found = {rate: _share(process, home / "log", rate, seconds) for rate in AIMS}
    place.give_back(home)
    return found


def _share(process: int, log: Path, rate: int, seconds: float) -> float:
    with _writing(log, rate):
        time.sleep(seconds / 2)  # what was begun has ended, and Java has compiled what it will
        begun, spent = time.perf_counter(), _processor_s(process)
        time.sleep(seconds)
        return (_processor_s(process) - spent) / (time.perf_counter() - begun)


@contextmanager
def _runner(home: Path) -> Iterator[int]:
    command = [sys.executable, "-m", "bench.spark_idle", str(home / "log"), str(home)]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a process without pipes")
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError("the runner ended before it had caught up")
        yield process.pid
        process.stdin.close()


@contextmanager
def _writing(path: Path, rate: int) -> Iterator[None]:
    """So many records a second, by way of the broker, as long as the block lasts."""
    stop = Event()

    def write() -> None:
        number = 0
        with foldlog.open(path) as log, log.producer() as producer:
            while not stop.wait(_TICK_S):
                for _ in range(int(rate * _TICK_S)):
                    producer.send(PAYMENTS, spark_topics.payment(number), key=f"new-{number:09d}")
                    number += 1

    thread = Thread(target=write, name="bench-writer")
    if rate:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if rate:
            thread.join()


def _processor_s(process: int) -> float:
    """Of a process, of those that it has started, and of those that they had started and that have ended."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        parents[int(path.parent.name)] = int(fields[1])
        ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))
    family, before = {process}, 0
    while len(family) > before:
        before = len(family)
        family |= {one for one, parent in parents.items() if parent in family}
    return sum(ticks.get(one, 0) for one in family) / os.sysconf("SC_CLK_TCK")


def six_folds(home: Path) -> list[Fold]:
    topic = fl.topic(PAYMENTS, key="tx_id", schema=PAYMENTS_SCHEMA)
    measures = {"payments": fl.count(), "paise": fl.sum("amount_paise")}
    views = {
        "payments": fl.table(home / "shop.db", "payments"),
        "notes": fl.search(home / "search.db", text=["merchant", "note"]),
        "files": fl.lake(home / "files", format="parquet"),
        "lake": fl.lake(home / "lake", format="delta"),
    }

    def as_they_are(rows: DataFrame) -> DataFrame:
        return rows

    def large(rows: DataFrame) -> DataFrame:
        return rows.filter("amount_paise > 50000")

    counters = fl.counters(home / "live.db", by=["merchant"], window=("at", "1 minute"), measures=measures)
    return [
        *(fl.fold(topic, into=view, name=name)(as_they_are) for name, view in views.items()),
        fl.fold(topic, into=fl.table(home / "large.db", "large"), name="large")(large),
        fl.fold(topic, into=counters, name="counters")(large),
    ]


def follow(log: Path, home: Path) -> None:
    """Run the folds until the input ends."""
    stop = Event()
    caught_up: set[str] = set()

    def told(feed: Feed) -> None:
        if feed.state is State.CAUGHT_UP and feed.name not in caught_up:
            caught_up.add(feed.name)
            if len(caught_up) == len(folds):
                print("ready", flush=True)

    def wait_for_end() -> None:
        sys.stdin.read()
        stop.set()

    folds = six_folds(home)
    Thread(target=wait_for_end, daemon=True).start()
    fl.run(folds, log, spark=session(), stop=stop, on_progress=told)


if __name__ == "__main__":
    follow(Path(sys.argv[1]), Path(sys.argv[2]))
