# What other compiled modules share with the loops: the batches of Produce requests on their way from the frame to the
# log, and those that a Fetch finds there. Everything else is used through Python.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef struct Header:
    int64_t position
    int64_t size
    int64_t base_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t leader_epoch
    int32_t attributes
    int32_t last_offset_delta
    int32_t producer_epoch
    int32_t base_sequence
    int32_t record_count
    int32_t magic
    uint32_t crc

cdef struct Produced:
    # One batch of a request: where it stands in the frame, whose it is, and its header once it was checked.
    Header header
    int64_t start
    int64_t size
    int32_t frame
    int32_t topic
    int32_t number
    int32_t target
    int32_t following
    int32_t keyless_count

cdef struct Target:
    # A partition that batches of the run go to, and what its settings allow; `first` and the `following` of each batch
    # chain them in their order.
    int32_t first
    int32_t last
    int32_t count
    bint is_compact
    int64_t size_bytes
    int64_t offsets
    int64_t max_batch_bytes
    int64_t decompressed_limit
    int64_t latest_ms
    int64_t append_time_ms
    int64_t log_start_offset


cdef class Bytes:
    cdef Py_buffer buffer
    cdef bint held
    cdef const uint8_t *data
    cdef Py_ssize_t size

    cdef int hold(self, object source, int flags=*) except -1
    cdef void release(self) noexcept


cdef class ProducedBatches:
    cdef Bytes view
    cdef Produced *batches
    cdef int32_t capacity
    cdef readonly int32_t count
    cdef Target *targets
    cdef int32_t targets_capacity
    cdef readonly int32_t target_count
    cdef readonly int32_t frames

    cdef int begin(self, object buffer) except -1
    cdef int add(self, int64_t start, int64_t size, int32_t frame, int32_t topic, int32_t number) except -1
    cdef void cut_to(self, int32_t frames) noexcept
    cdef void chain(self, int32_t index, Produced *batch, Target *target) noexcept
    cdef int new_target(self) except -1


cdef struct EpochStart:
    int64_t first_offset
    int32_t epoch

cdef struct Sought:
    # The batches that a read may return: the first has the base offset `expected`, and all begin below `end_offset`.
    # At most `max_bytes`, but at least one. `epochs` says who wrote which offsets, in ascending order.
    int64_t expected
    int64_t gaps_below
    int64_t end_offset
    int64_t max_bytes
    const EpochStart *epochs
    int32_t epoch_count

cdef struct FoundRun:
    int64_t size
    int64_t next_offset
    int64_t needed_bytes  # of the first batch, if it is longer than what was read; `size` is 0 then

cdef bint checks_unlocked() noexcept nogil
cdef bint find_run(const uint8_t *data, int64_t size, const Sought *sought, FoundRun *found) noexcept nogil

cdef class BatchBuilder:
    cdef readonly int64_t max_bytes
    cdef readonly int64_t max_records
    cdef readonly int64_t count
    cdef readonly int64_t size_bytes
    cdef int64_t base_timestamp
    cdef int64_t max_timestamp
    cdef uint8_t *memory
    cdef int64_t capacity
    cdef Bytes key_holder
    cdef Bytes value_holder

    cdef int reserve(self, int64_t size) except -1
    cdef int64_t put(self, int64_t timestamp, object key, object value, object headers) except -2


cdef uint32_t crc_of(const uint8_t *data, Py_ssize_t size) except? 0
