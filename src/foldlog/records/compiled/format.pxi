# The format itself: big-endian fields, variable-length numbers, one record, a batch's body, CRC-32C.
# Everything but `crc_of` and `broken` runs without the interpreter's lock and reports a fault by its number in FAULTS.

cdef extern from * nogil:
    """
    #include <stdint.h>
    #include <stddef.h>
    #include <string.h>

    static inline uint16_t fl_big16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v); }
    static inline uint32_t fl_big32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
    static inline uint64_t fl_big64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
    static inline void fl_put16(uint8_t *p, uint16_t v) { v = __builtin_bswap16(v); memcpy(p, &v, 2); }
    static inline void fl_put32(uint8_t *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
    static inline void fl_put64(uint8_t *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }
    static inline uint32_t fl_little32(const uint8_t *p) { return __builtin_bswap32(fl_big32(p)); }
    static inline uint64_t fl_little64(const uint8_t *p) { return __builtin_bswap64(fl_big64(p)); }
    static inline int fl_add_overflows(int64_t a, int64_t b, int64_t *sum) { return __builtin_add_overflow(a, b, sum); }
    static inline int fl_sub_overflows(int64_t a, int64_t b, int64_t *sum) { return __builtin_sub_overflow(a, b, sum); }
    static inline uint64_t fl_scale(uint64_t hash, uint64_t n) { return (uint64_t)(((unsigned __int128)hash * n) >> 64); }
    static inline int fl_bytes_of_zigzag(uint64_t v) { return (70 - __builtin_clzll(v | 1)) / 7; }

    /* CRC-32C by the processor's own instruction, 8 bytes at a time. One takes three cycles, and the next can begin in
       each: so three stretches of a large piece are computed at once, and the sums joined. What a sum becomes by a
       stretch of zeros behind it is linear, and looked up by its four bytes. */
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <nmmintrin.h>
    #define FL_CRC_TARGET __attribute__((target("sse4.2")))
    #define FL_CRC8(crc, v) _mm_crc32_u64((crc), (v))
    #define FL_CRC1(crc, v) _mm_crc32_u8((uint32_t)(crc), (v))
    static int fl_has_crc(void) { return __builtin_cpu_supports("sse4.2") != 0; }
    #elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
    #include <arm_acle.h>
    #define FL_CRC_TARGET
    #define FL_CRC8(crc, v) __crc32cd((uint32_t)(crc), (v))
    #define FL_CRC1(crc, v) __crc32cb((uint32_t)(crc), (v))
    static int fl_has_crc(void) { return 1; }
    #endif
    #if defined(FL_CRC8)
    #define FL_STRETCH_LONG 4096
    #define FL_STRETCH_SHORT 256
    static uint32_t fl_crc_behind[2][4][256];

    FL_CRC_TARGET static void fl_crc_prepare(void) {
        static const size_t stretches[2] = {FL_STRETCH_LONG, FL_STRETCH_SHORT};
        for (int which = 0; which < 2; which++)
            for (int bit = 0; bit < 32; bit++) {
                uint64_t crc = (uint64_t)1 << bit;
                uint32_t (*table)[256] = &fl_crc_behind[which][bit / 8];
                for (size_t done = 0; done < stretches[which]; done += 8) crc = FL_CRC8(crc, 0);
                for (int byte = 0; byte < 256; byte++)
                    if (byte >> (bit % 8) & 1) (*table)[byte] ^= (uint32_t)crc;
            }
    }
    static inline uint64_t fl_crc_shift(uint32_t (*table)[256], uint64_t crc) {
        return table[0][crc & 0xFF] ^ table[1][crc >> 8 & 0xFF] ^ table[2][crc >> 16 & 0xFF] ^ table[3][crc >> 24 & 0xFF];
    }
    FL_CRC_TARGET static inline uint64_t fl_crc_three(uint64_t crc, const uint8_t *p, size_t stretch, uint32_t (*table)[256]) {
        uint64_t second = 0, third = 0, a, b, c;
        for (const uint8_t *end = p + stretch; p < end; p += 8) {
            memcpy(&a, p, 8); memcpy(&b, p + stretch, 8); memcpy(&c, p + 2 * stretch, 8);
            crc = FL_CRC8(crc, a); second = FL_CRC8(second, b); third = FL_CRC8(third, c);
        }
        return fl_crc_shift(table, fl_crc_shift(table, crc) ^ second) ^ third;
    }
    FL_CRC_TARGET static uint32_t fl_crc(const uint8_t *p, size_t n) {
        uint64_t crc = 0xFFFFFFFFu, v;
        for (; n >= 3 * FL_STRETCH_LONG; p += 3 * FL_STRETCH_LONG, n -= 3 * FL_STRETCH_LONG)
            crc = fl_crc_three(crc, p, FL_STRETCH_LONG, fl_crc_behind[0]);
        for (; n >= 3 * FL_STRETCH_SHORT; p += 3 * FL_STRETCH_SHORT, n -= 3 * FL_STRETCH_SHORT)
            crc = fl_crc_three(crc, p, FL_STRETCH_SHORT, fl_crc_behind[1]);
        for (; n >= 8; p += 8, n -= 8) { memcpy(&v, p, 8); crc = FL_CRC8(crc, v); }
        for (; n; p++, n--) crc = FL_CRC1(crc, *p);
        return ~(uint32_t)crc;
    }
    #else
    static void fl_crc_prepare(void) {}
    static uint32_t fl_crc(const uint8_t *p, size_t n) { (void)p; (void)n; return 0; }
    static int fl_has_crc(void) { return 0; }
    #endif
    """
    uint16_t fl_big16(const uint8_t *p)
    uint32_t fl_big32(const uint8_t *p)
    uint64_t fl_big64(const uint8_t *p)
    void fl_put16(uint8_t *p, uint16_t v)
    void fl_put32(uint8_t *p, uint32_t v)
    void fl_put64(uint8_t *p, uint64_t v)
    uint32_t fl_little32(const uint8_t *p)
    uint64_t fl_little64(const uint8_t *p)
    bint fl_add_overflows(int64_t a, int64_t b, int64_t *result)
    bint fl_sub_overflows(int64_t a, int64_t b, int64_t *result)
    uint64_t fl_scale(uint64_t hash, uint64_t n)
    int fl_bytes_of_zigzag(uint64_t v)
    void fl_crc_prepare()
    uint32_t fl_crc(const uint8_t *p, size_t n)
    bint fl_has_crc()


