"""Java's KafkaShareConsumer and kafka-share-groups at our broker: share groups (KIP-932).

The worker is `clusters/ShareWorker.java`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters.kafka_tools import run_tool
from clusters.maven import KAFKA, JarsUnavailable, class_path, fetch

import foldlog
from foldlog.testing import KafkaBroker

WORKER = Path(__file__).resolve().parents[2] / "clusters" / "ShareWorker.java"
TIMEOUT_S = 120
GROUP = "workers"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker.launch(path=tmp_path / "data") as started:
        with foldlog.open(tmp_path / "data") as log:
            log.create_topic("jobs", partitions=2)
        yield started


def work(broker: KafkaBroker, count: int) -> list[str]:
    try:
        classes = class_path(fetch(KAFKA))
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    command = ["java", "-XX:+UseSerialGC", "-Dlog4j2.level=ERROR", "-cp", classes, str(WORKER)]
    command += [str(broker), "jobs", GROUP, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(done.stdout.splitlines())


def tool(broker: KafkaBroker, name: str, *words: str) -> str:
    try:
        done = run_tool(name, "--bootstrap-server", str(broker), *words)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_worker_accepts_releases_rejects_and_renews(broker: KafkaBroker) -> None:
    tool(broker, "kafka-configs", "--alter", "--group", GROUP, "--add-config", "share.auto.offset.reset=earliest")
    with foldlog.connect(f"kafka://{broker}") as log:
        for value in ("plain", "release", "reject", "renew"):
            log.append("jobs", value)
        assert work(broker, 4) == ["plain 1", "reject 1", "release 1", "release 2", "renew 1", "renew 1"]
        assert sum(log.lag(GROUP).values()) == 0
        log.append("jobs", "later")
        assert work(broker, 1) == ["later 1"], "nothing that is done comes again"


def test_the_tool_lists_describes_resets_and_deletes(broker: KafkaBroker) -> None:
    tool(broker, "kafka-configs", "--alter", "--group", GROUP, "--add-config", "share.auto.offset.reset=earliest")
    with foldlog.connect(f"kafka://{broker}") as log:
        log.append("jobs", "plain", partition=0)
        work(broker, 1)
        assert GROUP in tool(broker, "kafka-share-groups", "--list")
        described = tool(broker, "kafka-share-groups", "--describe", "--group", GROUP)
        row = next(line.split() for line in described.splitlines() if line.split()[:3] == [GROUP, "jobs", "0"])
        assert row[3:5] == ["1", "0"], described  # start offset and lag
        reset = ("--reset-offsets", "--group", GROUP, "--topic", "jobs:0", "--to-earliest", "--execute")
        tool(broker, "kafka-share-groups", *reset)
        assert log.lag(GROUP)[foldlog.TopicPartition("jobs", 0)] == 1
        assert work(broker, 1) == ["plain 1"], "it is given out anew"
        tool(broker, "kafka-share-groups", "--delete", "--group", GROUP)
        assert GROUP not in log.groups()


def test_kafkas_dump_tool_reads_what_is_stored_of_a_share_group(tmp_path: Path) -> None:
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("jobs")
        for _ in range(3):
            log.append("jobs", "plain")
        with log.queue("jobs", group=GROUP, auto_offset_reset="earliest") as queue:
            first, second, _ = queue.take()
            queue.ack(second)
            queue.release(first)
    for topic, decoder, expected in (
        ("__share_group_state", "--share-group-state-decoder", '"firstOffset":1,"lastOffset":1,"deliveryState":2'),
        ("__consumer_offsets", "--offsets-decoder", f'"type":"11","data":{{"groupId":"{GROUP}"}}'),
    ):
        (segment,) = (tmp_path / "data" / f"{topic}-0").glob("*.log")
        try:
            done = run_tool("kafka-dump-log", "--files", str(segment), decoder)
        except JarsUnavailable as missing:
            pytest.skip(str(missing))
        assert expected in done.stdout, done.stdout + done.stderr
