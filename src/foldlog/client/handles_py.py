"""The results of sends: RecordMetadata, SendFuture, and the BatchAck that the futures of one batch share.

The pure-Python twin of `handles.pyx`, with the same names and behaviour; import from `foldlog.client.handle_types`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from threading import Event, Lock
from typing import Any, NoReturn

from foldlog.client.positions import checked_timeout_s
from foldlog.errors import WaitTimeout
from foldlog.records.batch import MAX_INT64
from foldlog.records.loops import murmur2

_log = logging.getLogger("foldlog")


class RecordMetadata:
    """Where a record is: topic, partition, offset and timestamp. Immutable, compared by value.

    >>> RecordMetadata("orders", 0, 14, 1700000000000)
    RecordMetadata(topic='orders', partition=0, offset=14, timestamp_ms=1700000000000)
    """

    __slots__ = ("offset", "partition", "timestamp_ms", "topic")
    __match_args__ = ("topic", "partition", "offset", "timestamp_ms")

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    def __init__(self, topic: str, partition: int, offset: int, timestamp_ms: int) -> None:
        set_field = object.__setattr__
        set_field(self, "topic", topic)
        set_field(self, "partition", partition)
        set_field(self, "offset", offset)
        set_field(self, "timestamp_ms", timestamp_ms)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"RecordMetadata is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"RecordMetadata is immutable: {name} cannot be deleted")

    def __repr__(self) -> str:
        return (
            f"RecordMetadata(topic={self.topic!r}, partition={self.partition},"
            f" offset={self.offset}, timestamp_ms={self.timestamp_ms})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecordMetadata):
            return NotImplemented
        return (
            self.offset == other.offset
            and self.partition == other.partition
            and self.topic == other.topic
            and self.timestamp_ms == other.timestamp_ms
        )

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset, self.timestamp_ms))

    def __reduce__(self) -> tuple[Callable[..., RecordMetadata], tuple[Any, ...]]:
        from foldlog.client.handle_types import remake_metadata

        return remake_metadata, (self.topic, self.partition, self.offset, self.timestamp_ms)


class BatchAck:
    """The common outcome of all records of a batch: pending, then durable or failed, once.

    The producer calls `written` and `finish`; everything else may be called from any thread. Callbacks run on the
    finishing thread, before waiting threads go on, or at once if it is finished: they must be quick and must not wait.
    """

    __slots__ = (
        "_callbacks",
        "_event",
        "_lock",
        "_settled",
        "append_time_ms",
        "base_offset",
        "done",
        "error",
        "partition",
        "topic",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.base_offset = -1
        self.append_time_ms = -1
        self.done = False
        self.error: BaseException | None = None
        self._lock = Lock()
        self._settled = False
        self._event: Event | None = None
        self._callbacks: list[tuple[SendFuture, Callable[[SendFuture], object]]] | None = None

    def written(self, base_offset: int, append_time_ms: int) -> None:
        """The batch has its offsets; it is not durable yet."""
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms

    def finish(self, error: BaseException | None = None) -> None:
        """Mark it durable, or failed with `error`. The first call counts."""
        with self._lock:
            if self.done:
                return
            self.error = error
            self.done = True
            callbacks, self._callbacks = self._callbacks, None
        for future, callback in callbacks or ():
            _call(callback, future)
        with self._lock:
            self._settled = True
            event, self._event = self._event, None
        if event is not None:
            event.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it was finished, and its callbacks have run, within `timeout` seconds (None: no limit)."""
        with self._lock:
            if self._settled:
                return True
            if self._event is None:
                self._event = Event()
            event = self._event
        return event.wait(timeout)

    def add_callback(self, future: SendFuture, callback: Callable[[SendFuture], object]) -> None:
        with self._lock:
            if not self.done:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append((future, callback))
                return
        _call(callback, future)