cdef enum:
    LENGTH_AT = 8
    LEADER_EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21
    LAST_OFFSET_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53
    RECORD_COUNT_AT = 57
    RECORDS_AT = 61
    LENGTH_PREFIX_BYTES = 12
    LENGTH_MIN = 49
    MAGIC = 2
    COMPRESSION_MASK = 0x07
    CODEC_MAX = 4
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    DELETE_HORIZON = 0x40
    RECORD_BYTES_MIN = 7
    HEADER_BYTES_MIN = 2
    UNLOCKED_BYTES = 32768
    COPY_BYTES = 32

cdef enum:
    FINE = 0
    FAULT_CUT_OFF = 1
    FAULT_LENGTH = 2
    FAULT_MAGIC = 3
    FAULT_CODEC = 4
    FAULT_COUNT = 5
    FAULT_OFFSETS = 6
    FAULT_CRC = 7
    FAULT_NO_RECORDS = 8
    FAULT_TOO_MANY_RECORDS = 9
    FAULT_RECORD_CUT_OFF = 10
    FAULT_VARINT = 11
    FAULT_FIELD_LENGTH = 12
    FAULT_RECORD_LENGTH = 13
    FAULT_OFFSET_DELTA = 14
    FAULT_TIMESTAMP = 15
    FAULT_LEFT_OVER = 16
    FAULT_LOST = 17
    FAULT_CHANGED = 18

cdef int64_t BATCH_BYTES_MAX = _BATCH_BYTES_MAX
cdef int64_t READ_DECOMPRESSED_BYTES = _READ_DECOMPRESSED_BYTES
cdef bint HAS_CRC = fl_has_crc()
if HAS_CRC:
    fl_crc_prepare()


cdef uint32_t crc_of(const uint8_t *data, Py_ssize_t size) except? 0:
    cdef uint32_t crc
    if not HAS_CRC:
        return _crc32c_of(PyMemoryView_FromMemory(<char *>data, size, 0x100))
    if size < UNLOCKED_BYTES:
        return fl_crc(data, <size_t>size)
    with nogil:
        crc = fl_crc(data, <size_t>size)
    return crc


# --- variable-length numbers: zigzag, 7 bits a byte, shortest form only ---

