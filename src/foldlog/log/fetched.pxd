# Reading for a Fetch, shared with what answers it.

from libc.stdint cimport int32_t, int64_t

from foldlog.records.kernels cimport EpochStart, FoundRun, Sought

cdef enum:
    FETCHED = 0
    LEFT = 1  # something is not as usual: Python finds out what, and says so
    BLOCKED = 2  # it would wait for the disk
    PLACES = 64


cdef struct Seen:
    # A partition's offsets at one moment.
    int64_t high_watermark
    int64_t log_start_offset
    int64_t last_stable_offset
    int64_t gaps_below
    int32_t leader_epoch


cdef class EpochTable:
    cdef EpochStart *starts
    cdef int32_t count
    cdef object source


cdef class FetchedPartition:
    cdef readonly object partition
    cdef object core
    cdef object durability
    cdef object epochs
    cdef int64_t offsets[PLACES]
    cdef int64_t positions[PLACES]
    cdef list segments
    cdef int oldest

    cdef int look(self, Seen *seen) except -1
    cdef int64_t acknowledged_offset(self, const Seen *seen) except? -1
    cdef int64_t log_end_offset(self) except? -1
    cdef object read(self, const Seen *seen, int64_t offset, int64_t end_offset, int64_t max_bytes, bint nowait,
                     object memory, FoundRun *found, int *why)
    cdef bint read_into(self, object log, object buffer, int64_t size, int64_t position, bint nowait,
                        const Sought *sought, FoundRun *found, int *why) except -1
    cdef Py_ssize_t segment_at(self, tuple segments, int64_t offset) except -1
    cdef EpochTable epochs_now(self)
    cdef int remembered(self, object segment, int64_t offset, int64_t *position) except -2
    cdef int remember(self, int place, object segment, int64_t offset, int64_t position) except -1
