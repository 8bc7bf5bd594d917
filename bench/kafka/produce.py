"""Produce throughput: librdkafka, Java's own tool, and the raw protocol, in every combination that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count, product
from pathlib import Path

from bench.broker import CODECS, batch_of
from bench.broker_load import produce_load, run_flat_out
from bench.kafka import java_tools
from bench.kafka.clients import Clients, elapsed_s
from bench.kafka.effort import Effort
from bench.kafka.recorder import Figures, Recorder, watched
from bench.kafka.results import Case
from bench.kafka.sides import FOLDLOG, KAFKA, RELAXED, Side, both

LIBRDKAFKA, JAVA, RAW = "librdkafka", "Java", "raw"
MOCK = "mock"
VALUE_BYTES = (100, 1000)
ACKS = ("1", "all")
PARTITIONS = (1, 8)
RAW_BATCH = "64 KB"
_RAW_WINDOW = 16
_RAW_S = 60.0
_WARM_UP_SHARE = 3
"""Of Java's records, one in so many warms up the tool's JVM."""

_number = count()


def run(recorder: Recorder, directory: Path) -> None:
    with both(directory) as sides:
        _warm_up(recorder, sides)
        for case in cases(recorder.effort):
            _measure(recorder, sides, case)


def cases(effort: Effort) -> list[Case]:
    found: list[Case] = []
    for client, acks in product((LIBRDKAFKA, JAVA, RAW), ACKS):
        sizes = VALUE_BYTES[:1] if client == RAW else VALUE_BYTES
        every = list(product(sizes, PARTITIONS, CODECS))
        for value_bytes, partitions, codec in every if effort.every_combination else (every[0], every[-1]):
            case = {"client": client, "value_bytes": value_bytes, "acks": acks, "partitions": partitions}
            found.append({**case, "codec": codec})
    return found


def _measure(recorder: Recorder, sides: dict[str, Side], case: Case) -> None:
    """With acks=1 neither side waits for the disk, so there is nothing to relax."""
    names = [KAFKA, FOLDLOG] + ([RELAXED] if case["acks"] == "all" else [])
    runs: dict[str, Callable[[], Figures]] = {
        name: partial(to_new_topic, recorder, sides[name], case, relaxed=name == RELAXED) for name in names
    }
    if case["client"] == LIBRDKAFKA and case["acks"] == "all" and case["partitions"] == 1:
        runs[MOCK] = partial(_to_mock, recorder, case)
    recorder.in_turns(case, runs)


def to_new_topic(recorder: Recorder, side: Side, case: Case, *, relaxed: bool) -> Figures:
    """One measurement, into a topic of its own."""
    topic = f"produce-{next(_number):04d}"
    side.create_topic(topic, int(case["partitions"]), relaxed=relaxed)
    recorder.settle()
    figures = _CLIENTS[str(case["client"])](recorder, side, topic, case)
    side.delete_topic(topic)
    return figures


def _librdkafka(recorder: Recorder, side: Side, topic: str, case: Case) -> Figures:
    spec = _spec(recorder, topic, case) | {
        "settings": {"bootstrap.servers": side.bootstrap, "acks": case["acks"], "compression.type": case["codec"]}
    }
    with Clients([spec]) as clients:
        return watched(side.pid, lambda: _speed(clients, case))


def _to_mock(recorder: Recorder, case: Case) -> Figures:
    """This client against the broker inside librdkafka, which keeps nothing: its own ceiling."""
    settings = {"bootstrap.servers": "", "test.mock.num.brokers": 1, "acks": "all", "compression.type": case["codec"]}
    recorder.settle()
    with Clients([_spec(recorder, "mock", case) | {"settings": settings, "check": False}]) as clients:
        return _speed(clients, case)


def _spec(recorder: Recorder, topic: str, case: Case) -> dict[str, object]:
    value_bytes = int(case["value_bytes"])
    records = recorder.effort.produce_bytes // value_bytes
    return {"do": "produce", "topic": topic, "records": records, "value_bytes": value_bytes}


def _speed(clients: Clients, case: Case) -> Figures:
    answers = clients.go()
    return _figures(sum(one["records"] for one in answers) / elapsed_s(answers), int(case["value_bytes"]))


def _java(recorder: Recorder, side: Side, topic: str, case: Case) -> Figures:
    value_bytes = int(case["value_bytes"])
    records = recorder.effort.java_produce_bytes // value_bytes
    warm_up = records // _WARM_UP_SHARE

    def work() -> Figures:
        found = java_tools.produce(
            side.bootstrap, topic, records - warm_up, value_bytes, warm_up, acks=case["acks"],
            compression_type=case["codec"],
        )  # fmt: skip
        return _figures(found.records_per_s, value_bytes)

    return watched(side.pid, work)


def _raw(recorder: Recorder, side: Side, topic: str, case: Case) -> Figures:
    """Batches that are encoded already: what is left is the broker."""
    batch, records = batch_of(RAW_BATCH, str(case["codec"]))
    partitions = int(case["partitions"])
    acks = {"1": 1, "all": -1}[str(case["acks"])]
    load = produce_load(topic, partitions, batch, records, acks, _RAW_WINDOW)
    first = run_flat_out(side.address, load, 1, _RAW_S, 0)  # one batch each: every partition has its file

    def work() -> Figures:
        ready = replace(load, offsets=list(first.ends))
        found = run_flat_out(side.address, ready, 1, _RAW_S, recorder.effort.raw_bytes)
        return _figures(found.requests * records / found.seconds, int(case["value_bytes"]))

    return watched(side.pid, work)


_CLIENTS: dict[str, Callable[[Recorder, Side, str, Case], Figures]] = {
    LIBRDKAFKA: _librdkafka,
    JAVA: _java,
    RAW: _raw,
}


def _figures(records_per_s: float, value_bytes: int) -> Figures:
    return {"records_per_s": records_per_s, "value_bytes_per_s": records_per_s * value_bytes}


def _warm_up(recorder: Recorder, sides: dict[str, Side]) -> None:
    """Kafka's compiler needs to have seen the work; nothing of this counts."""
    effort = replace(
        recorder.effort, produce_bytes=recorder.effort.warm_up_bytes, raw_bytes=recorder.effort.warm_up_bytes
    )
    unrecorded = replace(recorder, effort=effort, measurements=[])
    for client, acks in ((RAW, "all"), (LIBRDKAFKA, "1"), (RAW, "1")):
        case: Case = {"client": client, "value_bytes": 100, "acks": acks, "partitions": 8, "codec": "none"}
        for name in (KAFKA, FOLDLOG):
            to_new_topic(unrecorded, sides[name], case, relaxed=False)
