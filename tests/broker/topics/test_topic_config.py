"""Topic settings are Kafka's: names, types, ranges and defaults; what Kafka refuses is refused in one sentence.

The defaults and ranges stand here a second time, as Kafka's documentation gives them, so that a slip in the
table shows. Generated values check that parsing and printing are inverse.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.topics.config import DEFAULT_CONFIG, TOPIC_SETTINGS, TopicConfig
from foldlog.errors import InvalidConfig
from foldlog.log.config import LogConfig

INT32 = 2**31 - 1
INT64 = 2**63 - 1

KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "1",  # Kafka: 9223372036854775807; here a record is synced before it is acknowledged
    "flush.ms": "9223372036854775807",
    "foldlog.key.schema.validation": "false",
    "foldlog.key.subject.name.strategy": "TopicNameStrategy",
    "foldlog.max.decompressed.bytes": "0",
    "foldlog.segment.records": "0",
    "foldlog.value.schema.validation": "false",
    "foldlog.value.subject.name.strategy": "TopicNameStrategy",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.downconversion.enable": "true",
    "message.format.version": "3.0-IV1",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.difference.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "-1",  # Kafka: 604800000; here nothing is deleted unless somebody asks for it
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}

INTEGER_RANGES = {
    "compression.gzip.level": (-1, 9),
    "compression.lz4.level": (1, 17),
    "compression.zstd.level": (-131072, 22),
    "delete.retention.ms": (0, INT64),
    "file.delete.delay.ms": (0, INT64),
    "flush.messages": (1, INT64),
    "flush.ms": (0, INT64),
    "foldlog.max.decompressed.bytes": (0, 1 << 30),
    "foldlog.segment.records": (0, INT32),
    "index.interval.bytes": (0, INT32),
    "local.retention.bytes": (-2, INT64),
    "local.retention.ms": (-2, INT64),
    "max.compaction.lag.ms": (1, INT64),
    "max.message.bytes": (0, INT32),
    "message.timestamp.after.max.ms": (0, INT64),
    "message.timestamp.before.max.ms": (0, INT64),
    "message.timestamp.difference.max.ms": (0, INT64),
    "min.compaction.lag.ms": (0, INT64),
    "min.insync.replicas": (1, INT32),
    "retention.bytes": (-1, INT64),
    "retention.ms": (-1, INT64),
    "segment.bytes": (1024, INT32),
    "segment.index.bytes": (4, INT32),
    "segment.jitter.ms": (0, INT64),
    "segment.ms": (1, INT64),
}


def test_the_defaults_are_kafkas() -> None:
    assert DEFAULT_CONFIG.effective() == KAFKA_DEFAULTS
    assert TopicConfig.parse({}).log == LogConfig()


def test_every_default_written_out_gives_the_default_partition_settings() -> None:
    config = TopicConfig.parse(dict(KAFKA_DEFAULTS))
    assert config.log == LogConfig()
    assert config.settings == KAFKA_DEFAULTS


def test_every_partition_setting_can_be_set_by_some_topic_setting() -> None:
    reached = {field for setting in TOPIC_SETTINGS.values() for field in setting.fields(setting.default)}
    assert reached == {field.name for field in fields(LogConfig) if field.init}


@pytest.mark.parametrize("name", sorted(INTEGER_RANGES))
def test_an_integer_is_taken_at_both_ends_of_its_range_and_refused_beyond(name: str) -> None:
    lowest, highest = INTEGER_RANGES[name]
    for number in (lowest, highest):
        for value in (number, str(number), f" {number} "):
            assert TopicConfig.parse({name: value}).effective()[name] == str(number)
    for number in (lowest - 1, highest + 1):
        for value in (number, str(number)):
            with pytest.raises(InvalidConfig) as refused:
                TopicConfig.parse({name: value})
            for part in (name, repr(value), str(lowest), str(highest)):
                assert part in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        None,
        "",
        "1k",
        "1.5",
        1.5,
        float("nan"),
        float("inf"),
        b"7",
        [7],
        "\N{ARABIC-INDIC DIGIT THREE}",
        "--1",
    ],
)
def test_what_is_not_an_integer_is_refused(value: object) -> None:
    with pytest.raises(InvalidConfig, match=r"retention\.ms=.* is not allowed; retention\.ms is an integer from -1"):
        TopicConfig.parse({"retention.ms": value})


def test_a_float_without_a_fraction_is_an_integer() -> None:
    assert TopicConfig.parse({"retention.ms": 1e9}).log.retention_ms == 1_000_000_000


@given(st.floats(0, 1) | st.integers(0, 1))
def test_a_ratio_is_taken_as_a_number_or_as_its_text(ratio: float) -> None:
    for value in (ratio, str(ratio)):
        config = TopicConfig.parse({"min.cleanable.dirty.ratio": value})
        assert config.log.min_cleanable_dirty_ratio == float(ratio)
        assert TopicConfig.parse(config.effective()) == TopicConfig.parse({**KAFKA_DEFAULTS, **config.settings})


@pytest.mark.parametrize("value", [-0.1, 1.1, "half", True, None, float("nan"), [0.5], 10**400])
def test_what_is_not_a_ratio_is_refused(value: object) -> None:
    with pytest.raises(InvalidConfig, match="a number from 0 to 1"):
        TopicConfig.parse({"min.cleanable.dirty.ratio": value})


@pytest.mark.parametrize(
    ("value", "text", "deletes", "compacts"),
    [
        ("delete", "delete", True, False),
        ("compact", "compact", False, True),
        ("compact,delete", "compact,delete", True, True),
        (" delete , compact ", "delete,compact", True, True),
        (["delete", "compact"], "delete,compact", True, True),
        ("delete,delete", "delete", True, False),
        ("", "", False, False),
        ([], "", False, False),
        (("compact",), "compact", False, True),
    ],
)
def test_cleanup_policy_is_a_list(value: object, text: str, deletes: bool, compacts: bool) -> None:
    config = TopicConfig.parse({"cleanup.policy": value})
    assert config.settings["cleanup.policy"] == text
    assert (config.log.delete, config.log.compact) == (deletes, compacts)


@pytest.mark.parametrize("value", ["delete,", "deleted", "compact;delete", [""], 1, None, ["delete", 3]])
def test_an_unknown_cleanup_policy_is_refused(value: object) -> None:
    with pytest.raises(InvalidConfig, match="delete, compact, both, or empty for neither"):
        TopicConfig.parse({"cleanup.policy": value})


@pytest.mark.parametrize(
    ("value", "text", "codec"),
    [
        ("producer", "producer", -1),
        ("uncompressed", "uncompressed", 0),
        ("none", "uncompressed", 0),
        ("gzip", "gzip", 1),
        ("snappy", "snappy", 2),
        ("lz4", "lz4", 3),
        ("zstd", "zstd", 4),
    ],
)
def test_compression_type_names_a_codec(value: str, text: str, codec: int) -> None:
    config = TopicConfig.parse({"compression.type": value})
    assert (config.settings["compression.type"], config.log.compression) == (text, codec)


def test_timestamp_type_says_whose_clock() -> None:
    assert not TopicConfig.parse({"message.timestamp.type": "CreateTime"}).log.log_append_time
    assert TopicConfig.parse({"message.timestamp.type": "LogAppendTime"}).log.log_append_time
    with pytest.raises(InvalidConfig, match="one of CreateTime, LogAppendTime"):
        TopicConfig.parse({"message.timestamp.type": "logappendtime"})
    with pytest.raises(InvalidConfig, match="one of producer, uncompressed"):
        TopicConfig.parse({"compression.type": "brotli"})


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("unclean.leader.election.enable", {True: "true", " FALSE ": "false"}, ["yes", 1, None, ""]),
        ("message.format.version", {"3.0-IV1": "3.0-IV1", "0.10.2": "0.10.2"}, ["", "new", "3", None]),
        ("leader.replication.throttled.replicas", {"": "", "*": "*", "0:1,12:3": "0:1,12:3"}, ["0", "0:1,", "**", 1]),
    ],
)
def test_a_setting_without_effect_is_checked_and_changes_nothing(
    name: str, taken: dict[object, str], refused: list[object]
) -> None:
    for value, text in taken.items():
        config = TopicConfig.parse({name: value})
        assert config.settings == {name: text}
        assert config.log == LogConfig()
    for value in refused:
        with pytest.raises(InvalidConfig, match=f"{name}=.* is not allowed"):
            TopicConfig.parse({name: value})


def test_what_has_no_effect_says_so() -> None:
    idle = [name for name, setting in TOPIC_SETTINGS.items() if not setting.fields(setting.default)]
    assert [name for name in idle if not TOPIC_SETTINGS[name].doc.startswith("No effect: ")] == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"cleanup.policy": "compact"}, "not allowed with cleanup.policy=compact"),
        ({"cleanup.policy": "compact,delete"}, "not allowed with cleanup.policy=compact"),
        ({"retention.ms": 1000, "local.retention.ms": 2000}, "at most retention.ms=1000"),
        ({"retention.bytes": 1000, "local.retention.bytes": -1}, "at most retention.bytes=1000"),
        ({"remote.log.copy.disable": "true", "local.retention.ms": 1000}, "with remote.log.copy.disable=true"),
    ],
)
def test_settings_of_a_tiered_topic_are_refused_as_kafka_refuses_them(settings: dict[str, object], why: str) -> None:
    TopicConfig.parse(settings)  # without a store they mean nothing
    with pytest.raises(InvalidConfig, match=re.escape(why)):
        TopicConfig.parse({**settings, "remote.storage.enable": "true"})


def test_the_limits_of_the_disk_are_those_of_the_log_unless_set() -> None:
    config = TopicConfig.parse({"retention.ms": 7000, "remote.storage.enable": True, "local.retention.bytes": 10})
    assert config.log.local_limits == (7000, 10)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("retention.msec", "did you mean 'retention.ms'?"),
        ("retention_ms", "did you mean 'retention.ms'?"),
        ("segment.byte", "did you mean 'segment.bytes'?"),
        ("zzzzzz", "there are cleanup.policy, "),
        (7, "there are cleanup.policy, "),
    ],
)
def test_an_unknown_setting_is_refused_and_the_nearest_one_named(name: Any, hint: str) -> None:
    for call in (TopicConfig.parse, DEFAULT_CONFIG.with_changes):
        with pytest.raises(InvalidConfig) as refused:
            call({name: "1"})
        assert repr(name) in str(refused.value)
        assert hint in str(refused.value)


def test_changes_replace_some_settings_and_none_restores_the_default() -> None:
    config = TopicConfig.parse({"retention.ms": 5, "segment.bytes": 2048})
    changed = config.with_changes({"retention.ms": None, "segment.ms": "7"})
    assert changed.settings == {"segment.bytes": "2048", "segment.ms": "7"}
    assert config.settings == {"retention.ms": "5", "segment.bytes": "2048"}
    assert changed.with_changes({"segment.bytes": None, "segment.ms": None}) == DEFAULT_CONFIG
    with pytest.raises(InvalidConfig):
        config.with_changes({"retention.mss": None})
