# Batch headers: walking, checking epochs, assigning offsets; records are not looked into.

cdef inline void parse_header(const uint8_t *p, int64_t position, Header *header) noexcept nogil:
    header.position = position
    header.base_offset = <int64_t>fl_big64(p)
    header.size = LENGTH_PREFIX_BYTES + <int64_t><int32_t>fl_big32(p + LENGTH_AT)
    header.leader_epoch = <int32_t>fl_big32(p + LEADER_EPOCH_AT)
    header.magic = <int8_t>p[MAGIC_AT]
    header.crc = fl_big32(p + CRC_AT)
    header.attributes = <int16_t>fl_big16(p + ATTRIBUTES_AT)
    header.last_offset_delta = <int32_t>fl_big32(p + LAST_OFFSET_DELTA_AT)
    header.base_timestamp = <int64_t>fl_big64(p + BASE_TIMESTAMP_AT)
    header.max_timestamp = <int64_t>fl_big64(p + MAX_TIMESTAMP_AT)
    header.producer_id = <int64_t>fl_big64(p + PRODUCER_ID_AT)
    header.producer_epoch = <int16_t>fl_big16(p + PRODUCER_EPOCH_AT)
    header.base_sequence = <int32_t>fl_big32(p + BASE_SEQUENCE_AT)
    header.record_count = <int32_t>fl_big32(p + RECORD_COUNT_AT)


cdef inline int length_fault(const uint8_t *p) noexcept nogil:
    cdef int32_t length = <int32_t>fl_big32(p + LENGTH_AT)
    return FINE if LENGTH_MIN <= length <= BATCH_BYTES_MAX - LENGTH_PREFIX_BYTES else FAULT_LENGTH


cdef inline int header_fault(const Header *header, bint offsets_assigned) noexcept nogil:
    if header.magic != MAGIC:
        return FAULT_MAGIC
    if header.attributes & COMPRESSION_MASK > CODEC_MAX:
        return FAULT_CODEC
    if (header.record_count < 0 or header.last_offset_delta < 0
            or header.record_count - 1 > header.last_offset_delta):
        return FAULT_COUNT
    if offsets_assigned and not 0 <= header.base_offset < INT64_MAX - header.last_offset_delta:
        return FAULT_OFFSETS
    return FINE


cdef int read_header(const uint8_t *data, int64_t position, int64_t end, bint offsets_assigned,
                     Header *header) noexcept nogil:
    """The header of the whole batch at `position`. The CRC is not looked at."""
    cdef int64_t left = end - position
    cdef int fault
    if left < LENGTH_PREFIX_BYTES:
        return FAULT_CUT_OFF
    fault = length_fault(data + position)
    if fault:
        return fault
    if left < RECORDS_AT:
        return FAULT_CUT_OFF
    parse_header(data + position, position, header)
    if header.size > left:
        return FAULT_CUT_OFF
    return header_fault(header, offsets_assigned)


cdef inline int64_t next_offset_of(const Header *header) noexcept nogil:
    return header.base_offset + header.last_offset_delta + 1


_HEADER_NAMES = (
    "position", "size", "base_offset", "leader_epoch", "attributes", "last_offset_delta", "base_timestamp",
    "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "record_count", "crc", "keyless_count",
)


cdef str repr_of(object value):
    fields = ", ".join([f"{name}={getattr(value, name)!r}" for name in value.__match_args__])
    return f"{type(value).__name__}({fields})"


cdef tuple pickled(object value):
    return _rebuild, (type(value).__name__, tuple([getattr(value, name) for name in value.__match_args__]))


cdef object equal(object one, object other):
    if type(one) is not type(other):
        return NotImplemented
    for name in one.__match_args__:
        if getattr(one, name) != getattr(other, name):
            return False
    return True


