# Between batches and columns in Arrow's layout, without a Python object per record.

cdef enum:
    WANT_OFFSET = 1
    WANT_TIMESTAMP = 2
    WANT_TIMESTAMP_TYPE = 4
    WANT_KEY = 8
    WANT_VALUE = 16
    WANT_HEADERS = 32
    COMPRESSED = -3


cdef struct BinarySink:
    Memory offsets
    Memory data
    Memory validity
    int64_t rows
    int64_t used
    int64_t nulls


cdef int reserve_binary(BinarySink *sink, int64_t rows, int64_t data_bytes) noexcept nogil:
    """Room for as many more rows and bytes. Offsets are int32, so their sum has a limit."""
    cdef int64_t bitmap_bytes = sink.validity.capacity
    if sink.used + data_bytes > INT32_MAX:
        return TOO_LARGE
    if reserve(&sink.offsets, 4 * (sink.rows + rows + 1)) or reserve(&sink.data, sink.used + data_bytes):
        return NO_MEMORY
    if reserve(&sink.validity, (sink.rows + rows + 7) // 8):
        return NO_MEMORY
    if sink.validity.capacity > bitmap_bytes:
        memset(sink.validity.data + bitmap_bytes, 0xFF, <size_t>(sink.validity.capacity - bitmap_bytes))
    if sink.rows == 0:
        (<int32_t *>sink.offsets.data)[0] = 0
    return GROWN_ENOUGH


cdef inline void put_binary(BinarySink *sink, const uint8_t *data, int64_t size, const uint8_t *readable_end) noexcept nogil:
    """Append a value, or null if `size` is negative. There is room for it."""
    if size < 0:
        sink.validity.data[sink.rows >> 3] &= ~(<uint8_t>(1 << (sink.rows & 7)))
        sink.nulls += 1
    else:
        copy_over(sink.data.data + sink.used, data, size, readable_end)
        sink.used += size
    sink.rows += 1
    (<int32_t *>sink.offsets.data)[sink.rows] = <int32_t>sink.used


cdef object binary_of(BinarySink *sink):
    offsets = column_of(&sink.offsets, 4 * (sink.rows + 1))
    data = column_of(&sink.data, sink.used)
    validity = column_of(&sink.validity, (sink.rows + 7) // 8) if sink.nulls else None
    return _GatheredBinary(offsets, data, validity, sink.nulls)


cdef void free_binary(BinarySink *sink) noexcept:
    give_back(&sink.offsets)
    give_back(&sink.data)
    give_back(&sink.validity)


cdef inline bint is_ascii(const uint8_t *data, int32_t size) noexcept nogil:
    cdef int32_t index
    cdef uint8_t seen = 0
    for index in range(size):
        seen |= data[index]
    return seen < 0x80


@cython.final
cdef class Gathering:
    """The columns while they grow. One call owns it; the finished buffers are handed out at its end."""

    cdef int wanted
    cdef int64_t start_offset
    cdef int64_t end_offset
    cdef int64_t next_offset
    cdef int64_t position
    cdef int64_t rows
    cdef Header header
    cdef Memory offset
    cdef Memory timestamp
    cdef Memory timestamp_type
    cdef Memory header_offsets
    cdef BinarySink key
    cdef BinarySink value
    cdef BinarySink header_key
    cdef BinarySink header_value

    def __dealloc__(self):
        give_back(&self.offset)
        give_back(&self.timestamp)
        give_back(&self.timestamp_type)
        give_back(&self.header_offsets)
        free_binary(&self.key)
        free_binary(&self.value)
        free_binary(&self.header_key)
        free_binary(&self.header_value)

    cdef int reserve_rows(self, int64_t rows, int64_t data_bytes) noexcept nogil:
        """Room for as many more rows, whose keys and values are at most `data_bytes`."""
        cdef int64_t total = self.rows + rows
        cdef int status = GROWN_ENOUGH
        if self.wanted & WANT_OFFSET:
            status = status or reserve(&self.offset, 8 * total)
        if self.wanted & WANT_TIMESTAMP:
            status = status or reserve(&self.timestamp, 8 * total)
        if self.wanted & WANT_TIMESTAMP_TYPE:
            status = status or reserve(&self.timestamp_type, total)
        if self.wanted & WANT_KEY:
            status = status or reserve_binary(&self.key, rows, data_bytes)
        if self.wanted & WANT_VALUE:
            status = status or reserve_binary(&self.value, rows, data_bytes)
        if self.wanted & WANT_HEADERS:
            status = status or reserve(&self.header_offsets, 4 * (total + 1))
            status = status or reserve_binary(&self.header_key, 0, 0)
            status = status or reserve_binary(&self.header_value, 0, 0)
            if status == GROWN_ENOUGH and self.rows == 0:
                (<int32_t *>self.header_offsets.data)[0] = 0
        return status

    cdef int put_headers(self, const Fields *record) noexcept nogil:
        """The lengths are checked once more, since no lock kept the bytes as they were when the record was read."""
        cdef const uint8_t *p = record.headers
        cdef int64_t data_bytes = record.end - record.headers
        cdef int32_t size = 0
        cdef int32_t index
        cdef int fault
        fault = reserve_binary(&self.header_key, record.header_count, data_bytes)
        fault = fault or reserve_binary(&self.header_value, record.header_count, data_bytes)
        if fault:
            return fault
        for index in range(record.header_count):
            fault = read_field(&p, record.end, 0, &size)
            if fault:
                return fault
            if is_ascii(p, size):
                put_binary(&self.header_key, p, size, record.end)
            else:
                fault = self.put_text(p, size, record.header_count - index, data_bytes)
                if fault:
                    return fault
            p += size
            fault = read_field(&p, record.end, -1, &size)
            if fault:
                return fault
            put_binary(&self.header_value, p, size, record.end)
            if size > 0:
                p += size
        return FINE

    cdef int put_text(self, const uint8_t *data, int32_t size, int64_t rows_left, int64_t data_bytes) noexcept with gil:
        """A header's key that is not ASCII: Arrow strings have to be UTF-8, which nobody promised."""
        cdef bytes text
        cdef int status
        try:
            text = PyUnicode_DecodeUTF8(<char *>data, size, "replace").encode()
        except MemoryError:
            return NO_MEMORY
        status = reserve_binary(&self.header_key, rows_left, PyBytes_GET_SIZE(text) + data_bytes)
        if status == GROWN_ENOUGH:
            put_binary(&self.header_key, <const uint8_t *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), NULL)
        return status

    cdef int fill(self, const Cursor *records) noexcept nogil:
        """Append the cursor's records to the columns.

        The loop works on copies of the cursor and the sinks: through pointers, every byte it writes could be one of
        their own, and all would be loaded anew after each.
        """
        cdef Cursor cursor = records[0]
        cdef Fields record
        cdef BinarySink key
        cdef BinarySink value
        cdef int fault = self.reserve_rows(cursor.left, cursor.end - cursor.at)
        cdef int wanted = self.wanted
        cdef int64_t start_offset = self.start_offset
        cdef int64_t end_offset = self.end_offset
        cdef int64_t append_time = self.header.max_timestamp
        cdef bint is_append_time = (self.header.attributes & LOG_APPEND_TIME) != 0
        cdef int64_t *offsets = <int64_t *>self.offset.data
        cdef int64_t *timestamps = <int64_t *>self.timestamp.data
        cdef int64_t row = self.rows
        cdef int64_t offset
        if fault:
            return fault
        key = self.key
        value = self.value
        while cursor.left > 0:
            fault = next_record(&cursor, &record)
            if fault:
                break
            offset = cursor.base_offset + record.offset_delta
            if not start_offset <= offset < end_offset:
                continue
            if wanted & WANT_OFFSET:
                offsets[row] = offset
            if wanted & WANT_TIMESTAMP:
                timestamps[row] = append_time if is_append_time else record.timestamp
            if wanted & WANT_KEY:
                put_binary(&key, record.key, record.key_bytes, cursor.end)
            if wanted & WANT_VALUE:
                put_binary(&value, record.value, record.value_bytes, cursor.end)
            if wanted & WANT_HEADERS:
                if record.header_count:
                    fault = self.put_headers(&record)
                    if fault:
                        break
                (<int32_t *>self.header_offsets.data)[row + 1] = <int32_t>self.header_key.rows
            row += 1
        if wanted & WANT_TIMESTAMP_TYPE:
            memset(self.timestamp_type.data + self.rows, is_append_time, <size_t>(row - self.rows))
        self.rows = row
        self.key = key
        self.value = value
        return fault or end_of_records(&cursor)

    cdef int run(self, const uint8_t *data, int64_t size) noexcept nogil:
        """Go on through the batches, up to one that is compressed, the end of the range, or a fault."""
        cdef Cursor cursor
        cdef int64_t start
        cdef int fault
        while self.position < size:
            fault = read_header(data, self.position, size, True, &self.header)
            if fault:
                self.header.position = self.position
                return fault
            if self.header.base_offset >= self.end_offset:
                self.position = size
                break
            self.position += self.header.size
            if next_offset_of(&self.header) <= self.start_offset:
                continue
            self.next_offset = min(next_offset_of(&self.header), self.end_offset)
            if self.header.attributes & CONTROL:
                continue
            if self.header.record_count and self.header.attributes & COMPRESSION_MASK:
                return COMPRESSED
            start = self.header.position + RECORDS_AT
            fault = point(&cursor, &self.header, data + start, data + self.header.position + self.header.size)
            fault = fault or self.fill(&cursor)
            if fault:
                return fault
        return FINE

    cdef int reserve_for(self, const uint8_t *data, int64_t size) noexcept nogil:
        """Room for all batches that are not compressed, in one step. Only a guess at what `fill` will ask for:
        most bytes of a batch are its values, and a key grows from a few bytes a row."""
        cdef Header header
        cdef int64_t position = 0
        cdef int64_t rows = 0
        cdef int64_t data_bytes = 0
        while position < size and read_header(data, position, size, True, &header) == FINE:
            if header.base_offset >= self.end_offset:
                break
            position += header.size
            if next_offset_of(&header) > self.start_offset and not header.attributes & (CONTROL | COMPRESSION_MASK):
                rows += min(header.record_count, header.size // RECORD_BYTES_MIN)
                data_bytes += header.size
        if self.wanted & WANT_VALUE and reserve_binary(&self.value, rows, min(data_bytes, INT32_MAX)):
            return NO_MEMORY
        return self.reserve_rows(rows, min(16 * rows, data_bytes))

    cdef object finished(self):
        cdef int wanted = self.wanted
        cdef object headers = None
        if wanted & WANT_HEADERS:
            headers = _GatheredHeaders(
                column_of(&self.header_offsets, 4 * (self.rows + 1)), self.header_key.rows,
                binary_of(&self.header_key), binary_of(&self.header_value),
            )
        return _Gathered(
            self.rows,
            self.next_offset,
            column_of(&self.offset, 8 * self.rows) if wanted & WANT_OFFSET else None,
            column_of(&self.timestamp, 8 * self.rows) if wanted & WANT_TIMESTAMP else None,
            column_of(&self.timestamp_type, self.rows) if wanted & WANT_TIMESTAMP_TYPE else None,
            binary_of(&self.key) if wanted & WANT_KEY else None,
            binary_of(&self.value) if wanted & WANT_VALUE else None,
            headers,
        )


cdef int failed_gathering(int status, int64_t position) except -1:
    if status == NO_MEMORY:
        raise MemoryError
    if status == TOO_LARGE:
        raise InvalidArgument("these batches hold more than 2 GiB in one column; read fewer of them at once")
    return broken(status, position)


def gather(buffer, int wanted, *, int64_t start_offset=0, int64_t end_offset=INT64_MAX,
           int64_t decompressed_limit=READ_DECOMPRESSED_BYTES, int64_t enough_bytes=INT64_MAX):
    """The wanted columns of the data records with start_offset <= offset < end_offset, in Arrow's layout.

    Ends behind the batch with which `enough_bytes` are decompressed: nobody sees from outside what batches hold.
    """
    cdef Bytes view = bytes_of(buffer)
    cdef Gathering columns = Gathering.__new__(Gathering)
    cdef Body body = new_body()
    cdef Cursor cursor
    cdef int status
    cdef int64_t decompressed = 0
    columns.wanted = wanted
    columns.start_offset = start_offset
    columns.end_offset = end_offset
    columns.next_offset = start_offset
    with nogil:
        status = columns.reserve_for(view.data, view.size)
    while status == FINE:
        with nogil:
            status = columns.run(view.data, view.size)
        if status != COMPRESSED:
            break
        body.open(view.data, &columns.header, decompressed_limit, &cursor)
        decompressed += cursor.end - cursor.at
        with nogil:
            status = columns.fill(&cursor)
        if decompressed >= enough_bytes:
            break
    if status:
        failed_gathering(status, columns.header.position)
    return columns.finished()
