"""A producer of a cluster: the API of `client.producer.Producer`, with librdkafka's batches and retries under it.

Partitions are chosen here, by the log's own rules, so that a key goes where it went in a directory. One thread per
producer hears the acknowledgements.
"""

from __future__ import annotations

import logging
import math
import time
import weakref
from collections.abc import Iterable, Mapping
from functools import partial
from threading import Condition, Event, Lock, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from foldlog.client.forks import watch_forks
from foldlog.client.handle_types import BatchAck, SendFuture
from foldlog.client.kafka.faults import Where
from foldlog.client.kafka.groups import KafkaGroups
from foldlog.client.kafka.handles import Handles, Trouble
from foldlog.client.kafka.records import append_time_of
from foldlog.client.kafka.routing import CLIENT_MAX_BYTES, Route, Router
from foldlog.client.outgoing import (
    Headers,
    Outgoing,
    checked_batch,
    checked_headers,
    checked_timestamp,
    in_batch,
)
from foldlog.client.partitioners import Partitioner, checked_partition, keyless_rule
from foldlog.client.positions import checked_count, checked_timeout_ms
from foldlog.client.producer import DEFAULT_BATCH_BYTES, DEFAULT_BATCH_RECORDS, DEFAULT_LINGER_MS
from foldlog.client.serializers import Serializer, serialized, serializer
from foldlog.errors import FoldlogError, InvalidArgument, LogClosed, WrongProcess
from foldlog.limits import KAFKA_DELIVERY_MS, PRODUCER_BUFFER_BYTES
from foldlog.records.batch import MAX_INT32, Compression

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message
    from confluent_kafka import Producer as LibraryProducer

_log = logging.getLogger("foldlog")

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


