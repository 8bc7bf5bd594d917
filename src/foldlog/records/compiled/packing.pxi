# From columns in Arrow's layout to batches, and rows to partitions.

cdef struct BinaryView:
    const uint8_t *offsets
    const uint8_t *data
    const uint8_t *validity     # NULL: nothing is null
    int64_t limit               # what the last offset may be
    int64_t first
    bint wide


cdef inline bint bit_at(const uint8_t *bitmap, int64_t index) noexcept nogil:
    return (bitmap[index >> 3] >> (index & 7)) & 1


cdef inline int64_t span_at(const BinaryView *view, int64_t row, int64_t *begin) noexcept nogil:
    """How many bytes (or entries) the row has, and from where on; -1 for null, -2 if the offsets are broken."""
    cdef int64_t end
    row += view.first
    if view.validity != NULL and not bit_at(view.validity, row):
        return -1
    if view.wide:
        begin[0] = (<const int64_t *>view.offsets)[row]
        end = (<const int64_t *>view.offsets)[row + 1]
    else:
        begin[0] = (<const int32_t *>view.offsets)[row]
        end = (<const int32_t *>view.offsets)[row + 1]
    if not 0 <= begin[0] <= end <= view.limit:
        return -2
    return end - begin[0]


cdef inline int64_t binary_at(const BinaryView *view, int64_t row, const uint8_t **start) noexcept nogil:
    """As `span_at`, with where the bytes are."""
    cdef int64_t begin = 0
    cdef int64_t size = span_at(view, row, &begin)
    start[0] = view.data + begin
    return size


cdef int check_span(str name, int64_t first, int64_t rows, int64_t available, int64_t bits) except -1:
    if first < 0 or rows < 0 or first > available - rows or first > bits - rows:
        raise SerializationError(f"column {name!r} has fewer rows than the table")
    return 0


cdef struct Rows:
    BinaryView value
    BinaryView key
    BinaryView header_key
    BinaryView header_value
    BinaryView headers          # spans of entries of the two above
    const int64_t *timestamps
    const uint8_t *timestamp_validity
    int64_t timestamp_first
    int64_t now_ms
    bint has_key
    bint has_headers


cdef inline int64_t timestamp_at(const Rows *rows, int64_t row) noexcept nogil:
    if rows.timestamps == NULL:
        return rows.now_ms
    row += rows.timestamp_first
    if rows.timestamp_validity != NULL and not bit_at(rows.timestamp_validity, row):
        return rows.now_ms
    return rows.timestamps[row]


cdef inline int64_t header_count_at(const Rows *rows, int64_t row, int64_t *first) noexcept nogil:
    """How many headers the row has and the first one's entry; negative if the offsets are broken."""
    cdef int64_t count = span_at(&rows.headers, row, first)
    return 0 if count == -1 else count


cdef int64_t header_bytes_at(const Rows *rows, int64_t row) noexcept nogil:
    """The size of the row's header count and headers; negative if a key is null or the offsets are broken."""
    cdef const uint8_t *ignored = NULL
    cdef int64_t first = 0
    cdef int64_t count = header_count_at(rows, row, &first)
    cdef int64_t total = varint_bytes(count)
    cdef int64_t entry
    cdef int64_t size
    if count < 0:
        return -1
    for entry in range(first, first + count):
        size = binary_at(&rows.header_key, entry, &ignored)
        if size < 0:
            return -1
        total += varint_bytes(size) + size
        size = binary_at(&rows.header_value, entry, &ignored)
        if size < -1:
            return -1
        total += varint_bytes(size) + max(size, 0)
    return total


cdef uint8_t *put_headers(const Rows *rows, int64_t row, uint8_t *p) noexcept nogil:
    cdef const uint8_t *data = NULL
    cdef int64_t first = 0
    cdef int64_t count = header_count_at(rows, row, &first)
    cdef int64_t entry
    cdef int64_t size
    p = put_varint(p, count)
    for entry in range(first, first + count):
        size = binary_at(&rows.header_key, entry, &data)
        p = put_field(p, data, size)
        size = binary_at(&rows.header_value, entry, &data)
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


cdef inline int64_t record_bytes(const Rows *rows, int64_t row, int64_t index, int64_t delta) noexcept nogil:
    """The size of a record without its length in front; negative says which column is bad."""
    cdef const uint8_t *ignored = NULL
    cdef int64_t size = binary_at(&rows.value, row, &ignored)
    cdef int64_t total = 2 + varint_bytes(delta) + varint_bytes(index) + varint_bytes(size)
    if size < -1:
        return BAD_VALUE
    total += max(size, 0)
    size = -1
    if rows.has_key:
        size = binary_at(&rows.key, row, &ignored)
        if size < -1:
            return BAD_KEY
    total += varint_bytes(size) + max(size, 0)
    if rows.has_headers:
        size = header_bytes_at(rows, row)
        if size < 0:
            return BAD_HEADERS
        total += size - 1
    return total


