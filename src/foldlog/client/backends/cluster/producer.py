"""How a producer sends to a cluster: with librdkafka's batches and retries.

Partitions are chosen here, by the log's own rules, so that a key goes where it went in a directory. One thread per
producer hears the acknowledgements.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from threading import Condition, Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final

from foldlog.broker.topics.names import refuse_user_write, require_text
from foldlog.client.backends.cluster.faults import Where
from foldlog.client.backends.cluster.handles import Handles, Trouble
from foldlog.client.backends.cluster.records import append_time_of
from foldlog.client.forks import watch_forks
from foldlog.client.handle_types import BatchAck, SendFuture
from foldlog.client.outgoing import (
    Outgoing,
    Partitioner,
    check_size,
    checked_partition,
    emptiest,
    keyless_rule,
    partition_named_or_by_key,
)
from foldlog.client.producer import ProducerSettings
from foldlog.errors import FoldlogError, InvalidArgument, InvalidConfig, LogClosed, RefusedByBroker, WrongProcess
from foldlog.limits import KAFKA_DELIVERY_MS
from foldlog.records.batch import MAX_INT32, Compression

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message
    from confluent_kafka import Producer as LibraryProducer

    from foldlog.client.backends.cluster.backend import ClusterBackend

CLIENT_MAX_BYTES: Final = "message.max.bytes"
"""librdkafka's name for the most that a client sends; a topic's is max.message.bytes."""

_KNOWN_FOR_S: Final = 300.0
"""Kafka's metadata.max.age.ms: how long a topic is taken to be as it was."""


class TopicRoute:
    """A topic as a producer knows it. Belongs to whoever locks it."""

    def __init__(
        self, name: str, count: int, max_message_bytes: int, is_compacted: bool, first: int, as_of: int
    ) -> None:
        self.name = name
        self.as_of = as_of
        self.count = count
        self.max_message_bytes = max_message_bytes
        self.client_max_bytes = MAX_INT32
        self.is_compacted = is_compacted
        self.keyless = first
        self.keyless_bytes = 0
        self.keyless_records = 0
        self.keyless_since_s = 0.0
        self.known_until_s = time.monotonic() + _KNOWN_FOR_S

    def check(self, record: Outgoing) -> None:
        """What the log would refuse. A partition is checked where it is chosen."""
        check_size(record, self.max_message_bytes)
        check_size(record, self.client_max_bytes, CLIENT_MAX_BYTES)
        if self.is_compacted and record.key is None:
            raise InvalidArgument(f"topic {self.name!r} is compacted: every record in it needs a key")

    def advance(self) -> None:
        """Keyless records go to the next partition from here on."""
        self.keyless = (self.keyless + 1) % self.count
        self.keyless_bytes = self.keyless_records = 0