cdef inline int read_varint(const uint8_t **at, const uint8_t *end, int bits, uint64_t *zigzag) noexcept nogil:
    cdef const uint8_t *p = at[0]
    cdef uint64_t value = 0
    cdef uint8_t byte
    cdef int shift = 0
    while True:
        if p >= end:
            return FAULT_RECORD_CUT_OFF
        byte = p[0]
        p += 1
        if bits - shift < 7 and (byte & 0x7F) >> (bits - shift):
            return FAULT_VARINT
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            return FAULT_VARINT
    if byte == 0 and shift:
        return FAULT_VARINT
    at[0] = p
    zigzag[0] = value
    return FINE


cdef int read_long_form(const uint8_t **at, const uint8_t *end, int bits, uint64_t *zigzag) noexcept nogil:
    return read_varint(at, end, bits, zigzag)


cdef inline int read32(const uint8_t **at, const uint8_t *end, int32_t *value) noexcept nogil:
    cdef const uint8_t *p = at[0]
    cdef uint64_t zigzag
    cdef int fault
    # One and two bytes are nearly all there is.
    if end - p >= 2:
        if p[0] < 0x80:
            zigzag = p[0]
            at[0] = p + 1
            value[0] = <int32_t>((zigzag >> 1) ^ (0 - (zigzag & 1)))
            return FINE
        if p[1] < 0x80 and p[1]:
            zigzag = (p[0] & 0x7F) | <uint64_t>p[1] << 7
            at[0] = p + 2
            value[0] = <int32_t>((zigzag >> 1) ^ (0 - (zigzag & 1)))
            return FINE
    fault = read_long_form(at, end, 32, &zigzag)
    if fault == FINE:
        value[0] = <int32_t>((zigzag >> 1) ^ (0 - (zigzag & 1)))
    return fault


cdef inline int read64(const uint8_t **at, const uint8_t *end, int64_t *value) noexcept nogil:
    cdef const uint8_t *p = at[0]
    cdef uint64_t zigzag
    cdef int fault
    if end - p >= 2:
        if p[0] < 0x80:
            zigzag = p[0]
            at[0] = p + 1
            value[0] = <int64_t>((zigzag >> 1) ^ (0 - (zigzag & 1)))
            return FINE
        if p[1] < 0x80 and p[1]:
            zigzag = (p[0] & 0x7F) | <uint64_t>p[1] << 7
            at[0] = p + 2
            value[0] = <int64_t>((zigzag >> 1) ^ (0 - (zigzag & 1)))
            return FINE
    fault = read_long_form(at, end, 64, &zigzag)
    if fault == FINE:
        value[0] = <int64_t>((zigzag >> 1) ^ (0 - (zigzag & 1)))
    return fault


