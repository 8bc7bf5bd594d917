"""Topics are made, grown and deleted over the network as Kafka's controller would with one broker.

Each refusal is checked with its code, that it has a sentence, and that nothing was changed. Requests and answers go
through the codec in every version.
"""

from __future__ import annotations

import errno

import pytest

from broker.small_broker import at, make_own_topic, write
from foldlog import limits
from foldlog.broker.access.acls import AclOperation, ResourceType
from foldlog.broker.topics.config import TOPIC_SETTINGS
from foldlog.broker.topics.names import KAFKA_OWN_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from foldlog.client.fold_bulletin import FOLDS_TOPIC
from foldlog.errors import InvalidConfig, InvalidTopicName, TooManySettings
from foldlog.files.memory import MemoryFiles
from foldlog.limits import PARTITIONS_MAX
from foldlog.server.config.resources import ConfigSource
from foldlog.testing.faulty_files import NO_FAULT, Fault, FaultyFiles, Kind, Operation
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages import incremental_alter_configs as incremental
from foldlog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from foldlog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from foldlog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from foldlog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from foldlog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from foldlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from server.small_node import Denies, SmallNode

UNKNOWN_ID = bytes(15) + b"\7"


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assigned: dict[int, list[int]] | None = None,
    **settings: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in (assigned or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()],
    )


