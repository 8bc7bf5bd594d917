"""Reading: Python records, Arrow tables, and one record at any offset, all from the page cache."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench import alternatives
from bench.appending import values
from bench.measuring import Place, Scale, Turns, latencies, percentile, timed
from bench.table import Row, Table, bytes_per_second, count, duration, per_second, table_of

import foldlog
from foldlog.limits import ARROW_BATCH_BYTES, ARROW_READ_BYTES
from foldlog.records.loops import decode

SMALL_BATCH_BYTES = 4096  # about 36 records: what many small producers leave, and the most work for an index
_LOOKUPS = 400


def run(place: Place, scale: Scale) -> Table:
    path = place.fresh()
    rows: list[Row] = []
    make_log(path, scale.read_records)
    with foldlog.open(path, background=False) as log:
        rows += _polls(place, scale, log)
        rows += _arrow(scale, log, path)
    place.give_back(path)
    rows += _anywhere(place, scale)
    notes = [
        "100-byte values from the page cache, uncompressed. GB/s are bytes of log.",
        "'decode' is the compiled loop alone, over bytes in memory; 'pread' reads the same files in the same pieces.",
        "'memcpy' copies as many bytes in memory that was used before. read_arrow does both, on two threads, and more:",
        "its ratio is to both of them, one after the other, on one thread.",
    ]
    return table_of("Reading, cached", rows, notes)


def make_log(path: Path, records: int, *, batch_bytes: int = ARROW_BATCH_BYTES, topic: str = "t") -> None:
    """A log of one topic, closed, durable at the end only: it is read, not measured."""
    import pyarrow as pa

    step = 1_000_000
    with foldlog.open(path, files=alternatives.UnsyncedFiles(), background=False) as log:
        log.create_topic(topic, config={"retention.ms": -1})
        for first in range(0, records, step):
            table = pa.table({"value": pa.array(values(min(step, records - first)), pa.binary())})
            log.append_arrow(topic, table, batch_bytes=batch_bytes)
    os.sync()


def _polls(place: Place, scale: Scale, log: foldlog.Log) -> list[Row]:
    total = log.offsets("t")[0][1]
    data = b"".join(file.read_bytes() for file in sorted(Path(log.path).glob("t-0/*.log")))
    few = max(1, total // 5)
    path = place.fresh()
    table = alternatives.SqliteLog(path / "log.db")
    table.append_many(values(few))

    def ours() -> float:
        return total / timed(lambda: poll_all(log, total))

    def limit() -> float:
        view = memoryview(data)

        def decode_all() -> None:
            offset = 0
            while offset < total:
                _, offset = decode(view, "t", 0, start_offset=offset, max_records=total)

        return total / timed(decode_all)

    runs = {"ours": ours, "decode": limit, "SQLite": lambda: few / timed(table.read_all)}
    found = Turns(scale.repeats, runs)
    table.close()
    place.give_back(path)
    speed = found.speed("ours")
    return [
        Row(
            f"consumer.poll, {count(total)} records, 500 a poll",
            f"{per_second(speed)}, best {per_second(found.best('ours'))}",
            f"decode {per_second(found.speed('decode'))}", found.ratio("ours", "decode"), ">= 9 M/s", speed >= 9e6,
        ),
        Row(
            "the same", per_second(speed), f"SQLite, SELECT ... ORDER BY id {per_second(found.speed('SQLite'))}",
            found.ratio("ours", "SQLite"),
        ),
    ]  # fmt: skip


def poll_all(log: foldlog.Log, total: int) -> None:
    """A reader without a group, from the start to the end."""
    with log.consumer(["t"], auto_offset_reset="earliest") as consumer:
        seen = 0
        while seen < total:
            seen += len(consumer.poll(max_records=500, timeout_ms=1000))


def _arrow(scale: Scale, log: foldlog.Log, path: Path) -> list[Row]:
    files = sorted(path.glob("t-0/*.log"))
    size = sum(file.stat().st_size for file in files)
    columns = ["offset", "key", "value", "timestamp"]

    def read(names: list[str]) -> float:
        return size / timed(lambda: log.read_arrow("t", columns=names))

    runs = {
        "ours": lambda: read(columns),
        "value": lambda: read(["value"]),
        "pread": lambda: size / timed(lambda: _pread_all(files)),
        "memcpy": _copier(size),
    }
    found = Turns(scale.repeats, runs, warm_up=True)
    limits = ", ".join(f"{name} {bytes_per_second(found.speed(name))}" for name in ("pread", "memcpy"))
    return [
        Row(
            f"read_arrow, {', '.join(names)}",
            f"{bytes_per_second(found.speed(name))}, best {bytes_per_second(found.best(name))}",
            limits, found.ratio_together(name, "pread", "memcpy"), target, met,
        )
        for name, names, target, met in (
            ("ours", columns, ">= 3 GB/s", found.speed("ours") >= 3e9),
            ("value", ["value"], "", None),
        )
    ]  # fmt: skip


def _copier(size: int) -> Callable[[], float]:
    source, target = memoryview(bytearray(size)), memoryview(bytearray(size))

    def copy() -> None:
        target[:] = source

    return lambda: size / timed(copy)


def _pread_all(files: list[Path]) -> None:
    buffer = bytearray(ARROW_READ_BYTES)
    for file in files:
        with file.open("rb", buffering=0) as opened:
            while opened.readinto(buffer):
                pass


def _anywhere(place: Place, scale: Scale) -> list[Row]:
    """One record at a random offset: the same cost in a small and in a large log, with small and with large batches."""
    return [
        _lookups(place, scale, SMALL_BATCH_BYTES, scale.large_log_records, _LOOKUPS),
        _lookups(place, scale, ARROW_BATCH_BYTES, scale.read_records, _LOOKUPS // 8),
    ]


def _lookups(place: Place, scale: Scale, batch_bytes: int, large_records: int, times: int) -> Row:
    sizes = {"small": scale.small_log_records, "large": large_records}
    paths = {name: place.fresh() for name in sizes}
    for name, records in sizes.items():
        make_log(paths[name], records, batch_bytes=batch_bytes)
    logs = {name: foldlog.open(path, background=False) for name, path in paths.items()}

    def lookups(name: str) -> float:
        log, rng = logs[name], random.Random(1)
        wanted = [rng.randrange(sizes[name]) for _ in range(times)]

        def look(number: int) -> None:
            record = next(log.read("t", 0, start=wanted[number], max_records=1))
            if record.offset != wanted[number]:
                raise RuntimeError("the wrong record")

        look(0)
        return 1 / percentile(latencies(look, times), 50)

    found = Turns(scale.repeats, {name: partial(lookups, name) for name in logs})
    for name, log in logs.items():
        log.close()
        place.give_back(paths[name])
    ratio = found.ratio("large", "small")
    return Row(
        f"one record at a random offset of {count(large_records)} records, batches of {batch_bytes >> 10} KiB",
        duration(1 / found.speed("large")), f"of {count(sizes['small'])} records {duration(1 / found.speed('small'))}",
        ratio, "cost within 1.5x", 1 / ratio <= 1.5,
    )  # fmt: skip
