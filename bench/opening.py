"""Opening: many partitions that were closed cleanly, and one whose writer was killed with bytes not synced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from bench import alternatives
from bench.appending import values
from bench.measuring import Place, Scale, Turns, timed
from bench.table import Row, Table, count, duration, table_of

import foldlog
from foldlog.broker.broker import Broker
from foldlog.log.partition import Partition
from foldlog.records.loops import pack

_OPEN_TARGET_S = 0.5
_OPEN_KILLED_TARGET_S = 0.3
_JOURNALED_BYTES = 64 << 20
_BATCH_RECORDS = 1000

WRITER = """
import os, signal, sys
from foldlog.broker.broker import Broker
from foldlog.records.loops import pack
path, wanted = sys.argv[1], int(sys.argv[2])
broker = Broker.open(path, background=False)
broker.create_topic("t", 1, {"flush.messages": 1 << 40, "retention.ms": -1})
partition = broker.partition("t", 0)
partition.append(pack([(0, None, b"synced", ())]))
partition.sync()
batch = pack([(0, None, b"." * 100, ())] * 1000)
written = 0
while written < wanted:
    partition.append(bytearray(batch))
    written += len(batch)
os.kill(os.getpid(), signal.SIGKILL)
"""


JOURNALED_WRITER = """
import os, signal, sys, threading
from foldlog.broker.broker import Broker
from foldlog.log.journal.journal import JournalSettings
from foldlog.records.loops import pack
path, wanted, small = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
broker = Broker.open(path, journal=JournalSettings(begin_syncs=1))
broker.create_topic("t", 8, {"retention.ms": -1})
partitions = [broker.partition("t", number) for number in range(8)]
large, written = pack([(0, None, b"." * 1000, ())] * 900), 0
while written < wanted:
    for partition in partitions:
        for _ in range(16):
            partition.append(bytearray(large), trusted=True)
            written += len(large)
        partition.sync()
def append(partition):
    while broker.journal_counts().bytes < small:
        partition.wait_acknowledged(partition.append(pack([(0, None, b"." * 4000, ())])).next_offset)
threads = [threading.Thread(target=append, args=(partition,)) for partition in partitions]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
os.kill(os.getpid(), signal.SIGKILL)
"""


def run(place: Place, scale: Scale) -> Table:
    rows = [*_clean(place, scale), *_killed(place, scale), _killed_with_journal(place, scale)]
    notes = [
        "Opened in this process with warm caches. 'stat' looks at the name and size of every file, and does no more.",
        "Not synced: appended to a topic with relaxed flush.messages, then kill -9. Recovery checks it and syncs it.",
    ]
    return table_of("Opening", rows, notes)


def _clean(place: Place, scale: Scale) -> list[Row]:
    path = place.fresh()
    size = _make_partitions(path, scale)

    def open_all(*, touch: bool) -> float:
        start = time.perf_counter()
        with Broker.open(str(path), background=False) as broker:
            ends = [broker.partition("t", number).log_end_offset for number in range(scale.partitions * touch)]
            seconds = time.perf_counter() - start
            if not all(ends):
                raise RuntimeError("a partition is empty")
        return 1 / seconds

    def stat_all() -> float:
        def look() -> None:
            for directory in os.scandir(path):
                if directory.is_dir():
                    for entry in os.scandir(directory):
                        entry.stat()

        return 1 / timed(look)

    runs = {
        "open": lambda: open_all(touch=False),
        "every": lambda: open_all(touch=True),
        "stat": stat_all,
    }
    found = Turns(scale.repeats, runs)
    place.give_back(path)
    what = f"{count(scale.partitions)} partitions, {size / 1e9:.2g} GB, closed cleanly"
    every = 1 / found.speed("every")
    return [
        Row(
            f"open the log: {what}", duration(1 / found.speed("open")), f"stat {duration(1 / found.speed('stat'))}",
            found.ratio("open", "stat"),
        ),
        Row(
            "open the log and every partition", duration(every), f"stat {duration(1 / found.speed('stat'))}",
            found.ratio("every", "stat"), f"<= {_OPEN_TARGET_S} s", every <= _OPEN_TARGET_S,
        ),
    ]  # fmt: skip


def _make_partitions(path: Path, scale: Scale) -> int:
    """Make them without a sync each: it is their opening that counts. Returns the bytes."""
    batch = pack([(0, None, value, ()) for value in values(_BATCH_RECORDS)])
    times = max(1, scale.partition_bytes // len(batch))
    with Broker.open(str(path), files=alternatives.UnsyncedFiles(), background=False) as broker:
        broker.create_topic("t", scale.partitions, {"retention.ms": -1})
        for number in range(scale.partitions):
            partition = broker.partition("t", number)
            if not isinstance(partition, Partition):
                raise TypeError("opened for reading")
            partition.append(batch * times, trusted=True)
            partition.sync()
    os.sync()
    return times * len(batch) * scale.partitions


def _killed(place: Place, scale: Scale) -> list[Row]:
    rows = []
    smallest = 0.0
    for wanted in scale.unsynced_bytes:
        seconds = []
        raw = []
        for _ in range(max(1, scale.repeats // 2)):
            path = place.fresh()
            _write_and_die(path, WRITER, wanted)
            seconds.append(_open_one(path))
            raw.append(_rewrite(path / "raw", wanted))
            place.give_back(path)
        took, limit = sorted(seconds)[len(seconds) // 2], sorted(raw)[len(raw) // 2]
        smallest = smallest or took
        name = f"open after kill -9, {wanted / 1e6:.3g} MB not synced"
        rows.append(
            Row(
                name,
                duration(took),
                f"write and sync as much {duration(limit)}" if wanted else "nothing to do",
                limit / took if wanted else None,
                "proportional to what was not synced" if wanted == scale.unsynced_bytes[-1] else "",
            )
        )
    return rows


def _killed_with_journal(place: Place, scale: Scale) -> Row:
    """Bulk, which syncs its partition, then small appends, whose newest are durable in the journal alone."""
    size = scale.partitions * scale.partition_bytes
    small = min(size, _JOURNALED_BYTES)
    path = place.fresh()
    _write_and_die(path, JOURNALED_WRITER, size, small)
    took = _open_one(path)
    limit = _rewrite(path / "raw", small // 4)
    place.give_back(path)
    return Row(
        f"open after kill -9 with a journal, {size / 1e9:.2g} GB in 8 partitions, {small / 1e6:.3g} MB of them small",
        duration(took),
        f"write and sync {small / 4e6:.3g} MB {duration(limit)}",
        limit / took,
        f"<= {_OPEN_KILLED_TARGET_S} s",
        took <= _OPEN_KILLED_TARGET_S,
    )


def _write_and_die(path: Path, program: str, *sizes: int) -> None:
    done = subprocess.run([sys.executable, "-c", program, str(path), *map(str, sizes)], check=False)
    if done.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the writer ended with {done.returncode}")


def _open_one(path: Path) -> float:
    start = time.perf_counter()
    with foldlog.open(path, background=False) as log:
        log.offsets("t")
        return time.perf_counter() - start


def _rewrite(path: Path, size: int) -> float:
    piece = b"." * (1 << 20)
    return alternatives.write_raw(path, [[piece] * (size >> 20)]) if size else 0.0
