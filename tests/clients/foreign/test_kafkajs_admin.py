"""Every call that the admin client of KafkaJS has: what it changes is so in the log, what it shows is what the log has.

Calls that are for what this broker does not have (access control lists, moving partitions) are refused with a reason
that the client understands, at once. Each test looks at the other side through the same directory, embedded.
"""

from __future__ import annotations

import pytest

from clients.conftest import NewTopic
from clients.foreign.kafkajs import BOUND_S, Client, KafkaJs, KafkaJsError
from foldlog.broker.broker import Broker
from foldlog.client.log import Log
from foldlog.server.server import Server
from foldlog.wire.error_codes import ErrorCode

NOON_MS = 1_760_000_000_000
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
"""ConfigResourceTypes of KafkaJS."""


@pytest.fixture
def admin(kafkajs: KafkaJs) -> Client:
    return kafkajs.admin()


def committed(admin: Client, group: str, topic: str) -> dict[int, int]:
    (found,) = admin.call("fetchOffsets", {"groupId": group, "topics": [topic]})
    return {one["partition"]: int(one["offset"]) for one in found["partitions"]}


def test_topics_are_made_listed_grown_and_deleted(admin: Client, broker: Broker) -> None:
    wanted = {
        "topic": "made",
        "numPartitions": 2,
        "replicationFactor": 1,
        "configEntries": [{"name": "retention.ms", "value": "60000"}],
    }
    assert admin.call("createTopics", {"topics": [wanted]}) is True
    assert broker.topic("made").partition_count == 2
    assert broker.topic("made").config.log.retention_ms == 60_000
    assert admin.call("createTopics", {"topics": [wanted]}) is False, "it exists"
    assert "made" in admin.call("listTopics")
    admin.call("createPartitions", {"topicPartitions": [{"topic": "made", "count": 5}]})
    assert broker.topic("made").partition_count == 5
    admin.call("deleteTopics", {"topics": ["made"]})
    assert broker.find_topic("made") is None
    assert "made" not in admin.call("listTopics")


