# Whether compaction lost nothing: what it wrote, compared with what it read. There a record stays if its key's hash leads
# to no newer offset, here if its offset is one of the newest ones. Which offsets these are, both have from the key map:
# whether it tells keys apart is seen by `DroppedSample` and `key_at`, which compare whole keys.

cdef struct Glance:
    const uint8_t *attributes_at
    const uint8_t *after_timestamp
    const uint8_t *key
    const uint8_t *end
    int64_t timestamp
    int32_t offset_delta
    int32_t key_bytes
    int32_t value_bytes


cdef enum:
    NO_SAMPLE_MEMORY = -1        # no fault of a batch


cdef struct Expected:
    const int64_t *newest       # ascending: the newest offset of each key of the mapped part
    int64_t count
    int64_t at                  # the first of them that was not seen yet
    int64_t mapped_start
    int64_t mapped_end
    int64_t now_ms


cdef inline int glance(const uint8_t **at, const uint8_t *body_end, int64_t base_timestamp, Glance *seen) noexcept nogil:
    """A record as far as its value's length."""
    cdef const uint8_t *p = at[0]
    cdef int32_t length = 0
    cdef int64_t delta = 0
    cdef int fault = read_field(&p, body_end, 1, &length)
    if fault:
        return fault
    seen.end = p + length
    seen.attributes_at = p
    p += 1
    fault = read64(&p, seen.end, &delta)
    if fault:
        return fault
    if fl_add_overflows(base_timestamp, delta, &seen.timestamp):
        return FAULT_TIMESTAMP
    seen.after_timestamp = p
    fault = read32(&p, seen.end, &seen.offset_delta)
    if fault:
        return fault
    fault = read_field(&p, seen.end, -1, &seen.key_bytes)
    if fault:
        return fault
    seen.key = p
    if seen.key_bytes > 0:
        p += seen.key_bytes
    fault = read_field(&p, seen.end, -1, &seen.value_bytes)
    at[0] = seen.end
    return fault


cdef inline bint is_same_record(const Glance *one, const Glance *other) noexcept nogil:
    cdef int64_t size = one.end - one.after_timestamp
    return (one.attributes_at[0] == other.attributes_at[0] and one.timestamp == other.timestamp
            and other.end - other.after_timestamp == size
            and memcmp(one.after_timestamp, other.after_timestamp, <size_t>size) == 0)


