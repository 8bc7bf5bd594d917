# Making batches: from records one at a time, empty ones, and control markers; and Kafka's key hash.

cdef void put_header(uint8_t *p, int64_t size, const Header *header) noexcept nogil:
    """The 61 bytes before the records, but for the CRC."""
    fl_put64(p, <uint64_t>header.base_offset)
    fl_put32(p + LENGTH_AT, <uint32_t>(size - LENGTH_PREFIX_BYTES))
    fl_put32(p + LEADER_EPOCH_AT, <uint32_t>header.leader_epoch)
    p[MAGIC_AT] = MAGIC
    fl_put16(p + ATTRIBUTES_AT, <uint16_t>header.attributes)
    fl_put32(p + LAST_OFFSET_DELTA_AT, <uint32_t>header.last_offset_delta)
    fl_put64(p + BASE_TIMESTAMP_AT, <uint64_t>header.base_timestamp)
    fl_put64(p + MAX_TIMESTAMP_AT, <uint64_t>header.max_timestamp)
    fl_put64(p + PRODUCER_ID_AT, <uint64_t>header.producer_id)
    fl_put16(p + PRODUCER_EPOCH_AT, <uint16_t>header.producer_epoch)
    fl_put32(p + BASE_SEQUENCE_AT, <uint32_t>header.base_sequence)
    fl_put32(p + RECORD_COUNT_AT, <uint32_t>header.record_count)


cdef bytearray seal(const uint8_t *records, int64_t records_bytes, const Header *header, object level=None):
    """A whole batch around records that are not compressed yet; the header's attributes say how they shall be."""
    cdef Bytes compressed = None
    cdef bytearray out
    cdef uint8_t *p
    cdef int64_t size
    if header.attributes & COMPRESSION_MASK:
        plain = PyMemoryView_FromMemory(<char *>records, records_bytes, 0x100)
        compressed = bytes_of(_compress(header.attributes & COMPRESSION_MASK, plain, level))
        records = compressed.data
        records_bytes = compressed.size
    size = RECORDS_AT + records_bytes
    if size > BATCH_BYTES_MAX:
        raise RecordTooLarge(size, BATCH_BYTES_MAX)
    out = PyByteArray_FromStringAndSize(NULL, size)
    p = <uint8_t *>PyByteArray_AS_STRING(out)
    put_header(p, size, header)
    if records_bytes:
        memcpy(p + RECORDS_AT, records, <size_t>records_bytes)
    fl_put32(p + CRC_AT, crc_of(p + ATTRIBUTES_AT, size - ATTRIBUTES_AT))
    return out


cdef object wrong_type(str what, object data):
    return TypeError(f"a record's {what} has to be bytes or None, not {type(data).__name__}")


cdef inline int64_t hold_field(Bytes holder, object data, const uint8_t **start, str what) except -2:
    """The field's size and where it starts, -1 for None. `holder` keeps a buffer other than bytes open."""
    if data is None:
        return -1
    if type(data) is bytes:
        start[0] = <const uint8_t *>PyBytes_AS_STRING(data)
        return PyBytes_GET_SIZE(data)
    try:
        holder.hold(data)
    except TypeError:
        raise wrong_type(what, data) from None
    start[0] = holder.data
    return holder.size


cdef bytes header_bytes(object headers):
    """The header count and the headers, as they stand in a record."""
    cdef list pieces = []
    cdef uint8_t length[10]
    cdef tuple items = tuple(headers)
    cdef int64_t total
    pieces.append(PyBytes_FromStringAndSize(<char *>length, put_varint(length, len(items)) - length))
    for item in items:
        try:
            key, value = item
        except (TypeError, ValueError):
            raise TypeError(f"a record header has to be a pair (str, bytes or None), not {item!r}") from None
        if not isinstance(key, str):
            raise TypeError(f"a record header's key has to be str, not {type(key).__name__}")
        key = (<str>key).encode()
        pieces.append(PyBytes_FromStringAndSize(<char *>length, put_varint(length, len(key)) - length))
        pieces.append(key)
        if value is None:
            pieces.append(b"\x01")
            continue
        if isinstance(value, str):
            value = (<str>value).encode()
        elif type(value) is not bytes:
            try:
                value = bytes(memoryview(value))
            except TypeError:
                raise wrong_type("header value", value) from None
        pieces.append(PyBytes_FromStringAndSize(<char *>length, put_varint(length, len(value)) - length))
        pieces.append(value)
    return b"".join(pieces)


