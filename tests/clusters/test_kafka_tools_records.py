"""Kafka's own tools that write and read records, and what the tools say that need more than our broker serves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from clusters.both_sides import BothSides
from clusters.kafka_tools import run_tool

import foldlog

LONG_ENOUGH = ("--timeout-ms", "60000")
EVERYTHING_SHOWN = [
    word
    for shown in ("key", "headers", "offset", "partition")
    for word in ("--formatter-property", f"print.{shown}=true")
]


# --- console ----------------------------------------------------------------------------------------------------------


def test_what_the_console_producer_writes_the_console_consumer_shows(both_sides: BothSides) -> None:
    """Keys, headers, tombstones, codecs; from the beginning, from an offset, by a pattern, and as a group goes on."""

    def consume(count: int, *arguments: object) -> list[str]:
        shown = both_sides.same("kafka-console-consumer", *arguments, "--max-messages", count, *LONG_ENOUGH)
        assert f"Processed a total of {count} messages" in shown
        return [line for line in shown if "KIP-848" not in line and not line.startswith("Processed")]

    name = "tool-console"
    both_sides.same("kafka-topics", "--create", "--topic", name)
    parsed = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    properties = [word for one in parsed for word in ("--reader-property", one)]
    lines = "h1:a,h2:b\tk1\tv1\nNULL\tk2\tNULL\nh:x\tNULL\tv3\n"
    assert both_sides.same("kafka-console-producer", "--topic", name, *properties, text=lines) == []
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        both_sides.same("kafka-console-producer", "--topic", name, "--compression-codec", codec, text=f"{codec}\n")
    both_sides.same("kafka-console-producer", "--topic", name, "--command-property", "acks=0", text="last\n")
    shown = ("--topic", name, "--from-beginning", *EVERYTHING_SHOWN, "--formatter-property", "null.literal=NIL")
    everything = consume(8, *shown)
    assert everything[:3] == [
        "Partition:0\tOffset:0\th1:a,h2:b\tk1\tv1",
        "Partition:0\tOffset:1\tNO_HEADERS\tk2\tNIL",
        "Partition:0\tOffset:2\th:x\tNIL\tv3",
    ]
    assert [line.split("\t")[-1] for line in everything[3:]] == ["gzip", "snappy", "lz4", "zstd", "last"]
    assert consume(1, "--topic", name, "--partition", 0, "--offset", 3) == ["gzip"]
    assert consume(2, "--include", "tool-cons.*", "--from-beginning") == ["v1", "null"]
    assert consume(1, "--topic", name, "--isolation-level", "read_committed", "--from-beginning") == ["v1"]
    assert consume(2, "--topic", name, "--group", "tool-console", "--from-beginning") == ["v1", "null"]
    assert consume(3, "--topic", name, "--group", "tool-console") == ["v3", "gzip", "snappy"]


def test_a_name_that_no_topic_can_have_is_said_by_the_console_producer(both_sides: BothSides) -> None:
    told = both_sides.same("kafka-console-producer", "--topic", "tool/odd", text="x\n")
    assert told[-1] == "Invalid topics: [tool/odd]"


# --- the offsets topic ------------------------------------------------------------------------------------------------


def formatted(both_sides: BothSides, formatter: str, count: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Keys and values of those of the first `count` records of the offsets topic that the formatter is for."""
    done = both_sides.ours(
        "kafka-console-consumer", "--topic", "__consumer_offsets", "--from-beginning", "--max-messages", count,
        "--formatter", f"org.apache.kafka.tools.consumer.{formatter}", *LONG_ENOUGH,
    )  # fmt: skip
    found, decoder, at = [], json.JSONDecoder(), 0
    while at < len(done.stdout.rstrip()):
        one, at = decoder.raw_decode(done.stdout, at)
        found.append((one["key"]["data"], (one["value"] or {}).get("data", {})))
    return found


