# cython: language_level=3, binding=True
"""What a producer hands back, compiled: one future per record must cost less than the record itself.

`handles_py.py` is the same in Python, with the reasons in its comments. A standard Future costs 2 us to set and wakes
its waiters one by one; here a batch has one BatchAck and a future is three fields that point at it.
"""

import logging
from threading import Event, Lock

cimport cython
from libc.stdint cimport INT64_MAX
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from foldlog.records.kernels cimport BatchBuilder

from foldlog.client.outgoing import FRAME_BYTES_MAX as _FRAME_BYTES_MAX
from foldlog.client.positions import checked_timeout_s
from foldlog.errors import WaitTimeout
from foldlog.records.loops import murmur2

_log = logging.getLogger("foldlog")

cdef Py_ssize_t FRAME_BYTES_MAX = _FRAME_BYTES_MAX


@cython.final
@cython.freelist(64)
@cython.no_gc
cdef class RecordMetadata:
    """Where a record is: topic, partition, offset and timestamp. Immutable, compared by value.

    >>> RecordMetadata("orders", 0, 14, 1700000000000)
    RecordMetadata(topic='orders', partition=0, offset=14, timestamp_ms=1700000000000)
    """

    __match_args__ = ("topic", "partition", "offset", "timestamp_ms")

    cdef readonly str topic
    cdef readonly int partition
    cdef readonly long long offset
    cdef readonly long long timestamp_ms

    def __init__(self, str topic not None, int partition, long long offset, long long timestamp_ms):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms

    def __repr__(self):
        return (
            f"RecordMetadata(topic={self.topic!r}, partition={self.partition},"
            f" offset={self.offset}, timestamp_ms={self.timestamp_ms})"
        )

    def __eq__(self, other):
        if not isinstance(other, RecordMetadata):
            return NotImplemented
        cdef RecordMetadata that = <RecordMetadata>other
        return (
            self.offset == that.offset
            and self.partition == that.partition
            and self.timestamp_ms == that.timestamp_ms
            and self.topic == that.topic
        )

    def __hash__(self):
        return hash((self.topic, self.partition, self.offset, self.timestamp_ms))

    def __reduce__(self):
        from foldlog.client.handle_types import remake_metadata

        return remake_metadata, (self.topic, self.partition, self.offset, self.timestamp_ms)


@cython.final
cdef class BatchAck:
    """The one fate of all records of a batch: pending, then durable or failed, once.

    `written` and `finish` belong to the producer; everything else may be called from any thread. Callbacks run on the
    thread that finishes, before who waits goes on, or at once if it is finished: they must be quick and must not wait.
    """

    cdef readonly str topic
    cdef readonly int partition
    cdef readonly long long base_offset
    cdef readonly long long append_time_ms
    cdef readonly bint done
    cdef readonly object error
    cdef object _lock
    cdef object _event
    cdef bint _settled
    cdef list _callbacks

    def __init__(self, str topic not None, int partition):
        self.topic = topic
        self.partition = partition
        self.base_offset = -1
        self.append_time_ms = -1
        self.done = False
        self._lock = Lock()

    def written(self, long long base_offset, long long append_time_ms):
        """The batch has its offsets; it is not durable yet."""
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms

    def finish(self, error=None):
        """Durable, or failed with `error`. The first call counts."""
        with self._lock:
            if self.done:
                return
            self.error = error
            self.done = True
            callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for future, callback in callbacks:
                _call(callback, future)
        with self._lock:
            self._settled = True
            event, self._event = self._event, None
        if event is not None:
            event.set()

    def wait(self, timeout=None):
        """Whether it was finished, and its callbacks have run, within `timeout` seconds (None: no limit)."""
        with self._lock:
            if self._settled:
                return True
            if self._event is None:
                self._event = Event()
            event = self._event
        return event.wait(timeout)

    def add_callback(self, SendFuture future not None, callback):
        with self._lock:
            if not self.done:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append((future, callback))
                return
        _call(callback, future)


cdef BatchAck _NO_BATCH = BatchAck("", -1)


# no_gc: futures outnumber everything else a producer makes, and tracking them would make each full collection walk
# them all. The only cycle possible, through a callback that holds its own future, is broken when the batch finishes.
@cython.final
@cython.freelist(1024)
@cython.no_gc
cdef class SendFuture:
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

    cdef BatchAck _ack
    cdef long long _index
    cdef long long _timestamp_ms

    def __cinit__(self):
        self._ack = _NO_BATCH  # never null, whoever makes one

    def __init__(self, BatchAck ack not None, long long index, long long timestamp_ms):
        self._ack = ack
        self._index = index
        self._timestamp_ms = timestamp_ms

    def done(self):
        """Whether the record is durable or has failed; never waits."""
        return self._ack.done

    def result(self, timeout=None):
        """Offset and timestamp, once it is durable. Raises what went wrong, or WaitTimeout after `timeout` seconds."""
        cdef BatchAck ack = self._ack
        error = self.exception(timeout)
        if error is not None:
            raise error.with_traceback(None)
        return RecordMetadata(
            ack.topic,
            ack.partition,
            ack.base_offset + self._index,
            ack.append_time_ms if ack.append_time_ms >= 0 else self._timestamp_ms,
        )

    def exception(self, timeout=None):
        """What went wrong, or None once the record is durable. Raises WaitTimeout after `timeout` seconds."""
        cdef BatchAck ack = self._ack
        timeout = checked_timeout_s(timeout)
        if not ack.done and not ack.wait(timeout):
            raise WaitTimeout(
                f"a record sent to {ack.topic}-{ack.partition} was not durable within {timeout} s; it may yet be"
            )
        return ack.error

    def add_done_callback(self, callback):
        """Call `callback(self)` once: when the record is durable or has failed, or at once if it already is.

        It runs on the thread that synced the batch, which has more to do: keep it quick, and leave sending, flushing
        and waiting to a thread of your own.
        """
        self._ack.add_callback(self, callback)

    def __repr__(self):
        cdef BatchAck ack = self._ack
        if not ack.done:
            state = "pending"
        elif ack.error is not None:
            state = f"failed: {ack.error!r}"
        else:
            state = f"durable at offset {ack.base_offset + self._index}"
        return f"<SendFuture {ack.topic}-{ack.partition} {state}>"


