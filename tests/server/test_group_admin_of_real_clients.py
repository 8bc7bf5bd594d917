"""Groups with the admin clients that people use: every call they have for groups, offsets and producers.

confluent-kafka, kafka-python and aiokafka against a served broker in memory, with one group that has a member (a static
one), and one that only committed an offset. What happened is looked up in the broker, not in the answers alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka.admin import AclOperation, AdminClient, OffsetSpec
from kafka import errors as python_errors
from kafka.admin import KafkaAdminClient, MemberToRemove
from kafka.admin import OffsetSpec as PythonSpec
from kafka.structs import OffsetAndMetadata as PythonOffset
from kafka.structs import TopicPartition as PythonPartition

from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.server.server import Server
from server.group_readers import BOUND_S, GROUP, TOPIC, Reader, append, running_readers, wait_until

ALONE = "alone"
INSTANCE = "machine-1"


@pytest.fixture(autouse=True)
def reader(broker: Broker, server: Server) -> Iterator[Reader]:
    """A member of GROUP with all partitions; ALONE has committed offset 3 of partition 0."""
    append(broker, 0, (100, 300, 200))
    broker.commit_offsets(ALONE, {(TOPIC, 0): OffsetAndMetadata(3)})
    with running_readers() as readers:
        readers.append(Reader(server, group_instance_id=INSTANCE))
        wait_until(readers, lambda: readers[0].assigned == {0, 1, 2})
        yield readers[0]


class TestConfluent:
    """librdkafka's admin calls."""

    @pytest.fixture
    def admin(self, server: Server) -> AdminClient:
        return AdminClient({"bootstrap.servers": server.bootstrap})

    def test_lists_groups_and_those_in_a_state(self, admin: AdminClient) -> None:
        listed = admin.list_consumer_groups().result(BOUND_S)
        assert [(group.group_id, group.state, group.is_simple_consumer_group) for group in listed.valid] == [
            (ALONE, ConsumerGroupState.EMPTY, True),
            (GROUP, ConsumerGroupState.STABLE, False),
        ]
        assert listed.errors == []
        empty = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(BOUND_S)
        assert [group.group_id for group in empty.valid] == [ALONE]

    def test_describes_members_and_what_they_read(self, admin: AdminClient) -> None:
        futures = admin.describe_consumer_groups([GROUP, "nobody"], include_authorized_operations=True)
        group = futures[GROUP].result(BOUND_S)
        assert (group.state, group.partition_assignor) == (ConsumerGroupState.STABLE, "range")
        (member,) = group.members
        assert (member.group_instance_id, member.host) == (INSTANCE, "/127.0.0.1")
        assert [partition.partition for partition in member.assignment.topic_partitions] == [0, 1, 2]
        assert set(group.authorized_operations) == {
            AclOperation.READ,
            AclOperation.DELETE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        }
        assert futures["nobody"].result(BOUND_S).state == ConsumerGroupState.DEAD

    def test_lists_and_alters_offsets_of_a_group_without_members(self, admin: AdminClient, broker: Broker) -> None:
        wanted = ConsumerGroupTopicPartitions(ALONE, [TopicPartition(TOPIC, 1, 7)])
        admin.alter_consumer_group_offsets([wanted])[ALONE].result(BOUND_S)
        assert broker.committed(ALONE)[TOPIC, 1].offset == 7
        found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(ALONE)])[ALONE].result(BOUND_S)
        assert [(partition.partition, partition.offset) for partition in found.topic_partitions] == [(0, 3), (1, 7)]

    def test_cannot_alter_offsets_of_a_group_with_members(self, admin: AdminClient, broker: Broker) -> None:
        before = broker.committed(GROUP)
        wanted = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(TOPIC, 1, 7)])
        (refused,) = admin.alter_consumer_group_offsets([wanted])[GROUP].result(BOUND_S).topic_partitions
        assert refused.error.code() == ConfluentError.UNKNOWN_MEMBER_ID
        assert broker.committed(GROUP) == before

    def test_deletes_groups_without_members(self, admin: AdminClient, broker: Broker) -> None:
        futures = admin.delete_consumer_groups([ALONE, GROUP, "nobody"])
        assert futures[ALONE].result(BOUND_S) is None
        codes = {}
        for group in (GROUP, "nobody"):
            with pytest.raises(KafkaException) as refused:
                futures[group].result(BOUND_S)
            codes[group] = refused.value.args[0].code()
        assert codes == {GROUP: ConfluentError.NON_EMPTY_GROUP, "nobody": ConfluentError.GROUP_ID_NOT_FOUND}
        assert broker.group_names() == [GROUP]

    def test_lists_offsets_by_what_it_has_for_them(self, admin: AdminClient) -> None:
        spec_of: Any = OffsetSpec  # its methods are not typed

        def offset(spec: OffsetSpec) -> tuple[int, int]:
            (future,) = admin.list_offsets({TopicPartition(TOPIC, 0): spec}).values()
            found = future.result(BOUND_S)
            return found.offset, found.timestamp

        assert offset(spec_of.earliest()) == (0, -1)
        assert offset(spec_of.latest()) == (3, -1)
        assert offset(spec_of.max_timestamp()) == (1, 300)
        assert offset(spec_of.for_timestamp(101)) == (1, 300)


