# The records inside batches: validating, decoding, finding one by time.

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void *op)


@cython.final
@cython.freelist(1024)
cdef class Record:
    """One record as a reader gets it. Immutable; equal if all values are; hashed by where it stands in the log.

    >>> record = Record("orders", 0, 5, 1700000000000, 0, b"tx_001", b"paid", (("source", b"web"),))
    >>> record.topic, record.offset, record.key, dict(record.headers)
    ('orders', 5, b'tx_001', {'source': b'web'})
    """

    __match_args__ = (
        "topic", "partition", "offset", "timestamp_ms", "timestamp_type", "key", "value", "headers", "leader_epoch",
    )

    cdef readonly object topic
    cdef readonly object key
    cdef readonly object value
    cdef readonly object headers
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
    cdef readonly int32_t partition
    cdef readonly int32_t timestamp_type
    cdef readonly int32_t leader_epoch

    def __init__(self, topic, int32_t partition, int64_t offset, int64_t timestamp_ms, int32_t timestamp_type, key,
                 value, headers=(), int32_t leader_epoch=-1):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers
        self.leader_epoch = leader_epoch

    def __eq__(self, other):
        return equal(self, other)

    def __hash__(self):
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self):
        return repr_of(self)

    def __reduce__(self):
        return pickled(self)

    cdef str where(self):
        return f"{self.topic}-{self.partition} at offset {self.offset}"

    def json(self):
        """The value parsed as JSON; None for a tombstone.

        >>> Record("orders", 0, 5, 0, 0, None, b'{"n": 1}').json()
        {'n': 1}
        """
        if self.value is None:
            return None
        try:
            return _json.loads(self.value)
        except (ValueError, TypeError) as error:
            raise SerializationError(f"the value of {self.where()} is not JSON: {error}") from error
        except RecursionError as error:
            raise SerializationError(f"the value of {self.where()} is JSON nested too deep to be read here") from error

    def text(self):
        """The value as UTF-8 text; None for a tombstone.

        >>> Record("orders", 0, 5, 0, 0, None, b"paid").text()
        'paid'
        """
        if self.value is None:
            return None
        try:
            return str(self.value, "utf-8")
        except (ValueError, TypeError) as error:
            raise SerializationError(f"the value of {self.where()} is not UTF-8 text: {error}") from error

    def replace(self, *, key=..., value=...):
        """A copy of the record with another key or value.

        >>> Record("orders", 0, 5, 0, 0, None, b"paid").replace(value=None).value is None
        True
        """
        cdef Record made = Record.__new__(Record)
        made.topic = self.topic
        made.partition = self.partition
        made.offset = self.offset
        made.timestamp_ms = self.timestamp_ms
        made.timestamp_type = self.timestamp_type
        made.key = self.key if key is ... else key
        made.value = self.value if value is ... else value
        made.headers = self.headers
        made.leader_epoch = self.leader_epoch
        return made


@cython.final
cdef class Body:
    """A batch's records, expanded if need be. Owns the expanded bytes until the next `open`."""

    cdef Bytes expanded
    cdef const uint8_t *start
    cdef const uint8_t *end

    def __cinit__(self):
        self.expanded = Bytes.__new__(Bytes)

    cdef int open(self, const uint8_t *data, const Header *header, int64_t decompressed_limit, Cursor *cursor,
                  bint dense=False) except -1:
        """Put the cursor at the first record. `dense`: for who checks a batch, and forgets its records."""
        cdef int fault
        self.start = data + header.position + RECORDS_AT
        self.end = data + header.position + header.size
        if header.record_count and header.attributes & COMPRESSION_MASK:
            self.expand(header, decompressed_limit, dense)
        fault = point(cursor, header, self.start, self.end)
        if fault:
            broken(fault, header.position)
        cursor.dense = dense
        return 0

    cdef int expand(self, const Header *header, int64_t decompressed_limit, bint briefly) except -1:
        compressed = PyMemoryView_FromMemory(<char *>self.start, self.end - self.start, 0x100)
        try:
            expanded = _decompress(header.attributes & COMPRESSION_MASK, compressed, decompressed_limit, briefly)
            self.expanded.hold(expanded)
        except InvalidBatch as error:
            raise type(error)(error.reason, header.position) from None
        self.start = self.expanded.data
        self.end = self.start + self.expanded.size
        return 0


cdef Body new_body():
    return Body.__new__(Body)


cdef inline int64_t seen_timestamp(const Header *header, const Fields *record) noexcept nogil:
    return header.max_timestamp if header.attributes & LOG_APPEND_TIME else record.timestamp


