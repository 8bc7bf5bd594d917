"""kill -9 of Spark drivers and of Python workers while a pipeline runs and records are appended: no view ever differs.

A writer appends payments all the time, and the topic grows meanwhile. Drivers are processes with a Spark of their own;
two of them run the same folds at once. They are killed at random moments, the Python process or its JVM, and so are the
Python workers of the session that all tests share. After every kill each view is the fold of exactly what its bookmark
says, recomputed in plain Python; and in the end, of the whole log. The same once retention has overtaken a fold that
stood still, and after the topic was made anew.

Fault model: processes die at any instruction; the machine, its disk and the log's own writer do not. The seed is in
the name of each test.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock, Thread

import psycopg
import pytest
from pyspark.sql import SparkSession

import foldlog
import foldlog.spark as fl
from foldlog import Log, Record
from foldlog.errors import FoldError
from foldlog.spark.folds import runner
from foldlog.spark.folds.declaration import Fold
from foldlog.spark.folds.feed import Feed
from folds_model import NUMBER, records_of
from folds_shop import ALL, REDUCED, check_at_its_bookmark, check_rows, loaded, snapshot_of, write_pipeline
from postgres_server import PostgresServer, server_binaries
from spark.folds.kill_processes import Driver, Process, drivers, is_busy, kill, python_workers, wait_until
from views.staged_contract import places_below

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="processes are found in /proc; enable with: run the tests on Linux"
)

# A driver that starts plans every fold first, so those that are killed have few. The workers' folds are warm.
FEW = ("table_postgres", "search_tantivy", "counters_sqlite")
MORE = (*FEW, "table_sqlite", "delta_history")
STAGED = ("table_postgres", "delta_history", "parquet_history", "iceberg_history")
"""Folds whose rows executors write, if ranges are long enough."""
RANGE_BYTES = 15_000
TRIES_MAX = 100
"""A worker that has just done its work is killed without effect; most are hit at work."""
KILLS = 20 if os.environ.get("FOLDLOG_TEST_PROFILE") == "thorough" else 8
SOON_S = 0.5
"""A worker that was at work is missed at once."""


class Writer:
    """Appends payments, a few at a time, until the block ends. A runner without work would not miss its Spark."""

    def __init__(self, log: Log, seed: int, first: int = 0) -> None:
        """`first`: the number of its first record, beyond those of writers before it."""
        self._log = log
        self._rng = random.Random(seed)
        self._written = first
        self._lock = Lock()
        self._stop = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def append(self, count: int) -> None:
        """Each record says which one it is: the order of a key that moved to another partition cannot be seen else."""
        with self._lock, self._log.producer() as producer:
            for _ in range(count):
                key, value = self._payment()
                headers = [(NUMBER, str(self._written).encode())]
                producer.send("payments", value=value, key=key, headers=headers)
                self._written += 1

    def grow(self, partitions: int) -> None:
        """Between two appends: who writes by key and grows a topic at once has no order to keep."""
        with self._lock:
            self._log.grow_topic("payments", partitions)

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self.append(self._rng.randrange(1, 12))

    def _payment(self) -> tuple[str | None, bytes | None]:
        rng = self._rng
        key = None if rng.random() < 0.02 else f"tx{rng.randrange(150)}"
        kind = rng.random()
        if kind < 0.12:
            return key, None
        if kind < 0.15:
            return key, rng.choice([b"", b"{", b'{"note": 5}'])
        content = {
            "merchant": rng.choice(["Chai Point", "Café ☕", None]),
            "amount_paise": rng.randrange(-10, 1000),
            "note": f"paid in part {self._written}",
            "at": f"2026-01-15T10:{rng.randrange(5):02d}:00+00:00",
        }
        return key, json.dumps(content).encode()


class Shop:
    """A log whose writer listens, and a pipeline into several engines."""

    def __init__(self, log: Log, base: Path, postgres_url: str | None, names: tuple[str, ...]) -> None:
        self.log = log
        self.data = Path(log.path)
        self.postgres_url = postgres_url
        self.file = write_pipeline(base / "folds.py", base / "views", postgres_url, names)

    @property
    def folds(self) -> dict[str, Fold]:
        """New objects: one thread uses a view."""
        return loaded(self.file)

    def records(self) -> list[Record]:
        return records_of(self.data, "payments")

    def check(self) -> None:
        """Each view, by its own bookmark. It is read before the log, so the log holds all that it has seen."""
        for name, fold in self.folds.items():
            found = snapshot_of(fold)
            if found is not None:
                check_rows(name, *found, self.records())

    def check_swept(self) -> None:
        """Nothing is left of ranges that were not committed, as the engines themselves show it."""
        assert places_below(self.file.parent) == []
        if self.postgres_url is not None:
            with psycopg.connect(self.postgres_url) as connection:
                left = connection.execute("SELECT relname FROM pg_class WHERE relpersistence = 'u'").fetchall()
                assert left == []

    def finish(self, spark: SparkSession) -> None:
        """Read what is left, and compare with the whole log."""
        folds = self.folds
        fl.run(list(folds.values()), self.data, once=True, spark=spark)
        ends = {number: end for number, (_, end) in self.log.offsets("payments").items()}
        records = self.records()
        for fold in folds.values():
            assert check_at_its_bookmark(fold, records) == ends, fold.name

    @contextmanager
    def running(self, spark: SparkSession, on_progress: Callable[[Feed], None] | None = None) -> Iterator[Thread]:
        """The pipeline in a thread of its own, in the session that all tests share, until the block ends."""
        stop, raised = Event(), list[BaseException]()

        def run() -> None:
            try:
                fl.run(
                    list(self.folds.values()),
                    self.data,
                    interval_s=0.02,
                    range_bytes=RANGE_BYTES,
                    spark=spark,
                    stop=stop,
                    on_progress=on_progress,
                )
            except BaseException as error:  # noqa: BLE001 for the test's own thread
                raised.append(error)

        thread = Thread(target=run)
        thread.start()
        try:
            yield thread
        finally:
            stop.set()
            thread.join()
            if raised:
                raise raised[0]


@pytest.fixture
def postgres_if_any(request: pytest.FixtureRequest) -> str | None:
    """A database of the test's own; None where PostgreSQL is not installed: the other engines do without."""
    if server_binaries() is None:
        return None
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with foldlog.open(tmp_path / "data", listen=True) as opened:
        opened.create_topic("payments", partitions=2, config={"foldlog.segment.records": 100})
        yield opened


