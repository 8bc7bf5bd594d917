"""Kafka Streams counts words in a state store, exactly_once_v2, while it and our broker are killed.

`clusters/WordCount.java` writes a record for every word that it counts, so what it wrote says all: read as committed,
the counts of each word are 1, 2, 3 and so on, each once.
"""

from __future__ import annotations

import random
import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clusters.maven import KAFKA_STREAMS, JarsUnavailable, class_path, fetch
from confluent_kafka import Consumer, Producer, TopicPartition

from faults.served import ServedDirectory

WORD_COUNT = Path(__file__).resolve().parents[2] / "clusters" / "WordCount.java"
ARGUMENTS = (
    *("--create", "lines:2", "--create", "counts:2"),
    *("-X", "group.min.session.timeout.ms=1000", "-X", "group.initial.rebalance.delay.ms=0"),
)
WORDS = [f"word-{number}" for number in range(20)]
POLLS_MAX = 900
"""A tenth of a second each."""


@contextmanager
def word_count(served: ServedDirectory, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    classes = class_path(fetch(KAFKA_STREAMS))
    command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF", "-cp", classes]
    command += [str(WORD_COUNT), served.bootstrap, "lines", "counts", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class CountsReader:
    """What is committed in the topic of counts, from its start on."""

    def __init__(self, bootstrap: str) -> None:
        quick = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "log_level": 0}
        named = {"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed"}
        self._consumer = Consumer({**named, **quick, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition("counts", number, 0) for number in range(2)])
        self.counts: defaultdict[str, list[int]] = defaultdict(list)
        self.seen = 0

    def wait_more(self, count: int) -> None:
        end = self.seen + count
        for _ in range(POLLS_MAX):
            if self.seen >= end:
                return
            for message in self._consumer.consume(1000, 0.1):
                key, value = message.key(), message.value()
                if isinstance(key, bytes) and isinstance(value, bytes):
                    self.counts[key.decode()].append(int(value))
                    self.seen += 1
        raise AssertionError(f"{self.seen} counts came, and not {end}")

    def close(self) -> None:
        self._consumer.close()


def write_lines(bootstrap: str, rng: random.Random, count: int) -> Counter[str]:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    written: Counter[str] = Counter()
    for number in range(count):
        words = rng.choices(WORDS, k=4)
        written.update(words)
        producer.produce("lines", " ".join(words), key=str(number), partition=number % 2)
    assert producer.flush(60) == 0
    return written


def test_kafka_streams_counts_every_word_once_under_kills(tmp_path: Path) -> None:
    try:
        fetch(KAFKA_STREAMS)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    rng = random.Random(7)
    with ServedDirectory(tmp_path, *ARGUMENTS) as served:
        written = write_lines(served.bootstrap, rng, 5000)
        reader = CountsReader(served.bootstrap)
        for kills_broker in (False, True, True):
            with word_count(served, tmp_path / "state"):
                reader.wait_more(rng.randrange(1, 2000))
                if kills_broker:
                    assert served.end(signal.SIGKILL) == -signal.SIGKILL
                    served.start()
                    reader.wait_more(rng.randrange(1, 2000))
        with word_count(served, tmp_path / "state"):
            reader.wait_more(written.total() - reader.seen)
        reader.close()
        assert reader.counts == {word: list(range(1, count + 1)) for word, count in written.items()}