class SendFuture:
    """The fate of one sent record. `result()` returns its RecordMetadata once fdatasync has covered it.

    Named and shaped like `concurrent.futures.Future` (timeouts are in seconds there, so they are here), without
    `cancel`: what was sent cannot be taken back.

    >>> import foldlog
    >>> with foldlog.open(":memory:") as log:
    ...     _ = log.create_topic("orders")
    ...     with log.producer() as producer:
    ...         producer.send("orders", "paid", timestamp_ms=5).result()
    RecordMetadata(topic='orders', partition=0, offset=0, timestamp_ms=5)
    """

    __slots__ = ("_ack", "_index", "_timestamp_ms")

    def __init__(self, ack: BatchAck, index: int, timestamp_ms: int) -> None:
        self._ack = ack
        self._index = index
        self._timestamp_ms = timestamp_ms

    def done(self) -> bool:
        """Whether the record is durable or has failed; never waits."""
        return self._ack.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Offset and timestamp, once it is durable. Raises what went wrong, or WaitTimeout after `timeout` seconds."""
        error = self.exception(timeout)
        if error is not None:
            # Futures of one batch share the error: without this each raise would lengthen the same traceback.
            raise error.with_traceback(None)
        ack = self._ack
        timestamp_ms = ack.append_time_ms if ack.append_time_ms >= 0 else self._timestamp_ms
        return RecordMetadata(ack.topic, ack.partition, ack.base_offset + self._index, timestamp_ms)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What went wrong, or None once the record is durable. Raises WaitTimeout after `timeout` seconds."""
        ack = self._ack
        timeout = checked_timeout_s(timeout)
        if not ack.done and not ack.wait(timeout):
            raise WaitTimeout(
                f"a record sent to {ack.topic}-{ack.partition} was not durable within {timeout} s; it may yet be"
            )
        return ack.error

    def add_done_callback(self, callback: Callable[[SendFuture], object]) -> None:
        """Call `callback(self)` once: when the record is durable or has failed, or at once if it already is.

        It runs on the thread that synced the batch, which has more to do: keep it quick, and leave sending, flushing
        and waiting to a thread of your own.
        """
        self._ack.add_callback(self, callback)

    def __repr__(self) -> str:
        ack = self._ack
        if not ack.done:
            state = "pending"
        elif ack.error is not None:
            state = f"failed: {ack.error!r}"
        else:
            state = f"durable at offset {ack.base_offset + self._index}"
        return f"<SendFuture {ack.topic}-{ack.partition} {state}>"


def wall_ms() -> int:
    """The wall clock, as `SystemClock` reads it."""
    return time.time_ns() // 1_000_000


class OpenBatches:
    """Puts the usual record into the open batch of its partition. Any thread."""

    def __init__(
        self, sender: Any, lock: Lock, infos: Mapping[str, Any], last_index: int, now_ms: Callable[[], int]
    ) -> None:
        """`infos` are the accumulator's, guarded by `lock`; `sender` says in `_refusal` whether it takes records, and
        is told of a batch that is full (`filled`)."""
        self._sender = sender
        self._lock = lock
        self._infos = infos
        self._last_index = last_index
        self._now_ms = now_ms

    def send(
        self, topic: object, value: object, key: object, headers: object, partition: object, timestamp_ms: object
    ) -> SendFuture | None:
        """The record's future. None, and nothing was done, if the record has to be serialized or checked, or names its
        partition, or as for `put`."""
        if not (value is None or type(value) is bytes) or not (key is None or type(key) is bytes):
            return None
        if headers or partition is not None:
            return None
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        elif type(timestamp_ms) is not int or not 0 <= timestamp_ms < MAX_INT64:
            return None
        return self.put(topic, timestamp_ms, key, value, ())

    def put(
        self,
        topic: object,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
    ) -> SendFuture | None:
        """Its future; it goes by its key or the sticky rule. None, and nothing was done, if there is no open batch, or
        no room, or no such topic."""
        if type(topic) is not str or self._sender._refusal is not None:
            return None
        with self._lock:
            info = self._infos.get(topic)
            if info is None:
                return None
            queue = info.sticky if key is None else info.queues[(murmur2(key) & 0x7FFFFFFF) % info.count]
            batch = None if queue is None else queue.open
            if batch is None:
                return None
            index = batch.builder.append(timestamp_ms, key, value, headers)
            if index < 0:
                return None
        if index >= self._last_index:
            self._sender.filled(queue, batch)
        return SendFuture(batch.ack, index, timestamp_ms)


def queue_for(
    lock: Lock,
    infos: Mapping[str, Any],
    broker: object,
    topic: object,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    partition: object,
) -> Any:
    """None: the rules in Python are `DirectoryBackend._queue_for`'s, which is asked then."""
    return None


def _call(callback: Callable[[SendFuture], object], future: SendFuture) -> None:
    try:
        callback(future)
    except Exception:  # noqa: BLE001 the caller's code on our thread must not stop the acknowledging of others
        _log.exception("a done callback of %r failed", future)


__all__ = ["BatchAck", "RecordMetadata", "SendFuture"]
