"""Requests of administrators to our broker and to Apache Kafka, in every version, good and bad: the same answers.

Sentences are each side's own, so only whether there is one is compared, and not where ours says more. What differs
otherwise stands in the comparison, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clusters.apache_kafka import ApacheKafka

from foldlog.server.config.broker_settings import BROKER_SETTINGS
from foldlog.testing import KafkaBroker
from foldlog.wire.messages import alter_configs as whole
from foldlog.wire.messages import incremental_alter_configs as incremental
from foldlog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from foldlog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from foldlog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from foldlog.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from foldlog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from foldlog.wire.messages.list_config_resources import ListConfigResourcesRequest
from foldlog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from foldlog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from foldlog.wire.schema import Message, Request
from server.raw_client import RawClient

BROKER, CLIENT_METRICS = 4, 16
SET, DELETE, APPEND, SUBTRACT = range(4)
OURS_MAY_SAY_MORE = "error_message"
SETTLING_S = 5

Clients = tuple[RawClient, RawClient]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """A connection to ours, and one to a Kafka of this file's own: its settings are changed."""
    with (
        ApacheKafka.launch(tmp_path_factory.mktemp("administrated")) as kafka,
        KafkaBroker.launch() as ours,
    ):
        connected = connection(str(ours)), connection(kafka.bootstrap)
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        for client in connected:
            assert client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5).topics[0].error_code == 0
        yield connected
        for client in connected:
            client.close()


def connection(bootstrap: str) -> RawClient:
    host, _, port = bootstrap.rpartition(":")
    return RawClient((host, int(port)))


def plain(value: Any, without: tuple[str, ...] = ()) -> Any:
    """A message as dictionaries and lists, without sentences."""
    if isinstance(value, Message):
        names = [field.name for field in value.SCHEMA if field.name not in (OURS_MAY_SAY_MORE, *without)]
        return {name: plain(getattr(value, name), without) for name in names}
    return [plain(one, without) for one in value] if isinstance(value, list | tuple) else value


def same(clients: Clients, request: Request, version: int, *without: str) -> Any:
    """Ask both, until Kafka's broker has heard of what its controller knows: the answer of both."""
    until = time.monotonic() + SETTLING_S
    while True:
        ours, kafka = (plain(client.ask(request, version), without) for client in clients)
        if ours == kafka or time.monotonic() > until:
            assert ours == kafka
            return ours


# --- partitions of one node -------------------------------------------------------------------------------------------


def reassignment(topic: str, *partitions: tuple[int, list[int] | None]) -> AlterPartitionReassignmentsRequest:
    wanted = [ReassignablePartition(partition_index=number, replicas=replicas) for number, replicas in partitions]
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=wanted)])


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    "request_",
    [
        reassignment("orders", (0, [1]), (0, None), (9, [1]), (9, None)),
        reassignment("orders", (0, [2]), (0, [1, 1]), (0, []), (0, [1, 2]), (0, [-1])),
        reassignment("none", (0, [1]), (0, None)),
        reassignment("", (0, [1])),
        reassignment("orders"),
        AlterPartitionReassignmentsRequest(),
    ],
)
def test_reassignments_are_answered_alike(
    clients: Clients, request_: AlterPartitionReassignmentsRequest, version: int
) -> None:
    same(clients, request_, version)


@pytest.mark.parametrize(
    "topics",
    [
        None,
        [],
        [ListPartitionReassignmentsTopics(name="orders", partition_indexes=[0, 9])],
        [ListPartitionReassignmentsTopics(name="none", partition_indexes=[0])],
    ],
)
def test_nothing_is_being_reassigned(clients: Clients, topics: list[ListPartitionReassignmentsTopics] | None) -> None:
    assert same(clients, ListPartitionReassignmentsRequest(topics=topics), 0)["topics"] == []


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("election_type", [0, 1, 7])
@pytest.mark.parametrize(
    "wanted",
    [None, [], [TopicPartitions(topic="orders", partitions=[0, 9]), TopicPartitions(topic="none", partitions=[0])]],
)
def test_elections_are_answered_alike(
    clients: Clients, wanted: list[TopicPartitions] | None, election_type: int, version: int
) -> None:
    if version == 0 and election_type:
        pytest.skip("version 0 names no type")
    if wanted is None and election_type == 7:
        pytest.skip("Kafka answers that one with an error of its own: it makes its error's answer of no topics")
    same(clients, ElectLeadersRequest(election_type=election_type, topic_partitions=wanted), version)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("names", [["__cluster_metadata"], ["orders"], ["__cluster_metadata", "orders"], []])
def test_the_quorum_is_described_alike(clients: Clients, names: list[str], version: int) -> None:
    """Offsets and times are of a log that only Kafka has, and its voter listens elsewhere."""
    topics = [TopicData(topic_name=name, partitions=[PartitionData(partition_index=0)]) for name in names]
    of_its_log = ("high_watermark", "log_end_offset", "last_fetch_timestamp", "last_caught_up_timestamp", "listeners")
    same(clients, DescribeQuorumRequest(topics=topics), version, *of_its_log)


# --- settings ---------------------------------------------------------------------------------------------------------


def described(client: RawClient, kind: int, name: str, *keys: str) -> list[Any]:
    wanted = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    return list(client.ask(DescribeConfigsRequest(resources=[wanted], include_synonyms=True), 4).results[0].configs)