def jvm_of(spark: SparkSession) -> int:
    pid: int = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    return pid


# --- drivers --------------------------------------------------------------------------------------------------------


def kill_drivers(shop: Shop, scratch: Path, seed: int, kills: int, staged_from: int | None = None) -> None:
    """Two run the same folds; one of them is killed, and another takes its place. The first one runs alone."""
    rng = random.Random(seed)
    with (
        drivers(shop.file, shop.data, scratch, RANGE_BYTES, staged_from) as another,
        Writer(shop.log, seed) as writer,
    ):
        # A Spark takes seconds to start, so those that come next start while others are killed.
        waiting: list[Driver] = [another() for _ in range(min(3, kills))]
        started = len(waiting)
        running: list[Driver] = []
        for number in range(kills):
            while waiting and len(running) < min(2, number + 1):
                running.append(waiting.pop(0))
                running[-1].go()
            if started < kills:
                waiting.append(another())
                started += 1
            if number == 1:
                writer.grow(4)
            victim = running.pop(rng.randrange(len(running)))
            victim.let_run(rng)
            victim.kill(only_jvm=number % 3 == 1)
            shop.check()


@pytest.mark.faults
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [12])
def test_many_killed_drivers_leave_every_view_as_its_bookmark_says(
    seed: int, log: Log, tmp_path: Path, postgres_if_any: str | None, spark: SparkSession
) -> None:
    shop = Shop(log, tmp_path, postgres_if_any, MORE)
    kill_drivers(shop, tmp_path / "scratch", seed, kills=KILLS)
    shop.finish(spark)


@pytest.mark.faults
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [13])
def test_killed_drivers_whose_executors_write_leave_nothing_twice_nothing_out_and_no_garbage(
    seed: int, log: Log, tmp_path: Path, postgres_if_any: str | None, spark: SparkSession
) -> None:
    shop = Shop(log, tmp_path, postgres_if_any, STAGED)
    kill_drivers(shop, tmp_path / "scratch", seed, kills=KILLS, staged_from=1)
    Writer(log, seed, first=1_000_000).append(10)  # for the next run to commit something
    shop.finish(spark)
    shop.check_swept()