def test_kafkas_formatters_read_our_offsets_topic(both_sides: BothSides) -> None:
    """What groups committed and who was in them, in Kafka's own keys and values."""
    log = both_sides.broker.log
    log.create_topic("tool-committed", partitions=2)
    log.append("tool-committed", b"one", partition=1)
    with (
        foldlog.connect(f"kafka://{both_sides.broker}") as connected,
        connected.consumer(["tool-committed"], group="tool-formatted", auto_offset_reset="earliest") as consumer,
    ):
        assert [record.value for record in consumer.poll(timeout_ms=60_000)] == [b"one"]
        consumer.commit()
    count = len(list(log.read("__consumer_offsets", 0)))
    commits = [
        (key["topic"], key["partition"], value["offset"])
        for key, value in formatted(both_sides, "OffsetsMessageFormatter", count)
        if key["group"] == "tool-formatted"
    ]
    assert ("tool-committed", 1, 1) in commits
    generations = [
        value
        for key, value in formatted(both_sides, "GroupMetadataMessageFormatter", count)
        if key["group"] == "tool-formatted"
    ]
    assert any(group.get("protocolType") == "consumer" and group["members"] for group in generations)


# --- measuring and verifying ------------------------------------------------------------------------------------------


def test_the_perf_tools_count_what_they_sent_and_read(both_sides: BothSides) -> None:
    both_sides.broker.create_topic("tool-perf", 3)
    sent = both_sides.ours(
        "kafka-producer-perf-test", "--topic", "tool-perf", "--num-records", 3000, "--record-size", 100,
        "--throughput", -1, "--command-property", "compression.type=lz4",
    )  # fmt: skip
    assert sent.stdout.startswith("3000 records sent, "), sent
    read = both_sides.ours(
        "kafka-consumer-perf-test", "--topic", "tool-perf", "--num-records", 3000, "--timeout", 60_000
    )
    assert read.stdout.splitlines()[1].split(", ")[4] == "3000", read
    latency = both_sides.ours(
        "kafka-e2e-latency",
        "--topic",
        "tool-latency",
        "--num-records",
        10,
        "--producer-acks",
        "all",
        "--record-size",
        9,
    )
    assert "Avg latency: " in latency.stdout, latency


def test_the_verifiable_consumer_reads_what_the_verifiable_producer_was_acknowledged(both_sides: BothSides) -> None:
    name = "tool-verified"
    both_sides.broker.create_topic(name, 3)
    sent = run_tool(
        "kafka-verifiable-producer", "--bootstrap-server", both_sides.broker, "--topic", name,
        "--max-messages", 60, "--acks", -1, "--repeating-keys", 7,
    )  # fmt: skip
    events = [json.loads(line) for line in sent.stdout.splitlines()]
    acknowledged = {(one["partition"], one["offset"]) for one in events if one["name"] == "producer_send_success"}
    assert len(acknowledged) == 60
    assert events[-1]["name"] == "tool_data"
    assert (events[-1]["sent"], events[-1]["acked"]) == (60, 60)
    read = both_sides.ours(
        "kafka-verifiable-consumer", "--topic", name, "--group-id", "tool-verified", "--max-messages", 60,
        "--reset-policy", "earliest", "--group-instance-id", "verifier",
    )  # fmt: skip
    told = [json.loads(line) for line in read.stdout.splitlines()]
    ranges = [one for event in told if event["name"] == "records_consumed" for one in event["partitions"]]
    consumed = {
        (one["partition"], offset) for one in ranges for offset in range(one["minOffset"], one["maxOffset"] + 1)
    }
    assert consumed == acknowledged
    ends = [event for event in told if event["name"] == "offsets_committed"]
    assert all(event["success"] for event in ends)
    assert sum(at.offset for at in both_sides.broker.log.committed("tool-verified").values()) == 60


# --- the broker itself ------------------------------------------------------------------------------------------------


