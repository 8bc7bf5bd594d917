# The fields of messages: read with every length compared with what is left, and written.

cdef struct Reader:
    # What is left of a frame. A read beyond its end, or a number out of range, sets `failed`, and gives 0.
    const uint8_t *at
    const uint8_t *end
    bint failed


cdef inline int32_t big16(const uint8_t *p) noexcept nogil:
    return <int16_t>(<uint16_t>p[0] << 8 | p[1])


cdef inline int32_t big32(const uint8_t *p) noexcept nogil:
    return <int32_t>(<uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3])


cdef inline uint8_t *put16(uint8_t *p, int32_t value) noexcept nogil:
    p[0] = <uint8_t>(value >> 8)
    p[1] = <uint8_t>value
    return p + 2


cdef inline uint8_t *put32(uint8_t *p, int32_t value) noexcept nogil:
    cdef uint32_t v = <uint32_t>value
    p[0] = <uint8_t>(v >> 24)
    p[1] = <uint8_t>(v >> 16)
    p[2] = <uint8_t>(v >> 8)
    p[3] = <uint8_t>v
    return p + 4


cdef inline uint8_t *put64(uint8_t *p, int64_t value) noexcept nogil:
    return put32(put32(p, <int32_t>(<uint64_t>value >> 32)), <int32_t>value)


cdef inline uint8_t *put_unsigned(uint8_t *p, uint32_t value) noexcept nogil:
    while value > 0x7F:
        p[0] = <uint8_t>(value | 0x80)
        value >>= 7
        p += 1
    p[0] = <uint8_t>value
    return p + 1


cdef inline int32_t read16(Reader *reader) noexcept nogil:
    if reader.end - reader.at < 2:
        reader.failed = True
        return 0
    reader.at += 2
    return big16(reader.at - 2)


cdef inline int32_t read32(Reader *reader) noexcept nogil:
    if reader.end - reader.at < 4:
        reader.failed = True
        return 0
    reader.at += 4
    return big32(reader.at - 4)


cdef inline int32_t read_unsigned(Reader *reader) noexcept nogil:
    """A variable-length number in its shortest form, up to the largest int32."""
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while reader.at < reader.end and shift <= 28:
        byte = reader.at[0]
        reader.at += 1
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            if (byte == 0 and shift) or value > INT32_MAX:
                break
            return <int32_t>value
        shift += 7
    reader.failed = True
    return 0


cdef inline int32_t read_length(Reader *reader, bint is_flexible, bint is_long) noexcept nogil:
    """Of a string, bytes or an array; -1 for null. As many bytes are left, each at least one."""
    cdef int32_t length
    if is_flexible:
        length = read_unsigned(reader) - 1
    else:
        length = read32(reader) if is_long else read16(reader)
    if length < -1 or length > reader.end - reader.at:
        reader.failed = True
        return 0
    return length


cdef inline bint skip_ascii(Reader *reader, int32_t length) noexcept nogil:
    """Skip a text; False if it is not plain ASCII. Whether others are text at all is for the codec to say."""
    cdef int32_t index
    for index in range(length):
        if reader.at[index] > 0x7F:
            return False
    reader.at += max(0, length)
    return True


cdef inline void read_no_tags(Reader *reader) noexcept nogil:
    if reader.at >= reader.end or reader.at[0] != 0:
        reader.failed = True
    else:
        reader.at += 1
