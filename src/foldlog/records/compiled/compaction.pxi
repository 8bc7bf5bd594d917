# Compaction's two halves: which offset is a key's newest, and the batches without what is superseded.

cdef enum:
    SORT_BITS = 11
    SORT_DIGITS = 2048


cdef struct Entry:
    uint64_t low
    uint64_t high
    int64_t offset_plus_one      # 0: the slot is free, as calloc leaves it


cdef inline uint64_t rotated(uint64_t word, int bits) noexcept nogil:
    return (word << bits) | (word >> (64 - bits))


cdef inline void sip_round(uint64_t *v) noexcept nogil:
    v[0] += v[1]
    v[2] += v[3]
    v[1] = rotated(v[1], 13) ^ v[0]
    v[3] = rotated(v[3], 16) ^ v[2]
    v[0] = rotated(v[0], 32)
    v[2] += v[1]
    v[0] += v[3]
    v[1] = rotated(v[1], 17) ^ v[2]
    v[3] = rotated(v[3], 21) ^ v[0]
    v[2] = rotated(v[2], 32)


cdef inline void sip_rounds(uint64_t *v, int rounds) noexcept nogil:
    cdef int index
    for index in range(rounds):
        sip_round(v)


cdef void siphash128(const uint8_t *data, size_t size, const uint64_t *seed, Entry *entry) noexcept nogil:
    """SipHash-2-4 with 128 bits. Two keys that collided would lose one's records, so the seed is secret."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef size_t left = size
    cdef uint64_t tail = <uint64_t>size << 56
    cdef size_t index
    v[0] = seed[0] ^ <uint64_t>0x736F6D6570736575
    v[1] = seed[1] ^ <uint64_t>0x646F72616E646F6D ^ 0xEE
    v[2] = seed[0] ^ <uint64_t>0x6C7967656E657261
    v[3] = seed[1] ^ <uint64_t>0x7465646279746573
    while left >= 8:
        word = fl_little64(data)
        v[3] ^= word
        sip_rounds(v, 2)
        v[0] ^= word
        data += 8
        left -= 8
    for index in range(left):
        tail |= <uint64_t>data[index] << (8 * index)
    v[3] ^= tail
    sip_rounds(v, 2)
    v[0] ^= tail
    v[2] ^= 0xEE
    sip_rounds(v, 4)
    entry.low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    sip_rounds(v, 4)
    entry.high = v[0] ^ v[1] ^ v[2] ^ v[3]


cdef int sort_ascending(int64_t *values, int64_t count) except -1:
    """By the digits that differ, lowest first: a comparison sort takes as long as mapping the keys did."""
    cdef int64_t starts[SORT_DIGITS]
    cdef int64_t *source = values
    cdef int64_t *target
    cdef int64_t *spare
    cdef int64_t lowest = INT64_MAX
    cdef int64_t largest = 0
    cdef int64_t at
    cdef int64_t start
    cdef int64_t taken
    cdef int shift = 0
    cdef int digit
    for at in range(count):
        lowest = min(lowest, values[at])
        largest = max(largest, values[at])
    if largest <= lowest:
        return 0
    spare = <int64_t *>malloc(<size_t>count * 8)
    if spare == NULL:
        raise MemoryError
    target = spare
    while shift < 63 and (largest - lowest) >> shift:
        memset(starts, 0, sizeof(starts))
        for at in range(count):
            starts[((source[at] - lowest) >> shift) & (SORT_DIGITS - 1)] += 1
        start = 0
        for digit in range(SORT_DIGITS):
            taken = starts[digit]
            starts[digit] = start
            start += taken
        for at in range(count):
            digit = ((source[at] - lowest) >> shift) & (SORT_DIGITS - 1)
            target[starts[digit]] = source[at]
            starts[digit] += 1
        source, target = target, source
        shift += SORT_BITS
    if source != values:
        memcpy(values, source, <size_t>count * 8)
    free(spare)
    return 0


@cython.final
cdef class KeyMap:
    """Newest offset of each key, for at most `capacity` keys.

    Open addressing with linear probing, a quarter of the slots free: 24 bytes a slot, so 32 a key. The keys
    themselves are not kept, only 128 bits of a hash seeded anew for each map.
    """

    cdef readonly int64_t capacity
    cdef int64_t slots
    cdef int64_t count
    cdef Entry *entries
    cdef uint64_t seed[2]

    def __cinit__(self, int64_t capacity):
        self.entries = NULL
        if capacity < 1:
            raise InvalidArgument(f"a key map needs room for at least one key, not {capacity}")
        self.capacity = capacity
        self.slots = capacity + capacity // 3 + 1
        self.count = 0
        self.entries = <Entry *>calloc(<size_t>self.slots, sizeof(Entry))
        if self.entries == NULL:
            raise MemoryError
        secret = _secrets.token_bytes(16)
        memcpy(self.seed, PyBytes_AS_STRING(secret), 16)

    def __dealloc__(self):
        free(self.entries)

    def __len__(self):
        return self.count

    cdef inline Entry *find(self, const uint8_t *key, int64_t size, Entry *wanted) noexcept nogil:
        """The key's slot, or the free one where it belongs; `wanted` gets the hash."""
        cdef Entry *entry
        cdef int64_t slot
        siphash128(key, <size_t>size, self.seed, wanted)
        slot = <int64_t>fl_scale(wanted.low, <uint64_t>self.slots)
        while True:
            entry = self.entries + slot
            if entry.offset_plus_one == 0 or (entry.low == wanted.low and entry.high == wanted.high):
                return entry
            slot += 1
            if slot == self.slots:
                slot = 0

    cdef inline bint note(self, const uint8_t *key, int64_t size, int64_t offset) noexcept nogil:
        cdef Entry wanted
        cdef Entry *entry = self.find(key, size, &wanted)
        if entry.offset_plus_one == 0:
            if self.count >= self.capacity:
                return False
            entry.low = wanted.low
            entry.high = wanted.high
            self.count += 1
        if entry.offset_plus_one < offset + 1:
            entry.offset_plus_one = offset + 1
        return True

    cdef inline int64_t newest_of(self, const uint8_t *key, int64_t size) noexcept nogil:
        cdef Entry wanted
        return self.find(key, size, &wanted).offset_plus_one - 1

    def newest(self, key):
        """The newest offset noted for the key; -1 if none is."""
        cdef Bytes view = bytes_of(key)
        return self.newest_of(view.data, view.size)

    def newest_offsets(self):
        """The newest offset of each key, ascending: int64 in the processor's byte order."""
        cdef bytearray found = PyByteArray_FromStringAndSize(NULL, 8 * self.count)
        cdef int64_t *offsets = <int64_t *>PyByteArray_AS_STRING(found)
        cdef int64_t at = 0
        cdef int64_t slot
        for slot in range(self.slots):
            if self.entries[slot].offset_plus_one:
                offsets[at] = self.entries[slot].offset_plus_one - 1
                at += 1
        sort_ascending(offsets, self.count)
        return found

    cdef int note_all(self, Cursor *cursor, int64_t start_offset, int64_t end_offset, int64_t *full_at) noexcept nogil:
        cdef Fields record
        cdef int64_t offset
        cdef int fault
        full_at[0] = -1
        while cursor.left > 0:
            fault = next_record(cursor, &record)
            if fault:
                return fault
            offset = cursor.base_offset + record.offset_delta
            if record.key_bytes < 0 or not start_offset <= offset < end_offset:
                continue
            if not self.note(record.key, record.key_bytes, offset):
                full_at[0] = offset
                return FINE
        return end_of_records(cursor)

    def add(self, buffer, *, int64_t start_offset=0, int64_t end_offset=INT64_MAX,
            int64_t decompressed_limit=READ_DECOMPRESSED_BYTES):
        """Note the offset of every keyed data record in these batches with start_offset <= offset < end_offset.

        Returns the offset up to which, exclusive, everything is noted: less than the end when the map is full.
        """
        cdef Bytes view = bytes_of(buffer)
        cdef Body body = new_body()
        cdef Header header
        cdef Cursor cursor
        cdef int64_t position = 0
        cdef int64_t noted = start_offset
        cdef int64_t full_at = -1
        cdef int fault
        while position < view.size:
            fault = read_header(view.data, position, view.size, True, &header)
            if fault:
                broken(fault, position)
            position += header.size
            if header.base_offset >= end_offset:
                break
            if next_offset_of(&header) <= start_offset:
                continue
            noted = min(next_offset_of(&header), end_offset)
            if header.attributes & CONTROL:
                continue
            body.open(view.data, &header, decompressed_limit, &cursor)
            if cursor.end - cursor.at >= UNLOCKED_BYTES:
                with nogil:
                    fault = self.note_all(&cursor, start_offset, end_offset, &full_at)
            else:
                fault = self.note_all(&cursor, start_offset, end_offset, &full_at)
            if fault:
                broken(fault, header.position)
            if full_at >= 0:
                return full_at
        return noted


