"""Java's own client at our broker: of the new group protocol, and with what the broker does not have, where it ends
with a sentence that says what to do.

Kafka's tools are the programs: their producer and consumer are those of kafka-clients.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters.kafka_tools import run_tool
from clusters.maven import JarsUnavailable

import foldlog
from foldlog import TopicPartition
from foldlog.testing import KafkaBroker

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


def test_a_transactional_producer_is_told_to_leave_its_id_out(broker: KafkaBroker) -> None:
    many = ("--num-records", "10", "--record-size", "10", "--throughput", "-1")
    done = run(broker, "kafka-producer-perf-test", *many, "--transactional-id", "tx")
    assert done.returncode == 1
    assert "this broker has no transactions; remove transactional.id (idempotent producers work)" in done.stderr
    assert "uthoriz" not in done.stderr
    assert run(broker, "kafka-producer-perf-test", *many).returncode == 0, "and without it, it works"


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
