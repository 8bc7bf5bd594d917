"""Java's own client at our broker, with what the broker does not have: it ends with a sentence that says what to do.

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
from foldlog.testing import KafkaBroker


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


def test_a_transactional_producer_is_told_to_leave_its_id_out(broker: KafkaBroker) -> None:
    many = ("--num-records", "10", "--record-size", "10", "--throughput", "-1")
    done = run(broker, "kafka-producer-perf-test", *many, "--transactional-id", "tx")
    assert done.returncode == 1
    assert "this broker has no transactions; remove transactional.id (idempotent producers work)" in done.stderr
    assert "uthoriz" not in done.stderr
    assert run(broker, "kafka-producer-perf-test", *many).returncode == 0, "and without it, it works"


def test_a_consumer_with_the_new_group_protocol_is_told_to_use_the_classic_one(broker: KafkaBroker) -> None:
    """It ends at once: the timeout is that of a consumer that waits for records, and would be reached in silence."""
    waiting = ("--timeout-ms", "60000", "--group", "readers", "--command-property", "group.protocol=consumer")
    done = run(broker, "kafka-console-consumer", *waiting)
    assert "UnsupportedVersionException" in done.stdout + done.stderr
    assert "Set group.protocol=classic" in done.stdout + done.stderr