def changed(name: str, *changes: tuple[str, int, str | None], kind: int = BROKER) -> Any:
    configs = [
        incremental.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return incremental.IncrementalAlterConfigsRequest(resources=[resource])


def test_the_settings_that_can_be_changed_are_those_of_kafka_but_the_listeners(clients: Clients) -> None:
    ours, kafka = ({row.name: row.read_only for row in described(client, BROKER, "1")} for client in clients)
    differing = {name for name in ours.keys() & kafka.keys() if ours[name] != kafka[name]}
    assert differing == {
        "listeners",  # who is connected to one would have to go
        "listener.security.protocol.map",
        "min.insync.replicas",  # it is 1
    }
    assert {name for name in BROKER_SETTINGS if not name.startswith("foldlog.")} <= kafka.keys()


@pytest.mark.parametrize("resource", ["1", "", "2", "one"])
@pytest.mark.parametrize(
    "changes",
    [
        [("num.partitions", SET, "3")],
        [("log.retention.ms", SET, "5000000")],
        [("log.retention.ms", SET, "soon")],
        [("log.retention.hours", SET, "3")],
        [("log.retention.ms", DELETE, None)],
        [("max.connections", SET, "500")],
        [("max.connections", SET, None)],
        [("max.connections", 9, "1")],
        [("max.connections", APPEND, "1")],
        [("max.connections", SET, "1"), ("max.connections", SET, "2")],
        [("max.connections", SET, "400"), ("num.partitions", SET, "2")],
        [("max.connections", DELETE, None)],
        [("broker.id", SET, "1")],
        [("no.such", DELETE, None)],
        [("log.cleanup.policy", APPEND, "compact")],
        [("log.cleanup.policy", SUBTRACT, "delete")],
        [("log.cleanup.policy", DELETE, None)],
    ],
)
def test_changes_of_a_brokers_settings_are_answered_alike(
    clients: Clients, resource: str, changes: list[tuple[str, int, str | None]]
) -> None:
    for version in range(2):
        same(clients, changed(resource, *changes), version)


@pytest.mark.parametrize("resource", ["1", ""])
def test_a_changed_setting_is_shown_alike(clients: Clients, resource: str) -> None:
    def rows(client: RawClient) -> list[Any]:
        found = described(client, BROKER, resource, "log.cleanup.policy", "log.segment.bytes")
        found += described(client, 2, "orders", "cleanup.policy", "segment.bytes")
        return sorted(
            (row.name, row.value, row.config_source, [(one.name, one.value, one.source) for one in row.synonyms])
            for row in found
        )

    wanted = changed(resource, ("log.cleanup.policy", SET, "compact"), ("log.segment.bytes", SET, "65536000"))
    same(clients, wanted, 1)
    settled(lambda: [rows(client) for client in clients])
    same(clients, changed(resource, ("log.cleanup.policy", DELETE, None), ("log.segment.bytes", DELETE, None)), 1)
    settled(lambda: [rows(client) for client in clients])


def settled(look: Callable[[], list[Any]]) -> None:
    until = time.monotonic() + SETTLING_S
    while True:
        ours, kafka = look()
        if ours == kafka or time.monotonic() > until:
            assert ours == kafka
            return


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    "configs",
    [
        [("max.connections", "400")],
        [("num.partitions", "3")],
        [("max.connections", None)],
        [("max.connections", "1"), ("max.connections", "2")],
        [],
    ],
)
def test_replacing_a_brokers_settings_is_answered_alike(
    clients: Clients, configs: list[tuple[str, str | None]], version: int
) -> None:
    """For one broker: for all, Kafka refuses to lose the min.insync.replicas that it has set there itself."""
    resource = whole.AlterConfigsResource(
        resource_type=BROKER,
        resource_name="1",
        configs=[whole.AlterableConfig(name=name, value=value) for name, value in configs],
    )
    same(clients, whole.AlterConfigsRequest(resources=[resource]), version)


@pytest.mark.parametrize("resource", ["latency", ""])
@pytest.mark.parametrize(
    "changes",
    [
        [("interval.ms", SET, "5000"), ("metrics", SET, "*"), ("match", SET, "client_id=x.*")],
        [("interval.ms", SET, "5")],
        [("interval.ms", SET, "soon")],
        [("interval.ms", APPEND, "1")],
        [("no.such", SET, "5")],
        [("match", SET, "colour=red")],
        [("match", SET, "client_id")],
        [("match", SET, "client_id=(")],
        [("interval.ms", DELETE, None)],
        [("metrics", DELETE, None), ("match", DELETE, None), ("interval.ms", DELETE, None)],
    ],
)
def test_subscriptions_to_clients_metrics_are_answered_and_shown_alike(
    clients: Clients, resource: str, changes: list[tuple[str, int, str | None]]
) -> None:
    if not resource and changes[0][1] == APPEND:
        pytest.skip("two things are wrong, and Kafka looks at the other one first")
    same(clients, changed(resource, *changes, kind=CLIENT_METRICS), 1)
    for name in (resource, "another"):
        wanted = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=None)
        same(clients, DescribeConfigsRequest(resources=[wanted], include_synonyms=True), 4)
    for version in range(2):
        kinds = [CLIENT_METRICS] if version else []
        same(clients, ListConfigResourcesRequest(resource_types=kinds), version)


# --- features ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("name", "level"), [("no.such", 1), ("no.such", 0), ("no.such", -1), ("kraft.version", 99), (None, 0)]
)
def test_updates_of_features_that_cannot_be_are_answered_alike(
    clients: Clients, name: str | None, level: int, version: int
) -> None:
    updates = [] if name is None else [FeatureUpdateKey(feature=name, max_version_level=level)]
    same(clients, UpdateFeaturesRequest(feature_updates=updates), version)
