"""End to end: from the moment a record is due at the producer to the moment the consumer has it."""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path

from bench.kafka.clients import Clients
from bench.kafka.machine import fdatasync_s
from bench.kafka.recorder import Figures, Recorder, watched
from bench.kafka.results import Case, percentile
from bench.kafka.sides import FOLDLOG, KAFKA, RELAXED, Side, both

RATES = (1000, 10_000)
VALUE_BYTES = 100
DISK = "disk"
PERCENTS = (50, 99, 99.9)

_number = count()


def run(recorder: Recorder, directory: Path) -> None:
    with both(directory) as sides:
        for name in (KAFKA, FOLDLOG):  # Kafka's compiler has seen the work
            _through(recorder, sides[name], RATES[-1], relaxed=False)
        for rate in RATES:
            case: Case = {"rate": rate, "value_bytes": VALUE_BYTES}
            recorder.in_turns(
                case,
                {
                    KAFKA: partial(_through, recorder, sides[KAFKA], rate, relaxed=False),
                    FOLDLOG: partial(_through, recorder, sides[FOLDLOG], rate, relaxed=False),
                    RELAXED: partial(_through, recorder, sides[RELAXED], rate, relaxed=True),
                    DISK: partial(_disk, recorder),
                },
            )


def _through(recorder: Recorder, side: Side, rate: int, *, relaxed: bool) -> Figures:
    topic = f"latency-{next(_number):04d}"
    side.create_topic(topic, 1, relaxed=relaxed)
    spec = {
        "do": "end_to_end", "bootstrap": side.bootstrap, "topic": topic, "rate": rate, "value_bytes": VALUE_BYTES,
        "records": int(rate * recorder.effort.latency_s),
        "warm_up_records": int(rate * recorder.effort.latency_warm_up_s),
    }  # fmt: skip
    recorder.settle()
    with Clients([spec]) as clients:

        def work() -> Figures:
            (answer,) = clients.go()
            return {name: answer[name] for name in (*(f"p{percent}_s" for percent in PERCENTS), "max_s")}

        figures = watched(side.pid, work)
    side.delete_topic(topic)
    return figures


def _disk(recorder: Recorder) -> Figures:
    """A small write and its fdatasync, one after the other: nothing that syncs can answer sooner."""
    recorder.settle()
    found = fdatasync_s(recorder.place, recorder.effort.fdatasyncs)
    return {f"p{percent}_s": percentile(found, percent) for percent in PERCENTS} | {"max_s": found[-1]}
