"""Kafka's own tools for topics, settings, offsets and groups: the same commands at our broker and at Apache Kafka.

Where it says `same`, exit code and every line have to be the same. Where our broker words an error in its own way, the
exit codes are compared and the sentence is looked for.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from clusters.both_sides import BothSides

import foldlog

FIRST_MS = 1_700_000_000_000
"""The time of a topic's first record (2023-11-14T22:13:20Z); each later one is a second later."""


@pytest.fixture(scope="module")
def orders(both_sides: BothSides) -> str:
    """A topic with two partitions of ten records each, at both sides."""
    name = "tool-orders"
    for address in (both_sides.broker, both_sides.kafka):
        with foldlog.connect(f"kafka://{address}") as log:
            log.create_topic(name, partitions=2, config={"retention.ms": -1})
            for number in range(20):
                log.append(name, b"v%d" % number, partition=number % 2, timestamp_ms=FIRST_MS + 1000 * number)
    return name


# --- kafka-topics -----------------------------------------------------------------------------------------------------


def test_topics_are_made_described_grown_and_deleted(both_sides: BothSides) -> None:
    def topics(*arguments: object) -> list[str]:
        return both_sides.same("kafka-topics", *arguments)

    name = "tool-topic"
    assert topics("--create", "--topic", name, "--partitions", 2, "--config", "retention.ms=1000000") == [
        f"Created topic {name}."
    ]
    assert topics("--create", "--topic", name, "--if-not-exists") == []
    assert topics("--create", "--topic", f"{name}-placed", "--replica-assignment", "1,1,1") != []
    assert topics("--list", "--topic", f"{name}.*", "--exclude-internal") == [name, f"{name}-placed"]
    assert topics("--describe", "--topic", name) == [
        f"Topic: {name}\tTopicId: ID\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: retention.ms=1000000",
        f"\tTopic: {name}\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr:",
        f"\tTopic: {name}\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr:",
    ]
    assert len(topics("--describe", "--topic", f"{name}-placed", "--partition-size-limit-per-response", 1)) == 4
    assert len(topics("--describe", "--topic", name, "--topics-with-overrides")) == 1
    assert len(topics("--describe", "--topic", name, "--at-min-isr-partitions")) == 2
    for nothing in ("under-replicated", "unavailable", "under-min-isr"):
        assert topics("--describe", "--topic", name, f"--{nothing}-partitions") == []
    assert topics("--alter", "--topic", name, "--partitions", 4) == []
    assert len(topics("--describe", "--topic", name)) == 5
    assert topics("--delete", "--topic", f"{name}.*") == []
    assert topics("--list", "--topic", f"{name}.*") == []


def test_what_is_wrong_with_a_topic_is_said_in_one_sentence(both_sides: BothSides, orders: str) -> None:
    for wrong in (
        ("--create", "--topic", "tool-odd", "--config", "nonsense=3"),
        ("--create", "--topic", "tool-odd", "--config", "retention.ms=abc"),
        ("--create", "--topic", "tool-odd", "--partitions", "0"),
        ("--describe", "--topic", "tool-none"),
        ("--alter", "--topic", "tool-none", "--partitions", "3"),
        ("--delete", "--topic", "tool-none"),
    ):
        [sentence] = both_sides.same("kafka-topics", *wrong)[:1]
        assert sentence.startswith("Error while executing topic command : ")
    for sentence, *command in (
        (f"topic '{orders}' exists; it was left as it is", "--create", "--topic", orders),
        ("holds a character that is not allowed", "--create", "--topic", "tool/odd"),
        ("use a replication factor of 1 or -1", "--create", "--topic", "tool-odd", "--replication-factor", "3"),
        ("2 partitions, so 1 would not be more", "--alter", "--topic", orders, "--partitions", "1"),
        ("2 partitions, so 2 would not be more", "--alter", "--topic", orders, "--partitions", "2"),
    ):
        both_sides.both_refuse(sentence, "kafka-topics", *command)
    assert both_sides.same("kafka-topics", "--describe", "--topic", "tool-none", "--if-exists") == []
    assert both_sides.same("kafka-topics", "--delete", "--topic", "tool-none", "--if-exists") == []


