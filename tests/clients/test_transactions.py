"""Transactions of real clients: librdkafka's, aiokafka's and kafka-python's, all of transaction version 1.

Java's, of version 2, are in tests/clusters/test_java_clients.py. What is refused with which code is in
tests/server/handlers/test_transactions.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer

from clients.any_client import BOUND_S, POLL_S, AnyClient, AnyConsumer, Outgoing, eventually
from clients.confluent_client import QUICK
from clients.conftest import NewTopic
from foldlog.broker.broker import Broker
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.server.server import Server

Result = TypeVar("Result")

UNCOMMITTED = "read_uncommitted"
COMMITTED = "read_committed"


def producer_of(server: Server, transactional_id: str, **settings: Any) -> Producer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": server.bootstrap, "transactional.id": transactional_id, **QUICK, **named})


def begun(server: Server, transactional_id: str, **settings: Any) -> Producer:
    producer = producer_of(server, transactional_id, **settings)
    producer.init_transactions(BOUND_S)
    producer.begin_transaction()
    return producer


def values(client: AnyClient, topic: str, count: int, isolation: str) -> list[bytes | None]:
    """So many values from the start of a topic with one partition, in their order."""
    consumer = client.consumer(isolation=isolation)
    consumer.assign([(topic, 0)])
    found = polled(consumer, count)
    consumer.close()
    return found


def polled(consumer: AnyConsumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []

    def has_come() -> bool:
        found.extend(one.value for one in consumer.poll(POLL_S))
        return len(found) >= count

    eventually(has_come, f"{count} records")
    return found


def test_every_client_reads_what_was_committed_and_not_what_was_aborted(
    server: Server, client: AnyClient, topic: str
) -> None:
    producer = begun(server, f"{topic}-{client.name}")
    for number in range(4):
        if number:
            producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.produce(topic, b"%d again" % number)
        assert producer.flush(BOUND_S) == 0, "an abort would take back what is not sent"
        if number % 2:
            producer.abort_transaction(BOUND_S)
        else:
            producer.commit_transaction(BOUND_S)
    client.producer().send(topic, [Outgoing(b"after")])
    expected = [b"0", b"0 again", b"2", b"2 again", b"after"]
    assert values(client, topic, len(expected), COMMITTED) == expected
    assert len(values(client, topic, 9, UNCOMMITTED)) == 9


def test_an_open_transaction_is_seen_by_who_reads_uncommitted_records_only(
    server: Server, client: AnyClient, topic: str
) -> None:
    client.producer().send(topic, [Outgoing(b"before")])
    producer = begun(server, f"{topic}-{client.name}")
    producer.produce(topic, b"open")
    assert producer.flush(BOUND_S) == 0
    client.producer().send(topic, [Outgoing(b"behind")])
    assert values(client, topic, 3, UNCOMMITTED) == [b"before", b"open", b"behind"]
    reader = client.consumer(isolation=COMMITTED)
    reader.assign([(topic, 0)])
    assert polled(reader, 1) == [b"before"]
    assert reader.poll(POLL_S) == []
    producer.commit_transaction(BOUND_S)
    assert polled(reader, 2) == [b"open", b"behind"]
    reader.close()


def copy_once(
    server: Server, source: str, target: str, group: str, producer: Producer, *, aborts_third: bool
) -> tuple[int, int]:
    """Consume, transform, produce until the source is read; how many transactions were committed and aborted."""
    settings = {
        **QUICK,
        "bootstrap.servers": server.bootstrap,
        "group.id": group,
        "isolation.level": COMMITTED,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    consumer.subscribe([source])
    committed = aborted = 0
    while True:
        messages = consumer.consume(20, POLL_S)
        records = [message for message in messages if message.error() is None]
        at_end = len(records) < len(messages)
        if records:
            producer.begin_transaction()
            for message in records:
                producer.produce(target, (message.value() or b"") + b"!")
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), BOUND_S
            )
            if aborts_third and (committed + aborted) % 3 == 2:
                producer.abort_transaction(BOUND_S)
                aborted += 1
                for place in consumer.committed(consumer.assignment(), BOUND_S):
                    consumer.seek(place)
                at_end = False
            else:
                producer.commit_transaction(BOUND_S)
                committed += 1
        if at_end:
            consumer.close()
            return committed, aborted


def test_librdkafka_consumes_transforms_and_produces_exactly_once(
    server: Server, broker: Broker, clients: list[AnyClient], new_topic: NewTopic, group: str
) -> None:
    source, target = new_topic(), new_topic()
    librdkafka = clients[0]
    librdkafka.producer().send(source, [Outgoing(b"%d" % number) for number in range(200)])
    producer = producer_of(server, group)
    producer.init_transactions(BOUND_S)
    committed, aborted = copy_once(server, source, target, group, producer, aborts_third=True)
    assert committed > 1
    assert aborted > 0
    assert values(librdkafka, target, 200, COMMITTED) == [b"%d!" % number for number in range(200)]
    assert broker.committed(group) == {(source, 0): OffsetAndMetadata(200, 0)}


def test_librdkafka_is_told_that_another_producer_has_its_id(server: Server, client: AnyClient, topic: str) -> None:
    zombie = begun(server, topic)
    zombie.produce(topic, b"zombie")
    assert zombie.flush(BOUND_S) == 0
    successor = begun(server, topic)
    successor.produce(topic, b"successor")
    successor.commit_transaction(BOUND_S)
    with pytest.raises(KafkaException) as told:
        zombie.commit_transaction(BOUND_S)
    error = told.value.args[0]
    assert (error.code(), error.fatal()) == (KafkaError._FENCED, True)
    assert values(client, topic, 1, COMMITTED) == [b"successor"]


def test_librdkafka_is_refused_a_timeout_over_the_maximum(server: Server, topic: str) -> None:
    producer = producer_of(server, topic, transaction_timeout_ms=3_600_000)
    with pytest.raises(KafkaException) as told:
        producer.init_transactions(BOUND_S)
    assert told.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_a_transaction_of_librdkafka_that_takes_too_long_is_aborted(
    server: Server, clients: list[AnyClient], topic: str
) -> None:
    producer = begun(server, topic, transaction_timeout_ms=1000, message_timeout_ms=1000)
    producer.produce(topic, b"too late")
    assert producer.flush(BOUND_S) == 0
    clients[0].producer().send(topic, [Outgoing(b"behind")])
    assert values(clients[0], topic, 1, COMMITTED) == [b"behind"], "readers wait for the timeout, and not longer"
    with pytest.raises(KafkaException):
        producer.commit_transaction(BOUND_S)


def test_librdkafka_commits_offsets_without_a_member(server: Server, broker: Broker, topic: str, group: str) -> None:
    consumer = Consumer({**QUICK, "bootstrap.servers": server.bootstrap, "group.id": group})
    producer = begun(server, topic)
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], consumer.consumer_group_metadata(), BOUND_S)
    assert broker.committed(group) == {}
    producer.commit_transaction(BOUND_S)
    assert broker.committed(group) == {(topic, 0): OffsetAndMetadata(7)}
    consumer.close()


# --- aiokafka ---------------------------------------------------------------------------------------------------------


def run(work: Coroutine[Any, Any, Result]) -> Result:
    async def bounded() -> Result:
        return await asyncio.wait_for(work, BOUND_S)

    return asyncio.run(bounded())


def test_aiokafka_has_transactions(
    server: Server, broker: Broker, clients: list[AnyClient], new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()

    async def fail(producer: AIOKafkaProducer) -> None:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"aborted")
            await producer.send_offsets_to_transaction({AiokafkaPartition(topic, 0): 2}, group)
            raise ZeroDivisionError

    async def write() -> None:
        async with AIOKafkaProducer(bootstrap_servers=server.bootstrap, transactional_id=topic) as producer:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"committed")
                await producer.send_offsets_to_transaction({AiokafkaPartition(topic, 0): 1}, group)
            with pytest.raises(ZeroDivisionError):
                await fail(producer)
            async with producer.transaction():
                await producer.send_and_wait(topic, b"last")

    run(write())
    assert values(clients[2], topic, 2, COMMITTED) == [b"committed", b"last"]
    assert broker.committed(group) == {(topic, 0): OffsetAndMetadata(1)}


def test_aiokafka_is_told_that_another_producer_has_its_id(server: Server, topic: str) -> None:
    async def fence() -> None:
        zombie = AIOKafkaProducer(bootstrap_servers=server.bootstrap, transactional_id=topic)
        successor = AIOKafkaProducer(bootstrap_servers=server.bootstrap, transactional_id=topic)
        await zombie.start()
        await zombie.begin_transaction()
        await zombie.send_and_wait(topic, b"zombie")
        await successor.start()
        with pytest.raises(ProducerFenced):
            await zombie.commit_transaction()
        await successor.stop()
        await zombie.stop()

    run(fence())


def test_aiokafka_reads_committed_records_from_the_end(server: Server, topic: str) -> None:
    """Its end is the last stable offset."""
    producer = begun(server, topic)
    producer.produce(topic, b"open")
    assert producer.flush(BOUND_S) == 0

    async def ends() -> list[int]:
        found = []
        for level in (COMMITTED, UNCOMMITTED):
            async with AIOKafkaConsumer(bootstrap_servers=server.bootstrap, isolation_level=level) as consumer:
                place = AiokafkaPartition(topic, 0)
                consumer.assign([place])
                await consumer.seek_to_end(place)
                found.append(await consumer.position(place))
        return found

    assert run(ends()) == [0, 1]
    producer.abort_transaction(BOUND_S)
    assert run(ends()) == [2, 2]


# --- kafka-python -----------------------------------------------------------------------------------------------------


def test_kafka_python_has_transactions(server: Server, clients: list[AnyClient], topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap, transactional_id=topic)
    producer.init_transactions()
    for value, ends in (
        (b"committed", producer.commit_transaction),
        (b"aborted", producer.abort_transaction),
        (b"last", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.send(topic, value).get(BOUND_S)
        ends()
    producer.close()
    assert values(clients[1], topic, 2, COMMITTED) == [b"committed", b"last"]
