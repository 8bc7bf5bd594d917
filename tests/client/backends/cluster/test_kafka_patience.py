"""A cluster's brokers come and go: what passes is asked again until a call's time is over, and what stays is told.

librdkafka's errors are the real ones; what they answer is the test's.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

import foldlog
from client.log_places import handles_of, polled
from foldlog import errors
from foldlog.client.backends.cluster.faults import Where
from foldlog.client.backends.cluster.handles import Handles, LibraryTopics, Trouble
from foldlog.client.backends.cluster.url import parse_url
from foldlog.client.wire import propagation
from foldlog.client.wire.links import ClusterLinks
from foldlog.client.wire.properties import Address
from foldlog.client.wire.retries import LinkLost
from foldlog.testing import KafkaBroker
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.create_partitions import CreatePartitionsRequest
from foldlog.wire.messages.create_topics import CreateTopicsRequest
from foldlog.wire.messages.delete_groups import DeleteGroupsRequest
from foldlog.wire.messages.delete_topics import DeleteTopicsRequest
from foldlog.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from foldlog.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


@pytest.fixture
def handles(monkeypatch: pytest.MonkeyPatch) -> Iterator[Handles]:
    """Of a cluster that nobody asks; pauses are over at once."""
    made = Handles(parse_url("kafka://127.0.0.1:1"))
    monkeypatch.setattr("foldlog.client.backends.cluster.handles._PAUSE_S", 0.0)
    monkeypatch.setattr("foldlog.client.backends.cluster.handles._PAUSE_MAX_S", 0.0)
    yield made
    made.close()


def test_a_consumers_question_is_asked_again_too(handles: Handles) -> None:
    left = [KafkaError._WAIT_COORD, int(ErrorCode.NOT_COORDINATOR)]

    def attempt(left_s: float) -> str:
        assert 0 < left_s <= handles.call_s
        if left:
            raise KafkaException(KafkaError(left.pop()))
        return "answered"

    assert handles.patiently(attempt, Where(group="fraud"), Trouble()) == "answered"
    left = [KafkaError.UNKNOWN_MEMBER_ID]
    with pytest.raises(errors.UnknownMember):
        handles.patiently(attempt, Where(group="fraud"), Trouble())


# --- all brokers ------------------------------------------------------------------------------------------------------


class Brokers:
    """What each broker answers."""

    def __init__(self, *answers: object) -> None:
        self._answers = answers

    def call_each(self, request: object, answer: type) -> list[object]:
        return list(self._answers)

    @property
    def links(self) -> ClusterLinks:
        return cast(ClusterLinks, self)


def told(*leaders: int, error: int = 0) -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(partition_index=number, leader_id=leader) for number, leader in enumerate(leaders)
    ]
    return MetadataResponse(topics=[MetadataResponseTopic(name="orders", error_code=error, partitions=partitions)])


def test_a_topic_is_ready_once_every_broker_knows_who_leads_it() -> None:
    unknown = told(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert propagation.is_led(Brokers(told(1, 2), told(2, 1)).links, "orders", 2)
    assert not propagation.is_led(Brokers(told(1, 2), unknown).links, "orders", 2)
    assert not propagation.is_led(Brokers(told(1, 2), told(1)).links, "orders", 2)
    assert not propagation.is_led(Brokers(told(1, 2), told(1, -1)).links, "orders", 2)
    assert propagation.is_gone(Brokers(unknown, unknown).links, "orders")
    assert not propagation.is_gone(Brokers(unknown, told(1)).links, "orders")


def test_settings_are_in_force_once_every_broker_tells_them() -> None:
    def has(**values: tuple[str, int]) -> DescribeConfigsResponse:
        configs = [
            DescribeConfigsResourceResult(name=name.replace("_", "."), value=value, config_source=source)
            for name, (value, source) in values.items()
        ]
        return DescribeConfigsResponse(results=[DescribeConfigsResult(configs=configs)])

    set_by_topic, default = 1, 5
    changes = {"retention.ms": "5", "segment.ms": None}
    new = has(retention_ms=("5", set_by_topic), segment_ms=("100", default))
    assert propagation.has_settings(Brokers(new, new).links, "orders", changes)
    for old in (
        has(retention_ms=("4", set_by_topic), segment_ms=("100", default)),
        has(retention_ms=("5", default), segment_ms=("100", default)),
        has(retention_ms=("5", set_by_topic), segment_ms=("1", set_by_topic)),
    ):
        assert not propagation.has_settings(Brokers(new, old).links, "orders", changes)


# --- changes ----------------------------------------------------------------------------------------------------------


def test_a_change_whose_answer_is_lost_is_told_as_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer to each kind of change is lost, after the broker has carried it out."""
    changes = (CreateTopicsRequest, CreatePartitionsRequest, DeleteGroupsRequest, DeleteTopicsRequest)
    lost: set[type] = set()
    really = ClusterLinks.call

    def losing(links: ClusterLinks, address: Address, request: Any, answer: Any, at_most: int | None = None) -> Any:
        found = really(links, address, request, answer, at_most)
        if isinstance(request, changes) and type(request) not in lost:
            lost.add(type(request))
            raise LinkLost(address, "the answer was lost")
        return found

    with KafkaBroker.launch() as broker, foldlog.connect(f"kafka://{broker}?retry.backoff.ms=1") as log:
        monkeypatch.setattr(ClusterLinks, "call", losing)
        log.create_topic("orders", partitions=2)
        assert log.grow_topic("orders", 3).partition_count == 3
        lost.discard(CreatePartitionsRequest)
        with pytest.raises(errors.InvalidArgument):
            log.grow_topic("orders", 3)
        log.reset_group("fraud", {("orders", 0): "end"})
        log.delete_group("fraud")
        log.delete_topic("orders")
        assert (log.topics(), log.groups(), lost) == ([], [], set(changes))
        with pytest.raises(errors.UnknownGroup):
            log.delete_group("fraud")