# --- kafka-configs ----------------------------------------------------------------------------------------------------


def test_settings_of_a_topic_are_changed_and_put_back(both_sides: BothSides) -> None:
    def configs(*arguments: object) -> list[str]:
        return both_sides.same("kafka-configs", "--entity-type", "topics", "--entity-name", name, *arguments)

    name = "tool-settings"
    both_sides.same("kafka-topics", "--create", "--topic", name)
    changed = "cleanup.policy=[compact],retention.ms=77"
    assert configs("--alter", "--add-config", changed) == [f"Completed updating config for topic {name}."]
    title, policy, retention = configs("--describe")
    assert title == f"Dynamic configs for topic {name} are:"
    assert policy.startswith("  cleanup.policy=compact sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy")
    assert retention == "  retention.ms=77 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=77}"
    configs("--alter", "--delete-config", "cleanup.policy,retention.ms,segment.ms,nonsense")
    assert configs("--describe") == [f"Dynamic configs for topic {name} are:"]
    none = ("--entity-type", "topics", "--entity-name", "tool-none")
    assert len(both_sides.same("kafka-configs", *none, "--describe")) == 1
    both_sides.both_refuse(
        "there is no topic 'tool-none'", "kafka-configs", *none, "--alter", "--add-config", "flush.ms=5"
    )
    for sentence, change in (
        ("there is no topic setting 'nonsense'", "nonsense=1"),
        ("retention.ms is an integer from -1", "retention.ms=-5"),
    ):
        odd = ("--entity-type", "topics", "--entity-name", name, "--alter", "--add-config", change)
        both_sides.both_refuse(sentence, "kafka-configs", *odd)


def test_all_settings_of_a_topic_have_kafkas_values_but_for_those_that_the_docs_name(both_sides: BothSides) -> None:
    """docs/guarantees.md has the reasons; the three that only ours has were settings of Kafka before 4.0."""
    name = "tool-all-settings"
    both_sides.same("kafka-topics", "--create", "--topic", name)
    command = ("kafka-configs", "--entity-type", "topics", "--entity-name", name, "--describe", "--all")
    ours, theirs = (
        dict(re.findall(r"^  ([\w.]+)=(\S*) sensitive=false", side(*command).stdout, re.MULTILINE))
        for side in (both_sides.ours, both_sides.theirs)
    )
    assert theirs.keys() - ours.keys() == set()
    assert ours.keys() - theirs.keys() == {
        "foldlog.key.schema.validation",
        "foldlog.key.subject.name.strategy",
        "foldlog.max.decompressed.bytes",
        "foldlog.segment.records",
        "foldlog.value.schema.validation",
        "foldlog.value.subject.name.strategy",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.difference.max.ms",
    }
    assert {setting for setting, value in theirs.items() if ours[setting] != value} == {
        "flush.messages",
        "retention.ms",
    }


def test_settings_of_brokers_are_changed_and_shown_as_at_kafka(both_sides: BothSides) -> None:
    def configs(*arguments: object) -> list[str]:
        return both_sides.same("kafka-configs", "--entity-type", "brokers", *arguments)

    one, every = ("--entity-name", "1"), ("--entity-default",)
    for subject in (one, every):
        configs(*subject, "--alter", "--add-config", "log.segment.bytes=65536000,log.cleanup.policy=[compact,delete]")
        assert any("log.segment.bytes=65536000 sensitive=false" in line for line in configs(*subject, "--describe"))
    for subject in (one, every):
        configs(*subject, "--alter", "--delete-config", "log.segment.bytes,log.cleanup.policy")
        assert not any("log.segment.bytes" in line for line in configs(*subject, "--describe"))
    for change, sentence in (
        ("num.partitions=3", "is read when the broker starts"),
        ("max.connections=many", "max.connections is an integer from 1"),
    ):
        told = ("--entity-type", "brokers", *one, "--alter", "--add-config", change)
        both_sides.both_refuse(sentence, "kafka-configs", *told)