@cython.final
cdef class CompactStats:
    """What one call of `compact` read and wrote."""

    __match_args__ = ("records_in", "records_out", "batches_in", "batches_out", "bytes_in", "bytes_out")

    cdef public int64_t records_in
    cdef public int64_t records_out
    cdef public int64_t batches_in
    cdef public int64_t batches_out
    cdef public int64_t bytes_in
    cdef public int64_t bytes_out

    def __init__(self, int64_t records_in=0, int64_t records_out=0, int64_t batches_in=0, int64_t batches_out=0,
                 int64_t bytes_in=0, int64_t bytes_out=0):
        self.records_in = records_in
        self.records_out = records_out
        self.batches_in = batches_in
        self.batches_out = batches_out
        self.bytes_in = bytes_in
        self.bytes_out = bytes_out

    __hash__ = None

    def __eq__(self, other):
        return equal(self, other)

    def __repr__(self):
        return repr_of(self)

    def __reduce__(self):
        return pickled(self)


cdef struct Choice:
    int64_t now_ms
    int64_t horizon_ms
    int64_t mapped_end
    int32_t kept_count          # out: how many records stay
    bint sets_horizon           # out: the batch gets a delete horizon
    int64_t max_timestamp       # out: of the records that stay


cdef int choose(KeyMap keys, const Header *header, Cursor *cursor, uint8_t *keep, Choice *choice) noexcept nogil:
    """Mark in `keep`, by index, the records that stay."""
    cdef Fields record
    cdef int64_t offset
    cdef int64_t delta
    cdef int32_t index = 0
    cdef bint has_horizon = (header.attributes & DELETE_HORIZON) != 0
    cdef bint tombstones_go = has_horizon and choice.now_ms >= header.base_timestamp
    cdef bint keeps_tombstone = False
    cdef bint deltas_fit = True
    cdef int fault
    choice.kept_count = 0
    choice.max_timestamp = -INT64_MAX
    while cursor.left > 0:
        fault = next_record(cursor, &record)
        if fault:
            return fault
        offset = header.base_offset + record.offset_delta
        keep[index] = True
        if record.key_bytes >= 0 and offset < choice.mapped_end:
            if keys.newest_of(record.key, record.key_bytes) > offset or (record.value_bytes < 0 and tombstones_go):
                keep[index] = False
            elif record.value_bytes < 0:
                keeps_tombstone = True
        if keep[index]:
            choice.kept_count += 1
            if record.timestamp > choice.max_timestamp:
                choice.max_timestamp = record.timestamp
            if fl_sub_overflows(record.timestamp, choice.horizon_ms, &delta) or delta == INT64_MIN:
                deltas_fit = False
        index += 1
    choice.sets_horizon = (keeps_tombstone and not has_horizon and next_offset_of(header) <= choice.mapped_end
                           and deltas_fit)
    return end_of_records(cursor)


