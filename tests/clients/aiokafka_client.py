"""aiokafka: asyncio. All share one event loop in a thread, which turns also while a test does something else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError, for_code
from aiokafka.structs import OffsetAndMetadata

from clients.any_client import (
    BOUND_S,
    POLL_S,
    UNKNOWN_OFFSET,
    AnyClient,
    AnyConsumer,
    AnyProducer,
    ConsumerOptions,
    Outgoing,
    Place,
    ProducerOptions,
    Received,
    Refused,
    Sent,
)
from foldlog.wire.error_codes import ErrorCode

ASSIGNORS = {
    assignor.name: assignor
    for assignor in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)
}
QUICK: dict[str, Any] = {"retry_backoff_ms": 10, "metadata_max_age_ms": 500}

Result = TypeVar("Result")


@cache
def event_loop() -> asyncio.AbstractEventLoop:
    """The loop of all clients of this kind; its thread ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="aiokafka", daemon=True).start()
    return loop


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Wait for it, from the test's thread."""
    try:
        return asyncio.run_coroutine_threadsafe(coroutine, event_loop()).result(BOUND_S)
    except KafkaError as error:
        raise refused(error) from error


def refused(error: KafkaError) -> Refused:
    return Refused(getattr(error, "errno", -1), f"{type(error).__name__}: {error}")