def test_the_tools_of_a_cluster_find_one_broker(both_sides: BothSides) -> None:
    endpoints = both_sides.ours("kafka-cluster", "list-endpoints").stdout.splitlines()[1].split()
    assert endpoints == ["1", *both_sides.broker.split(":"), "null", "unfenced", "broker"]
    assert re.fullmatch(r"Cluster ID: \S+\n", both_sides.ours("kafka-cluster", "cluster-id").stdout)
    versions = both_sides.ours("kafka-broker-api-versions").stdout
    for served in ("Produce(0): 0 to 13 [usable: 13]", "Fetch(1): 4 to 18 [usable: 18]"):
        assert served in versions
    assert both_sides.ours("kafka-features", "describe").returncode == 0


@pytest.mark.parametrize(
    ("tool", "arguments", "sentence"),
    [
        ("kafka-acls", ("--list",), "No Authorizer is configured"),
        ("kafka-cluster", ("unregister", "--id", "1"), "does not support the broker unregistration API"),
        ("kafka-features", ("upgrade", "--metadata", "4.0"), "there is no such feature here"),
        ("kafka-streams-groups", ("--describe", "--group", "x"), "does not support STREAMS_GROUP_DESCRIBE"),
    ],
)
def test_what_is_not_served_is_said_at_once(
    both_sides: BothSides, tool: str, arguments: tuple[str, ...], sentence: str
) -> None:
    done = both_sides.ours(tool, *arguments)
    assert sentence in done.stdout + done.stderr


def test_users_and_quotas_are_changed_and_shown_alike(both_sides: BothSides) -> None:
    for kind, name, quota in (
        ("users", "tool-user", "request_percentage=12.5"),
        ("clients", "tool-client", "consumer_byte_rate=2048"),
        ("ips", "127.0.0.9", "connection_creation_rate=7"),
    ):
        entity = ("--entity-type", kind, "--entity-name", name)
        both_sides.same("kafka-configs", *entity, "--alter", "--add-config", quota)
        both_sides.same("kafka-configs", *entity, "--describe")
        both_sides.same("kafka-configs", *entity, "--alter", "--delete-config", quota.partition("=")[0])
        both_sides.same("kafka-configs", *entity, "--describe")
    user = ("--entity-type", "users", "--entity-name", "tool-scram")
    both_sides.same(
        "kafka-configs", *user, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]"
    )
    both_sides.same("kafka-configs", *user, "--describe")
    both_sides.same("kafka-configs", *user, "--alter", "--delete-config", "SCRAM-SHA-256")


def test_the_tools_of_a_cluster_hear_the_truth_about_one_broker(both_sides: BothSides) -> None:
    name = "tool-one-node"
    both_sides.same("kafka-topics", "--create", "--topic", name)
    both_sides.same("kafka-client-metrics", "--list")
    both_sides.same("kafka-reassign-partitions", "--list")
    both_sides.same("kafka-leader-election", "--all-topic-partitions", "--election-type", "preferred")
    both_sides.same("kafka-leader-election", "--topic", name, "--partition", 0, "--election-type", "preferred")
    status = both_sides.ours("kafka-metadata-quorum", "describe", "--status")
    assert re.search(r"LeaderId: +1\n", status.stdout), status.stdout + status.stderr


def test_producers_of_a_partition_are_described_and_delegation_tokens_refused(
    both_sides: BothSides, tmp_path: Path
) -> None:
    name = "tool-producers"
    both_sides.same("kafka-topics", "--create", "--topic", name)
    both_sides.same("kafka-console-producer", "--topic", name, text="one\ntwo\n")
    both_sides.ours("kafka-transactions", "find-hanging", "--broker-id", 1)
    producers = both_sides.ours("kafka-transactions", "describe-producers", "--topic", name, "--partition", 0).stdout
    _, epoch, _, last_sequence, *_, transaction = producers.splitlines()[1].split()
    assert (epoch, last_sequence, transaction) == ("0", "1", "None")
    nothing = tmp_path / "client.properties"
    nothing.write_text("")
    tokens = both_sides.ours("kafka-delegation-tokens", "--describe", "--command-config", nothing)
    assert "does not support DESCRIBE_DELEGATION_TOKEN" in tokens.stdout + tokens.stderr