cdef inline uint64_t zigzag_of(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int varint_bytes(int64_t value) noexcept nogil:
    return fl_bytes_of_zigzag(zigzag_of(value))


cdef inline uint8_t *put_varint(uint8_t *p, int64_t value) noexcept nogil:
    cdef uint64_t zigzag = zigzag_of(value)
    while zigzag > 0x7F:
        p[0] = <uint8_t>(zigzag | 0x80)
        zigzag >>= 7
        p += 1
    p[0] = <uint8_t>zigzag
    return p + 1


cdef inline uint8_t *put_field(uint8_t *p, const uint8_t *data, int64_t size) noexcept nogil:
    """A length and as many bytes; only the length if it is -1."""
    p = put_varint(p, size)
    if size > 0:
        memcpy(p, data, <size_t>size)
        p += size
    return p


cdef inline void copy_over(uint8_t *target, const uint8_t *data, int64_t size, const uint8_t *readable_end) noexcept nogil:
    """Copy `size` bytes; up to COPY_BYTES more of the target may be overwritten.

    Whole steps of a fixed size cost less than a call for the exact size, where the source has bytes left to read.
    """
    cdef int64_t done = 0
    if size <= 8 * COPY_BYTES and readable_end - data >= size + COPY_BYTES:
        while done < size:
            memcpy(target + done, data + done, COPY_BYTES)
            done += COPY_BYTES
    else:
        memcpy(target, data, <size_t>size)


# --- one record ---

cdef struct Fields:
    const uint8_t *start
    const uint8_t *attributes_at
    const uint8_t *after_timestamp
    const uint8_t *key
    const uint8_t *value
    const uint8_t *headers
    const uint8_t *end
    int64_t timestamp
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_bytes
    int32_t value_bytes
    int32_t header_count


cdef inline int read_field(const uint8_t **at, const uint8_t *end, int32_t lowest, int32_t *size) noexcept nogil:
    """A field's length, of which as many bytes are left; `at` is moved to where the field starts."""
    cdef int fault = read32(at, end, size)
    if fault:
        return fault
    if size[0] < lowest:
        return FAULT_FIELD_LENGTH
    if size[0] > end - at[0]:
        return FAULT_RECORD_CUT_OFF
    return FINE


cdef int check_headers(const uint8_t **at, const uint8_t *end, int32_t count) noexcept nogil:
    cdef const uint8_t *p = at[0]
    cdef int32_t size = 0
    cdef int32_t index
    cdef int fault
    if count < 0:
        return FAULT_FIELD_LENGTH
    if count > (end - p) // HEADER_BYTES_MIN:
        return FAULT_RECORD_CUT_OFF
    for index in range(count):
        fault = read_field(&p, end, 0, &size)
        if fault:
            return fault
        p += size
        fault = read_field(&p, end, -1, &size)
        if fault:
            return fault
        if size > 0:
            p += size
    at[0] = p
    return FINE


cdef inline int read_record(const uint8_t *p, const uint8_t *body_end, Fields *record) noexcept nogil:
    cdef int32_t length = 0
    cdef int fault
    cdef const uint8_t *end
    record.start = p
    fault = read_field(&p, body_end, 0, &length)
    if fault:
        return fault
    if length == 0:
        return FAULT_RECORD_CUT_OFF
    end = p + length
    record.attributes_at = p
    record.end = end
    p += 1
    fault = read64(&p, end, &record.timestamp_delta)
    if fault:
        return fault
    record.after_timestamp = p
    fault = read32(&p, end, &record.offset_delta)
    if fault:
        return fault
    fault = read_field(&p, end, -1, &record.key_bytes)
    if fault:
        return fault
    record.key = p
    if record.key_bytes > 0:
        p += record.key_bytes
    fault = read_field(&p, end, -1, &record.value_bytes)
    if fault:
        return fault
    record.value = p
    if record.value_bytes > 0:
        p += record.value_bytes
    fault = read32(&p, end, &record.header_count)
    if fault:
        return fault
    record.headers = p
    if record.header_count:
        fault = check_headers(&p, end, record.header_count)
        if fault:
            return fault
    if p != end:
        return FAULT_RECORD_LENGTH
    return FINE


# --- one batch ---

cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end
    int64_t base_offset
    int64_t base_timestamp
    int32_t left
    int32_t last_delta
    int32_t largest_delta
    bint dense


cdef inline int next_record(Cursor *cursor, Fields *record) noexcept nogil:
    """The next of `cursor.left` records. Call `end_of_records` when none is left."""
    cdef int fault = read_record(cursor.at, cursor.end, record)
    cdef int32_t delta
    if fault:
        return fault
    delta = record.offset_delta
    if delta <= cursor.last_delta or delta > cursor.largest_delta or (cursor.dense and delta != cursor.last_delta + 1):
        return FAULT_OFFSET_DELTA
    if fl_add_overflows(cursor.base_timestamp, record.timestamp_delta, &record.timestamp):
        return FAULT_TIMESTAMP
    if record.timestamp == INT64_MIN:
        return FAULT_TIMESTAMP
    cursor.last_delta = delta
    cursor.at = record.end
    cursor.left -= 1
    return FINE


cdef inline int end_of_records(Cursor *cursor) noexcept nogil:
    return FINE if cursor.at == cursor.end else FAULT_LEFT_OVER


cdef int point(Cursor *cursor, const Header *header, const uint8_t *start, const uint8_t *end) noexcept nogil:
    """Put the cursor at the first record. The declared count is checked against the bytes there are."""
    if header.record_count == 0 and start != end:
        return FAULT_LEFT_OVER
    if header.record_count > (end - start) // RECORD_BYTES_MIN:
        return FAULT_TOO_MANY_RECORDS
    cursor.at = start
    cursor.end = end
    cursor.base_offset = header.base_offset
    cursor.base_timestamp = header.base_timestamp
    cursor.left = header.record_count
    cursor.last_delta = -1
    cursor.largest_delta = header.last_offset_delta
    cursor.dense = False
    return FINE


cdef int broken(int fault, int64_t position) except -1:
    raise InvalidBatch(_FAULTS[fault], position)
