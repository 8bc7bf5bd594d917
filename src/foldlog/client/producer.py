"""The Producer: records in from any thread, batches out in send order, a future for each record.

Callers do the work themselves: `send` puts the record into the open batch of its partition, and the caller whose
record fills a batch also writes it. A timer thread writes those whose linger is over; the log's syncer threads tell
when they are durable. So a busy producer pays no thread switch per record, and none per batch.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from threading import Condition, Lock
from types import TracebackType
from typing import Any

from foldlog.client.backend import Backend
from foldlog.client.forks import watch_forks
from foldlog.client.handle_types import BatchAck, SendFuture
from foldlog.client.lanes import Lane, OpenBatch, Route, Routes
from foldlog.client.linger import LingerTimer
from foldlog.client.outgoing import (
    Headers,
    Outgoing,
    check_size,
    checked_batch,
    checked_headers,
    checked_timestamp,
    in_batch,
)
from foldlog.client.partitioners import Partitioner, checked_partition, keyless_rule
from foldlog.client.positions import checked_count, checked_timeout_ms
from foldlog.client.serializers import Serializer, serialized, serializer
from foldlog.errors import FoldlogError, InvalidArgument, InvalidTopicName, LogClosed, WrongProcess
from foldlog.limits import PRODUCER_BUFFER_BYTES
from foldlog.log.partition import Appended, Partition
from foldlog.records.batch import Compression
from foldlog.records.loops import murmur2

_log = logging.getLogger("foldlog")

DEFAULT_LINGER_MS = 5.0
DEFAULT_BATCH_BYTES = 128 << 10
DEFAULT_BATCH_RECORDS = 10_000


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
        broker: Backend,
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
        if checked_timeout_ms(linger_ms, "linger_ms") is None:
            raise InvalidArgument("linger_ms=None is not a time; 0 sends at once, and flush() whatever it is")
        checked_count("batch_bytes", batch_bytes)
        checked_count("batch_records", batch_records)
        checked_count("buffer_bytes", buffer_bytes)
        self._broker = broker
        self._batch_bytes = batch_bytes
        self._batch_records = batch_records
        self._last_index = batch_records - 1
        self._buffer_bytes = buffer_bytes
        self._compression = int(Compression.named(compression))
        self._partitioner, self._round_robin = keyless_rule(partitioner)
        self._key_serializer = serializer(key_serializer)
        self._value_serializer = serializer(value_serializer)
        self._now_ms = broker.clock.now_ms
        self._refusal: type[FoldlogError] | None = None
        self._lock = Lock()
        self._routes = Routes(broker)
        # The acknowledging thread never takes self._lock: against a busy sender it would wait out whole GIL turns.
        self._settled = Condition()
        self._pending: dict[BatchAck, None] = {}
        self._buffered_bytes = 0
        self._failure: BaseException | None = None
        self._timer = LingerTimer(broker.clock, linger_ms)
        self._end = weakref.finalize(self, self._timer.stop)
        self._end.atexit = False
        watch_forks(self)

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

        Blocks only while `buffer_bytes` of sent records wait to be durable. Raises at once what cannot work:
        UnknownTopic, UnknownPartition, SerializationError, RecordTooLarge. `partition` wins over `key`, `key` over the
        keyless rule; without `timestamp_ms` the record carries the time of this call.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     with log.producer() as producer:
        ...         sent = producer.send("orders", value=b"...", key=b"k", headers=[("h", b"1")])
        ...         sent.result().offset
        0
        """
        if self._value_serializer is not None or (type(value) is not bytes and value is not None):
            value = serialized(self._value_serializer, value, "value", topic)
        if self._key_serializer is not None or (type(key) is not bytes and key is not None):
            key = serialized(self._key_serializer, key, "key", topic)
        checked = checked_headers(headers) if headers else ()
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        else:
            checked_timestamp(timestamp_ms)
        return self._enqueue(topic, timestamp_ms, key, value, checked, partition)

    def send_batch(self, topic: str, records: Iterable[Mapping[str, Any]]) -> list[SendFuture]:
        """Send several records, given as dicts with `send`'s argument names; the futures come in the same order.

        All are checked before any is sent: the error names the index of the first bad one, and nothing of the batch
        has then been sent. Not a transaction: each record becomes durable with the batch it lands in.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     _ = log.create_topic("orders")
        ...     with log.producer() as producer:
        ...         sent = producer.send_batch("orders", [{"value": b"a", "key": b"k"}, {"value": b"b"}])
        ...         [future.result().offset for future in sent]
        [0, 1]
        """
        if self._refusal is not None:
            raise self._refused()
        with self._lock:
            route = self._routes.of(topic)
        outgoing = checked_batch(topic, records, self._key_serializer, self._value_serializer, self._now_ms())
        for index, record in enumerate(outgoing):
            try:
                if record.partition is not None:
                    checked_partition(topic, record.partition, route.count)
                check_size(record, route.max_message_bytes)
                route.check_key(record.key)
            except FoldlogError as error:
                raise in_batch(error, index) from error
        return [self._enqueue(topic, *record) for record in outgoing]

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
        if self._refusal is WrongProcess:
            raise self._refused()
        with self._lock:
            lanes = self._routes.busy_lanes()
            for lane in lanes:
                if lane.open is not None:
                    self._seal(lane)
            pending = list(self._pending)
        for lane in lanes:
            self._write(lane)
        for ack in pending:
            ack.wait()
        with self._settled:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure.with_traceback(None)

    def close(self) -> None:
        """Flush, then refuse further sends. Raises what `flush` raises; closing twice is fine.

        >>> import foldlog
        >>> with foldlog.open(":memory:") as log:
        ...     producer = log.producer()
        ...     producer.close()
        """
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
        except Exception as failure:  # noqa: BLE001 whatever a batch failed of
            # The caller's own exception is what has to get out; this one is in the futures, too.
            if str(failure) != str(error):
                _log.warning("closing the producer after %r: some records were not written: %s", error, failure)

    def forked(self) -> None:
        """In a forked child: what this producer holds belongs to the parent, which still sends it."""
        self._refusal = WrongProcess
        self._end.detach()

    def _refused(self) -> FoldlogError:
        if self._refusal is WrongProcess:
            return WrongProcess("the producer was made before a fork; a child process has to open a log of its own")
        return LogClosed("the producer is closed; make another with log.producer()")

    def _enqueue(
        self,
        topic: str,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
        partition: int | None,
    ) -> SendFuture:
        """The common case, a record that fits into an open batch; everything else is `_enqueue_slowly`'s."""
        # Of 1.4 us a send, bytecodes are 0.9, the clock 0.15, BatchBuilder.append 0.13, the lock 0.1, the future 0.03.
        # So types are compared before anything is called, and what is rare lives elsewhere.
        if self._refusal is not None:
            raise self._refused()
        if self._partitioner is not None and partition is None:
            partition = self._ask_partitioner(topic, key)
        lane: Lane | None = None
        sent: SendFuture | None = None
        with self._lock:
            try:
                route = self._routes.known(topic)
            except TypeError:
                raise InvalidTopicName(f"{topic!r} is not a topic's name; give a str") from None
            if route is not None and (partition is None or partition in route.numbers):
                if partition is None and key is not None:
                    lane = route.lanes[(murmur2(key) & 0x7FFFFFFF) % route.count]
                else:
                    lane = self._other_lane(route, key, partition)
                    if self._round_robin:
                        partition = lane.number  # this record has had its turn
                batch = lane.open
                if batch is not None:
                    index = batch.append(timestamp_ms, key, value, headers)
                    if index >= 0:
                        sent = SendFuture(batch.ack, index, timestamp_ms)
                        if index < self._last_index:
                            return sent
                        self._seal(lane)
        if sent is None or lane is None:
            return self._enqueue_slowly(topic, Outgoing(timestamp_ms, key, value, headers, partition))
        self._write(lane)
        return sent

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
        """Find the route, wait for space, open a batch, or write the full one and look again."""
        while True:
            sent: SendFuture | None = None
            with self._lock:
                if self._refusal is not None:
                    raise self._refused()
                route = self._routes.of(topic)
                if record.partition is None and record.key is not None:
                    lane = route.lanes[(murmur2(record.key) & 0x7FFFFFFF) % route.count]
                else:
                    lane = self._other_lane(route, record.key, record.partition)
                    if self._round_robin:
                        record = record._replace(partition=lane.number)
                batch = lane.open
                if batch is None and self._buffered_bytes < self._buffer_bytes:
                    batch = self._open(route, lane, record)
                if batch is not None:
                    index = batch.append(record.timestamp_ms, record.key, record.value, record.headers)
                    if index >= 0:
                        sent = SendFuture(batch.ack, index, record.timestamp_ms)
                        if index < self._last_index:
                            return sent
                    self._seal(lane)
            if batch is None:
                self._wait_for_space()
                continue
            self._write(lane)
            if sent is not None:
                return sent

    def _other_lane(self, route: Route, key: bytes | None, partition: int | None) -> Lane:
        """The lane of a record whose partition is named, or that has no key."""
        if key is None:
            route.check_key(key)
        if partition is not None:
            return route.lanes[checked_partition(route.topic.name, partition, route.count)]
        lane = route.keyless_lane(self._broker)
        if self._round_robin:
            route.advance()
        return lane

    def _open(self, route: Route, lane: Lane, record: Outgoing) -> OpenBatch:
        """A new batch for `record`, which is checked first: only the first record of a batch can be too large."""
        check_size(record, route.max_message_bytes)
        self._routes.open_log(lane)
        batch = lane.start(min(self._batch_bytes, route.max_message_bytes), self._batch_records)
        self._pending[batch.ack] = None
        self._timer.schedule(batch, partial(self._linger_over, lane, batch))
        return batch

    def _seal(self, lane: Lane) -> None:
        batch = lane.seal()
        if batch is None:
            return
        self._timer.cancel(batch)
        with self._settled:
            self._buffered_bytes += batch.size_bytes
        if not self._round_robin:
            self._routes.sticky_moved(lane)

    def _linger_over(self, lane: Lane, batch: OpenBatch) -> None:
        with self._lock:
            if lane.open is not batch:
                return
            self._seal(lane)
        self._write(lane)

    def _write(self, lane: Lane) -> None:
        """Write the lane's sealed batches, in order. Whatever goes wrong lands in the futures of that batch."""
        while True:
            with lane.writing:
                if not lane.sealed:
                    return
                batch = lane.sealed.popleft()
                acknowledge = self._append(lane, batch)
            # Not before the lane is free: a done-callback may send to it.
            acknowledge()

    def _append(self, lane: Lane, batch: OpenBatch) -> Callable[[], None]:
        """Write one batch; the answer says what is to be done about its futures."""
        try:
            log = self._routes.open_log(lane)
            data = batch.builder.build(self._compression)
            acknowledge: Callable[[], None]
            if isinstance(log, Partition):
                appended = log.append(data, trusted=True)
                batch.ack.written(appended.base_offset, appended.append_time_ms)
                acknowledge = partial(log.on_acknowledged, appended.next_offset, partial(self._settle, batch))
            else:
                log.begin_append(data, partial(self._answered, batch))
                acknowledge = _is_told
            batch.builder.clear()
            lane.spare = batch.builder
        except Exception as error:  # noqa: BLE001 a future must resolve, whatever it is
            return partial(self._settle, batch, self._why(lane, error))
        return acknowledge

    def _answered(self, batch: OpenBatch, appended: Appended | None, error: FoldlogError | None) -> None:
        """Another process has written the batch, and it is durable; or it has failed. Runs on the thread that heard."""
        if appended is not None:
            batch.ack.written(appended.base_offset, appended.append_time_ms)
        self._settle(batch, error)

    def _settle(self, batch: OpenBatch, error: BaseException | None) -> None:
        """The batch is durable or has failed. Runs on a syncer thread, or on the one that wrote it."""
        with self._settled:
            self._buffered_bytes -= batch.size_bytes
            if error is not None and self._failure is None:
                self._failure = error
            self._settled.notify_all()
        batch.ack.finish(error)
        # Not before: a flush waits for what is pending, and that includes the done callbacks.
        self._pending.pop(batch.ack, None)

    def _wait_for_space(self) -> None:
        with self._settled:
            while self._buffered_bytes >= self._buffer_bytes:
                self._settled.wait()

    def _why(self, lane: Lane, error: Exception) -> Exception:
        """A closed partition is a deleted topic, unless the whole log was closed."""
        if isinstance(error, LogClosed):
            try:
                self._broker.partition(lane.topic, lane.number)
            except FoldlogError as better:
                return better
        return error


def _is_told() -> None:
    """For a batch on its way to another process: who hears the answer settles it."""
