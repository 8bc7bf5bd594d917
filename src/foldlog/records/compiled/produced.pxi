# The batches of one or more Produce requests, between the frame and the log: found by `wire.produce_frames`, checked,
# gathered by partition, numbered in place. One structure a batch, and no Python object.

@cython.final
cdef class ProducedBatches:
    """Batches in one buffer, as producers sent them: of any number of frames and partitions. Reused from run to run.

    A run is a sequence of whole frames. What cannot be appended here cuts the run before its frame, with nothing done:
    that frame, and those behind it, are for the handlers. The order of calls: `place`, `allow` for each target, `check`,
    `cut` where a partition refuses, `number`.
    """

    def __cinit__(self):
        self.view = Bytes.__new__(Bytes)
        self.batches = NULL
        self.targets = NULL
        self.capacity = self.targets_capacity = self.count = self.target_count = self.frames = 0

    def __dealloc__(self):
        free(self.batches)
        free(self.targets)

    cdef int begin(self, object buffer) except -1:
        self.view.hold(buffer, PyBUF_WRITABLE)
        self.count = self.target_count = self.frames = 0
        return 0

    cdef int add(self, int64_t start, int64_t size, int32_t frame, int32_t topic, int32_t number) except -1:
        cdef Produced *grown
        cdef Produced *batch
        if self.count == self.capacity:
            grown = <Produced *>realloc(self.batches, max(64, 2 * self.capacity) * sizeof(Produced))
            if grown == NULL:
                raise MemoryError
            self.batches = grown
            self.capacity = max(64, 2 * self.capacity)
        batch = &self.batches[self.count]
        batch.start = start
        batch.size = size
        batch.frame = frame
        batch.topic = topic
        batch.number = number
        batch.target = batch.following = -1
        batch.keyless_count = batch.header.last_offset_delta = 0
        self.count += 1
        return 0

    def end(self):
        """Let go of the buffer: it receives the next frames."""
        self.view.release()

    cdef void cut_to(self, int32_t frames) noexcept:
        """Drop the batches of the frames from that one on, and chain the others again."""
        cdef int32_t index
        cdef Produced *batch
        cdef Target *target
        self.frames = min(self.frames, frames)
        while self.count and self.batches[self.count - 1].frame >= frames:
            self.count -= 1
        for index in range(self.target_count):
            target = &self.targets[index]
            target.first = target.last = -1
            target.count = 0
            target.size_bytes = target.offsets = 0
        for index in range(self.count):
            batch = &self.batches[index]
            if batch.target >= 0:
                self.chain(index, batch, &self.targets[batch.target])

    cdef void chain(self, int32_t index, Produced *batch, Target *target) noexcept:
        batch.following = -1
        if target.count:
            self.batches[target.last].following = index
        else:
            target.first = index
        target.last = index
        target.count += 1
        target.size_bytes += batch.size
        target.offsets += batch.header.last_offset_delta + 1

    def cut(self, int32_t frames):
        """End the run before that frame."""
        self.cut_to(frames)

    def place(self, list topics):
        """Gather the batches by partition. `topics` has for each topic of the run its partitions by number, or None; a
        frame with a batch for one that is None ends the run. Returns the partitions."""
        cdef dict known = {}
        cdef list found = []
        cdef int32_t index
        cdef Produced *batch
        cdef object partition
        cdef object last = None
        cdef int32_t last_target = -1
        cdef object place
        self.target_count = 0
        for index in range(self.count):
            batch = &self.batches[index]
            numbers = topics[batch.topic]
            partition = None if numbers is None else numbers[batch.number]
            if partition is None:
                self.frames = batch.frame
                break
            if partition is not last:
                place = known.get(partition)
                if place is None:
                    place = known[partition] = len(found)
                    found.append(partition)
                    self.new_target()
                last, last_target = partition, place
            batch.target = last_target
        self.cut_to(self.frames)
        return found

    cdef int new_target(self) except -1:
        cdef Target *grown
        if self.target_count == self.targets_capacity:
            grown = <Target *>realloc(self.targets, max(16, 2 * self.targets_capacity) * sizeof(Target))
            if grown == NULL:
                raise MemoryError
            self.targets = grown
            self.targets_capacity = max(16, 2 * self.targets_capacity)
        memset(&self.targets[self.target_count], 0, sizeof(Target))
        self.targets[self.target_count].first = -1
        self.target_count += 1
        return 0

    def allow(self, int32_t target, int64_t max_batch_bytes, int64_t decompressed_limit, bint is_compact,
              int64_t latest_ms):
        """What the settings of a partition allow its batches; `latest_ms` is the largest time that a record may have."""
        cdef Target *one = &self.targets[target]
        one.max_batch_bytes = max_batch_bytes
        one.decompressed_limit = decompressed_limit
        one.is_compact = is_compact
        one.latest_ms = latest_ms

    def check(self, int64_t weight_max, int32_t gzip_weight, int64_t quick_ratio, int64_t quick_min, int64_t quick_max,
              bint takes_zstd, bint takes_transactions):
        """Check every batch as `validate` does. The run ends before the frame of the first that cannot go on: it weighs
        too much with those before it, is refused, or needs more than a look. Returns (the error if the first frame's
        only batch is refused, or None; whether that error is of an expansion beyond the quick limit)."""
        cdef Body body = new_body()
        cdef Produced *batch
        cdef Produced *transactional = NULL
        cdef Target *target
        cdef int64_t weight = 0
        cdef int64_t limit = 0
        cdef int32_t index = 0
        cdef int32_t codec
        cdef bint is_among
        cdef const uint8_t *data
        try:
            while index < self.count:
                batch = &self.batches[index]
                target = &self.targets[batch.target]
                data = self.view.data + batch.start
                codec = data[ATTRIBUTES_AT + 1] & COMPRESSION_MASK if batch.size > ATTRIBUTES_AT + 1 else 0
                weight += batch.size * (gzip_weight if codec == 1 else 1)
                if weight > weight_max or (codec == 4 and not takes_zstd):
                    break
                # Several batches, or bytes behind one: the handler says which.
                if (batch.size < LENGTH_PREFIX_BYTES
                        or LENGTH_PREFIX_BYTES + <int64_t>fl_big32(data + LENGTH_AT) < batch.size):
                    break
                limit = min(target.decompressed_limit, quick_max, max(quick_ratio * batch.size, quick_min))
                check_produced(data, 0, batch.size, target.max_batch_bytes, limit, body, &batch.header,
                            &batch.keyless_count)
                if not is_plain(batch, target, takes_transactions):
                    break
                if batch.header.attributes & TRANSACTIONAL:
                    # The transactional batches of a request are of one producer; else the handler refuses all of it.
                    if (transactional != NULL and transactional.frame == batch.frame
                            and (transactional.header.producer_id != batch.header.producer_id
                                 or transactional.header.producer_epoch != batch.header.producer_epoch)):
                        break
                    transactional = batch
                index += 1
        except (InvalidBatch, RecordTooLarge) as error:
            is_among = batch.frame > 0 or (self.count > 1 and self.batches[1].frame == 0)
            self.cut_to(batch.frame)
            return (None, False) if is_among else (error, limit < target.decompressed_limit)
        self.cut_to(self.batches[index].frame if index < self.count else self.frames)
        return None, False

    def span(self, int32_t index):
        """Where a batch begins and ends in the buffer."""
        return self.batches[index].start, self.batches[index].start + self.batches[index].size

    # --- of one target

    def size_of(self, int32_t target):
        """(how many batches it has, their bytes, the offsets they take)"""
        cdef Target *one = &self.targets[target]
        return one.count, one.size_bytes, one.offsets

    def frame_of(self, int32_t target, int32_t which):
        """The frame of its batch number `which`."""
        cdef int32_t index = self.targets[target].first
        for _ in range(which):
            index = self.batches[index].following
        return self.batches[index].frame

    def sequence_of(self, int32_t target):
        """If its batches are of one producer, each numbered where the one before it ended: (producer id, epoch, first
        sequence, whether they are of a transaction). None if they are not; False if none has a producer."""
        cdef int32_t index = self.targets[target].first
        cdef Header *first = &self.batches[index].header
        cdef Header *header = first
        cdef int64_t expected = first.base_sequence
        cdef bint has_any = False
        cdef bint is_one = True
        while index >= 0:
            header = &self.batches[index].header
            has_any = has_any or header.producer_id >= 0
            is_one = (is_one and header.producer_id == first.producer_id
                      and header.producer_epoch == first.producer_epoch and header.base_sequence == expected
                      and not (header.attributes ^ first.attributes) & TRANSACTIONAL)
            expected = header.base_sequence + <int64_t>header.last_offset_delta + 1
            if expected > INT32_MAX:
                is_one = False  # they begin again at 0: seldom, and not looked at here
            index = self.batches[index].following
        if not has_any:
            return False
        if not is_one:
            return None
        return first.producer_id, first.producer_epoch, first.base_sequence, (first.attributes & TRANSACTIONAL) != 0

    def newest_of(self, int32_t target, int32_t most):
        """Its last batches, at most so many, as (first and last sequence, first and last offset, largest time)."""
        cdef int32_t index = self.targets[target].first
        cdef int32_t left = self.targets[target].count
        cdef Header *header
        cdef list found = []
        while index >= 0:
            if left <= most:
                header = &self.batches[index].header
                found.append((header.base_sequence, header.base_sequence + header.last_offset_delta, header.base_offset,
                              header.base_offset + header.last_offset_delta, header.max_timestamp))
            left -= 1
            index = self.batches[index].following
        return found

    def producers_of(self, int32_t target):
        """The headers of its batches if any of them has a producer id, else None; positions are in the buffer."""
        cdef int32_t index = self.targets[target].first
        cdef list headers
        cdef BatchHeader made
        cdef bint has_any = False
        while index >= 0 and not has_any:
            has_any = self.batches[index].header.producer_id >= 0
            index = self.batches[index].following
        if not has_any:
            return None
        headers = []
        index = self.targets[target].first
        while index >= 0:
            made = header_object(&self.batches[index].header)
            made.position = self.batches[index].start
            made.keyless_count = self.batches[index].keyless_count
            headers.append(made)
            index = self.batches[index].following
        return headers

    def number(self, int32_t target, int64_t first_offset, int32_t leader_epoch, int64_t append_time_ms,
               int64_t log_start_offset):
        """Write offsets and epoch into its batches, as `assign_offsets` does; returns the next offset and the memory to
        write, a view of each batch."""
        cdef Target *one = &self.targets[target]
        cdef int32_t index = one.first
        cdef int64_t offset = first_offset
        cdef list views = []
        cdef Produced *batch
        if first_offset < 0 or append_time_ms < -1 or first_offset >= INT64_MAX - one.offsets:
            raise InvalidArgument(f"cannot assign offset {first_offset} at time {append_time_ms}")
        one.append_time_ms = append_time_ms
        one.log_start_offset = log_start_offset
        while index >= 0:
            batch = &self.batches[index]
            batch.header.base_offset = offset
            batch.header.leader_epoch = leader_epoch
            if append_time_ms >= 0:
                batch.header.attributes |= LOG_APPEND_TIME
                batch.header.max_timestamp = append_time_ms
            write_numbers(<uint8_t *>self.view.data + batch.start, batch.size, offset, leader_epoch,
                          batch.header.attributes, batch.header.max_timestamp)
            views.append(PyMemoryView_FromMemory(<char *>self.view.data + batch.start, batch.size, 0x100))
            offset += batch.header.last_offset_delta + 1
            index = batch.following
        return offset, views

    def take_numbers(self, int32_t target, list headers):
        """Give the headers that `producers_of` returned the offsets and times that `number` wrote."""
        cdef BatchHeader header
        cdef int32_t index = self.targets[target].first
        for header in headers:
            header.base_offset = self.batches[index].header.base_offset
            header.leader_epoch = self.batches[index].header.leader_epoch
            header.attributes = self.batches[index].header.attributes
            header.max_timestamp = self.batches[index].header.max_timestamp
            index = self.batches[index].following

    def latest_ms(self, int32_t target):
        """The largest timestamp of its batches."""
        cdef int32_t index = self.targets[target].first
        cdef int64_t latest = -1
        while index >= 0:
            latest = max(latest, self.batches[index].header.max_timestamp)
            index = self.batches[index].following
        return latest

    def index_entries(self, int32_t target, int64_t position, int64_t base_offset, int64_t interval_bytes,
                      int64_t bytes_since, int64_t largest_ms, int64_t largest_at, Py_ssize_t recent_max):
        """What a segment notes of its batches, written from `position` on; see `Segment.wrote_produced`.

        Returns the offset index's new entries and the time index's, flat; the bytes since the last entry; the largest
        time and the relative offset of its batch; and the newest batches as (first offset, position, last offset).
        """
        cdef Target *one = &self.targets[target]
        cdef int32_t index = one.first
        cdef int32_t left = one.count
        cdef list offsets = []
        cdef list times = []
        cdef list recent = []
        cdef Header *header
        cdef int64_t relative
        while index >= 0:
            header = &self.batches[index].header
            relative = header.base_offset + header.last_offset_delta - base_offset
            if largest_at < 0 or header.max_timestamp > largest_ms:
                largest_ms, largest_at = header.max_timestamp, relative
            if bytes_since > interval_bytes:
                offsets.append((relative, position))
                if largest_ms >= 0:
                    times.append((largest_ms, largest_at))
                bytes_since = 0
            if left <= recent_max:
                recent.append((header.base_offset, position, header.base_offset + header.last_offset_delta))
            bytes_since += header.size
            position += header.size
            left -= 1
            index = self.batches[index].following
        recent.reverse()
        return offsets, times, bytes_since, largest_ms, largest_at, recent

    def targets_of_batches(self):
        """The target of each batch, in their order, two bytes each."""
        cdef int32_t index
        cdef bytearray found = PyByteArray_FromStringAndSize(NULL, 2 * self.count)
        cdef uint8_t *p = <uint8_t *>PyByteArray_AS_STRING(found)
        for index in range(self.count):
            fl_put16(p + 2 * index, <uint16_t>self.batches[index].target)
        return bytes(found)

    @property
    def size_bytes(self):
        """Of all batches."""
        cdef int32_t index
        cdef int64_t size = 0
        for index in range(self.target_count):
            size += self.targets[index].size_bytes
        return size

    @property
    def records(self):
        cdef int32_t index
        cdef int64_t count = 0
        for index in range(self.target_count):
            count += self.targets[index].offsets
        return count


cdef inline bint is_plain(const Produced *batch, const Target *target, bint takes_transactions) noexcept nogil:
    """Whether nothing about a sound batch has to be looked at again: what only a log may set, transactions and
    producers without numbers, keys and times."""
    cdef const Header *header = &batch.header
    if header.attributes & (CONTROL | DELETE_HORIZON | LOG_APPEND_TIME):
        return False
    if header.attributes & TRANSACTIONAL and (not takes_transactions or header.producer_id < 0):
        return False
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        return False
    if target.is_compact and batch.keyless_count:
        return False
    return header.max_timestamp <= target.latest_ms
