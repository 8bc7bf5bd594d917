"""A rebuild of many small records, by hand: `python -m bench.spark_large 100000000 [DIRECTORY]`.

It makes a topic of so many payments in eight partitions, folds it into a lake, and rebuilds that, in a process of its
own, whose memory it prints. Ten million took the driver's Python 224 MB, its JVM 399 MB and 0.9 s of a core, on a busy
machine of two cores. A hundred million take about 13 GB of disk.
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
_ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=int)
    parser.add_argument("directory", type=Path, nargs="?", help="for the topic and the view (default: a temporary one)")
    parser.add_argument("--fold", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fold:
        print(json.dumps(_fold(given.directory)._asdict()))
        return
    home = Path(tempfile.mkdtemp(dir=given.directory))
    try:
        began = time.monotonic()
        spark_topics.make_payments(home / "log", given.records, PARTITIONS)
        print(
            f"{given.records} records in {PARTITIONS} partitions written in {time.monotonic() - began:.0f} s",
            flush=True,
        )
        command = [sys.executable, "-m", "bench.spark_large", str(given.records), str(home), "--fold"]
        done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
        cost = spark_memory.Cost(**json.loads(done.stdout.splitlines()[-1]))
        each = cost.python_cpu_s / given.records * 1e6
        print(
            f"rebuilt in {cost.seconds:.0f} s, {given.records / cost.seconds:,.0f} records/s; the driver's Python took"
            f" {cost.python_bytes / 1e6:.0f} MB and {each:.2f} s of a core for each million, its JVM"
            f" {cost.jvm_bytes / 1e6:.0f} MB"
        )
    finally:
        shutil.rmtree(home)


def _fold(home: Path) -> spark_memory.Cost:
    """The rebuild's cost; the memory is that of the first fold, too."""
    fold = payments_fold(fl.lake(home / "view"))
    spark = session()
    fl.run([fold], home / "log", once=True, spark=spark)
    return spark_memory.look(lambda: fl.rebuild(fold, home / "log", spark=spark), spark)


if __name__ == "__main__":
    main()