cdef int64_t put_kept(const uint8_t *at, const uint8_t *end, const Header *header, const uint8_t *keep,
                      const Choice *choice, uint8_t *out) noexcept nogil:
    """Write the records that stay; returns how many bytes. They are copied as they stand, since base offset and
    base timestamp stay; a new horizon moves the latter, so then the timestamp delta and the length are written anew.
    """
    cdef Fields record
    cdef uint8_t *p = out
    cdef int64_t delta
    cdef int64_t rest
    cdef int32_t index
    for index in range(header.record_count):
        read_record(at, end, &record)
        at = record.end
        if not keep[index]:
            continue
        if not choice.sets_horizon:
            memcpy(p, record.start, <size_t>(record.end - record.start))
            p += record.end - record.start
            continue
        delta = header.base_timestamp + record.timestamp_delta - choice.horizon_ms
        rest = record.end - record.after_timestamp
        p = put_varint(p, 1 + varint_bytes(delta) + rest)
        p[0] = record.attributes_at[0]
        p = put_varint(p + 1, delta)
        memcpy(p, record.after_timestamp, <size_t>rest)
        p += rest
    return p - out


def compact(buffer, KeyMap keys not None, *, int64_t now_ms, int64_t delete_retention_ms, int64_t mapped_end,
            keep_batches=frozenset(), bint keep_last=False,
            int64_t decompressed_limit=READ_DECOMPRESSED_BYTES):
    """The batches without superseded records, and without tombstones whose delete horizon has passed.

    A record stays if it has no key, or stands at or past `mapped_end` (where the map knows nothing), or is its
    key's newest. A batch wholly below `mapped_end` that keeps a tombstone and has no delete horizon gets one:
    now + delete_retention_ms, in the place of its base timestamp. Untouched batches are copied as they are.
    Rewritten ones keep offsets, epoch, producer fields, codec and timestamp type. One left without records is
    dropped, unless its base offset is in `keep_batches` or it is the last and `keep_last`: then it stays, empty.
    """
    cdef Bytes view = bytes_of(buffer)
    cdef Body body = new_body()
    cdef Scratch keep = Scratch()
    cdef Scratch records = Scratch()
    cdef CompactStats stats = CompactStats()
    cdef Output out = Output(view.size)
    cdef Header header
    cdef Cursor cursor
    cdef Choice choice
    cdef int64_t position = 0
    cdef int fault
    choice.now_ms = now_ms
    choice.mapped_end = mapped_end
    if fl_add_overflows(now_ms, delete_retention_ms, &choice.horizon_ms):
        choice.horizon_ms = INT64_MAX
    while position < view.size:
        fault = read_header(view.data, position, view.size, True, &header)
        if fault:
            broken(fault, position)
        position += header.size
        stats.batches_in += 1
        stats.records_in += header.record_count
        if header.attributes & CONTROL:
            out.put(view.data + header.position, header.size)
            stats.batches_out += 1
            stats.records_out += header.record_count
            continue
        body.open(view.data, &header, decompressed_limit, &cursor)
        fault = choose(keys, &header, &cursor, keep.room(header.record_count), &choice)
        if fault:
            broken(fault, header.position)
        if choice.kept_count == 0:
            if header.base_offset not in keep_batches and not (keep_last and position == view.size):
                continue
            if header.record_count == 0:
                out.put(view.data + header.position, header.size)
            else:
                out.put_object(emptied(&header))
        elif choice.kept_count == header.record_count and not choice.sets_horizon:
            out.put(view.data + header.position, header.size)
        else:
            out.put_object(rewritten(body, &header, keep.data, &choice, records))
        stats.batches_out += 1
        stats.records_out += choice.kept_count
    stats.bytes_in = view.size
    stats.bytes_out = out.size
    return out.taken(), stats


