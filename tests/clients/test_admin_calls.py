"""Every call that an admin client has either works or fails at once and says why; and none is left out.

What the calls for topics, settings, records, groups and offsets do is proved in `tests/server`, in the modules of
admin clients. Here are the calls about the broker itself, those that this broker does not serve, and a look through
the tests for a call that nobody makes: a new release of a client that brings one has to be looked at.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import admin as confluent
from kafka import TopicPartition as PythonPartition
from kafka import admin as python
from kafka.errors import (
    InvalidReplicationAssignmentError,
    InvalidUpdateVersionError,
    NoError,
    SecurityDisabledError,
)

from clients.any_client import BOUND_S
from clients.confluent_client import QUICK
from foldlog.broker.broker import Broker
from foldlog.client.log import Log
from foldlog.server.server import Server
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages import APIS

TESTS = Path(__file__).resolve().parent.parent
WHERE_CALLS_ARE_MADE = (
    TESTS / "server" / "test_admin_of_real_clients.py",
    TESTS / "server" / "test_group_admin_of_real_clients.py",
    Path(__file__),
)
NOT_CALLS = {
    "DEFAULT_CONFIG",
    "poll",  # answers come to futures
    "set_sasl_credentials",  # changes the client only
}


@pytest.mark.parametrize("kind", [confluent.AdminClient, python.KafkaAdminClient, AIOKafkaAdminClient])
def test_no_call_of_an_admin_client_is_left_out(kind: type[Any]) -> None:
    made = {
        node.attr
        for path in WHERE_CALLS_ARE_MADE
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    }
    calls = {name for name in dir(kind) if not name.startswith("_")} - NOT_CALLS
    assert not calls - made, "no test makes these calls"


# --- confluent-kafka ------------------------------------------------------------------------------------------------


@pytest.fixture
def librdkafka(server: Server) -> confluent.AdminClient:
    return confluent.AdminClient({"bootstrap.servers": server.bootstrap, **QUICK})


@pytest.mark.filterwarnings("ignore:list_groups:DeprecationWarning")
def test_confluent_names_the_cluster_and_lists_groups_the_old_way(
    librdkafka: confluent.AdminClient, broker: Broker, log: Log, topic: str, group: str
) -> None:
    log.append(topic, b"value")
    log.reset_group(group, {(topic, 0): 1})
    assert librdkafka.cluster_id(timeout=BOUND_S) == broker.directory_id
    assert group in [listed.id for listed in librdkafka.list_groups(timeout=BOUND_S)]


ACL = confluent.AclBinding(
    confluent.ResourceType.TOPIC,
    "topic",
    confluent.ResourcePatternType.LITERAL,
    "User:somebody",
    "*",
    confluent.AclOperation.READ,
    confluent.AclPermissionType.ALLOW,
)
ANYTHING: Any = None
ACLS = confluent.AclBindingFilter(
    confluent.ResourceType.ANY,
    ANYTHING,
    confluent.ResourcePatternType.ANY,
    ANYTHING,
    ANYTHING,
    confluent.AclOperation.ANY,
    confluent.AclPermissionType.ANY,
)
NO_SCRAM = confluent.UserScramCredentialDeletion("nobody", confluent.ScramMechanism.SCRAM_SHA_256)


def result(answer: Any) -> Any:
    """What a future gives, or the first of several."""
    future = next(iter(answer.values())) if isinstance(answer, dict) else answer
    return future.result(BOUND_S)


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.create_acls([ACL]),
        lambda admin: admin.delete_acls([ACLS]),
    ],
    ids=["create", "delete"],
)
def test_confluent_is_told_that_nobody_asks_for_acls_here(
    librdkafka: confluent.AdminClient, call: Callable[[confluent.AdminClient], Any]
) -> None:
    with pytest.raises(KafkaException) as refusal:
        result(call(librdkafka))
    assert refusal.value.args[0].code() == KafkaError.SECURITY_DISABLED


def test_confluent_is_told_of_users(librdkafka: confluent.AdminClient) -> None:
    assert librdkafka.describe_user_scram_credentials().result(BOUND_S) == {}  # type: ignore[union-attr]
    with pytest.raises(KafkaException) as refusal:
        result(librdkafka.alter_user_scram_credentials([NO_SCRAM]))
    assert refusal.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def test_confluent_is_told_that_no_election_is_needed(librdkafka: confluent.AdminClient, topic: str) -> None:
    wanted = [TopicPartition(topic, 0), TopicPartition("never made", 0)]
    found = librdkafka.elect_leaders(ElectionType.PREFERRED, wanted).result(BOUND_S)
    codes = {place.topic: error.code() for place, error in found.items() if error is not None}
    assert codes == {topic: KafkaError.ELECTION_NOT_NEEDED, "never made": KafkaError.UNKNOWN_TOPIC_OR_PART}
    assert librdkafka.elect_leaders(ElectionType.PREFERRED).result(BOUND_S) == {}


# --- kafka-python ---------------------------------------------------------------------------------------------------


@pytest.fixture
def kafka_python(server: Server) -> Iterator[python.KafkaAdminClient]:
    client = python.KafkaAdminClient(bootstrap_servers=server.bootstrap)
    yield client
    client.close()


def test_kafka_python_tells_what_the_broker_serves(kafka_python: python.KafkaAdminClient, topic: str) -> None:
    versions = {int(key): bounds for key, bounds in kafka_python.api_versions().items()}
    assert set(versions) == set(APIS) - {71, 72}, "telemetry is off"
    assert kafka_python.get_broker_version_data(1).api_versions == versions
    finalized = {name: feature["finalized"] for name, feature in kafka_python.describe_features().items()}
    assert finalized == {"transaction.version": (2, 2), "group.version": (1, 1), "share.version": (1, 1)}
    with pytest.raises(InvalidUpdateVersionError, match="there is no such feature here"):
        kafka_python.update_features({"metadata.version": 1})
    kafka_python.wait_for_topics([topic], timeout_ms=BOUND_S * 1000)


READ_BY_SOMEBODY = python.ACL(
    "User:somebody",
    "*",
    python.ACLOperation.READ,
    python.ACLPermissionType.ALLOW,
    python.ResourcePattern(python.ResourceType.TOPIC, "topic"),
)
OF_SOMEBODY = python.ACLFilter(
    "User:somebody",
    "*",
    python.ACLOperation.ANY,
    python.ACLPermissionType.ANY,
    python.ResourcePatternFilter(python.ResourceType.TOPIC, None, python.ACLResourcePatternType.ANY),
)


def test_kafka_python_is_told_that_nobody_asks_for_acls_here(kafka_python: python.KafkaAdminClient) -> None:
    with pytest.raises(SecurityDisabledError):
        kafka_python.describe_acls(OF_SOMEBODY)
    assert kafka_python.create_acls([READ_BY_SOMEBODY])["succeeded"] == []


def test_kafka_python_finds_transactions_and_aborts_one(
    kafka_python: python.KafkaAdminClient, server: Server, topic: str
) -> None:
    producer = Producer({**QUICK, "bootstrap.servers": server.bootstrap, "transactional.id": topic})
    producer.init_transactions(BOUND_S)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(BOUND_S) == 0
    place = PythonPartition(topic, 0)
    (listed,) = kafka_python.list_transactions(transactional_id_pattern=topic, state_filters=["Ongoing"])[1]
    described = kafka_python.describe_transactions([topic])[topic]
    (state,) = kafka_python.describe_producers([place])[place].active_producers
    assert listed.producer_id == described.producer_id == state.producer_id
    assert (described.topic_partitions, state.current_transaction_start_offset) == ({place}, 0)
    assert kafka_python.find_hanging_transactions() == []
    spec = python.AbortTransactionSpec(place, producer_id=state.producer_id, producer_epoch=state.producer_epoch)
    kafka_python.abort_transaction(spec)
    (state,) = kafka_python.describe_producers([place])[place].active_producers
    assert state.current_transaction_start_offset == -1


def test_kafka_python_hears_the_truth_about_one_broker(
    kafka_python: python.KafkaAdminClient, broker: Broker, topic: str
) -> None:
    place = PythonPartition(topic, 0)
    (quorum,) = kafka_python.describe_metadata_quorum()["topics"][0]["partitions"]
    assert (quorum["leader_id"], [voter["replica_id"] for voter in quorum["current_voters"]]) == (1, [1])
    resources = kafka_python.list_config_resources()
    assert (topic in resources["topic"], resources["broker"]) == (True, ["1"])
    elected = kafka_python.elect_leaders(0, {topic: [0]}, raise_errors=False)
    assert elected.replica_election_results[0].partition_result[0].error_code == ErrorCode.ELECTION_NOT_NEEDED
    assert kafka_python.list_partition_reassignments() == {}
    assert kafka_python.alter_partition_reassignments({place: [1]}) == {place: None}
    assert kafka_python.alter_partition_reassignments({place: [2]}) == {place: InvalidReplicationAssignmentError}
    (moved,) = kafka_python.alter_replica_log_dirs({(topic, 0, 1): os.path.abspath(broker.path)}).values()
    assert moved is NoError