@pytest.mark.faults
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [14])
def test_killed_drivers_leave_states_that_every_record_has_stepped_once(
    seed: int, log: Log, tmp_path: Path, postgres_if_any: str | None, spark: SparkSession
) -> None:
    shop = Shop(log, tmp_path, postgres_if_any, REDUCED)
    kill_drivers(shop, tmp_path / "scratch", seed, kills=KILLS // 2)
    shop.finish(spark)


DYING = """
import os, signal
from foldlog.views.reduce.view import ReduceView

stored, left = ReduceView.apply, [2]


def apply(self, *given):
    left[0] -= 1
    if left[0] or "MOMENT" == "after":
        stored(self, *given)
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)


ReduceView.apply = apply
"""


@pytest.mark.faults
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_driver_that_dies_at_a_store_of_states_loses_the_range_or_has_stored_it(
    moment: str, log: Log, tmp_path: Path, spark: SparkSession
) -> None:
    """The second store: the states of the first are looked up, and stepped on."""
    shop = Shop(log, tmp_path, None, REDUCED)
    writer = Writer(log, seed=15)
    writer.append(200)
    fl.run(list(shop.folds.values()), shop.data, once=True, spark=spark)
    before = check_at_its_bookmark(shop.folds["reduce_sqlite"], shop.records())
    writer.append(400)
    file = tmp_path / "dying.py"
    file.write_text(DYING.replace("MOMENT", moment) + shop.file.read_text())
    with drivers(file, shop.data, tmp_path / "scratch", RANGE_BYTES, None) as another:
        driver = another()
        driver.go()
        driver.wait_for_end()
    shop.check()
    after = check_at_its_bookmark(shop.folds["reduce_sqlite"], shop.records())
    assert sum(after.values()) > sum(before.values())
    assert sum(after.values()) < 600, "it was killed before the end"
    shop.finish(spark)


# --- Python workers -------------------------------------------------------------------------------------------------


def kill_a_worker_at_work(jvm_pid: int, writer: Writer, rng: random.Random) -> None:
    """At a random moment of its work, which takes some milliseconds."""

    def busy() -> list[Process]:
        return [one for one in python_workers(jvm_pid) if is_busy(one)]

    writer.append(30)
    wait_until(lambda: bool(busy()), "a worker has something to do")
    Event().wait(rng.uniform(0, 0.005))
    workers = busy() or python_workers(jvm_pid)
    if workers:
        kill(rng.choice(workers))


def kill_workers(shop: Shop, spark: SparkSession, seed: int, kills: int) -> None:
    """Kill workers until `kills` of them were missed: a range failed, was read again, and the folds went on."""
    rng = random.Random(seed)
    moved, missed = Event(), Event()

    def progressed(feed: Feed) -> None:
        (moved if feed.error is None else missed).set()

    with Writer(shop.log, seed) as writer, shop.running(spark, progressed) as pipeline:
        for number in range(kills):
            wait_until(lambda: moved.is_set() or not pipeline.is_alive(), "the folds go on")
            assert pipeline.is_alive()
            missed.clear()
            for _ in range(TRIES_MAX):
                kill_a_worker_at_work(jvm_of(spark), writer, rng)
                if missed.wait(SOON_S):
                    break
            assert missed.is_set(), f"{TRIES_MAX} workers were killed, and nobody missed one"
            moved.clear()
            if number == kills // 2:
                writer.grow(3)
            if number % 5 == 4:
                shop.check()


@pytest.mark.faults
@pytest.mark.parametrize("seed", [21])
def test_killed_workers_cost_a_range_that_is_read_again(
    seed: int,
    log: Log,
    tmp_path: Path,
    postgres_if_any: str | None,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "FOLD_NEAR_OFFSETS", 0)  # what the driver reads itself needs no worker
    shop = Shop(log, tmp_path, postgres_if_any, FEW)
    kill_workers(shop, spark, seed, kills=3)
    shop.finish(spark)


@pytest.mark.faults
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [22])
def test_many_killed_workers_cost_a_range_that_is_read_again(
    seed: int,
    log: Log,
    tmp_path: Path,
    postgres_if_any: str | None,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "FOLD_NEAR_OFFSETS", 0)  # what the driver reads itself needs no worker
    shop = Shop(log, tmp_path, postgres_if_any, ALL)
    kill_workers(shop, spark, seed, kills=KILLS)
    shop.finish(spark)


@pytest.mark.faults
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [23])
def test_killed_workers_that_write_leave_nothing_twice_nothing_out_and_no_garbage(
    seed: int,
    log: Log,
    tmp_path: Path,
    postgres_if_any: str | None,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "FOLD_STAGED_OFFSETS_MIN", 1)
    shop = Shop(log, tmp_path, postgres_if_any, STAGED)
    kill_workers(shop, spark, seed, kills=3)
    Writer(log, seed, first=1_000_000).append(10)
    shop.finish(spark)
    shop.check_swept()


