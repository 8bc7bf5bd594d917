# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: embedsignature=True, auto_pickle=False
"""`log.append` of one record, compiled: from its bytes to the sync that covers it.

It does what `Partition.append` and `Durability.wait_acknowledged` do, in the usual case, with the same locks in the same
order: the segment is open and has room, the topic's settings ask for nothing unusual. Whatever else it meets before the
record is written, it leaves to them, with nothing done: only they know what to say. The rules for who syncs for whom
(`Turns`), which way a record becomes durable, and what a failure means exist once, there.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from foldlog.records.kernels cimport crc_of

from foldlog import limits
from foldlog.clock import SystemClock
from foldlog.errors import LockLost, StorageError
from foldlog.log import checkpoint as _checkpoint
from foldlog.log.checkpoint import SlotState
from foldlog.log.config import AS_PRODUCED
from foldlog.log.durability import INDEX_WRITE_ENTRIES as _INDEX_WRITE_ENTRIES
from foldlog.log.durability import Tail
from foldlog.records.batch import MAX_INT64
from foldlog.records.loops import pack

cdef enum:
    LEADER_EPOCH_AT = 12  # in a batch
    RECENT_MAX = 8
    SLOT_BYTES = 84
    JOURNALED_BYTES = 16
    TIERED_BYTES = 8
    CRC_BYTES = 4

cdef int64_t POSITION_MAX = limits.POSITION_MAX
cdef int64_t INDEX_WRITE_ENTRIES = _INDEX_WRITE_ENTRIES
cdef object _new = tuple.__new__

cdef int GENERATION = SlotState._fields.index("generation")
cdef int LOG_START_OFFSET = SlotState._fields.index("log_start_offset")
cdef int HIGH_WATERMARK = SlotState._fields.index("high_watermark")
cdef int DURABLE_OFFSET = SlotState._fields.index("durable_offset")
cdef int DURABLE_POSITION = SlotState._fields.index("durable_position")
cdef int SYNCED_OFFSET = SlotState._fields.index("synced_offset")
cdef int ACTIVE_BASE_OFFSET = SlotState._fields.index("active_base_offset")
cdef int ACTIVE_POSITION = SlotState._fields.index("active_position")
cdef int CLEANED_OFFSET = SlotState._fields.index("cleaned_offset")
cdef int GAPS_BELOW = SlotState._fields.index("gaps_below")
cdef int SEGMENT_COUNT = SlotState._fields.index("segment_count")
cdef int LEADER_EPOCH = SlotState._fields.index("leader_epoch")
cdef int START_REASON = SlotState._fields.index("start_reason")
cdef int CLEAN = SlotState._fields.index("clean")
cdef int POISONED = SlotState._fields.index("poisoned")
cdef int HAS_PRODUCERS = SlotState._fields.index("has_producers")
cdef int HAS_TRANSACTIONS = SlotState._fields.index("has_transactions")
cdef int TIERED_BELOW = SlotState._fields.index("tiered_below")

cdef int IS_CLEAN = _checkpoint._CLEAN
cdef int IS_POISONED = _checkpoint._POISONED
cdef int WITH_PRODUCERS = _checkpoint._HAS_PRODUCERS
cdef int WITH_TRANSACTIONS = _checkpoint._HAS_TRANSACTIONS
cdef int IS_JOURNALED = _checkpoint._JOURNALED
cdef int IS_TIERED = _checkpoint._TIERED


cdef inline uint8_t *put(uint8_t *at, int64_t value, int size) noexcept:
    cdef int index
    for index in range(size - 1, -1, -1):
        at[index] = <uint8_t>(value & 0xFF)
        value >>= 8
    return at + size


cdef inline int64_t number_of(object state, int field) except? -1:
    return (<tuple>state)[field]


cdef bytes encoded(int64_t number, object state):
    """A slot's bytes, as `checkpoint._encode` makes them."""
    cdef uint8_t body[SLOT_BYTES + JOURNALED_BYTES + TIERED_BYTES + CRC_BYTES]
    cdef uint8_t *p = body
    cdef bint is_journaled = number_of(state, DURABLE_OFFSET) > number_of(state, SYNCED_OFFSET)
    cdef bint is_tiered = number_of(state, TIERED_BELOW) != 0
    cdef int flags = 0
    if (<tuple>state)[CLEAN]:
        flags |= IS_CLEAN
    if (<tuple>state)[POISONED]:
        flags |= IS_POISONED
    if (<tuple>state)[HAS_PRODUCERS]:
        flags |= WITH_PRODUCERS
    if (<tuple>state)[HAS_TRANSACTIONS]:
        flags |= WITH_TRANSACTIONS
    if is_journaled:
        flags |= IS_JOURNALED
    if is_tiered:
        flags |= IS_TIERED
    p = put(p, number, 8)
    p = put(p, flags, 1)
    p = put(p, number_of(state, START_REASON), 1)
    p = put(p, 0, 2)
    p = put(p, number_of(state, LEADER_EPOCH), 4)
    p = put(p, number_of(state, GENERATION), 8)
    p = put(p, number_of(state, LOG_START_OFFSET), 8)
    p = put(p, number_of(state, HIGH_WATERMARK), 8)
    p = put(p, number_of(state, SYNCED_OFFSET), 8)
    p = put(p, number_of(state, ACTIVE_BASE_OFFSET), 8)
    p = put(p, number_of(state, ACTIVE_POSITION), 8)
    p = put(p, number_of(state, CLEANED_OFFSET), 8)
    p = put(p, number_of(state, GAPS_BELOW), 8)
    p = put(p, number_of(state, SEGMENT_COUNT), 4)
    if is_journaled:
        p = put(p, number_of(state, DURABLE_OFFSET), 8)
        p = put(p, number_of(state, DURABLE_POSITION), 8)
    if is_tiered:
        p = put(p, number_of(state, TIERED_BELOW), 8)
    p = put(p, crc_of(body, p - body) ^ <uint32_t>0xFFFFFFFF, 4)
    return PyBytes_FromStringAndSize(<char *>body, p - body)


