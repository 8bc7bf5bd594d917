"""librdkafka with group.protocol=consumer: members join, share, leave and come back, subscribe to regular expressions,
go on over a restart of the broker, and move a group from the classic protocol to this one and back.

Nothing waits for a fixed time: `until` polls all members until what is waited for is so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

import foldlog
from foldlog.broker.broker import Broker
from foldlog.broker.groups.consumer.messages import ConsumerGroupSettings
from foldlog.broker.groups.messages import GroupSettings, GroupState, GroupType
from foldlog.cli.main import main
from foldlog.server.config.settings import ServerSettings
from foldlog.server.server import Server
from server.group_readers import BOUND_S, append

TOPIC = "orders"
GROUP = "readers"
SETTINGS = GroupSettings(consumer=ConsumerGroupSettings(session_timeout_ms=5_000, heartbeat_interval_ms=100))


class Service:
    """A served broker in a directory that can be restarted at its address, and the members that poll it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.broker = self._opened()
        self.broker.create_topic(TOPIC, partitions=4)
        self.server = self._served("127.0.0.1:0")
        self.members: list[Consumer] = []
        self.read: set[tuple[str, int, int]] = set()

    def _opened(self) -> Broker:
        return Broker.open(str(self.directory), group_settings=SETTINGS)

    def _served(self, address: str) -> Server:
        return Server.start(self.broker, ServerSettings.parse({"listeners": address}))

    def restart(self) -> None:
        address = self.server.bootstrap
        self.server.stop()
        self.broker.close()
        self.broker = self._opened()
        self.server = self._served(address)

    def close(self) -> None:
        for member in self.members:
            member.close()
        self.server.stop()
        self.broker.close()

    def member(self, *topics: str, protocol: str = "consumer", **settings: Any) -> Consumer:
        classic = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200} if protocol == "classic" else {}
        consumer = Consumer(
            {
                "bootstrap.servers": self.server.bootstrap,
                "group.id": GROUP,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **classic,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        consumer.subscribe(list(topics or (TOPIC,)))
        self.members.append(consumer)
        return consumer

    def leave(self, member: Consumer) -> None:
        self.members.remove(member)
        member.close()

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + BOUND_S
        while not is_so():
            assert time.monotonic() < deadline, [assigned(member) for member in self.members]
            for member in self.members:
                for message in member.consume(100, 0.02):
                    assert message.error() is None, message.error()
                    topic, number, offset = message.topic(), message.partition(), message.offset()
                    assert topic is not None
                    assert number is not None
                    assert offset is not None
                    self.read.add((topic, number, offset))

    def shared(self, *counts: int) -> Callable[[], bool]:
        """Whether the members have that many partitions, each one member's, and the group is at rest."""

        def is_so() -> bool:
            found = [assigned(member) for member in self.members]
            apart = len(set().union(*found)) == sum(map(len, found))
            is_stable = self.broker.describe_group(GROUP).state is GroupState.STABLE
            return is_stable and apart and sorted(map(len, found)) == sorted(counts)

        return is_so


def assigned(member: Consumer) -> set[tuple[str, int]]:
    return {(partition.topic, partition.partition) for partition in member.assignment()}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path / "log")
    yield made
    made.close()


def test_members_share_partitions_and_take_over_from_who_leaves(service: Service) -> None:
    for number in range(4):
        append(service.broker, number, range(100, 110))
    service.member()
    service.until(service.shared(4))
    service.until(lambda: len(service.read) == 40)
    service.members[0].commit(asynchronous=False)
    service.member()
    service.until(service.shared(2, 2))
    service.member()
    service.until(service.shared(1, 1, 2))
    service.leave(service.members[0])
    service.until(service.shared(2, 2))
    assert {one.offset for one in service.broker.committed(GROUP).values()} == {10}
    append(service.broker, 1, [200])
    service.until(lambda: (TOPIC, 1, 10) in service.read)
    service.broker.grow_topic(TOPIC, 6)
    service.until(service.shared(3, 3))


def test_a_restart_of_the_broker_leaves_members_and_epochs_as_they_are(service: Service) -> None:
    for _ in range(2):
        service.member()
    service.until(service.shared(2, 2))
    before = service.broker.describe_group(GROUP)
    service.restart()
    append(service.broker, 0, [300])
    service.until(lambda: (TOPIC, 0, 0) in service.read)
    after = service.broker.describe_group(GROUP)
    assert (after.generation, after.assignment_epoch) == (before.generation, before.assignment_epoch)
    assert {one.member_id for one in after.members} == {one.member_id for one in before.members}
    service.members[0].commit(offsets=[TopicPartition(*min(assigned(service.members[0])), 0)], asynchronous=False)


def test_a_static_member_comes_back_to_its_partitions(service: Service) -> None:
    service.member(group_instance_id="one")
    service.member(group_instance_id="two")
    service.until(service.shared(2, 2))
    gone = service.members[0]
    before, epoch = assigned(gone), service.broker.describe_group(GROUP).generation
    service.leave(gone)
    back = service.member(group_instance_id="one")
    service.until(lambda: assigned(back) == before)
    assert service.broker.describe_group(GROUP).generation == epoch, "nobody else noticed"


def test_a_second_owner_of_an_instance_id_is_refused(service: Service) -> None:
    service.member(group_instance_id="one")
    service.until(service.shared(4))
    second = service.member(group_instance_id="one")
    service.members.remove(second)
    deadline = time.monotonic() + BOUND_S
    error = None
    while error is None and time.monotonic() < deadline:
        message = second.poll(0.1)
        error = None if message is None else message.error()
    assert error is not None
    assert error.code() in (KafkaError.UNRELEASED_INSTANCE_ID, KafkaError._FATAL), error
    second.close()


def test_a_regular_expression_is_matched_by_the_broker(service: Service) -> None:
    pytest.importorskip("re2")
    service.member("^orders.*")
    service.until(service.shared(4))
    service.broker.create_topic("orders-eu", partitions=2)
    service.broker.create_topic("reorders", partitions=2)
    service.until(service.shared(6))
    assert {topic for topic, _ in assigned(service.members[0])} == {TOPIC, "orders-eu"}
    (member,) = service.broker.describe_group(GROUP).members
    assert member.consumer is not None
    assert "^orders.*" in member.consumer.regex


def test_a_group_changes_its_protocol_and_back_while_it_reads(service: Service) -> None:
    classics = [service.member(protocol="classic") for _ in range(2)]
    service.until(service.shared(2, 2))
    assert service.broker.describe_group(GROUP).group_type is GroupType.CLASSIC
    first = service.member()
    service.until(service.shared(1, 1, 2))
    assert service.broker.describe_group(GROUP).group_type is GroupType.CONSUMER
    service.leave(classics[0])
    service.member()
    service.until(service.shared(1, 1, 2))
    for member in [member for member in service.members if member is not classics[1]]:
        service.leave(member)
    assert first not in service.members
    service.until(service.shared(4))
    assert service.broker.describe_group(GROUP).group_type is GroupType.CLASSIC


def test_a_commit_of_a_member_that_was_evicted_is_refused(service: Service) -> None:
    member = service.member()
    service.until(service.shared(4))
    mine = [TopicPartition(TOPIC, 0, 3)]
    member.commit(offsets=mine, asynchronous=False)
    service.broker.evict_members(GROUP)
    with pytest.raises(KafkaException) as refused:
        member.commit(offsets=[TopicPartition(TOPIC, 0, 5)], asynchronous=False)
    assert refused.value.args[0].code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.STALE_MEMBER_EPOCH)
    assert service.broker.committed(GROUP)[TOPIC, 0].offset == 3
    service.until(service.shared(4))


