# Memory the loops read and write: buffers held open, outputs that grow, scratch space that is reused.

@cython.final
cdef class Bytes:
    """A buffer held open while a loop reads it."""

    def __cinit__(self):
        self.held = False

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)

    cdef int hold(self, object source, int flags=PyBUF_SIMPLE) except -1:
        self.release()
        PyObject_GetBuffer(source, &self.buffer, flags)
        self.held = True
        self.data = <const uint8_t *>self.buffer.buf
        self.size = self.buffer.len
        return 0

    cdef void release(self) noexcept:
        if self.held:
            PyBuffer_Release(&self.buffer)
            self.held = False


cdef Bytes bytes_of(object source):
    cdef Bytes held = Bytes.__new__(Bytes)
    held.hold(source)
    return held


@cython.final
cdef class Output:
    """A bytearray that grows by doubling and is cut to what was written at the end."""

    cdef bytearray memory
    cdef int64_t size

    def __cinit__(self, int64_t expected_bytes):
        self.memory = PyByteArray_FromStringAndSize(NULL, expected_bytes)
        self.size = 0

    cdef uint8_t *room(self, int64_t wanted_bytes) except NULL:
        """Where the next bytes go; as many as wanted fit there. The caller adds what it wrote to `size`."""
        cdef int64_t needed = self.size + wanted_bytes
        if needed > len(self.memory):
            PyByteArray_Resize(self.memory, max(needed, 2 * <int64_t>len(self.memory)))
        return <uint8_t *>PyByteArray_AS_STRING(self.memory) + self.size

    cdef int put(self, const uint8_t *data, int64_t size) except -1:
        memcpy(self.room(size), data, <size_t>size)
        self.size += size
        return 0

    cdef int put_object(self, bytearray data) except -1:
        return self.put(<const uint8_t *>PyByteArray_AS_STRING(data), len(data))

    cdef bytearray taken(self):
        PyByteArray_Resize(self.memory, self.size)
        return self.memory


@cython.final
cdef class Scratch:
    """Plain memory that is reused from batch to batch."""

    cdef uint8_t *data
    cdef int64_t capacity

    def __cinit__(self):
        self.data = NULL
        self.capacity = 0

    def __dealloc__(self):
        free(self.data)

    cdef uint8_t *room(self, int64_t size) except NULL:
        cdef uint8_t *grown
        if size > self.capacity or self.data == NULL:
            size = max(size, 2 * self.capacity, 4096)
            grown = <uint8_t *>realloc(self.data, <size_t>size)
            if grown == NULL:
                raise MemoryError
            self.data = grown
            self.capacity = size
        return self.data
