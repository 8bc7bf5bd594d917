# Memory of columns: large pieces, used again.
#
# Fresh memory is faulted in page by page, which costs more than filling it: half of a bulk read. So pieces of columns
# that nobody has any more are kept for the next ones, up to KEPT_BYTES_MAX. The kernel may take their pages back
# whenever it needs them (MADV_FREE); they are only fresh again then.

cdef enum:
    GROWN_ENOUGH = 0
    NO_MEMORY = -1
    TOO_LARGE = -2
    HUGE_PAGE_BYTES = 2097152
    KEPT_FROM_BYTES = 131072  # smaller ones the allocator keeps itself
    KEPT_MAX = 256

cdef int64_t KEPT_BYTES_MAX = _ARROW_KEPT_BYTES


cdef extern from *:
    """
    #include <stdatomic.h>
    #include <stdint.h>
    #include <stdlib.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif

    static void foldlog_advise(void *data, size_t size, int advice) {
    #if defined(__linux__)
        const uintptr_t page = 4096;
        uintptr_t start = ((uintptr_t)data + page - 1) & ~(page - 1);
        uintptr_t end = ((uintptr_t)data + size) & ~(page - 1);
        if (end > start)
            (void)madvise((void *)start, (size_t)(end - start), advice);
    #endif
        (void)data; (void)size; (void)advice;
    }

    /* Only wishes: without them everything works, and takes longer. */
    static void foldlog_prefer_huge_pages(void *data, size_t size) {
    #if defined(__linux__) && defined(MADV_HUGEPAGE)
        foldlog_advise(data, size, MADV_HUGEPAGE);
    #endif
        (void)data; (void)size;
    }

    static void foldlog_lend_to_kernel(void *data, size_t size) {
    #if defined(__linux__) && defined(MADV_FREE)
        foldlog_advise(data, size, MADV_FREE);
    #endif
        (void)data; (void)size;
    }

    /* Nobody waits for it: who does not get it asks the allocator. So a fork in between does no harm. */
    static atomic_flag foldlog_kept_is_held = ATOMIC_FLAG_INIT;
    static int foldlog_hold_kept(void) { return !atomic_flag_test_and_set(&foldlog_kept_is_held); }
    static void foldlog_release_kept(void) { atomic_flag_clear(&foldlog_kept_is_held); }
    """
    void foldlog_prefer_huge_pages(void *data, size_t size) noexcept nogil
    void foldlog_lend_to_kernel(void *data, size_t size) noexcept nogil
    bint foldlog_hold_kept() noexcept nogil
    void foldlog_release_kept() noexcept nogil
    int posix_memalign(void **data, size_t alignment, size_t size) noexcept nogil


cdef struct Memory:
    uint8_t *data
    int64_t capacity


cdef Memory[KEPT_MAX] kept
cdef int kept_count = 0
cdef int64_t kept_bytes = 0


cdef inline int64_t roomy(int64_t size) noexcept nogil:
    """What a piece of so many bytes may have at most: more would waste it."""
    return 2 * size + 65536


cdef bint take_kept(Memory *memory, int64_t wanted) noexcept nogil:
    """The smallest kept piece that has `wanted` bytes, and is not far too large."""
    global kept_count, kept_bytes
    cdef int index, best = -1
    if wanted < KEPT_FROM_BYTES or not foldlog_hold_kept():
        return False
    for index in range(kept_count):
        if wanted <= kept[index].capacity <= roomy(wanted) and (best < 0 or kept[index].capacity < kept[best].capacity):
            best = index
    if best >= 0:
        memory[0] = kept[best]
        kept_count -= 1
        kept[best] = kept[kept_count]
        kept_bytes -= memory.capacity
    foldlog_release_kept()
    return best >= 0


cdef void give_back(Memory *memory) noexcept nogil:
    """Keep it for the next column, or free it."""
    global kept_count, kept_bytes
    if memory.data == NULL:
        return
    if memory.capacity >= KEPT_FROM_BYTES and kept_bytes + memory.capacity <= KEPT_BYTES_MAX:
        foldlog_lend_to_kernel(memory.data, <size_t>memory.capacity)
        if foldlog_hold_kept():
            if kept_count < KEPT_MAX and kept_bytes + memory.capacity <= KEPT_BYTES_MAX:
                kept[kept_count] = memory[0]
                kept_count += 1
                kept_bytes += memory.capacity
                memory.data = NULL
            foldlog_release_kept()
    free(memory.data)
    memory.data = NULL
    memory.capacity = 0


cdef bint make_fresh(Memory *memory, int64_t wanted) noexcept nogil:
    """Aligned to huge pages if it has room for one: else the kernel leaves both ends to small ones."""
    cdef void *data = NULL
    if wanted < HUGE_PAGE_BYTES:
        data = malloc(<size_t>wanted)
    elif posix_memalign(&data, HUGE_PAGE_BYTES, <size_t>wanted) == 0:
        foldlog_prefer_huge_pages(data, <size_t>wanted)
    if data == NULL:
        return False
    memory.data = <uint8_t *>data
    memory.capacity = wanted
    return True


cdef inline int reserve(Memory *memory, int64_t size) noexcept nogil:
    """At least `size` bytes, and one copying step more, so that short copies may run over."""
    if size + COPY_BYTES <= memory.capacity:
        return GROWN_ENOUGH
    return grow(memory, max(size, 2 * memory.capacity) + COPY_BYTES)


cdef int grow(Memory *memory, int64_t wanted) noexcept nogil:
    cdef uint8_t *grown
    cdef Memory found
    if memory.data == NULL or wanted >= KEPT_FROM_BYTES:
        if not take_kept(&found, wanted) and not make_fresh(&found, wanted):
            return NO_MEMORY
        if memory.data != NULL:
            memcpy(found.data, memory.data, <size_t>memory.capacity)
            give_back(memory)
        memory[0] = found
        return GROWN_ENOUGH
    grown = <uint8_t *>realloc(memory.data, <size_t>wanted)
    if grown == NULL:
        return NO_MEMORY
    memory.data = grown
    memory.capacity = wanted
    return GROWN_ENOUGH


@cython.final
cdef class Column:
    """Memory that became one buffer of a column: the owner of its bytes, seen through the buffer protocol."""

    cdef Memory memory
    cdef Py_ssize_t size

    def __dealloc__(self):
        give_back(&self.memory)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.memory.data, self.size, 1, flags)


cdef Column column_of(Memory *memory, int64_t size):
    """Hand the memory over. What is far too large gives the rest back."""
    cdef Column column = Column.__new__(Column)
    cdef uint8_t *shrunk
    if memory.capacity > roomy(size):
        shrunk = <uint8_t *>realloc(memory.data, <size_t>(size + COPY_BYTES))
        if shrunk != NULL:
            memory.data = shrunk
            memory.capacity = size + COPY_BYTES
    column.memory = memory[0]
    column.size = size
    memory.data = NULL
    memory.capacity = 0
    return column
