"""Java's own clients at our broker: transactions (of version 2), the new group protocol, and what a client hears of
what is not there.

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
from foldlog import TopicPartition
from foldlog.testing import KafkaBroker

TIMEOUT_S = 120
QUICK = {"group.consumer.heartbeat.interval.ms": 100}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker.launch(QUICK, path=tmp_path / "data") as started:
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


CONSUMER_PROTOCOL = ("--command-property", "group.protocol=consumer")


def test_a_consumer_of_the_new_group_protocol_reads_and_goes_on_where_it_was(broker: KafkaBroker) -> None:
    with foldlog.connect(f"kafka://{broker}") as log:
        for number in range(10):
            log.append("orders", f"order-{number}")
    reading = ("--from-beginning", "--group", "readers", "--max-messages", "4", "--timeout-ms", "60000")
    first = run(broker, "kafka-console-consumer", *reading, *CONSUMER_PROTOCOL)
    assert first.stdout.split() == [f"order-{number}" for number in range(4)], first.stderr
    second = run(broker, "kafka-console-consumer", *reading, *CONSUMER_PROTOCOL)
    assert second.stdout.split() == [f"order-{number}" for number in range(4, 8)], second.stderr
    with foldlog.connect(f"kafka://{broker}") as log:
        assert log.describe_group("readers").group_type == "consumer"
        assert log.committed("readers")[TopicPartition("orders", 0)].offset == 8


def test_the_new_group_protocol_subscribes_to_a_regular_expression_and_moves_to_it_from_the_classic_one(
    broker: KafkaBroker,
) -> None:
    pytest.importorskip("re2")
    with foldlog.connect(f"kafka://{broker}") as log:
        log.create_topic("refunds")
        for topic in ("orders", "refunds"):
            log.append(topic, f"one of {topic}")
    classic = ("--from-beginning", "--group", "movers", "--max-messages", "1", "--timeout-ms", "60000")
    assert run(broker, "kafka-console-consumer", *classic).stdout.strip() == "one of orders"
    included = ("--include", "orders|refunds", "--group", "movers", "--max-messages", "1", "--timeout-ms", "60000")
    done = run_tool(
        "kafka-console-consumer", "--bootstrap-server", str(broker), "--from-beginning", *included, *CONSUMER_PROTOCOL
    )
    assert done.stdout.strip() == "one of refunds", done.stderr


def test_kafkas_tool_describes_members_of_the_new_group_protocol(broker: KafkaBroker) -> None:
    with foldlog.connect(f"kafka://{broker}") as log:
        log.append("orders", "one")
    reading = ("--from-beginning", "--group", "readers", "--max-messages", "1", "--timeout-ms", "60000")
    run(broker, "kafka-console-consumer", *reading, *CONSUMER_PROTOCOL)
    groups = ("--bootstrap-server", str(broker), "--describe", "--group", "readers")
    state = run_tool("kafka-consumer-groups", *groups, "--state")
    assert "uniform" in state.stdout, state
    assert "Empty" in state.stdout
    listed = run_tool("kafka-groups", "--bootstrap-server", str(broker), "--list")
    assert "Consumer" in listed.stdout, listed