@cython.final
cdef class BatchBuilder:
    """Collects records into one batch. Not thread-safe; one owner at a time. `clear` makes it ready for the next."""

    def __cinit__(self):
        self.memory = NULL
        self.capacity = 0
        self.key_holder = Bytes.__new__(Bytes)
        self.value_holder = Bytes.__new__(Bytes)
        self.clear()

    def __init__(self, int64_t max_bytes, int64_t max_records=INT32_MAX):
        if max_bytes < 1 or not 1 <= max_records <= INT32_MAX:
            raise InvalidArgument(f"a batch of at most {max_bytes} bytes and {max_records} records is not possible")
        self.max_bytes = max_bytes
        self.max_records = max_records

    def __dealloc__(self):
        free(self.memory)

    cdef int reserve(self, int64_t size) except -1:
        cdef uint8_t *grown
        cdef int64_t wanted
        if size <= self.capacity:
            return 0
        wanted = max(size, min(2 * self.capacity, self.max_bytes), 1024)
        grown = <uint8_t *>realloc(self.memory, <size_t>wanted)
        if grown == NULL:
            raise MemoryError
        self.memory = grown
        self.capacity = wanted
        return 0

    def append(self, timestamp_ms, key, value, headers=()):
        """The record's index in the batch, or -1 if it no longer fits. A first record always fits."""
        cdef int64_t timestamp
        try:
            timestamp = timestamp_ms
        except OverflowError:
            timestamp = -2
        if not -1 <= timestamp < INT64_MAX:
            raise InvalidArgument(f"timestamp_ms {timestamp_ms} is out of range; -1 means none")
        return self.put(timestamp, key, value, headers)

    cdef int64_t put(self, int64_t timestamp, object key, object value, object headers) except -2:
        """`append`, with a time that is in range."""
        cdef const uint8_t *key_data = NULL
        cdef const uint8_t *value_data = NULL
        cdef int64_t key_bytes
        cdef int64_t value_bytes
        cdef int64_t delta
        cdef int64_t length
        cdef int64_t size
        cdef bytes extra = None
        cdef uint8_t *p
        try:
            key_bytes = hold_field(self.key_holder, key, &key_data, "key")
            value_bytes = hold_field(self.value_holder, value, &value_data, "value")
            delta = timestamp - self.base_timestamp if self.count else 0
            length = 1 + varint_bytes(delta) + varint_bytes(self.count) + varint_bytes(key_bytes) + varint_bytes(value_bytes)
            length += (key_bytes if key_bytes > 0 else 0) + (value_bytes if value_bytes > 0 else 0)
            if headers:
                extra = header_bytes(headers)
                length += PyBytes_GET_SIZE(extra)
            else:
                length += 1
            size = self.size_bytes + varint_bytes(length) + length
            if self.count and (size > self.max_bytes or self.count >= self.max_records):
                return -1
            if size > BATCH_BYTES_MAX:
                raise RecordTooLarge(size, BATCH_BYTES_MAX)
            self.reserve(size)
            p = put_varint(self.memory + self.size_bytes, length)
            p[0] = 0
            p = put_varint(p + 1, delta)
            p = put_varint(p, self.count)
            p = put_field(p, key_data, key_bytes)
            p = put_field(p, value_data, value_bytes)
            if extra is None:
                p[0] = 0
            else:
                memcpy(p, PyBytes_AS_STRING(extra), <size_t>PyBytes_GET_SIZE(extra))
        finally:
            self.key_holder.release()
            self.value_holder.release()
        if self.count == 0:
            self.base_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.size_bytes = size
        self.count += 1
        return self.count - 1

    def build(self, int compression=0, *, level=None, int64_t producer_id=-1, int16_t producer_epoch=-1,
              int32_t base_sequence=-1, bint transactional=False, int64_t base_offset=0):
        """The whole batch, CRC included. The builder keeps its records until `clear`."""
        cdef Header header
        if self.count == 0:
            raise InvalidArgument("a batch needs at least one record")
        if compression != 0 or level is not None:
            _check_codec(compression, level)
        header.base_offset = base_offset
        header.leader_epoch = -1
        header.attributes = compression | (TRANSACTIONAL if transactional else 0)
        header.last_offset_delta = <int32_t>(self.count - 1)
        header.base_timestamp = self.base_timestamp
        header.max_timestamp = self.max_timestamp
        header.producer_id = producer_id
        header.producer_epoch = producer_epoch
        header.base_sequence = base_sequence
        header.record_count = <int32_t>self.count
        return seal(self.memory + RECORDS_AT, self.size_bytes - RECORDS_AT, &header, level)

    def clear(self):
        """Forget all records."""
        self.count = 0
        self.size_bytes = RECORDS_AT
        self.base_timestamp = -1
        self.max_timestamp = -1


