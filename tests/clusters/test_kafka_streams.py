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
from confluent_kafka import Producer

from faults.committed_reader import CommittedReader
from faults.served import ServedDirectory

WORD_COUNT = Path(__file__).resolve().parents[2] / "clusters" / "WordCount.java"
ARGUMENTS = (
    *("--create", "lines:2", "--create", "counts:2"),
    *("-X", "group.min.session.timeout.ms=1000", "-X", "group.initial.rebalance.delay.ms=0"),
)
WORDS = [f"word-{number}" for number in range(20)]


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


def counts_of(reader: CommittedReader) -> dict[str, list[int]]:
    """The counts of each word, in the order in which they came."""
    counts: defaultdict[str, list[int]] = defaultdict(list)
    for word, count in reader.records:
        assert word is not None
        assert count is not None
        counts[word].append(int(count))
    return counts


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
    with (
        ServedDirectory(tmp_path, *ARGUMENTS) as served,
        CommittedReader(served.bootstrap, "counts", partitions=2) as reader,
    ):
        written = write_lines(served.bootstrap, rng, 5000)
        for kills_broker in (False, True, True):
            with word_count(served, tmp_path / "state"):
                reader.wait_more(rng.randrange(1, 2000))
                if kills_broker:
                    assert served.end(signal.SIGKILL) == -signal.SIGKILL
                    served.start()
                    reader.wait_more(rng.randrange(1, 2000))
        with word_count(served, tmp_path / "state"):
            reader.wait_more(written.total() - len(reader.records))
        assert counts_of(reader) == {word: list(range(1, count + 1)) for word, count in written.items()}
