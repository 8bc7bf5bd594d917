"""Three clients behind one face, each with its defaults but for patience: what they do when the broker fails them.

`send` hands records to a producer, calls `meanwhile`, and waits until each is acknowledged or given up; it returns the
codes of those that were given up. `read` reads so many records as a member of a group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

PATIENCE_S = 60


def nothing() -> None:
    """There is nothing to do meanwhile."""


class Client(Protocol):
    """A client of Kafka's."""

    def send(self, bootstrap: str, values: Sequence[bytes], meanwhile: Callable[[], None] = nothing) -> list[int]: ...

    def read(
        self, bootstrap: str, count: int, group: str = "readers", meanwhile: Callable[[], None] = nothing
    ) -> list[bytes]: ...


class Confluent:
    """confluent-kafka."""

    def send(self, bootstrap: str, values: Sequence[bytes], meanwhile: Callable[[], None] = nothing) -> list[int]:
        refused: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                refused.append(error.code())

        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        for value in values:
            producer.produce("t", value, on_delivery=delivered)
        meanwhile()
        assert producer.flush(PATIENCE_S) == 0
        return refused

    def read(
        self, bootstrap: str, count: int, group: str = "readers", meanwhile: Callable[[], None] = nothing
    ) -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        consumer.subscribe(["t"])
        found: list[bytes] = []
        while len(found) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            error, value = message.error(), message.value()
            if error is not None:
                assert error.retriable(), error
                continue
            assert value is not None
            found.append(value)
            if len(found) == 1:
                meanwhile()
        self.commit(consumer)
        consumer.close()
        return found

    def commit(self, consumer: Any) -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            raise CommitRefused(error.args[0].code()) from error


class CommitRefused(Exception):
    """A commit was refused with this code; None where the client says only that the group has moved on."""


class KafkaPython:
    """kafka-python."""

    def send(self, bootstrap: str, values: Sequence[bytes], meanwhile: Callable[[], None] = nothing) -> list[int]:
        producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, reconnect_backoff_max_ms=100)
        futures = [producer.send("t", value) for value in values]
        meanwhile()
        refused = []
        for future in futures:
            try:
                future.get(PATIENCE_S)
            except KafkaError as error:
                refused.append(error.errno)
        producer.close()
        return refused

    def read(
        self, bootstrap: str, count: int, group: str = "readers", meanwhile: Callable[[], None] = nothing
    ) -> list[bytes]:
        consumer = KafkaConsumer(
            "t",
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            consumer_timeout_ms=PATIENCE_S * 1000,
            reconnect_backoff_max_ms=100,
        )
        found = []
        for message in consumer:
            found.append(message.value)
            if len(found) == 1:
                meanwhile()
            if len(found) >= count:
                break
        try:
            consumer.commit()
        except KafkaError as error:
            raise CommitRefused(getattr(error, "errno", None)) from error
        finally:
            consumer.close(autocommit=False)
        return found


class Aiokafka:
    """aiokafka."""

    def send(self, bootstrap: str, values: Sequence[bytes], meanwhile: Callable[[], None] = nothing) -> list[int]:
        async def run() -> list[int]:
            refused = []
            async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
                futures = [await producer.send("t", value) for value in values]
                await asyncio.to_thread(meanwhile)
                for future in futures:
                    try:
                        await asyncio.wait_for(future, PATIENCE_S)
                    except AioKafkaError as error:
                        refused.append(error.errno)
            return refused

        return asyncio.run(run())

    def read(
        self, bootstrap: str, count: int, group: str = "readers", meanwhile: Callable[[], None] = nothing
    ) -> list[bytes]:
        async def run() -> list[bytes]:
            consumer = AIOKafkaConsumer(
                "t",
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            found: list[bytes] = []
            async with consumer:
                while len(found) < count:
                    found.append((await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value)
                    if len(found) == 1:
                        await asyncio.to_thread(meanwhile)
                try:
                    await consumer.commit()
                except AioKafkaError as error:
                    raise CommitRefused(getattr(error, "errno", None)) from error
            return found

        return asyncio.run(run())