cdef bytearray rewritten(Body body, const Header *header, const uint8_t *keep, const Choice *choice, Scratch records):
    cdef Header changed = header[0]
    # A new delta, and the longer length it can cause, are at most 9 + 4 bytes more than the old ones.
    cdef int64_t most = body.end - body.start + 13 * <int64_t>choice.kept_count
    cdef uint8_t *made = records.room(most)
    cdef int64_t size = put_kept(body.start, body.end, header, keep, choice, made)
    changed.record_count = choice.kept_count
    if choice.sets_horizon:
        changed.attributes |= DELETE_HORIZON
        changed.base_timestamp = choice.horizon_ms
    if not changed.attributes & LOG_APPEND_TIME:
        changed.max_timestamp = choice.max_timestamp
    return seal(made, size, &changed)


def recompress(buffer, int compression, level=None, *, int64_t decompressed_limit=READ_DECOMPRESSED_BYTES):
    """All batches in another codec; offsets, epochs, timestamps and producer fields stay.

    Control batches, empty ones, and those already in that codec are copied as they are.
    """
    cdef Bytes view = bytes_of(buffer)
    cdef Body body = new_body()
    cdef Output out = Output(view.size)
    cdef Header header
    cdef Cursor cursor
    cdef int64_t position = 0
    cdef int fault
    _check_codec(compression, level)
    while position < view.size:
        fault = read_header(view.data, position, view.size, True, &header)
        if fault:
            broken(fault, position)
        position += header.size
        if (header.attributes & CONTROL or header.record_count == 0
                or header.attributes & COMPRESSION_MASK == compression):
            out.put(view.data + header.position, header.size)
            continue
        body.open(view.data, &header, decompressed_limit, &cursor)
        header.attributes = (header.attributes & ~COMPRESSION_MASK) | compression
        out.put_object(seal(body.start, body.end - body.start, &header, level))
    return out.taken()
