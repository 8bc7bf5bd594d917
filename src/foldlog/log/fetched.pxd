# Reading for a Fetch, shared with what answers it.

from libc.stdint cimport int32_t, int64_t

from foldlog.records.kernels cimport FoundRun, Sought

cdef enum:
    FETCHED = 0
    LEFT = 1  # something is not as usual: Python finds out what, and says so
    BLOCKED = 2  # it would wait for the disk
    PLACES = 64


cdef class FetchedPartition:
    cdef readonly object partition
    cdef object core
    cdef object durability
    cdef object state
    cdef object epochs
    cdef readonly int32_t leader_epoch
    cdef readonly int64_t high_watermark
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t last_stable_offset
    cdef int64_t gaps_below
    cdef int64_t offsets[PLACES]
    cdef int64_t positions[PLACES]
    cdef list segments
    cdef int oldest

    cdef int look(self) except -1
    cdef int64_t acknowledged_offset(self) except? -1
    cdef int64_t log_end_offset(self) except? -1
    cdef object read(self, int64_t offset, int64_t end_offset, int64_t max_bytes, bint nowait, object memory,
                     FoundRun *found, int *why)
    cdef bint read_into(self, object log, object buffer, int64_t size, int64_t position, bint nowait,
                        const Sought *sought, FoundRun *found, int *why) except -1
    cdef Py_ssize_t segment_at(self, tuple segments, int64_t offset) except -1
    cdef int find_position(self, object segment, int64_t offset, bint nowait, int64_t *position,
                           int64_t *expected) except -2