class AiokafkaProducer(AnyProducer):
    """aiokafka's."""

    def __init__(self, bootstrap: str, options: ProducerOptions) -> None:
        async def start() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if options.codec == "none" else options.codec,
                acks="all" if options.acks == -1 else options.acks,
                enable_idempotence=options.is_idempotent,
                max_batch_size=options.batch_bytes,
                linger_ms=options.linger_ms,
                max_request_size=options.request_bytes_max,
                **QUICK,
            )
            await producer.start()
            return producer

        self._producer = run(start())

    def send(self, topic: str, records: Iterable[Outgoing]) -> list[Sent]:
        async def send() -> list[Sent]:
            futures = [
                await self._producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            found = await asyncio.gather(*futures)
            # Nothing is told of records that nobody acknowledges.
            return [Sent(one.partition, one.offset) if one else Sent(0, UNKNOWN_OFFSET) for one in found]

        return run(send())

    def close(self) -> None:
        run(self._producer.stop())


class AiokafkaConsumer(AnyConsumer):
    """aiokafka's. It subscribes after its start, which would wait for the group otherwise, and so for other members.

    Its rebalances run on its loop, between any two calls here. What was read before one and is committed after it would
    be kept, by Apache Kafka too, if the member has the partition again; and it reads the same records once more, as it
    has asked already what was committed. So that a commit is of what was read, as with the other clients, who rebalance
    inside a poll, it is refused on the loop if there was a rebalance since.
    """

    def __init__(self, bootstrap: str, options: ConsumerOptions) -> None:
        super().__init__()
        self._polling: Future[Any] | None = None
        self._read_after: int | None = None

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=options.group,
                group_instance_id=options.instance_id,
                partition_assignment_strategy=[ASSIGNORS[name] for name in options.assignors],
                auto_offset_reset=options.reset,
                isolation_level=options.isolation,
                enable_auto_commit=options.is_auto_committing,
                auto_commit_interval_ms=options.auto_commit_interval_ms,
                session_timeout_ms=options.session_timeout_ms,
                heartbeat_interval_ms=options.heartbeat_ms,
                fetch_max_wait_ms=options.fetch_wait_ms,
                max_partition_fetch_bytes=options.partition_fetch_bytes,
                **QUICK,
            )
            await consumer.start()
            return consumer

        self._consumer = run(start())

    def _do(self, step: Callable[[AIOKafkaConsumer], Any]) -> Any:
        """Call it on the loop; what it returns is awaited if it can be."""

        async def do() -> Any:
            found = step(self._consumer)
            return await found if asyncio.iscoroutine(found) else found

        return run(do())

    def subscribe(self, topics: Sequence[str]) -> None:
        self._do(lambda consumer: consumer.subscribe(list(topics), listener=_Rebalances(self)))

    def subscribe_pattern(self, pattern: str) -> None:
        self._do(lambda consumer: consumer.subscribe(pattern=f"^{pattern}$", listener=_Rebalances(self)))

    def assign(self, places: Iterable[Place]) -> None:
        self._do(lambda consumer: consumer.assign([TopicPartition(*place) for place in places]))

    def assignment(self) -> set[Place]:
        found = self._do(lambda consumer: consumer.assignment())
        return _places(found)

    def poll(self, wait_s: float = POLL_S) -> list[Received]:
        # In a rebalance it waits for the group whatever its timeout is, and so for members that this thread polls.
        if self._polling is None:
            self._polling = asyncio.run_coroutine_threadsafe(self._get(int(wait_s * 1000)), event_loop())
        try:
            found = self._polling.result(wait_s + POLL_S)
        except TimeoutError:
            return []
        except KafkaError as error:
            raise refused(error) from error
        self._polling = None
        return [
            Received(
                record.topic,
                record.partition,
                record.offset,
                record.timestamp,
                record.key,
                record.value,
                tuple(record.headers),
            )
            for records in found.values()
            for record in records
        ]

    async def _get(self, timeout_ms: int) -> dict[TopicPartition, Any]:
        found: dict[TopicPartition, Any] = await self._consumer.getmany(timeout_ms=timeout_ms)
        if found:  # in the step of the loop that took them, so that no rebalance is between
            self._read_after = len(self.taken)
        return found

    @property
    def read_after(self) -> int:
        return len(self.taken) if self._read_after is None else self._read_after

    def seek(self, place: Place, offset: int) -> None:
        self._do(lambda consumer: consumer.seek(TopicPartition(*place), offset))

    def seek_to_beginning(self, place: Place) -> None:
        self._do(lambda consumer: consumer.seek_to_beginning(TopicPartition(*place)))

    def seek_to_end(self, place: Place) -> None:
        self._do(lambda consumer: consumer.seek_to_end(TopicPartition(*place)))

    def position(self, place: Place) -> int:
        return int(self._do(lambda consumer: consumer.position(TopicPartition(*place))))

    def offset_for_time(self, place: Place, timestamp_ms: int) -> int | None:
        partition = TopicPartition(*place)
        found = self._do(lambda consumer: consumer.offsets_for_times({partition: timestamp_ms}))[partition]
        return None if found is None else int(found.offset)

    def watermarks(self, place: Place) -> tuple[int, int]:
        partition = TopicPartition(*place)
        start = self._do(lambda consumer: consumer.beginning_offsets([partition]))[partition]
        return start, self._do(lambda consumer: consumer.end_offsets([partition]))[partition]

    def pause(self, place: Place) -> None:
        self._do(lambda consumer: consumer.pause(TopicPartition(*place)))

    def resume(self, place: Place) -> None:
        self._do(lambda consumer: consumer.resume(TopicPartition(*place)))

    def commit(self, offsets: Mapping[Place, tuple[int, str]] | None = None) -> None:
        wanted = (
            None
            if offsets is None
            else {
                TopicPartition(*place): OffsetAndMetadata(offset, metadata)
                for place, (offset, metadata) in offsets.items()
            }
        )

        def commit(consumer: AIOKafkaConsumer) -> Coroutine[Any, Any, None]:
            if wanted is not None and self.read_after != len(self.taken):
                raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "there was a rebalance since the records were read")
            committing: Coroutine[Any, Any, None] = consumer.commit(wanted)
            return committing

        self._do(commit)

    def commit_later(self) -> Callable[[], bool]:
        future = asyncio.run_coroutine_threadsafe(self._consumer.commit(), event_loop())

        def is_done() -> bool:
            run(asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future, loop=event_loop())), BOUND_S))
            return future.done()

        return is_done

    def committed(self, place: Place) -> int | None:
        found = self._do(lambda consumer: consumer.committed(TopicPartition(*place)))
        return None if found is None else int(found)

    def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
        run(self._consumer.stop())


class _Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]
    """Notes what rebalances bring and take."""

    def __init__(self, consumer: AnyConsumer) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._consumer.given.append(_places(assigned))

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._consumer.taken.append(_places(revoked))


def _places(partitions: Iterable[TopicPartition]) -> set[Place]:
    return {(one.topic, one.partition) for one in partitions}


class AiokafkaClient(AnyClient):
    """See the module."""

    name = "aiokafka"
    assignors = ("range", "roundrobin", "sticky")

    def told(self, code: int) -> int:
        return int(for_code(code).errno)

    def make_producer(self, options: ProducerOptions) -> AnyProducer:
        return AiokafkaProducer(self.bootstrap, options)

    def make_consumer(self, options: ConsumerOptions) -> AnyConsumer:
        return AiokafkaConsumer(self.bootstrap, options)
