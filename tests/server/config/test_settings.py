"""Broker settings: Kafka's names and units, what is refused and how it is said, what DescribeConfigs will show.

Pure values: properties in, one settings object or one sentence out.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from foldlog.broker.topics.config import TOPIC_SETTINGS, TopicConfig
from foldlog.errors import InvalidConfig
from foldlog.server.config.broker_settings import ALIASES, ATTRIBUTES, BROKER_SETTINGS, SYNONYMS, TLS_SETTINGS, text_of
from foldlog.server.config.kafka_properties import NAMES_WITHOUT_EFFECT, has_no_effect
from foldlog.server.config.settings import ServerSettings

DAY_MS = 24 * 60 * 60 * 1000

SERVER_PROPERTIES = {
    # What Kafka's own config/server.properties sets, for brokers with and without ZooKeeper.
    "broker.id": "0",
    "process.roles": "broker,controller",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kafka-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.flush.interval.messages": "10000",
    "log.flush.interval.ms": "1000",
    "log.retention.hours": "168",
    "log.retention.bytes": "1073741824",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
    "zookeeper.connect": "localhost:2181",
    "zookeeper.connection.timeout.ms": "18000",
    "group.initial.rebalance.delay.ms": "0",
}


def refusal(properties: dict[str, object], **origins: str) -> str:
    with pytest.raises(InvalidConfig) as caught:
        ServerSettings.parse(properties, {name.replace("_", "."): origin for name, origin in origins.items()})
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_nothing_set_is_the_defaults_of_the_table() -> None:
    settings = ServerSettings.parse({})
    assert settings == ServerSettings()
    for name, attribute in ATTRIBUTES.items():
        if name != "listeners":
            assert getattr(settings, attribute) == BROKER_SETTINGS[name].default
    assert settings.listeners[0].address == "127.0.0.1:9092"
    assert dict(settings.topic_defaults) == {}


def test_every_row_has_an_attribute_or_is_the_default_of_a_topic_setting() -> None:
    attributes = {each.name for each in fields(ServerSettings)} - {"topic_defaults", "tls", "given", "without_effect"}
    assert set(ATTRIBUTES.values()) == attributes
    assert all(name in ATTRIBUTES or name in TLS_SETTINGS or row.topic_setting for name, row in BROKER_SETTINGS.items())


def test_every_default_is_a_value_that_its_own_row_allows() -> None:
    for name, row in BROKER_SETTINGS.items():
        if row.default is not None:
            assert row.parse(row.default) == row.default, name


@pytest.mark.parametrize(
    ("name", "value", "attribute", "expected"),
    [
        ("num.partitions", " 12 ", "num_partitions", 12),
        ("node.id", 7, "node_id", 7),
        ("broker.id", "7", "node_id", 7),
        ("auto.create.topics.enable", "FALSE", "auto_create_topics_enable", False),
        ("auto.create.topics.enable", 0, "auto_create_topics_enable", False),
        ("delete.topic.enable", True, "delete_topic_enable", True),
        ("foldlog.insecure", "1", "insecure", True),
        ("foldlog.log.format", "JSON", "log_format", "json"),
        ("connections.max.idle.ms", -1, "connections_max_idle_ms", (1 << 63) - 1),
        ("message.max.bytes", "2097152", "message_max_bytes", 2097152),
    ],
)
def test_a_property_becomes_its_attribute(name: str, value: object, attribute: str, expected: object) -> None:
    assert getattr(ServerSettings.parse({name: value}), attribute) == expected


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"num.partitions": 0}, ["num.partitions=0", "1 to 10000"]),
        ({"num.partitions": "three"}, ["num.partitions='three'"]),
        ({"num.partitions": True}, ["num.partitions=True"]),
        ({"num.partitions": 1.5}, ["num.partitions=1.5"]),
        ({"auto.create.topics.enable": "perhaps"}, ["auto.create.topics.enable='perhaps'", "true or false"]),
        ({"auto.create.topics.enable": None}, ["auto.create.topics.enable=None"]),
        ({"auto.create.topics.enable": 1.0}, ["auto.create.topics.enable=1.0"]),
        ({"default.replication.factor": 3}, ["default.replication.factor=3", "is 1"]),
        ({"foldlog.log.format": "xml"}, ["'xml'", "one of text, json"]),
        ({"foldlog.log.level": 3}, ["foldlog.log.level=3", "debug"]),
        ({"foldlog.metrics": 9464}, ["foldlog.metrics=9464", "HOST:PORT"]),
        ({"listeners": 9092}, ["listeners=9092"]),
        ({"listeners": ["127.0.0.1:9092", 9093]}, ["listeners="]),
        ({"log.cleanup.policy": "shred"}, ["log.cleanup.policy='shred'", "compact"]),
        ({"log.roll.hours": 0}, ["log.roll.hours=0"]),
        ({"queued.max.request.bytes": -1}, ["queued.max.request.bytes=-1"]),
        ({"num.partition": 1}, ["'num.partition'", "did you mean 'num.partitions'?"]),
        ({"lsiten": "127.0.0.1:1"}, ["did you mean 'listen'?"]),
        ({"retention.ms": 1}, ["'retention.ms'", "log.retention.ms"]),
        ({"colour": "red"}, ["'colour'", "page about the broker"]),
        ({3: 4}, ["setting 3"]),
        ({"node.id": 1, "broker.id": 2}, ["node.id", "broker.id", "differ"]),
        ({"group.min.session.timeout.ms": 9, "group.max.session.timeout.ms": 8}, ["=9", "=8", "no member"]),
        ({"group.max.session.timeout.ms": 8}, ["group.min.session.timeout.ms=100", "=8"]),
        ({"socket.request.max.bytes": 1 << 30}, ["socket.request.max.bytes=1073741824", "queued.max.request.bytes"]),
        ({"authorizer.class.name": "org.example.Authorizer"}, ["authorizer.class.name", "StandardAuthorizer"]),
        ({"super.users": "User:alice;bob"}, ["super.users", "semicolons"]),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence_that_names_it(properties: dict[str, object], words: list[str]) -> None:
    text = refusal(properties)
    assert all(word in text for word in words), text


def test_only_a_mapping_is_taken() -> None:
    with pytest.raises(InvalidConfig, match="a dict such as"):
        ServerSettings.parse([("num.partitions", 1)])  # type: ignore[arg-type]


def test_an_error_names_where_the_value_stands() -> None:
    assert refusal({"num.partitions": 0}, num_partitions="broker.toml").endswith("(set by broker.toml)")
    assert refusal({"num.partition": 0}, num_partition="-X num.partition").endswith("(set by -X num.partition)")
    assert refusal({"listen": "x"}, listen="--listen").endswith("(set by --listen)")
    assert refusal({"foldlog.create.topics": "a/b"}, foldlog_create_topics="--create").endswith("(set by --create)")
    assert "set by" not in refusal({"num.partitions": 0})


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({"log.retention.hours": 1}, 3_600_000),
        ({"log.retention.hours": 1, "log.retention.minutes": 2}, 120_000),
        ({"log.retention.hours": 1, "log.retention.minutes": 2, "log.retention.ms": 3}, 3),
        ({"log.retention.hours": -1}, -1),
        ({"log.retention.ms": -1, "log.retention.hours": 1}, -1),
    ],
)
def test_the_smallest_unit_of_retention_counts_as_in_kafka(properties: dict[str, object], retention_ms: int) -> None:
    settings = ServerSettings.parse(properties)
    assert dict(settings.topic_defaults) == {"retention.ms": str(retention_ms)}
    assert TopicConfig.parse(settings.topic_defaults).log.retention_ms == retention_ms


def test_hours_of_a_roll_are_milliseconds_of_a_topic() -> None:
    assert ServerSettings.parse({"log.roll.hours": 24}).topic_defaults == {"segment.ms": str(DAY_MS)}
    assert ServerSettings.parse({"log.roll.hours": 24, "log.roll.ms": 5}).topic_defaults == {"segment.ms": "5"}


def test_every_default_of_a_topic_setting_is_one_that_topics_take() -> None:
    properties = {name: row.default for name, row in BROKER_SETTINGS.items() if row.topic_setting and row.default}
    settings = ServerSettings.parse(properties)
    config = TopicConfig.parse(settings.topic_defaults)
    assert config.log == TopicConfig.parse({}).log, "the defaults of the broker are the defaults of topics"
    assert {name for names in SYNONYMS.values() for name in names} >= set(properties)
    assert settings.topic_defaults.keys() <= TOPIC_SETTINGS.keys()


def test_kafkas_own_server_properties_can_be_brought_along() -> None:
    settings = ServerSettings.parse(SERVER_PROPERTIES)
    assert [listener.address for listener in settings.listeners] == ["127.0.0.1:9092"]
    assert [listener.address for listener in settings.advertised_listeners] == ["localhost:9092"]
    assert settings.node_id == 0
    assert settings.topic_defaults["flush.messages"] == "10000"
    assert {"zookeeper.connect", "num.io.threads", "log.dirs", "process.roles"} <= set(settings.without_effect)
    assert settings.without_effect == tuple(sorted(settings.without_effect))
    assert not set(settings.without_effect) & BROKER_SETTINGS.keys()


def test_a_setting_of_ours_is_never_passed_over_as_one_without_effect() -> None:
    assert not [name for name in (*BROKER_SETTINGS, *ALIASES) if has_no_effect(name)]
    assert all(has_no_effect(name) for name in NAMES_WITHOUT_EFFECT)


def test_topics_to_create_are_names_with_or_without_a_count() -> None:
    settings = ServerSettings.parse({"foldlog.create.topics": "orders:3, clicks,orders:3"})
    assert [tuple(topic) for topic in settings.create_topics] == [("orders", 3), ("clicks", None)]
    for text in (
        "orders:",
        "orders:0",
        "orders:x",
        "orders:10001",
        "../orders",
        "__consumer_offsets",
        "orders:1,orders:2",
    ):
        refusal({"foldlog.create.topics": text})


def test_what_is_shown_of_a_broker_has_its_value_its_source_and_its_type() -> None:
    settings = ServerSettings.parse(
        {"num.partitions": 3, "log.retention.hours": 1, "listen": "127.0.0.1:0", "foldlog.metrics": "[::1]:0"}
    )
    rows = {row.name: row for row in settings.broker_configs()}
    assert rows.keys() == BROKER_SETTINGS.keys()
    assert rows["num.partitions"][1:5] == ("3", False, "STATIC_BROKER_CONFIG", "INT")
    assert rows["listeners"][1:5] == ("PLAINTEXT://127.0.0.1:0", False, "STATIC_BROKER_CONFIG", "LIST")
    assert rows["foldlog.metrics"][1:5] == ("[::1]:0", False, "STATIC_BROKER_CONFIG", "STRING")
    assert rows["log.retention.hours"][1:4] == ("1", False, "STATIC_BROKER_CONFIG")
    assert rows["log.retention.ms"][1:4] == (None, True, "DEFAULT_CONFIG")
    assert rows["log.segment.bytes"][1:4] == ("1073741824", True, "DEFAULT_CONFIG")
    assert rows["auto.create.topics.enable"][1:5] == ("true", True, "DEFAULT_CONFIG", "BOOLEAN")
    assert [row.name for row in rows.values() if row.is_sensitive] == [
        "foldlog.console.token",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
    ]


def test_settings_made_by_keyword_show_what_they_are() -> None:
    rows = {row.name: row for row in ServerSettings(num_partitions=5).broker_configs()}
    assert rows["num.partitions"][1:4] == ("5", False, "STATIC_BROKER_CONFIG")
    assert rows["listeners"][1:4] == ("PLAINTEXT://127.0.0.1:9092", True, "DEFAULT_CONFIG")


def test_what_is_set_is_passed_on_to_groups() -> None:
    settings = ServerSettings.parse(
        {
            "group.initial.rebalance.delay.ms": 3000,
            "group.min.session.timeout.ms": 6000,
            "group.max.session.timeout.ms": 300_000,
            "group.max.size": 5,
            "offsets.retention.minutes": 2,
        }
    )
    groups = settings.group_settings()
    assert (groups.initial_rebalance_delay_ms, groups.session_timeout_min_ms) == (3000, 6000)
    assert (groups.session_timeout_max_ms, groups.members_max) == (300_000, 5)
    assert settings.offsets_retention_ms == 120_000


def test_every_setting_stands_in_the_documentation_with_its_default() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    of_the_broker = page.partition("\n## The broker\n")[2]
    documented = dict(re.findall(r"^\| `([a-z.]+)` \| (.*?) \|", of_the_broker, flags=re.MULTILINE))
    for name, row in BROKER_SETTINGS.items():
        default = text_of(row.default)
        assert documented.get(name) == (f"`{default}`" if default else "none"), name
    assert documented.keys() <= BROKER_SETTINGS.keys(), "the page has settings that do not exist"
