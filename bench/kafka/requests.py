"""Requests, one by one: the raw client beside Apache Kafka and kfake, which answer before they sync, and kfake synced.

Small requests show what one costs, where throughput shows what a byte costs. Each part is a section of its own, of
about two minutes: measuring needs a machine that does nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from bench import broker_limits
from bench.broker_load import Figures as LoadFigures
from bench.broker_load import fetch_load, produce_load, run_at_rate, run_flat_out
from bench.kafka import topics
from bench.kafka.first_ack import until_acknowledged
from bench.kafka.machine import preallocated_fdatasync_s
from bench.kafka.recorder import Figures, Recorder, watched
from bench.kafka.results import Case, percentile
from bench.kafka.sides import FOLDLOG, KAFKA, KFAKE, KFAKE_SYNCED, RELAXED, Side, running
from bench.kafka.topics import Filled
from bench.kafka.watching import memory_bytes

DURABLE = (KAFKA, FOLDLOG, RELAXED, KFAKE, KFAKE_SYNCED)
UNSYNCED = (KAFKA, FOLDLOG, KFAKE)
DISK = "disk"
LOOPBACK = "loopback"
SPEED = "bytes_per_s"
VALUE_BYTES = 100
REQUEST_BYTES = (4_000, 16_000, 64_000, 900_000)
ROUND_ROBIN_BYTES = (4_000, 16_000, 64_000)
CONNECTIONS = (1, 4, 16)
RATES = (500, 1_000, 10_000)
PERCENTS = (50, 99)
_WINDOW = 16
_FETCHED_PARTITIONS = 4
_FETCH_BYTES = 1 << 20
_RECORD_BYTES = 120
_UNLIMITED = 1 << 50
_PATIENCE_S = 60.0

_number = count()


def run_produce(recorder: Recorder, directory: Path) -> None:
    """Requests of several sizes on one connection, and of 64 KB on four."""
    cases: list[Case] = [{"request_bytes": size, "connections": 1, "partitions": 1} for size in REQUEST_BYTES]
    cases.append({"request_bytes": 64_000, "connections": 4, "partitions": 4})
    with _warmed_up(recorder, directory, KAFKA, FOLDLOG, KFAKE, KFAKE_SYNCED) as sides:
        for case in cases:
            recorder.in_turns(case, {name: partial(_produce, recorder, sides[name], name, case) for name in DURABLE})


def run_round_robin(partitions: int, recorder: Recorder, directory: Path) -> None:
    """One request to each of many partitions in turn, on one connection."""
    with _warmed_up(recorder, directory, KAFKA, FOLDLOG, KFAKE) as sides:
        written = {name: _Written(sides[name], partitions) for name in UNSYNCED}
        for size in ROUND_ROBIN_BYTES:
            case: Case = {"request_bytes": size, "partitions": partitions}
            runs = {name: partial(_round_robin, recorder, written[name], size) for name in UNSYNCED}
            recorder.in_turns(case, runs)


def run_fetch(recorder: Recorder, directory: Path) -> None:
    """Batches of 64 KB, read from the page cache by several connections."""
    with running(directory, *UNSYNCED) as sides:
        filled = {
            name: topics.fill(
                sides[name], "fetched", _FETCHED_PARTITIONS, VALUE_BYTES, recorder.effort.fetched_bytes,
                topics.BATCH_BYTES,
            )
            for name in UNSYNCED
        }  # fmt: skip
        for name in UNSYNCED:
            _fetch(sides[name], filled[name], 1)  # warms up, not counted
        for connections in CONNECTIONS:
            runs: dict[str, Callable[[], Figures]] = {
                name: partial(_fetch, sides[name], filled[name], connections) for name in UNSYNCED
            }
            runs[LOOPBACK] = lambda: {SPEED: broker_limits.loopback_stream(0.5)}
            recorder.in_turns({"connections": connections}, runs)


def run_rates(recorder: Recorder, directory: Path) -> None:
    """One record a request, at appointed times: how long until it is acknowledged."""
    with _warmed_up(recorder, directory, KAFKA, FOLDLOG, KFAKE, KFAKE_SYNCED) as sides:
        for rate in RATES:
            runs: dict[str, Callable[[], Figures]] = {
                name: partial(_at_rate, recorder, sides[name], name, rate) for name in DURABLE
            }
            recorder.in_turns({"rate": rate}, runs | {DISK: partial(_disk, recorder)})


def run_footprint(recorder: Recorder, directory: Path) -> None:
    """Start to the first acknowledged record, and the memory of a broker that has nothing to do."""
    with running(directory, *UNSYNCED) as sides:
        for side in sides.values():
            side.stop()
        runs = {name: partial(_footprint, recorder, sides[name]) for name in UNSYNCED}
        for first in runs.values():
            first()  # everything it loads is in the page cache
        recorder.in_turns({"what": "start"}, runs)


@contextmanager
def _warmed_up(recorder: Recorder, directory: Path, *names: str) -> Iterator[dict[str, Side]]:
    """Kafka's compiler has seen the work; nothing of this counts."""
    with running(directory, *names) as sides:
        case: Case = {"request_bytes": 16_000, "connections": 1, "partitions": 1}
        for name in names:
            _produce(recorder, sides[name], name, case)
        yield sides