class Router:
    """Routes of one producer. Its lock is held by who calls, but for `ask`, which is the caller's own code."""

    def __init__(
        self,
        cluster: ClusterBackend,
        partitioner: Partitioner | None,
        *,
        round_robin: bool,
        linger_ms: float,
        batch_bytes: int,
        batch_records: int,
        client_max_bytes: int = MAX_INT32,
    ) -> None:
        self._cluster = cluster
        self._client_max_bytes = client_max_bytes
        self._partitioner = partitioner
        self._round_robin = round_robin
        self._linger_s = linger_ms / 1000
        self._batch_bytes = batch_bytes
        self._batch_records = batch_records
        self._routes: dict[str, TopicRoute] = {}

    def of(self, topic: str) -> TopicRoute:
        """UnknownTopic if there is none."""
        known = self._routes.get(require_text(topic))
        if known is None or known.as_of != self._cluster.changes or time.monotonic() > known.known_until_s:
            refuse_user_write(topic)
            known = self._routes[topic] = self._looked_up(topic, known)
            known.client_max_bytes = self._client_max_bytes
        return known

    def _looked_up(self, topic: str, known: TopicRoute | None) -> TopicRoute:
        as_of = self._cluster.changes
        try:
            config = self._cluster.topic(topic)
            count, limits = config.partition_count, config.config.log
            max_message_bytes, is_compacted = limits.max_message_bytes, limits.compact
        except (RefusedByBroker, InvalidConfig):
            # Who may write need not be allowed to see the settings, or log in as librdkafka does to ask for them: the
            # brokers refuse what is wrong, then.
            count, max_message_bytes, is_compacted = self._cluster.partition_count(topic), MAX_INT32, False
        if known is not None and known.count == count:
            first = known.keyless
        else:
            ends = self._cluster.offsets(topic)
            first = emptiest([ends[number][1] for number in range(count)])
        return TopicRoute(topic, count, max_message_bytes, is_compacted, first, as_of)

    def forget(self, topic: str) -> None:
        """It was not as it was thought to be: ask again before the next record."""
        self._routes.pop(topic, None)

    def ask(self, topic: str, key: bytes | None, count: int) -> int | None:
        """What the caller's partitioner says, if there is one."""
        if self._partitioner is None:
            return None
        try:
            return self._partitioner(topic, key, count)
        except Exception as error:
            raise InvalidArgument(f"the partitioner failed for a record of topic {topic!r}: {error!r}") from error

    def choose(self, route: TopicRoute, record: Outgoing) -> int:
        """The partition that is named, else by key, else the keyless rule."""
        number = partition_named_or_by_key(route.name, record.partition, record.key, route.count)
        if number is not None:
            return number
        now_s = time.monotonic()
        if route.keyless_records and not self._round_robin and now_s > route.keyless_since_s + self._linger_s:
            route.advance()  # the batch that the last ones stuck to is closed
        if not route.keyless_records:
            route.keyless_since_s = now_s
        chosen = route.keyless
        route.keyless_records += 1
        route.keyless_bytes += len(record.value or b"")
        is_full = route.keyless_bytes >= self._batch_bytes or route.keyless_records >= self._batch_records
        if self._round_robin or is_full:
            route.advance()
        return chosen


_UNLESS_SET: Final[Mapping[str, object]] = {
    "acks": "all",
    "enable.idempotence": "true",  # as Java's clients have it: a retry neither doubles nor reorders
}

_NO_OFFSET: Final = -1
"""As Java's RecordMetadata tells it."""

_HEAR_S: Final = 0.05
_LINGER_MAX_MS: Final = 900_000
_BATCH_BYTES_MAX: Final = 1_000_000_000
_BATCH_RECORDS_MAX: Final = 1_000_000
_BUFFER_KIB_MAX: Final = 2_097_151
"""The most that librdkafka takes. More than it is no less than it: nobody can tell."""


