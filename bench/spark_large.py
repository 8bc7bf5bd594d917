"""A rebuild of many small records, by hand: `python -m bench.spark_large 100000000 [DIRECTORY]`.

It makes a topic of so many payments in eight partitions, folds it into a lake, and rebuilds that, each in a process of
its own, and prints what the driver took. Ten million took the driver's Python 224 MB, its JVM 399 MB and 0.9 s of a
core, on a busy machine of two cores. A hundred million take about 13 GB of disk.

In parts, which may lie days apart: with a DIRECTORY and `--part write`, then `--part fold`, then `--part rebuild`. What
is there stays; writing and folding go on where they were stopped.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import spark_memory, spark_topics
from bench.spark_session import session
from bench.spark_views import payments_fold

import foldlog.spark as fl

PARTITIONS = 8
PARTS = ("write", "fold", "rebuild")
_ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=int)
    parser.add_argument("directory", type=Path, nargs="?", help="for the topic and the view (default: a temporary one)")
    parser.add_argument("--part", choices=PARTS, help="only this one, in DIRECTORY, which is kept")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        print(json.dumps(_driven(given.part, given.directory)._asdict()))
        return
    if given.part is not None:
        if given.directory is None:
            parser.error("--part keeps what it makes, so give it a DIRECTORY")
        given.directory.mkdir(parents=True, exist_ok=True)
        _run(given.part, given.records, given.directory)
        return
    home = Path(tempfile.mkdtemp(dir=given.directory))
    try:
        for part in PARTS:
            _run(part, given.records, home)
    finally:
        shutil.rmtree(home)


def _run(part: str, records: int, home: Path) -> None:
    if part == "write":
        began = time.monotonic()
        spark_topics.make_payments(home / "log", records, PARTITIONS)
        took_s = time.monotonic() - began
        print(f"{records:,} records in {PARTITIONS} partitions: written in {took_s:.0f} s", flush=True)
        return
    command = [sys.executable, "-m", "bench.spark_large", str(records), str(home), "--part", part, "--here"]
    done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
    cost = spark_memory.Cost(**json.loads(done.stdout.splitlines()[-1]))
    each = cost.python_cpu_s / records * 1e6
    print(
        f"{part}: {cost.seconds:.0f} s, {records / cost.seconds:,.0f} records/s; the driver's Python took"
        f" {cost.python_bytes / 1e6:.0f} MB and {each:.2f} s of a core for each million, its JVM"
        f" {cost.jvm_bytes / 1e6:.0f} MB",
        flush=True,
    )


def _driven(part: str, home: Path) -> spark_memory.Cost:
    fold = payments_fold(fl.lake(home / "view"))
    spark = session()
    if part == "fold":
        return spark_memory.look(lambda: fl.run([fold], home / "log", once=True, spark=spark), spark)
    return spark_memory.look(lambda: fl.rebuild(fold, home / "log", spark=spark, drop_old=True), spark)


if __name__ == "__main__":
    main()