def test_subscriptions_to_clients_metrics_are_made_shown_and_deleted_as_at_kafka(both_sides: BothSides) -> None:
    def metrics(*arguments: object) -> list[str]:
        return both_sides.same("kafka-client-metrics", *arguments)

    metrics("--alter", "--name", "tool-latency", "--metrics", "org.apache.kafka.producer.", "--interval", 30000)
    assert "tool-latency" in metrics("--list")
    assert any("interval.ms=30000" in line for line in metrics("--describe", "--name", "tool-latency"))
    metrics("--delete", "--name", "tool-latency")
    assert "tool-latency" not in metrics("--list")


def test_settings_of_groups_are_changed_and_shown_as_at_kafka(both_sides: BothSides) -> None:
    def configs(*arguments: object) -> list[str]:
        return both_sides.same("kafka-configs", "--group", "tool-settings", *arguments)

    changed = "consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000,share.auto.offset.reset=earliest"
    configs("--alter", "--add-config", changed)
    shown = configs("--describe")
    assert [line.split()[0] for line in shown[1:]] == sorted(changed.split(","))
    assert any("DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000" in line for line in shown)
    for change, sentence in (
        ("consumer.session.timeout.ms=60001", "an integer from 100 to 60000"),
        ("consumer.heartbeat.interval.ms=15001", "an integer from 10 to 15000"),
        ("consumer.assignment.interval.ms=15001", "an integer from 0 to 15000"),
        ("consumer.session.timeout.ms=soon", "an integer"),
        ("consumer.no.such.setting=1", "a group has no setting 'consumer.no.such.setting'"),
    ):
        told = ("--group", "tool-settings", "--alter", "--add-config", change)
        both_sides.both_refuse(sentence, "kafka-configs", *told)
    configs("--alter", "--delete-config", "consumer.session.timeout.ms,consumer.heartbeat.interval.ms")
    configs("--alter", "--delete-config", "share.auto.offset.reset")
    assert configs("--describe") == ["The group 'tool-settings' doesn't exist and doesn't have dynamic config."]


def test_all_settings_of_a_group_have_kafkas_values_but_for_those_that_the_docs_name(both_sides: BothSides) -> None:
    """Settings of streams groups (KIP-1071) are missing: there are none here."""
    command = ("kafka-configs", "--group", "tool-all-settings", "--describe", "--all")
    ours, theirs = (
        dict(re.findall(r"^  ([\w.]+)=(\S*) sensitive=false", side(*command).stdout, re.MULTILINE))
        for side in (both_sides.ours, both_sides.theirs)
    )
    assert ours.keys() == {name for name in theirs if not name.startswith("streams.")}
    assert {name for name, value in ours.items() if theirs[name] != value} == {
        "consumer.assignment.interval.ms",
        "share.assignment.interval.ms",
    }


def test_settings_of_loggers_are_shown_and_cannot_be_changed(both_sides: BothSides) -> None:
    def configs(*arguments: object) -> tuple[int, str]:
        done = both_sides.ours("kafka-configs", *arguments)
        return done.returncode, done.stdout + done.stderr

    broker, loggers = (("--entity-type", kind, "--entity-name", "1") for kind in ("brokers", "broker-loggers"))
    assert both_sides.same("kafka-configs", *broker, "--describe") == ["Dynamic configs for broker 1 are:"]
    _, everything = configs(*broker, "--describe", "--all")
    assert "num.partitions=1 sensitive=false" in everything
    _, levels = configs(*loggers, "--describe")
    assert re.search(r"foldlog\.server=[A-Z]+ sensitive=false", levels)
    code, told = configs(*loggers, "--alter", "--add-config", "foldlog.server=DEBUG")
    assert code == 1, told
    assert "set foldlog.log.level" in told


# --- kafka-get-offsets, kafka-delete-records, kafka-log-dirs ----------------------------------------------------------