def create(
    small: SmallNode, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> dict[str, ErrorCode]:
    answer = small.ask(CreateTopicsRequest(topics=topics, validate_only=validate_only), version)
    for result in answer.topics:
        assert bool(result.error_message) == (result.error_code != ErrorCode.NONE), result
    return {result.name: ErrorCode(result.error_code) for result in answer.topics}


def create_one(small: SmallNode, wanted: CreatableTopic) -> CreatableTopicResult:
    answer = small.ask(CreateTopicsRequest(topics=[wanted]), 7)
    (result,) = answer.topics
    assert isinstance(result, CreatableTopicResult)
    return result


# --- CreateTopics ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_makes_topics_and_tells_what_it_made(small: SmallNode, version: int) -> None:
    answer = small.ask(CreateTopicsRequest(topics=[topic("orders", 3, retention_ms="5"), topic("users")]), version)
    made = small.broker.topic("orders")
    assert (made.partition_count, made.config.settings) == (3, {"retention.ms": "5"})
    assert small.broker.topics() == ["orders", "users"]
    assert [(result.name, result.error_code, result.error_message) for result in answer.topics] == [
        ("orders", ErrorCode.NONE, None),
        ("users", ErrorCode.NONE, None),
    ]
    result = answer.topics[0]
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs = {config.name: (config.value, config.config_source) for config in result.configs}
        assert configs.keys() == TOPIC_SETTINGS.keys()
        assert configs["retention.ms"] == ("5", ConfigSource.DYNAMIC_TOPIC_CONFIG)
        assert configs["segment.ms"] == ("604800000", ConfigSource.DEFAULT_CONFIG)
    assert result.topic_id == (bytes.fromhex(made.topic_id) if version >= 7 else bytes(16))


def test_what_is_not_said_is_as_the_broker_has_it() -> None:
    small = SmallNode(settings={"num.partitions": 4, "log.retention.hours": 1})
    result = create_one(small, topic("orders", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (4, 1)
    assert small.broker.topic("orders").partition_count == 4
    configs = {config.name: (config.value, config.config_source) for config in result.configs or ()}
    assert configs["retention.ms"] == ("3600000", ConfigSource.STATIC_BROKER_CONFIG)
    small.close()


def test_nothing_is_made_where_only_the_check_is_asked_for(small: SmallNode) -> None:
    small.broker.create_topic("users")
    wanted = [topic("orders", 3), topic("users"), topic("a/b"), topic("x", retention_ms="soon")]
    assert create(small, *wanted, validate_only=True) == {
        "orders": ErrorCode.NONE,
        "users": ErrorCode.TOPIC_ALREADY_EXISTS,
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "x": ErrorCode.INVALID_CONFIG,
    }
    assert small.broker.topics() == ["users"]


def test_each_topic_of_a_request_is_made_or_refused_by_itself(small: SmallNode) -> None:
    assert create(small, topic("a"), topic(".."), topic("b"), topic("c", 0)) == {
        "a": ErrorCode.NONE,
        "..": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "b": ErrorCode.NONE,
        "c": ErrorCode.INVALID_PARTITIONS,
    }
    assert small.broker.topics() == ["a", "b"]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("../up"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("old_name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(OFFSETS_TOPIC), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("old.name"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("orders", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("orders", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("orders", PARTITIONS_MAX + 1), ErrorCode.INVALID_PARTITIONS),
        (topic("orders", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("orders", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("orders", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("orders", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (topic("orders", retention_ms=None), ErrorCode.INVALID_CONFIG),
        (topic("orders", no_such="1"), ErrorCode.INVALID_CONFIG),
        (topic("orders", 1, -1, {0: [1]}), ErrorCode.INVALID_REQUEST),
        (topic("orders", -1, 1, {0: [1]}), ErrorCode.INVALID_REQUEST),
        (topic("orders", -1, -1, {0: [2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("orders", -1, -1, {0: [1, 2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("orders", -1, -1, {0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("orders", -1, -1, {0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("orders", -1, -1, {1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("orders", -1, -1, {0: [1], 2: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_made_is_refused_with_kafkas_code(
    small: SmallNode, wanted: CreatableTopic, code: ErrorCode
) -> None:
    small.broker.create_topic("old.name")
    assert create(small, wanted) == {wanted.name: code}
    assert small.broker.topics(include_internal=True) == ["old.name"]


def test_replicas_that_are_assigned_to_this_broker_are_where_they_would_be_anyway(small: SmallNode) -> None:
    assert create(small, topic("orders", -1, -1, {1: [1], 0: [1]})) == {"orders": ErrorCode.NONE}
    assert small.broker.topic("orders").partition_count == 2


def test_a_topic_that_stands_in_a_request_twice_is_refused_once(small: SmallNode) -> None:
    assert create(small, topic("orders"), topic("users"), topic("orders", 2)) == {
        "orders": ErrorCode.INVALID_REQUEST,
        "users": ErrorCode.NONE,
    }
    assert small.broker.topics() == ["users"]


def test_a_request_for_very_many_partitions_is_refused_as_a_whole(small: SmallNode) -> None:
    assert create(small, topic("a", PARTITIONS_MAX), topic("b")) == {
        "a": ErrorCode.POLICY_VIOLATION,
        "b": ErrorCode.POLICY_VIOLATION,
    }
    assert small.broker.topics() == []


def test_settings_that_kafka_has_and_a_single_broker_does_not_need_are_taken(small: SmallNode) -> None:
    wanted = topic("orders", min_insync_replicas="2", unclean_leader_election_enable="true", segment_jitter_ms="5")
    assert create(small, wanted) == {"orders": ErrorCode.NONE}
    assert small.broker.topic("orders").config.settings["min.insync.replicas"] == "2"


def test_who_may_not_make_topics_makes_none_and_who_may_not_see_settings_sees_none() -> None:
    denies = Denies((AclOperation.CREATE, ResourceType.CLUSTER), (AclOperation.CREATE, ResourceType.TOPIC))
    small = SmallNode(authorizer=denies)
    answer = small.ask(CreateTopicsRequest(topics=[topic("orders")]), 7)
    assert [result.error_code for result in answer.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert small.broker.topics() == []
    small.close()
    small = SmallNode(authorizer=Denies((AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC)))
    result = create_one(small, topic("orders"))
    assert (result.error_code, result.topic_config_error_code) == (
        ErrorCode.NONE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
    assert (result.configs, result.num_partitions) == (None, -1)
    small.close()


LONG_LIST = ",".join(["0:1"] * 8000)
ALL_SETTINGS = {
    name: str(2**63 - 1) if setting.kafka_type == "LONG" else setting.default
    for name, setting in TOPIC_SETTINGS.items()
}


def test_what_one_topic_sets_has_a_bound_and_all_settings_there_are_fit_in_it(small: SmallNode) -> None:
    long = topic("long", leader_replication_throttled_replicas=LONG_LIST)
    for validate_only in (True, False):
        answer = small.ask(CreateTopicsRequest(topics=[long, topic("short")], validate_only=validate_only), 7)
        refused, made = answer.topics
        assert (refused.error_code, made.error_code) == (ErrorCode.INVALID_CONFIG, ErrorCode.NONE)
        assert "the settings of topic 'long' take 32036 bytes" in str(refused.error_message)
    assert create(small, topic("all", 1, 1, None, **ALL_SETTINGS)) == {"all": ErrorCode.NONE}
    assert small.broker.topics() == ["all", "short"]


@pytest.mark.parametrize("validate_only", [True, False])
def test_a_change_of_settings_keeps_to_the_same_bound(small: SmallNode, validate_only: bool) -> None:
    create(small, topic("orders"))
    given = incremental.AlterableConfig(
        name="leader.replication.throttled.replicas", config_operation=0, value=LONG_LIST
    )
    one = incremental.AlterConfigsResource(resource_type=2, resource_name="orders", configs=[given])
    request = incremental.IncrementalAlterConfigsRequest(resources=[one], validate_only=validate_only)
    assert small.ask(request, 1).responses[0].error_code == ErrorCode.INVALID_CONFIG
    assert small.broker.topic("orders").config.settings == {}


def test_what_all_topics_set_together_has_a_bound(small: SmallNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOPIC_SETTINGS_OF_ALL_BYTES_MAX", 3 * len("retention.ms5"))
    made = create(small, *(topic(name, retention_ms="5") for name in "abcd"), topic("plain"))
    assert made.pop("d") == ErrorCode.POLICY_VIOLATION
    assert set(made.values()) == {ErrorCode.NONE}
    with pytest.raises(TooManySettings, match=r"^topic 'plain' cannot have these settings: .*; leave out"):
        small.broker.alter_topic("plain", {"retention.ms": 5})
    small.broker.alter_topic("a", {"retention.ms": 7})
    small.broker.delete_topic("b")
    small.broker.alter_topic("plain", {"retention.ms": 5})


def test_a_topic_that_an_older_broker_let_have_more_can_be_changed_to_less(
    small: SmallNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.broker.create_topic("orders", 1, {"retention.ms": 500, "segment.bytes": 2048})
    monkeypatch.setattr(limits, "TOPIC_SETTINGS_BYTES_MAX", 10)
    with pytest.raises(InvalidConfig):
        small.broker.alter_topic("orders", {"flush.messages": 2})
    small.broker.alter_topic("orders", {"retention.ms": 5})
    small.broker.alter_topic("orders", {"segment.bytes": None})


def test_a_request_replaces_the_catalog_once_however_many_topics_it_makes_or_deletes() -> None:
    files = FaultyFiles(MemoryFiles())
    small = SmallNode(files)
    names = [f"t{number}" for number in range(20)]

    def replacements() -> int:
        return sum(one.kind is Kind.RENAME and "catalog.json" in one.path for one in files.operations)

    before = replacements()
    assert set(create(small, *(topic(name) for name in names)).values()) == {ErrorCode.NONE}
    assert replacements() == before + 1
    answer = small.ask(DeleteTopicsRequest(topic_names=names), 5)
    assert {one.error_code for one in answer.responses} == {ErrorCode.NONE}
    assert replacements() == before + 2
    assert create(small, topic("bad name")) == {"bad name": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert replacements() == before + 2, "nothing was made"
    small.close()


def test_the_disk_refuses_one_topic_and_the_others_are_made() -> None:
    files = FaultyFiles(MemoryFiles())
    small = SmallNode(files)
    files.fault = Fault(lambda operation: errno.ENOSPC if "b-0" in operation.path else 0)
    assert create(small, topic("a"), topic("b"), topic("c")) == {
        "a": ErrorCode.NONE,
        "b": ErrorCode.KAFKA_STORAGE_ERROR,
        "c": ErrorCode.NONE,
    }
    files.fault = NO_FAULT
    assert create(small, topic("b")) == {"b": ErrorCode.NONE}
    small.close()


def test_a_broker_that_leaves_makes_no_more_topics_and_keeps_those_it_has_made() -> None:
    files = FaultyFiles(MemoryFiles())
    small = SmallNode(files)

    def leave_at_b(operation: Operation) -> int:
        small.node.is_leaving = small.node.is_leaving or "b-1" in operation.path
        return 0

    files.fault = Fault(leave_at_b)
    made = create(small, topic("a", 2), topic("b", 3), topic("c"))
    assert made == {"a": ErrorCode.NONE, "b": ErrorCode.NOT_CONTROLLER, "c": ErrorCode.NOT_CONTROLLER}
    files.fault = NO_FAULT
    small.node.is_leaving = False
    assert small.broker.topics() == ["a"]
    assert create(small, topic("b", 3), topic("c")) == {"b": ErrorCode.NONE, "c": ErrorCode.NONE}
    small.node.is_leaving = True
    (deleted,) = small.ask(DeleteTopicsRequest(topic_names=["a"]), 5).responses
    (grown,) = small.ask(CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="c", count=2)]), 3).results
    assert deleted.error_code == grown.error_code == ErrorCode.NOT_CONTROLLER
    assert small.broker.topics() == ["a", "b", "c"]
    small.node.is_leaving = False
    small.close()


# --- CreatePartitions -----------------------------------------------------------------------------------------------


def grown(name: str, count: int, assigned: list[list[int]] | None = None) -> CreatePartitionsTopic:
    assignments = None if assigned is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assigned]
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments)


@pytest.mark.parametrize("version", range(4))
def test_every_version_makes_topics_grow_and_answers_each(small: SmallNode, version: int) -> None:
    small.broker.create_topic("orders", 2)
    small.broker.create_topic("users", 2)
    wanted = [grown("orders", 5), grown("users", 3, [[1]]), grown("none", 2)]
    answer = small.ask(CreatePartitionsRequest(topics=wanted), version)
    assert [(result.name, ErrorCode(result.error_code)) for result in answer.results] == [
        ("orders", ErrorCode.NONE),
        ("users", ErrorCode.NONE),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [result.error_message for result in answer.results] == [None, None, "there is no topic 'none'"]
    assert [small.broker.topic(name).partition_count for name in ("orders", "users")] == [5, 3]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (grown("orders", 2), ErrorCode.INVALID_PARTITIONS),
        (grown("orders", 1), ErrorCode.INVALID_PARTITIONS),
        (grown("orders", -1), ErrorCode.INVALID_PARTITIONS),
        (grown("orders", PARTITIONS_MAX + 1), ErrorCode.INVALID_PARTITIONS),
        (grown("orders", 4, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (grown("orders", 3, [[2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (grown("orders", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (grown("../up", 3), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (grown(OFFSETS_TOPIC, 3), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_what_cannot_grow_is_refused_with_kafkas_code(
    small: SmallNode, wanted: CreatePartitionsTopic, code: ErrorCode
) -> None:
    small.broker.create_topic("orders", 2)
    small.broker.commit_offsets("fraud", {("orders", 0): at(0)})
    for validate_only in (True, False):
        answer = small.ask(CreatePartitionsRequest(topics=[wanted], validate_only=validate_only), 3)
        assert [ErrorCode(result.error_code) for result in answer.results] == [code]
        assert answer.results[0].error_message
    assert small.broker.topic("orders").partition_count == 2
    assert small.broker.topic(OFFSETS_TOPIC).partition_count == 1


def test_nothing_grows_where_only_the_check_is_asked_for(small: SmallNode) -> None:
    small.broker.create_topic("orders", 2)
    answer = small.ask(CreatePartitionsRequest(topics=[grown("orders", 3)], validate_only=True), 3)
    assert [result.error_code for result in answer.results] == [ErrorCode.NONE]
    assert small.broker.topic("orders").partition_count == 2


def test_a_topic_does_not_grow_twice_in_a_request_nor_by_very_many(small: SmallNode) -> None:
    for name in ("a", "b", "c"):
        small.broker.create_topic(name)
    twice = CreatePartitionsRequest(topics=[grown("a", 2), grown("a", 3), grown("b", 2)])
    assert [(result.name, result.error_code) for result in small.ask(twice, 3).results] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]
    many = CreatePartitionsRequest(topics=[grown("a", PARTITIONS_MAX), grown("c", 5)])
    assert [result.error_code for result in small.ask(many, 3).results] == [ErrorCode.POLICY_VIOLATION] * 2
    assert [small.broker.topic(name).partition_count for name in ("a", "b", "c")] == [1, 2, 1]


def test_who_may_not_change_a_topic_does_not_make_it_grow() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.ALTER, ResourceType.TOPIC)))
    small.broker.create_topic("orders")
    answer = small.ask(CreatePartitionsRequest(topics=[grown("orders", 2)]), 3)
    assert answer.results[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert small.broker.topic("orders").partition_count == 1
    small.close()


# --- DeleteTopics ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_deletes_topics_by_name(small: SmallNode, version: int) -> None:
    small.broker.create_topic("users")
    topic_id = bytes.fromhex(small.broker.create_topic("orders").topic_id)
    write(small.broker, "orders", 0, b"a")
    names = ["orders", "none"]
    request = DeleteTopicsRequest(topic_names=names)
    if version >= 6:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])
    answer = small.ask(request, version)
    assert [(result.name, result.error_code) for result in answer.responses] == [
        ("orders", ErrorCode.NONE),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert answer.responses[0].topic_id == (topic_id if version >= 6 else bytes(16))
    assert small.broker.topics() == ["users"]


def test_a_topic_is_deleted_by_its_id_and_not_the_next_one_of_its_name(small: SmallNode) -> None:
    topic_id = bytes.fromhex(small.broker.create_topic("orders").topic_id)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)])
    (result,) = small.ask(request, 6).responses
    assert (result.name, result.topic_id, result.error_code) == ("orders", topic_id, ErrorCode.NONE)
    small.broker.create_topic("orders")
    (result,) = small.ask(request, 6).responses
    assert (result.name, result.topic_id, result.error_code) == (None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    assert small.broker.topics() == ["orders"]


def test_a_topic_has_to_be_called_by_name_or_id_and_once(small: SmallNode) -> None:
    topic_id = bytes.fromhex(small.broker.create_topic("orders").topic_id)
    for states in (
        [DeleteTopicState(name="orders", topic_id=topic_id)],
        [DeleteTopicState()],
        [DeleteTopicState(name="orders"), DeleteTopicState(name="orders")],
        [DeleteTopicState(name="orders"), DeleteTopicState(topic_id=topic_id)],
    ):
        (result,) = small.ask(DeleteTopicsRequest(topics=states), 6).responses
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert result.error_message
    assert small.broker.topics() == ["orders"]


def test_the_logs_own_topic_cannot_be_deleted(small: SmallNode) -> None:
    small.broker.create_topic("orders")
    small.broker.commit_offsets("fraud", {("orders", 0): at(0)})
    (result,) = small.ask(DeleteTopicsRequest(topic_names=[OFFSETS_TOPIC]), 5).responses
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert OFFSETS_TOPIC in small.broker.topics(include_internal=True)


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (5, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_a_broker_may_keep_clients_from_deleting(version: int, code: ErrorCode) -> None:
    small = SmallNode(settings={"delete.topic.enable": "false"})
    small.broker.create_topic("orders")
    (result,) = small.ask(DeleteTopicsRequest(topic_names=["orders"]), version).responses
    assert result.error_code == code
    assert small.broker.topics() == ["orders"]
    small.close()


def test_who_may_not_know_or_delete_a_topic_does_neither() -> None:
    for operation in (AclOperation.DESCRIBE, AclOperation.DELETE):
        small = SmallNode(authorizer=Denies((operation, ResourceType.TOPIC)))
        topic_id = bytes.fromhex(small.broker.create_topic("orders").topic_id)
        (by_name,) = small.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]), 6).responses
        assert by_name.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        (by_id,) = small.ask(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)]), 6).responses
        is_hidden = operation is AclOperation.DESCRIBE
        assert by_id.error_code == (ErrorCode.UNKNOWN_TOPIC_ID if is_hidden else ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert by_id.name == (None if is_hidden else "orders")
        assert small.broker.topics() == ["orders"]
        small.close()


# --- the topic of the folds -----------------------------------------------------------------------------------------


def changes_of(small: SmallNode, name: str) -> dict[str, int]:
    """What a client that knows no secret is answered to everything that would undo what the topic holds."""
    by_id = DeleteTopicState(name=None, topic_id=bytes.fromhex(small.broker.topic(name).topic_id))
    wanted = DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)])
    grown = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=2)])
    setting = incremental.AlterableConfig(name="retention.ms", config_operation=0, value="1")
    one = incremental.AlterConfigsResource(resource_type=2, resource_name=name, configs=[setting])
    whole = AlterConfigsResource(resource_type=2, resource_name=name, configs=[])
    return {
        "delete records": small.ask(DeleteRecordsRequest(topics=[wanted]), 2).topics[0].partitions[0].error_code,
        "grow": small.ask(grown, 3).results[0].error_code,
        "alter": small.ask(incremental.IncrementalAlterConfigsRequest(resources=[one]), 1).responses[0].error_code,
        "set all settings": small.ask(AlterConfigsRequest(resources=[whole]), 2).responses[0].error_code,
        "delete by id": small.ask(DeleteTopicsRequest(topics=[by_id]), 6).responses[0].error_code,
        "delete by name": small.ask(DeleteTopicsRequest(topic_names=[name]), 5).responses[0].error_code,
    }


def test_clients_change_the_topic_of_the_folds_as_little_as_they_write_it(small: SmallNode) -> None:
    small.broker.create_topic(FOLDS_TOPIC)
    write(small.broker, FOLDS_TOPIC, 0, b"a status")
    before = small.broker.topic(FOLDS_TOPIC)
    assert set(changes_of(small, FOLDS_TOPIC).values()) == {ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert small.broker.topic(FOLDS_TOPIC) == before
    assert small.broker.partition(FOLDS_TOPIC, 0).log_start_offset == 0
    (said,) = small.ask(DeleteTopicsRequest(topic_names=[FOLDS_TOPIC]), 5).responses
    assert "foldlog.folds.accept.unproven" in str(said.error_message)


@pytest.mark.parametrize("name", sorted(KAFKA_OWN_TOPICS))
def test_clients_make_and_change_no_topic_that_kafka_keeps_for_itself(small: SmallNode, name: str) -> None:
    for validate_only in (True, False):
        assert create(small, topic(name), topic("orders"), validate_only=validate_only) == {
            name: ErrorCode.INVALID_TOPIC_EXCEPTION,
            "orders": ErrorCode.NONE,
        }
    assert small.broker.topics(include_internal=True) == ["orders"]
    # One that an older broker let a client make.
    make_own_topic(small.broker, name)
    write(small.broker, name, 0, b"kept")
    before = small.broker.topic(name)
    assert set(changes_of(small, name).values()) == {ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert small.broker.topic(name) == before
    assert small.broker.partition(name, 0).log_start_offset == 0
    assert small.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics[0].is_internal


@pytest.mark.parametrize("name", sorted(KAFKA_OWN_TOPICS - {OFFSETS_TOPIC, TRANSACTIONS_TOPIC}))
def test_the_owner_of_the_directory_removes_what_was_once_made_under_such_a_name(small: SmallNode, name: str) -> None:
    make_own_topic(small.broker, name)
    with pytest.raises(InvalidTopicName):
        small.broker.grow_topic(name, 2)
    with pytest.raises(InvalidTopicName):
        small.broker.alter_topic(name, {"retention.ms": 1})
    small.broker.delete_topic(name)
    with pytest.raises(InvalidTopicName):
        small.broker.create_topic(name)


def test_where_every_client_may_write_the_topic_of_the_folds_every_client_may_change_it() -> None:
    small = SmallNode(settings={"foldlog.folds.accept.unproven": True})
    small.broker.create_topic(FOLDS_TOPIC)
    write(small.broker, FOLDS_TOPIC, 0, b"a status")
    answers = changes_of(small, FOLDS_TOPIC)
    assert answers.pop("delete by name") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it was deleted by its id"
    assert set(answers.values()) == {ErrorCode.NONE}
    small.close()
