"""The measurements of `foldlog bench`: the disk alone, and a log on it, each for a bounded time.

Everything is real: appends are acknowledged, syncs are waited for. Absolute figures depend on the machine and its
current load; so measurements that are compared alternate.
"""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from foldlog.errors import FoldlogError, WaitTimeout
from foldlog.limits import BENCH_BLOCK_BYTES, BENCH_DISK_BYTES, BENCH_SAMPLES_MAX, BENCH_WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foldlog.client.log import Log

NUMBER_BYTES: Final = 8
"""Every value begins with its number, so that a reader can identify it."""

_SLICES: Final = 5
"""How often two measurements alternate."""

_SEED: Final = 7


@dataclass(slots=True)
class Tally:
    """Some work: its amount, its duration, and the duration of each operation, if measured."""

    count: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    took_s: list[float] = field(default_factory=list)

    @property
    def per_s(self) -> float:
        return self.count / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_s(self) -> float:
        return self.size_bytes / self.seconds if self.seconds else 0.0

    def quantile_ms(self, share: float) -> float | None:
        """
        >>> Tally(took_s=[0.004, 0.001, 0.002, 0.003]).quantile_ms(0.5)
        3.0
        """
        ordered = sorted(self.took_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000 if ordered else None


@dataclass(frozen=True, slots=True)
class Load:
    """At most this many records of that size, and at most this long for each measurement."""

    records: int
    size_bytes: int
    seconds: float

    def value(self) -> bytearray:
        """A value that does not compress; its first bytes are for its number."""
        return bytearray(random.Random(_SEED).randbytes(max(NUMBER_BYTES, self.size_bytes)))


def in_turns(load: Load, *measures: Callable[[int, float], None]) -> None:
    """Each for a slice of the time and of the count, in rotation: a disturbance then affects all of them."""
    for _ in range(_SLICES):
        for measure in measures:
            measure(max(1, load.records // _SLICES), load.seconds / _SLICES)


class Disk:
    """The disk alone: a scratch file that is written and synced as a log's would be. Used by one thread."""

    def __init__(self, path: str, load: Load) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._record = bytes(load.value())
        self._block = random.Random(_SEED).randbytes(BENCH_BLOCK_BYTES)
        self.syncs, self.writes = Tally(), Tally()

    def sync_records(self, most: int, seconds: float) -> None:
        """Write one record's bytes and sync them, repeatedly: the lower bound for a durable append."""
        began_s = time.perf_counter()
        for _ in range(min(most, BENCH_SAMPLES_MAX)):
            before_s = time.perf_counter()
            os.write(self._descriptor, self._record)
            _sync(self._descriptor)
            self.syncs.took_s.append(time.perf_counter() - before_s)
            self.syncs.count += 1
            if time.perf_counter() - began_s > seconds:
                break
        self.syncs.seconds += time.perf_counter() - began_s

    def write_blocks(self, most: int, seconds: float) -> None:
        """Write large blocks in sequence, with one sync at the end."""
        began_s = time.perf_counter()
        while self.writes.size_bytes < BENCH_DISK_BYTES:
            self.writes.size_bytes += os.write(self._descriptor, self._block)
            self.writes.count += 1
            if time.perf_counter() - began_s > seconds:
                break
        _sync(self._descriptor)
        self.writes.seconds += time.perf_counter() - began_s

    def close(self) -> None:
        os.close(self._descriptor)


def _sync(descriptor: int) -> None:
    getattr(os, "fdatasync", os.fsync)(descriptor)


class BenchTopic:
    """A scratch topic with one partition. Used by one thread, except for `follow`."""

    def __init__(self, log: Log, name: str, load: Load) -> None:
        self._log = log
        self._name = name
        self._load = load
        self._number = 0
        self.appends, self.sends, self.reads, self.ways = Tally(), Tally(), Tally(), Tally()

    def append_one_by_one(self, most: int, seconds: float) -> None:
        """Each record is acknowledged before the next is sent."""
        value = self._load.value()
        began_s = time.perf_counter()
        for _ in range(min(most, BENCH_SAMPLES_MAX)):
            before_s = time.perf_counter()
            self._log.append(self._name, bytes(value), partition=0)
            self.appends.took_s.append(time.perf_counter() - before_s)
            self.appends.count += 1
            if time.perf_counter() - began_s > seconds:
                break
        self.appends.seconds += time.perf_counter() - began_s

    def send_in_batches(self, most: int, seconds: float) -> None:
        """Like a producer, until all records are acknowledged."""
        value = bytes(self._load.value())
        began_s, sent = time.perf_counter(), 0
        with self._log.producer() as producer:
            while sent < most and time.perf_counter() - began_s < seconds:
                for _ in range(min(1000, most - sent)):
                    producer.send(self._name, value, partition=0)
                    sent += 1
            producer.flush()
            self.sends.seconds += time.perf_counter() - began_s
        self.sends.count += sent
        self.sends.size_bytes += sent * len(value)

    def read_back(self) -> None:
        """Read everything that was written, one record after the other."""
        began_s = time.perf_counter()
        for record in self._log.read(self._name, 0):
            self.reads.count += 1
            self.reads.size_bytes += len(record.value)
            if self.reads.count % 1000 == 0 and time.perf_counter() - began_s > self._load.seconds:
                break
        self.reads.seconds += time.perf_counter() - began_s

    def send_and_wait(self, arrived: queue.SimpleQueue[int], most: int, seconds: float) -> None:
        """Measures from before an append until another thread has read the record."""
        value = self._load.value()
        began_s = time.perf_counter()
        for _ in range(min(most, BENCH_SAMPLES_MAX)):
            self._number += 1
            value[:NUMBER_BYTES] = self._number.to_bytes(NUMBER_BYTES, "big")
            before_s = time.perf_counter()
            self._log.append(self._name, bytes(value), partition=0)
            self._wait_for(arrived, self._number)
            self.ways.took_s.append(time.perf_counter() - before_s)
            self.ways.count += 1
            if time.perf_counter() - began_s > seconds:
                break
        self.ways.seconds += time.perf_counter() - began_s

    @staticmethod
    def _wait_for(arrived: queue.SimpleQueue[int], number: int) -> None:
        while True:
            try:
                if arrived.get(timeout=BENCH_WAIT_S) == number:
                    return
            except queue.Empty:
                raise WaitTimeout(
                    f"a record that was acknowledged was not read within {BENCH_WAIT_S} s; is the broker overloaded?"
                ) from None

    @contextmanager
    def follow(self) -> Iterator[queue.SimpleQueue[int]]:
        """A reader in its own thread; yields a queue of the numbers of its records."""
        arrived: queue.SimpleQueue[int] = queue.SimpleQueue()
        leaving = threading.Event()
        records = self._log.read(self._name, 0, start="end", follow=True, timeout_ms=BENCH_WAIT_S * 1000)

        def read() -> None:
            try:
                for record in records:
                    arrived.put(int.from_bytes(record.value[:NUMBER_BYTES], "big"))
                    if leaving.is_set():
                        return
            except FoldlogError:
                return  # the thread that waits for the next record reports it

        reader = threading.Thread(target=read, name="foldlog-bench-reader", daemon=True)
        reader.start()
        try:
            yield arrived
        finally:
            leaving.set()
            try:
                self._log.append(self._name, bytes(NUMBER_BYTES), partition=0)  # to wake the reader
                reader.join(BENCH_WAIT_S)
            except FoldlogError:
                pass  # there is an error already; the thread ends with the process
