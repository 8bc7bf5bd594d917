"""Quix Streams counts the records of each key in a state store, exactly once, while it and our broker are killed.

`clusters/quix_counts.py` writes a record for every record that it counts, so what it wrote says all: read as committed,
the counts of each key are 1, 2, 3 and so on, each once.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from clusters.processes import ClusterProcess
from clusters.quix import QuixUnavailable, quix_counts
from confluent_kafka import Producer

from faults.committed_reader import CommittedReader
from faults.served import ServedDirectory

ARGUMENTS = (
    *("--create", "lines:2", "--create", "counts:2"),
    *("-X", "group.min.session.timeout.ms=1000", "-X", "group.initial.rebalance.delay.ms=0"),
)
KEYS = [f"key-{number}" for number in range(20)]
STUCK_S = 30
"""After this long without a new count the program is started anew: when a broker comes back, librdkafka's
`send_offsets_to_transaction` may send nothing and wait (its issues 5456 and 5511)."""


class Supervisor:
    """Starts the program again when it has ended, as its operator does, or hangs."""

    def __init__(self, process: ClusterProcess, reader: CommittedReader) -> None:
        self._process = process
        self._reader = reader
        self._seen = -1
        self._seen_s = time.monotonic()

    def look(self) -> None:
        now_s = time.monotonic()
        if len(self._reader.records) != self._seen:
            self._seen, self._seen_s = len(self._reader.records), now_s
        if not self._process.is_running or now_s - self._seen_s > STUCK_S:
            self._process.kill()
            self._process.start()
            self._seen_s = now_s

    def wait_for(self, count: int) -> None:
        def has_come() -> bool:
            self.look()
            return len(self._reader.records) >= count

        self._reader.wait_until(has_come)


def write(bootstrap: str, rng: random.Random, count: int) -> Counter[str]:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    written: Counter[str] = Counter()
    for _ in range(count):
        at = rng.randrange(len(KEYS))
        written[KEYS[at]] += 1
        producer.produce("lines", "a line", key=KEYS[at], partition=at % 2)
    assert producer.flush(60) == 0
    return written


def test_quix_streams_counts_every_record_once_under_kills(tmp_path: Path) -> None:
    rng = random.Random(5)
    with ServedDirectory(tmp_path, *ARGUMENTS) as served, CommittedReader(served.bootstrap, "counts", 2) as reader:
        written = write(served.bootstrap, rng, 5000)
        try:
            process = quix_counts(served.bootstrap, "lines", "counts", tmp_path)
        except QuixUnavailable as missing:
            pytest.skip(str(missing))
        supervisor = Supervisor(process, reader)
        for kills_broker in (False, True):
            supervisor.wait_for(len(reader.records) + rng.randrange(1, 1500))
            if kills_broker:
                assert served.end(signal.SIGKILL) == -signal.SIGKILL
                served.start()
            else:
                process.kill()
        supervisor.wait_for(written.total())
        process.kill()
    counts = {key: [int(count or "") for name, count in reader.records if name == key] for key in KEYS}
    assert counts == {key: list(range(1, written[key] + 1)) for key in KEYS}
