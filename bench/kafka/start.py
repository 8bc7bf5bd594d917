"""From the start of the process to its first acknowledged record, and its memory: idle, and under load."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

from bench.kafka import topics
from bench.kafka.clients import Clients
from bench.kafka.first_ack import until_acknowledged
from bench.kafka.recorder import Figures, Recorder
from bench.kafka.results import Case
from bench.kafka.sides import FOLDLOG, KAFKA, Side, both
from bench.kafka.watching import Watch, memory_bytes

START, MEMORY = "start", "memory"
LOAD_VALUE_BYTES = 1000
LOAD_PARTITIONS = 8

_number = count()


def run(recorder: Recorder, directory: Path) -> None:
    with both(directory) as sides:
        for name in (KAFKA, FOLDLOG):
            sides[name].stop()
        started: Case = {"what": START}
        runs: dict[str, Callable[[], Figures]] = {
            name: partial(_first_record, recorder, sides[name]) for name in (KAFKA, FOLDLOG)
        }
        for first in runs.values():
            first()  # everything it loads is in the page cache, and it has its bytecode
        recorder.in_turns(started, runs, rounds=recorder.effort.start_rounds)
        in_memory: Case = {"what": MEMORY}
        recorder.in_turns(in_memory, {name: partial(_memory, recorder, sides[name]) for name in (KAFKA, FOLDLOG)})


def _first_record(recorder: Recorder, side: Side) -> Figures:
    """A topic that does not exist yet, made by asking for it. Ends in order: a killed broker of Kafka's waits at its
    next start until the controller gives up its last session, 9 s. That is what section `restart` has."""
    topic = f"first-{next(_number):04d}"
    batch, _ = topics.encoded_batch(100, 4000)
    recorder.settle()
    begun = time.perf_counter()
    side.begin()
    ended = until_acknowledged(side.address, topic, batch)
    figures = {"seconds": ended - begun}
    side.stop()
    return figures


def _memory(recorder: Recorder, side: Side) -> Figures:
    """A fresh process: at rest after a first record, then the most while one client writes and one reads."""
    topic = f"load-{next(_number):04d}"
    side.start()
    batch, _ = topics.encoded_batch(100, 4000)
    until_acknowledged(side.address, f"idle-{topic}", batch)
    time.sleep(recorder.effort.idle_s)
    idle = memory_bytes(side.pid)
    side.create_topic(topic, LOAD_PARTITIONS)
    records = recorder.effort.load_bytes // LOAD_VALUE_BYTES
    producer = {
        "do": "produce", "topic": topic, "records": records, "value_bytes": LOAD_VALUE_BYTES,
        "settings": {"bootstrap.servers": side.bootstrap, "acks": "all"},
    }  # fmt: skip
    consumer = {
        "do": "consume", "bootstrap": side.bootstrap, "topic": topic, "records": records,
        "partitions": list(range(LOAD_PARTITIONS)),
    }  # fmt: skip
    recorder.settle()
    with Clients([producer, consumer]) as clients:
        watch = Watch(side.pid)
        clients.go()
        used = watch.used()
    side.kill()
    return {"idle_bytes": idle, "loaded_bytes": used.peak_bytes, "cpu_s": used.cpu_s}