def encode_slot(int64_t number, state):
    """For the test that compares it with `checkpoint._encode`."""
    return encoded(number, state)


cdef inline double seconds_now() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <double>now.tv_sec + <double>now.tv_nsec * 1e-9


@cython.final
cdef class SingleAppends:
    """The compiled way into one partition. Any thread."""

    cdef readonly object partition
    cdef object core, durability, append_lock, clock, slot, checkpoint, directory_lock, state_lock
    cdef object journal, turns, sync_lock, bare_sync_lock, syncer, waiting
    cdef bint is_system_clock
    # What the settings say, as of `config`: reading them one by one was a thirtieth of an append.
    cdef object config
    cdef bint is_usual
    cdef int64_t max_message_bytes, segment_bytes, segment_records, roll_ms, after_max_ms, retention_ms

    def __cinit__(self, partition):
        self.partition = partition
        self.core = partition._core
        self.durability = partition._durability
        self.append_lock = partition._append_lock
        self.clock = partition._clock
        self.is_system_clock = type(self.clock) is SystemClock
        self.slot = self.core.slot
        self.checkpoint = self.slot._checkpoint
        self.state_lock = self.core.state_lock
        self.journal = self.durability._journal
        self.turns = self.durability._turns
        self.sync_lock = self.durability.lock
        self.bare_sync_lock = self.sync_lock._lock
        self.syncer = partition._syncer
        self.waiting = self.durability._waiting
        self.directory_lock = self.checkpoint._directory_lock

    @property
    def is_closed(self):
        return self.core.is_closed

    def durable_offset(self):
        return (<tuple>self.core.state)[DURABLE_OFFSET]

    cdef inline int64_t durable(self) except? -1:
        return (<tuple>self.core.state)[DURABLE_OFFSET]

    cdef inline object lost(self):
        """`Checkpoint.lost`."""
        if self.checkpoint.lost_lock is None and (self.directory_lock is None or self.directory_lock.is_in_place()):
            return None
        return self.checkpoint.lost()

    def append(self, int64_t timestamp_ms, key, value, headers):
        """Append the record; its offset, once that is durable. None, and nothing was done, if it has to go the other
        way."""
        cdef bytearray data
        cdef int64_t offset
        cdef int64_t now_ms = 0
        if not self.takes_as_usual():
            return None
        data = pack(((timestamp_ms, key, value, headers),))
        self.append_lock.acquire()
        try:
            offset = self.written(data, timestamp_ms, &now_ms)
        finally:
            self.append_lock.release()
        if offset < 0:
            return None
        if 0 <= self.retention_ms < now_ms - timestamp_ms:
            self.partition._look_at_newest(timestamp_ms, now_ms)
        self.wait(offset + 1)
        return offset

    cdef bint takes_as_usual(self) except -1:
        """Whether the settings ask for nothing but that a record is written and synced."""
        cdef object config = self.core.config
        if config is not self.config:
            self.is_usual = not (config.compact or config.compression != AS_PRODUCED or config.log_append_time
                                 or config.acks_when_written or config.timestamp_before_max_ms != MAX_INT64)
            self.max_message_bytes = config.max_message_bytes
            self.segment_bytes = min(<int64_t>config.segment_bytes, POSITION_MAX)
            self.segment_records = config.segment_records
            self.roll_ms = config.roll_ms
            self.after_max_ms = config.timestamp_after_max_ms
            self.retention_ms = config.retention_ms
            self.config = config
        return self.is_usual

    cdef int64_t now_ms(self) except? -1:
        cdef timespec now
        if self.is_system_clock:
            clock_gettime(CLOCK_REALTIME, &now)
            return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1_000_000
        return self.clock.now_ms()

    cdef int64_t written(self, bytearray data, int64_t timestamp_ms, int64_t *at_ms) except -2:
        """`Partition.append` under the append lock; -1 if it has to do that."""
        cdef object core = self.core
        cdef object durability = self.durability
        cdef object state = core.state
        cdef object since
        cdef object tail = durability.tail
        cdef object segment = (<tuple>tail)[0]
        cdef int64_t end_offset = (<tuple>tail)[1]
        cdef int64_t position = (<tuple>tail)[2]
        cdef int64_t size = PyByteArray_GET_SIZE(data)
        cdef int64_t now_ms, relative_end
        cdef uint8_t *p
        # Again, under the lock: the settings may have changed since.
        if core.is_closed or durability.poison is not None or not self.takes_as_usual() or self.lost() is not None:
            return -1
        since = self.partition._active_since_ms
        if segment.held is None or since is None or size > self.max_message_bytes:
            return -1
        now_ms = self.now_ms()
        if timestamp_ms - self.after_max_ms > now_ms or core.epochs.latest != (<tuple>state)[LEADER_EPOCH]:
            return -1
        if position:
            relative_end = end_offset + 1 - <int64_t>segment.base_offset
            if (position + size > self.segment_bytes or relative_end > POSITION_MAX
                    or (self.segment_records and relative_end > self.segment_records)
                    or now_ms - <int64_t>since > self.roll_ms):
                return -1
        p = <uint8_t *>PyByteArray_AS_STRING(data)
        put(p, end_offset, 8)
        put(p + LEADER_EPOCH_AT, number_of(state, LEADER_EPOCH), 4)
        self.partition._write(tail, (data,))
        self.note(segment, end_offset, position, size, timestamp_ms)
        durability.tail = _new(Tail, (segment, end_offset + 1, position + size))
        if durability.unsynced_since_ms is None:
            durability.unsynced_since_ms = now_ms
        at_ms[0] = now_ms
        return end_offset

    cdef int note(self, object segment, int64_t offset, int64_t position, int64_t size, int64_t timestamp_ms) except -1:
        """`Segment.wrote`, of a batch of one record."""
        cdef object lock = segment._index_lock
        cdef tuple recent
        cdef int64_t since
        cdef object largest
        cdef int64_t relative = offset - <int64_t>segment.base_offset
        lock.acquire()
        try:
            largest = segment._largest
            if largest is None or timestamp_ms > <int64_t>(<tuple>largest)[0]:
                segment._largest = largest = (timestamp_ms, relative)
            since = segment._bytes_since_entry
            if since > <int64_t>segment.index_interval_bytes:
                segment.offset_index.append(relative, position)
                segment.unwritten_entries += 1
                if <int64_t>(<tuple>largest)[0] >= 0:
                    segment.time_index.append((<tuple>largest)[0], (<tuple>largest)[1])
                since = 0
            segment._bytes_since_entry = since + size
            segment._seen_end = offset + 1
            recent = segment._recent
            segment._recent = ((offset, position, offset),) + recent[:RECENT_MAX - 1]
            segment.size = position + size
        finally:
            lock.release()
        return 0

    cdef int wait(self, int64_t next_offset) except -1:
        """`Durability.wait_acknowledged`, where records are acknowledged once they are durable."""
        cdef object durability = self.durability
        while self.durable() < next_offset:
            if self.core.is_closed:
                self.core.refuse_if_closed()
            if durability.poison is not None:
                raise durability.poison
            if self.core.config.acks_when_written:  # since a moment ago
                durability.wait_acknowledged(next_offset)
            elif self.is_for_journal():
                self.journal.wait(durability, next_offset, self.durable_offset)
            else:
                self.sync_for_all(next_offset)
        return 0

    cdef bint is_for_journal(self) except -1:
        """`Durability._is_for_journal`."""
        cdef object durability = self.durability
        cdef int64_t pending
        if self.journal is None or durability.has_leftovers or durability._is_trimming:
            return False
        pending = (<tuple>durability.tail)[2]
        return self.journal.takes(durability, pending - number_of(self.core.state, DURABLE_POSITION))

    cdef int sync_for_all(self, int64_t next_offset) except -1:
        """`Durability._wait_for_own_sync`."""
        cdef object durability = self.durability
        if not self.turns.take(next_offset, self.durable_offset):
            return 0
        try:
            self.turns.gather()
            if self.bare_sync_lock.acquire(False) or self.take_sync_lock(next_offset):
                try:
                    if self.durable() < next_offset and durability.poison is None and not self.core.is_closed:
                        self.sync_tail()
                finally:
                    self.bare_sync_lock.release()
        finally:
            self.turns.pass_on()
        # `Durability.tell`. Usually there is nobody to answer, and no index to write.
        if self.waiting._pending or durability.poison is not None or self.core.is_closed:
            durability._answer()
        else:
            durability._wants_thread = False
        self.core.watchers.tell()
        if self.journal is not None:
            if self.journal.turns._waiting:
                self.journal.turns.wake()
            self.write_indexes()
        return 0

    cdef int write_indexes(self) except -1:
        """Only where the call would do something: it takes as long as the look."""
        if <int64_t>self.durability.tail[0].unwritten_entries >= INDEX_WRITE_ENTRIES:
            self.durability._write_indexes()
        return 0

    cdef object take_sync_lock(self, int64_t next_offset):
        """Apart: a function with a lambda makes an object for its variables whenever it is called."""
        return self.sync_lock.take_unless(lambda: self.durable() >= next_offset)

    cdef int sync_tail(self) except -1:
        """`Durability.sync_tail`, under the sync lock."""
        cdef object durability = self.durability
        cdef object tail = durability.tail
        cdef object lost
        cdef double began
        if durability.has_leftovers or number_of(self.core.state, SYNCED_OFFSET) >= <int64_t>(<tuple>tail)[1]:
            durability.sync_tail()
            return 0
        durability.unsynced_since_ms = None
        began = seconds_now()
        try:
            ((<tuple>tail)[0].held or (<tuple>tail)[0].log()).sync()
        except OSError as error:
            durability.poison_with(error)  # and never sync again
            return 0
        began = seconds_now() - began
        lost = self.lost()
        if lost is not None:
            durability.note_lost_lock(lost)
        if durability.poison is None or not isinstance(durability.poison, LockLost):
            self.synced(tail, began)
            self.write_indexes()
        return 0

    cdef int synced(self, object tail, double seconds) except -1:
        """`Durability._synced`."""
        cdef object state = self.core.state
        cdef object segment = (<tuple>tail)[0]
        cdef int64_t size = (<tuple>tail)[2]
        cdef int64_t records
        if (<tuple>state)[ACTIVE_BASE_OFFSET] == segment.base_offset:
            size -= number_of(state, ACTIVE_POSITION)
        if self.syncer.on_synced is not None:
            records = <int64_t>(<tuple>tail)[1] - number_of(state, DURABLE_OFFSET)
            self.syncer.on_synced(seconds, size, max(0, records))
        try:
            self.raise_watermarks(tail)
        except StorageError as error:
            self.durability.poison_with(error)  # without the state lock: it takes that as well
        self.durability._is_trimming = False
        if self.journal is not None and not self.journal._is_wanted:
            self.journal.note_sync(size)
        return 0

    cdef int raise_watermarks(self, object tail) except -1:
        """`Durability._raise_watermarks`: stored first, so that nothing is acknowledged that reading processes cannot
        see."""
        cdef object core = self.core
        cdef object slot = self.slot
        cdef list fields
        cdef object state
        cdef int64_t end_offset = (<tuple>tail)[1]
        cdef int64_t number
        self.state_lock.acquire()
        try:
            state = core.state
            fields = list(state)
            fields[CLEAN] = False
            if end_offset > number_of(state, HIGH_WATERMARK):
                fields[HIGH_WATERMARK] = end_offset
            if end_offset >= number_of(state, SYNCED_OFFSET):
                fields[SYNCED_OFFSET] = end_offset
                fields[ACTIVE_BASE_OFFSET] = (<tuple>tail)[0].base_offset
                fields[ACTIVE_POSITION] = (<tuple>tail)[2]
                if end_offset >= number_of(state, DURABLE_OFFSET):
                    fields[DURABLE_OFFSET] = end_offset
                    fields[DURABLE_POSITION] = (<tuple>tail)[2]
            state = _new(SlotState, fields)
            number = slot._stores
            if number < 0:  # not known yet
                number = slot._next_number()
            else:
                slot._stores = number = number + 1
            slot._hot_ticket = self.checkpoint.store(slot._hot, encoded(number, state))
            core.state = state
        finally:
            self.state_lock.release()
        return 0
