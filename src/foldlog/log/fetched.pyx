# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: embedsignature=True, auto_pickle=False
"""What a Fetch reads of a partition: offsets and batches, with one system call and without an object for each batch.

It returns what `Partition.read` returns, in the usual case: the file is open, and nothing is damaged. Everything else is
left to that: only it can tell damage from a file that was replaced meanwhile. Large reads, and the check of what was
read, run without the interpreter's lock.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EAGAIN
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from foldlog.files.reads cimport UNLOCKED_BYTES, fill
from foldlog.records.kernels cimport EpochStart, FoundRun, Sought, checks_unlocked, find_run

from foldlog.errors import FoldlogError
from foldlog.log.checkpoint import SlotState

cdef enum:
    READ_BYTES_MIN = 4096
    LENT_BYTES_MIN = 1 << 18
    PyBUF_WRITE = 0x200

cdef int HIGH_WATERMARK = SlotState._fields.index("high_watermark")
cdef int LOG_START_OFFSET = SlotState._fields.index("log_start_offset")
cdef int GAPS_BELOW = SlotState._fields.index("gaps_below")
cdef int LEADER_EPOCH = SlotState._fields.index("leader_epoch")
cdef int HAS_TRANSACTIONS = SlotState._fields.index("has_transactions")

CHECKS_UNLOCKED = checks_unlocked()
"""Whether this processor computes CRCs itself: without, nothing here is of use."""


@cython.final
cdef class EpochTable:
    """The starts of the epochs. Immutable: a thread that reads without the lock keeps the one it began with."""

    def __cinit__(self, source):
        cdef Py_ssize_t at
        self.source = source
        self.count = <int32_t>len(source)
        self.starts = <EpochStart *>malloc(max(1, self.count) * sizeof(EpochStart))
        if self.starts == NULL:
            raise MemoryError
        for at in range(self.count):
            self.starts[at].epoch, self.starts[at].first_offset = source[at]

    def __dealloc__(self):
        free(self.starts)


cdef bint read_run(int fd, uint8_t *to, int64_t size, int64_t position, bint nowait, const Sought *sought,
                   FoundRun *found, int *why) noexcept nogil:
    cdef int64_t have = fill(fd, to, size, position, nowait)
    if have < 0:
        why[0] = BLOCKED if have == -EAGAIN and nowait else LEFT
        return False
    if not find_run(to, have, sought, found):
        why[0] = LEFT
        return False
    return True


@cython.final
cdef class FetchedPartition:
    """One partition as fetches see it. Any thread.

    Remembers where the latest reads ended: a consumer goes on there, so that it needs no index. What is found there is
    checked like everything else: the batch has to have the offset that is asked for.
    """

    def __cinit__(self, partition):
        self.partition = partition
        self.core = partition._core
        self.durability = partition._durability
        self.segments = [None] * PLACES
        memset(self.offsets, 0xFF, sizeof(self.offsets))

    @property
    def is_closed(self):
        return self.core.is_closed

    cdef int look(self, Seen *seen) except -1:
        """Take the offsets as they are now."""
        cdef object state = self.core.state
        cdef int64_t last_stable = -1
        if (<tuple>state)[HAS_TRANSACTIONS]:
            # Before the others: a transaction that ends in between moves both, and this must not be above the high
            # watermark.
            last_stable = self.partition.last_stable_offset
            state = self.core.state
        seen.high_watermark = (<tuple>state)[HIGH_WATERMARK]
        seen.log_start_offset = (<tuple>state)[LOG_START_OFFSET]
        seen.gaps_below = (<tuple>state)[GAPS_BELOW]
        seen.leader_epoch = (<tuple>state)[LEADER_EPOCH]
        seen.last_stable_offset = seen.high_watermark if last_stable < 0 else last_stable
        return 0

    cdef int64_t acknowledged_offset(self, const Seen *seen) except? -1:
        """As that of the partition."""
        return max(seen.high_watermark, <int64_t>self.partition._acknowledged_early)

    cdef int64_t log_end_offset(self) except? -1:
        return self.durability.tail.end_offset

    cdef object read(self, const Seen *seen, int64_t offset, int64_t end_offset, int64_t max_bytes, bint nowait,
                     object memory, FoundRun *found, int *why):
        """The batches from the one with `offset` on, at the start of a buffer; `memory` gives large ones. None, and why,
        if there is anything in the way. The offset is below `end_offset`, and not below the log start."""
        cdef tuple segments = self.core.segments
        cdef Py_ssize_t at = self.segment_at(segments, offset)
        cdef object segment = segments[at]
        cdef object log = segment.held
        cdef object buffer
        cdef EpochTable epochs
        cdef Sought sought
        cdef int64_t position
        cdef int64_t left
        cdef int64_t size
        cdef int place
        why[0] = LEFT
        if self.core.is_closed or <int64_t>(<object>segments[0]).base_offset > offset:
            return None  # retention came in between, or it is in the store
        try:
            if log is None:
                if nowait and (segment._log is None or segment._offset_index is None):
                    why[0] = BLOCKED
                    return None
                log = segment.log()
            sought.expected = offset
            place = self.remembered(segment, offset, &position)
            if place < 0:
                if <int64_t>segment.base_offset == offset:
                    position = 0
                else:
                    there = segment.find(offset, seen.gaps_below, nowait=nowait)
                    if there is None:
                        return None
                    position, sought.expected = there[0], there[1].base_offset
        except BlockingIOError:
            why[0] = BLOCKED
            return None
        except (FoldlogError, OSError):
            return None
        epochs = self.epochs_now()
        sought.epochs, sought.epoch_count = epochs.starts, epochs.count
        sought.gaps_below, sought.end_offset, sought.max_bytes = seen.gaps_below, end_offset, max_bytes
        left = <int64_t>segment.size - position
        size = min(max(max_bytes, READ_BYTES_MIN), left)
        while True:
            if size <= 0 or sought.expected >= end_offset:
                return None
            buffer = PyBytes_FromStringAndSize(NULL, size) if size < LENT_BYTES_MIN else memory(size)
            if not self.read_into(log, buffer, size, position, nowait, &sought, found, why):
                return None
            if found.size:
                break
            if not size < found.needed_bytes <= left:
                why[0] = LEFT
                return None
            size = found.needed_bytes
        if at + 1 < len(segments) and found.next_offset > <int64_t>(<object>segments[at + 1]).base_offset:
            return None
        self.remember(place, segment, found.next_offset, position + found.size)
        why[0] = FETCHED
        return buffer

    cdef bint read_into(self, object log, object buffer, int64_t size, int64_t position, bint nowait,
                        const Sought *sought, FoundRun *found, int *why) except -1:
        cdef uint8_t *to
        cdef int64_t have
        cdef int fd = getattr(log, "descriptor", -1)
        cdef bint is_done
        if type(buffer) is bytes:
            to = <uint8_t *>PyBytes_AS_STRING(buffer)
        else:
            to = <uint8_t *>PyByteArray_AS_STRING(buffer)
        why[0] = LEFT
        if fd < 0:
            # Not a file of the system's own: it is in memory, or fails on purpose.
            try:
                have = log.read_into(position, PyMemoryView_FromMemory(<char *>to, size, PyBUF_WRITE), nowait=nowait)
            except BlockingIOError:
                why[0] = BLOCKED
                return False
            except OSError:
                return False
            return find_run(to, have, sought, found)
        if size < UNLOCKED_BYTES and nowait:
            return read_run(fd, to, size, position, nowait, sought, found, why)
        with nogil:
            is_done = read_run(fd, to, size, position, nowait, sought, found, why)
        return is_done

    cdef Py_ssize_t segment_at(self, tuple segments, int64_t offset) except -1:
        """Index of the segment that holds it."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = len(segments) - 1
        cdef Py_ssize_t middle
        if <int64_t>(<object>segments[high]).base_offset <= offset:
            return high
        while low < high:
            middle = (low + high + 1) // 2
            if <int64_t>(<object>segments[middle]).base_offset <= offset:
                low = middle
            else:
                high = middle - 1
        return low

    # What is shared by the threads that read. The sections cost nothing where there is an interpreter's lock.

    cdef EpochTable epochs_now(self):
        cdef object starts = self.core.epochs.starts
        with cython.critical_section(self):
            if self.epochs is None or (<EpochTable>self.epochs).source is not starts:
                self.epochs = EpochTable(starts)
            return <EpochTable>self.epochs

    cdef int remembered(self, object segment, int64_t offset, int64_t *position) except -2:
        """The place where a reader is remembered who goes on with `offset`, and where that is; -1 if there is none."""
        cdef int place
        with cython.critical_section(self):
            for place in range(PLACES):
                if self.offsets[place] == offset and self.segments[place] is segment:
                    position[0] = self.positions[place]
                    return place
        return -1

    cdef int remember(self, int place, object segment, int64_t offset, int64_t position) except -1:
        """Where a reader goes on: instead of where it was, so that those who read at the same time do not drive each
        other out; a new one drives out the oldest."""
        with cython.critical_section(self):
            if place < 0:
                place = self.oldest = (self.oldest + 1) % PLACES
            self.offsets[place] = offset
            self.positions[place] = position
            self.segments[place] = segment
        return 0