@cython.final
@cython.freelist(256)
cdef class BatchHeader:
    """One batch's header, and where the batch stands in the buffer it was read from."""

    __match_args__ = _HEADER_NAMES

    cdef public int64_t position
    cdef public int64_t size
    cdef public int64_t base_offset
    cdef public int64_t base_timestamp
    cdef public int64_t max_timestamp
    cdef public int64_t producer_id
    cdef public int32_t leader_epoch
    cdef public int32_t attributes
    cdef public int32_t last_offset_delta
    cdef public int32_t producer_epoch
    cdef public int32_t base_sequence
    cdef public int32_t record_count
    cdef public int32_t keyless_count
    cdef public uint32_t crc

    def __init__(self, int64_t position, int64_t size, int64_t base_offset, int32_t leader_epoch, int32_t attributes,
                 int32_t last_offset_delta, int64_t base_timestamp, int64_t max_timestamp, int64_t producer_id,
                 int32_t producer_epoch, int32_t base_sequence, int32_t record_count, uint32_t crc,
                 int32_t keyless_count=-1):
        self.position = position
        self.size = size
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count
        self.crc = crc
        self.keyless_count = keyless_count

    __hash__ = None

    def __eq__(self, other):
        return equal(self, other)

    def __repr__(self):
        return repr_of(self)

    def __reduce__(self):
        return pickled(self)

    @property
    def last_offset(self):
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self):
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self):
        return self.attributes & COMPRESSION_MASK

    @property
    def is_control(self):
        return (self.attributes & CONTROL) != 0

    @property
    def is_transactional(self):
        return (self.attributes & TRANSACTIONAL) != 0

    @property
    def is_log_append_time(self):
        return (self.attributes & LOG_APPEND_TIME) != 0

    @property
    def has_delete_horizon(self):
        return (self.attributes & DELETE_HORIZON) != 0


cdef BatchHeader header_object(const Header *header):
    cdef BatchHeader made = BatchHeader.__new__(BatchHeader)
    made.position = header.position
    made.size = header.size
    made.base_offset = header.base_offset
    made.leader_epoch = header.leader_epoch
    made.attributes = header.attributes
    made.last_offset_delta = header.last_offset_delta
    made.base_timestamp = header.base_timestamp
    made.max_timestamp = header.max_timestamp
    made.producer_id = header.producer_id
    made.producer_epoch = header.producer_epoch
    made.base_sequence = header.base_sequence
    made.record_count = header.record_count
    made.crc = header.crc
    made.keyless_count = -1
    return made


@cython.final
cdef class Walk:
    """The whole batches found from a position on, and why there are no more."""

    __match_args__ = ("headers", "end", "problem", "needed_bytes")

    cdef public list headers
    cdef public int64_t end
    cdef public object problem
    cdef public int64_t needed_bytes

    def __init__(self, list headers, int64_t end, problem, int64_t needed_bytes):
        self.headers = headers
        self.end = end
        self.problem = problem
        self.needed_bytes = needed_bytes

    __hash__ = None

    def __eq__(self, other):
        return equal(self, other)

    def __repr__(self):
        return repr_of(self)

    def __reduce__(self):
        return pickled(self)


def walk(buffer, position=0, *, int64_t expected_offset=-1, int64_t gaps_below=0, int64_t before_offset=INT64_MAX,
         int64_t max_bytes=INT64_MAX, bint check_crc=True):
    """Headers (and CRCs) of the whole batches from `position` on; records are not looked into.

    With `expected_offset` >= 0 each base offset has to be the one expected; where a gap ends at or below `gaps_below`,
    in the compacted part, it may be larger. Stops without a problem before the first batch at or past
    `before_offset`, before the batch that would make it more than `max_bytes` (the first is always taken), and at a
    batch that the buffer's end cuts off: then `needed_bytes` is that batch's size, if its header is there.
    """
    cdef Bytes view = bytes_of(buffer)
    cdef list headers = []
    cdef Header header
    cdef int64_t at
    cdef int64_t start
    cdef int64_t left
    cdef int fault
    cdef bint gap_is_legal
    if not 0 <= position <= view.size:
        raise InvalidArgument(f"position {position} is outside the buffer of {view.size} bytes")
    at = start = position
    while True:
        left = view.size - at
        if left < LENGTH_PREFIX_BYTES or expected_offset >= before_offset:
            return Walk(headers, at, None, 0)
        fault = length_fault(view.data + at)
        if fault:
            return Walk(headers, at, _FAULTS[fault], 0)
        if left < RECORDS_AT:
            return Walk(headers, at, None, 0)
        parse_header(view.data + at, at, &header)
        gap_is_legal = expected_offset < 0 or expected_offset < header.base_offset <= gaps_below
        if gap_is_legal and before_offset < INT64_MAX and header.base_offset >= before_offset:
            return Walk(headers, at, None, 0)
        fault = header_fault(&header, True)
        if fault:
            return Walk(headers, at, _FAULTS[fault], 0)
        if not gap_is_legal and header.base_offset != expected_offset:
            problem = f"its base offset is {header.base_offset} where {expected_offset} was expected"
            return Walk(headers, at, problem, 0)
        if headers and at + header.size - start > max_bytes:
            return Walk(headers, at, None, 0)
        if header.size > left:
            return Walk(headers, at, None, header.size)
        if check_crc and crc_of(view.data + at + ATTRIBUTES_AT, header.size - ATTRIBUTES_AT) != header.crc:
            return Walk(headers, at, _FAULTS[FAULT_CRC], 0)
        headers.append(header_object(&header))
        at += header.size
        if expected_offset >= 0:
            expected_offset = next_offset_of(&header)