class LibrarySender:
    """See `client.backends.backend.Sender`. Any thread.

    What `Producer` promises holds here, with "durable" being what the cluster's replicas acknowledge to acks=all: that
    they have it, not that it is on their disks.
    """

    def __init__(self, cluster: ClusterBackend, handles: Handles, settings: ProducerSettings) -> None:
        chosen, round_robin = keyless_rule(settings.partitioner)
        self._handles = handles
        self._router = Router(
            cluster,
            chosen,
            round_robin=round_robin,
            linger_ms=settings.linger_ms,
            batch_bytes=settings.batch_bytes,
            batch_records=settings.batch_records,
            client_max_bytes=int(handles.url.properties.get(CLIENT_MAX_BYTES, MAX_INT32)),
        )
        self._has_partitioner = chosen is not None
        self._batch_bytes = settings.batch_bytes
        self._settings: dict[str, object] = {
            "batch.num.messages": min(settings.batch_records, _BATCH_RECORDS_MAX),
            "queue.buffering.max.kbytes": min(max(1, settings.buffer_bytes >> 10), _BUFFER_KIB_MAX),
            "queue.buffering.max.messages": 0,  # bytes are what is bounded
            "compression.type": Compression.named(settings.compression).name.lower(),
        }
        for name, value in _UNLESS_SET.items():
            self._settings[name] = handles.url.properties.get(name, value)
        self._settings |= _times(settings.linger_ms, handles.url.properties.get("delivery.timeout.ms"))
        self._refusal: type[FoldlogError] | None = None
        self._lock = Lock()
        self._settled = Condition()
        self._under_way = 0
        self._failure: FoldlogError | None = None
        self._hearing = _Hearing(handles.kafka_exception)
        self._producers: dict[int, LibraryProducer] = {}
        self._trouble = Trouble()
        self._end = weakref.finalize(self, self._hearing.stop)
        self._end.atexit = False
        watch_forks(self._forked)

    # --- sending --------------------------------------------------------------------------------------------------

    def checker(self, topic: str) -> Callable[[Outgoing], None]:
        """What raises for a record that would be refused."""
        self._check_usable()
        with self._lock:
            route = self._router.of(topic)

        def check(record: Outgoing) -> None:
            if record.partition is not None:
                checked_partition(topic, record.partition, route.count)
            _check_time(record.timestamp_ms)
            route.check(record)

        return check

    def enqueue(
        self,
        topic: str,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
        partition: int | None,
    ) -> SendFuture:
        """Put a record on its way; blocks only while `buffer_bytes` of sent records wait to be acknowledged."""
        record = Outgoing(timestamp_ms, key, value, headers, partition)
        self._check_usable()
        _check_time(record.timestamp_ms)
        with self._lock:
            route = self._router.of(topic)
        if self._has_partitioner and record.partition is None:
            record = record._replace(partition=self._router.ask(topic, record.key, route.count))
        with self._lock:
            self._check_usable()
            route = self._router.of(topic)
            route.check(record)
            number = self._router.choose(route, record)
            producer = self._producer_for(route)
            ack = BatchAck(topic, number)
            with self._settled:
                self._under_way += 1
            try:
                self._produce(producer, topic, number, record, ack)
            except BaseException:
                self._settle(None)
                raise
        return SendFuture(ack, 0, record.timestamp_ms)

    def _produce(self, producer: LibraryProducer, topic: str, number: int, record: Outgoing, ack: BatchAck) -> None:
        """Hand it to librdkafka, once it has room. Holds the lock: later records of any thread come after it."""
        while True:
            try:
                producer.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=number,
                    headers=list(record.headers),
                    timestamp=record.timestamp_ms,
                    on_delivery=partial(self._delivered, ack),
                )
            except BufferError:
                producer.poll(_HEAR_S)
            except self._handles.kafka_exception as error:
                raise self._handles.fault(error, Where(topic, number), self._trouble) from error
            else:
                return

    def _producer_for(self, route: TopicRoute) -> LibraryProducer:
        """librdkafka does not split a batch that is too large for its topic, so it must not make one."""
        batch_bytes = min(self._batch_bytes, route.max_message_bytes, _BATCH_BYTES_MAX)
        producer = self._producers.get(batch_bytes)
        if producer is None:
            settings = {
                **self._settings,
                "batch.size": batch_bytes,
                # A single record may be larger than a batch should be: its size is checked against its topic.
                "message.max.bytes": max(1000, min(route.max_message_bytes, _BATCH_BYTES_MAX)),
            }
            producer = self._producers[batch_bytes] = self._handles.producer(settings, self._trouble)
            self._hearing.add(producer)
        return producer

    # --- acknowledgements -----------------------------------------------------------------------------------------

    def _delivered(self, ack: BatchAck, error: KafkaError | None, message: Message[Any, Any]) -> None:
        """Runs on the thread that hears, or on one that waits for room."""
        if error is None:
            offset = message.offset()
            # With acks=0 no broker says where the record is, if anywhere.
            ack.written(_NO_OFFSET if offset is None or offset < 0 else offset, append_time_of(message))
            ack.finish(None)
            self._settle(None)
            return
        kafka_error = self._handles.kafka_exception(error)
        fault = self._handles.fault(kafka_error, Where(ack.topic, ack.partition), self._trouble)
        self._router.forget(ack.topic)
        ack.finish(fault)
        self._settle(fault)

    def _settle(self, fault: FoldlogError | None) -> None:
        with self._settled:
            self._under_way -= 1
            if fault is not None and self._failure is None:
                self._failure = fault
            self._settled.notify_all()

    def flush(self) -> None:
        """Returns once everything sent so far is acknowledged; raises the first error since the last flush."""
        if self._refusal is WrongProcess:
            raise self._refused()
        for producer in self._all_producers():
            while self._is_busy(producer):
                pass
        with self._settled:
            while self._under_way:
                self._settled.wait(_HEAR_S)
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure.with_traceback(None)

    def _all_producers(self) -> list[LibraryProducer]:
        return list(self._producers.values())

    def _is_busy(self, producer: LibraryProducer) -> bool:
        """Whether it has records that are not settled, after a moment."""
        try:
            return producer.flush(_HEAR_S) > 0
        except self._handles.kafka_exception:
            return True  # it has ended, and fails its records one by one

    # --- ending ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush, then refuse further sends. Raises what `flush` raises; closing twice is fine."""
        if self._refusal is WrongProcess:
            return
        with self._lock:
            if self._refusal is not None:
                return
            self._refusal = LogClosed
        try:
            self.flush()
        finally:
            self._end()
            self._producers.clear()

    def _forked(self) -> None:
        """In a forked child: what this producer holds belongs to the parent, which still sends it."""
        self._refusal = WrongProcess
        self._end.detach()

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise self._refused()
        self._handles.check_usable()

    def _refused(self) -> FoldlogError:
        if self._refusal is WrongProcess:
            return WrongProcess("the producer was made before a fork; a child process has to connect by itself")
        return LogClosed("the producer is closed; make another with log.producer()")


