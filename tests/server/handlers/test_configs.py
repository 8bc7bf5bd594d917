"""Settings are shown with where they are from, and changed as Kafka changes them; nothing is changed half.

Incremental changes are compared with a model over generated requests. Requests and answers go through the codec.
"""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.small_broker import at
from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.groups.group_settings import GROUP_SETTINGS
from foldlog.broker.topics.config import TOPIC_SETTINGS
from foldlog.broker.topics.names import OFFSETS_TOPIC
from foldlog.files.memory import MemoryFiles
from foldlog.server.config.broker_settings import BROKER_SETTINGS
from foldlog.server.config.resources import ConfigResource, ConfigSource, ConfigType
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages import alter_configs as whole
from foldlog.wire.messages import incremental_alter_configs as incremental
from foldlog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from foldlog.wire.messages.list_config_resources import ListConfigResourcesRequest
from server.small_node import Denies, SmallNode

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER = ConfigResource.TOPIC, ConfigResource.BROKER, ConfigResource.BROKER_LOGGER
GROUP = ConfigResource.GROUP
OWN, STATIC, DEFAULT = ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.STATIC_BROKER_CONFIG, ConfigSource.DEFAULT_CONFIG


def describe(
    small: SmallNode,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=synonyms, include_documentation=documentation
    )
    (result,) = small.ask(request, version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    assert bool(result.error_message) == bool(result.error_code)
    assert isinstance(result, DescribeConfigsResult)
    return result


def values(result: DescribeConfigsResult) -> dict[str, tuple[str | None, int]]:
    return {config.name: (config.value, config.config_source) for config in result.configs}


# --- DescribeConfigs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_lists_every_setting_of_a_topic_with_its_source(version: int) -> None:
    small = SmallNode(settings={"log.roll.hours": 2})
    small.broker.create_topic("orders", config={"retention.ms": 5})
    result = describe(small, TOPIC, "orders", version=version)
    shown = values(result)
    assert shown.keys() == TOPIC_SETTINGS.keys()
    assert shown["retention.ms"] == ("5", OWN)
    assert shown["segment.ms"] == ("7200000", STATIC)
    assert shown["segment.bytes"] == ("1073741824", DEFAULT)
    assert not any(config.read_only or config.is_sensitive or config.synonyms for config in result.configs)
    assert not any(config.documentation for config in result.configs)
    types = {config.name: config.config_type for config in result.configs}
    assert types["retention.ms"] == (ConfigType.LONG if version >= 3 else 0)
    assert types["cleanup.policy"] == (ConfigType.LIST if version >= 3 else 0)
    small.close()


def test_what_stands_behind_a_value_is_shown_to_who_asks_in_the_unit_it_was_set_in() -> None:
    small = SmallNode(settings={"log.retention.hours": 2})
    small.broker.create_topic("orders", config={"retention.ms": 5})
    result = describe(small, TOPIC, "orders", synonyms=True, documentation=True)
    found = {
        config.name: [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]
        for config in result.configs
    }
    assert found["retention.ms"] == [
        ("retention.ms", "5", OWN),
        ("log.retention.hours", "2", STATIC),
    ]
    assert found["segment.ms"] == found["flush.ms"] == []
    assert [source for _, _, source in found["min.insync.replicas"]] == [3, DEFAULT]
    assert found["segment.bytes"] == [("log.segment.bytes", "1073741824", DEFAULT)]
    assert all(config.documentation == TOPIC_SETTINGS[config.name].doc for config in result.configs)
    small.close()


def test_only_the_settings_that_are_asked_for_are_shown(small: SmallNode) -> None:
    small.broker.create_topic("orders")
    keys = ["segment.ms", "retention.ms", "no.such"]
    assert set(values(describe(small, TOPIC, "orders", keys))) == {"segment.ms", "retention.ms"}
    assert set(values(describe(small, TOPIC, "orders", []))) == set(TOPIC_SETTINGS)


def test_when_a_topic_grew_is_told_to_who_asks_for_it_by_name(small: SmallNode) -> None:
    small.broker.create_topic("orders", 2)
    assert values(describe(small, TOPIC, "orders", ["foldlog.growths"])) == {"foldlog.growths": ("[]", DEFAULT)}
    small.broker.grow_topic("orders", 3)
    result = describe(small, TOPIC, "orders", ["foldlog.growths"])
    assert values(result)["foldlog.growths"][0] == '[{"partitions":3,"ends":[0,0]}]'
    assert result.configs[0].read_only


def test_the_brokers_settings_are_shown_with_those_that_can_be_changed() -> None:
    small = SmallNode(settings={"num.partitions": 3})
    result = describe(small, BROKER, "1", synonyms=True, documentation=True)
    shown = values(result)
    assert shown.keys() == {*BROKER_SETTINGS, "min.insync.replicas"}
    assert shown["min.insync.replicas"] == ("1", 3), "as the topics' value says that it has"
    assert shown["num.partitions"] == ("3", STATIC)
    assert shown["auto.create.topics.enable"] == ("true", DEFAULT)
    assert all(config.documentation for config in result.configs)
    changeable = {name for name, row in BROKER_SETTINGS.items() if row.is_dynamic}
    assert {config.name for config in result.configs if not config.read_only} == changeable
    synonyms = {config.name: [(one.value, one.source) for one in config.synonyms] for config in result.configs}
    assert synonyms["num.partitions"] == [("3", STATIC), ("1", DEFAULT)]
    assert values(describe(small, BROKER, "")) == {"min.insync.replicas": ("1", 3)}
    small.close()


def test_the_brokers_loggers_are_shown_with_kafkas_levels(small: SmallNode) -> None:
    logger = logging.getLogger("foldlog.tests.levels")
    for level, name in ((50, "FATAL"), (40, "ERROR"), (30, "WARN"), (20, "INFO"), (10, "DEBUG"), (5, "TRACE")):
        logger.setLevel(level)
        shown = values(describe(small, LOGGER, "1"))
        assert shown["foldlog.tests.levels"] == (name, ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG)
        assert "foldlog" in shown


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "../up", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (ConfigResource.CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_settings_is_told(small: SmallNode, kind: int, name: str, code: ErrorCode) -> None:
    result = describe(small, kind, name)
    assert ErrorCode(result.error_code) is code
    assert not result.configs


def test_a_group_shows_what_is_set_for_it_before_what_is_the_brokers() -> None:
    small = SmallNode(settings={"group.consumer.session.timeout.ms": 40_000})
    wanted = changes_of(
        "readers",
        ("consumer.session.timeout.ms", SET, "30000"),
        ("consumer.assignment.interval.ms", SET, "2000"),
        kind=GROUP,
    )
    assert change(small, wanted) == [ErrorCode.NONE]
    found = {
        one.name: [(synonym.name, synonym.value, synonym.source) for synonym in one.synonyms]
        for one in describe(small, GROUP, "readers", synonyms=True).configs
    }
    assert found["consumer.session.timeout.ms"] == [
        ("consumer.session.timeout.ms", "30000", ConfigSource.DYNAMIC_GROUP_CONFIG),
        ("group.consumer.session.timeout.ms", "40000", STATIC),
        ("group.consumer.session.timeout.ms", "45000", DEFAULT),
    ]
    assert found["consumer.heartbeat.interval.ms"] == [("group.consumer.heartbeat.interval.ms", "5000", DEFAULT)]
    assert found["share.isolation.level"] == [("share.isolation.level", "read_uncommitted", DEFAULT)]
    assert found.keys() == GROUP_SETTINGS.keys()
    listed = small.ask(ListConfigResourcesRequest(resource_types=[GROUP]), 1).config_resources
    assert [(one.resource_name, one.resource_type) for one in listed] == [("readers", GROUP)]
    small.close()


def test_what_is_set_for_a_group_survives_a_restart_and_counts_as_the_nearest_bound_where_bounds_changed() -> None:
    files = MemoryFiles()
    small = SmallNode(files)
    wanted = changes_of(
        "readers",
        ("consumer.session.timeout.ms", SET, "30000"),
        ("consumer.heartbeat.interval.ms", SET, "1000"),
        kind=GROUP,
    )
    assert change(small, wanted) == [ErrorCode.NONE]
    small.close()
    small = SmallNode(files, settings={"group.consumer.min.heartbeat.interval.ms": 2_000})
    config = small.broker.group_configs.consumer("readers")
    assert (config.session_timeout_ms, config.heartbeat_interval_ms) == (30_000, 2_000)
    small.close()


def test_a_group_has_the_settings_of_share_groups_and_keeps_what_is_set(small: SmallNode) -> None:
    wanted = changes_of("workers", ("share.auto.offset.reset", SET, "by_duration:P1DT2H"), kind=GROUP)
    assert change(small, wanted) == [ErrorCode.NONE]
    found = {one.name: one for one in describe(small, GROUP, "workers").configs}
    reset, lock = found["share.auto.offset.reset"], found["share.record.lock.duration.ms"]
    assert (reset.value, reset.config_source) == ("by_duration:P1DT2H", ConfigSource.DYNAMIC_GROUP_CONFIG)
    assert (lock.value, lock.config_source) == ("30000", ConfigSource.DEFAULT_CONFIG)
    assert small.broker.group_configs.share("workers").reset_ms == (24 + 2) * 3_600_000
    assert small.broker.group_configs.share("others").auto_offset_reset == "latest"


def test_who_may_not_see_settings_sees_none() -> None:
    denies = Denies(
        (AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC),
        (AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),
        (AclOperation.DESCRIBE_CONFIGS, ResourceType.GROUP),
    )
    small = SmallNode(authorizer=denies)
    small.broker.create_topic("orders")
    assert describe(small, TOPIC, "orders").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert describe(small, BROKER, "1").error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert describe(small, GROUP, "fraud").error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    small.close()


# --- AlterConfigs ---------------------------------------------------------------------------------------------------


def replacement(name: str, kind: int = TOPIC, **settings: str | None) -> whole.AlterConfigsResource:
    configs = [whole.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    return whole.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def alter(
    small: SmallNode, *resources: whole.AlterConfigsResource, version: int = 2, validate_only: bool = False
) -> list[ErrorCode]:
    answer = small.ask(whole.AlterConfigsRequest(resources=resources, validate_only=validate_only), version)
    assert [(one.resource_type, one.resource_name) for one in answer.responses] == [
        (one.resource_type, one.resource_name) for one in resources
    ]
    assert all(bool(one.error_message) == bool(one.error_code) for one in answer.responses)
    return [ErrorCode(one.error_code) for one in answer.responses]


@pytest.mark.parametrize("version", range(3))
def test_every_version_replaces_all_settings(small: SmallNode, version: int) -> None:
    small.broker.create_topic("orders", config={"retention.ms": 5, "segment.bytes": 2048})
    assert alter(small, replacement("orders", segment_ms="7", segment_bytes="4096"), version=version) == [
        ErrorCode.NONE
    ]
    assert small.broker.topic("orders").config.settings == {"segment.ms": "7", "segment.bytes": "4096"}
    assert small.broker.partition("orders", 0).config.segment_bytes == 4096  # type: ignore[union-attr]
    assert alter(small, replacement("orders"), version=version) == [ErrorCode.NONE]
    assert small.broker.topic("orders").config.settings == {}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (replacement("orders", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (replacement("orders", retention_ms=None), ErrorCode.INVALID_REQUEST),
        (replacement("orders", no_such="1"), ErrorCode.INVALID_CONFIG),
        (replacement("none", retention_ms="1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (replacement("../up", retention_ms="1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (replacement(OFFSETS_TOPIC, retention_ms="1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (replacement("1", BROKER, num_partitions="2"), ErrorCode.INVALID_REQUEST),
        (replacement("1", LOGGER, foldlog="DEBUG"), ErrorCode.INVALID_REQUEST),
        (replacement("x", 99), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_replaced_is_refused_and_stays(
    small: SmallNode, change: whole.AlterConfigsResource, code: ErrorCode
) -> None:
    small.broker.create_topic("orders", config={"retention.ms": 5})
    small.broker.commit_offsets("fraud", {("orders", 0): at(0)})
    before = small.broker.topic(OFFSETS_TOPIC)
    for validate_only in (True, False):
        assert alter(small, change, validate_only=validate_only) == [code]
    assert small.broker.topic("orders").config.settings == {"retention.ms": "5"}
    assert small.broker.topic(OFFSETS_TOPIC) == before


def test_a_resource_that_stands_in_a_request_twice_is_not_changed_and_the_others_are(small: SmallNode) -> None:
    small.broker.create_topic("a")
    small.broker.create_topic("b")
    changes = [replacement("a", segment_ms="1"), replacement("b", segment_ms="2"), replacement("a", segment_ms="3")]
    assert alter(small, *changes) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert small.broker.topic("a").config.settings == {}
    assert small.broker.topic("b").config.settings == {"segment.ms": "2"}


def test_nothing_is_replaced_where_only_the_check_is_asked_for(small: SmallNode) -> None:
    small.broker.create_topic("orders", config={"retention.ms": 5})
    assert alter(small, replacement("orders", segment_ms="7"), validate_only=True) == [ErrorCode.NONE]
    assert small.broker.topic("orders").config.settings == {"retention.ms": "5"}


# --- IncrementalAlterConfigs ----------------------------------------------------------------------------------------


def changes_of(name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC) -> incremental.AlterConfigsResource:
    configs = [
        incremental.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    return incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def change(
    small: SmallNode, *resources: incremental.AlterConfigsResource, version: int = 1, validate_only: bool = False
) -> list[ErrorCode]:
    request = incremental.IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    answer = small.ask(request, version)
    assert [(one.resource_type, one.resource_name) for one in answer.responses] == [
        (one.resource_type, one.resource_name) for one in resources
    ]
    assert all(bool(one.error_message) == bool(one.error_code) for one in answer.responses)
    return [ErrorCode(one.error_code) for one in answer.responses]


@pytest.mark.parametrize("version", range(2))
def test_every_version_sets_and_deletes_single_settings(small: SmallNode, version: int) -> None:
    small.broker.create_topic("orders", config={"retention.ms": 5, "segment.bytes": 2048})
    wanted = changes_of("orders", ("retention.ms", DELETE, None), ("segment.ms", SET, "7"))
    assert change(small, wanted, version=version, validate_only=True) == [ErrorCode.NONE]
    assert small.broker.topic("orders").config.settings == {"retention.ms": "5", "segment.bytes": "2048"}
    assert change(small, wanted, version=version) == [ErrorCode.NONE]
    assert small.broker.topic("orders").config.settings == {"segment.bytes": "2048", "segment.ms": "7"}


def test_a_setting_that_no_topic_has_can_be_deleted_as_from_kafka(small: SmallNode) -> None:
    """Scripts put settings back that a newer broker no longer knows."""
    small.broker.create_topic("orders", config={"retention.ms": 5})
    wanted = changes_of("orders", ("no.such", DELETE, None), ("retention.ms", DELETE, None))
    assert change(small, wanted) == [ErrorCode.NONE]
    assert small.broker.topic("orders").config.settings == {}


def test_items_are_added_to_and_taken_from_what_is_in_force(small: SmallNode) -> None:
    small.broker.create_topic("orders")
    steps = [
        (APPEND, "compact", "delete,compact"),  # delete is the default
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "delete", "compact"),
        (APPEND, " delete , compact", "compact,delete"),
    ]
    for operation, value, expected in steps:
        assert change(small, changes_of("orders", ("cleanup.policy", operation, value))) == [ErrorCode.NONE]
        assert small.broker.topic("orders").config.settings["cleanup.policy"] == expected
    nothing_left = changes_of("orders", ("cleanup.policy", SUBTRACT, "compact,delete"))
    assert change(small, nothing_left) == [ErrorCode.NONE]
    assert small.broker.topic("orders").config.settings["cleanup.policy"] == ""


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (changes_of("orders", ("retention.ms", SET, "soon")), ErrorCode.INVALID_CONFIG),
        (changes_of("orders", ("no.such", SET, "1")), ErrorCode.INVALID_CONFIG),
        (changes_of("orders", ("no.such", APPEND, "1")), ErrorCode.INVALID_CONFIG),
        (changes_of("orders", ("retention.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG),
        (changes_of("orders", ("retention.ms", SUBTRACT, "1")), ErrorCode.INVALID_CONFIG),
        (changes_of("orders", ("segment.ms", SET, "1"), ("retention.ms", SET, "soon")), ErrorCode.INVALID_CONFIG),
        (changes_of("orders", ("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST),
        (changes_of("orders", ("cleanup.policy", APPEND, None)), ErrorCode.INVALID_REQUEST),
        (changes_of("orders", ("retention.ms", 9, "1")), ErrorCode.INVALID_REQUEST),
        (changes_of("orders", ("segment.ms", SET, "1"), ("segment.ms", DELETE, None)), ErrorCode.INVALID_REQUEST),
        (changes_of("none", ("retention.ms", SET, "1")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (changes_of(OFFSETS_TOPIC, ("retention.ms", SET, "1")), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (changes_of("1", ("num.partitions", SET, "1"), kind=BROKER), ErrorCode.INVALID_REQUEST),
        (changes_of("x", ("no.such.setting", SET, "1"), kind=GROUP), ErrorCode.INVALID_CONFIG),
        (changes_of("x", ("share.record.lock.duration.ms", SET, "14999"), kind=GROUP), ErrorCode.INVALID_CONFIG),
        (changes_of("x", ("share.auto.offset.reset", SET, "by_duration:-1"), kind=GROUP), ErrorCode.INVALID_CONFIG),
        (changes_of("x", ("consumer.session.timeout.ms", SET, "99"), kind=GROUP), ErrorCode.INVALID_CONFIG),
        (changes_of("x", ("consumer.session.timeout.ms", SET, "60001"), kind=GROUP), ErrorCode.INVALID_CONFIG),
        (changes_of("x", ("consumer.session.timeout.ms", SET, "5000"), kind=GROUP), ErrorCode.INVALID_CONFIG),
        (changes_of("x", ("consumer.heartbeat.interval.ms", SET, "soon"), kind=GROUP), ErrorCode.INVALID_CONFIG),
        (changes_of("x", ("consumer.assignment.interval.ms", SET, "15001"), kind=GROUP), ErrorCode.INVALID_CONFIG),
        (changes_of("", ("consumer.session.timeout.ms", SET, "30000"), kind=GROUP), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_changed_is_refused_and_stays(
    small: SmallNode, wanted: incremental.AlterConfigsResource, code: ErrorCode
) -> None:
    small.broker.create_topic("orders", config={"retention.ms": 5})
    small.broker.commit_offsets("fraud", {("orders", 0): at(0)})
    for validate_only in (True, False):
        assert change(small, wanted, validate_only=validate_only) == [code]
    assert small.broker.topic("orders").config.settings == {"retention.ms": "5"}


def test_who_may_not_change_settings_changes_none() -> None:
    denies = Denies(
        (AclOperation.ALTER_CONFIGS, ResourceType.TOPIC), (AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)
    )
    small = SmallNode(authorizer=denies)
    small.broker.create_topic("orders")
    assert change(
        small,
        changes_of("orders", ("retention.ms", SET, "1")),
        changes_of("1", ("num.partitions", SET, "1"), kind=BROKER),
    ) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert alter(small, replacement("orders", retention_ms="1")) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert small.broker.topic("orders").config.settings == {}
    small.close()


_CHANGES = st.dictionaries(
    st.sampled_from(["retention.ms", "segment.ms", "flush.ms"]),
    st.one_of(st.none(), st.integers(1, 9).map(str)),
    max_size=3,
)


@given(steps=st.lists(_CHANGES, max_size=8))
def test_any_sequence_of_changes_leaves_what_a_dictionary_would_hold(steps: list[dict[str, str | None]]) -> None:
    small = SmallNode()
    small.broker.create_topic("orders")
    model: dict[str, str] = {}
    for step in steps:
        wanted = [(name, DELETE if value is None else SET, value) for name, value in step.items()]
        assert change(small, changes_of("orders", *wanted)) == [ErrorCode.NONE]
        for name, value in step.items():
            model.pop(name, None)
            if value is not None:
                model[name] = value
        assert small.broker.topic("orders").config.settings == model
    small.close()
