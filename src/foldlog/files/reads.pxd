# Reads of compiled code.

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    UNLOCKED_BYTES = 32768  # from here on it pays to read without the interpreter's lock

cdef int64_t fill(int fd, uint8_t *to, int64_t size, int64_t position, bint nowait) noexcept nogil
