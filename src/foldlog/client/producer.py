"""The Producer: records in from any thread, batches out in send order, a future for each record.

A Producer serializes records; a Sender takes them to the log. The Sender for a directory is here: callers do the work
themselves. `send` puts the record into the open batch of its partition, and the caller whose record fills a batch also
writes it. A timer thread writes batches whose linger is over; the log's syncer threads report when they are durable. So
a busy producer pays no thread switch per record, and none per batch.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Condition, Lock
from types import TracebackType
from typing import Any

from foldlog.client.accumulator import (
    LingerTimer,
    OpensPartition,
    PartitionQueue,
    ProducerBatch,
    RecordAccumulator,
    TopicInfo,
)
from foldlog.client.backends.backend import DirectoryBroker, Sender
from foldlog.client.forks import watch_forks
from foldlog.client.handle_types import BatchAck, OpenBatches, SendFuture
from foldlog.client.outgoing import (
    Headers,
    Outgoing,
    Partitioner,
    check_size,
    checked_batch,
    checked_headers,
    checked_partition,
    checked_timestamp,
    in_batch,
    keyless_rule,
)
from foldlog.client.positions import checked_count, is_time
from foldlog.client.serializers import Serializer, serialized, serializer
from foldlog.errors import FoldlogError, InvalidArgument, LogClosed, WrongProcess, brief_repr
from foldlog.limits import PRODUCER_BUFFER_BYTES
from foldlog.log.partition import Appended, Partition
from foldlog.records.batch import Compression
from foldlog.records.loops import murmur2

_log = logging.getLogger("foldlog")

DEFAULT_LINGER_MS = 5.0
DEFAULT_BATCH_BYTES = 128 << 10
DEFAULT_BATCH_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The checked arguments of `Log.producer`."""

    linger_ms: float = DEFAULT_LINGER_MS
    batch_bytes: int = DEFAULT_BATCH_BYTES
    batch_records: int = DEFAULT_BATCH_RECORDS
    buffer_bytes: int = PRODUCER_BUFFER_BYTES
    compression: str = "none"
    partitioner: Partitioner | str | None = None

    def __post_init__(self) -> None:
        if not is_time(self.linger_ms):
            raise InvalidArgument(
                f"linger_ms={brief_repr(self.linger_ms)} is not a time: milliseconds of 0 or more; 0 sends at once, and"
                " flush() whatever it is"
            )
        checked_count("batch_bytes", self.batch_bytes)
        checked_count("batch_records", self.batch_records)
        checked_count("buffer_bytes", self.buffer_bytes)
        Compression.named(self.compression)
        keyless_rule(self.partitioner)