def test_offsets_are_found_by_every_form_of_time(both_sides: BothSides, orders: str) -> None:
    def offsets(*arguments: object) -> list[str]:
        return both_sides.same("kafka-get-offsets", *arguments)

    for times, found in (
        (("-1", "latest"), ["10", "10"]),
        (("-2", "earliest"), ["0", "0"]),
        (("-3", "max-timestamp"), ["9", "9"]),
        (("-4", "earliest-local"), ["0", "0"]),
        ((str(FIRST_MS + 4_500),), ["3", "2"]),
        ((str(FIRST_MS + 5_500),), ["3", "3"]),
    ):
        for time in times:
            assert offsets("--topic", orders, "--time", time) == [
                f"{orders}:{partition}:{offset}" for partition, offset in enumerate(found)
            ]
    for nothing in ("-5", "latest-tiered", "-6", "earliest-pending-upload", str(FIRST_MS * 2)):
        assert offsets("--topic", orders, "--time", nothing) == []
    assert offsets("--topic", orders, "--partitions", "1", "--exclude-internal-topics") == [f"{orders}:1:10"]
    assert offsets("--topic-partitions", f"{orders}:0,{orders}:1-") == [f"{orders}:0:10", f"{orders}:1:10"]
    for wrong in (("--topic", "tool-none"), ("--topic", orders, "--partitions", "9"), ("--time", "soon")):
        assert offsets(*wrong)[0].startswith("Error occurred: ")


def test_records_are_deleted_up_to_an_offset(both_sides: BothSides, tmp_path: Path) -> None:
    name = "tool-deleted"
    both_sides.same("kafka-topics", "--create", "--topic", name, "--partitions", 3)
    lines = "".join(f"{number}\n" for number in range(20))
    both_sides.same("kafka-console-producer", "--topic", name, text=lines)
    ends = both_sides.ours("kafka-get-offsets", "--topic", name).stdout.split()
    longest = max(range(3), key=lambda partition: int(ends[partition].rsplit(":", 1)[1]))
    file = tmp_path / "delete.json"
    file.write_text(json.dumps({"partitions": [{"topic": name, "partition": longest, "offset": 2}], "version": 1}))
    deleted = both_sides.ours("kafka-delete-records", "--offset-json-file", file)
    assert f"partition: {name}-{longest}\tlow_watermark: 2" in deleted.stdout
    assert f"{name}:{longest}:2" in both_sides.ours("kafka-get-offsets", "--topic", name, "--time", "-2").stdout.split()
    file.write_text(json.dumps({"partitions": [{"topic": name, "partition": 0, "offset": 77}], "version": 1}))
    refused = both_sides.same("kafka-delete-records", "--offset-json-file", file)
    assert any("OffsetOutOfRangeException" in line for line in refused)


def test_log_directories_are_described(both_sides: BothSides, orders: str) -> None:
    def sizes(side: object) -> dict[str, int]:
        assert callable(side)
        done = side("kafka-log-dirs", "--describe", "--topic-list", orders)
        [broker] = json.loads(done.stdout.splitlines()[-1])["brokers"]
        [directory] = broker["logDirs"]
        assert (broker["broker"], directory["error"]) == (1, None)
        return {one["partition"]: one["size"] for one in directory["partitions"]}

    # The same client wrote the same records, so the bytes are the same.
    assert sizes(both_sides.ours) == sizes(both_sides.theirs) != {}
    both_sides.same("kafka-log-dirs", "--describe", "--broker-list", "1,9")


# --- kafka-consumer-groups --------------------------------------------------------------------------------------------


@pytest.fixture
def fraud(both_sides: BothSides, orders: str, request: pytest.FixtureRequest) -> str:
    """A group of its own for each test, at offsets 4 and 5 of the two partitions, at both sides."""
    name = f"tool-fraud-{request.node.name.replace('_', '-')}"
    for address in (both_sides.broker, both_sides.kafka):
        with foldlog.connect(f"kafka://{address}") as log:
            log.reset_group(name, {(orders, 0): 4, (orders, 1): 5})
    return name


def moved(lines: list[str]) -> dict[str, int]:
    """The new offsets that the tool tells, by partition."""
    rows = [line.split() for line in lines if line.startswith("tool-fraud")]
    return {f"{topic}-{partition}": int(offset) for _, topic, partition, offset in rows}


