"""Clients that go on whatever happens to the broker: producers that number their records, members that commit.

All of them are real clients with their own retries. What each of them was told goes into one `Story`, which a test
compares with the log at the end.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from kafka import KafkaProducer

from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.produce import ProduceResponse
from server.raw_client import RawClient, batch, produce, produced

TOPIC = "events"
PARTITIONS = 3
PRODUCE_VERSION = 9
GROUP = "readers"
BOUND_S = 60.0
"""When something that should come has not come: far more than a busy machine needs."""

UNANSWERED_MAX = 60
"""Of one producer: enough to have several requests on their way, few enough that a restart is soon caught up with."""

BALLAST = b"\0"
"""What comes after it in a value only makes the record larger."""

Place = tuple[int, int]
"""Partition and offset."""


class Story:
    """What clients were told. Any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.acknowledged: dict[Place, str] = {}
        self.read: dict[Place, str] = {}
        self.committed: dict[int, int] = {}
        self.commit_count = 0
        self.problems: list[str] = []

    def was_acknowledged(self, partition: int, offset: int, value: str) -> None:
        with self._changed:
            known = self.acknowledged.setdefault((partition, offset), value)
            if known != value:
                self.problems.append(f"offset {offset} of {partition} was given to {known} and to {value}")
            self._changed.notify_all()

    def was_read(self, partition: int, offset: int, value: str) -> None:
        with self._changed:
            known = self.read.setdefault((partition, offset), value)
            if known != value:
                self.problems.append(f"offset {offset} of {partition} was read as {known} and as {value}")
            self._changed.notify_all()

    def was_committed(self, partition: int, offset: int) -> None:
        with self._changed:
            self.committed[partition] = max(self.committed.get(partition, 0), offset)
            self.commit_count += 1
            self._changed.notify_all()

    def was_assigned(self, partition: int, start: int) -> None:
        """A member goes on there: never before what any member was told was committed."""
        with self._changed:
            if start < self.committed.get(partition, 0):
                told = self.committed[partition]
                self.problems.append(f"a member goes on at {start} of {partition}, where {told} was committed")

    def failed(self, what: str) -> None:
        with self._changed:
            self.problems.append(what)
            self._changed.notify_all()

    def wait_for(self, what: str, is_so: Callable[[Story], bool]) -> None:
        """Until it is so; fails at once with what a client complained of."""
        with self._changed:
            done = self._changed.wait_for(lambda: bool(self.problems) or is_so(self), BOUND_S)
            assert not self.problems, self.problems
            assert done, f"waited for {BOUND_S} s: {what}"

    def wait_progress(self, acknowledgements: int, commits: int = 0) -> None:
        """Until that many more records are acknowledged, and partitions committed."""
        with self._changed:
            records, places = len(self.acknowledged) + acknowledgements, self.commit_count + commits
        self.wait_for(
            f"{records} records acknowledged, {places} places committed",
            lambda story: len(story.acknowledged) >= records and story.commit_count >= places,
        )


class Worker(ABC):
    """A client in a thread of its own, until it is stopped."""

    def __init__(self, name: str, bootstrap: str, story: Story) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.story = story
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self._thread.start()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @abstractmethod
    def run(self) -> None:
        """Work while it is not stopping, then finish what is under way."""

    def _guarded(self) -> None:
        try:
            self.run()
        except Exception as error:  # noqa: BLE001  the test's own thread has to hear of it
            self.story.failed(f"{self.name}: {error!r}")

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        self._thread.join(BOUND_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"


class ConfluentProducer(Worker):
    """librdkafka, idempotent."""

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 10,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "message.timeout.ms": int(BOUND_S * 1000),
                "log_level": 0,
            }
        )
        number = 0
        while not self.is_stopping:
            while len(producer) < UNANSWERED_MAX:
                value = f"{self.name}/{number}"
                producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered)
                number += 1
            producer.poll(0.05)
        left = producer.flush(BOUND_S)
        if left:
            self.story.failed(f"{self.name}: {left} records were never answered")

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.story.failed(f"{self.name}: {error}")
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        self.story.was_acknowledged(partition, offset, value.decode())