# --- a log that does not wait ---------------------------------------------------------------------------------------


def refusals(shop: Shop, spark: SparkSession) -> dict[str, str]:
    """What each fold says when it cannot go on."""
    said: dict[str, str] = {}

    def progressed(feed: Feed) -> None:
        said[feed.fold.name] = " ".join((feed.error or "").split())

    with pytest.raises(FoldError):
        fl.run(list(shop.folds.values()), shop.data, once=True, spark=spark, on_progress=progressed)
    return said


def stop_in_the_middle(shop: Shop, writer: Writer, spark: SparkSession) -> None:
    """The folds run, a worker is killed, and they are stopped before they have read everything."""
    stored = Event()
    writer.append(1000)
    with shop.running(spark, lambda feed: stored.set() if feed.error is None else None):
        wait_until(stored.is_set, "a range was stored")
        for worker in python_workers(jvm_of(spark)):
            kill(worker)
    shop.check()


@pytest.mark.faults
def test_retention_that_overtakes_a_stopped_fold_is_a_clear_error_or_a_counted_skip(
    log: Log, tmp_path: Path, postgres_if_any: str | None, spark: SparkSession
) -> None:
    shop = Shop(log, tmp_path, postgres_if_any, FEW)
    writer = Writer(log, seed=31)
    stop_in_the_middle(shop, writer, spark)
    writer.append(500)
    records = shop.records()
    before = {name: check_at_its_bookmark(fold, records) for name, fold in shop.folds.items()}
    log.alter_topic("payments", {"retention.bytes": 20_000})
    assert log.enforce_retention("payments") > 0
    starts = {number: start for number, (start, _) in log.offsets("payments").items()}
    assert all(starts[number] > at for offsets in before.values() for number, at in offsets.items())
    for name, said in refusals(shop, spark).items():
        assert "retention removed them before the fold had read them" in said
        assert "--skip-missing" in said
        assert f"foldlog fold rebuild {name} --accept-loss" in said
    fl.run(list(shop.folds.values()), shop.data, once=True, spark=spark, skip_missing=True)
    for name, fold in shop.folds.items():
        found = snapshot_of(fold)
        assert found is not None
        read = [one for one in records if not before[name][one.partition] <= one.offset < starts[one.partition]]
        check_rows(name, *found, read)
        assert found[0].skipped == sum(starts[number] - at for number, at in before[name].items())
        assert fl.verify(fold, shop.data, spark=spark).answer == "not provable"
    counters = shop.folds["counters_sqlite"]
    with pytest.raises(FoldError, match="foldlog fold rebuild counters_sqlite --accept-loss"):
        fl.rebuild(counters, shop.data, spark=spark)
    fl.rebuild(counters, shop.data, spark=spark, accept_loss=True)
    check_at_its_bookmark(counters, shop.records())


def recreate_under(shop: Shop, writer: Writer, spark: SparkSession) -> None:
    """The topic goes and another one comes while the folds run, until they have all stopped by themselves."""
    runs = Event()
    with shop.running(spark, lambda feed: runs.set()) as pipeline:
        assert runs.wait(120)  # a topic that is gone before they begin is another error
        shop.log.delete_topic("payments")
        shop.log.create_topic("payments", partitions=3)
        writer.append(300)
        wait_until(lambda: not pipeline.is_alive(), "every fold has stopped")


@pytest.mark.faults
def test_a_recreated_topic_stops_every_fold_and_a_rebuild_begins_with_the_new_one(
    log: Log, tmp_path: Path, postgres_if_any: str | None, spark: SparkSession
) -> None:
    shop = Shop(log, tmp_path, postgres_if_any, FEW)
    writer = Writer(log, seed=41)
    stop_in_the_middle(shop, writer, spark)
    records = shop.records()
    with pytest.raises(FoldError, match="payments"):
        recreate_under(shop, writer, spark)
    refused = refusals(shop, spark)
    assert set(refused) == set(shop.folds)
    for name, fold in shop.folds.items():
        assert "the topic was deleted and created again" in refused[name]
        assert f"foldlog fold rebuild {name} --accept-loss" in refused[name]
        check_at_its_bookmark(fold, records)
        fl.rebuild(fold, shop.data, spark=spark, accept_loss=True)
    shop.finish(spark)
