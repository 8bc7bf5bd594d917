"""Topics and settings with the admin clients that people use: what they ask for happens, and refusals reach them.

confluent-kafka, kafka-python and aiokafka, each with every call it has for topics, settings, the cluster and its disk,
against a served broker in memory. What happened is looked up in the broker itself, not in the client's answers alone.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from aiokafka import TopicPartition as AioPartition
from aiokafka import admin as aio
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete
from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka import admin as confluent
from kafka import TopicPartition as PythonPartition
from kafka import admin as python
from kafka.errors import (
    InvalidPartitionsError,
    InvalidTopicError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from broker.small_broker import write
from foldlog.broker.broker import Broker
from foldlog.server.config.resources import ConfigSource
from foldlog.server.server import Server
from foldlog.wire.error_codes import ErrorCode

BOUND_S = 30.0


def settings_of(broker: Broker, topic: str) -> dict[str, str]:
    return dict(broker.topic(topic).config.settings)


# --- confluent-kafka ------------------------------------------------------------------------------------------------


@pytest.fixture
def librdkafka(server: Server) -> confluent.AdminClient:
    return confluent.AdminClient({"bootstrap.servers": server.bootstrap})


def outcomes(futures: dict[Any, Future[Any]]) -> dict[Any, Any]:
    """What each future gives, or the error code it fails with."""
    found: dict[Any, Any] = {}
    for key, future in futures.items():
        try:
            found[key] = future.result(BOUND_S)
        except KafkaException as error:
            found[key] = ErrorCode(error.args[0].code())
    return found


def test_confluent_makes_grows_and_deletes_topics(librdkafka: confluent.AdminClient, broker: Broker) -> None:
    new_topic, grown = confluent.NewTopic, confluent.NewPartitions
    wanted = [
        new_topic("users", 3, 1, config={"retention.ms": "5", "min.insync.replicas": "2"}),
        new_topic("placed", 2, replica_assignment=[[1], [1]]),
        new_topic("usual"),
        new_topic("many", 1, 3),
        new_topic("orders"),
        new_topic("a/b"),
    ]
    assert outcomes(librdkafka.create_topics(wanted)) == {
        "users": None,
        "placed": None,
        "usual": None,
        "many": ErrorCode.INVALID_REPLICATION_FACTOR,
        "orders": ErrorCode.TOPIC_ALREADY_EXISTS,
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert outcomes(librdkafka.create_topics([new_topic("checked")], validate_only=True)) == {"checked": None}
    assert broker.topics() == ["orders", "placed", "users", "usual"]
    assert settings_of(broker, "users") == {"retention.ms": "5", "min.insync.replicas": "2"}

    growing = librdkafka.create_partitions([grown("users", 5), grown("orders", 1), grown("placed", 3, [[1]])])
    assert outcomes(growing) == {"users": None, "orders": ErrorCode.INVALID_PARTITIONS, "placed": None}
    assert [broker.topic(name).partition_count for name in ("users", "orders", "placed")] == [5, 3, 3]

    listed: Any = librdkafka.list_topics(timeout=BOUND_S)
    assert {name: len(topic.partitions) for name, topic in listed.topics.items()} == {
        "orders": 3,
        "placed": 3,
        "users": 5,
        "usual": 1,
    }
    assert {partition.leader for topic in listed.topics.values() for partition in topic.partitions.values()} == {1}
    assert listed.cluster_id == broker.directory_id

    described = outcomes(librdkafka.describe_topics(TopicCollection(["users", "none"])))
    assert described["none"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(described["users"].partitions) == 5
    assert outcomes(librdkafka.delete_topics(["users", "none"])) == {
        "users": None,
        "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert broker.topics() == ["orders", "placed", "usual"]


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_confluent_shows_and_changes_settings(librdkafka: confluent.AdminClient, broker: Broker) -> None:
    resource, entry, operation = confluent.ConfigResource, confluent.ConfigEntry, confluent.AlterConfigOpType
    orders = resource(resource.Type.TOPIC, "orders")

    def change(*changes: tuple[str, str | None, Any]) -> Any:
        entries = [entry(name, value, incremental_operation=kind) for name, value, kind in changes]
        wanted = resource(resource.Type.TOPIC, "orders", incremental_configs=entries)
        return outcomes(librdkafka.incremental_alter_configs([wanted]))[wanted]

    assert change(("cleanup.policy", "compact", operation.APPEND), ("retention.ms", "5", operation.SET)) is None
    assert settings_of(broker, "orders") == {"cleanup.policy": "delete,compact", "retention.ms": "5"}
    assert change(("retention.ms", "soon", operation.SET)) == ErrorCode.INVALID_CONFIG
    assert change(("cleanup.policy", "compact", operation.SUBTRACT), ("retention.ms", None, operation.DELETE)) is None
    assert settings_of(broker, "orders") == {"cleanup.policy": "delete"}

    replaced = resource(resource.Type.TOPIC, "orders", set_config={"segment.ms": "7"})
    assert outcomes(librdkafka.alter_configs([replaced])) == {replaced: None}
    assert settings_of(broker, "orders") == {"segment.ms": "7"}

    this_broker = resource(resource.Type.BROKER, "1")
    shown = outcomes(librdkafka.describe_configs([orders, this_broker]))
    assert (shown[orders]["segment.ms"].value, shown[orders]["segment.ms"].source) == (
        "7",
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
    )
    assert shown[orders]["retention.ms"].is_default
    assert shown[this_broker]["num.partitions"].is_read_only


def test_confluent_deletes_records_and_describes_the_cluster(
    librdkafka: confluent.AdminClient, broker: Broker, server: Server
) -> None:
    for _ in range(3):
        write(broker, "orders", 0, b"a")
    wanted = [TopicPartition("orders", 0, 2), TopicPartition("orders", 1, 9)]
    deleted = outcomes(librdkafka.delete_records(wanted))
    assert deleted[wanted[0]].low_watermark == 2
    assert deleted[wanted[1]] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert broker.partition("orders", 0).log_start_offset == 2
    cluster = librdkafka.describe_cluster(include_authorized_operations=True).result(BOUND_S)
    assert cluster.cluster_id == broker.directory_id
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [server.bootstrap]
    assert cluster.controller.id == 1
    assert confluent.AclOperation.CREATE in cluster.authorized_operations


# --- kafka-python ---------------------------------------------------------------------------------------------------


@pytest.fixture
def kafka_python(server: Server) -> Iterator[python.KafkaAdminClient]:
    client = python.KafkaAdminClient(bootstrap_servers=server.bootstrap)
    yield client
    client.close()


def test_kafka_python_makes_grows_and_deletes_topics(kafka_python: python.KafkaAdminClient, broker: Broker) -> None:
    kafka_python.create_topics(
        {
            "users": {"num_partitions": 3, "configs": {"retention.ms": "5"}},
            "placed": {"assignments": {0: [1], 1: [1]}},
            "usual": {},
        }
    )
    kafka_python.create_topics(["checked"], validate_only=True)
    with pytest.raises(TopicAlreadyExistsError):
        kafka_python.create_topics(["users"])
    with pytest.raises(InvalidTopicError):
        kafka_python.create_topics(["a/b"])
    assert sorted(kafka_python.list_topics()) == broker.topics() == ["orders", "placed", "users", "usual"]
    assert settings_of(broker, "users") == {"retention.ms": "5"}

    kafka_python.create_partitions({"users": 5, "placed": {"count": 3, "assignments": [[1]]}})
    with pytest.raises(InvalidPartitionsError):
        kafka_python.create_partitions({"orders": 3})
    assert [broker.topic(name).partition_count for name in ("users", "orders", "placed")] == [5, 3, 3]

    users_id = uuid.UUID(broker.topic("users").topic_id)
    by_name, by_id = kafka_python.describe_topics(["orders"]) + kafka_python.describe_topics([users_id])
    assert (by_name["name"], len(by_name["partitions"])) == ("orders", 3)
    assert (by_id["name"], len(by_id["partitions"])) == ("users", 5)
    pages = kafka_python.describe_topic_partitions(["orders", "users"], response_partition_limit=4)
    assert pages["next_cursor"] == {"topic_name": "users", "partition_index": 1}

    kafka_python.delete_topics(["usual", users_id])
    with pytest.raises(UnknownTopicOrPartitionError):
        kafka_python.delete_topics(["usual"])
    assert broker.topics() == ["orders", "placed"]


def test_kafka_python_shows_and_changes_settings(kafka_python: python.KafkaAdminClient, broker: Broker) -> None:
    resource = python.ConfigResource
    kafka_python.alter_configs(
        [resource("topic", "orders", {"cleanup.policy": ("APPEND", "compact"), "flush.ms": "7"})]
    )
    assert settings_of(broker, "orders") == {"cleanup.policy": "delete,compact", "flush.ms": "7"}
    kafka_python.alter_configs([resource("topic", "orders", {"flush.ms": "8"})], incremental=False)
    assert settings_of(broker, "orders") == {"cleanup.policy": "delete,compact", "flush.ms": "8"}
    modified = kafka_python.describe_configs([resource("topic", "orders")])["topic"]["orders"]
    assert {name: row["value"] for name, row in modified.items()} == settings_of(broker, "orders")
    kafka_python.reset_configs([resource("topic", "orders", ["flush.ms"])])
    kafka_python.reset_configs([resource("topic", "orders", ["cleanup.policy"])], incremental=False)
    assert settings_of(broker, "orders") == {}
    of_broker = kafka_python.describe_configs([resource("broker", "1")], config_filter="all")["broker"]["1"]
    assert of_broker["num.partitions"]["value"] == "1"


def test_kafka_python_deletes_records_and_describes_cluster_and_disk(
    kafka_python: python.KafkaAdminClient, broker: Broker, server: Server
) -> None:
    write(broker, "orders", 0, b"a", b"b")
    deleted = kafka_python.delete_records({PythonPartition("orders", 0): -1})
    assert [row["low_watermark"] for row in deleted.values()] == [2]
    cluster = kafka_python.describe_cluster()
    assert (cluster["cluster_id"], cluster["controller_id"]) == (broker.directory_id, 1)
    assert [f"{node['host']}:{node['port']}" for node in cluster["brokers"]] == [server.bootstrap]
    write(broker, "orders", 1, b"a" * 1000)
    ((directory,),) = (answer["log_dirs"] for answer in kafka_python.describe_log_dirs())
    sizes = [row["partition_size"] for row in directory["topics"][0]["partitions"]]
    assert sizes == [broker.partition("orders", number).size_bytes for number in range(3)]
    assert sizes[1] > 1000


# --- aiokafka -------------------------------------------------------------------------------------------------------


def with_aiokafka(server: Server, use: Callable[[aio.AIOKafkaAdminClient], Awaitable[None]]) -> None:
    async def run() -> None:
        client = aio.AIOKafkaAdminClient(bootstrap_servers=server.bootstrap)
        await client.start()
        try:
            await asyncio.wait_for(use(client), BOUND_S)
        finally:
            await client.close()

    asyncio.run(run())


def test_aiokafka_makes_grows_and_deletes_topics(server: Server, broker: Broker) -> None:
    async def use(client: aio.AIOKafkaAdminClient) -> None:
        wanted = [
            aio.NewTopic("users", 2, 1, topic_configs={"retention.ms": "5"}),
            aio.NewTopic("placed", -1, -1, replica_assignments={0: [1]}),
            aio.NewTopic("many", 1, 3),
        ]
        made = await client.create_topics(wanted)
        assert [(name, code) for name, code, _ in made.topic_errors] == [
            ("users", ErrorCode.NONE),
            ("placed", ErrorCode.NONE),
            ("many", ErrorCode.INVALID_REPLICATION_FACTOR),
        ]
        grown = await client.create_partitions({"users": aio.NewPartitions(4)})
        assert [(name, code) for name, code, _ in grown.topic_errors] == [("users", ErrorCode.NONE)]
        assert sorted(await client.list_topics()) == broker.topics() == ["orders", "placed", "users"]
        (described,) = await client.describe_topics(["users"])
        assert [row["leader"] for row in described["partitions"]] == [1] * 4
        deleted = await client.delete_topics(["users", "none"])
        assert deleted.topic_error_codes == [
            ("users", ErrorCode.NONE),
            ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]

    with_aiokafka(server, use)
    assert broker.topics() == ["orders", "placed"]


def test_aiokafka_shows_and_changes_settings_and_deletes_records(server: Server, broker: Broker) -> None:
    write(broker, "orders", 0, b"a", b"b")

    async def use(client: aio.AIOKafkaAdminClient) -> None:
        orders = AioResource(AioResourceType.TOPIC, "orders", {"segment.ms": "7"})
        (altered,) = await client.alter_configs([orders])
        assert [row[0] for row in altered.resources] == [ErrorCode.NONE]
        assert settings_of(broker, "orders") == {"segment.ms": "7"}
        (shown,) = await client.describe_configs([orders])
        assert [row[:2] for row in shown.resources[0][4]] == [("segment.ms", "7")]
        deleted = await client.delete_records({AioPartition("orders", 0): RecordsToDelete(before_offset=1)})
        assert deleted == {AioPartition("orders", 0): 1}
        cluster = await client.describe_cluster()
        assert (cluster["cluster_id"], cluster["controller_id"]) == (broker.directory_id, 1)

    with_aiokafka(server, use)
    assert broker.partition("orders", 0).log_start_offset == 1