def check_epochs(list headers, starts):
    """The first header whose leader epoch is not that of its base offset, with the epoch expected.

    `starts` holds (epoch, first offset) in ascending order; offsets before the first have no epoch to compare.
    """
    cdef BatchHeader header
    cdef Py_ssize_t index = -1
    cdef Py_ssize_t count = len(starts)
    cdef int64_t epoch = 0
    cdef int64_t epoch_start = 0
    cdef int64_t next_start = starts[0][1] if count else INT64_MAX
    for header in headers:
        if index >= 0 and header.base_offset < epoch_start:
            index = -1
            next_start = starts[0][1]
        while index + 1 < count and next_start <= header.base_offset:
            index += 1
            epoch, epoch_start = starts[index]
            next_start = starts[index + 1][1] if index + 1 < count else INT64_MAX
        if index >= 0 and header.leader_epoch != epoch:
            return header, epoch
    return None


cdef bint write_numbers(uint8_t *p, int64_t size, int64_t offset, int32_t leader_epoch, int32_t attributes,
                        int64_t max_timestamp) except? -1:
    """Write what a log decides into a batch. Attributes and timestamp only if they changed: whether the CRC is new."""
    cdef bint is_new = (<int16_t>fl_big16(p + ATTRIBUTES_AT) != attributes
                        or <int64_t>fl_big64(p + MAX_TIMESTAMP_AT) != max_timestamp)
    if is_new:
        fl_put16(p + ATTRIBUTES_AT, <uint16_t>attributes)
        fl_put64(p + MAX_TIMESTAMP_AT, <uint64_t>max_timestamp)
        fl_put32(p + CRC_AT, crc_of(p + ATTRIBUTES_AT, size - ATTRIBUTES_AT))
    fl_put64(p, <uint64_t>offset)
    fl_put32(p + LEADER_EPOCH_AT, <uint32_t>leader_epoch)
    return is_new


def assign_offsets(buffer, list headers, int64_t first_offset, int32_t leader_epoch, int64_t append_time_ms=-1):
    """Write base offsets and epoch into the batches, and into `headers`; returns the next offset.

    With `append_time_ms` >= 0 the batches get LOG_APPEND_TIME, that time and a new CRC. So does one whose header
    claims another max timestamp than `validate` found in its records: seeking by time relies on it.
    """
    cdef Bytes view = Bytes.__new__(Bytes)
    cdef BatchHeader header
    cdef uint8_t *p
    cdef int64_t offset = first_offset
    view.hold(buffer, PyBUF_WRITABLE)
    if first_offset < 0 or append_time_ms < -1:
        raise InvalidArgument(f"cannot assign offset {first_offset} at time {append_time_ms}")
    for header in headers:
        if header.position < 0 or header.size < RECORDS_AT or header.size > view.size - header.position:
            raise InvalidArgument("the headers are not those of the buffer")
        if offset >= INT64_MAX - header.last_offset_delta:
            raise InvalidArgument(f"offset {offset} leaves no room for {header.last_offset_delta + 1} more")
        p = <uint8_t *>view.data + header.position
        header.base_offset = offset
        header.leader_epoch = leader_epoch
        if append_time_ms >= 0:
            header.attributes |= LOG_APPEND_TIME
            header.max_timestamp = append_time_ms
        if write_numbers(p, header.size, offset, leader_epoch, header.attributes, header.max_timestamp):
            header.crc = fl_big32(p + CRC_AT)
        offset += header.last_offset_delta + 1
    return offset
