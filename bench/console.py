"""The console beside the broker: what an open page costs a broker under load, and a strip of a long log.

The page is played by a client that listens to the events and fetches the newest strip five times a second, as the page
does while it follows.
"""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench import broker_process
from bench.broker_load import Figures, produce_load, run_at_rate
from bench.broker_process import BrokerProcess
from bench.measuring import FULL, Place, Scale, percentile
from bench.table import Row, Table, duration, table_of

from foldlog.broker.broker import Broker
from foldlog.clock import SystemClock
from foldlog.records.loops import pack
from foldlog.server.console.records import LAST, strip

PARTITIONS = 4
BATCH_RECORDS = 500
REQUESTS_PER_S = 100.0
"""Batches of 500, so 50k records a second."""

_VALUE_BYTES = 100
_STRIP_S = 0.2
_CELLS = 400
_ACKS_ALL = -1
_EVENTS_PER_S_MAX = 10.5


@dataclass
class Watched:
    """What the page saw."""

    events: int = 0
    strips_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run: the broker's processor time for a record, latencies of acknowledgements, and what a page saw."""

    cpu_per_record_s: float
    figures: Figures
    watched: Watched


def run(place: Place, scale: Scale) -> Table:
    seconds = 6.0 if scale is FULL else 0.3
    turns = max(1, scale.repeats - 2)
    path = place.fresh()
    costs: dict[bool, list[Cost]] = {True: [], False: []}
    with broker_process.running(path / "log", "--console", "127.0.0.1:0") as broker:
        _measured(broker, "warm-up", seconds / 3, is_open=True)
        for turn in range(turns):
            for is_open in (False, True):
                costs[is_open].append(_measured(broker, f"t{turn}{is_open}", seconds, is_open=is_open))
    place.give_back(path)
    rows = [*_load_rows(costs), *_strip_rows(place, scale)]
    return table_of("The console, open and not", rows, _notes())


def _load_rows(costs: dict[bool, list[Cost]]) -> list[Row]:
    opened, closed = costs[True], costs[False]
    with_s, without_s = (statistics.median(each.cpu_per_record_s for each in runs) for runs in (opened, closed))
    events = max(each.watched.events / each.figures.seconds for each in opened)
    strips = sorted(taken for each in opened for taken in each.watched.strips_s)
    return [
        Row(
            "50k records/s, acks=all: the broker's CPU for a record, console open",
            duration(with_s),
            f"{duration(without_s)} with none open",
            without_s / with_s if with_s else None,
        ),
        Row("the same: p50 / p99 of acknowledgements", _latencies(opened), f"{_latencies(closed)} with none open"),
        Row("the same: events of ends, at most", f"{events:.1f}/s", "-", None, "<= 10/s", events <= _EVENTS_PER_S_MAX),
        Row(
            f"the same: a strip of {_CELLS} cells over HTTP, p50 / p95",
            f"{duration(percentile(strips, 50))} / {duration(percentile(strips, 95))}" if strips else "-",
            "-",
        ),
    ]


def _latencies(costs: list[Cost]) -> str:
    ordered = [sorted(each.figures.latencies_s) for each in costs]
    return " / ".join(duration(statistics.median(percentile(one, at) for one in ordered)) for at in (50, 99))


def _measured(broker: BrokerProcess, topic: str, seconds: float, *, is_open: bool) -> Cost:
    broker.create_topic(topic, PARTITIONS)
    now_ms = SystemClock().now_ms()
    batch = bytes(pack([(now_ms, b"key-%d" % n, b"x" * _VALUE_BYTES, ()) for n in range(BATCH_RECORDS)]))
    load = produce_load(topic, PARTITIONS, batch, BATCH_RECORDS, _ACKS_ALL, 16)
    watched = Watched()
    with _page(broker, topic, watched, is_open=is_open):
        before_s = broker.cpu_s()
        figures = run_at_rate(broker.address, load, REQUESTS_PER_S, seconds)
        spent_s = broker.cpu_s() - before_s
    broker.delete_topic(topic)
    return Cost(spent_s / (figures.requests * BATCH_RECORDS), figures, watched)


@contextmanager
def _page(broker: BrokerProcess, topic: str, watched: Watched, *, is_open: bool) -> Iterator[None]:
    if not is_open:
        yield
        return
    is_over = threading.Event()
    began = threading.Event()
    thread = threading.Thread(target=_watch, args=(broker, topic, watched, began, is_over))
    thread.start()
    began.wait()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _watch(
    broker: BrokerProcess, topic: str, watched: Watched, began: threading.Event, is_over: threading.Event
) -> None:
    events = http.client.HTTPConnection(*broker.console_address, timeout=30)
    strips = http.client.HTTPConnection(*broker.console_address, timeout=30)
    try:
        events.request("GET", "/api/events")
        stream = events.getresponse()
        fetched_at = 0.0
        while not is_over.is_set():
            line = stream.readline()
            began.set()
            if line != b"event: ends\n":
                continue
            watched.events += topic in json.loads(stream.readline().removeprefix(b"data: "))
            now = time.perf_counter()
            if now - fetched_at >= _STRIP_S:
                fetched_at = now
                strips.request("GET", f"/api/topics/{topic}/0/strip?from=-1&cells={_CELLS}")
                strips.getresponse().read()
                watched.strips_s.append(time.perf_counter() - now)
    finally:
        began.set()
        events.close()
        strips.close()


def _strip_rows(place: Place, scale: Scale) -> list[Row]:
    """In this process, without HTTP: what the look-up costs."""
    path = place.fresh()
    taken: dict[int, float] = {}
    now_ms = SystemClock().now_ms()
    batch = pack([(now_ms, b"user-%d" % n, b"x" * 30, ()) for n in range(1000)])
    with Broker.open(str(path / "log"), background=False) as broker:
        for records in (scale.small_log_records, scale.large_log_records):
            broker.create_topic(f"t{records}", 1, {"flush.messages": 1_000_000})
            partition = broker.writable_partition(f"t{records}", 0)
            for _ in range(max(1, records // 1000)):
                partition.append(batch)
            partition.sync()
            times: list[float] = []
            for turn in range(10 * scale.repeats):
                begun = time.perf_counter()
                strip(partition, LAST if turn % 2 else partition.high_watermark // 2, _CELLS)
                times.append(time.perf_counter() - begun)
            taken[records] = statistics.median(times)
    place.give_back(path)
    small, large = taken[scale.small_log_records], taken[scale.large_log_records]
    return [
        Row(
            f"a strip of {_CELLS} cells in a log of {scale.large_log_records} records",
            duration(large),
            f"{duration(small)} in one of {scale.small_log_records}",
            small / large,
        )
    ]


def _notes() -> list[str]:
    return [
        "Processor time is that of the broker's whole process; the page is played by the process that sends the load.",
        f"{PARTITIONS} partitions, batches of {BATCH_RECORDS} records of {_VALUE_BYTES} bytes, at appointed times.",
    ]