cdef int measure(const Rows *given, int64_t first, int64_t end, int64_t max_bytes, int32_t *lengths,
                 Measured *measured) noexcept nogil:
    """How many rows from `first` up to `end` make the next batch, its size, and each record's length."""
    cdef Rows rows = given[0]
    cdef Measured batch
    cdef int64_t row
    cdef int64_t timestamp
    cdef int64_t length
    cdef int64_t size
    batch.rows = 0
    batch.size = RECORDS_AT
    batch.base_timestamp = timestamp_at(&rows, first)
    batch.max_timestamp = -1
    for row in range(first, end):
        timestamp = timestamp_at(&rows, row)
        if not -1 <= timestamp < INT64_MAX:
            return BAD_TIMESTAMP
        length = record_bytes(&rows, row, row - first, timestamp - batch.base_timestamp)
        if length < 0:
            return <int>length
        size = length + varint_bytes(length)
        if batch.rows and batch.size + size > max_bytes:
            break
        if batch.size + size > BATCH_BYTES_MAX:
            return ROW_TOO_LARGE
        lengths[batch.rows] = <int32_t>length
        batch.size += size
        batch.rows += 1
        batch.max_timestamp = max(batch.max_timestamp, timestamp)
    measured[0] = batch
    return FINE


cdef void put_rows(const Rows *given, int64_t first, const Measured *batch, const int32_t *lengths,
                   uint8_t *p) noexcept nogil:
    """Write what was measured, and up to COPY_BYTES beyond it.

    Works on a copy of the columns, which none of the bytes written can be part of.
    """
    cdef Rows rows = given[0]
    cdef const uint8_t *key_end = rows.key.data + rows.key.limit
    cdef const uint8_t *value_end = rows.value.data + rows.value.limit
    cdef int64_t base_timestamp = batch.base_timestamp
    cdef int64_t count = batch.rows
    cdef const uint8_t *key = NULL
    cdef const uint8_t *value = NULL
    cdef int64_t key_bytes = -1
    cdef int64_t value_bytes
    cdef int64_t index
    cdef int64_t row
    cdef int64_t delta
    for index in range(count):
        row = first + index
        delta = timestamp_at(&rows, row) - base_timestamp
        if rows.has_key:
            key_bytes = binary_at(&rows.key, row, &key)
        value_bytes = binary_at(&rows.value, row, &value)
        p = put_varint(p, lengths[index])
        p[0] = 0
        p = put_varint(p + 1, delta)
        p = put_varint(p, index)
        p = put_varint(p, key_bytes)
        if key_bytes > 0:
            copy_over(p, key, key_bytes, key_end)
            p += key_bytes
        p = put_varint(p, value_bytes)
        if value_bytes > 0:
            copy_over(p, value, value_bytes, value_end)
            p += value_bytes
        if rows.has_headers:
            p = put_headers(given, row, p)
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


cdef bytearray packed(const Rows *rows, int64_t first, const Measured *batch, const int32_t *lengths, int compression,
                      object level, Scratch scratch):
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
        p = scratch.room(batch.size - RECORDS_AT + COPY_BYTES)
        with nogil:
            put_rows(rows, first, batch, lengths, p)
        return seal(p, batch.size - RECORDS_AT, &header, level)
    out = PyByteArray_FromStringAndSize(NULL, batch.size + COPY_BYTES)
    p = <uint8_t *>PyByteArray_AS_STRING(out)
    put_header(p, batch.size, &header)
    if batch.size >= UNLOCKED_BYTES:
        with nogil:
            put_rows(rows, first, batch, lengths, p + RECORDS_AT)
    else:
        put_rows(rows, first, batch, lengths, p + RECORDS_AT)
    PyByteArray_Resize(out, batch.size)
    p = <uint8_t *>PyByteArray_AS_STRING(out)
    fl_put32(p + CRC_AT, crc_of(p + ATTRIBUTES_AT, batch.size - ATTRIBUTES_AT))
    return out


@cython.final
cdef class Held:
    """Keeps buffers open while a loop reads them."""

    cdef list views

    def __cinit__(self):
        self.views = []

    cdef const uint8_t *open(self, object buffer, int64_t *size) except? NULL:
        """Where the bytes are and how many; NULL for None."""
        cdef Bytes view
        size[0] = 0
        if buffer is None:
            return NULL
        view = bytes_of(buffer)
        self.views.append(view)
        size[0] = view.size
        return view.data

    cdef int spans(self, str name, object column, int64_t rows, BinaryView *view) except -1:
        """The offsets and nulls of a column, of which there have to be as many as rows."""
        cdef int64_t offsets_bytes = 0
        cdef int64_t bitmap_bytes = 0
        view.wide = column.wide
        view.first = column.first
        view.offsets = self.open(column.offsets, &offsets_bytes)
        view.validity = self.open(column.validity, &bitmap_bytes)
        return check_span(name, view.first, rows, offsets_bytes // (8 if view.wide else 4) - 1,
                          8 * bitmap_bytes if view.validity != NULL else INT64_MAX)

    cdef int binary(self, object column, int64_t rows, BinaryView *view) except -1:
        self.spans(column.name, column, rows, view)
        view.data = self.open(column.data, &view.limit)
        return 0

    cdef const int64_t *numbers(self, object column, int64_t rows, const uint8_t **validity) except? NULL:
        cdef int64_t size = 0
        cdef int64_t bitmap_bytes = 0
        cdef const uint8_t *data = self.open(column.data, &size)
        validity[0] = self.open(column.validity, &bitmap_bytes)
        check_span(column.name, column.first, rows, size // 8,
                   8 * bitmap_bytes if validity[0] != NULL else INT64_MAX)
        return <const int64_t *>data


