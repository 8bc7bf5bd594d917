"""Consume throughput: one and four consumers, from the page cache and from the disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count, product
from pathlib import Path

from bench.broker_load import fetch_load, run_flat_out
from bench.kafka import java_tools, topics
from bench.kafka.clients import Clients, elapsed_s
from bench.kafka.effort import Effort
from bench.kafka.produce import JAVA, LIBRDKAFKA, RAW, VALUE_BYTES
from bench.kafka.recorder import Figures, Recorder, watched
from bench.kafka.results import Case
from bench.kafka.sides import FOLDLOG, KAFKA, Side, both
from bench.kafka.topics import Filled

CACHED, COLD = "page cache", "disk"
CONSUMERS = (1, 4)
PARTITIONS = 4
FETCH_BYTES = 1 << 20
"""What a fetch of the raw client asks of a partition: max.partition.fetch.bytes, as the other two have it."""
_WINDOW = 5
_RAW_S = 60.0

_number = count()


def run(recorder: Recorder, directory: Path) -> None:
    with both(directory) as sides:
        for value_bytes in VALUE_BYTES:
            name = f"consume-{value_bytes}"
            filled = {
                side: topics.fill(
                    sides[side], name, PARTITIONS, value_bytes, recorder.effort.consume_bytes, topics.BATCH_BYTES
                )
                for side in (KAFKA, FOLDLOG)
            }
            recorder.settle()
            for side in (KAFKA, FOLDLOG):
                _raw(sides[side], filled[side], {"consumers": 1, "value_bytes": value_bytes})  # warms up, not counted
            for case in cases(recorder.effort, value_bytes):
                _measure(recorder, sides, filled, case)


def cases(effort: Effort, value_bytes: int) -> list[Case]:
    found: list[Case] = []
    for client in (LIBRDKAFKA, JAVA, RAW):
        # Java's tool is one consumer, and cannot be told to wait for others.
        every = list(product(CONSUMERS[:1] if client == JAVA else CONSUMERS, (CACHED, COLD)))
        for consumers, origin in every if effort.every_combination else every[-1:]:
            found.append({"client": client, "value_bytes": value_bytes, "consumers": consumers, "from": origin})
    return found


def _measure(recorder: Recorder, sides: dict[str, Side], filled: dict[str, Filled], case: Case) -> None:
    def read(name: str) -> Figures:
        side, topic = sides[name], filled[name]
        if case["from"] == COLD:
            topics.drop_from_cache(side.segments(topic.name))
        recorder.settle()
        return _CLIENTS[str(case["client"])](side, topic, case)

    recorder.in_turns(case, {name: partial(read, name) for name in (KAFKA, FOLDLOG)})


def _librdkafka(side: Side, topic: Filled, case: Case) -> Figures:
    """Each consumer a process, with its share of the partitions."""
    consumers = int(case["consumers"])
    shares = [list(range(number, PARTITIONS, consumers)) for number in range(consumers)]
    specs = [
        {
            "do": "consume", "bootstrap": side.bootstrap, "topic": topic.name, "partitions": share,
            "records": sum(topic.batches[number] for number in share) * topic.batch_records,
        }
        for share in shares
    ]  # fmt: skip
    with Clients(specs) as clients:

        def work() -> Figures:
            answers = clients.go()
            return _figures(sum(one["records"] for one in answers) / elapsed_s(answers), case)

        return watched(side.pid, work)


def _java(side: Side, topic: Filled, case: Case) -> Figures:
    group = f"consume-{next(_number):04d}"

    def work() -> Figures:
        found = java_tools.consume(side.bootstrap, topic.name, group, topic.records)
        return _figures(found.records_per_s, case)

    return watched(side.pid, work)


def _raw(side: Side, topic: Filled, case: Case) -> Figures:
    """Every record once, answers checked for their error and their first offset, nothing decoded."""
    together = max(1, FETCH_BYTES // len(topic.batch))
    load = fetch_load(topic.name, topic.batches, topic.batch, topic.batch_records, _WINDOW, together)

    def work() -> Figures:
        size = len(load.frames) * load.payload_bytes
        found = run_flat_out(side.address, load, int(case["consumers"]), _RAW_S, size)
        return _figures(found.payload_bytes / len(topic.batch) * topic.batch_records / found.seconds, case)

    return watched(side.pid, work)


_CLIENTS: dict[str, Callable[[Side, Filled, Case], Figures]] = {LIBRDKAFKA: _librdkafka, JAVA: _java, RAW: _raw}


def _figures(records_per_s: float, case: Case) -> Figures:
    return {"records_per_s": records_per_s, "value_bytes_per_s": records_per_s * int(case["value_bytes"])}
