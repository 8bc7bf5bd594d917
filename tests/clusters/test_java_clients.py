"""Java's own clients at our broker: transactions (of version 2), and what a client hears of what is not there.

Kafka's tools are the programs, whose producer and consumer are those of kafka-clients, and `clusters/ExactlyOnce.java`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters.kafka_tools import EXACTLY_ONCE, run_tool
from clusters.maven import KAFKA, JarsUnavailable, class_path, fetch
from confluent_kafka import Producer

import foldlog
from foldlog.testing import KafkaBroker

TIMEOUT_S = 120


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker.launch(path=tmp_path / "data") as started:
        with foldlog.open(tmp_path / "data") as log:
            log.create_topic("orders")
        yield started


def run(broker: KafkaBroker, tool: str, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        return run_tool(tool, "--bootstrap-server", str(broker), "--topic", "orders", *words)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))


def test_the_tool_that_measures_producers_measures_transactions(broker: KafkaBroker) -> None:
    many = ("--num-records", "1000", "--record-size", "10", "--throughput", "-1")
    done = run(broker, "kafka-producer-perf-test", *many, "--transactional-id", "tx", "--transaction-duration-ms", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(values(broker, "orders")) == 1000


def test_records_are_consumed_transformed_and_produced_once(broker: KafkaBroker) -> None:
    """Every third transaction is aborted, with its records and its offsets. Without transactions its records would be
    there twice, and with its offsets the next one would begin behind them."""
    with foldlog.connect(f"kafka://{broker}") as log:
        log.create_topic("input", partitions=3)
        log.create_topic("output", partitions=2)
        for number in range(1000):
            log.append("input", str(number), key=str(number % 7))
    done = exactly_once("copy", broker, "input", "output", "copiers", "copier", 1000)
    counted = re.fullmatch(r"committed (\d+) aborted (\d+)\n", done.stdout)
    assert counted is not None, done.stdout + done.stderr
    assert int(counted[2]) > 0
    assert sorted(int(value[:-1]) for value in values(broker, "output")) == list(range(1000))
    assert len(values(broker, "output", "read_uncommitted")) > 1000, "the aborted ones are in the log"
    with foldlog.connect(f"kafka://{broker}") as log:
        assert sum(committed.offset for committed in log.committed("copiers").values()) == 1000
    described = run_tool("kafka-transactions", "--bootstrap-server", broker, "describe", "--transactional-id", "copier")
    epoch = int(described.stdout.splitlines()[1].split()[3])
    assert epoch >= int(counted[1]) + int(counted[2]), "each end raises the epoch: that is version 2"


def test_a_producer_whose_id_was_taken_over_is_fenced(broker: KafkaBroker) -> None:
    assert exactly_once("fence", broker, "orders", "shared").stdout == "fenced\n"
    assert values(broker, "orders") == [b"of its successor"]


def test_the_transactions_tool_lists_describes_and_ends(broker: KafkaBroker) -> None:
    """One that its producer left open."""
    producer = Producer({"bootstrap.servers": str(broker), "transactional.id": "left-open"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"undecided")
    producer.flush()

    def tool(*words: object) -> str:
        done = run_tool("kafka-transactions", "--bootstrap-server", broker, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    (listed,) = tool("list").splitlines()[1:]
    assert listed.split()[0::3] == ["left-open", "Ongoing"]
    assert "Ongoing" in tool("describe", "--transactional-id", "left-open")
    (one,) = tool("describe-producers", "--topic", "orders", "--partition", 0).splitlines()[1:]
    start = one.split()[-1]
    assert start == "0"
    assert tool("find-hanging", "--broker-id", 1, "--max-transaction-timeout", 15).splitlines()[1:] == []
    tool("abort", "--topic", "orders", "--partition", 0, "--start-offset", start)
    (one,) = tool("describe-producers", "--topic", "orders", "--partition", 0).splitlines()[1:]
    assert one.split()[-1] == "None"
    assert values(broker, "orders") == []


def values(broker: KafkaBroker, topic: str, isolation_level: str = "read_committed") -> list[bytes]:
    with foldlog.connect(f"kafka://{broker}", properties={"isolation.level": isolation_level}) as log:
        partitions = range(log.topic(topic).partition_count)
        return [record.value or b"" for number in partitions for record in log.read(topic, number)]


def exactly_once(*words: object) -> subprocess.CompletedProcess[str]:
    try:
        classes = class_path(fetch(KAFKA))
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    command = ["java", "-XX:+UseSerialGC", "-Dlog4j2.level=ERROR", "-cp", classes, str(EXACTLY_ONCE), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_a_consumer_with_the_new_group_protocol_is_told_to_use_the_classic_one(broker: KafkaBroker) -> None:
    """It ends at once: the timeout is that of a consumer that waits for records, and would be reached in silence."""
    waiting = ("--timeout-ms", "60000", "--group", "readers", "--command-property", "group.protocol=consumer")
    done = run(broker, "kafka-console-consumer", *waiting)
    assert "UnsupportedVersionException" in done.stdout + done.stderr
    assert "Set group.protocol=classic" in done.stdout + done.stderr
