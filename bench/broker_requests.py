"""What a Produce or Fetch request costs: requests a second, and the broker's processor time for each.

Sizes, connections and partitions of a request as clients send them. *Relaxed* has flush.messages at its largest: the
same requests without the sync that each waits for, so that the two costs are seen apart.
"""

from __future__ import annotations

import gc
import os
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

from bench import broker_process
from bench.broker import ACKS_ALL, KIB, MIB, batch_of_bytes
from bench.broker_load import Figures, Load, fetch_load, produce_load, run_flat_out
from bench.broker_process import BrokerProcess
from bench.measuring import FULL, Place, Scale, latencies, percentile
from bench.table import Table, duration

SIZES = {"4 KB": 4 * KIB, "16 KB": 16 * KIB, "64 KB": 64 * KIB}
_WINDOWS = {"4 KB": 64, "16 KB": 32, "64 KB": 16}
_TOGETHER = (1, 8, 100)
"""Partitions of one request."""
_SMALL = "4 KB"
_RELAXED = str((1 << 63) - 1)
_WARM_UP_S = 20.0


@dataclass(frozen=True, slots=True)
class Shape:
    """What every request of a run looks like."""

    size: str
    connections: int = 1
    together: int = 1
    partitions: int = 1
    codec: str = "none"

    def __str__(self) -> str:
        connections = "1 connection" if self.connections == 1 else f"{self.connections} connections"
        in_turn = f", {self.partitions} partitions in turn" if self.partitions > self.together else ""
        batches = f"{self.together} x {self.size}" if self.together > 1 else self.size
        codec = "" if self.codec == "none" else f" {self.codec}"
        return f"{batches}{codec}, {connections}{in_turn}"


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run."""

    per_second: float
    cpu_us: float


_WARM_UP = Shape("16 KB", partitions=8)
SHAPES = [
    *(Shape(size, connections) for size in SIZES for connections in (1, 4)),
    Shape("16 KB", codec="lz4"),
    *(Shape(_SMALL, together=count, partitions=count) for count in _TOGETHER if count > 1),
    *(Shape(size, partitions=count) for size in SIZES for count in _TOGETHER if count > 1),
]


class Requests:
    """The measurements that share one broker process."""

    def __init__(self, broker: BrokerProcess, seconds: float, bytes_max: int) -> None:
        self._broker = broker
        self._seconds = seconds
        self._bytes_max = bytes_max
        self._topics = 0

    def produce(self, shape: Shape, *, is_relaxed: bool) -> Cost:
        name, load = self._topic(shape, is_relaxed=is_relaxed)
        cost = self._run(load, shape.connections)
        self._broker.delete_topic(name)
        return cost

    def fetch(self, shape: Shape, fetch_bytes: int) -> Cost:
        """Of what one connection wrote: `fetch_bytes` of the partition a request."""
        name, load = self._topic(replace(shape, connections=1), is_relaxed=True)
        batch, records = batch_of_bytes(SIZES[shape.size], shape.codec)
        written = run_flat_out(self._broker.address, load, 1, self._seconds, self._bytes_max // 4)
        together = max(1, fetch_bytes // len(batch))
        cost = self._run(
            fetch_load(name, [1 + written.requests], batch, records, _WINDOWS["64 KB"], together), shape.connections
        )
        self._broker.delete_topic(name)
        return cost

    def _topic(self, shape: Shape, *, is_relaxed: bool) -> tuple[str, Load]:
        """A topic with one batch in each partition, and the load that goes on from there."""
        self._topics += 1
        name = f"requests-{self._topics:05d}"
        configs = {"flush_messages": _RELAXED} if is_relaxed else {}
        self._broker.create_topic(name, shape.partitions, **configs)
        batch, records = batch_of_bytes(SIZES[shape.size], shape.codec)
        window = max(1, _WINDOWS[shape.size] // shape.together)
        load = produce_load(name, shape.partitions, batch, records, ACKS_ALL, window, shape.together)
        run_flat_out(self._broker.address, load, 1, _WARM_UP_S, 0)
        is_shared = shape.connections > 1
        return name, replace(load, offsets=[records] * len(load.frames), is_shared=is_shared)

    def _run(self, load: Load, connections: int) -> Cost:
        gc.collect()
        before = self._broker.threads_cpu_s()
        figures: Figures = run_flat_out(self._broker.address, load, connections, self._seconds, self._bytes_max)
        cpu_s = self._broker.threads_cpu_s() - before
        return Cost(figures.requests / figures.seconds, cpu_s / figures.requests * 1e6)


def _cell(costs: list[Cost]) -> str:
    per_second = statistics.median(cost.per_second for cost in costs)
    cpu_us = statistics.median(cost.cpu_us for cost in costs)
    return f"{per_second:,.0f}/s, {cpu_us:.0f} us"


def _preallocated_sync(path: Path, size_bytes: int, times: int) -> tuple[str, str]:
    """The p50 and the p99: no acknowledgement can come earlier."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, bytes(size_bytes * times), 0)
        os.fsync(descriptor)
        data = os.urandom(size_bytes)

        def sync(number: int) -> None:
            os.pwrite(descriptor, data, number * size_bytes)
            os.fdatasync(descriptor)

        found = latencies(sync, times)
        return duration(percentile(found, 50)), duration(percentile(found, 99))
    finally:
        os.close(descriptor)


def run(place: Place, scale: Scale) -> Table:
    turns, seconds, bytes_max = (3, 0.7, 256 * MIB) if scale is FULL else (1, 0.02, MIB)
    lines = []
    path = place.fresh()
    with (
        broker_process.running(path / "log") as broker,
        broker_process.running(path / "plain", "-X", "foldlog.journal.enable=false") as plain,
    ):
        requests, unjournaled = Requests(broker, seconds, bytes_max), Requests(plain, seconds, bytes_max)
        requests.produce(_WARM_UP, is_relaxed=False)  # it has a journal from now on, and of the size that it needs
        for shape in SHAPES:
            durable, synced, relaxed = [], [], []
            for _ in range(turns):
                durable.append(requests.produce(shape, is_relaxed=False))
                synced.append(unjournaled.produce(shape, is_relaxed=False))
                relaxed.append(requests.produce(shape, is_relaxed=True))
            lines.append([f"produce {shape}", _cell(durable), _cell(synced), _cell(relaxed)])
        for connections in (1, 4):
            for fetch_bytes, what in ((1, "one batch"), (MIB, "1 MiB")):
                shape = Shape("16 KB", connections)
                found = [requests.fetch(shape, fetch_bytes) for _ in range(turns)]
                lines.append([f"fetch of {what}, {shape}", _cell(found), "-", "-"])
    for size, size_bytes in SIZES.items():
        p50, p99 = _preallocated_sync(path / "written", size_bytes, 500 if scale is FULL else 5)
        lines.append([f"one fdatasync of {size} over blocks written before", f"p50 {p50}, p99 {p99}", "-", "-"])
    place.give_back(path)
    notes = [
        "Requests a second, and processor time of the broker for each, in all its threads; medians of the turns.",
        "A request of several partitions has a batch of that size for each of them.",
    ]
    return Table("What a request costs", ["acks=all", "durable", "without journal", "relaxed"], lines, notes)
