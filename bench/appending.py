"""Writing: durable bulk append, a producer's sends, single appends, and many producers that share syncs."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench import alternatives
from bench.measuring import Place, Scale, Turns, timed, timed_each
from bench.table import Row, Table, bytes_per_second, count, per_second, table_of

import foldlog
from foldlog.broker.broker import Broker
from foldlog.client.backends.local import LocalBackend
from foldlog.limits import ARROW_SYNC_BYTES, JOURNAL_ALONE_ASKS
from foldlog.log.journal.journal import FILES_MIN, JournalSettings
from foldlog.records.loops import walk

VALUE_BYTES = 100
_PAUSE_S = 0.001
TRANSACTION_RECORDS = 1000  # what a user of SQLite would put into one commit


def values(records: int) -> list[bytes]:
    """Distinct values of 100 bytes."""
    return [b"%020d" % number + b"." * (VALUE_BYTES - 20) for number in range(records)]


def run(place: Place, scale: Scale) -> Table:
    rows = [*_bulk(place, scale), *_sends(place, scale), *_singles(place, scale), *_concurrent(place, scale)]
    notes = [
        "100-byte values without keys, one partition, every record durable (fdatasync) before the clock stops.",
        "log.append: in a directory that has its journal, by a partition that is written to alone: it syncs itself.",
        "'raw' is writev and fdatasync of the very bytes ours wrote, with as many syncs, without making them.",
        f"persist-queue is SQLiteAckQueue; SQLite is WAL, synchronous=FULL; batched: {TRANSACTION_RECORDS} a commit.",
    ]
    return table_of("Writing, durable", rows, notes)


class _Written:
    """What a run of ours left on disk: its bytes, and how many syncs it took."""

    def __init__(self) -> None:
        self.data = b""
        self.syncs = 1

    def take(self, path: Path, files: alternatives.CountingFiles) -> None:
        if not self.data:
            self.data = b"".join(file.read_bytes() for file in sorted(path.glob("*-0/*.log")))
            self.syncs = max(1, files.syncs)

    def raw(self, place: Place) -> float:
        """Bytes per second of the machine itself."""
        path = place.fresh()
        step = -(-len(self.data) // self.syncs)
        view = memoryview(self.data)
        pieces = [[view[at : at + step]] for at in range(0, len(view), step)]
        seconds = alternatives.write_raw(path / "raw", pieces)
        place.give_back(path)
        return len(self.data) / seconds


@contextmanager
def opened(path: Path, files: alternatives.CountingFiles, *, journaled: bool = True) -> Iterator[foldlog.Log]:
    """A log with the topic t, its segment open and indexed, and a journal for what is not written to alone. Its files
    are there: they are zeroed in the background, once in a directory's life, and take the disk meanwhile."""
    broker = Broker.open(str(path), files=files, journal=journaled and JournalSettings(begin_syncs=1))
    with foldlog.Log(LocalBackend(broker, files)) as log:
        log.create_topic("t")
        log.append("t", b"first")
        while journaled and broker.journal_counts().files < FILES_MIN:
            time.sleep(_PAUSE_S)
        for _ in range(JOURNAL_ALONE_ASKS):  # after these a partition that is written to alone syncs its own file
            log.append("t", b"before")
        files.syncs = 0
        yield log


def with_log(
    place: Place,
    work: Callable[[foldlog.Log], object],
    written: _Written | None = None,
    *,
    journaled: bool = True,
) -> float:
    """Seconds of `work` on a fresh log with the topic t; making and closing it is not counted."""
    path, files = place.fresh(), alternatives.CountingFiles()
    with opened(path, files, journaled=journaled) as log:
        seconds = timed(lambda: work(log))
        if written is not None:
            written.take(path, files)
    place.give_back(path)
    return seconds


def _bulk(place: Place, scale: Scale) -> list[Row]:
    import pyarrow as pa

    table = pa.table({"value": pa.array(values(scale.bulk_records), pa.binary())})
    written = _Written()

    def ours() -> float:
        seconds = with_log(place, lambda log: log.append_arrow("t", table), written)
        return len(written.data) / seconds

    found = Turns(scale.repeats, {"ours": ours, "raw": lambda: written.raw(place)})
    ratio = found.ratio("ours", "raw")
    return [
        Row(
            f"append_arrow, {count(scale.bulk_records)} records, a sync every {ARROW_SYNC_BYTES >> 20} MiB",
            f"{bytes_per_second(found.speed('ours'))}, {per_second(found.speed('ours') / _record_bytes(written))}",
            f"raw {bytes_per_second(found.speed('raw'))}",
            ratio,
            ">= 0.7 of raw",
            ratio >= 0.7,
        )
    ]


def _record_bytes(written: _Written) -> float:
    headers = walk(written.data, check_crc=False).headers
    return len(written.data) / max(1, sum(header.record_count for header in headers))


def _sends(place: Place, scale: Scale) -> list[Row]:
    records = values(scale.send_records)
    written = _Written()

    def send_all(log: foldlog.Log) -> None:
        with log.producer() as producer:
            send = producer.send
            futures = [send("t", value) for value in records]
            producer.flush()
            if not all(future.done() for future in futures):
                raise RuntimeError("a future is not resolved after flush")

    def ours() -> float:
        return len(records) / with_log(place, send_all, written)

    def raw() -> float:
        return written.raw(place) / _record_bytes(written)

    found = Turns(scale.repeats, {"ours": ours, "raw": raw, "sqlite": _sqlite_batched(place, records)})
    speed = found.speed("ours")
    name = f"producer.send, {count(len(records))} records, one thread"
    return [
        Row(
            name, f"{per_second(speed)}, best {per_second(found.best('ours'))}",
            f"raw {per_second(found.speed('raw'))}, {written.syncs} syncs",
            found.ratio("ours", "raw"), ">= 300k/s", speed >= 300_000,
        ),
        Row(
            "the same", per_second(speed), f"SQLite, batched {per_second(found.speed('sqlite'))}",
            found.ratio("ours", "sqlite"),
        ),
    ]  # fmt: skip