cdef int check_records(const Cursor *records, int64_t *max_timestamp, int32_t *keyless_count) noexcept nogil:
    cdef Cursor cursor = records[0]
    cdef Fields record
    cdef int fault
    cdef int64_t latest = -INT64_MAX
    cdef int32_t keyless = 0
    while cursor.left > 0:
        fault = next_record(&cursor, &record)
        if fault:
            return fault
        keyless += record.key_bytes < 0
        if record.timestamp > latest:
            latest = record.timestamp
    max_timestamp[0] = latest
    keyless_count[0] = keyless
    return end_of_records(&cursor)


cdef int check_produced(const uint8_t *data, int64_t position, int64_t end, int64_t max_batch_bytes,
                        int64_t decompressed_limit, Body body, Header *header, int32_t *keyless_count) except -1:
    """The header of the batch at `position`, if everything about it is right; its `max_timestamp` is the largest found.

    Raises InvalidBatch or RecordTooLarge.
    """
    cdef Cursor cursor
    cdef int64_t max_timestamp = 0
    cdef int fault = read_header(data, position, end, False, header)
    if fault:
        broken(fault, position)
    if header.size > max_batch_bytes:
        raise RecordTooLarge(header.size, max_batch_bytes)
    if header.record_count == 0:
        broken(FAULT_NO_RECORDS, position)
    if header.last_offset_delta != header.record_count - 1:
        broken(FAULT_COUNT, position)
    if crc_of(data + position + ATTRIBUTES_AT, header.size - ATTRIBUTES_AT) != header.crc:
        broken(FAULT_CRC, position)
    body.open(data, header, decompressed_limit, &cursor, True)
    if cursor.end - cursor.at >= UNLOCKED_BYTES:
        with nogil:
            fault = check_records(&cursor, &max_timestamp, keyless_count)
    else:
        fault = check_records(&cursor, &max_timestamp, keyless_count)
    if fault:
        broken(fault, position)
    if not header.attributes & LOG_APPEND_TIME:
        header.max_timestamp = max_timestamp
    return 0


def validate(buffer, *, int64_t max_batch_bytes, int64_t decompressed_limit):
    """The headers of one or more batches as a producer sent them, if everything about them is right.

    The whole buffer has to be used; each batch's length, CRC, codec, counts, offset deltas (0 to n-1) and every
    length inside are checked, compressed ones after expansion. Fills `keyless_count`, and `max_timestamp` with the
    largest found (`assign_offsets` writes it). Raises InvalidBatch or RecordTooLarge.
    """
    cdef Bytes view = bytes_of(buffer)
    cdef Body body = new_body()
    cdef list headers = []
    cdef BatchHeader made
    cdef Header header
    cdef int64_t position = 0
    cdef int32_t keyless_count = 0
    if view.size == 0:
        broken(FAULT_NO_RECORDS, 0)
    while position < view.size:
        check_produced(view.data, position, view.size, max_batch_bytes, decompressed_limit, body, &header,
                       &keyless_count)
        made = header_object(&header)
        made.keyless_count = keyless_count
        headers.append(made)
        position += header.size
    return headers


cdef inline object field_of(const uint8_t *data, int32_t size):
    if size < 0:
        return None
    return PyBytes_FromStringAndSize(<const char *>data, size)


cdef tuple headers_of(const Fields *record):
    """The record's headers; their lengths were checked when it was read."""
    cdef const uint8_t *p = record.headers
    cdef int32_t size = 0
    cdef int32_t index
    cdef list found = []
    for index in range(record.header_count):
        read32(&p, record.end, &size)
        name = PyUnicode_DecodeUTF8(<char *>p, size, "replace")
        p += size
        read32(&p, record.end, &size)
        found.append((name, field_of(p, size)))
        if size > 0:
            p += size
    return tuple(found)