def _produce(recorder: Recorder, side: Side, name: str, case: Case) -> Figures:
    topic, partitions, connections = f"produce-{next(_number):04d}", int(case["partitions"]), int(case["connections"])
    batch, records = topics.encoded_batch(VALUE_BYTES, int(case["request_bytes"]))
    side.create_topic(topic, partitions, relaxed=name == RELAXED)
    load = produce_load(topic, partitions, batch, records, -1, _WINDOW)
    first = run_flat_out(side.address, load, 1, recorder.effort.request_s, 0)  # every partition has its file
    ready = replace(load, offsets=list(first.ends), is_shared=connections > 1)
    recorder.settle()

    def work() -> Figures:
        found = run_flat_out(side.address, ready, connections, recorder.effort.request_s, _UNLIMITED)
        return _speeds(found)

    figures = _with_cost(watched(side.pid, work))
    side.delete_topic(topic)
    return figures


class _Written:
    """A topic of many partitions that is written round-robin again and again: where each of them ends."""

    def __init__(self, side: Side, partitions: int) -> None:
        self.side = side
        self.topic = f"many-{next(_number):04d}"
        side.create_topic(self.topic, partitions)
        self._ends: Sequence[int] = [0] * partitions
        self._turns(4_000, 1)  # every partition has its file

    def write(self, request_bytes: int, seconds: float) -> Figures:
        """Whole turns, for about so long: it is known then where each partition ends."""
        once = self._turns(request_bytes, 1)
        return _speeds(self._turns(request_bytes, max(1, int(seconds / once.seconds))))

    def _turns(self, request_bytes: int, turns: int) -> LoadFigures:
        batch, records = topics.encoded_batch(VALUE_BYTES, request_bytes)
        partitions = len(self._ends)
        load = produce_load(self.topic, partitions, batch, records, -1, _WINDOW)
        ready = replace(load, offsets=list(self._ends))
        found = run_flat_out(self.side.address, ready, 1, _PATIENCE_S, turns * partitions * len(batch))
        self._ends = found.ends
        return found


def _round_robin(recorder: Recorder, written: _Written, request_bytes: int) -> Figures:
    recorder.settle()
    return _with_cost(watched(written.side.pid, lambda: written.write(request_bytes, recorder.effort.request_s)))


def _speeds(found: LoadFigures) -> Figures:
    speed = found.bytes_per_second
    return {"requests_per_s": found.requests / found.seconds, SPEED: speed, "payload_bytes": found.payload_bytes}


def _with_cost(figures: Figures) -> Figures:
    """With the broker's processor time for a gigabyte of batches."""
    payload_bytes = figures.pop("payload_bytes")
    return {**figures, "cpu_s_per_gb": figures["cpu_s"] / payload_bytes * 1e9}


def _fetch(side: Side, topic: Filled, connections: int) -> Figures:
    together = max(1, _FETCH_BYTES // len(topic.batch))
    load = fetch_load(topic.name, topic.batches, topic.batch, topic.batch_records, 4, together)
    size = len(load.frames) * load.payload_bytes * (1 if connections == 1 else 2)

    def work() -> Figures:
        return _speeds(run_flat_out(side.address, load, connections, _PATIENCE_S, size))

    return _with_cost(watched(side.pid, work))


def _at_rate(recorder: Recorder, side: Side, name: str, rate: int) -> Figures:
    topic = f"rate-{next(_number):04d}"
    batch, records = topics.encoded_batch(VALUE_BYTES, _RECORD_BYTES)
    side.create_topic(topic, 1, relaxed=name == RELAXED)
    load = produce_load(topic, 1, batch, records, -1, _UNLIMITED)
    first = run_at_rate(side.address, load, 100, 0.2)
    recorder.settle()

    def work() -> Figures:
        found = run_at_rate(side.address, replace(load, offsets=list(first.ends)), rate, recorder.effort.rate_s)
        return {f"p{percent}_s": percentile(found.latencies_s, percent) for percent in PERCENTS}

    figures = watched(side.pid, work)
    side.delete_topic(topic)
    return figures


def _disk(recorder: Recorder) -> Figures:
    recorder.settle()
    found = preallocated_fdatasync_s(recorder.place, recorder.effort.fdatasyncs)
    return {f"p{percent}_s": percentile(found, percent) for percent in PERCENTS}


def _footprint(recorder: Recorder, side: Side) -> Figures:
    topic = f"first-{next(_number):04d}"
    batch, _ = topics.encoded_batch(VALUE_BYTES, 4_000)
    recorder.settle()
    begun = time.perf_counter()
    side.begin()
    ended = until_acknowledged(side.address, topic, batch)
    time.sleep(recorder.effort.idle_s)
    figures = {"seconds": ended - begun, "idle_bytes": memory_bytes(side.pid)}
    side.stop()
    return figures