def _sqlite_batched(place: Place, records: list[bytes]) -> Callable[[], float]:
    def run_once() -> float:
        path = place.fresh()
        table = alternatives.SqliteLog(path / "log.db")
        few = records[: max(TRANSACTION_RECORDS, len(records) // 10)]

        def write() -> None:
            for first in range(0, len(few), TRANSACTION_RECORDS):
                table.append_many(few[first : first + TRANSACTION_RECORDS])

        seconds = timed(write)
        table.close()
        place.give_back(path)
        return len(few) / seconds

    return run_once


def _append_each(records: list[bytes], log: foldlog.Log) -> None:
    for value in records:
        log.append("t", value)


def _singles(place: Place, scale: Scale) -> list[Row]:
    """One record at a time, each durable before the next."""
    records = values(scale.single_records)
    documents: list[dict[str, Any]] = [{"value": value.decode()} for value in records]

    def ours(*, journaled: bool = True) -> float:
        work = partial(_append_each, records)
        return len(records) / with_log(place, work, journaled=journaled)

    def raw() -> float:
        path = place.fresh()
        seconds = alternatives.write_raw(path / "raw", [[value] for value in records])
        place.give_back(path)
        return len(records) / seconds

    def tiny() -> float:
        path = place.fresh()
        log = alternatives.TinyLog(path / "tiny.log")
        seconds = timed_each(log.append, documents)
        place.give_back(path)
        return len(records) / seconds

    def sqlite() -> float:
        path = place.fresh()
        table = alternatives.SqliteLog(path / "log.db")
        seconds = timed_each(table.append, records)
        table.close()
        place.give_back(path)
        return len(records) / seconds

    def queue() -> float:
        path = place.fresh()
        messages = alternatives.message_queue(path)
        seconds = timed_each(messages.put, records)
        messages.close()
        place.give_back(path)
        return len(records) / seconds

    runs: dict[str, Callable[[], float]] = {
        "ours": ours,
        "raw": raw,
        "without journal": partial(ours, journaled=False),
        "TinyLog": tiny,
        "SQLite, a commit each": sqlite,
        "persist-queue": queue,
    }
    found = Turns(scale.repeats, runs)
    return [
        Row(
            "log.append, one at a time" if name == "raw" else "the same",
            per_second(found.speed("ours")), f"{name} {per_second(found.speed(name))}", found.ratio("ours", name),
        )
        for name in runs if name != "ours"
    ]  # fmt: skip


def _concurrent(place: Place, scale: Scale) -> list[Row]:
    """Threads that each wait until their record is durable before they send the next."""
    each = max(2, scale.single_records // 4)
    value = values(1)[0]
    shared: dict[str, list[float]] = {"append": [], "send": []}

    def ours(name: str) -> float:
        path, files = place.fresh(), alternatives.CountingFiles()
        with opened(path, files) as log, log.producer(linger_ms=0) as producer:
            work: dict[str, Callable[[], object]] = {
                "append": lambda: log.append("t", value),
                "send": lambda: producer.send("t", value).result(),
            }
            seconds = _in_threads(scale.producers, each, work[name])
            shared[name].append(scale.producers * each / max(1, files.syncs))
        place.give_back(path)
        return scale.producers * each / seconds

    def alone() -> float:
        return each / with_log(place, lambda log: [log.append("t", value) for _ in range(each)])

    def sqlite() -> float:
        path, few = place.fresh(), max(1, each // 10)
        table, lock = alternatives.SqliteLog(path / "log.db"), threading.Lock()

        def work() -> None:
            with lock:
                table.append(value)

        seconds = _in_threads(scale.producers, few, work)
        table.close()
        place.give_back(path)
        return scale.producers * few / seconds

    runs: dict[str, Callable[[], float]] = {
        "append": lambda: ours("append"), "send": lambda: ours("send"), "alone": alone, "sqlite": sqlite,
    }  # fmt: skip
    found = Turns(max(1, scale.repeats - 2), runs)
    beside = {
        "alone": f"one log.append alone {per_second(found.speed('alone'))}",
        "sqlite": f"SQLite, a commit each {per_second(found.speed('sqlite'))}",
    }
    rows = []
    for name, what in (("append", "log.append"), ("send", "producer.send(...).result()")):
        figure = f"{per_second(found.speed(name))}, {statistics.median(shared[name]):.0f} records per fdatasync"
        rows += [
            Row(f"{scale.producers} threads in {what}", figure, beside[other], found.ratio(name, other))
            for other in beside
        ]
    return rows


def _in_threads(number: int, times: int, work: Callable[[], object]) -> float:
    """Seconds from the moment all are let go until the last has done its work so many times."""
    ready = threading.Barrier(number + 1)

    def wait_and_work() -> None:
        ready.wait()
        for _ in range(times):
            work()

    threads = [threading.Thread(target=wait_and_work) for _ in range(number)]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start
