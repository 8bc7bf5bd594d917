"""The broker's settings are changed while it runs: in force at once, shown with their source, there after a restart.

Requests and answers go through the codec. Any sequence of changes is compared with a model, and a directory that loses
its power during a change opens with all of it or nothing.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.broker.broker import Broker
from foldlog.broker.dynamic_settings import SETTINGS_NAME
from foldlog.client.wire import questions
from foldlog.files.memory import MemoryFiles
from foldlog.log.partition import Partition
from foldlog.records.loops import pack
from foldlog.server.config.broker_settings import BROKER_SETTINGS
from foldlog.server.config.resources import ConfigResource, ConfigSource
from foldlog.wire.error_codes import ErrorCode
from server.handlers.test_configs import DELETE, SET, alter, change, changes_of, describe, replacement, values
from server.small_node import DIRECTORY, SmallNode

APPEND, SUBTRACT = 2, 3
TOPIC, BROKER = ConfigResource.TOPIC, ConfigResource.BROKER
OWN, ALL, STATIC, DEFAULT = (
    ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
    ConfigSource.DEFAULT_CONFIG,
)


def set_to(small: SmallNode, resource: str, **settings: str | None) -> list[ErrorCode]:
    """None deletes."""
    changes = [(name.replace("_", "."), DELETE if value is None else SET, value) for name, value in settings.items()]
    return change(small, changes_of(resource, *changes, kind=BROKER))


def synonyms(small: SmallNode, kind: int, resource: str, name: str) -> list[tuple[str, str | None, int]]:
    (row,) = describe(small, kind, resource, [name], synonyms=True).configs
    assert row.value == row.synonyms[0].value or kind == TOPIC
    return [(one.name, one.value, one.source) for one in row.synonyms]


def test_a_change_goes_before_what_the_broker_was_started_with_and_one_of_this_broker_before_all() -> None:
    small = SmallNode(settings={"max.connections": 30})
    assert set_to(small, "", max_connections="20") == [ErrorCode.NONE]
    assert small.node.settings.max_connections == small.node.connections.settings.max_connections == 20
    assert set_to(small, "1", max_connections="10") == [ErrorCode.NONE]
    assert small.node.settings.max_connections == 10
    name = "max.connections"
    assert synonyms(small, BROKER, "1", name) == [
        (name, "10", OWN), (name, "20", ALL), (name, "30", STATIC), (name, "10000", DEFAULT)
    ]  # fmt: skip
    assert values(describe(small, BROKER, "", [name])) == {name: ("20", ALL)}
    assert set_to(small, "1", max_connections=None) == [ErrorCode.NONE]
    assert small.node.settings.max_connections == 20
    assert set_to(small, "", max_connections=None) == [ErrorCode.NONE]
    assert small.node.settings.max_connections == 30
    assert synonyms(small, BROKER, "1", name) == [(name, "30", STATIC), (name, "10000", DEFAULT)]
    small.close()


def test_the_defaults_of_topics_change_in_open_partitions_and_new_topics_and_not_where_a_topic_sets_its_own() -> None:
    small = SmallNode(settings={"log.retention.hours": 1})
    small.broker.create_topic("open")
    small.broker.create_topic("own", config={"retention.ms": 7})
    partitions = [small.broker.partition(name, 0) for name in ("open", "own")]
    assert set_to(small, "", log_retention_ms="5000", message_max_bytes="900") == [ErrorCode.NONE]
    small.broker.create_topic("new")
    partitions.append(small.broker.partition("new", 0))
    found = [
        (one.config.retention_ms, one.config.max_message_bytes) for one in partitions if isinstance(one, Partition)
    ]
    assert found == [(5000, 900), (7, 900), (5000, 900)]
    assert synonyms(small, TOPIC, "open", "retention.ms") == [
        ("log.retention.ms", "5000", ALL), ("log.retention.hours", "1", STATIC)
    ]  # fmt: skip
    assert synonyms(small, TOPIC, "own", "retention.ms")[0] == ("retention.ms", "7", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert values(describe(small, TOPIC, "open", ["retention.ms"])) == {"retention.ms": ("5000", ALL)}
    assert set_to(small, "", log_retention_ms=None) == [ErrorCode.NONE]
    assert isinstance(partitions[0], Partition)
    assert partitions[0].config.retention_ms == 3_600_000
    small.close()


def test_what_was_changed_is_in_force_after_a_restart() -> None:
    files = MemoryFiles()
    small = SmallNode(files)
    small.broker.create_topic("orders")
    assert set_to(small, "1", log_segment_bytes="65536", producer_id_expiration_ms="1000") == [ErrorCode.NONE]
    assert set_to(small, "", log_cleaner_threads="4") == [ErrorCode.NONE]
    small.close()
    again = SmallNode(files)
    partition = again.broker.partition("orders", 0)
    assert isinstance(partition, Partition)
    assert partition.config.segment_bytes == 65536
    assert again.node.settings.producer_id_expiration_ms == 1000
    assert again.node.settings.log_cleaner_threads == 4
    again.close()
    with Broker.open(DIRECTORY, files=files, background=False) as other:  # a program that serves nobody
        found = other.partition("orders", 0)
        assert isinstance(found, Partition)
        assert found.config.segment_bytes == 1 << 30, "a broker's settings are the server's"


def test_a_larger_message_is_taken_as_soon_as_it_is_allowed(small: SmallNode) -> None:
    small.broker.create_topic("orders")
    partition = small.broker.partition("orders", 0)
    assert isinstance(partition, Partition)
    batch = pack([(5, b"k", b"v" * 2000, ())])
    assert set_to(small, "", message_max_bytes="100") == [ErrorCode.NONE]
    with pytest.raises(Exception, match=r"max\.message\.bytes"):
        partition.append(batch)
    assert set_to(small, "", message_max_bytes="3000") == [ErrorCode.NONE]
    partition.append(batch)


STARTED_WITH = sorted(name for name, row in BROKER_SETTINGS.items() if not row.is_dynamic)


@pytest.mark.parametrize("name", STARTED_WITH)
def test_what_is_read_at_the_start_is_refused(small: SmallNode, name: str) -> None:
    text = "1" if BROKER_SETTINGS[name].kafka_type in ("INT", "LONG") else "x"
    for resource in ("1", ""):
        assert change(small, changes_of(resource, (name, SET, text), kind=BROKER)) == [ErrorCode.INVALID_REQUEST]
    assert not small.broker.dynamic_settings.current.resources


@pytest.mark.parametrize(
    ("resource", "changes"),
    [
        ("1", [("max.connections", SET, "many")]),
        ("1", [("max.connections", SET, "0")]),
        ("1", [("no.such", SET, "1")]),
        ("1", [("num.io.threads", SET, "1")]),
        ("1", [("broker.id", SET, "1")]),
        ("1", [("max.connections", SET, None)]),
        ("1", [("max.connections", SET, "5"), ("num.partitions", SET, "2")]),
        ("1", [("max.connections", SET, "5"), ("max.connections", DELETE, None)]),
        ("2", [("max.connections", SET, "5")]),
        ("one", [("max.connections", SET, "5")]),
        ("1", [("max.connections", 9, "5")]),
    ],
)
def test_a_refused_change_changes_nothing(
    small: SmallNode, resource: str, changes: list[tuple[str, int, str | None]]
) -> None:
    for validate_only in (True, False):
        codes = change(small, changes_of(resource, *changes, kind=BROKER), validate_only=validate_only)
        assert codes == [ErrorCode.INVALID_REQUEST]
    assert small.node.settings.max_connections == 10_000
    assert not small.broker.dynamic_settings.current.resources


def test_nothing_changes_where_only_the_check_is_asked_for(small: SmallNode) -> None:
    wanted = changes_of("1", ("max.connections", SET, "5"), kind=BROKER)
    assert change(small, wanted, validate_only=True) == [ErrorCode.NONE]
    assert small.node.settings.max_connections == 10_000


def test_a_setting_that_nobody_knows_can_be_deleted(small: SmallNode) -> None:
    assert set_to(small, "1", no_such=None, max_connections=None) == [ErrorCode.NONE]


def test_items_are_added_to_the_built_in_list_and_taken_from_it(small: SmallNode) -> None:
    policy = "log.cleanup.policy"
    for operation, item, expected in ((APPEND, "compact", "delete,compact"), (SUBTRACT, "delete", "compact")):
        assert change(small, changes_of("", (policy, operation, item), kind=BROKER)) == [ErrorCode.NONE]
        assert values(describe(small, BROKER, "1", [policy]))[policy] == (expected, ALL)
    assert change(small, changes_of("", ("max.connections", APPEND, "1"), kind=BROKER)) == [ErrorCode.INVALID_CONFIG]


@pytest.mark.parametrize("version", range(3))
def test_every_version_of_alter_configs_replaces_all_that_was_changed(small: SmallNode, version: int) -> None:
    assert set_to(small, "1", max_connections="5", log_segment_bytes="65536") == [ErrorCode.NONE]
    assert alter(small, replacement("1", BROKER, max_connections="6"), version=version) == [ErrorCode.NONE]
    assert small.node.live_settings.of_this_broker == {"max.connections": "6"}
    assert alter(small, replacement("1", BROKER, num_partitions="6"), version=version) == [ErrorCode.INVALID_REQUEST]
    assert alter(small, replacement("1", BROKER), version=version) == [ErrorCode.NONE]
    assert small.node.live_settings.of_this_broker == {}


_STEP = st.tuples(
    st.sampled_from(["", "1"]),
    st.dictionaries(
        st.sampled_from(["max.connections", "log.roll.ms", "message.max.bytes"]),
        st.one_of(st.none(), st.integers(1, 99).map(str)),
        max_size=3,
    ),
)


@given(steps=st.lists(_STEP, max_size=6))
def test_any_sequence_of_changes_leaves_what_two_dictionaries_would_hold(
    steps: list[tuple[str, dict[str, str | None]]],
) -> None:
    files = MemoryFiles()
    small = SmallNode(files)
    model: dict[str, dict[str, str]] = {"": {}, "1": {}}
    for resource, step in steps:
        wanted = [(name, DELETE if value is None else SET, value) for name, value in step.items()]
        assert change(small, changes_of(resource, *wanted, kind=BROKER)) == [ErrorCode.NONE]
        for name, value in step.items():
            model[resource].pop(name, None)
            if value is not None:
                model[resource][name] = value
        in_force = {**model[""], **model["1"]}
        assert small.node.settings.max_connections == int(in_force.get("max.connections", 10_000))
        assert small.node.settings.topic_defaults.get("segment.ms") == in_force.get("log.roll.ms")
    small.close()
    again = SmallNode(files)
    assert (again.node.live_settings.of_all_brokers, again.node.live_settings.of_this_broker) == (model[""], model["1"])
    again.close()


def test_a_setting_that_another_version_stored_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    small = SmallNode(files)
    small.broker.dynamic_settings.change("broker", "1", lambda _: {"from.tomorrow": "1", "max.connections": "5"})
    small.close()
    again = SmallNode(files)
    assert again.node.settings.max_connections == 5
    assert "from.tomorrow" in caplog.text
    again.close()


def test_a_directory_without_changes_has_no_file_of_them(small: SmallNode) -> None:
    assert not small.broker._storage.files.exists(f"{DIRECTORY}/{SETTINGS_NAME}")


def test_a_process_beside_the_broker_hears_of_a_changed_default(small: SmallNode) -> None:
    """It checks the size of what it sends by what the broker takes."""
    for resource, size in (("", "900"), ("1", "800")):
        assert set_to(small, resource, message_max_bytes=size) == [ErrorCode.NONE]
        question = questions.topic_defaults(1)
        assert question.read(small.ask(question.request, 4)) == {"max.message.bytes": size}
