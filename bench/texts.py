"""The comparison that the reference texts make, measured: their figure beside what this machine does."""

from __future__ import annotations

import mmap
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import alternatives
from bench.appending import TRANSACTION_RECORDS, values
from bench.measuring import Place, Scale, latencies, percentile, timed, timed_each
from bench.reading import make_log, poll_all
from bench.table import Table, bytes_per_second, count, duration, per_second

import foldlog

HEAD = ("operation", "the texts: database / queue / log", "SQLite", "persist-queue", "foldlog")
READERS = (1, 2, 4, 8)
_BLOCK_BYTES = 4096
_AREA_BYTES = 256 << 20

READER = """
import sys, foldlog
with foldlog.open(sys.argv[1], mode="r") as log:
    with log.consumer(["t"], auto_offset_reset="earliest") as consumer:
        end, seen = log.offsets("t")[0][1], len(consumer.poll(max_records=1, timeout_ms=1000))
        print("ready", flush=True)
        sys.stdin.readline()
        while seen < end:
            seen += len(consumer.poll(max_records=500, timeout_ms=1000))
        print(seen, flush=True)
"""


def run(place: Place, scale: Scale) -> Table:
    path = place.fresh()
    table = alternatives.SqliteLog(path / "log.db")
    queue = alternatives.message_queue(path / "queue")
    make_log(path / "log", scale.read_records)
    with foldlog.open(path / "log", background=False) as log:
        lines = [
            *_writes(scale, table, queue, log),
            _cached_reads(scale, table, queue, log),
            _replay(table, log),
            _retention(place, scale, table),
        ]
    table.close()
    queue.close()
    lines.append(_readers(path / "log"))
    place.give_back(path)
    lines += _blocks(place, scale)
    notes = [
        f"Batched: SQLite {TRANSACTION_RECORDS} rows a transaction, foldlog as its producer does.",
        f"Readers are processes that poll the whole log to Python records, all at once, on {os.cpu_count()} cores.",
        "The 4 KB writes go around the page cache (O_DIRECT) where the file system allows it.",
    ]
    return Table("The texts' comparison, measured", HEAD, lines, notes)


