# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: embedsignature=True, auto_pickle=False
"""Fetch requests, read without building messages.

A frame that is not of the usual shape (tagged fields, null arrays, names that are not ASCII, numbers that are written
longer than they have to be) is the codec's. Nothing here trusts a length or a count.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport INT32_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from foldlog.records.kernels cimport Bytes

cdef enum:
    FETCH_KEY = 1
    HEADER_BYTES = 10
    FIRST = 4
    LAST = 18
    LOG_START_FROM = 5
    SESSIONS_FROM = 7
    LEADER_EPOCH_FROM = 9
    RACK_FROM = 11
    FLEXIBLE_FROM = 12
    TOPIC_IDS_FROM = 13
    REPLICA_UNTIL = 14
    UUID_BYTES = 16
    ITEMS_MAX = 1 << 16  # read in one go, with what is collected afterwards: 20 ms; the codec reads more, in steps
    MANY_BYTES = 1 << 16
    NEVER_TOLD = -1

cdef bytes NO_ID = bytes(UUID_BYTES)

cdef extern from "Python.h":
    int PyGC_Disable()
    int PyGC_Enable()


include "compiled/fields.pxi"


cdef inline int64_t read64(Reader *reader) noexcept nogil:
    cdef uint32_t high = <uint32_t>read32(reader)
    cdef uint32_t low = <uint32_t>read32(reader)
    return <int64_t>(<uint64_t>high << 32 | low)


@cython.final
@cython.freelist(64)
cdef class WantedPartition:
    """The `WantedPartition` of `server/fetches/sessions.py`, compiled. `found` is where the last fetch read it."""

    def __init__(self, topic, bytes topic_id not None, wanted):
        self.topic = topic
        self.topic_id = topic_id
        self.partition = wanted.partition
        self.key = (topic_id if topic is None else topic, wanted.partition)
        self.high_watermark = self.log_start_offset = NEVER_TOLD
        self.ask(wanted)

    def ask(self, wanted):
        """Take over the client's new position."""
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch

    def ask_as(self, WantedPartition other not None):
        """Take over the position of another one of the same partition."""
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch

    def tell(self, answer):
        """Remember what is answered. Returns whether it is news: records, an error, or an offset that moved."""
        is_news = self.tell_numbers(bool(answer.records), answer.error_code, answer.high_watermark,
                                    answer.log_start_offset)
        return is_news or answer.diverging_epoch is not None

    cdef bint tell_numbers(self, bint has_records, int32_t error, int64_t high_watermark,
                           int64_t log_start_offset) noexcept:
        cdef bint is_news = (has_records or error != 0 or high_watermark != self.high_watermark
                             or log_start_offset != self.log_start_offset)
        # After an error the high watermark counts as not sent: the partition is news again when the error is gone.
        self.high_watermark = high_watermark if error == 0 else NEVER_TOLD
        self.log_start_offset = log_start_offset
        return is_news


