# From columns in Arrow's layout to batches, and rows to partitions.

@cython.final
cdef class BinaryReader:
    """A binary column, its buffers held open. Offsets are compared with the data before they are used."""

    cdef str name
    cdef Bytes offsets
    cdef Bytes data
    cdef Bytes validity
    cdef bint wide
    cdef int64_t first

    @staticmethod
    cdef BinaryReader of(object column, int64_t rows):
        cdef BinaryReader reader = BinaryReader.__new__(BinaryReader)
        cdef int64_t width
        reader.name = column.name
        reader.offsets = bytes_of(column.offsets)
        reader.data = bytes_of(b"" if column.data is None else column.data)
        reader.validity = None if column.validity is None else bytes_of(column.validity)
        reader.wide = column.wide
        reader.first = column.first
        width = 8 if reader.wide else 4
        check_span(reader.name, reader.first, rows, reader.offsets.size // width - 1, reader.validity)
        return reader

    cdef inline int64_t at(self, int64_t row, const uint8_t **start) noexcept nogil:
        """The value's size and where it starts; -1 for null, -2 if the offsets are broken."""
        cdef int64_t begin
        cdef int64_t end
        row += self.first
        if self.validity is not None and not (self.validity.data[row >> 3] >> (row & 7)) & 1:
            return -1
        if self.wide:
            begin = (<const int64_t *>self.offsets.data)[row]
            end = (<const int64_t *>self.offsets.data)[row + 1]
        else:
            begin = (<const int32_t *>self.offsets.data)[row]
            end = (<const int32_t *>self.offsets.data)[row + 1]
        if not 0 <= begin <= end <= self.data.size:
            return -2
        start[0] = self.data.data + begin
        return end - begin


cdef int check_span(str name, int64_t first, int64_t rows, int64_t available, Bytes validity) except -1:
    if first < 0 or rows < 0 or first > available - rows or (validity is not None
                                                             and first + rows > 8 * <int64_t>validity.size):
        raise SerializationError(f"column {name!r} has fewer rows than the table")
    return 0


@cython.final
cdef class Rows:
    """The columns of one call of `pack_columns`; None where a column is not given."""

    cdef BinaryReader value
    cdef BinaryReader key
    cdef BinaryReader header_key
    cdef BinaryReader header_value
    cdef Bytes header_offsets
    cdef Bytes header_validity
    cdef Bytes timestamp
    cdef Bytes timestamp_validity
    cdef int64_t header_first
    cdef int64_t header_rows
    cdef int64_t timestamp_first
    cdef int64_t now_ms
    cdef bint header_wide

    cdef inline int64_t timestamp_at(self, int64_t row) noexcept nogil:
        if self.timestamp is None:
            return self.now_ms
        row += self.timestamp_first
        if self.timestamp_validity is not None and not (self.timestamp_validity.data[row >> 3] >> (row & 7)) & 1:
            return self.now_ms
        return (<const int64_t *>self.timestamp.data)[row]

    cdef inline int header_span(self, int64_t row, int64_t *begin, int64_t *end) noexcept nogil:
        """Which entries are the row's headers; negative if the offsets are broken."""
        begin[0] = 0
        end[0] = 0
        row += self.header_first
        if self.header_validity is not None and not (self.header_validity.data[row >> 3] >> (row & 7)) & 1:
            return 0
        if self.header_wide:
            begin[0] = (<const int64_t *>self.header_offsets.data)[row]
            end[0] = (<const int64_t *>self.header_offsets.data)[row + 1]
        else:
            begin[0] = (<const int32_t *>self.header_offsets.data)[row]
            end[0] = (<const int32_t *>self.header_offsets.data)[row + 1]
        return 0 if 0 <= begin[0] <= end[0] <= self.header_rows else -1

    cdef int64_t header_bytes_at(self, int64_t row) noexcept nogil:
        """The size of the row's header count and headers; negative if a key is null or the offsets are broken."""
        cdef const uint8_t *ignored = NULL
        cdef int64_t begin
        cdef int64_t end
        cdef int64_t entry
        cdef int64_t total
        cdef int64_t size
        if self.header_span(row, &begin, &end) < 0:
            return -1
        total = varint_bytes(end - begin)
        for entry in range(begin, end):
            size = self.header_key.at(entry, &ignored)
            if size < 0:
                return -1
            total += varint_bytes(size) + size
            size = self.header_value.at(entry, &ignored)
            if size < -1:
                return -1
            total += varint_bytes(size) + max(size, 0)
        return total

    cdef uint8_t *put_headers_of(self, int64_t row, uint8_t *p) noexcept nogil:
        cdef const uint8_t *data = NULL
        cdef int64_t begin
        cdef int64_t end
        cdef int64_t entry
        cdef int64_t size
        self.header_span(row, &begin, &end)
        p = put_varint(p, end - begin)
        for entry in range(begin, end):
            size = self.header_key.at(entry, &data)
            p = put_field(p, data, size)
            size = self.header_value.at(entry, &data)
            p = put_field(p, data, size)
        return p


cdef struct Measured:
    int64_t rows
    int64_t size                # of the whole batch, header included
    int64_t base_timestamp
    int64_t max_timestamp


cdef enum:
    BAD_VALUE = -1
    BAD_KEY = -2
    BAD_HEADERS = -3
    BAD_TIMESTAMP = -4
    ROW_TOO_LARGE = -5


cdef inline int64_t record_bytes(Rows rows, int64_t row, int64_t index, int64_t delta) noexcept nogil:
    """The size of a record without its length in front; negative says which column is bad."""
    cdef const uint8_t *ignored = NULL
    cdef int64_t size = rows.value.at(row, &ignored)
    cdef int64_t total = 2 + varint_bytes(delta) + varint_bytes(index) + varint_bytes(size)
    if size < -1:
        return BAD_VALUE
    total += max(size, 0)
    size = -1
    if rows.key is not None:
        size = rows.key.at(row, &ignored)
        if size < -1:
            return BAD_KEY
    total += varint_bytes(size) + max(size, 0)
    if rows.header_offsets is not None:
        size = rows.header_bytes_at(row)
        if size < 0:
            return BAD_HEADERS
        total += size - 1
    return total


cdef int measure(Rows rows, int64_t first, int64_t end, int64_t max_bytes, int64_t max_records,
                 Measured *batch) noexcept nogil:
    """How many rows from `first` on make the next batch, and its size."""
    cdef int64_t row
    cdef int64_t timestamp
    cdef int64_t size
    batch.rows = 0
    batch.size = RECORDS_AT
    batch.base_timestamp = rows.timestamp_at(first)
    batch.max_timestamp = -1
    for row in range(first, min(end, first + max_records)):
        timestamp = rows.timestamp_at(row)
        if not -1 <= timestamp < INT64_MAX:
            return BAD_TIMESTAMP
        size = record_bytes(rows, row, row - first, timestamp - batch.base_timestamp)
        if size < 0:
            return <int>size
        size += varint_bytes(size)
        if batch.rows and batch.size + size > max_bytes:
            break
        if batch.size + size > BATCH_BYTES_MAX:
            return ROW_TOO_LARGE
        batch.size += size
        batch.rows += 1
        batch.max_timestamp = max(batch.max_timestamp, timestamp)
    return FINE


cdef void put_rows(Rows rows, int64_t first, const Measured *batch, uint8_t *p) noexcept nogil:
    """Write what was measured."""
    cdef const uint8_t *key = NULL
    cdef const uint8_t *value = NULL
    cdef int64_t key_bytes
    cdef int64_t value_bytes
    cdef int64_t index
    cdef int64_t row
    cdef int64_t delta
    cdef int64_t length
    cdef bint has_headers = rows.header_offsets is not None
    for index in range(batch.rows):
        row = first + index
        delta = rows.timestamp_at(row) - batch.base_timestamp
        key_bytes = rows.key.at(row, &key) if rows.key is not None else -1
        value_bytes = rows.value.at(row, &value)
        length = 2 + varint_bytes(delta) + varint_bytes(index) + varint_bytes(key_bytes) + varint_bytes(value_bytes)
        length += max(key_bytes, 0) + max(value_bytes, 0)
        if has_headers:
            length += rows.header_bytes_at(row) - 1
        p = put_varint(p, length)
        p[0] = 0
        p = put_varint(p + 1, delta)
        p = put_varint(p, index)
        p = put_field(p, key, key_bytes)
        p = put_field(p, value, value_bytes)
        if has_headers:
            p = rows.put_headers_of(row, p)
        else:
            p[0] = 0
            p += 1


cdef int failed_packing(int status) except -1:
    if status == ROW_TOO_LARGE:
        raise RecordTooLarge(BATCH_BYTES_MAX + 1, BATCH_BYTES_MAX)
    if status == BAD_TIMESTAMP:
        raise SerializationError("column 'timestamp' holds a time that is out of range")
    if status == BAD_HEADERS:
        raise SerializationError("column 'headers' holds a header without a key, or its offsets are broken")
    raise SerializationError(f"column {'key' if status == BAD_KEY else 'value'!r} is broken: its offsets are not in order")


cdef bytearray packed(Rows rows, int64_t first, const Measured *batch, int compression, object level, Scratch scratch):
    cdef Header header
    cdef bytearray out
    cdef uint8_t *p
    header.base_offset = 0
    header.leader_epoch = -1
    header.attributes = compression
    header.last_offset_delta = <int32_t>(batch.rows - 1)
    header.base_timestamp = batch.base_timestamp
    header.max_timestamp = batch.max_timestamp
    header.producer_id = -1
    header.producer_epoch = -1
    header.base_sequence = -1
    header.record_count = <int32_t>batch.rows
    if compression:
        p = scratch.room(batch.size - RECORDS_AT)
        with nogil:
            put_rows(rows, first, batch, p)
        return seal(p, batch.size - RECORDS_AT, &header, level)
    out = PyByteArray_FromStringAndSize(NULL, batch.size)
    p = <uint8_t *>PyByteArray_AS_STRING(out)
    put_header(p, batch.size, &header)
    if batch.size >= UNLOCKED_BYTES:
        with nogil:
            put_rows(rows, first, batch, p + RECORDS_AT)
    else:
        put_rows(rows, first, batch, p + RECORDS_AT)
    fl_put32(p + CRC_AT, crc_of(p + ATTRIBUTES_AT, batch.size - ATTRIBUTES_AT))
    return out


cdef Rows rows_of(object value, object key, object headers, object timestamp, int64_t rows, int64_t now_ms):
    cdef Rows made = Rows.__new__(Rows)
    cdef int64_t width
    made.now_ms = now_ms
    made.value = BinaryReader.of(value, rows)
    if key is not None:
        made.key = BinaryReader.of(key, rows)
    if timestamp is not None:
        made.timestamp = bytes_of(timestamp.data)
        made.timestamp_validity = None if timestamp.validity is None else bytes_of(timestamp.validity)
        made.timestamp_first = timestamp.first
        check_span("timestamp", timestamp.first, rows, made.timestamp.size // 8, made.timestamp_validity)
    if headers is not None:
        made.header_wide = headers.wide
        made.header_first = headers.first
        made.header_offsets = bytes_of(headers.offsets)
        made.header_validity = None if headers.validity is None else bytes_of(headers.validity)
        width = 8 if made.header_wide else 4
        check_span("headers", headers.first, rows, made.header_offsets.size // width - 1, made.header_validity)
        made.header_rows = headers.entries
        made.header_key = BinaryReader.of(headers.key, made.header_rows)
        made.header_value = BinaryReader.of(headers.value, made.header_rows)
    return made


def pack_columns(value, key, headers, timestamp, int64_t rows, *, int64_t first_row=0, int64_t now_ms,
                 int64_t max_batch_bytes, int64_t max_batch_records, int64_t max_batches, int compression=0,
                 level=None):
    """Up to `max_batches` batches of the rows from `first_row` on; fewer only if there are no more rows.

    A batch is closed before it would grow over `max_batch_bytes` before compression; a first record always fits.
    """
    cdef Rows columns
    cdef Scratch scratch = Scratch()
    cdef Measured batch
    cdef list made = []
    cdef int status
    if max_batch_bytes < 1 or not 1 <= max_batch_records <= INT32_MAX:
        raise InvalidArgument(
            f"a batch of at most {max_batch_bytes} bytes and {max_batch_records} records is not possible"
        )
    _check_codec(compression, level)
    columns = rows_of(value, key, headers, timestamp, rows, now_ms)
    while first_row < rows and len(made) < max_batches:
        with nogil:
            status = measure(columns, first_row, rows, max_batch_bytes, max_batch_records, &batch)
        if status:
            failed_packing(status)
        buffer = packed(columns, first_row, &batch, compression, level, scratch)
        made.append(_PackedBatch(buffer, batch.rows, first_row, batch.max_timestamp))
        first_row += batch.rows
    return made


def route_rows(key, partition, int64_t rows, int64_t partitions):
    """For each partition that gets rows, in ascending order: its number and its rows as int64.

    The partition column decides where it is not null; else the key's hash; else the partition is -1.
    """
    cdef BinaryReader keys = None if key is None else BinaryReader.of(key, rows)
    cdef Bytes given = None
    cdef Bytes given_validity = None
    cdef Scratch scratch = Scratch()
    cdef Scratch places = Scratch()
    cdef int32_t *chosen
    cdef int64_t *counts
    cdef const uint8_t *data = NULL
    cdef int64_t given_first = 0
    cdef int64_t row
    cdef int64_t size
    cdef int64_t number
    if not 1 <= partitions <= INT32_MAX:
        raise InvalidArgument(f"rows cannot be routed to {partitions} partitions")
    if partition is not None:
        given = bytes_of(partition.data)
        given_validity = None if partition.validity is None else bytes_of(partition.validity)
        given_first = partition.first
        check_span("partition", given_first, rows, given.size // 8, given_validity)
    chosen = <int32_t *>scratch.room(4 * rows)
    counts = <int64_t *>places.room(8 * (partitions + 1))
    memset(counts, 0, <size_t>(8 * (partitions + 1)))
    for row in range(rows):
        number = -1
        if given is not None and (given_validity is None or bit_at(given_validity.data, row + given_first)):
            number = (<const int64_t *>given.data)[row + given_first]
            if not 0 <= number < partitions:
                raise InvalidArgument(f"there is no partition {number} in column 'partition'; there are {partitions}")
        elif keys is not None:
            size = keys.at(row, &data)
            if size < -1:
                failed_packing(BAD_KEY)
            if size >= 0:
                number = (murmur2_of(data, <uint32_t>size) & 0x7FFFFFFF) % partitions
        chosen[row] = <int32_t>number
        counts[number + 1] += 1
    return rows_by_partition(chosen, rows, counts, partitions)


cdef inline bint bit_at(const uint8_t *bitmap, int64_t index) noexcept nogil:
    return (bitmap[index >> 3] >> (index & 7)) & 1


cdef list rows_by_partition(const int32_t *chosen, int64_t rows, int64_t *counts, int64_t partitions):
    """A counting sort: rows keep their order within a partition."""
    cdef list found = []
    cdef bytearray ordered = PyByteArray_FromStringAndSize(NULL, 8 * rows)
    cdef int64_t *target = <int64_t *>PyByteArray_AS_STRING(ordered)
    cdef int64_t start = 0
    cdef int64_t count
    cdef int64_t row
    cdef int64_t number
    view = memoryview(ordered)
    for number in range(-1, partitions):
        count = counts[number + 1]
        counts[number + 1] = start
        if count:
            found.append((number, view[8 * start:8 * (start + count)]))
        start += count
    for row in range(rows):
        number = chosen[row] + 1
        target[counts[number]] = row
        counts[number] += 1
    return found
