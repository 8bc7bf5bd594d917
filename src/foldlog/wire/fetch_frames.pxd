# What a Fetch asks for, shared with what reads and answers it.

from libc.stdint cimport int32_t, int64_t


cdef class WantedPartition:
    cdef readonly object topic
    cdef readonly bytes topic_id
    cdef readonly tuple key
    cdef readonly int32_t partition
    cdef public int64_t fetch_offset
    cdef public int32_t max_bytes
    cdef public int32_t current_leader_epoch
    cdef public int32_t last_fetched_epoch
    cdef public int64_t high_watermark
    cdef public int64_t log_start_offset
    cdef object found

    cdef bint tell_numbers(self, bint has_records, int32_t error, int64_t high_watermark,
                           int64_t log_start_offset) noexcept
