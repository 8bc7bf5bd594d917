"""kill -9 of the runners of two folds behind one another, one after the other, while records are appended: the changes
topic is at every moment what its bookmark says, nothing is in it twice, and in the end both views equal the recompute
of the first log.

Fault model: the driver's processes die at any instruction, and leave transactions open; the log's writer does not. The
seed is in the name of the test.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import foldlog
import foldlog.spark as fl
from foldlog import Log
from foldlog.spark.change_topics.changes import ChangesTopic
from foldlog.spark.origins.origin import origin_spec
from spark.change_topics.change_machine import check_changes
from spark.folds.kill_processes import Driver, drivers

pytestmark = [
    pytest.mark.faults,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not Path("/proc/self/stat").exists(), reason="processes are found in /proc; enable with: run the tests on Linux"
    ),
]

PIPELINE = """
import foldlog.spark as fl

orders = fl.topic("orders", key="id", schema="amount BIGINT")
large = fl.topic("large", key="id", schema="amount BIGINT")

@fl.fold(orders, into=fl.changes("large"))
def keep_large(rows): return rows.where("_deleted OR amount >= 300")

@fl.fold(large, into=fl.changes("kept"))
def kept(rows): return rows.where("_deleted OR amount < 800")
"""
KILLS = 3


def wanted(log: Log, below: dict[int, int] | None = None) -> dict[str, int | None]:
    """The newest amount of each key, if it is large, of what was written below these offsets."""
    found: dict[str, int | None] = {}
    for number in log.offsets("orders"):
        for record in log.read("orders", number):
            if below is None or record.offset < below.get(number, 0):
                amount = None if record.value is None else json.loads(record.value)["amount"]
                found[(record.key or b"").decode()] = amount if amount is not None and amount >= 300 else None
    return found


def check_at_its_bookmark(log: Log) -> None:
    """Read committed before and after: what is compared belongs to the bookmark, unless a runner has moved it on."""
    view = fl.changes("large")
    view.bind(origin_spec(log.path))
    try:
        for _ in range(50):
            at = view.bookmark()
            if at is None:
                return
            below = {number: position.offset for number, position in at.positions.items()}
            held = {row["id"]: row["amount"] for batch in _at(view, at) for row in batch.to_pylist()}
            if view.bookmark() == at:
                assert held == {key: amount for key, amount in wanted(log, below).items() if amount is not None}
                return
    finally:
        view.close()


def _at(view: ChangesTopic, at: fl.Bookmark) -> list[pa.RecordBatch]:
    found = view.scan()
    return list(found.batches) if found.bookmark == at else []


@pytest.mark.parametrize("seed", [21])
def test_killed_runners_write_every_change_once(seed: int, tmp_path: Path, spark: SparkSession) -> None:
    file = tmp_path / "folds.py"
    file.write_text(PIPELINE)
    rng = random.Random(seed)
    stop = Event()
    with foldlog.open(tmp_path / "data", listen=True) as log:
        log.create_topic("orders", 2)

        def write() -> None:
            writer = random.Random(seed + 1)
            while not stop.wait(0.05):
                for _ in range(writer.randrange(1, 12)):
                    amount = None if writer.random() < 0.15 else {"amount": writer.randrange(1000)}
                    log.append("orders", amount, key=f"o{writer.randrange(60)}")

        thread = Thread(target=write)
        thread.start()
        try:
            with drivers(file, tmp_path / "data", tmp_path / "scratch", 2000) as another:
                following: Driver | None = another()
                for number in range(KILLS):
                    victim, following = following, another() if number < KILLS - 1 else None
                    assert victim is not None
                    victim.go()
                    victim.let_run(rng)
                    victim.kill(only_jvm=number % 3 == 1)
                    check_at_its_bookmark(log)
        finally:
            stop.set()
            thread.join()
        fl.run(fl.load_folds(file), tmp_path / "data", once=True, spark=spark)
        amounts = wanted(log)
        check_changes(log, "large", amounts)
        check_changes(log, "kept", {key: one for key, one in amounts.items() if one is not None and one < 800})
