"""Programs that read as members of a group with confluent-kafka, each in a thread of its own.

Records are appended to the log directly, so that what is tested is the groups. Nothing waits for a fixed time:
`wait_until` returns when what it waits for is so, and fails after a bound that is generous for a busy machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ConfluentError

from foldlog.broker.broker import Broker
from foldlog.log.partition import Partition
from foldlog.records.loops import pack
from foldlog.server.server import Server

TOPIC = "orders"
GROUP = "readers"
BOUND_S = 60.0

MOVED_ON = (ConfluentError.ILLEGAL_GENERATION, ConfluentError.REBALANCE_IN_PROGRESS, ConfluentError._NO_OFFSET)

Position = tuple[int, int]
"""Partition and offset."""


def append(broker: Broker, number: int, timestamps_ms: Iterable[int]) -> None:
    """One batch with a record at each of these times."""
    partition = broker.partition(TOPIC, number)
    assert isinstance(partition, Partition)
    appended = partition.append(pack([(timestamp_ms, None, b"value", ()) for timestamp_ms in timestamps_ms]))
    partition.wait_acknowledged(appended.next_offset)


class ConfluentMember:
    """librdkafka. `taken` is what its rebalances took from it."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self.taken: set[int] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 300,
                "partition.assignment.strategy": "range",
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self._consumer.subscribe([TOPIC], on_revoke=lambda _, partitions: self._revoked(partitions))

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self.taken |= {partition.partition for partition in partitions}

    def poll(self) -> list[Position]:
        positions = []
        for message in self._consumer.consume(100, 0.1):
            assert message.error() is None, message.error()
            number, offset = message.partition(), message.offset()
            assert number is not None
            assert offset is not None
            positions.append((number, offset))
        return positions

    def assigned(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in MOVED_ON:
                raise

    def close(self) -> None:
        self._consumer.close()


progress = threading.Event()
"""Set after each poll of any reader."""


class Reader:
    """A program with one member: it polls and commits what it got, in a thread of its own, until it is stopped."""

    def __init__(self, server: Server, **settings: Any) -> None:
        self._make = partial(ConfluentMember, server.bootstrap, **settings)
        self._is_stopped = threading.Event()
        self._failure: BaseException | None = None
        self.member: ConfluentMember | None = None
        self.read: list[Position] = []
        self.assigned: set[int] = set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            member = self.member = self._make()
            try:
                while not self._is_stopped.is_set():
                    positions = member.poll()
                    if positions:
                        self.read += positions
                        member.commit()
                    self.assigned = member.assigned()
                    progress.set()
            finally:
                member.close()
        except BaseException as error:  # noqa: BLE001  raised in the test's own thread
            self._failure = error
            progress.set()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def stop_soon(self) -> None:
        self._is_stopped.set()

    def stop(self) -> None:
        self.stop_soon()
        self._thread.join(BOUND_S)
        self.check()


@contextmanager
def running_readers() -> Iterator[list[Reader]]:
    """Those of a test; the ones it leaves in the list are stopped, all at once."""
    running: list[Reader] = []
    try:
        yield running
    finally:
        for reader in running:
            reader.stop_soon()
        for reader in running:
            reader.stop()


def wait_until(readers: list[Reader], is_so: Callable[[], bool]) -> None:
    """Let the readers read until that is so."""
    deadline = time.monotonic() + BOUND_S
    while not is_so():
        for reader in readers:
            reader.check()
        assert time.monotonic() < deadline, [(len(reader.read), reader.assigned) for reader in readers]
        progress.wait(1)
        progress.clear()
