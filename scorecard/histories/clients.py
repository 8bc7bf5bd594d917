"""Real clients that write and read in transactions, append and look, and write down what they asked and were told.

librdkafka's, with its own retries; nobody tells them that the broker goes. What they write down is judged by `rules`
and `linear`. Times are of one clock, monotonic, of this process.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from scorecard.histories.linear import NEVER, Call
from scorecard.histories.rules import COMMITTED, NOT_COMMITTED, UNKNOWN, Poll, Transaction, TransactionHistory, Write

LISTS, PLAIN = "lists", "plain"
PARTITIONS = 4
BOUND_S = 60.0
"""When something that should come has not come: far more than a busy machine needs."""

QUICK = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 100,
    "log_level": 0,
}


class Recorder:
    """What all clients wrote down. Any thread."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.stopping = threading.Event()
        self.history = TransactionHistory()
        self.calls: list[Call] = []
        self.ended = 0
        self.problems: list[str] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def transaction(self, one: Transaction) -> None:
        """Before its first write is sent: what is not written down would be taken for invented."""
        with self._lock:
            self.history.transactions.append(one)

    def poll(self, one: Poll) -> None:
        with self._lock:
            self.history.polls.append(one)

    def call(self, one: Call) -> None:
        with self._lock:
            self.calls.append(one)

    def start(self, work: Callable[..., None], *arguments: Any) -> None:
        def guarded() -> None:
            try:
                work(self, *arguments)
            except Exception as error:  # noqa: BLE001 - the thread that waits has to hear of it
                self.problems.append(f"{work.__name__}{arguments}: {error!r}")

        thread = threading.Thread(target=guarded, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(3 * BOUND_S)
            if thread.is_alive():
                self.problems.append("a client does not end")


def transactional_producer(bootstrap: str, name: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 60_000,
            "message.timeout.ms": 50_000,
            "linger.ms": 0,
            **QUICK,
        }
    )
    producer.init_transactions(BOUND_S)
    return producer


def committed_reader(bootstrap: str, topic: str = LISTS, isolation: str = "read_committed") -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            **QUICK,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    return consumer


def records_of(consumer: Consumer, most: int, timeout_s: float) -> list[tuple[int, int, str]]:
    found = []
    for message in consumer.consume(most, timeout_s):
        partition, offset, value = message.partition(), message.offset(), message.value()
        if message.error() is None and partition is not None and offset is not None and isinstance(value, bytes):
            found.append((partition, offset, value.decode()))
    return found


def writes_transactions(recorder: Recorder, name: str, seed: int) -> None:
    """Reads a little, writes to several partitions, and commits or aborts; again and again."""
    rng = random.Random(seed)
    consumer = committed_reader(recorder.bootstrap)
    producer = transactional_producer(recorder.bootstrap, name)
    number = 0
    while not recorder.stopping.is_set():
        one = Transaction(name)
        recorder.transaction(one)
        try:
            producer.begin_transaction()
            read = records_of(consumer, 20, 0.01)
            recorder.poll(Poll(f"reader in {name}", time.monotonic(), read))
            one.reads = [value for _, _, value in read]
            for partition in rng.choices(range(PARTITIONS), k=rng.choice((1, 2, 4, 8))):
                write = Write(partition, f"{name}/{number}")
                number += 1
                one.writes.append(write)
                producer.produce(LISTS, write.value, partition=partition, on_delivery=_noted(write))
            if rng.random() < 0.5:
                producer.flush(BOUND_S)
            commits = rng.random() < 0.7
            if commits:
                one.ending = time.monotonic()
                producer.commit_transaction(BOUND_S)
            else:
                producer.abort_transaction(BOUND_S)
            one.outcome = COMMITTED if commits else NOT_COMMITTED
            recorder.ended += 1
        except KafkaException:
            # What became of it nobody was told, unless nobody asked for a commit. The next producer of the id ends it.
            one.outcome = NOT_COMMITTED if one.ending == NEVER else UNKNOWN
            producer = transactional_producer(recorder.bootstrap, name)
    consumer.close()


def _noted(write: Write) -> Callable[..., None]:
    def delivered(error: object, message: Any) -> None:
        if error is None:
            write.offset = message.offset()

    return delivered


def reads(recorder: Recorder, name: str, seed: int) -> None:
    rng = random.Random(seed)
    consumer = committed_reader(recorder.bootstrap)
    while not recorder.stopping.is_set():
        found = records_of(consumer, rng.choice((1, 10, 200)), 0.05)
        if found:
            recorder.poll(Poll(name, time.monotonic(), found))
    consumer.close()


def appends(recorder: Recorder, name: str) -> None:
    """One record after the other, each when the one before it is acknowledged."""
    producer = Producer({"bootstrap.servers": recorder.bootstrap, "enable.idempotence": True, "linger.ms": 0, **QUICK})
    number = 0
    while not recorder.stopping.is_set():
        told: list[int] = []
        called = time.monotonic()
        producer.produce(
            PLAIN,
            f"{name}/{number}",
            partition=0,
            on_delivery=_told_to(told),
        )
        producer.flush(BOUND_S)
        is_known = bool(told) and told[0] >= 0
        recorder.call(Call("append", called, time.monotonic() if is_known else NEVER, told[0] if is_known else None))
        number += 1


def _told_to(told: list[int]) -> Callable[..., None]:
    return lambda error, message: told.append(-1 if error else message.offset())


def looks(recorder: Recorder) -> None:
    consumer = committed_reader(recorder.bootstrap, PLAIN, "read_uncommitted")
    while not recorder.stopping.is_set():
        called = time.monotonic()
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(PLAIN, 0), 10.0, cached=False)
        except KafkaException:
            continue
        recorder.call(Call("look", called, time.monotonic(), end))
    consumer.close()


def final_read(bootstrap: str) -> dict[int, list[tuple[int, str]]]:
    """All committed records, once every transaction has ended."""
    consumer = committed_reader(bootstrap)
    found: dict[int, list[tuple[int, str]]] = {number: [] for number in range(PARTITIONS)}
    ends = {
        number: consumer.get_watermark_offsets(TopicPartition(LISTS, number), BOUND_S, cached=False)[1]
        for number in range(PARTITIONS)
    }
    deadline = time.monotonic() + BOUND_S
    while time.monotonic() < deadline:
        for partition, offset, value in records_of(consumer, 500, 0.1):
            found[partition].append((offset, value))
        places = {place.partition: place.offset for place in consumer.position(consumer.assignment())}
        if all(places[number] >= end or end == 0 for number, end in ends.items()):
            break
    consumer.close()
    return found