def wall_ms():
    """The wall clock, as `SystemClock` reads it: a call from Python to Python was a sixth of a send."""
    return wall_clock_ms()


cdef inline long long wall_clock_ms() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <long long>now.tv_sec * 1000 + now.tv_nsec // 1_000_000


@cython.final
cdef class OpenBatches:
    """Puts the usual record into the open batch of its partition: bytecodes were two thirds of a send. Any thread."""

    cdef object _sender
    cdef object _acquire
    cdef object _release
    cdef dict _infos
    cdef object _now_ms
    cdef long long _last_index

    def __init__(self, sender, lock, dict infos not None, long long last_index, now_ms):
        """`infos` are the accumulator's, guarded by `lock`; `sender` says in `_refusal` whether it takes records, and
        is told of a batch that is full (`filled`)."""
        self._sender = sender
        self._acquire = lock.acquire
        self._release = lock.release
        self._infos = infos
        self._last_index = last_index
        self._now_ms = now_ms

    def send(self, topic, value, key, headers, partition, timestamp_ms):
        """The record's future. None, and nothing was done, if the record has to be serialized or checked, or names its
        partition, or as for `put`."""
        cdef long long at_ms
        if (not (value is None or type(value) is bytes) or not (key is None or type(key) is bytes)
                or headers or partition is not None):
            return None
        if timestamp_ms is None:
            at_ms = wall_clock_ms() if self._now_ms is wall_ms else self._now_ms()
        elif type(timestamp_ms) is int and 0 <= timestamp_ms < INT64_MAX:
            at_ms = timestamp_ms
        else:
            return None
        return self.put(topic, at_ms, key, value, ())

    cpdef object put(self, object topic, long long timestamp_ms, object key, object value, object headers):
        """Its future; it goes by its key or the sticky rule. None, and nothing was done, if there is no open batch, or
        no room, or no such topic."""
        cdef object info, queue, batch
        cdef SendFuture sent
        cdef long long index
        if type(topic) is not str or self._sender._refusal is not None:
            return None
        self._acquire()
        try:
            info = self._infos.get(topic)
            if info is None:
                return None
            if key is not None:
                queue = info.queues[(murmur2(key) & 0x7FFFFFFF) % info.count]
            else:
                queue = info.sticky
                if queue is None:
                    return None
            batch = queue.open
            if batch is None:
                return None
            index = (<BatchBuilder?>batch.builder).put(timestamp_ms, key, value, headers)
            if index < 0:
                return None
            sent = SendFuture.__new__(SendFuture)  # without arguments: a tuple and two ints for them took 100 ns
            sent._ack = <BatchAck?>batch.ack
            sent._index = index
            sent._timestamp_ms = timestamp_ms
        finally:
            self._release()
        if index >= self._last_index:
            self._sender.filled(queue, batch)
        return sent


def queue_for(lock, dict infos not None, broker, topic, key, value, headers, partition):
    """The queue of the partition that a single record goes to, by `DirectoryBackend._queue_for`'s rules; None, and
    nothing was done, if it has to decide: the topic is new, or changed, or does not take the record as it is."""
    cdef object info, usable
    cdef Py_ssize_t size = FRAME_BYTES_MAX
    cdef Py_ssize_t turn
    if type(topic) is not str or headers or not (key is None or type(key) is bytes) or not (
            value is None or type(value) is bytes):
        return None
    size += (0 if key is None else len(<bytes>key)) + (0 if value is None else len(<bytes>value))
    lock.acquire()
    try:
        info = infos.get(topic)
        if info is None or info.topic is not broker.topic(topic) or size > <Py_ssize_t>info.max_message_bytes:
            return None
        if partition is not None:
            if key is None and info.is_compacted:
                return None
            if type(partition) is not int or not 0 <= partition < info.count:
                return None
            return info.queues[partition]
        if key is not None:
            return info.queues[(murmur2(key) & 0x7FFFFFFF) % info.count]
        usable = info._usable
        if info.is_compacted or not usable:
            return None
        turn = info._turn
        info._turn = (turn + 1) % len(usable)
        info.sticky = None
        return info.queues[usable[turn]]
    finally:
        lock.release()


def _call(callback, future):
    try:
        callback(future)
    except Exception:
        _log.exception("a done callback of %r failed", future)