def test_it_is_listed_by_type_and_state_and_deleted_when_it_is_empty(service: Service) -> None:
    service.member()
    service.until(service.shared(4))
    admin = AdminClient({"bootstrap.servers": service.server.bootstrap})
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(BOUND_S).valid
    assert [(one.group_id, one.state, one.type) for one in listed] == [
        (GROUP, ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    ]
    assert admin.list_consumer_groups(types={ConsumerGroupType.CLASSIC}).result(BOUND_S).valid == []
    with pytest.raises(KafkaException, match="not empty"):
        admin.delete_consumer_groups([GROUP])[GROUP].result(BOUND_S)
    service.leave(service.members[0])
    admin.delete_consumer_groups([GROUP])[GROUP].result(BOUND_S)
    assert admin.list_consumer_groups().result(BOUND_S).valid == []


def test_the_command_line_lists_describes_and_moves_it(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    member = service.member(client_id="app")
    service.until(service.shared(4))
    at = ["-b", service.server.bootstrap]
    assert main(["group", "list", *at]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == [GROUP, "Stable", "consumer", "1"]
    assert main(["group", "describe", GROUP, *at]) == 0
    text = capsys.readouterr().out
    assert "consumer group at epoch 1, assigned by uniform for epoch 1" in text
    assert text.splitlines()[-1].split() == ["app", "127.0.0.1", "4", "4", "1"], "partitions, target, epoch"
    assert main(["group", "seek", GROUP, "--to", "start", "--topic", TOPIC, "--evict", *at]) == 0
    assert {one.offset for one in service.broker.committed(GROUP).values()} == {0}
    service.until(lambda: len(assigned(member)) == 4)


def test_its_records_are_dumped_in_words(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    service.member()
    service.until(service.shared(4))
    topic_id = service.broker.topic(TOPIC).topic_id
    (segment,) = service.directory.glob("__consumer_offsets-0/*.log")
    assert main(["dump", str(segment), "--records"]) == 0
    text = capsys.readouterr().out
    assert f"consumer group {GROUP}: epoch: 1" in text
    assert f"epoch 1, stable, has {topic_id} 0, 1, 2, 3" in text
    assert "client rdkafka at /127.0.0.1, wants orders" in text


def test_the_library_describes_it_and_moves_its_offsets(service: Service) -> None:
    member = service.member(client_id="app")
    service.until(service.shared(4))
    with foldlog.connect(f"kafka://{service.server.bootstrap}") as log:
        described = log.describe_group(GROUP)
        assert (described.group_type, described.state, described.protocol) == ("consumer", "Stable", "uniform")
        assert (described.epoch, described.assignment_epoch) == (1, 1)
        (one,) = described.members
        assert (one.client_id, one.epoch, one.assignment, one.target) == ("app", 1, one.target, one.assignment)
        assert len(one.assignment) == 4
        log.reset_group(GROUP, {(TOPIC, 0): 0}, evict=True)
    assert service.broker.committed(GROUP)[TOPIC, 0].offset == 0
    service.until(lambda: len(assigned(member)) == 4)
