"""Back after kill -9, with gigabytes on disk: when the first record is read, and when the first is acknowledged."""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path

from bench.kafka import topics
from bench.kafka.first_ack import until_acknowledged, until_read
from bench.kafka.recorder import Figures, Recorder
from bench.kafka.results import Case
from bench.kafka.sides import FOLDLOG, KAFKA, Side, both
from bench.kafka.topics import Filled
from bench.kafka.watching import Watch

TOPIC = "restart"
PARTITIONS = 8
VALUE_BYTES = 1000
BATCH_BYTES = 500_000
_SPARE = 1.5


class DiskTooSmall(Exception):
    """What is to be written, on both sides, does not fit with something to spare."""


def run(recorder: Recorder, directory: Path) -> None:
    size = recorder.effort.restart_bytes
    needed = int(2 * size * _SPARE)
    free = shutil.disk_usage(recorder.place.fresh()).free
    if free < needed:
        raise DiskTooSmall(f"restart needs {needed / 1e9:.0f} GB of disk, and {free / 1e9:.0f} GB are free")
    with both(directory) as sides:
        filled = {
            name: topics.fill(sides[name], TOPIC, PARTITIONS, VALUE_BYTES, size, BATCH_BYTES)
            for name in (KAFKA, FOLDLOG)
        }
        case: Case = {"stored_bytes": size, "partitions": PARTITIONS}
        runs = {name: partial(_killed, recorder, sides[name], filled[name]) for name in (KAFKA, FOLDLOG)}
        recorder.in_turns(case, runs, rounds=recorder.effort.restart_rounds)


def _killed(recorder: Recorder, side: Side, topic: Filled) -> Figures:
    """One batch more to each partition, so that the kill comes in the middle of work; then kill -9, and back."""
    for number in range(PARTITIONS):
        until_acknowledged(side.address, topic.name, topic.batch, number)
    side.kill()
    recorder.settle()
    last = PARTITIONS - 1
    begun = time.perf_counter()
    side.begin()
    watch = Watch(side.pid)
    read = until_read(side.address, topic.name, last, (topic.batches[last] - 1) * topic.batch_records)
    acknowledged = until_acknowledged(side.address, topic.name, topic.batch, last)
    used = watch.used()
    return {
        "read_s": read - begun,
        "acknowledged_s": acknowledged - begun,
        "cpu_s": used.cpu_s,
        "peak_bytes": used.peak_bytes,
    }