def decode(buffer, str topic, int32_t partition, *, int64_t start_offset=0, int64_t end_offset=INT64_MAX,
           int64_t max_records=INT64_MAX, int64_t decompressed_limit=READ_DECOMPRESSED_BYTES,
           int64_t enough_bytes=INT64_MAX):
    """Records with start_offset <= offset < end_offset of all batches in the buffer, and the offset to go on from.

    Control batches are skipped. CRCs are not checked: `walk` did. The second value is the offset after the last
    record if `max_records` was reached, else the end of the last batch, but never outside the range asked for. Ends
    behind the batch with which `enough_bytes` are expanded: nobody sees from outside what batches hold.
    """
    cdef list records = []
    cdef int64_t expanded = 0
    cdef int64_t next_offset = start_offset
    cdef int64_t position = 0
    cdef int64_t offset
    cdef int fault
    cdef Bytes view
    cdef Body body
    cdef Header header
    cdef Cursor cursor
    cdef Fields fields
    cdef Record made
    cdef tuple no_headers = ()
    if max_records <= 0:
        return records, next_offset
    view = bytes_of(buffer)
    body = new_body()
    while position < view.size:
        fault = read_header(view.data, position, view.size, True, &header)
        if fault:
            broken(fault, position)
        position += header.size
        if header.base_offset >= end_offset:
            break
        if next_offset_of(&header) <= start_offset:
            continue
        next_offset = min(next_offset_of(&header), end_offset)
        if header.attributes & CONTROL:
            continue
        body.open(view.data, &header, decompressed_limit, &cursor)
        expanded += cursor.end - cursor.at
        while cursor.left > 0:
            fault = next_record(&cursor, &fields)
            if fault:
                broken(fault, header.position)
            offset = header.base_offset + fields.offset_delta
            if not start_offset <= offset < end_offset:
                continue
            made = Record.__new__(Record)
            made.topic = topic
            made.partition = partition
            made.offset = offset
            made.timestamp_ms = seen_timestamp(&header, &fields)
            made.timestamp_type = 1 if header.attributes & LOG_APPEND_TIME else 0
            made.key = field_of(fields.key, fields.key_bytes)
            made.value = field_of(fields.value, fields.value_bytes)
            made.headers = headers_of(&fields) if fields.header_count else no_headers
            made.leader_epoch = header.leader_epoch
            # It holds only bytes and strings, so it can be in no cycle: the collector need not visit millions of it.
            PyObject_GC_UnTrack(<void *>made)
            records.append(made)
            if len(records) == max_records:
                return records, offset + 1
        fault = end_of_records(&cursor)
        if fault:
            broken(fault, header.position)
        if expanded >= enough_bytes:
            break
    return records, next_offset


def beginnings(buffer, int32_t length, *, int64_t decompressed_limit):
    """The first `length` bytes of all keys, and of all values, of batches as a producer sent them; nulls have none.

    Lengths and counts are checked, CRCs are not: the append does. Raises InvalidBatch.
    """
    cdef set keys = set()
    cdef set values = set()
    cdef Bytes view = bytes_of(buffer)
    cdef Body body = new_body()
    cdef Header header
    cdef Cursor cursor
    cdef Fields fields
    cdef int64_t position = 0
    cdef int fault
    cdef const uint8_t *last_key = NULL
    cdef const uint8_t *last_value = NULL
    cdef int32_t key_bytes
    cdef int32_t value_bytes
    while position < view.size:
        fault = read_header(view.data, position, view.size, False, &header)
        if fault:
            broken(fault, position)
        position += header.size
        body.open(view.data, &header, decompressed_limit, &cursor, True)
        last_key = last_value = NULL  # they point into the body
        key_bytes = value_bytes = 0
        while cursor.left > 0:
            fault = next_record(&cursor, &fields)
            if fault:
                broken(fault, header.position)
            # A batch has few beginnings: most records have that of the one before.
            if fields.key_bytes >= 0:
                fields.key_bytes = min(fields.key_bytes, length)
                if last_key == NULL or key_bytes != fields.key_bytes or memcmp(last_key, fields.key, key_bytes):
                    last_key, key_bytes = fields.key, fields.key_bytes
                    keys.add(field_of(last_key, key_bytes))
            if fields.value_bytes >= 0:
                fields.value_bytes = min(fields.value_bytes, length)
                if last_value == NULL or value_bytes != fields.value_bytes or memcmp(last_value, fields.value,
                                                                                     value_bytes):
                    last_value, value_bytes = fields.value, fields.value_bytes
                    values.add(field_of(last_value, value_bytes))
        fault = end_of_records(&cursor)
        if fault:
            broken(fault, header.position)
    return keys, values


def offset_at_time(buffer, int64_t timestamp_ms, int64_t start_offset=0, *,
                   int64_t decompressed_limit=READ_DECOMPRESSED_BYTES):
    """(offset, timestamp) of the first data record at or after that time in these batches, from `start_offset` on."""
    cdef Bytes view = bytes_of(buffer)
    cdef Body body = new_body()
    cdef Header header
    cdef Cursor cursor
    cdef Fields fields
    cdef int64_t position = 0
    cdef int64_t offset
    cdef int64_t timestamp
    cdef int fault
    while position < view.size:
        fault = read_header(view.data, position, view.size, True, &header)
        if fault:
            broken(fault, position)
        position += header.size
        if (header.max_timestamp < timestamp_ms or next_offset_of(&header) <= start_offset
                or header.attributes & CONTROL):
            continue
        body.open(view.data, &header, decompressed_limit, &cursor)
        while cursor.left > 0:
            fault = next_record(&cursor, &fields)
            if fault:
                broken(fault, header.position)
            offset = header.base_offset + fields.offset_delta
            timestamp = seen_timestamp(&header, &fields)
            if offset >= start_offset and timestamp >= timestamp_ms:
                return offset, timestamp
        fault = end_of_records(&cursor)
        if fault:
            broken(fault, header.position)
    return None