class Producer:
    """Sends records in batches. Make one with `Log.producer`; any number of threads may share it.

    A batch closes at `linger_ms`, `batch_bytes` or `batch_records`, whichever comes first. Records of one partition
    are written in the order in which `send` was called. A batch that fails (a full disk) fails its own futures and the
    next `flush`; later batches are tried on their own, so after a failure the log can hold later records without the
    earlier ones: wait for the futures where that matters.

    Not promised: an order between partitions, or that a send whose future was never waited for happened.

    >>> import foldlog
    >>> with foldlog.open(":memory:") as log:
    ...     _ = log.create_topic("orders", partitions=3)
    ...     with log.producer(linger_ms=10, compression="zstd") as producer:
    ...         futures = [producer.send("orders", {"n": n}, key=f"k{n}") for n in range(100)]
    ...         producer.flush()
    ...     sum(future.done() for future in futures)
    100
    """

    def __init__(
        self,
        sender: Sender,
        now_ms: Callable[[], int],
        key_serializer: Serializer | str | None = None,
        value_serializer: Serializer | str | None = None,
    ) -> None:
        """Use `Log.producer`, which explains the arguments."""
        self._sender = sender
        # Bound once: send() runs these for every record.
        self._enqueue = sender.enqueue
        self._now_ms = now_ms
        self._key_serializer = serializer(key_serializer)
        self._value_serializer = serializer(value_serializer)
        self._open = sender.open_batches(now_ms) if isinstance(sender, BatchSender) else None
        is_plain = self._key_serializer is None and self._value_serializer is None
        self._send_plain = self._open.send if self._open is not None and is_plain else None

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SendFuture:
        """Put a record on its way; the future resolves once fdatasync has covered it.

        Blocks only while `buffer_bytes` of sent records wait to be durable. Raises at once UnknownTopic,
        UnknownPartition, SerializationError and RecordTooLarge. `partition` wins over `key`, `key` over the keyless
        rule; without `timestamp_ms` the record gets the time of this call.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     with log.producer() as producer:
        ...         sent = producer.send("orders", value=b"...", key=b"k", headers=[("h", b"1")])
        ...         sent.result().offset
        0
        """
        if self._send_plain is not None:
            sent = self._send_plain(topic, value, key, headers, partition, timestamp_ms)
            if sent is not None:
                return sent
        if self._value_serializer is not None or (type(value) is not bytes and value is not None):
            value = serialized(self._value_serializer, value, "value", topic)
        if self._key_serializer is not None or (type(key) is not bytes and key is not None):
            key = serialized(self._key_serializer, key, "key", topic)
        checked = checked_headers(headers) if headers else ()
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        else:
            checked_timestamp(timestamp_ms)
        return self._put(topic, timestamp_ms, key, value, checked, partition)

    def _put(
        self,
        topic: str,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
        partition: int | None,
    ) -> SendFuture:
        """The common case, a record that fits into an open batch, is `OpenBatches.put`."""
        if partition is None and self._open is not None:
            sent = self._open.put(topic, timestamp_ms, key, value, headers)
            if sent is not None:
                return sent
        return self._enqueue(topic, timestamp_ms, key, value, headers, partition)

    def send_batch(self, topic: str, records: Iterable[Mapping[str, Any]]) -> list[SendFuture]:
        """Send several records, given as dicts with `send`'s argument names; the futures come in the same order.

        All are checked before any is sent: the error names the index of the first bad one, and then none of the batch
        has been sent. Not a transaction: each record becomes durable with the batch it lands in.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     with log.producer() as producer:
        ...         sent = producer.send_batch("orders", [{"value": b"a", "key": b"k"}, {"value": b"b"}])
        ...         [future.result().offset for future in sent]
        [0, 1]
        """
        check = self._sender.checker(topic)
        outgoing = checked_batch(topic, records, self._key_serializer, self._value_serializer, self._now_ms())
        for index, record in enumerate(outgoing):
            try:
                check(record)
            except FoldlogError as error:
                raise in_batch(error, index) from error
        return [self._put(topic, *record) for record in outgoing]

    def flush(self) -> None:
        """Returns once everything sent so far is durable; raises the first error since the last flush.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     producer = log.producer(linger_ms=60_000)
        ...     sent = producer.send("orders", b"paid")
        ...     producer.flush()
        ...     sent.done()
        True
        """
        self._sender.flush()

    def close(self) -> None:
        """Flush, then refuse further sends. Raises the errors of `flush`; closing twice is fine.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     producer = log.producer()
        ...     producer.close()
        """
        self._sender.close()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        try:
            self.close()
        except Exception as failure:  # noqa: BLE001 whatever a batch failed with
            # The caller's own exception has to get out; this one is in the futures, too.
            if str(failure) != str(error):
                _log.warning("closing the producer after %r: some records were not written: %s", error, failure)