class KafkaProducer:
    """Sends records in batches. Make one with `KafkaLog.producer`; any number of threads may share it.

    What `Producer` promises holds here, with "durable" being what the cluster's replicas acknowledge to acks=all: that
    they have it, not that it is on their disks.
    """

    def __init__(
        self,
        log: KafkaGroups,
        handles: Handles,
        *,
        linger_ms: float = DEFAULT_LINGER_MS,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        batch_records: int = DEFAULT_BATCH_RECORDS,
        buffer_bytes: int = PRODUCER_BUFFER_BYTES,
        compression: str = "none",
        partitioner: Partitioner | str | None = None,
        key_serializer: Serializer | str | None = None,
        value_serializer: Serializer | str | None = None,
    ) -> None:
        """Use `KafkaLog.producer`, which explains the arguments."""
        if checked_timeout_ms(linger_ms, "linger_ms") is None:
            raise InvalidArgument("linger_ms=None is not a time; 0 sends at once, and flush() whatever it is")
        checked_count("batch_bytes", batch_bytes)
        checked_count("batch_records", batch_records)
        checked_count("buffer_bytes", buffer_bytes)
        chosen, round_robin = keyless_rule(partitioner)
        self._handles = handles
        self._router = Router(
            log,
            chosen,
            round_robin=round_robin,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            batch_records=batch_records,
            client_max_bytes=int(handles.url.properties.get(CLIENT_MAX_BYTES, MAX_INT32)),
        )
        self._has_partitioner = chosen is not None
        self._key_serializer = serializer(key_serializer)
        self._value_serializer = serializer(value_serializer)
        self._batch_bytes = batch_bytes
        self._settings: dict[str, object] = {
            "batch.num.messages": min(batch_records, _BATCH_RECORDS_MAX),
            "queue.buffering.max.kbytes": min(max(1, buffer_bytes >> 10), _BUFFER_KIB_MAX),
            "queue.buffering.max.messages": 0,  # bytes are what is bounded
            "compression.type": Compression.named(compression).name.lower(),
        }
        for name, value in _UNLESS_SET.items():
            self._settings[name] = handles.url.properties.get(name, value)
        self._settings |= _times(linger_ms, handles.url.properties.get("message.timeout.ms"))
        self._refusal: type[FoldlogError] | None = None
        self._lock = Lock()
        self._settled = Condition()
        self._under_way = 0
        self._failure: FoldlogError | None = None
        self._hearing = _Hearing()
        self._lanes: dict[int, LibraryProducer] = {}
        self._trouble = Trouble()
        self._end = weakref.finalize(self, self._hearing.stop)
        self._end.atexit = False
        watch_forks(self)

    # --- sending --------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SendFuture:
        """Put a record on its way; the future resolves once the cluster has acknowledged it.

        Blocks only while `buffer_bytes` of sent records wait to be acknowledged. Raises at once what cannot work:
        UnknownTopic, UnknownPartition, SerializationError, RecordTooLarge.
        """
        record = Outgoing(
            _now_ms() if timestamp_ms is None else checked_timestamp(timestamp_ms),
            serialized(self._key_serializer, key, "key", topic),
            serialized(self._value_serializer, value, "value", topic),
            checked_headers(headers) if headers else (),
            partition,
        )
        return self._send(topic, record)

    def send_batch(self, topic: str, records: Iterable[Mapping[str, Any]]) -> list[SendFuture]:
        """Send several records, given as dicts with `send`'s argument names; the futures come in the same order.

        All are checked before any is sent: the error names the index of the first bad one.
        """
        self._check_usable()
        with self._lock:
            route = self._router.of(topic)
        outgoing = checked_batch(topic, records, self._key_serializer, self._value_serializer, _now_ms())
        for index, record in enumerate(outgoing):
            try:
                if record.partition is not None:
                    checked_partition(topic, record.partition, route.count)
                _check_time(record.timestamp_ms)
                route.check(record)
            except FoldlogError as error:
                raise in_batch(error, index) from error
        return [self._send(topic, record) for record in outgoing]

    def _send(self, topic: str, record: Outgoing) -> SendFuture:
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
            lane = self._lane(route)
            ack = BatchAck(topic, number)
            with self._settled:
                self._under_way += 1
            try:
                self._produce(lane, topic, number, record, ack)
            except BaseException:
                self._settle(None)
                raise
        return SendFuture(ack, 0, record.timestamp_ms)

    def _produce(self, lane: LibraryProducer, topic: str, number: int, record: Outgoing, ack: BatchAck) -> None:
        """Hand it to librdkafka, once it has room. Holds the lock: later records of any thread come after it."""
        while True:
            try:
                lane.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=number,
                    headers=list(record.headers),
                    timestamp=record.timestamp_ms,
                    on_delivery=partial(self._delivered, ack),
                )
            except BufferError:
                lane.poll(_HEAR_S)
            except self._handles.kafka_exception as error:
                raise self._handles.fault(error, Where(topic, number), self._trouble) from error
            else:
                return

    def _lane(self, route: Route) -> LibraryProducer:
        """librdkafka does not split a batch that is too large for its topic, so it must not make one."""
        batch_bytes = min(self._batch_bytes, route.max_message_bytes, _BATCH_BYTES_MAX)
        lane = self._lanes.get(batch_bytes)
        if lane is None:
            settings = {
                **self._settings,
                "batch.size": batch_bytes,
                # A single record may be larger than a batch should be: its size is checked against its topic.
                "message.max.bytes": max(1000, min(route.max_message_bytes, _BATCH_BYTES_MAX)),
            }
            lane = self._lanes[batch_bytes] = self._handles.producer(settings, self._trouble)
            self._hearing.add(lane)
        return lane

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
        for lane in list(self._lanes.values()):
            while lane.flush(_HEAR_S):
                pass
        with self._settled:
            while self._under_way:
                self._settled.wait(_HEAR_S)
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure.with_traceback(None)

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
            self._lanes.clear()

    def __enter__(self) -> KafkaProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        try:
            self.close()
        except FoldlogError as failure:
            # The caller's own exception is what has to get out; this one is in the futures, too.
            if str(failure) != str(error):
                _log.warning("closing the producer after %r: some records were not written: %s", error, failure)

    def forked(self) -> None:
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
    """The thread that lets librdkafka tell of acknowledgements; it runs from the first lane to the end."""

    def __init__(self) -> None:
        self._lanes: list[LibraryProducer] = []
        self._is_over = Event()

    def add(self, lane: LibraryProducer) -> None:
        self._lanes.append(lane)
        if len(self._lanes) == 1:
            Thread(target=self._run, name="foldlog-kafka", daemon=True).start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            lanes = list(self._lanes)
            for lane in lanes:
                lane.poll(_HEAR_S / len(lanes))

    def stop(self) -> None:
        """Lets go of the lanes, and of librdkafka's threads with them."""
        self._is_over.set()
        self._lanes.clear()


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


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _check_time(timestamp_ms: int) -> None:
    if timestamp_ms == 0:
        raise InvalidArgument("timestamp_ms=0 cannot be sent to a cluster: librdkafka takes it for now; use 1 or more")
