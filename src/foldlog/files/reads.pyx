# cython: language_level=3, boundscheck=False, wraparound=False
"""Reads for compiled code: `PosixFile.read_into`, without the interpreter."""

from libc.errno cimport EAGAIN, EINTR, ENOSYS, EOPNOTSUPP, errno
from libc.stdint cimport int64_t, uint8_t

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <sys/stat.h>
    #include <sys/uio.h>
    #include <unistd.h>

    static ssize_t fl_read(int fd, void *to, size_t size, off_t position, int nowait) {
    #if defined(__linux__) && defined(RWF_NOWAIT)
        struct iovec one = {to, size};
        return preadv2(fd, &one, 1, position, nowait ? RWF_NOWAIT : 0);
    #else
        (void)nowait;  /* the system cannot tell, and reads wait */
        return pread(fd, to, size, position);
    #endif
    }
    static void fl_want(int fd, off_t position, off_t size) {
    #if defined(__linux__)
        posix_fadvise(fd, position, size, POSIX_FADV_WILLNEED);
    #else
        (void)fd; (void)position; (void)size;
    #endif
    }
    static off_t fl_size(int fd) { struct stat found; return fstat(fd, &found) ? -1 : found.st_size; }
    """
    ssize_t fl_read(int fd, void *to, size_t size, int64_t position, bint nowait)
    void fl_want(int fd, int64_t position, int64_t size)
    int64_t fl_size(int fd)

cdef enum:
    READ_AHEAD = 2


cdef int64_t fill(int fd, uint8_t *to, int64_t size, int64_t position, bint nowait) noexcept nogil:
    """Read that many bytes, fewer only at the end of the file; the error as a negative number."""
    cdef int64_t have = 0
    cdef ssize_t count
    if not nowait and size >= UNLOCKED_BYTES:
        # The kernel reads 128 KB ahead by itself; asked for all of it and the next read's, the disk has more to do at
        # once.
        fl_want(fd, position, READ_AHEAD * size)
    while have < size:
        count = fl_read(fd, to + have, <size_t>(size - have), position + have, nowait)
        if count > 0:
            have += count
        elif count == 0:
            if nowait and position + have < fl_size(fd):
                return -EAGAIN  # Linux 5.9 and 5.10 return 0 instead
            break
        elif errno == EINTR:
            continue
        elif nowait and (errno == EOPNOTSUPP or errno == ENOSYS):
            nowait = False
        else:
            return -errno
    return have