class KafkaPythonProducer(Worker):
    """kafka-python, idempotent."""

    def run(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            enable_idempotence=True,
            linger_ms=1,
            batch_size=500,
            retry_backoff_ms=10,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=50,
            delivery_timeout_ms=int(BOUND_S * 1000),
        )
        number = 0
        while not self.is_stopping:
            values = [f"{self.name}/{number + step}" for step in range(UNANSWERED_MAX // 2)]
            sent = [
                producer.send(TOPIC, value.encode(), partition=(number + step) % PARTITIONS)
                for step, value in enumerate(values)
            ]
            for value, future in zip(values, sent, strict=True):
                metadata = future.get(BOUND_S)
                self.story.was_acknowledged(metadata.partition, metadata.offset, value)
            number += len(values)
        producer.close()


class AiokafkaProducer(Worker):
    """aiokafka, idempotent."""

    def run(self) -> None:
        asyncio.run(asyncio.wait_for(self._produce(), 3 * BOUND_S))

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            enable_idempotence=True,
            linger_ms=1,
            max_batch_size=500,
            retry_backoff_ms=10,
            request_timeout_ms=int(BOUND_S * 1000),
        )
        await producer.start()
        number = 0
        while not self.is_stopping:
            values = [f"{self.name}/{number + step}" for step in range(UNANSWERED_MAX // 2)]
            sent = [
                await producer.send(TOPIC, value.encode(), partition=(number + step) % PARTITIONS)
                for step, value in enumerate(values)
            ]
            for value, metadata in zip(values, await asyncio.gather(*sent), strict=True):
                self.story.was_acknowledged(metadata.partition, metadata.offset, value)
            number += len(values)
        await producer.stop()


class RawProducer(Worker):
    """The protocol by hand: sends ahead of the answers, sends nothing again, and ends with its connection."""

    def run(self) -> None:
        host, port = self.bootstrap.split(":")
        client = RawClient((host, int(port)))
        unanswered: deque[tuple[int, int, str]] = deque()
        try:
            for number in count():
                partition, value = number % PARTITIONS, f"{self.name}/{number}"
                sent = client.send(produce(batch(value.encode()), TOPIC, partition), PRODUCE_VERSION)
                unanswered.append((sent, partition, value))
                if len(unanswered) == UNANSWERED_MAX:
                    self._take_answer(client, *unanswered.popleft())
        except ConnectionError:
            pass
        try:
            while unanswered:
                self._take_answer(client, *unanswered.popleft())
        except ConnectionError:
            pass
        client.close()

    def _take_answer(self, client: RawClient, sent: int, partition: int, value: str) -> None:
        answered, answer = client.receive(ProduceResponse, PRODUCE_VERSION)
        error, offset = produced(answer)
        if answered != sent:
            self.story.failed(f"{self.name}: request {sent} got the answer to request {answered}")
        elif error:
            self.story.failed(f"{self.name}: {ErrorCode(error).name}")
        else:
            self.story.was_acknowledged(partition, offset, value)


class Member(Worker):
    """librdkafka in the group: reads, and commits what it has read, waiting for the answer."""

    def run(self) -> None:
        self._consumer = consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "log_level": 0,
            }
        )
        consumer.subscribe([TOPIC], on_assign=self._assigned)
        try:
            while not self.is_stopping:
                read = [message for message in consumer.consume(200, 0.05) if message.error() is None]
                if read:
                    self._take(read)
        finally:
            consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for place in self._patiently(lambda: consumer.committed(partitions, 1.0)):
            self.story.was_assigned(place.partition, max(0, place.offset))

    def _patiently(self, ask: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
        """Ask until the broker is there to answer."""
        deadline = time.monotonic() + BOUND_S
        while True:
            try:
                return ask()
            except KafkaException:
                if time.monotonic() > deadline:
                    raise

    def _take(self, messages: list[Any]) -> None:
        ends: dict[int, int] = {}
        for message in messages:
            label, _, _ = message.value().partition(BALLAST)
            self.story.was_read(message.partition(), message.offset(), label.decode())
            ends[message.partition()] = message.offset() + 1
        try:
            answered = self._consumer.commit(
                offsets=[TopicPartition(TOPIC, partition, end) for partition, end in ends.items()], asynchronous=False
            )
        except KafkaException:
            return  # nothing was promised: the broker is away, or the group has moved on, and it is read again
        for place in answered or ():
            if place.error is None:
                self.story.was_committed(place.partition, place.offset)
