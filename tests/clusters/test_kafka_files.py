"""Files that Apache Kafka is writing, and that it leaves behind when it is killed, are read as its own consumers read.

One broker of its own, as the topics need its cleaner and its checkpoints to be quick. It is filled, read by confluent-
kafka for the truth and by us from its files, and killed with -9; the tests look at what is left. What else can be wrong
with such files is in tests/broker/kafka_files/test_kafka_directory.py, on files that were written the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from clusters.apache_kafka import ApacheKafka
from clusters.kafka_facts import Facts, Row
from clusters.kafka_files import PROPERTIES, TOPICS, KafkaFiles, ask_facts
from clusters.kafka_tools import run_tool
from clusters.maven import JarsUnavailable

import foldlog
from foldlog.cli.main import main
from foldlog.client.backends.directory import broker_of
from kafka_truth import committed_by_groups, read_all, state_of

pytestmark = pytest.mark.timeout(900)  # the first test waits for a broker that starts twice

LEVELS = ("read_uncommitted", "read_committed")


@dataclass(frozen=True)
class Left:
    """What a killed broker left, what its consumers had read, and what we had read beside it."""

    data: Path
    facts: Facts
    live: dict[str, dict[str, list[Row]]]
    live_groups: dict[str, dict[str, int]]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    try:
        with ApacheKafka.launch(tmp_path_factory.mktemp("files"), properties=PROPERTIES) as kafka:
            files = KafkaFiles(kafka)
            files.write()
            facts, data = ask_facts(kafka), kafka.brokers[0].data
            live = {level: read_all(data, level) for level in LEVELS}
            live_groups = committed_by_groups(data)
            kafka.brokers[0].kill()
            files.close()
            yield Left(data, facts, live, live_groups)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))


def truth(facts: Facts, level: str) -> dict[str, list[Row]]:
    return {topic: facts.records[topic] if level == LEVELS[0] else facts.committed_records(topic) for topic in TOPICS}


@pytest.mark.parametrize("level", LEVELS)
def test_files_are_read_right_while_kafka_writes_them_and_after_it_was_killed(left: Left, level: str) -> None:
    assert left.live[level] == truth(left.facts, level)
    assert read_all(left.data, level) == truth(left.facts, level)


def test_the_truth_has_everything_in_it(left: Left) -> None:
    """Codecs, segments, gaps, aborted transactions, deleted records, append times, room made ahead: none is missing."""
    records = left.facts.records
    assert {row["headers"][0][1] for row in records["codecs"]} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert len(list((left.data / "orders.eu-west-0").glob("*.log"))) == 5
    offsets = [row["offset"] for row in records["prices"]]
    assert len(offsets) < offsets[-1] - offsets[0] + 1
    assert any(row["value"] is None for row in records["prices"])
    assert {"aborted", "open"} <= {row["key"] for row in records["payments"]}
    assert not {"aborted", "open"} & {row["key"] for row in left.facts.committed_records("payments")}
    assert records["expired"][0]["offset"] == 7
    assert {row["timestamp_type"] for row in records["stamped"]} == {1}
    [roomy] = (left.data / "roomy-0").glob("*.log")
    assert roomy.stat().st_size == 1 << 20
    assert left.facts.groups["settled"]
    assert not left.facts.groups["dropped"]


def test_groups_stand_where_kafka_has_them(left: Left) -> None:
    expected = {group: places for group, places in left.facts.groups.items() if places}
    assert left.live_groups == expected
    assert committed_by_groups(left.data) == expected


def test_check_and_dump_read_every_file_and_change_none(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    before = state_of(left.data)
    assert main(["check", str(left.data)]) == 0
    assert "DAMAGED" not in capsys.readouterr().out
    assert main(["dump", "--all", "--records", str(left.data)]) == 0
    assert "DAMAGED" not in capsys.readouterr().out
    assert state_of(left.data) == before


def test_dump_agrees_with_kafkas_own_tool(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    """On batches and markers of the segment with transactions, offset by offset."""
    segment = max((left.data / "payments-0").glob("*.log"))
    theirs = run_tool("kafka-dump-log", "--files", segment, "--print-data-log").stdout
    assert main(["dump", "--records", str(segment)]) == 0
    ours = capsys.readouterr().out
    for kind, word in (("ABORT", "  abort of producer"), ("COMMIT", "  commit of producer")):
        assert theirs.count(f"endTxnMarker: {kind}") == ours.count(word) > 0, theirs
    assert theirs.count("baseOffset: ") == ours.count("  @"), theirs


def test_a_copy_of_the_directory_has_what_was_committed(
    left: Left, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["copy", "--all", "--from", str(left.data), "--to", str(tmp_path / "copy")]) == 0
    capsys.readouterr()
    assert read_all(tmp_path / "copy") == truth(left.facts, "read_committed")


def test_what_a_running_kafka_writes_arrives(apache_kafka: ApacheKafka) -> None:
    """A tail of its files sees each record, also in a topic that is made meanwhile."""
    data = apache_kafka.brokers[0].data
    with foldlog.open(data, mode="r") as files, foldlog.connect(apache_kafka.url) as cluster:
        cluster.create_topic("files_arriving")
        cluster.append("files_arriving", b"0")
        broker_of(files).look_again()
        tail = files.read("files_arriving", 0, follow=True, timeout_ms=60_000)
        assert next(tail).value == b"0"
        for number in range(1, 4):
            cluster.append("files_arriving", b"%d" % number)
            assert next(tail).value == b"%d" % number
        tail.close()