class BatchSender:
    """Sends to a directory: packs batches, which this process writes, or the one that serves the directory. Any thread.

    Lives as long as one of its batches waits, even without references to its producer: the timer has them.
    """

    def __init__(
        self, broker: DirectoryBroker, settings: ProducerSettings, opens: OpensPartition | None = None
    ) -> None:
        """`opens`: how partitions are opened to append to, if not by the broker."""
        self._broker = broker
        self._batch_bytes = settings.batch_bytes
        self._batch_records = settings.batch_records
        self._last_index = settings.batch_records - 1
        self._buffer_bytes = settings.buffer_bytes
        self._compression = int(Compression.named(settings.compression))
        self._partitioner, self._round_robin = keyless_rule(settings.partitioner)
        self._refusal: type[FoldlogError] | None = None
        self._lock = Lock()
        self._accumulator = RecordAccumulator(broker, opens)
        # The acknowledging thread never takes self._lock: against a busy sender it would wait for whole GIL turns.
        self._settled = Condition()
        self._pending: dict[BatchAck, None] = {}
        self._buffered_bytes = 0
        self._failure: BaseException | None = None
        self._timer = LingerTimer(broker.clock, settings.linger_ms)
        self._end = weakref.finalize(self, self._timer.stop)
        self._end.atexit = False
        watch_forks(self._forked)

    def checker(self, topic: str) -> Callable[[Outgoing], None]:
        """A function that raises for a record that would be refused."""
        if self._refusal is not None:
            raise self._refused()
        with self._lock:
            info = self._accumulator.of(topic)

        def check(record: Outgoing) -> None:
            if record.partition is not None:
                checked_partition(topic, record.partition, info.count)
            check_size(record, info.max_message_bytes)
            if record.key is None:
                info.refuse_keyless()

        return check

    def flush(self) -> None:
        """Returns once everything sent so far is durable; raises the first error since the last flush."""
        if self._refusal is WrongProcess:
            raise self._refused()
        with self._lock:
            queues = self._accumulator.busy_queues()
            for queue in queues:
                if queue.open is not None:
                    self._seal(queue)
            pending = list(self._pending)
        for queue in queues:
            self._write(queue)
        for ack in pending:
            ack.wait()
        with self._settled:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure.with_traceback(None)

    def close(self) -> None:
        """Flush, then refuse further records. Idempotent."""
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

    def _forked(self) -> None:
        """In a forked child: everything in this producer belongs to the parent, which still sends it."""
        self._refusal = WrongProcess
        self._end.detach()

    def _refused(self) -> FoldlogError:
        if self._refusal is WrongProcess:
            return WrongProcess("the producer was made before a fork; a child process has to open a log of its own")
        return LogClosed("the producer is closed; make another with log.producer()")

    def enqueue(
        self,
        topic: str,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
        partition: int | None,
    ) -> SendFuture:
        """Any record; most find an open batch before (`open_batches`)."""
        if self._refusal is not None:
            raise self._refused()
        if self._partitioner is not None and partition is None:
            partition = self._ask_partitioner(topic, key)
        return self._enqueue_slowly(topic, Outgoing(timestamp_ms, key, value, headers, partition))

    def open_batches(self, now_ms: Callable[[], int]) -> OpenBatches | None:
        """Where most records go; None if each has to be asked for its partition."""
        if self._partitioner is not None or self._round_robin:
            return None
        return OpenBatches(self, self._lock, self._accumulator.known, self._last_index, now_ms)

    def filled(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """A record was the last that its batch may have."""
        with self._lock:
            if queue.open is batch:
                self._seal(queue)
        self._write(queue)

    def _ask_partitioner(self, topic: str, key: bytes | None) -> int | None:
        """Outside the lock: it is the caller's code."""
        if self._partitioner is None:
            return None
        count = self._broker.topic(topic).partition_count
        try:
            return self._partitioner(topic, key, count)
        except Exception as error:
            raise InvalidArgument(f"the partitioner failed for a record of topic {topic!r}: {error!r}") from error

    def _enqueue_slowly(self, topic: str, record: Outgoing) -> SendFuture:
        """Find the topic, wait for space, open a batch, or write the full one and try again."""
        while True:
            sent: SendFuture | None = None
            with self._lock:
                if self._refusal is not None:
                    raise self._refused()
                info = self._accumulator.of(topic)
                if record.partition is None and record.key is not None:
                    queue = info.queues[(murmur2(record.key) & 0x7FFFFFFF) % info.count]
                else:
                    queue = self._other_queue(info, record.key, record.partition)
                    if self._round_robin:
                        record = record._replace(partition=queue.number)
                batch = queue.open
                if batch is None and self._buffered_bytes < self._buffer_bytes:
                    batch = self._open(info, queue, record)
                if batch is not None:
                    index = batch.builder.append(record.timestamp_ms, record.key, record.value, record.headers)
                    if index >= 0:
                        sent = SendFuture(batch.ack, index, record.timestamp_ms)
                        if index < self._last_index:
                            return sent
                    self._seal(queue)
            if batch is None:
                self._wait_for_space()
                continue
            self._write(queue)
            if sent is not None:
                return sent

    def _other_queue(self, info: TopicInfo, key: bytes | None, partition: int | None) -> PartitionQueue:
        """The queue of a record with a given partition, or without a key."""
        if key is None:
            info.refuse_keyless()
        if partition is not None:
            return info.queues[checked_partition(info.topic.name, partition, info.count)]
        queue = info.keyless_queue(self._broker)
        if self._round_robin:
            info.advance()
        return queue

    def _open(self, info: TopicInfo, queue: PartitionQueue, record: Outgoing) -> ProducerBatch:
        """A new batch for `record`, which is checked first: only the first record of a batch can be too large."""
        check_size(record, info.max_message_bytes)
        self._accumulator.open_log(queue)
        batch = queue.start(min(self._batch_bytes, info.max_message_bytes), self._batch_records)
        self._pending[batch.ack] = None
        self._timer.schedule(batch, partial(self._linger_over, queue, batch))
        return batch

    def _seal(self, queue: PartitionQueue) -> None:
        batch = queue.seal()
        if batch is None:
            return
        self._timer.cancel(batch)
        with self._settled:
            self._buffered_bytes += batch.size_bytes
        if not self._round_robin:
            self._accumulator.sticky_moved(queue)

    def _linger_over(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        with self._lock:
            if queue.open is not batch:
                return
            self._seal(queue)
        self._write(queue)

    def _write(self, queue: PartitionQueue) -> None:
        """Write the queue's sealed batches, in order. Any error goes to the futures of its batch."""
        while True:
            with queue.writing:
                if not queue.sealed:
                    return
                batch = queue.sealed.popleft()
                acknowledge = self._append(queue, batch)
            # Not before the queue is free: a done-callback may send to it.
            acknowledge()

    def _append(self, queue: PartitionQueue, batch: ProducerBatch) -> Callable[[], None]:
        """Write one batch; returns the function that settles its futures."""
        try:
            log = self._accumulator.open_log(queue)
            data = self._build(queue, batch)
            acknowledge: Callable[[], None]
            if isinstance(log, Partition):
                appended = self._append_here(log, data)
                batch.ack.written(appended.base_offset, appended.append_time_ms)
                acknowledge = partial(log.on_acknowledged, appended.next_offset, partial(self._settle, batch))
            else:
                log.begin_append(data, partial(self._answered, batch))
                acknowledge = _is_told
            batch.builder.clear()
            queue.spare = batch.builder
        except Exception as error:  # noqa: BLE001 a future must resolve, whatever it is
            return partial(self._settle, batch, self._why(queue, error))
        return acknowledge

    def _build(self, queue: PartitionQueue, batch: ProducerBatch) -> bytearray:
        return batch.builder.build(self._compression)

    def _append_here(self, log: Partition, data: bytearray) -> Appended:
        return log.append(data, trusted=True)

    def _answered(self, batch: ProducerBatch, appended: Appended | None, error: FoldlogError | None) -> None:
        """Another process has made the batch durable, or failed. Runs on the thread that received the answer."""
        if appended is not None:
            batch.ack.written(appended.base_offset, appended.append_time_ms)
        self._settle(batch, error)

    def _settle(self, batch: ProducerBatch, error: BaseException | None) -> None:
        """The batch is durable or has failed. Runs on a syncer thread, or on the one that wrote it."""
        with self._settled:
            self._buffered_bytes -= batch.size_bytes
            if error is not None and self._failure is None:
                self._failure = error
            self._settled.notify_all()
        batch.ack.finish(error)
        # Not before: a flush waits for pending batches, including their done callbacks.
        self._pending.pop(batch.ack, None)

    def _wait_for_space(self) -> None:
        with self._settled:
            while self._buffered_bytes >= self._buffer_bytes:
                self._settled.wait()

    def _why(self, queue: PartitionQueue, error: Exception) -> Exception:
        """The error to report: a closed partition means a deleted topic, unless the whole log was closed."""
        if isinstance(error, LogClosed):
            try:
                self._broker.partition(queue.topic, queue.number)
            except FoldlogError as better:
                return better
        return error


def _is_told() -> None:
    """Nothing to do now: the answer of the other process settles the batch."""
