"""The driver's memory during a fold: of its Python and of its JVM, each at its peak, in a process of its own.

`python -m bench.spark_memory LOG VIEW` is that process: it folds the topic, and prints what it took.
"""

from __future__ import annotations

import json
import subprocess
import sys
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

TITLE = "Folds: memory of the driver"
GROWTH_MAX = 1.25
JVM_BYTES_MAX = 1_500_000_000

_ROOT = Path(__file__).resolve().parent.parent
_PATIENCE_S = 900


class Peak(NamedTuple):
    """The most that was resident, of each process, and how long it took."""

    python_bytes: int
    jvm_bytes: int
    seconds: float


@with_spark(TITLE)
def run(place: Place, scale: Scale, spark: SparkSession) -> Table:
    peaks = {records: measure(place, records, cores(spark)) for records in scale.fold_memory_records}
    few, *_ = peaks
    rows = [row for records, peak in peaks.items() for row in _rows(records, peak, few, peaks[few])]
    notes = [
        "The most that was ever resident (VmHWM) of a driver that folds JSON payments into Parquet files.",
        "Every row passes through it, a range of 64 MiB at a time: one is stored while the next is computed.",
        "A session alone, before it folds, is part of each figure. Java takes of its heap, 1 GiB, what it likes.",
    ]
    return table_of(TITLE, rows, notes)


def _rows(records: int, peak: Peak, few: int, beside: Peak) -> list[Row]:
    growth = peak.python_bytes / beside.python_bytes
    took = f"{count(records)} records in {duration(peak.seconds)}"
    return [
        Row(
            f"{took}, Python", f"{peak.python_bytes / 1e6:.0f} MB",
            f"{count(few)} records {beside.python_bytes / 1e6:.0f} MB", 1 / growth,
            f"<= {GROWTH_MAX} times that", growth <= GROWTH_MAX,
        ),
        Row(
            f"{took}, the JVM", f"{peak.jvm_bytes / 1e6:.0f} MB",
            f"{count(few)} records {beside.jvm_bytes / 1e6:.0f} MB", beside.jvm_bytes / peak.jvm_bytes,
            f"<= {JVM_BYTES_MAX / 1e9} GB", peak.jvm_bytes <= JVM_BYTES_MAX,
        ),
    ]  # fmt: skip


def measure(place: Place, records: int, partitions: int) -> Peak:
    """In a process of its own."""
    home = place.fresh()
    spark_topics.make_payments(home / "log", records, partitions)
    command = [sys.executable, "-m", "bench.spark_memory", str(home / "log"), str(home / "view")]
    done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, timeout=_PATIENCE_S, check=True)
    place.give_back(home)
    return Peak(**json.loads(done.stdout.splitlines()[-1]))


def fold_and_look(log: Path, view: Path, spark: SparkSession) -> Peak:
    """Fold all there is, and look at the peaks of this process and of its JVM."""
    fold = payments_fold(fl.lake(view, format="parquet"))
    seconds = timed(lambda: fl.run([fold], log, once=True, spark=spark))
    gateway = spark.sparkContext._gateway
    if gateway is None:
        raise RuntimeError("this session has no JVM of its own")
    return Peak(_peak_bytes("self"), _peak_bytes(gateway.proc.pid), seconds)


def _peak_bytes(process: str | int) -> int:
    for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no VmHWM of process {process}")


if __name__ == "__main__":
    print(json.dumps(fold_and_look(Path(sys.argv[1]), Path(sys.argv[2]), session())._asdict()))
