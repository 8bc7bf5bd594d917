"""The codec alone, in memory and on one core: each loop over batches, beside aiokafka's where it has one.

`run()` gives rows (name, value, unit) for whoever collects them; `python bench/records.py` prints them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from foldlog.records import arrow, loops

Row = tuple[str, float, str]

RECORDS = 20_000
VALUE = b"v" * 100
BATCH_SIZES = (1000, 10)
SECONDS_PER_ROW = 0.4
COLUMNS = ("offset", "key", "value", "timestamp")


def best_seconds(work: Callable[[], object]) -> float:
    """The fastest of many runs: what the machine can do when nothing else does."""
    work()
    best = float("inf")
    end = time.perf_counter() + SECONDS_PER_ROW
    while (start := time.perf_counter()) < end:
        work()
        best = min(best, time.perf_counter() - start)
    return best


def drain(things: Iterable[object]) -> None:
    for _ in things:
        pass


def items() -> list[tuple[int, bytes, bytes, tuple[()]]]:
    return [(1_700_000_000_000 + index, b"key%07d" % index, VALUE, ()) for index in range(RECORDS)]


def log_of(batch_records: int) -> bytearray:
    """All records in batches of as many."""
    log, found = bytearray(), items()
    for start in range(0, RECORDS, batch_records):
        log += loops.pack(found[start : start + batch_records], base_offset=start)
    return log


def append_all(builder: loops.BatchBuilder, found: list[tuple[int, bytes, bytes, tuple[()]]]) -> None:
    builder.clear()
    append = builder.append
    for timestamp_ms, key, value, _ in found:
        append(timestamp_ms, key, value)


def our_rows(batch_records: int) -> list[Row]:
    log = log_of(batch_records)
    table, _ = arrow.to_arrow(log, topic="t", partition=0, columns=COLUMNS)
    keys = loops.KeyMap(2 * RECORDS)
    keys.add(log)
    rows: list[Row] = []

    def measure(name: str, work: Callable[[], object]) -> None:
        rate = RECORDS / best_seconds(work) / 1e6
        rows.append((f"{name}, {batch_records} a batch", rate, "M records/s"))

    gigabytes = len(log) / best_seconds(lambda: loops.walk(log)) / 1e9
    rows.append((f"walk with CRC, {batch_records} a batch", gigabytes, "GB/s"))
    measure("validate", lambda: loops.validate(log, max_batch_bytes=1 << 20, decompressed_limit=1 << 20))
    measure("to_arrow, 4 columns", lambda: arrow.to_arrow(log, topic="t", partition=0, columns=COLUMNS))
    measure("to_arrow, all columns", lambda: arrow.to_arrow(log, topic="t", partition=0))
    measure(
        "pack_arrow",
        lambda: drain(
            arrow.pack_arrow(table, now_ms=0, max_batch_bytes=1 << 20, max_batch_records=batch_records),
        ),
    )
    measure("decode to records", lambda: loops.decode(log, "t", 0))
    measure("note keys", lambda: loops.KeyMap(2 * RECORDS).add(log))
    measure(
        "compact, all stays",
        lambda: loops.compact(log, keys, now_ms=0, delete_retention_ms=0, mapped_end=RECORDS),
    )
    return rows


def builder_rows() -> list[Row]:
    found = items()
    builder = loops.BatchBuilder(1 << 30)
    rate = RECORDS / best_seconds(lambda: append_all(builder, found)) / 1e6
    return [("BatchBuilder.append", rate, "M records/s")]


def compressed_rows() -> list[Row]:
    """Mostly the codec's own speed: how far our part is from the limit shows in the uncompressed rows."""
    rows: list[Row] = []
    found = items()[:1000]
    for codec, name in ((1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")):
        made = loops.pack(found, codec)
        seconds = best_seconds(lambda made=made: arrow.to_arrow(made, topic="t", partition=0, columns=COLUMNS))  # type: ignore[misc]
        rows.append((f"to_arrow, 4 columns, {name}", len(found) / seconds / 1e6, "M records/s"))
    return rows


def compared_rows() -> list[Row]:
    """One batch of 1000, to and from Python objects that are all kept: the same work for both."""
    from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

    found = items()[:1000]
    plain = bytes(loops.pack(found))
    builder = loops.BatchBuilder(1 << 24)

    def our_encode() -> None:
        append_all(builder, found)
        builder.build()

    def their_encode() -> None:
        theirs = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 24)
        for offset, (timestamp_ms, key, value, _) in enumerate(found):
            theirs.append(offset, timestamp_ms, key, value, [])
        theirs.build()

    works: list[tuple[str, Callable[[], object]]] = [
        ("encode one batch, ours", our_encode),
        ("encode one batch, aiokafka", their_encode),
        ("decode one batch, ours", lambda: loops.decode(plain, "t", 0)),
        ("decode one batch, aiokafka", lambda: list(DefaultRecordBatch(plain))),
    ]
    return [(name, len(found) / best_seconds(work) / 1e6, "M records/s") for name, work in works]


def run() -> list[Row]:
    """All rows; about ten seconds."""
    rows: list[Row] = []
    for batch_records in BATCH_SIZES:
        rows += our_rows(batch_records)
    return [*rows, *builder_rows(), *compressed_rows(), *compared_rows()]


def main() -> None:
    print(f"{'100-byte values, 10-byte keys, one core':44s} {'':>10s}")
    for name, value, unit in run():
        print(f"{name:44s} {value:10.2f} {unit}")


if __name__ == "__main__":
    main()
