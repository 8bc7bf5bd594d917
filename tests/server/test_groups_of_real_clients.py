"""Consumer groups with the clients that people use: they share partitions, come and go, and resume where they were.

confluent-kafka, kafka-python and aiokafka against a served broker in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.structs import TopicPartition as PythonPartition

from foldlog.broker.broker import Broker
from foldlog.server.server import Server
from server.group_readers import (
    BOUND_S,
    CLIENTS,
    GROUP,
    TOPIC,
    ConfluentMember,
    MemberClass,
    Reader,
    append,
    committed,
    everywhere,
    fill,
    is_shared,
    read_by,
    running_readers,
    wait_until,
)

by_client = pytest.mark.parametrize("client", CLIENTS, ids=["confluent", "kafka-python", "aiokafka"])


@pytest.fixture
def readers() -> Iterator[list[Reader]]:
    with running_readers() as running:
        yield running


@by_client
def test_two_members_share_the_partitions_and_the_one_after_them_resumes(
    broker: Broker, server: Server, readers: list[Reader], client: MemberClass
) -> None:
    written = fill(broker, 10)
    readers += [Reader(server, client), Reader(server, client)]
    wait_until(readers, lambda: is_shared(readers) and committed(broker) == everywhere(10))
    assert read_by(readers) == written
    for reader in readers:
        reader.stop()

    more = fill(broker, 5)
    readers[:] = [Reader(server, client)]
    wait_until(readers, lambda: committed(broker) == everywhere(15))
    assert (set(readers[0].read), len(readers[0].read)) == (more, len(more))


def test_members_of_three_clients_are_one_group(broker: Broker, server: Server, readers: list[Reader]) -> None:
    readers += [Reader(server, client) for client in CLIENTS]
    wait_until(readers, lambda: is_shared(readers))
    written = fill(broker, 10)
    wait_until(readers, lambda: committed(broker) == everywhere(10))
    assert read_by(readers) == written
    with broker.coordinator() as coordinator:
        assert len(coordinator.describe(GROUP).members) == 3


def test_a_cooperative_group_takes_from_members_only_what_others_get(
    broker: Broker, server: Server, readers: list[Reader]
) -> None:
    def join() -> Reader:
        readers.append(Reader(server, partition_assignment_strategy="cooperative-sticky"))
        return readers[-1]

    def taken_from(reader: Reader) -> set[int]:
        assert isinstance(reader.member, ConfluentMember)
        return reader.member.taken

    one = join()
    wait_until(readers, lambda: one.assigned == {0, 1, 2})
    other = join()
    wait_until(readers, lambda: is_shared(readers))
    assert taken_from(one) == other.assigned
    assert len(other.assigned) == 1
    written = fill(broker, 10)
    wait_until(readers, lambda: committed(broker) == everywhere(10))
    assert sorted(one.read + other.read) == sorted(written)


def test_a_static_member_that_restarts_disturbs_nobody(broker: Broker, server: Server, readers: list[Reader]) -> None:
    written = fill(broker, 10)
    readers += [Reader(server, group_instance_id=name) for name in ("a", "b")]
    wait_until(readers, lambda: is_shared(readers) and committed(broker) == everywhere(10))
    assert read_by(readers) == written
    stays, restarts = readers
    assert isinstance(stays.member, ConfluentMember)
    taken = set(stays.member.taken)
    with broker.coordinator() as coordinator:
        generation = coordinator.describe(GROUP).generation

    restarts.stop()  # a static member does not leave when it is closed
    more = fill(broker, 5)
    returned = readers[1] = Reader(server, group_instance_id="b")
    wait_until(readers, lambda: committed(broker) == everywhere(15))
    assert returned.assigned == restarts.assigned
    assert sorted(returned.read) == sorted(position for position in more if position[0] in returned.assigned)
    assert stays.member.taken == taken
    with broker.coordinator() as coordinator:
        assert coordinator.describe(GROUP).generation == generation


@by_client
def test_a_rolling_restart_of_all_members_loses_no_record(
    broker: Broker, server: Server, readers: list[Reader], client: MemberClass
) -> None:
    written = fill(broker, 10)
    readers += [Reader(server, client), Reader(server, client)]
    all_readers = list(readers)
    wait_until(readers, lambda: is_shared(readers))
    for index in range(len(readers)):
        readers[index].stop()
        written |= fill(broker, 10)
        readers[index] = Reader(server, client)
        all_readers.append(readers[index])
        wait_until(readers, lambda: is_shared(readers))
    wait_until(readers, lambda: committed(broker) == everywhere(30))
    assert read_by(all_readers) == written


# --- offsets by time --------------------------------------------------------------------------------------------------


@pytest.fixture
def timed(broker: Broker) -> Broker:
    """Partition 0 has offsets 0 to 2 at 100, 300 and 200, and 3 at 400; the others are empty."""
    append(broker, 0, (100, 300, 200))
    append(broker, 0, (400,))
    return broker


def test_librdkafka_finds_offsets_by_time_and_both_ends(timed: Broker, server: Server) -> None:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": GROUP})
    wanted = [TopicPartition(TOPIC, 0, timestamp_ms) for timestamp_ms in (0, 101, 301)]
    found = [consumer.offsets_for_times([one], timeout=BOUND_S)[0].offset for one in wanted]
    assert found == [0, 1, 3]
    assert consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=BOUND_S) == (0, 4)
    consumer.close()


def test_kafka_python_finds_offsets_by_time_and_both_ends(timed: Broker, server: Server) -> None:
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap)
    zero, one = PythonPartition(TOPIC, 0), PythonPartition(TOPIC, 1)
    found = consumer.offsets_for_times({zero: 101, one: 101})
    assert (found[zero].offset, found[zero].timestamp, found[one]) == (1, 300, None)
    assert consumer.beginning_offsets([zero, one]) == {zero: 0, one: 0}
    assert consumer.end_offsets([zero, one]) == {zero: 4, one: 0}
    consumer.close()


def test_aiokafka_finds_offsets_by_time_and_both_ends(timed: Broker, server: Server) -> None:
    async def look() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=server.bootstrap)
        await consumer.start()
        zero, one = AioPartition(TOPIC, 0), AioPartition(TOPIC, 1)
        found = await consumer.offsets_for_times({zero: 301, one: 101})
        assert (found[zero].offset, found[zero].timestamp, found[one]) == (3, 400, None)
        assert await consumer.beginning_offsets([zero, one]) == {zero: 0, one: 0}
        assert await consumer.end_offsets([zero, one]) == {zero: 4, one: 0}
        await consumer.stop()

    asyncio.run(look())


# --- transactions -----------------------------------------------------------------------------------------------------


def test_librdkafka_says_at_once_that_there_are_no_transactions(server: Server) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "tx", "log_level": 0})
    with pytest.raises(KafkaException, match=r"this broker has no transactions; remove transactional\.id"):
        producer.init_transactions(BOUND_S)


def test_kafka_python_says_at_once_that_there_are_no_transactions(server: Server) -> None:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap, transactional_id="tx")
    with pytest.raises(KafkaError, match="Could not find a coordinator"):
        producer.init_transactions()
    producer.close(timeout=1)


def test_aiokafka_says_at_once_that_there_are_no_transactions(server: Server) -> None:
    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap, transactional_id="tx")
        with pytest.raises(Exception, match="tx"):
            await asyncio.wait_for(producer.start(), BOUND_S)
        await producer.stop()

    asyncio.run(start())
