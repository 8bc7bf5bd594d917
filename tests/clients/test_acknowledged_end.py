"""What a client was told is written, it finds: the end of the log, a seek to it, a time and a deletion never deny it.

The clients' own calls, each a hundred times right after an acknowledgement that did not wait for the disk (acks=1,
aiokafka's default), on real files.
"""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from clients.any_client import BOUND_S
from foldlog.server.server import Server

TRIES = 100


def test_aiokafka_with_its_defaults_finds_every_record_that_was_acknowledged(server: Server, topic: str) -> None:
    async def run() -> tuple[list[int], list[int], list[int]]:
        place = AioPartition(topic, 0)
        ends, ahead, at_time = [], [], []
        async with (
            AIOKafkaProducer(bootstrap_servers=server.bootstrap) as producer,
            AIOKafkaConsumer(bootstrap_servers=server.bootstrap, enable_auto_commit=False) as consumer,
        ):
            consumer.assign([place])
            for _ in range(TRIES):
                sent = await producer.send_and_wait(topic, b"paid")
                ends.append((await consumer.end_offsets([place]))[place] - sent.offset)
                sent = await producer.send_and_wait(topic, b"paid")
                await consumer.seek_to_end(place)
                ahead.append(await consumer.position(place) - sent.offset)
                sent = await producer.send_and_wait(topic, b"paid", timestamp_ms=10 + sent.offset)
                found = (await consumer.offsets_for_times({place: sent.timestamp}))[place]
                at_time.append(-1 if found is None else found.offset - sent.offset)
        return ends, ahead, at_time

    ends, ahead, at_time = asyncio.run(run())
    assert (ends, ahead, set(at_time)) == ([1] * TRIES, [1] * TRIES, set(at_time) - {-1})


def test_librdkafka_finds_and_deletes_every_record_that_was_acknowledged(server: Server, topic: str) -> None:
    told: list[int | None] = []
    producer = Producer({"bootstrap.servers": server.bootstrap, "acks": 1, "linger.ms": 0})
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "any"})
    for number in range(TRIES):
        producer.produce(topic, b"paid", on_delivery=lambda error, message: told.append(message.offset()))
        assert producer.flush(BOUND_S) == 0
        assert told == list(range(number + 1))
        if number % 2:
            deleted = admin.delete_records([TopicPartition(topic, 0, number + 1)])
            assert [one.result(BOUND_S).low_watermark for one in deleted.values()] == [number + 1]
        elif number % 4:
            assert consumer.get_watermark_offsets(TopicPartition(topic, 0), BOUND_S)[1] == number + 1
        else:
            latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            listed = admin.list_offsets({TopicPartition(topic, 0): latest})
            assert [one.result(BOUND_S).offset for one in listed.values()] == [number + 1]
    consumer.close()


def test_kafka_python_finds_every_record_that_was_acknowledged(server: Server, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap, acks=1, enable_idempotence=False)
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap)
    place = PythonPartition(topic, 0)
    for number in range(TRIES):
        assert producer.send(topic, b"paid").get(BOUND_S).offset == number
        assert consumer.end_offsets([place]) == {place: number + 1}
    consumer.close()
    producer.close()


def test_a_reader_that_reads_to_the_end_misses_nothing(server: Server, topic: str) -> None:
    """As programs do that read a topic once: up to the end that they were told."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "acks": 1, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "any", "enable.auto.commit": False})
    for number in range(4):
        producer.produce(topic, b"%d" % number)
        assert producer.flush(BOUND_S) == 0
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), BOUND_S)[1]
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = [message.value() for message in consumer.consume(end, BOUND_S)]
        assert found == [b"%d" % one for one in range(number + 1)]
    consumer.close()
