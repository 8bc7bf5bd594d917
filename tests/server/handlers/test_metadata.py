"""Metadata tells what is true: topics, ids, leaders and their epochs, in every version, and makes topics when it may.

Requests and answers go through the codec, the broker is real; where a partition has to be damaged or recovered, its
files are changed between two brokers on them.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from broker.small_broker import at, write
from foldlog.broker.access.acls import AclOperation, Identity, ResourceType
from foldlog.broker.topics.names import OFFSETS_TOPIC
from foldlog.files.memory import MemoryFiles
from foldlog.files.posix import PosixFiles
from foldlog.server.authorizer import AllowEverything, authorized_operations
from foldlog.server.handlers.metadata import handle
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from server.small_node import ENDPOINT, Denies, SmallNode

VERSIONS = range(14)
UNKNOWN_ID = bytes(15) + b"\7"
NOT_ASKED = -(1 << 31)


def named(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


def by_id(*topic_ids: bytes) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in topic_ids]


def errors(answer: MetadataResponse) -> dict[str | None, ErrorCode]:
    return {topic.name: ErrorCode(topic.error_code) for topic in answer.topics}


def test_every_version_tells_the_broker_and_the_leaders(small: SmallNode) -> None:
    topic = small.broker.create_topic("orders", 3)
    for version in VERSIONS:
        answer = small.ask(MetadataRequest(topics=named("orders")), version)
        assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [
            (1, ENDPOINT.host, ENDPOINT.port)
        ]
        assert answer.controller_id == (1 if version >= 1 else -1)
        assert answer.cluster_id == (small.broker.directory_id if version >= 2 else None)
        assert errors(answer) == {"orders": ErrorCode.NONE}
        described = answer.topics[0]
        assert described.topic_id == (bytes.fromhex(topic.topic_id) if version >= 10 else bytes(16))
        assert described.topic_authorized_operations == NOT_ASKED
        assert [partition.partition_index for partition in described.partitions] == [0, 1, 2]
        for partition in described.partitions:
            assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, 1)
            assert (list(partition.replica_nodes), list(partition.isr_nodes)) == ([1], [1])
            assert partition.leader_epoch == (0 if version >= 7 else -1)
            assert not partition.offline_replicas


def test_all_topics_are_asked_for_with_an_empty_list_once_and_with_null_since(small: SmallNode) -> None:
    for name in ("b", "a", "__folds"):
        small.broker.create_topic(name)
    assert list(errors(small.ask(MetadataRequest(topics=[]), 0))) == ["__folds", "a", "b"]
    for version in VERSIONS[1:]:
        assert list(errors(small.ask(MetadataRequest(topics=None), version))) == ["__folds", "a", "b"]
        assert not small.ask(MetadataRequest(topics=[]), version).topics


def test_only_kafkas_own_topics_are_internal(small: SmallNode) -> None:
    small.broker.create_topic("__folds")
    small.broker.commit_offsets("fraud", {("__folds", 0): at(1)})
    answer = small.ask(MetadataRequest(topics=None), 12)
    assert {topic.name: topic.is_internal for topic in answer.topics} == {OFFSETS_TOPIC: True, "__folds": False}


def test_a_topic_is_found_by_its_id_until_it_is_deleted(small: SmallNode) -> None:
    topic_id = bytes.fromhex(small.broker.create_topic("orders").topic_id)
    for version in (12, 13):
        answer = small.ask(MetadataRequest(topics=by_id(topic_id, UNKNOWN_ID)), version)
        assert errors(answer) == {"orders": ErrorCode.NONE, None: ErrorCode.UNKNOWN_TOPIC_ID}
        assert {topic.topic_id for topic in answer.topics} == {topic_id, UNKNOWN_ID}
    small.broker.delete_topic("orders")
    small.broker.create_topic("orders")
    answer = small.ask(MetadataRequest(topics=by_id(topic_id)), 12)
    assert errors(answer) == {None: ErrorCode.UNKNOWN_TOPIC_ID}
    assert small.broker.topics() == ["orders"]


@pytest.mark.parametrize("version", [10, 11])
def test_versions_before_topic_ids_could_be_asked_for_are_refused_them(small: SmallNode, version: int) -> None:
    answer = small.ask(MetadataRequest(topics=[*by_id(UNKNOWN_ID), *named("orders")]), version)
    assert errors(answer) == {"": ErrorCode.INVALID_REQUEST, "orders": ErrorCode.INVALID_REQUEST}
    assert small.broker.topics() == []


def test_a_topic_that_is_asked_for_twice_is_answered_once(small: SmallNode) -> None:
    answer = small.ask(MetadataRequest(topics=named("orders", "orders")), 12)
    assert [topic.name for topic in answer.topics] == ["orders"]


# --- making topics --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_is_asked_about_is_made_when_client_and_broker_allow(small: SmallNode, version: int) -> None:
    request = MetadataRequest(topics=named("orders"), allow_auto_topic_creation=version < 4)
    answer = small.ask(request, version)
    if version >= 4:
        assert errors(answer) == {"orders": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert small.broker.topics() == []
        answer = small.ask(MetadataRequest(topics=named("orders")), version)
    assert errors(answer) == {"orders": ErrorCode.NONE}
    assert [partition.leader_id for partition in answer.topics[0].partitions] == [1]
    assert small.broker.topic("orders").partition_count == 1


def test_a_topic_that_is_made_by_itself_has_the_brokers_number_of_partitions() -> None:
    small = SmallNode(settings={"num.partitions": 3})
    try:
        answer = small.ask(MetadataRequest(topics=named("orders")), 12)
        assert len(answer.topics[0].partitions) == 3
    finally:
        small.close()


def test_a_broker_that_does_not_make_topics_says_that_there_is_none() -> None:
    small = SmallNode(settings={"auto.create.topics.enable": "false"})
    try:
        answer = small.ask(MetadataRequest(topics=named("orders", "a/b")), 12)
        assert errors(answer) == {
            "orders": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert small.broker.topics() == []
    finally:
        small.close()


@pytest.mark.parametrize("name", ["", ".", "..", "../up", "a/b", "a b", "ä", "x" * 250])
def test_a_name_that_is_none_is_refused_and_makes_nothing(small: SmallNode, name: str) -> None:
    answer = small.ask(MetadataRequest(topics=named(name)), 12)
    assert errors(answer) == {name: ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert small.broker.topics(include_internal=True) == []


def test_a_name_that_kafka_would_not_tell_from_anothers_makes_nothing(small: SmallNode) -> None:
    small.broker.create_topic("orders.eu")
    answer = small.ask(MetadataRequest(topics=named("orders_eu")), 12)
    assert errors(answer) == {"orders_eu": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert small.broker.topics() == ["orders.eu"]


@pytest.mark.parametrize("name", [OFFSETS_TOPIC, "__transaction_state"])
def test_the_logs_own_topics_are_not_made_by_asking(small: SmallNode, name: str) -> None:
    answer = small.ask(MetadataRequest(topics=named(name)), 12)
    assert errors(answer) == {name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert answer.topics[0].is_internal
    assert small.broker.topics(include_internal=True) == []


def test_clients_that_ask_about_a_new_topic_at_the_same_time_all_learn_of_it(small: SmallNode) -> None:
    async def ask_together() -> list[MetadataResponse]:
        request = MetadataRequest(topics=named("orders"))
        return await asyncio.gather(*(handle(small.call(12), request) for _ in range(8)))

    answers = small.run(ask_together())
    assert [errors(answer) for answer in answers] == [{"orders": ErrorCode.NONE}] * 8
    assert len({answer.topics[0].topic_id for answer in answers}) == 1


# --- partitions that are not to be had ------------------------------------------------------------------------------


def test_the_epoch_of_a_partition_that_was_not_closed_is_the_one_it_gets_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = SmallNode(PosixFiles())
    first.broker.create_topic("orders", 2)
    write(first.broker, "orders", 0, b"a")
    (tmp_path / "after").mkdir()
    shutil.copytree("data", "after/data")  # as a killed process leaves it
    first.close()
    monkeypatch.chdir(tmp_path / "after")
    again = SmallNode(PosixFiles())
    answer = again.ask(MetadataRequest(topics=named("orders")), 12)
    epochs = [partition.leader_epoch for partition in answer.topics[0].partitions]
    assert epochs == [1, 0]
    assert epochs == [again.broker.partition("orders", number).leader_epoch for number in range(2)]
    again.close()


def test_a_damaged_partition_has_no_leader_and_an_offline_replica_and_the_others_are_led() -> None:
    files = MemoryFiles()
    first = SmallNode(files)
    first.broker.create_topic("orders", 3)
    write(first.broker, "orders", 1, b"a")
    first.close()
    files.unlink(f"data/orders-1/{0:020}.log")
    again = SmallNode(files)
    answer = again.ask(MetadataRequest(topics=named("orders")), 12)
    assert errors(answer) == {"orders": ErrorCode.NONE}
    assert [
        (ErrorCode(partition.error_code), partition.leader_id, partition.leader_epoch, list(partition.offline_replicas))
        for partition in answer.topics[0].partitions
    ] == [(ErrorCode.NONE, 1, 0, []), (ErrorCode.LEADER_NOT_AVAILABLE, -1, -1, [1]), (ErrorCode.NONE, 1, 0, [])]
    again.close()


# --- who may know ---------------------------------------------------------------------------------------------------


def test_what_may_be_done_is_told_to_who_asks(small: SmallNode) -> None:
    small.broker.create_topic("orders")
    request = MetadataRequest(
        topics=named("orders"), include_cluster_authorized_operations=True, include_topic_authorized_operations=True
    )
    everything, me = AllowEverything(), Identity("User:me", "127.0.0.1")
    of_topic = authorized_operations(everything, me, ResourceType.TOPIC, "orders")
    of_cluster = authorized_operations(everything, me, ResourceType.CLUSTER, "kafka-cluster")
    for version in VERSIONS[8:]:
        answer = small.ask(request, version)
        assert answer.topics[0].topic_authorized_operations == of_topic
        assert answer.cluster_authorized_operations == (of_cluster if version <= 10 else NOT_ASKED)


def test_who_may_not_know_of_a_topic_does_not_learn_of_it() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.DESCRIBE, ResourceType.TOPIC)))
    topic_id = bytes.fromhex(small.broker.create_topic("orders").topic_id)
    assert not small.ask(MetadataRequest(topics=None), 12).topics
    assert errors(small.ask(MetadataRequest(topics=named("orders")), 12)) == {
        "orders": ErrorCode.TOPIC_AUTHORIZATION_FAILED
    }
    assert errors(small.ask(MetadataRequest(topics=by_id(topic_id)), 12)) == {None: ErrorCode.UNKNOWN_TOPIC_ID}
    small.close()


def test_who_may_not_make_topics_makes_none_by_asking() -> None:
    denies = Denies((AclOperation.CREATE, ResourceType.TOPIC), (AclOperation.CREATE, ResourceType.CLUSTER))
    small = SmallNode(authorizer=denies)
    answer = small.ask(MetadataRequest(topics=named("orders")), 12)
    assert errors(answer) == {"orders": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert small.broker.topics() == []
    small.close()


def test_who_may_not_know_of_the_cluster_may_do_nothing_with_it() -> None:
    small = SmallNode(authorizer=Denies((AclOperation.DESCRIBE, ResourceType.CLUSTER)))
    answer = small.ask(MetadataRequest(topics=[], include_cluster_authorized_operations=True), 10)
    assert answer.cluster_authorized_operations == 0
    small.close()