def test_every_form_of_reset_offsets_moves_a_group(
    both_sides: BothSides, orders: str, fraud: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(f"{orders},0,7\n{orders},1,6\n")
    files = tmp_path / "offsets_of_groups.csv"
    files.write_text(f"{fraud},{orders},0,3\n{fraud}-too,{orders},1,4\n")
    everywhere = ("--topic", orders)
    for form, found in (
        ((*everywhere, "--to-current"), {0: 4, 1: 5}),
        ((*everywhere, "--to-earliest"), {0: 0, 1: 0}),
        ((*everywhere, "--to-latest"), {0: 10, 1: 10}),
        (("--topic", f"{orders}:1", "--to-offset", "3"), {1: 3}),
        ((*everywhere, "--shift-by", "-2"), {0: 8, 1: 1}),
        ((*everywhere, "--shift-by", "1"), {0: 9, 1: 2}),
        ((*everywhere, "--shift-by", "5"), {0: 10, 1: 7}),
        ((*everywhere, "--shift-by", "-100"), {0: 0, 1: 0}),
        ((*everywhere, "--to-offset", "99"), {0: 10, 1: 10}),
        ((*everywhere, "--to-datetime", "2023-11-14T22:13:24.500Z"), {0: 3, 1: 2}),
        ((*everywhere, "--to-datetime", "2023-11-14T23:13:25.500+01:00"), {0: 3, 1: 3}),
        ((*everywhere, "--by-duration", "P10000D"), {0: 0, 1: 0}),
        ((*everywhere, "--by-duration", "PT1S"), {0: 10, 1: 10}),
        (("--topic", f"{orders}:0,1", "--to-offset", "5"), {0: 5, 1: 5}),
        (("--all-topics", "--to-offset", "2"), {0: 2, 1: 2}),
        (("--from-file", file), {0: 7, 1: 6}),
    ):
        expected = {f"{orders}-{partition}": offset for partition, offset in found.items()}
        before = both_sides.broker.log.committed(fraud)
        reset = ("kafka-consumer-groups", "--group", fraud, "--reset-offsets", *form)
        assert moved(both_sides.ours(*reset, "--dry-run").stdout.splitlines()) == expected
        assert both_sides.broker.log.committed(fraud) == before
        assert moved(both_sides.same(*reset, "--execute")) == expected
        committed = {place.partition: at.offset for place, at in both_sides.broker.log.committed(fraud).items()}
        assert committed | found == committed
    groups = ("--group", fraud, "--group", f"{fraud}-too")
    both_sides.ours("kafka-consumer-groups", *groups, "--reset-offsets", "--from-file", files, "--execute")
    [(place, at)] = both_sides.broker.log.committed(f"{fraud}-too").items()
    assert (place.partition, at.offset) == (1, 4)


def test_resets_are_exported_for_one_group_and_for_all(both_sides: BothSides, orders: str, fraud: str) -> None:
    reset = ("--reset-offsets", "--topic", orders, "--to-earliest", "--export", "--dry-run")
    assert both_sides.same("kafka-consumer-groups", "--group", fraud, *reset) == [f"{orders},0,0", f"{orders},1,0"]
    both_sides.broker.log.reset_group(f"{fraud}-too", {(orders, 1): 5})
    for_all = both_sides.ours("kafka-consumer-groups", "--all-groups", *reset).stdout.replace('"', "").splitlines()
    assert {f"{fraud},{orders},0,0", f"{fraud}-too,{orders},1,0"} <= set(for_all)
    both_sides.ours(
        "kafka-consumer-groups", "--all-groups", "--reset-offsets", "--all-topics", "--to-latest", "--execute"
    )
    assert {at.offset for name in (fraud, f"{fraud}-too") for at in both_sides.broker.log.committed(name).values()} == {
        10
    }


def test_what_cannot_be_reset_is_said(both_sides: BothSides, orders: str, fraud: str) -> None:
    for wrong in (
        ("--topic", "tool-none", "--to-latest"),
        ("--topic", f"{orders}:7", "--to-latest"),
        ("--topic", orders, "--to-offset", "abc"),
        ("--topic", orders, "--to-datetime", "yesterday"),
        ("--topic", orders, "--by-duration", "soon"),
    ):
        told = both_sides.same("kafka-consumer-groups", "--group", fraud, "--reset-offsets", *wrong, "--execute")
        assert any("Error" in line or "Exception" in line for line in told)
    new = both_sides.same(
        "kafka-consumer-groups", "--group", f"{fraud}-new", "--reset-offsets", "--topic", orders, "--shift-by", "1"
    )
    assert any("there is no current committed offset" in line for line in new)
    with both_sides.broker.log.consumer([orders], group=fraud):
        ours = both_sides.ours(
            "kafka-consumer-groups", "--group", fraud, "--reset-offsets", "--topic", orders, "--to-latest", "--execute"
        )
        assert "Assignments can only be reset if the group" in ours.stdout + ours.stderr


def test_groups_are_listed_and_described(both_sides: BothSides, orders: str, fraud: str) -> None:
    listed = both_sides.ours("kafka-consumer-groups", "--list", "--state", "Empty", "--type", "classic").stdout
    assert [fraud, "Classic", "Empty"] in [line.split() for line in listed.splitlines()]
    assert fraud not in both_sides.ours("kafka-consumer-groups", "--list", "--state", "Stable").stdout
    assert fraud in both_sides.ours("kafka-groups", "--list", "--consumer").stdout
    described = both_sides.same("kafka-consumer-groups", "--describe", "--group", fraud)
    assert [line.split()[1:6] for line in described if line.startswith(fraud)] == [
        [orders, "0", "4", "10", "6"],
        [orders, "1", "5", "10", "5"],
    ]
    both_sides.same("kafka-consumer-groups", "--describe", "--group", fraud, "--offsets", "--verbose")
    assert described[0] in both_sides.ours("kafka-consumer-groups", "--describe", "--all-groups").stdout
    for verbose in ((), ("--verbose",)):
        for kind in ("--state", "--members"):
            both_sides.same("kafka-consumer-groups", "--describe", "--group", fraud, kind, *verbose)
    for kind in ("--offsets", "--state", "--members"):
        sentence = "group 'tool-none' has neither members nor committed offsets"
        both_sides.both_refuse(sentence, "kafka-consumer-groups", "--describe", "--group", "tool-none", kind)


def test_members_of_a_group_are_described(both_sides: BothSides, orders: str) -> None:
    with foldlog.connect(f"kafka://{both_sides.broker}") as log, log.consumer([orders], group="tool-members"):
        state = both_sides.ours("kafka-consumer-groups", "--describe", "--group", "tool-members", "--state").stdout
        assert state.split()[-3:] == ["range", "Stable", "1"]
        members = both_sides.ours(
            "kafka-consumer-groups", "--describe", "--group", "tool-members", "--members", "--verbose"
        ).stdout
        assert members.splitlines()[2].split()[2:7] == ["/127.0.0.1", "foldlog", "2", "-", f"{orders}:0,1"]
        refused = both_sides.ours("kafka-consumer-groups", "--delete", "--group", "tool-members").stdout
        assert "GroupNotEmptyException" in refused


def test_offsets_and_groups_are_deleted(both_sides: BothSides, orders: str, fraud: str) -> None:
    def groups(*arguments: object) -> list[str]:
        return both_sides.same("kafka-consumer-groups", *arguments)

    assert groups("--group", fraud, "--delete-offsets", "--topic", f"{orders}:0")[-1].split() == [
        orders,
        "0",
        "Successful",
    ]
    assert [place.partition for place in both_sides.broker.log.committed(fraud)] == [1]
    assert "UnknownTopicOrPartition" in groups("--group", fraud, "--delete-offsets", "--topic", "tool-none")[-1]
    assert "GroupIdNotFound" in groups("--group", "tool-none", "--delete-offsets", "--topic", orders)[-1]
    assert "GroupIdNotFound" in "".join(groups("--delete", "--group", fraud, "--group", "tool-none"))
    assert fraud not in both_sides.broker.log.groups()
    both_sides.ours("kafka-consumer-groups", "--delete", "--all-groups")
    assert both_sides.broker.log.groups() == []
    assert groups("--validate-regex", "orders.*") == ["The regular expression `orders.*` is valid."]