def _writes(scale: Scale, table: alternatives.SqliteLog, queue: object, log: foldlog.Log) -> list[list[str]]:
    value = values(1)[0]
    put = queue.put  # type: ignore[attr-defined]
    singles = [
        latencies(lambda _: table.append(value), scale.single_records),
        latencies(lambda _: put(value), scale.single_records),
        latencies(lambda _: log.append("t", value), scale.single_records),
    ]
    many = values(max(TRANSACTION_RECORDS, scale.send_records // 4))
    transactions = range(0, len(many), TRANSACTION_RECORDS)
    sqlite_s = timed_each(lambda at: table.append_many(many[at : at + TRANSACTION_RECORDS]), transactions)
    ours_s = timed(lambda: _send(log, many))
    queue_s = sum(singles[1]) / len(singles[1])
    return [
        [
            "write latency, one durable record, p50 / p99", "5-10 ms / 2-5 ms / -",
            *(f"{duration(percentile(found, 50))} / {duration(percentile(found, 99))}" for found in singles),
        ],
        [
            "write latency, batched, a record's share", "5-10 ms / 2-5 ms / 0.1-1 ms", duration(sqlite_s / len(many)),
            duration(queue_s), duration(ours_s / len(many)),
        ],
        [
            "write throughput", "~10k/s / ~50k/s / ~100k/s and more", per_second(len(many) / sqlite_s),
            per_second(1 / queue_s), per_second(len(many) / ours_s),
        ],
    ]  # fmt: skip


def _send(log: foldlog.Log, many: list[bytes]) -> None:
    with log.producer() as producer:
        for value in many:
            producer.send("t", value)
        producer.flush()


def _cached_reads(scale: Scale, table: alternatives.SqliteLog, queue: object, log: foldlog.Log) -> list[str]:
    rng, times = random.Random(2), max(20, scale.single_records)
    rows = table.connection.execute("SELECT max(id) FROM log").fetchone()[0]
    end = log.offsets("t")[0][1]
    get = queue.get  # type: ignore[attr-defined]
    found = [
        latencies(lambda _: table.read_at(rng.randrange(1, rows)), times),
        latencies(lambda _: get(block=False), min(times, scale.single_records // 2)),
        latencies(lambda _: next(log.read("t", 0, start=rng.randrange(end), max_records=1)), times),
    ]
    return [
        "read latency, cached, one record anywhere, p50", "5-10 ms / 2-5 ms / 0.1-1 ms",
        duration(percentile(found[0], 50)), f"{duration(percentile(found[1], 50))} (the head only)",
        duration(percentile(found[2], 50)),
    ]  # fmt: skip


def _replay(table: alternatives.SqliteLog, log: foldlog.Log) -> list[str]:
    rows = 0

    def replay_table() -> None:
        nonlocal rows
        rows = table.read_all()

    table_s = timed(replay_table)
    total = log.offsets("t")[0][1]
    return [
        "replay from the start", "query history / no / yes, trivial", per_second(rows / table_s), "not possible",
        per_second(total / timed(lambda: poll_all(log, total))),
    ]  # fmt: skip


def _retention(place: Place, scale: Scale, table: alternatives.SqliteLog) -> list[str]:
    """Half of the records go: DELETE and a truncated WAL, against unlinked segments."""
    path = place.fresh()
    records = max(1000, scale.read_records // 2)
    have = table.connection.execute("SELECT count(*) FROM log").fetchone()[0]
    table.append_many(values(max(0, records - have)))
    last = table.connection.execute("SELECT max(id) FROM log").fetchone()[0]
    sqlite_s = timed(lambda: table.delete_before(last - records // 2))
    with foldlog.open(path, background=False) as log:
        log.create_topic("t", config={"segment.bytes": max(1024, records * 110 // 20)})
        _send(log, values(records))
        size = sum(file.stat().st_size for file in path.glob("t-0/*.log"))
        log.alter_topic("t", {"retention.bytes": size // 2})
        removed = 0

        def enforce() -> None:
            nonlocal removed
            removed = log.enforce_retention()

        ours_s = timed(enforce)
    place.give_back(path)
    return [
        f"retention: drop half of {count(records)} records", "DELETE / no history / delete files",
        duration(sqlite_s), "each message when it is read", f"{duration(ours_s)} ({removed} segments)",
    ]  # fmt: skip


def _readers(path: Path) -> list[str]:
    """Processes that all read the whole log at once: how many times the speed of one they reach together."""
    seconds = {number: _read_together(path, number) for number in READERS}
    shown = ", ".join(f"{number}: {number * seconds[1] / took:.2g}x" for number, took in seconds.items())
    return ["N readers, all together", "read amplification / complex routing / native", "-", "-", shown]


def _read_together(path: Path, number: int) -> float:
    """Seconds from the moment all are let go until the last has read everything."""
    command = [sys.executable, "-c", READER, str(path)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(number)
    ]
    for child in children:
        _answer_of(child)
    start = time.perf_counter()
    for child in children:
        if child.stdin is not None:
            child.stdin.write("go\n")
            child.stdin.flush()
    for child in children:
        _answer_of(child)
    took = time.perf_counter() - start
    for child in children:
        child.communicate()
    return took


def _answer_of(child: subprocess.Popen[str]) -> str:
    line = child.stdout.readline() if child.stdout is not None else ""
    if not line:
        raise RuntimeError("a reading process ended early")
    return line


def _blocks(place: Place, scale: Scale) -> list[list[str]]:
    """4 KB writes to a file of 256 MB, one after the other and scattered: what the log's shape is about."""
    path = place.fresh()
    area = _AREA_BYTES if scale.block_writes > 100 else 1 << 20
    descriptor, how = _open_direct(path / "blocks")
    block, large = mmap.mmap(-1, _BLOCK_BYTES), mmap.mmap(-1, 1 << 20)
    places = range(0, area, _BLOCK_BYTES)
    in_order = places[: scale.block_writes]
    scattered = random.Random(3).sample(places, len(in_order))

    def write(positions: Sequence[int], buffer: mmap.mmap, *, sync_each: bool = False) -> float:
        def work() -> None:
            for position in positions:
                os.pwrite(descriptor, buffer, position)
                if sync_each:
                    os.fdatasync(descriptor)
            os.fdatasync(descriptor)

        return len(positions) * len(buffer) / timed(work)

    write(range(0, area, 1 << 20), large)  # every block exists: what follows writes over it
    found: list[tuple[str, str, Callable[[], float]]] = [
        (f"1 MB writes one after the other, {how}", "2-7 GB/s (NVMe), 3 GB/s (SSD)",
         lambda: write(range(0, area, 1 << 20), large)),
        (f"4 KB writes one after the other, {how}", "-", lambda: write(in_order, block)),
        (f"4 KB writes scattered, {how}", "1 MB/s, or 10,000 a second (SSD)", lambda: write(scattered, block)),
        ("4 KB writes scattered, fdatasync after each", "100-200 a second",
         lambda: write(scattered[: scale.single_records], block, sync_each=True)),
    ]  # fmt: skip
    lines = [[name, claim, "-", "-", f"raw: {_rate(speed())}"] for name, claim, speed in found]
    os.close(descriptor)
    place.give_back(path)
    return lines


def _rate(speed: float) -> str:
    return f"{bytes_per_second(speed)}, {per_second(speed / _BLOCK_BYTES)} of 4 KB"


def _open_direct(path: Path) -> tuple[int, str]:
    flags = os.O_RDWR | os.O_CREAT
    try:
        return os.open(path, flags | os.O_DIRECT, 0o644), "O_DIRECT"
    except (OSError, AttributeError):  # not every file system has it, nor macOS
        return os.open(path, flags, 0o644), "then fdatasync"
