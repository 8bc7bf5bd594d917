# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: embedsignature=True, auto_pickle=False
"""One pass over the partitions that a Fetch wants, and the frame that answers it: what `fetching.FetchRead`, the fetch
session and the codec do together, without a message and, where nothing is new, without an object for a partition.

A pass that meets damage, or a disk that fails, says so, and is done again by `FetchRead`. What a client can ask for
wrongly is answered here: it may do so for any number of partitions.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX

from foldlog.log.fetched cimport BLOCKED, FETCHED, LEFT, FetchedPartition, Seen
from foldlog.records.kernels cimport FoundRun
from foldlog.wire.fetch_frames cimport WantedPartition

from foldlog.broker.access.acls import AclOperation as _AclOperation
from foldlog.broker.access.acls import ResourceType as _ResourceType
from foldlog.errors import FoldlogError
from foldlog.server.authorizer import AllowEverything as _AllowEverything
from foldlog.wire.error_codes import ErrorCode as _ErrorCode

include "../../wire/compiled/fields.pxi"

cdef enum:
    LOG_START_FROM = 5
    SESSIONS_FROM = 7
    REPLICA_FROM = 11
    FLEXIBLE_FROM = 12
    TOPIC_IDS_FROM = 13
    UUID_BYTES = 16
    INLINE_BYTES_MAX = 1 << 15
    NO_OFFSET = -1
    NO_TAG = -1
    DIVERGING_TAG = 0
    DIVERGING_BYTES = 4 + 8 + 1
    LEADER_TAG = 1
    LEADER_BYTES = 4 + 4 + 1
    PARTITION_BYTES_MAX = 4 + 2 + 8 + 8 + 8 + 5 + 4 + 5 + 3 + DIVERGING_BYTES
    ABORTED_BYTES_MAX = 8 + 8 + 1
    TOPIC_BYTES_MAX = 5 + 5 + 1
    FRAME_BYTES_MAX = 4 + 4 + 1 + 4 + 2 + 4 + 5 + 1

cdef object READ = _AclOperation.READ
cdef object TOPIC = _ResourceType.TOPIC
cdef int32_t UNKNOWN_TOPIC_ID = _ErrorCode.UNKNOWN_TOPIC_ID
cdef int32_t UNKNOWN_PARTITION = _ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
cdef int32_t NOT_ALLOWED = _ErrorCode.TOPIC_AUTHORIZATION_FAILED
cdef int32_t OUT_OF_RANGE = _ErrorCode.OFFSET_OUT_OF_RANGE
cdef int32_t UNKNOWN_EPOCH = _ErrorCode.UNKNOWN_LEADER_EPOCH
cdef int32_t FENCED_EPOCH = _ErrorCode.FENCED_LEADER_EPOCH


cdef struct Answer:
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    int64_t end  # what a waiting fetch has seen
    int64_t size
    int64_t end_offset  # of `epoch`, if the log diverges there from what the client has read
    int32_t epoch  # that, or the leader's; what it is says `tag`
    int32_t tag
    int32_t records  # place in `data`, -1: none
    int32_t error


@cython.final
cdef class FetchPass:
    """Reads once, then answers. On the loop, or wholly on a thread. Its numbers are those of `FetchRead`."""

    cdef readonly int64_t size_bytes
    cdef readonly int64_t records
    cdef readonly bint is_final
    cdef readonly bint is_full
    cdef readonly list behind
    cdef readonly bint has_errors
    cdef object node
    cdef object who
    cdef object memory
    cdef list wanted
    cdef list found
    cdef list data
    cdef dict aborted
    cdef Answer *answers
    cdef int64_t room_bytes
    cdef bint committed
    cdef bint nowait
    cdef bint is_last
    cdef object allowed_name
    cdef bint has_authorizer

    def __cinit__(self, node, who, int64_t limit_bytes, memory, *, bint committed, bint nowait, bint is_last):
        """`memory` gives a bytearray of at least so many bytes."""
        self.node = node
        self.who = who
        self.has_authorizer = type(node.authorizer) is not _AllowEverything  # any other is asked
        self.room_bytes = limit_bytes
        self.memory = memory
        self.committed = committed
        self.nowait = nowait
        self.is_last = is_last
        self.behind = []
        self.answers = NULL

    def __dealloc__(self):
        free(self.answers)

    def read(self, list wanted not None, Py_ssize_t start=0, Py_ssize_t stop=PY_SSIZE_T_MAX):
        """Read those from `start` to `stop`, of all that will be read, in their order. Whether all could be, or
        BlockingIOError if that would wait. False: a `FetchRead` has to."""
        cdef Py_ssize_t index
        cdef int why
        if self.answers == NULL:
            self.wanted = wanted
            self.found = []
            self.data = []
            self.answers = <Answer *>calloc(max(1, len(wanted)), sizeof(Answer))
            if self.answers == NULL:
                raise MemoryError
        if wanted is not self.wanted or start != len(self.found):
            raise ValueError("the slices of a pass follow on each other")
        for index in range(start, min(stop, len(wanted))):
            self.answers[index].tag = NO_TAG
            try:
                why = self.answer(<WantedPartition?>wanted[index], &self.answers[index])
            except FoldlogError:
                return False
            if why == BLOCKED:
                raise BlockingIOError
            if why == LEFT:
                return False
        return True

    @property
    def waits(self):
        """The partitions, with the end that was seen of each."""
        cdef Py_ssize_t index
        cdef FetchedPartition one
        seen = []
        for index in range(len(self.found)):
            if self.found[index] is not None:
                one = <FetchedPartition>self.found[index]
                seen.append((one.partition, self.answers[index].end))
        return seen

    cdef int refused(self, Answer *answer, int32_t error, int64_t log_start_offset=NO_OFFSET) except -1:
        answer.high_watermark = answer.last_stable_offset = NO_OFFSET
        answer.log_start_offset = log_start_offset
        answer.error = error
        answer.records = -1
        self.is_final = self.has_errors = True
        self.found.append(None)
        return FETCHED

    cdef int answer(self, WantedPartition one, Answer *answer) except -1:
        cdef FetchedPartition found
        cdef object name
        found = <FetchedPartition>one.found
        if found is not None and not found.core.is_closed:
            name = found.partition.label[0] if self.has_authorizer else None
        else:
            found = None
            name = one.topic
            if name is None:
                name = self.node.topic_ids.name_of(one.topic_id)
                if name is None:
                    return self.refused(answer, UNKNOWN_TOPIC_ID)
        if name is not None and name is not self.allowed_name:
            if self.has_authorizer and not self.node.authorizer.allows(self.who, READ, TOPIC, name):
                return self.refused(answer, NOT_ALLOWED)
            self.allowed_name = name
        if found is None:
            partition = self.node.open_partition(name, one.partition)
            if partition is None:
                if not self.node.has_partition(name, one.partition):
                    return self.refused(answer, UNKNOWN_PARTITION)
                if self.nowait:
                    return BLOCKED
                partition = self.node.partition(name, one.partition)
            if partition.fetched is None:
                partition.fetched = FetchedPartition(partition)
            one.found = found = <FetchedPartition?>partition.fetched
        return self.slice(one, found, answer)

    cdef int slice(self, WantedPartition one, FetchedPartition found, Answer *answer) except -1:
        cdef int64_t acknowledged
        cdef int64_t end
        cdef int64_t wanted_bytes
        cdef int64_t offset = one.fetch_offset
        cdef FoundRun run
        cdef Seen seen
        cdef int why = LEFT
        found.look(&seen)
        if one.current_leader_epoch > seen.leader_epoch:
            return self.refused(answer, UNKNOWN_EPOCH)
        if 0 <= one.current_leader_epoch < seen.leader_epoch:
            answer.tag, answer.epoch = LEADER_TAG, seen.leader_epoch
            return self.refused(answer, FENCED_EPOCH)
        end = seen.last_stable_offset if self.committed else seen.high_watermark
        acknowledged = found.acknowledged_offset(&seen)
        answer.high_watermark = seen.high_watermark
        answer.last_stable_offset = seen.last_stable_offset
        answer.log_start_offset = seen.log_start_offset
        answer.end = end
        answer.records = -1
        if seen.high_watermark < acknowledged:
            if self.is_last:
                return LEFT  # an error, if they will never come
            self.behind.append((found.partition, acknowledged))
        if one.last_fetched_epoch >= 0 and self.diverges(one, found, answer):
            self.found.append(found)
            return FETCHED
        wanted_bytes = min(<int64_t>one.max_bytes, self.room_bytes)
        if end <= offset <= found.log_end_offset():
            self.found.append(found)
            return FETCHED
        if wanted_bytes <= 0 and self.size_bytes:
            self.is_full |= self.room_bytes <= 0
            self.found.append(found)
            return FETCHED
        if not seen.log_start_offset <= offset < end:
            return self.refused(answer, OUT_OF_RANGE, seen.log_start_offset)
        self.found.append(found)
        data = found.read(&seen, offset, end, max(1, wanted_bytes), self.nowait, self.memory, &run, &why)
        if data is None:
            return why
        if self.room_bytes < one.max_bytes and run.next_offset < end:
            self.is_full = True
        if run.size > wanted_bytes and self.size_bytes:
            return FETCHED  # a batch over the limit is sent only if it is the first: there must be progress
        if self.committed and not self.name_aborted(found, offset, run.next_offset):
            return LEFT
        answer.records = <int32_t>len(self.data)
        answer.size = run.size
        self.data.append(data)
        self.size_bytes += run.size
        self.records += run.next_offset - offset
        self.room_bytes -= run.size
        return FETCHED

    cdef bint diverges(self, WantedPartition one, FetchedPartition found, Answer *answer) except -1:
        """Whether the log was cut, after a crash, below what the client has read. Compared with what is written: a client
        may begin behind a record that is acknowledged and not durable yet."""
        cdef int32_t epoch
        cdef int64_t end_offset
        epoch, end_offset = found.partition.epoch_end_offset(one.last_fetched_epoch, written=True)
        if epoch == one.last_fetched_epoch and end_offset >= one.fetch_offset:
            return False
        answer.tag, answer.epoch, answer.end_offset = DIVERGING_TAG, epoch, end_offset
        self.is_final = True
        return True

    cdef bint name_aborted(self, FetchedPartition found, int64_t offset, int64_t next_offset) except -1:
        """Note the aborted transactions among the batches of the next answer with records."""
        cdef object producers = found.partition._producers
        if not found.core.state.has_transactions:
            return True
        if producers.undecided is None:
            return False
        if len(producers.aborted):
            among = producers.aborted.between(offset, next_offset)
            if among:
                if self.aborted is None:
                    self.aborted = {}
                self.aborted[len(self.data)] = among
        return True

    # --- the answer

    def told(self):
        """Note in every wanted partition what it is answered. Returns the places of those with news."""
        cdef Py_ssize_t index
        cdef WantedPartition one
        cdef Answer *answer
        cdef bint is_news
        news = []
        for index in range(len(self.wanted)):
            one = <WantedPartition>self.wanted[index]
            answer = &self.answers[index]
            is_news = one.tell_numbers(answer.records >= 0, answer.error, answer.high_watermark, answer.log_start_offset)
            if is_news or answer.tag == DIVERGING_TAG:
                news.append(index)
        return news

    def has_records(self, Py_ssize_t index):
        return self.answers[index].records >= 0

    def frame(self, int32_t version, int32_t correlation_id, int32_t error, int32_t session_id, list chosen):
        """The whole frame that answers with the partitions at these places, or with all, in pieces: large records are
        not copied."""
        cdef Py_ssize_t index
        cdef int64_t size = FRAME_BYTES_MAX
        cdef list topics = self.grouped(chosen)
        cdef FrameWriter out
        for key, places in topics:
            size += TOPIC_BYTES_MAX + (UUID_BYTES if version >= TOPIC_IDS_FROM else 4 * len(key))
            for index in places:
                size += self.bytes_of(index)
        out = FrameWriter(version, size)
        out.p = put32(out.p + 4, correlation_id)
        if version >= FLEXIBLE_FROM:
            out.put_byte(0)
        out.p = put32(out.p, 0)
        if version >= SESSIONS_FROM:
            out.p = put32(put16(out.p, error), session_id)
        out.put_count(<int32_t>len(topics))
        for key, places in topics:
            out.put_topic(key)
            out.put_count(<int32_t>len(places))
            for index in places:
                self.put(out, &self.answers[index], (<WantedPartition>self.wanted[index]).partition)
            out.put_end()
        out.put_end()
        return out.finish()

    cdef list grouped(self, list chosen):
        """The places by topic, in the order in which topics come first."""
        cdef Py_ssize_t index
        cdef object key
        cdef object last = None
        cdef list places = None
        cdef dict topics = {}
        for index in (range(len(self.wanted)) if chosen is None else chosen):
            key = (<WantedPartition>self.wanted[index]).key[0]
            if key is not last:
                places = topics.setdefault(key, [])
                last = key
            places.append(index)
        return list(topics.items())

    cdef int64_t bytes_of(self, Py_ssize_t index) except -1:
        cdef Answer *answer = &self.answers[index]
        cdef int64_t size = PARTITION_BYTES_MAX
        if 0 <= answer.records:
            if answer.size <= INLINE_BYTES_MAX:
                size += answer.size
            if self.aborted is not None and answer.records in self.aborted:
                size += ABORTED_BYTES_MAX * len(self.aborted[answer.records])
        return size

    cdef int put(self, FrameWriter out, const Answer *answer, int32_t partition) except -1:
        cdef object among = None
        out.p = put64(put64(put16(put32(out.p, partition), answer.error), answer.high_watermark),
                      answer.last_stable_offset)
        if out.version >= LOG_START_FROM:
            out.p = put64(out.p, answer.log_start_offset)
        if self.committed and not answer.error:
            if answer.records >= 0 and self.aborted is not None:
                among = self.aborted.get(answer.records)
            out.put_count(0 if among is None else <int32_t>len(among))
            for one in among or ():
                out.p = put64(put64(out.p, one.producer_id), one.first_offset)
                out.put_end()
        else:
            out.put_count(-1)
        if out.version >= REPLICA_FROM:
            out.p = put32(out.p, -1)
        if answer.records < 0:
            out.put_count(0)
        else:
            out.put_count(<int32_t>answer.size)
            out.put_records(self.data[answer.records], answer.size)
        if answer.tag == NO_TAG or out.version < FLEXIBLE_FROM:
            out.put_end()
            return 0
        out.put_byte(1)
        out.put_byte(<uint8_t>answer.tag)
        if answer.tag == DIVERGING_TAG:
            out.put_byte(DIVERGING_BYTES)
            out.p = put64(put32(out.p, answer.epoch), answer.end_offset)
        else:
            out.put_byte(LEADER_BYTES)
            out.p = put32(put32(out.p, self.node.settings.node_id), answer.epoch)
        out.put_end()
        return 0


@cython.final
cdef class FrameWriter:
    """Writes into memory that is large enough from the start."""

    cdef int32_t version
    cdef bytearray memory
    cdef uint8_t *start
    cdef uint8_t *begun  # behind what is in `pieces`
    cdef uint8_t *p
    cdef list pieces
    cdef int64_t apart  # bytes of records that are pieces of their own

    def __cinit__(self, int32_t version, int64_t size):
        self.version = version
        self.memory = bytearray(size)
        self.start = self.begun = self.p = <uint8_t *>PyByteArray_AS_STRING(self.memory)
        self.pieces = []

    cdef void put_byte(self, uint8_t value) noexcept:
        self.p[0] = value
        self.p += 1

    cdef void put_end(self) noexcept:
        """No tagged fields."""
        if self.version >= FLEXIBLE_FROM:
            self.put_byte(0)

    cdef void put_count(self, int32_t count) noexcept:
        """Of an array, or of records; -1 for null."""
        if self.version >= FLEXIBLE_FROM:
            self.p = put_unsigned(self.p, <uint32_t>(count + 1))
        else:
            self.p = put32(self.p, count)

    cdef int put_topic(self, object key) except -1:
        cdef Py_ssize_t size
        cdef const char *text
        if self.version >= TOPIC_IDS_FROM:
            memcpy(self.p, PyBytes_AS_STRING(key), UUID_BYTES)
            self.p += UUID_BYTES
            return 0
        text = PyUnicode_AsUTF8AndSize(key, &size)
        if self.version >= FLEXIBLE_FROM:
            self.p = put_unsigned(self.p, <uint32_t>size + 1)
        else:
            self.p = put16(self.p, <int32_t>size)
        memcpy(self.p, text, size)
        self.p += size
        return 0

    cdef int put_records(self, object data, int64_t size) except -1:
        cdef const char *at = PyBytes_AS_STRING(data) if type(data) is bytes else PyByteArray_AS_STRING(data)
        if size <= INLINE_BYTES_MAX:
            memcpy(self.p, at, size)
            self.p += size
            return 0
        self.pieces.append(memoryview(self.memory)[self.begun - self.start:self.p - self.start])
        self.pieces.append(memoryview(data)[:size])
        self.apart += size
        self.begun = self.p
        return 0

    cdef list finish(self):
        put32(self.start, <int32_t>(self.p - self.start + self.apart - 4))
        self.pieces.append(memoryview(self.memory)[self.begun - self.start:self.p - self.start])
        return self.pieces