def test_a_topic_is_only_checked_where_that_is_asked(admin: Client, broker: Broker) -> None:
    admin.call("createTopics", {"validateOnly": True, "waitForLeaders": False, "topics": [{"topic": "imagined"}]})
    assert broker.find_topic("imagined") is None


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ({"topic": "no/good"}, "INVALID_TOPIC_EXCEPTION"),
        ({"topic": "alone", "replicationFactor": 3}, "INVALID_REPLICATION_FACTOR"),
        ({"topic": "odd", "configEntries": [{"name": "retention.ms", "value": "soon"}]}, "INVALID_CONFIG"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_kafkas_error(
    admin: Client, broker: Broker, topic: dict[str, object], kind: str
) -> None:
    with pytest.raises(KafkaJsError) as refusal:
        admin.call("createTopics", {"topics": [topic]})
    assert refusal.value.name == "KafkaJSAggregateError"
    assert refusal.value.kinds == [kind]
    assert str(topic["topic"]) not in broker.topics()


def test_metadata_tells_partitions_and_their_leader(admin: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    (found,) = admin.call("fetchTopicMetadata", {"topics": [topic]})["topics"]
    assert found["name"] == topic
    assert [
        (one["partitionId"], one["leader"], one["replicas"], one["isr"], one["offlineReplicas"])
        for one in sorted(found["partitions"], key=lambda one: int(one["partitionId"]))
    ] == [(0, 1, [1], [1], []), (1, 1, [1], [1], [])]


def test_metadata_of_a_topic_that_is_not_there_is_an_error(admin: Client) -> None:
    with pytest.raises(KafkaJsError) as refusal:
        admin.call("fetchTopicMetadata", {"topics": ["nowhere"]})
    assert refusal.value.kind == "UNKNOWN_TOPIC_OR_PARTITION"


def test_the_cluster_is_one_broker(admin: Client, server: Server) -> None:
    found = admin.call("describeCluster")
    host, port = server.addresses[0]
    assert found["brokers"] == [{"nodeId": 1, "host": host, "port": port}]
    assert found["controller"] == 1
    assert found["clusterId"]


def test_offsets_of_a_topic_and_of_a_time(admin: Client, log: Log, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    for number in range(6):
        log.append(topic, b"value", partition=0, timestamp_ms=NOON_MS + number)
    found = sorted(admin.call("fetchTopicOffsets", topic), key=lambda one: int(one["partition"]))
    assert found == [
        {"partition": 0, "offset": "6", "high": "6", "low": "0"},
        {"partition": 1, "offset": "0", "high": "0", "low": "0"},
    ]
    by_time = admin.call("fetchTopicOffsetsByTimestamp", topic, NOON_MS + 4)
    assert sorted((one["partition"], one["offset"]) for one in by_time) == [(0, "4"), (1, "0")]


def test_records_before_an_offset_are_deleted(admin: Client, log: Log, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    for number in range(6):
        log.append(topic, b"value", partition=number % 2)
    # It has to know the topic's leaders before, and asks for them only in other calls.
    admin.call("fetchTopicOffsets", topic)
    partitions = [{"partition": 0, "offset": "2"}, {"partition": 1, "offset": "-1"}]
    admin.call("deleteTopicRecords", {"topic": topic, "partitions": partitions})
    assert log.offsets(topic) == {0: (2, 3), 1: (3, 3)}


def test_settings_are_shown_and_replaced(admin: Client, broker: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(retention_ms=1000)
    entries = [{"name": "max.message.bytes", "value": "5000"}, {"name": "cleanup.policy", "value": "compact"}]
    change = {"type": TOPIC_RESOURCE, "name": topic, "configEntries": entries}
    admin.call("alterConfigs", {"validateOnly": True, "resources": [change]})
    assert broker.topic(topic).config.settings == {"retention.ms": "1000"}, "it was only checked"
    admin.call("alterConfigs", {"validateOnly": False, "resources": [change]})
    asked = {"type": TOPIC_RESOURCE, "name": topic}
    (found,) = admin.call("describeConfigs", {"includeSynonyms": True, "resources": [asked]})["resources"]
    values = {one["configName"]: one for one in found["configEntries"]}
    assert values["max.message.bytes"]["configValue"] == "5000"
    assert values["max.message.bytes"]["isDefault"] is False
    assert values["cleanup.policy"]["configValue"] == "compact"
    # AlterConfigs replaces all of them: what it does not name has its default again.
    assert values["retention.ms"]["configValue"] == "-1"
    assert values["retention.ms"]["isDefault"] is True


def test_the_brokers_settings_are_shown(admin: Client) -> None:
    asked = {"type": BROKER_RESOURCE, "name": "1", "configNames": ["num.partitions"]}
    (found,) = admin.call("describeConfigs", {"resources": [asked]})["resources"]
    assert [(one["configName"], one["configValue"]) for one in found["configEntries"]] == [("num.partitions", "1")]


def test_offsets_of_a_group_are_set_reset_and_shown(
    kafkajs: KafkaJs, log: Log, new_topic: NewTopic, group: str
) -> None:
    """Four groups at once: KafkaJS sets offsets through a consumer, which always sleeps for five seconds."""
    topic = new_topic(partitions=2)
    for number in range(10):
        log.append(topic, b"value", partition=number % 2)
    by_number, earliest, latest, resolved = (f"{group}-{number}" for number in range(4))
    log.reset_group(resolved, {(topic, 0): 2})
    admin = kafkajs.admin()
    assert committed(admin, by_number, topic) == {0: -1, 1: -1}
    places = [{"partition": 0, "offset": "3"}, {"partition": 1, "offset": "4"}]
    changes = [
        kafkajs.admin().begin("setOffsets", {"groupId": by_number, "topic": topic, "partitions": places}),
        kafkajs.admin().begin("resetOffsets", {"groupId": earliest, "topic": topic, "earliest": True}),
        kafkajs.admin().begin("resetOffsets", {"groupId": latest, "topic": topic, "earliest": False}),
        kafkajs.admin().begin("fetchOffsets", {"groupId": resolved, "topics": [topic], "resolveOffsets": True}),
    ]
    for change in changes:
        change.result(BOUND_S)
    assert committed(admin, by_number, topic) == {0: 3, 1: 4}
    # It commits its own signs for the earliest and the latest offset; consumers read from where they are told to start.
    assert committed(admin, earliest, topic) == {0: -2, 1: -2}
    assert committed(admin, latest, topic) == {0: -1, 1: -1}
    # Where nothing was committed this makes an offset of the sign for the latest.
    assert committed(admin, resolved, topic) == {0: 2, 1: 5}


def test_groups_are_listed_described_and_deleted(
    admin: Client, kafkajs: KafkaJs, log: Log, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=2)
    log.append(topic, b"value", partition=0)
    consumer = kafkajs.consumer(group, topic)
    consumer.take(1)
    listed = admin.call("listGroups")["groups"]
    assert {"groupId": group, "protocolType": "consumer"} in listed
    (described,) = admin.call("describeGroups", [group])["groups"]
    assert (described["state"], described["protocol"]) == ("Stable", "RoundRobinAssigner")
    (member,) = described["members"]
    assert member["clientId"] == "kafkajs"
    assert member["clientHost"] == "/127.0.0.1"
    with pytest.raises(KafkaJsError) as refusal:
        admin.call("deleteGroups", [group])
    assert refusal.value.name == "KafkaJSDeleteGroupsError"
    consumer.disconnect()
    assert admin.call("describeGroups", [group])["groups"][0]["state"] == "Empty"
    (deleted,) = admin.call("deleteGroups", [group])
    assert (deleted["groupId"], deleted["errorCode"]) == (group, 0)
    assert group not in [one["groupId"] for one in admin.call("listGroups")["groups"]]


RULE = {"resourceType": TOPIC_RESOURCE, "resourcePatternType": 3, "operation": 2, "permissionType": 3}
"""Of access control, as KafkaJS numbers it."""


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("describeAcls", RULE),
        ("deleteAcls", {"filters": [RULE]}),
        ("createAcls", {"acl": [{**RULE, "resourceName": "orders", "principal": "User:bob", "host": "*"}]}),
    ],
)
def test_without_an_authorizer_there_are_no_acls(admin: Client, method: str, parameters: object) -> None:
    with pytest.raises(KafkaJsError) as refusal:
        admin.call(method, parameters)
    assert refusal.value.code == ErrorCode.SECURITY_DISABLED


def test_nothing_is_moved_where_there_is_one_broker(admin: Client, topic: str) -> None:
    def move(*replicas: int) -> object:
        wanted = [{"partition": 0, "replicas": list(replicas)}]
        return admin.call("alterPartitionReassignments", {"topics": [{"topic": topic, "partitionAssignment": wanted}]})

    move(1)
    assert admin.call("listPartitionReassignments", {})["topics"] == []
    with pytest.raises(KafkaJsError):
        move(2)
