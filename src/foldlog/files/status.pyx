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


def size_in_place(bytes path, tuple inode not None, bytes held_path, tuple held_inode not None):
    """The size of the file at `held_path`; -1 if that, or `path`, names another file by now. Raises OSError."""
    cdef c_stat found
    if stat(path, &found):
        PyErr_SetFromErrnoWithFilenameObject(OSError, path)
    if found.st_ino != <unsigned long long>inode[1] or found.st_dev != <unsigned long long>inode[0]:
        return -1
    if stat(held_path, &found):
        PyErr_SetFromErrnoWithFilenameObject(OSError, held_path)
    if found.st_ino != <unsigned long long>held_inode[1] or found.st_dev != <unsigned long long>held_inode[0]:
        return -1
    return found.st_size


def sync_and_look(int descriptor):
    """Sync the file's bytes without the interpreter's lock; whether it still has a name. Raises OSError."""
    cdef c_stat found
    cdef int failed
    with nogil:
        failed = sync_bytes(descriptor) or fstat(descriptor, &found)
    if failed:
        PyErr_SetFromErrno(OSError)
    return found.st_nlink > 0
