"""The fan-out of the texts: one producer, and 1, 4 and 16 groups that each read everything while it is written."""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path

from bench.kafka.clients import Clients, elapsed_s
from bench.kafka.recorder import Figures, Recorder, watched
from bench.kafka.results import Case
from bench.kafka.sides import FOLDLOG, KAFKA, RELAXED, Side, both

GROUPS = (1, 4, 16)
VALUE_BYTES = 1000
PARTITIONS = 4

_number = count()


def run(recorder: Recorder, directory: Path) -> None:
    with both(directory) as sides:
        for name in (KAFKA, FOLDLOG):  # Kafka makes its topic of offsets, and its compiler has seen the work
            _deliver(recorder, sides[name], 1, relaxed=False)
        for groups in GROUPS:
            case: Case = {"groups": groups, "value_bytes": VALUE_BYTES}
            recorder.in_turns(
                case,
                {
                    KAFKA: partial(_deliver, recorder, sides[KAFKA], groups, relaxed=False),
                    FOLDLOG: partial(_deliver, recorder, sides[FOLDLOG], groups, relaxed=False),
                    RELAXED: partial(_deliver, recorder, sides[RELAXED], groups, relaxed=True),
                },
            )


def _deliver(recorder: Recorder, side: Side, groups: int, *, relaxed: bool) -> Figures:
    """From the first record sent to the last record read by the last group; the groups commit as consumers do."""
    number = next(_number)
    topic, records = f"fan-out-{number:04d}", recorder.effort.fan_out_records
    side.create_topic(topic, PARTITIONS, relaxed=relaxed)
    producer = {
        "do": "produce", "topic": topic, "records": records, "value_bytes": VALUE_BYTES,
        "settings": {"bootstrap.servers": side.bootstrap, "acks": "all"},
    }  # fmt: skip
    consumers = [
        {
            "do": "consume", "bootstrap": side.bootstrap, "topic": topic, "records": records + 1,
            "group": f"{topic}-{group:02d}",
        }
        for group in range(groups)
    ]  # fmt: skip
    recorder.settle()
    with Clients([producer, *consumers]) as clients:

        def work() -> Figures:
            answers = clients.go()
            delivered = sum(one["records"] for one in answers[1:])
            speed = delivered / elapsed_s(answers)
            return {
                "delivered_per_s": speed,
                "delivered_bytes_per_s": speed * VALUE_BYTES,
                "produced_per_s": records / elapsed_s(answers[:1]),
                "delivered": delivered,
            }

        figures = watched(side.pid, work)
    side.delete_topic(topic)
    return figures
