"""Looks at files that need the interpreter's lock once, or not at all.

`os.stat` and `os.fstat` give it up for a call that takes a microsecond, and a thread that wants it back waits behind all
the others: with 100 threads in `append` that was a third of the time.
"""

from cpython.exc cimport PyErr_SetFromErrno, PyErr_SetFromErrnoWithFilenameObject


cdef extern from "<sys/stat.h>" nogil:
    cdef struct c_stat "stat":
        unsigned long long st_dev
        unsigned long long st_ino
        long long st_size
        unsigned long st_nlink
    int stat(const char *, c_stat *)
    int fstat(int, c_stat *)

cdef extern from * nogil:
    """
    #include <fcntl.h>
    #include <unistd.h>
    #ifdef __APPLE__  /* there fsync only reaches the drive's cache */
    #define sync_bytes(descriptor) (fcntl(descriptor, F_FULLFSYNC) < 0)
    #else
    #define sync_bytes fdatasync
    #endif
    """
    int sync_bytes(int)


def inode_and_size(bytes path):
    """The device, the inode and the size of what the path names. Raises OSError."""
    cdef c_stat found
    if stat(path, &found):
        PyErr_SetFromErrnoWithFilenameObject(OSError, path)
    return found.st_dev, found.st_ino, found.st_size


def sync_and_look(int descriptor):
    """Sync the file's bytes without the interpreter's lock; whether it still has a name. Raises OSError."""
    cdef c_stat found
    cdef int failed
    with nogil:
        failed = sync_bytes(descriptor) or fstat(descriptor, &found)
    if failed:
        PyErr_SetFromErrno(OSError)
    return found.st_nlink > 0