cdef inline uint64_t next_random(uint64_t *state) noexcept nogil:
    """SplitMix64."""
    cdef uint64_t mixed
    state[0] += <uint64_t>0x9E3779B97F4A7C15
    mixed = state[0]
    mixed = (mixed ^ (mixed >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    mixed = (mixed ^ (mixed >> 27)) * <uint64_t>0x94D049BB133111EB
    return mixed ^ (mixed >> 31)


@cython.final
cdef class DroppedSample:
    """At most `capacity` of the superseded records that compaction left out, each as likely as any other: offset and
    key. Keys over `key_bytes_max` are left out of it, so that its memory has a bound. `seen`: how many there were."""

    cdef readonly int64_t capacity
    cdef readonly int64_t key_bytes_max
    cdef readonly int64_t seen
    cdef uint64_t state
    cdef int64_t *offsets
    cdef int32_t *sizes
    cdef uint8_t **keys

    def __cinit__(self, int64_t capacity, int64_t key_bytes_max, uint64_t seed):
        if capacity < 1:
            raise InvalidArgument(f"a sample has room for at least one record, not {capacity}")
        self.capacity = capacity
        self.key_bytes_max = key_bytes_max
        self.seen = 0
        self.state = seed
        self.offsets = <int64_t *>calloc(<size_t>capacity, sizeof(int64_t))
        self.sizes = <int32_t *>calloc(<size_t>capacity, sizeof(int32_t))
        self.keys = <uint8_t **>calloc(<size_t>capacity, sizeof(uint8_t *))
        if self.offsets == NULL or self.sizes == NULL or self.keys == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef int64_t at
        if self.keys != NULL:
            for at in range(self.capacity):
                free(self.keys[at])
        free(self.keys)
        free(self.sizes)
        free(self.offsets)

    cdef inline bint note(self, int64_t offset, const uint8_t *key, int32_t size) noexcept nogil:
        """False where there is no memory for it."""
        cdef int64_t index = self.seen
        cdef uint8_t *copy
        if size > self.key_bytes_max:
            return True
        self.seen += 1
        if index >= self.capacity:
            index = <int64_t>(next_random(&self.state) % <uint64_t>self.seen)
            if index >= self.capacity:
                return True
        copy = <uint8_t *>realloc(self.keys[index], <size_t>size + 1)
        if copy == NULL:
            return False
        memcpy(copy, key, <size_t>size)
        self.keys[index] = copy
        self.sizes[index] = size
        self.offsets[index] = offset
        return True

    def records(self):
        """(offset, key) of each in the sample, in no order."""
        cdef int64_t at
        return [
            (self.offsets[at], PyBytes_FromStringAndSize(<char *>self.keys[at], self.sizes[at]))
            for at in range(min(self.seen, self.capacity))
        ]


cdef int check_batch(KeyMap keys, DroppedSample dropped, Expected *expected, const Header *old, const uint8_t *at, const uint8_t *end,
                     const Header *made, const uint8_t *made_at, const uint8_t *made_end) noexcept nogil:
    """One batch, and what was made of it: `made` is NULL where nothing was."""
    cdef Glance record
    cdef Glance kept
    cdef int64_t offset
    cdef int64_t latest = INT64_MIN
    cdef int32_t index
    cdef int32_t left = made.record_count if made != NULL else 0
    cdef bint tombstones_go = old.attributes & DELETE_HORIZON and expected.now_ms >= old.base_timestamp
    cdef bint is_newest
    cdef int fault = FINE
    if left:
        fault = glance(&made_at, made_end, made.base_timestamp, &kept)
    for index in range(old.record_count):
        if fault == FINE:
            fault = glance(&at, end, old.base_timestamp, &record)
        if fault:
            return fault
        offset = old.base_offset + record.offset_delta
        is_newest = False
        if expected.at < expected.count and expected.newest[expected.at] <= offset:
            if expected.newest[expected.at] < offset:
                return FAULT_LOST
            is_newest = True
            expected.at += 1
        if left and kept.offset_delta == record.offset_delta:
            if not is_same_record(&record, &kept):
                return FAULT_CHANGED
            if kept.timestamp > latest:
                latest = kept.timestamp
            left -= 1
            if left:
                fault = glance(&made_at, made_end, made.base_timestamp, &kept)
            continue
        if record.key_bytes < 0 or offset >= expected.mapped_end:
            return FAULT_LOST
        if record.value_bytes < 0 and tombstones_go:
            continue
        if is_newest or (offset < expected.mapped_start and keys.newest_of(record.key, record.key_bytes) <= offset):
            return FAULT_LOST
        if dropped is not None and not dropped.note(offset, record.key, record.key_bytes):
            return NO_SAMPLE_MEMORY
    if left or at != end or made_at != made_end:
        return FAULT_CHANGED
    if made != NULL and made.record_count and not made.attributes & LOG_APPEND_TIME and made.max_timestamp != latest:
        return FAULT_CHANGED
    return FINE


cdef bint keeps_its_header(const Header *old, const Header *made) noexcept nogil:
    """Whether all that does not depend on which records stayed is as it was."""
    cdef int32_t kept_attributes = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
    if made.record_count:
        kept_attributes |= COMPRESSION_MASK
    if old.attributes & kept_attributes != made.attributes & kept_attributes:
        return False
    if made.record_count and old.attributes & DELETE_HORIZON and (
            not made.attributes & DELETE_HORIZON or made.base_timestamp != old.base_timestamp):
        return False
    return (made.last_offset_delta == old.last_offset_delta and made.leader_epoch == old.leader_epoch
            and made.producer_id == old.producer_id and made.producer_epoch == old.producer_epoch
            and made.base_sequence == old.base_sequence
            and (made.max_timestamp == old.max_timestamp or not old.attributes & LOG_APPEND_TIME))


def check_compacted(buffer, rewritten, KeyMap keys not None, newest, int64_t at, *, int64_t mapped_start,
                    int64_t mapped_end, int64_t now_ms, keep_batches=frozenset(), DroppedSample dropped=None,
                    int64_t decompressed_limit=READ_DECOMPRESSED_BYTES):
    """Whether `rewritten` is `buffer` without what may go: InvalidBatch, with a position in `buffer`, if it is not.

    `newest` is `KeyMap.newest_offsets` of a map of the offsets [mapped_start, mapped_end), `at` how many of them lie
    before the buffer; returns how many lie before its end. Each of these has to be there. A record may go if it has a
    key and is not the newest of it, or is a tombstone whose delete horizon has passed. What stays is as it was. Those
    that went as superseded are noted in `dropped`.
    """
    cdef Bytes before = bytes_of(buffer)
    cdef Bytes after = bytes_of(rewritten)
    cdef Bytes offsets = bytes_of(newest)
    cdef Body body = new_body()
    cdef Body made_body = new_body()
    cdef Cursor cursor
    cdef Header old
    cdef Header made
    cdef Expected expected
    cdef int64_t position = 0
    cdef int64_t made_position = 0
    cdef bint is_there
    cdef bint is_same
    cdef int fault
    if at < 0:
        raise InvalidArgument(f"{at} of the newest offsets cannot lie before the buffer")
    expected.newest = <const int64_t *>offsets.data
    expected.count = offsets.size // 8
    expected.at = at
    expected.mapped_start = mapped_start
    expected.mapped_end = mapped_end
    expected.now_ms = now_ms
    while position < before.size:
        fault = read_header(before.data, position, before.size, True, &old)
        if fault:
            broken(fault, position)
        position += old.size
        is_there = False
        if made_position < after.size:
            fault = read_header(after.data, made_position, after.size, True, &made)
            if fault:
                broken(fault, old.position)
            is_there = made.base_offset == old.base_offset
        if expected.at < expected.count and expected.newest[expected.at] < old.base_offset:
            broken(FAULT_LOST, old.position)
        if not is_there and (old.attributes & CONTROL or old.base_offset in keep_batches):
            broken(FAULT_LOST, old.position)
        is_same = is_there and made.size == old.size and memcmp(
            before.data + old.position, after.data + made.position, <size_t>old.size) == 0
        if is_there:
            made_position += made.size
            if not is_same and (old.attributes & CONTROL or not keeps_its_header(&old, &made)):
                broken(FAULT_CHANGED, old.position)
        if old.attributes & CONTROL or (is_same and old.record_count == old.last_offset_delta + 1):
            # Every offset of a batch without gaps is there; those of a control batch are no key's newest.
            while expected.at < expected.count and expected.newest[expected.at] < next_offset_of(&old):
                if old.attributes & CONTROL:
                    broken(FAULT_LOST, old.position)
                expected.at += 1
            continue
        body.open(before.data, &old, decompressed_limit, &cursor)
        if is_there:
            try:
                made_body.open(after.data, &made, decompressed_limit, &cursor)
            except InvalidBatch as error:
                raise type(error)(error.reason, old.position) from None
            with nogil:
                fault = check_batch(keys, dropped, &expected, &old, body.start, body.end, &made, made_body.start,
                                    made_body.end)
        else:
            with nogil:
                fault = check_batch(keys, dropped, &expected, &old, body.start, body.end, NULL, NULL, NULL)
        if fault == NO_SAMPLE_MEMORY:
            raise MemoryError
        if fault == FINE and expected.at < expected.count and expected.newest[expected.at] < next_offset_of(&old):
            fault = FAULT_LOST
        if fault:
            broken(fault, old.position)
    if made_position != after.size:
        broken(FAULT_CHANGED, position)
    return expected.at


def key_at(buffer, int64_t offset, *, int64_t decompressed_limit=READ_DECOMPRESSED_BYTES):
    """The key of the record at `offset` in these batches; None if there is no such record, or it has no key."""
    cdef Bytes view = bytes_of(buffer)
    cdef Body body = new_body()
    cdef Cursor cursor
    cdef Header header
    cdef Glance record
    cdef const uint8_t *at
    cdef int64_t position = 0
    cdef int32_t index
    cdef int fault
    while position < view.size:
        fault = read_header(view.data, position, view.size, True, &header)
        if fault:
            broken(fault, position)
        position += header.size
        if next_offset_of(&header) <= offset:
            continue
        if header.base_offset > offset or header.attributes & CONTROL:
            return None
        body.open(view.data, &header, decompressed_limit, &cursor)
        at = body.start
        for index in range(header.record_count):
            fault = glance(&at, body.end, header.base_timestamp, &record)
            if fault:
                broken(fault, header.position)
            if header.base_offset + record.offset_delta == offset:
                return None if record.key_bytes < 0 else PyBytes_FromStringAndSize(<char *>record.key, record.key_bytes)
        return None
    return None