def test_a_broker_that_says_nothing_is_given_up_when_connecting_has_taken_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("foldlog.client.wire.links.KAFKA_CONNECT_MS", 200)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(errors.BrokerUnreachable, match=f"{address}: it did not answer within 200 ms"):
            foldlog.connect(f"kafka://{address}?request.timeout.ms=300")


# --- without our own connections --------------------------------------------------------------------------------------


def test_with_a_login_that_only_librdkafka_has_producers_and_groups_work_and_the_rest_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka alone fills and reads a topic, and a group reads on; all else needs our own connections."""
    refusal = errors.InvalidConfig("sasl.mechanism='GSSAPI' is not spoken here")

    def refused(_handles: Handles, _committed: bool | None = None) -> object:
        raise refusal

    with KafkaBroker.launch() as broker, foldlog.connect(f"kafka://{broker}?heartbeat.interval.ms=200") as log:
        broker.create_topic("orders", 3)
        handles = handles_of(log)
        handles.by_library = LibraryTopics(handles)
        monkeypatch.setattr(Handles, "wire", refused)
        assert handles.find_cluster() == log.directory_id
        with log.producer() as producer:
            producer.send("orders", b"1", partition=0)
        log.append("orders", b"2", partition=2)
        with pytest.raises(errors.UnknownTopic):
            log.append("missing", b"3")
        with log.consumer(["orders"], "fraud", auto_offset_reset="earliest") as consumer:
            assert sorted(str(record.value) for record in polled(consumer, 2)) == ["b'1'", "b'2'"]
        with log.consumer(["orders"], "fraud", auto_offset_reset="earliest") as consumer:
            assert consumer.poll(timeout_ms=500) == [], "it was committed"
        calls: list[Callable[[], object]] = [
            log.topics,
            log.groups,
            lambda: log.create_topic("others"),
            lambda: log.topic("orders"),
            lambda: list(log.read("orders", 2)),
            lambda: log.committed("fraud"),
            lambda: log.describe_group("fraud"),
            lambda: log.reset_group("fraud", {("orders", 0): "start"}),
            lambda: log.delete_offsets("fraud", [("orders", 0)]),
            lambda: log.delete_group("fraud"),
            lambda: log.read_arrow("orders"),
            lambda: log.append_arrow("orders", pa.table({"value": [b"1"]})),
            lambda: log.consumer(["orders"]),
        ]
        for call in calls:
            with pytest.raises(errors.InvalidConfig, match="GSSAPI"):
                call()
