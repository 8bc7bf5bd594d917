"""Consumer groups with the clients that people use: they share partitions, come and go, and resume where they were.

confluent-kafka, kafka-python and aiokafka against a served broker in memory. Records are appended to the log directly,
so that what is tested is the groups. Nothing waits for a fixed time: each test polls until what it waits for is there,
and fails after a bound that is generous for a busy machine.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRangeAssignor
from aiokafka.errors import CommitFailedError as AioCommitFailed
from aiokafka.errors import IllegalStateError as AioIllegalState
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as ConfluentError
from kafka import KafkaConsumer, KafkaProducer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import CommitFailedError as PythonCommitFailed
from kafka.errors import KafkaError
from kafka.structs import TopicPartition as PythonPartition

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
by_client = pytest.mark.parametrize("client", CLIENTS, ids=["confluent", "kafka-python", "aiokafka"])


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


@pytest.fixture
def readers() -> Iterator[list[Reader]]:
    """Those of a test; the ones it leaves are stopped."""
    running: list[Reader] = []
    yield running
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