cdef Held hold_rows(object value, object key, object headers, object timestamp, int64_t count, Rows *rows):
    cdef Held held = Held()
    memset(rows, 0, sizeof(Rows))
    held.binary(value, count, &rows.value)
    if key is not None:
        rows.has_key = True
        held.binary(key, count, &rows.key)
    if timestamp is not None:
        rows.timestamps = held.numbers(timestamp, count, &rows.timestamp_validity)
        rows.timestamp_first = timestamp.first
    if headers is not None:
        rows.has_headers = True
        held.spans("headers", headers, count, &rows.headers)
        rows.headers.limit = headers.entries
        held.binary(headers.key, headers.entries, &rows.header_key)
        held.binary(headers.value, headers.entries, &rows.header_value)
    return held


def pack_columns(value, key, headers, timestamp, int64_t rows, *, int64_t first_row=0, int64_t now_ms,
                 int64_t max_batch_bytes, int64_t max_batch_records, int64_t enough_bytes, int compression=0,
                 level=None):
    """Batches of the rows from `first_row` on, until they are `enough_bytes` together or there are no more rows.

    A batch is closed before it would grow over `max_batch_bytes` before compression; a first record always fits.
    """
    cdef Rows columns
    cdef Held held
    cdef Scratch scratch = Scratch()
    cdef Scratch lengths_memory = Scratch()
    cdef int32_t *lengths
    cdef Measured batch
    cdef list made = []
    cdef int64_t rows_offered
    cdef int64_t made_bytes = 0
    cdef int status
    if max_batch_bytes < 1 or not 1 <= max_batch_records <= INT32_MAX:
        raise InvalidArgument(
            f"a batch of at most {max_batch_bytes} bytes and {max_batch_records} records is not possible"
        )
    _check_codec(compression, level)
    held = hold_rows(value, key, headers, timestamp, rows, &columns)
    columns.now_ms = now_ms
    while first_row < rows and made_bytes < enough_bytes:
        rows_offered = min(rows - first_row, max_batch_records, max_batch_bytes // RECORD_BYTES_MIN + 1)
        lengths = <int32_t *>lengths_memory.room(4 * rows_offered)
        status = measure(&columns, first_row, first_row + rows_offered, max_batch_bytes, lengths, &batch)
        if status:
            failed_packing(status)
        buffer = packed(&columns, first_row, &batch, lengths, compression, level, scratch)
        made_bytes += batch.size
        made.append(_new_tuple(_PackedBatch, (buffer, batch.rows, first_row, batch.max_timestamp)))
        first_row += batch.rows
    return made


def route_rows(key, partition, int64_t rows, int64_t partitions):
    """For each partition that gets rows, in ascending order: its number and its rows as int64.

    The partition column decides where it is not null; else the key's hash; else the partition is -1.
    """
    cdef Held held = Held()
    cdef BinaryView keys
    cdef Scratch chosen_memory = Scratch()
    cdef Scratch count_memory = Scratch()
    cdef int32_t *chosen
    cdef int64_t *counts
    cdef const int64_t *given = NULL
    cdef const uint8_t *given_validity = NULL
    cdef const uint8_t *data = NULL
    cdef int64_t given_first = 0
    cdef int64_t row
    cdef int64_t size
    cdef int64_t number
    cdef bint has_key = key is not None
    if has_key:
        held.binary(key, rows, &keys)
    if not 1 <= partitions <= INT32_MAX:
        raise InvalidArgument(f"rows cannot be routed to {partitions} partitions")
    if partition is not None:
        given = held.numbers(partition, rows, &given_validity)
        given_first = partition.first
    chosen = <int32_t *>chosen_memory.room(4 * rows)
    counts = <int64_t *>count_memory.room(8 * (partitions + 1))
    memset(counts, 0, <size_t>(8 * (partitions + 1)))
    for row in range(rows):
        number = -1
        if given != NULL and (given_validity == NULL or bit_at(given_validity, row + given_first)):
            number = given[row + given_first]
            if not 0 <= number < partitions:
                raise InvalidArgument(f"there is no partition {number} in column 'partition'; there are {partitions}")
        elif has_key:
            size = binary_at(&keys, row, &data)
            if size < -1:
                failed_packing(BAD_KEY)
            if size >= 0:
                number = (murmur2_of(data, <uint32_t>size) & 0x7FFFFFFF) % partitions
        chosen[row] = <int32_t>number
        counts[number + 1] += 1
    return rows_by_partition(chosen, rows, counts, partitions)


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
