"""Programs that read as members of a group, each with a client that people use, in a thread of its own.

Records are appended to the log directly, so that what is tested is the groups. Nothing waits for a fixed time:
`wait_until` returns when what it waits for is so, and fails after a bound that is generous for a busy machine.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRangeAssignor
from aiokafka.errors import CommitFailedError as AioCommitFailed
from aiokafka.errors import IllegalStateError as AioIllegalState
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ConfluentError
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import CommitFailedError as PythonCommitFailed

from foldlog.broker.broker import Broker
from foldlog.log.partition import Partition
from foldlog.records.loops import pack
from foldlog.server.server import Server

TOPIC = "orders"
PARTITIONS = 3
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


def fill(broker: Broker, each: int) -> set[Position]:
    """Append that many records to every partition; where they are."""
    positions = set()
    for number in range(PARTITIONS):
        end = broker.partition(TOPIC, number).log_end_offset
        append(broker, number, range(1000, 1000 + each))
        positions |= {(number, offset) for offset in range(end, end + each)}
    return positions


class Member(Protocol):
    """A consumer of any client, in a group; it reads from the start."""

    def poll(self) -> list[Position]: ...

    def assigned(self) -> set[int]: ...

    def commit(self) -> None:
        """Commit what was read, unless the group has moved on: who has the partitions then reads it again."""

    def close(self) -> None: ...


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


class PythonMember:
    """kafka-python."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = KafkaConsumer(
            TOPIC,
            bootstrap_servers=bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=300,
            partition_assignment_strategy=[RangePartitionAssignor],
        )

    def poll(self) -> list[Position]:
        # Long enough for a join: version 3.0 forgets to heartbeat when its poll ends in the middle of one.
        found = self._consumer.poll(timeout_ms=2000)
        return [(record.partition, record.offset) for records in found.values() for record in records]

    def assigned(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        with suppress(PythonCommitFailed):
            self._consumer.commit()

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class AioMember:
    """aiokafka, on a loop of its own."""

    def __init__(self, bootstrap: str) -> None:
        self._loop = asyncio.new_event_loop()

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                TOPIC,
                bootstrap_servers=bootstrap,
                group_id=GROUP,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=10_000,
                heartbeat_interval_ms=300,
                partition_assignment_strategy=(AioRangeAssignor,),
            )
            await consumer.start()
            return consumer

        self._consumer = self._loop.run_until_complete(start())

    def poll(self) -> list[Position]:
        found = self._loop.run_until_complete(self._consumer.getmany(timeout_ms=100))
        return [(record.partition, record.offset) for records in found.values() for record in records]

    def assigned(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        with suppress(AioCommitFailed, AioIllegalState):
            self._loop.run_until_complete(self._consumer.commit())

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


MemberClass = Callable[..., Member]
CLIENTS = [ConfluentMember, PythonMember, AioMember]


progress = threading.Event()
"""Set after each poll of any reader."""


class Reader:
    """A program with one member: it polls and commits what it got, in a thread of its own, until it is stopped."""

    def __init__(self, server: Server, client: MemberClass = ConfluentMember, **settings: Any) -> None:
        self._make: Callable[[], Member] = partial(client, server.bootstrap, **settings)
        self._is_stopped = threading.Event()
        self._failure: BaseException | None = None
        self.member: Member | None = None
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


def is_shared(readers: list[Reader]) -> bool:
    """Every partition has one reader, and nobody is without."""
    assigned = [reader.assigned for reader in readers]
    return all(assigned) and sorted(number for numbers in assigned for number in numbers) == list(range(PARTITIONS))


def read_by(readers: list[Reader]) -> set[Position]:
    return {position for reader in readers for position in reader.read}


def committed(broker: Broker) -> dict[int, int]:
    return {number: kept.offset for (_, number), kept in broker.committed(GROUP).items()}


def everywhere(offset: int) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), offset)