class TestKafkaPython:
    """kafka-python's admin calls, which are all that Java's has."""

    @pytest.fixture
    def admin(self, server: Server) -> Iterator[KafkaAdminClient]:
        client = KafkaAdminClient(bootstrap_servers=server.bootstrap)
        yield client
        client.close()

    def test_lists_groups_and_those_in_a_state_or_of_a_type(self, admin: KafkaAdminClient) -> None:
        def names(**filters: list[str]) -> list[str]:
            return [group["group_id"] for group in admin.list_groups(**filters)]

        assert names() == [ALONE, GROUP]
        assert names(states_filter=["Stable"]) == [GROUP]
        assert names(types_filter=["classic"]) == [ALONE, GROUP]
        assert names(types_filter=["consumer"]) == []

    def test_describes_members_and_what_they_read(self, admin: KafkaAdminClient) -> None:
        group = admin.describe_groups([GROUP])[GROUP]
        assert (group["error"], group["group_state"], group["protocol_data"]) == (None, "Stable", "range")
        (member,) = group["members"]
        assert (member["group_instance_id"], member["client_host"]) == (INSTANCE, "/127.0.0.1")
        assert member["member_assignment"]["assigned_partitions"] == [{"topic": TOPIC, "partitions": [0, 1, 2]}]
        nobody = admin.describe_groups(["nobody"])["nobody"]
        assert "group 'nobody' has neither members nor committed offsets" in nobody["error"]

    def test_lists_alters_resets_and_deletes_offsets(self, admin: KafkaAdminClient, broker: Broker) -> None:
        zero, one = PythonPartition(TOPIC, 0), PythonPartition(TOPIC, 1)
        altered = admin.alter_group_offsets(ALONE, {one: PythonOffset(9, "a note", -1)})
        assert altered == {one: python_errors.NoError}
        found = admin.list_group_offsets({ALONE: None})[ALONE]
        assert {partition: (kept.offset, kept.metadata) for partition, kept in found.items()} == {
            zero: (3, ""),
            one: (9, "a note"),
        }
        assert admin.reset_group_offsets(ALONE, {zero: PythonSpec.EARLIEST})[zero]["error"] is python_errors.NoError
        assert broker.committed(ALONE)[TOPIC, 0].offset == 0
        assert admin.delete_group_offsets(ALONE, [one]) == {one: python_errors.NoError}
        assert list(broker.committed(ALONE)) == [(TOPIC, 0)]
        subscribed = admin.delete_group_offsets(GROUP, [one])
        assert subscribed == {one: python_errors.GroupSubscribedToTopicError}

    def test_removes_a_static_member_and_deletes_its_group(
        self, admin: KafkaAdminClient, broker: Broker, reader: Reader
    ) -> None:
        reader.stop()
        removed = admin.remove_group_members(GROUP, [MemberToRemove(group_instance_id=INSTANCE)])
        assert list(removed.values()) == [python_errors.NoError]
        assert admin.delete_groups([GROUP, "nobody"]) == {GROUP: "OK", "nobody": "GroupIdNotFoundError"}
        assert broker.group_names() == [ALONE]

    def test_lists_offsets_and_describes_producers(self, admin: KafkaAdminClient, server: Server) -> None:
        zero, one, two = (PythonPartition(TOPIC, number) for number in range(3))
        producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
        producer.produce(TOPIC, b"value", partition=1, timestamp=500)
        assert producer.flush(BOUND_S) == 0
        found = admin.list_partition_offsets(
            {zero: PythonSpec.MAX_TIMESTAMP, one: PythonSpec.LATEST, two: PythonSpec.EARLIEST}
        )
        assert [(found[key].offset, found[key].timestamp) for key in (zero, one, two)] == [(1, 300), (1, -1), (0, -1)]
        known = admin.describe_producers([zero, one])
        assert known[zero].active_producers == []
        (state,) = known[one].active_producers
        assert (state.producer_epoch, state.last_sequence, state.last_timestamp) == (0, 0, 500)


def test_aiokafka_lists_describes_and_finds_groups_and_their_offsets(server: Server) -> None:
    async def ask() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=server.bootstrap)
        await admin.start()
        assert sorted(await admin.list_consumer_groups()) == [(ALONE, ""), (GROUP, "consumer")]
        assert await admin.find_coordinator(ALONE) == 1
        # One at a time: version 0.14 reads the answer of version 3 as one of version 2, and stumbles over the second.
        (described,) = await admin.describe_consumer_groups([GROUP])
        assert [group[:5] for group in described.groups] == [(0, GROUP, "Stable", "consumer", "range")]
        offsets = await admin.list_consumer_group_offsets(ALONE)
        assert {partition: kept.offset for partition, kept in offsets.items()} == {AioPartition(TOPIC, 0): 3}
        await admin.close()

    asyncio.run(ask())