def pack(records, int compression=0, *, level=None, int64_t producer_id=-1, int16_t producer_epoch=-1,
         int32_t base_sequence=-1, bint transactional=False, int64_t base_offset=0):
    """One batch of all the records, each (timestamp_ms, key, value, headers)."""
    cdef BatchBuilder builder = BatchBuilder(BATCH_BYTES_MAX)
    for timestamp_ms, key, value, headers in records:
        if builder.append(timestamp_ms, key, value, headers) < 0:
            raise RecordTooLarge(builder.size_bytes, BATCH_BYTES_MAX)
    return builder.build(compression, level=level, producer_id=producer_id, producer_epoch=producer_epoch,
                         base_sequence=base_sequence, transactional=transactional, base_offset=base_offset)


cdef void copy_header(BatchHeader source, Header *header):
    header.base_offset = source.base_offset
    header.leader_epoch = source.leader_epoch
    header.attributes = source.attributes
    header.last_offset_delta = source.last_offset_delta
    header.base_timestamp = source.base_timestamp
    header.max_timestamp = source.max_timestamp
    header.producer_id = source.producer_id
    header.producer_epoch = source.producer_epoch
    header.base_sequence = source.base_sequence
    header.record_count = source.record_count


cdef bytearray emptied(const Header *header):
    cdef Header empty = header[0]
    empty.attributes &= LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
    empty.base_timestamp = -1
    empty.record_count = 0
    return seal(NULL, 0, &empty)


def empty_batch(BatchHeader header not None):
    """A batch without records that keeps the offsets, the epoch and the producer's numbers: what compaction leaves."""
    cdef Header source
    copy_header(header, &source)
    return bytes(emptied(&source))


def control_batch(int kind, int32_t coordinator_epoch, int64_t producer_id, int16_t producer_epoch,
                  int64_t timestamp_ms):
    """The marker that ends a transaction: kind 0 aborts, 1 commits."""
    cdef BatchBuilder builder
    cdef Header header
    if kind != 0 and kind != 1:
        raise InvalidArgument(f"there is no control record of kind {kind}; 0 is abort, 1 is commit")
    builder = BatchBuilder(BATCH_BYTES_MAX)
    key = b"\x00\x00" + kind.to_bytes(2, "big")
    builder.append(timestamp_ms, key, b"\x00\x00" + coordinator_epoch.to_bytes(4, "big", signed=True))
    header.base_offset = 0
    header.leader_epoch = -1
    header.attributes = CONTROL | TRANSACTIONAL
    header.last_offset_delta = 0
    header.base_timestamp = timestamp_ms
    header.max_timestamp = timestamp_ms
    header.producer_id = producer_id
    header.producer_epoch = producer_epoch
    header.base_sequence = -1
    header.record_count = 1
    return seal(builder.memory + RECORDS_AT, builder.size_bytes - RECORDS_AT, &header)


cdef uint32_t murmur2_of(const uint8_t *data, uint32_t size) noexcept nogil:
    cdef uint32_t multiplier = 0x5BD1E995
    cdef uint32_t digest = <uint32_t>0x9747B28C ^ size
    cdef uint32_t word
    cdef uint32_t left = size
    while left >= 4:
        word = fl_little32(data) * multiplier
        word = (word ^ (word >> 24)) * multiplier
        digest = digest * multiplier ^ word
        data += 4
        left -= 4
    if left == 3:
        digest ^= <uint32_t>data[2] << 16
    if left >= 2:
        digest ^= <uint32_t>data[1] << 8
    if left >= 1:
        digest = (digest ^ data[0]) * multiplier
    digest = (digest ^ (digest >> 13)) * multiplier
    return digest ^ (digest >> 15)


def murmur2(key):
    """Kafka's hash of a key, as a signed int32. A partition is `(murmur2(key) & 0x7fffffff) % partitions`."""
    cdef Bytes view = bytes_of(key)
    return <int32_t>murmur2_of(view.data, <uint32_t>view.size)
