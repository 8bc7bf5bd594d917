"""The driver's memory and processor time during a fold, in a process of its own.

`python -m bench.spark_memory LOG VIEW KIND` is that process: it folds the topic, and prints what it took.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench import spark_topics
from bench.measuring import Place, Scale, timed
from bench.spark_session import cores, session, with_spark
from bench.spark_views import payments_fold
from bench.table import Row, Table, count, duration, table_of

import foldlog.spark as fl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TITLE = "Folds: memory and processor time of the driver"
GROWTH_MAX = 1.25
JVM_BYTES_MAX = 1_500_000_000
MORE_PARTITIONS = 4
"""How many times more partitions the second topic of a size has."""

_ROOT = Path(__file__).resolve().parent.parent
_PATIENCE_S = 900


class Cost(NamedTuple):
    """What a fold took of the driver: the most that was resident, of each process; the processor time of its Python
    while it folded; and how long that was.
    """

    python_bytes: int
    jvm_bytes: int
    python_cpu_s: float
    seconds: float


@with_spark(TITLE)
def run(place: Place, scale: Scale, spark: SparkSession) -> Table:
    few, *more = scale.fold_memory_records
    partitions = cores(spark)
    base = measure(place, few, partitions)
    rows = _rows(few, partitions, base, few, base)
    for records, wide in [*((records, partitions) for records in more), (few, partitions * MORE_PARTITIONS)]:
        rows += _rows(records, wide, measure(place, records, wide), few, base)
    groups = [measure(place, records, partitions, "counters") for records in (few, more[0])]
    for records, cost in zip((few, more[0]), groups, strict=True):
        rows.append(_rows(records, partitions, cost, few, groups[0], f", {count(records // 2)} groups of counters")[0])
    notes = [
        "A driver that folds JSON payments into Parquet files, which executors write: no large range passes it.",
        "Memory is the most that was ever resident (VmHWM). A session alone, before it folds, is part of each figure.",
        "Java takes of its heap, 1 GiB, what it likes; here it has the executors in it, too.",
        "Processor time is that of the driver's Python, while it folds, without its workers.",
    ]
    return table_of(TITLE, rows, notes)


def _rows(records: int, partitions: int, cost: Cost, few: int, beside: Cost, more: str = "") -> list[Row]:
    growth = cost.python_bytes / beside.python_bytes
    took = f"{count(records)} records, {partitions} partitions{more}, in {duration(cost.seconds)}"
    each, each_of_few = cost.python_cpu_s / records * 1e6, beside.python_cpu_s / few * 1e6
    return [
        Row(
            f"{took}, Python", f"{cost.python_bytes / 1e6:.0f} MB",
            f"{count(few)} records {beside.python_bytes / 1e6:.0f} MB", 1 / growth,
            f"<= {GROWTH_MAX} times that", growth <= GROWTH_MAX,
        ),
        Row(
            f"{took}, the JVM", f"{cost.jvm_bytes / 1e6:.0f} MB",
            f"{count(few)} records {beside.jvm_bytes / 1e6:.0f} MB", beside.jvm_bytes / cost.jvm_bytes,
            f"<= {JVM_BYTES_MAX / 1e9} GB", cost.jvm_bytes <= JVM_BYTES_MAX,
        ),
        Row(
            f"{took}, processor time", f"{each:.2f} s a million",
            f"{count(few)} records {each_of_few:.2f} s", each_of_few / each,
            f"<= {GROWTH_MAX} times that", each <= GROWTH_MAX * each_of_few,
        ),
    ]  # fmt: skip


def measure(place: Place, records: int, partitions: int, kind: str = "parquet") -> Cost:
    """In a process of its own."""
    home = place.fresh()
    spark_topics.make_payments(home / "log", records, partitions)
    command = [sys.executable, "-m", "bench.spark_memory", str(home / "log"), str(home / "view"), kind]
    done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, timeout=_PATIENCE_S, check=True)
    place.give_back(home)
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def fold_and_look(log: Path, view: Path, kind: str, spark: SparkSession) -> Cost:
    """Fold all there is, and look at what this process and its JVM took."""
    fold = payments_fold(fl.lake(view, format="parquet"))
    if kind == "counters":
        fold = payments_fold(fl.counters(view, by=["tx_id"], measures={"paise": fl.sum("amount_paise")}))
    return look(lambda: fl.run([fold], log, once=True, spark=spark), spark)


def look(action: Callable[[], object], spark: SparkSession) -> Cost:
    """What this process and its JVM take for an action."""
    before_s = _processor_s()
    seconds = timed(action)
    gateway = spark.sparkContext._gateway
    if gateway is None:
        raise RuntimeError("this session has no JVM of its own")
    return Cost(_peak_bytes("self"), _peak_bytes(gateway.proc.pid), _processor_s() - before_s, seconds)


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _peak_bytes(process: str | int) -> int:
    for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no VmHWM of process {process}")


if __name__ == "__main__":
    print(json.dumps(fold_and_look(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], session())._asdict()))