@cython.final
cdef class FetchFrame:
    """One Fetch request. Reused for the next; event loop only."""

    cdef readonly int32_t version
    cdef readonly int32_t correlation_id
    cdef readonly int32_t max_wait_ms
    cdef readonly int32_t min_bytes
    cdef readonly int32_t max_bytes
    cdef readonly int32_t isolation_level
    cdef readonly int32_t session_id
    cdef readonly int32_t session_epoch
    cdef readonly list wanted
    cdef readonly list forgotten
    cdef int32_t items

    def read(self, buffer, int64_t start, int64_t end):
        """Whether the frame between these positions, without its length, was read. `wanted` are all partitions that it
        names, in its order; one may be there twice. `forgotten` are keys of partitions."""
        cdef Bytes view = Bytes.__new__(Bytes)
        cdef Reader reader
        view.hold(buffer)
        if start < 0 or end > view.size or end - start < HEADER_BYTES:
            return False
        reader.at = view.data + start
        reader.end = view.data + end
        reader.failed = False
        self.wanted = []
        self.forgotten = []
        self.items = 0
        if end - start < MANY_BYTES or not PyGC_Disable():
            return self.read_request(&reader)
        try:
            # The collector would look at what is made here again and again: that took two thirds of the time.
            return self.read_request(&reader)
        finally:
            PyGC_Enable()

    cdef bint read_request(self, Reader *reader) except -1:
        cdef int32_t version
        cdef int32_t count
        cdef bint is_flexible
        if read16(reader) != FETCH_KEY:
            return False
        version = self.version = read16(reader)
        if not FIRST <= version <= LAST:
            return False
        is_flexible = version >= FLEXIBLE_FROM
        self.correlation_id = read32(reader)
        if not skip_ascii(reader, read_length(reader, False, False)):  # the client's id, never a compact string
            return False
        if is_flexible:
            read_no_tags(reader)
        if version <= REPLICA_UNTIL:
            read32(reader)
        self.max_wait_ms = read32(reader)
        self.min_bytes = read32(reader)
        self.max_bytes = read32(reader)
        if reader.failed or reader.at >= reader.end:
            return False
        self.isolation_level = <int8_t>reader.at[0]
        reader.at += 1
        self.session_id, self.session_epoch = 0, -1
        if version >= SESSIONS_FROM:
            self.session_id = read32(reader)
            self.session_epoch = read32(reader)
        count = self.read_count(reader, is_flexible)
        while count > 0 and not reader.failed:
            self.read_topic(reader, is_flexible)
            count -= 1
        if version >= SESSIONS_FROM:
            count = self.read_count(reader, is_flexible)
            while count > 0 and not reader.failed:
                self.read_forgotten(reader, is_flexible)
                count -= 1
        if version >= RACK_FROM:
            count = read_length(reader, is_flexible, False)
            if count < 0 or not skip_ascii(reader, count):
                return False
        if is_flexible:
            read_no_tags(reader)
        return not reader.failed and reader.at == reader.end

    cdef int32_t read_count(self, Reader *reader, bint is_flexible) noexcept:
        cdef int32_t count = read_length(reader, is_flexible, True)
        self.items += max(0, count)
        if count < 0 or self.items > ITEMS_MAX:
            reader.failed = True
            return 0
        return count

    cdef object read_named(self, Reader *reader, bint is_flexible):
        """A topic's name, or its id as bytes."""
        cdef int32_t length
        cdef const uint8_t *at
        if self.version >= TOPIC_IDS_FROM:
            if reader.end - reader.at < UUID_BYTES:
                reader.failed = True
                return None
            reader.at += UUID_BYTES
            return PyBytes_FromStringAndSize(<const char *>reader.at - UUID_BYTES, UUID_BYTES)
        length = read_length(reader, is_flexible, False)
        at = reader.at
        if reader.failed or length < 0 or not skip_ascii(reader, length):
            reader.failed = True
            return None
        return PyUnicode_DecodeASCII(<const char *>at, length, NULL)

    cdef int read_topic(self, Reader *reader, bint is_flexible) except -1:
        cdef object named = self.read_named(reader, is_flexible)
        cdef int32_t version = self.version
        cdef int32_t count
        cdef WantedPartition one
        count = self.read_count(reader, is_flexible)
        while count > 0 and not reader.failed:
            one = WantedPartition.__new__(WantedPartition)
            one.partition = read32(reader)
            one.current_leader_epoch = read32(reader) if version >= LEADER_EPOCH_FROM else -1
            one.fetch_offset = read64(reader)
            one.last_fetched_epoch = read32(reader) if version >= FLEXIBLE_FROM else -1
            if version >= LOG_START_FROM:
                read64(reader)
            one.max_bytes = read32(reader)
            if is_flexible:
                read_no_tags(reader)
            if version >= TOPIC_IDS_FROM:
                one.topic, one.topic_id = None, named
            else:
                one.topic, one.topic_id = named, NO_ID
            one.key = (named, one.partition)
            one.high_watermark = one.log_start_offset = NEVER_TOLD
            self.wanted.append(one)
            count -= 1
        if is_flexible:
            read_no_tags(reader)
        return 0

    cdef int read_forgotten(self, Reader *reader, bint is_flexible) except -1:
        cdef object named = self.read_named(reader, is_flexible)
        cdef int32_t count = self.read_count(reader, is_flexible)
        while count > 0 and not reader.failed:
            self.forgotten.append((named, read32(reader)))
            count -= 1
        if is_flexible:
            read_no_tags(reader)
        return 0