class _Hearing:
    """The thread that lets librdkafka tell of acknowledgements; it runs from the first producer to the end."""

    def __init__(self, kafka_exception: type[Exception]) -> None:
        self._kafka_exception = kafka_exception
        self._producers: list[LibraryProducer] = []
        self._is_over = Event()

    def add(self, producer: LibraryProducer) -> None:
        self._producers.append(producer)
        if len(self._producers) == 1:
            Thread(target=self._run, name="foldlog-kafka", daemon=True).start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            producers = list(self._producers)
            for producer in producers:
                # It raises an error that ends a producer, once; the records of that one are told theirs all the same.
                with suppress(self._kafka_exception):
                    producer.poll(_HEAR_S / len(producers))

    def stop(self) -> None:
        """Lets go of the producers, and of librdkafka's threads with them."""
        self._is_over.set()
        self._producers.clear()


def _times(linger_ms: float, given_timeout_ms: str | None) -> dict[str, object]:
    """How long a record may wait for others, and how long for its acknowledgement from when it was sent: librdkafka
    refuses a first time that is longer than the second.

    >>> _times(5, None)
    {'linger.ms': 5, 'message.timeout.ms': 120005}
    >>> _times(3_600_000, "1000")
    {'linger.ms': 999, 'message.timeout.ms': '1000'}
    """
    linger_ms = min(linger_ms, _LINGER_MAX_MS)
    if given_timeout_ms is None:
        return {"linger.ms": linger_ms, "message.timeout.ms": math.ceil(KAFKA_DELIVERY_MS + linger_ms)}
    if given_timeout_ms.isdecimal() and int(given_timeout_ms) > 0:  # 0 is no limit, and what is no number is told
        linger_ms = max(0, min(linger_ms, int(given_timeout_ms) - 1))
    return {"linger.ms": linger_ms, "message.timeout.ms": given_timeout_ms}


def _check_time(timestamp_ms: int) -> None:
    if timestamp_ms == 0:
        raise InvalidArgument("timestamp_ms=0 cannot be sent to a cluster: librdkafka takes it for now; use 1 or more")
