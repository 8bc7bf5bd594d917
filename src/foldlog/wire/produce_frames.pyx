# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: embedsignature=True, auto_pickle=False
"""Produce requests, any number of them in one piece of memory, read and answered without building messages.

Only numbers and positions are kept. A frame that is not of the usual shape (tagged fields, null or empty arrays, numbers
that are written longer than they have to be) ends the run: it is the codec's, with all behind it. For the others the
answers are the codec's bytes, which the tests compare. Nothing here trusts a length or a count.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from foldlog.records.kernels cimport Produced, ProducedBatches, Target

cdef enum:
    PRODUCE_KEY = 0
    LENGTH_BYTES = 4
    HEADER_BYTES = 10
    FIRST = 3
    LAST = 13
    LOG_START_FROM = 5
    RECORD_ERRORS_FROM = 8
    FLEXIBLE_FROM = 9
    TOPIC_IDS_FROM = 13
    UUID_BYTES = 16
    PARTITION_BYTES_MAX = 4 + 2 + 8 + 8 + 8 + 6
    TOPIC_BYTES_MAX = 5 + 5 + 1
    FRAME_BYTES_MAX = 4 + 4 + 1 + 5 + 5
    DISTINCT_LOOKED_AT = 8


include "compiled/fields.pxi"


cdef struct Frame:
    int32_t correlation_id
    int32_t first_topic
    int32_t topic_count
    int64_t end

cdef struct Topic:
    int64_t name_at
    int32_t name_bytes
    int32_t first_batch
    int32_t batch_count
    int32_t distinct


@cython.final
cdef class ProduceFrames:
    """A run of Produce requests of one version, with the same acks, timeout and transactional id. Reused from run to run.

    `batches` are those of its frames. `topics` are names in UTF-8, or from version 13 on ids; the same one may be there
    twice.
    """

    cdef readonly ProducedBatches batches
    cdef readonly int32_t version
    cdef readonly int32_t acks
    cdef readonly int32_t timeout_ms
    cdef readonly object transactional_id
    cdef readonly list topics
    cdef Frame *frames
    cdef int32_t frame_capacity
    cdef int32_t frame_count
    cdef Topic *named
    cdef int32_t named_capacity
    cdef int32_t named_count
    cdef int32_t distinct_at[8]

    def __cinit__(self):
        self.batches = ProducedBatches.__new__(ProducedBatches)
        self.frames = NULL
        self.named = NULL
        self.frame_capacity = self.named_capacity = 0

    def __dealloc__(self):
        free(self.frames)
        free(self.named)

    def read(self, buffer, int64_t position, int64_t end, int64_t frame_bytes_max, int32_t frames_max,
             int64_t run_bytes_max):
        """Read the frames from `position` on, each with its length before it, as far as they are whole and of one run:
        no more than so many, and no more bytes than so many. Returns how many were read. `batches.end` has
        to be called when the memory is used for something else."""
        cdef const uint8_t *data
        cdef int64_t size
        cdef int64_t at = position
        cdef int32_t topics
        cdef int32_t batches
        self.batches.begin(buffer)
        data = self.batches.view.data
        end = min(end, self.batches.view.size)
        self.frame_count = self.named_count = 0
        self.topics = []
        self.transactional_id = None
        while self.frame_count < frames_max and end - at >= LENGTH_BYTES + HEADER_BYTES:
            size = big32(data + at)
            if size < HEADER_BYTES or size > frame_bytes_max or size > end - at - LENGTH_BYTES:
                break
            if at + size - position > run_bytes_max:
                break
            topics, batches = self.named_count, self.batches.count
            known = len(self.topics)
            if not self.read_frame(data, at + LENGTH_BYTES, at + LENGTH_BYTES + size):
                self.named_count, self.batches.count = topics, batches
                del self.topics[known:]
                break
            at += LENGTH_BYTES + size
        self.batches.frames = self.frame_count
        return self.frame_count

    cdef bint read_frame(self, const uint8_t *data, int64_t start, int64_t end) except -1:
        """Whether the request there is one of this run; it is added then."""
        cdef Reader reader
        cdef Frame *frame
        cdef const uint8_t *id_at
        cdef int32_t version = big16(data + start + 2)
        cdef bint is_flexible = version >= FLEXIBLE_FROM
        cdef int32_t length
        cdef int32_t count
        cdef int32_t acks
        cdef int32_t timeout_ms
        cdef object transactional_id = None
        if big16(data + start) != PRODUCE_KEY or not FIRST <= version <= LAST:
            return False
        reader.at = data + start + 8
        reader.end = data + end
        reader.failed = False
        length = read_length(&reader, False, False)  # the client's id, whose length is never a compact one
        if not skip_ascii(&reader, length):
            return False
        if is_flexible:
            read_no_tags(&reader)
        length = read_length(&reader, is_flexible, False)
        id_at = reader.at
        if not skip_ascii(&reader, length):
            return False
        acks = read16(&reader)
        timeout_ms = read32(&reader)
        count = read_length(&reader, is_flexible, True)
        if reader.failed or count < 1:
            return False
        if length >= 0:
            transactional_id = PyBytes_FromStringAndSize(<const char *>id_at, length)
        if self.frame_count == 0:
            self.version, self.acks, self.timeout_ms = version, acks, timeout_ms
            self.transactional_id = transactional_id
        elif (version != self.version or acks != self.acks or timeout_ms != self.timeout_ms
              or transactional_id != self.transactional_id):
            return False
        frame = self.new_frame()
        frame.correlation_id = big32(data + start + 4)
        frame.first_topic = self.named_count
        frame.topic_count = count
        frame.end = end
        for _ in range(count):
            self.read_topic(&reader, data, is_flexible)
            if reader.failed:
                return False
        if is_flexible:
            read_no_tags(&reader)
        if reader.failed or reader.at != reader.end:
            return False
        self.frame_count += 1
        return True

    cdef int read_topic(self, Reader *reader, const uint8_t *data, bint is_flexible) except -1:
        cdef Topic *topic
        cdef int32_t length
        cdef int32_t count
        cdef int32_t number
        if self.version >= TOPIC_IDS_FROM:
            length = UUID_BYTES
            if reader.end - reader.at < UUID_BYTES:
                reader.failed = True
        else:
            length = read_length(reader, is_flexible, False)
        if reader.failed or length < 0:
            reader.failed = True
            return 0
        topic = self.new_topic()
        topic.name_at = reader.at - data
        topic.name_bytes = length
        topic.first_batch = self.batches.count
        topic.distinct = self.distinct(data, topic)
        reader.at += length
        count = read_length(reader, is_flexible, True)
        if count < 1:
            reader.failed = True
        topic.batch_count = count
        while count > 0 and not reader.failed:
            number = read32(reader)
            length = read_length(reader, is_flexible, True)
            if reader.failed or length < 0:
                reader.failed = True
                break
            self.batches.add(reader.at - data, length, self.frame_count, topic.distinct, number)
            reader.at += length
            if is_flexible:
                read_no_tags(reader)
            count -= 1
        if is_flexible:
            read_no_tags(reader)
        return 0

    cdef int32_t distinct(self, const uint8_t *data, const Topic *topic) except -1:
        """Its place in `topics`. Only the newest few are compared with: a request seldom has many, and may have any."""
        cdef Topic *other
        cdef int32_t place
        cdef int32_t known = <int32_t>len(self.topics)
        for place in range(known - 1, max(-1, known - 1 - DISTINCT_LOOKED_AT), -1):
            other = &self.named[self.distinct_at[place % DISTINCT_LOOKED_AT]]
            if (other.name_bytes == topic.name_bytes
                    and memcmp(data + other.name_at, data + topic.name_at, topic.name_bytes) == 0):
                return place
        self.distinct_at[known % DISTINCT_LOOKED_AT] = self.named_count - 1
        self.topics.append(PyBytes_FromStringAndSize(<const char *>data + topic.name_at, topic.name_bytes))
        return known

    cdef Frame *new_frame(self) except NULL:
        cdef Frame *grown
        if self.frame_count == self.frame_capacity:
            grown = <Frame *>realloc(self.frames, max(64, 2 * self.frame_capacity) * sizeof(Frame))
            if grown == NULL:
                raise MemoryError
            self.frames = grown
            self.frame_capacity = max(64, 2 * self.frame_capacity)
        return &self.frames[self.frame_count]

    cdef Topic *new_topic(self) except NULL:
        cdef Topic *grown
        if self.named_count == self.named_capacity:
            grown = <Topic *>realloc(self.named, max(64, 2 * self.named_capacity) * sizeof(Topic))
            if grown == NULL:
                raise MemoryError
            self.named = grown
            self.named_capacity = max(64, 2 * self.named_capacity)
        self.named_count += 1
        return &self.named[self.named_count - 1]

    @property
    def names_topics_by_id(self):
        return self.version >= TOPIC_IDS_FROM

    @property
    def correlation_id(self):
        """Of the first frame."""
        return self.frames[0].correlation_id

    @property
    def end(self):
        """The position behind the last frame of the run, as far as it was not cut."""
        return self.frames[self.batches.frames - 1].end

    def answers(self):
        """The frames that acknowledge the batches of the run, one behind the other."""
        cdef const uint8_t *data = self.batches.view.data
        cdef int64_t size = 0
        cdef int32_t index
        cdef int32_t at
        cdef Frame *frame
        cdef uint8_t *start
        cdef uint8_t *p
        for index in range(self.batches.frames):
            frame = &self.frames[index]
            size += FRAME_BYTES_MAX
            for at in range(frame.first_topic, frame.first_topic + frame.topic_count):
                size += TOPIC_BYTES_MAX + self.named[at].name_bytes + self.named[at].batch_count * PARTITION_BYTES_MAX
        memory = PyBytes_FromStringAndSize(NULL, size)
        start = p = <uint8_t *>PyBytes_AS_STRING(memory)
        for index in range(self.batches.frames):
            p = self.answer(data, &self.frames[index], p)
        return memory[:p - start]

    cdef uint8_t *answer(self, const uint8_t *data, const Frame *frame, uint8_t *start) noexcept:
        cdef uint8_t *p = put32(start + LENGTH_BYTES, frame.correlation_id)
        cdef bint is_flexible = self.version >= FLEXIBLE_FROM
        cdef int32_t at
        cdef int32_t index
        cdef Topic *topic
        if is_flexible:
            p[0] = 0  # tagged fields of the header
            p = put_unsigned(p + 1, <uint32_t>frame.topic_count + 1)
        else:
            p = put32(p, frame.topic_count)
        for at in range(frame.first_topic, frame.first_topic + frame.topic_count):
            topic = &self.named[at]
            if self.version < FLEXIBLE_FROM:
                p = put16(p, topic.name_bytes)
            elif self.version < TOPIC_IDS_FROM:
                p = put_unsigned(p, <uint32_t>topic.name_bytes + 1)
            memcpy(p, data + topic.name_at, topic.name_bytes)
            p += topic.name_bytes
            p = put_unsigned(p, <uint32_t>topic.batch_count + 1) if is_flexible else put32(p, topic.batch_count)
            for index in range(topic.first_batch, topic.first_batch + topic.batch_count):
                p = self.answer_partition(&self.batches.batches[index], p)
            if is_flexible:
                p[0] = 0
                p += 1
        p = put32(p, 0)  # no throttling: who has a quota is answered by the handler
        if is_flexible:
            p[0] = 0
            p += 1
        put32(start, <int32_t>(p - start - LENGTH_BYTES))
        return p

    cdef uint8_t *answer_partition(self, const Produced *batch, uint8_t *p) noexcept:
        cdef Target *target = &self.batches.targets[batch.target]
        p = put16(put32(p, batch.number), 0)
        p = put64(put64(p, batch.header.base_offset), target.append_time_ms)
        if self.version >= LOG_START_FROM:
            p = put64(p, target.log_start_offset)
        if self.version >= FLEXIBLE_FROM:
            p[0] = 1  # no record errors, no message, no tagged fields
            p[1] = p[2] = 0
            return p + 3
        if self.version >= RECORD_ERRORS_FROM:
            return put16(put32(p, 0), -1)
        return p
