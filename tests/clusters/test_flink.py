"""Flink's Kafka source and sink copy a topic exactly once; the job fails, and its process and our broker are killed.

A sink of Flink's writes in a transaction for each checkpoint, and commits it when the checkpoint is complete: after a
kill that is done by another process, which goes on with the producer id and epoch of the one before it.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from clusters.flink import FLINK, FlinkCopy
from confluent_kafka import Producer

from faults.committed_reader import CommittedReader
from faults.served import ServedDirectory

ARGUMENTS = ("--create", "source:2", "--create", "target:2", "-X", "group.initial.rebalance.delay.ms=0")
PART = 3000
"""Records that are written before each of the troubles."""


def write(bootstrap: str, part: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(part * PART, (part + 1) * PART):
        producer.produce("source", str(number), partition=number % 2)
    assert producer.flush(60) == 0


def test_flink_copies_everything_once_under_failures_and_kills(
    tmp_path: Path, need_jars: Callable[[tuple[str, ...]], None]
) -> None:
    need_jars(FLINK)
    with (
        ServedDirectory(tmp_path, *ARGUMENTS) as served,
        CommittedReader(served.bootstrap, "target", partitions=2) as reader,
        FlinkCopy(tmp_path, served.bootstrap, "source", "target", fails_at=str(PART // 2)) as flink,
    ):
        write(served.bootstrap, 0)
        reader.wait_until(lambda: len(reader.records) >= PART)
        assert f"fails at {PART // 2}" in flink.process.output.read_text()
        write(served.bootstrap, 1)
        reader.wait_more(1)
        flink.kill()
        flink.start()
        write(served.bootstrap, 2)
        reader.wait_more(1)
        assert served.end(signal.SIGKILL) == -signal.SIGKILL
        served.start()
        write(served.bootstrap, 3)
        reader.wait_until(lambda: len(reader.records) >= 4 * PART)
    assert Counter(reader.values) == Counter(f"{number}!" for number in range(4 * PART))
