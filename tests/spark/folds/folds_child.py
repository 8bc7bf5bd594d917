"""A pipeline in a process with a Spark of its own, for tests that kill it.

Run as `folds_child.py FOLDS DATA SCRATCH BYTES [LEAST]`. It says "ready" and the JVM's process id once Spark runs,
waits for a line, and then runs the folds for ever in ranges of BYTES, saying after each range, and after each failure,
which fold it was. With LEAST, executors write the rows of ranges of that many offsets. It ends when its input does:
with the test, however that ends. No pytest in here: it has to start quickly.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import Event, Thread

import foldlog.spark as fl
from foldlog.spark.folds import runner
from foldlog.spark.folds.feed import Feed
from spark_session import start_session


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())  # one system call: a line is there whole, or not at all


def progressed(feed: Feed) -> None:
    say(f"{'moved' if feed.error is None else 'failed'} {feed.fold.name} {feed.error or ''}")


def main(folds: str, data: str, scratch: str, range_bytes: str, staged_from: str = "") -> None:
    if staged_from:
        setattr(runner, "FOLD_STAGED_OFFSETS_MIN", int(staged_from))  # noqa: B010 it is another module's
    spark = start_session(Path(scratch))
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    say(f"ready {jvm}")
    sys.stdin.readline()
    stop = Event()

    def end_with_the_test() -> None:
        sys.stdin.read()
        stop.set()

    Thread(target=end_with_the_test, daemon=True).start()
    fl.run(
        fl.load_folds(folds),
        data,
        interval_s=0.05,
        range_bytes=int(range_bytes),
        spark=spark,
        stop=stop,
        on_progress=progressed,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
