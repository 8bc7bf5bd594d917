# cython: boundscheck=False, wraparound=False
"""Threads that run fdatasync, or a durable write, and never want the interpreter's lock.

A Python thread that syncs needs that lock before and after each sync, and takes it from the event loop that waits for
the sync: four futex calls and two switches more for each. Here a job is a descriptor, perhaps memory to write, and a
ticket, and the end of it a number in an eventfd, which an event loop can wait for.
"""

from libc.errno cimport EINTR, EINVAL, EIO, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from posix.unistd cimport close, getpid, read, write


cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *, void *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)
    int pthread_mutex_destroy(pthread_mutex_t *)
    int pthread_cond_init(pthread_cond_t *, void *)
    int pthread_cond_signal(pthread_cond_t *)
    int pthread_cond_broadcast(pthread_cond_t *)
    int pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *)
    int pthread_cond_destroy(pthread_cond_t *)
    int pthread_create(pthread_t *, void *, void *(*)(void *) noexcept nogil, void *)
    int pthread_join(pthread_t, void **)
    int pthread_sigmask(int, sigset_t *, sigset_t *)

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int sigfillset(sigset_t *)
    int SIG_SETMASK

cdef extern from "<unistd.h>" nogil:
    int fdatasync(int)
    ssize_t pwrite(int, const void *, size_t, int64_t)

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int, int)
    int EFD_NONBLOCK
    int EFD_CLOEXEC

cdef extern from "<sys/stat.h>" nogil:
    cdef struct c_stat "stat":
        unsigned long st_nlink
    int fstat(int, c_stat *)

cdef extern from "<time.h>" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int, timespec *)
    int CLOCK_MONOTONIC


cdef extern from * nogil:
    """
    #include <stdint.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    #define FL_SLICE_NS 100000

    /* Ask for short slices of a core, which Linux 6.12 and later then give sooner after a wake-up, and older ones
       ignore. A job runs for 30 to 100 us and waits for the disk in between, and every request waits for it. Measured
       with Java's producer on the same two cores: these threads wait half as long for a core, and it is a tenth
       faster. */
    static void fl_run_soon(void) {
    #if defined(SYS_sched_setattr) && defined(SYS_sched_getattr)
        struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority;
                 uint64_t runtime, deadline, period; } attributes = {0};
        if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0 && attributes.policy == 0) {
            attributes.size = sizeof attributes;
            attributes.runtime = FL_SLICE_NS;
            syscall(SYS_sched_setattr, 0, &attributes, 0);
        }
    #endif
    }
    """
    void fl_run_soon()


cdef enum:
    THREADS_MAX = 64


cdef struct Job:
    int descriptor
    int direct
    int64_t position
    const uint8_t *memory  # what is written first; NULL if only to be synced
    size_t size
    int64_t ticket
    int error
    int is_nameless
    double seconds
    Job *following


cdef struct Jobs:
    Job *first
    Job *last


cdef struct Pool:
    pthread_mutex_t mutex
    pthread_cond_t wanted
    Jobs waiting
    Jobs done
    int waiting_count
    int idle_count
    int thread_count
    int thread_limit
    bint is_closing
    int event
    pthread_t threads[THREADS_MAX]


cdef inline void put(Jobs *jobs, Job *job) noexcept nogil:
    job.following = NULL
    if jobs.last is NULL:
        jobs.first = job
    else:
        jobs.last.following = job
    jobs.last = job


cdef inline Job *take(Jobs *jobs) noexcept nogil:
    cdef Job *job = jobs.first
    jobs.first = job.following
    if jobs.first is NULL:
        jobs.last = NULL
    return job


cdef inline double now() noexcept nogil:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return time.tv_sec + time.tv_nsec * 1e-9


cdef int write_all(int descriptor, const Job *job) noexcept nogil:
    """Write the job's memory; the error number or 0."""
    cdef size_t have = 0
    cdef ssize_t count
    while have < job.size:
        count = pwrite(descriptor, job.memory + have, job.size - have, job.position + have)
        if count > 0:
            have += count
        elif count == 0:
            return EIO
        elif errno != EINTR:
            return errno
    return 0


cdef int write_and_sync(const Job *job) noexcept nogil:
    """The error number or 0. See `base.DurableWrite`."""
    cdef int error = EINVAL
    if job.memory is not NULL and job.direct >= 0:
        error = write_all(job.direct, job)
        if error != EINVAL:
            return error
    if job.memory is not NULL:
        error = write_all(job.descriptor, job)
        if error:
            return error
    return errno if fdatasync(job.descriptor) else 0


cdef void sync(Job *job) noexcept nogil:
    cdef c_stat status
    cdef double began = now()
    job.error = write_and_sync(job)
    job.seconds = now() - began
    job.is_nameless = False
    if not job.error:
        if fstat(job.descriptor, &status):
            job.error = errno
        else:
            job.is_nameless = status.st_nlink == 0


cdef void *run(void *argument) noexcept nogil:
    cdef Pool *pool = <Pool *> argument
    cdef Job *job
    cdef uint64_t one = 1
    fl_run_soon()
    pthread_mutex_lock(&pool.mutex)
    while True:
        if pool.waiting.first is not NULL:
            job = take(&pool.waiting)
            pool.waiting_count -= 1
            pthread_mutex_unlock(&pool.mutex)
            sync(job)
            pthread_mutex_lock(&pool.mutex)
            put(&pool.done, job)
            # It cannot fail: the counter is read long before it is full.
            write(pool.event, &one, sizeof(one))
        elif pool.is_closing:
            break
        else:
            pool.idle_count += 1
            pthread_cond_wait(&pool.wanted, &pool.mutex)
            pool.idle_count -= 1
    pthread_mutex_unlock(&pool.mutex)
    return NULL


cdef bint start_thread(Pool *pool) noexcept nogil:
    """The caller holds the mutex. Signals are for the main thread."""
    cdef sigset_t every, before
    sigfillset(&every)
    pthread_sigmask(SIG_SETMASK, &every, &before)
    cdef bint is_started = pthread_create(&pool.threads[pool.thread_count], NULL, run, pool) == 0
    pthread_sigmask(SIG_SETMASK, &before, NULL)
    pool.thread_count += is_started
    return is_started


cdef class SyncThreads:
    """One thread, and up to `limit` when they are needed. `event` becomes readable when a sync is over.

    `submit` and `done` never wait and may be called on any thread. The descriptor must stay open until its ticket is
    done. In a forked child there are no such threads: whatever is called there does nothing.
    """

    cdef Pool *_pool
    cdef int _process

    def __cinit__(self, int limit):
        cdef int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        if event < 0:
            raise OSError(errno, "an eventfd could not be made")
        self._pool = <Pool *> malloc(sizeof(Pool))
        if self._pool is NULL:
            close(event)
            raise MemoryError
        self._process = getpid()
        pthread_mutex_init(&self._pool.mutex, NULL)
        pthread_cond_init(&self._pool.wanted, NULL)
        self._pool.waiting.first = self._pool.waiting.last = NULL
        self._pool.done.first = self._pool.done.last = NULL
        self._pool.waiting_count = self._pool.idle_count = self._pool.thread_count = 0
        self._pool.thread_limit = min(limit, <int> THREADS_MAX)
        self._pool.is_closing = False
        self._pool.event = event
        if not start_thread(self._pool):
            self.close()
            raise OSError("a thread could not be started")

    @property
    def event(self):
        return -1 if self._pool is NULL else self._pool.event

    def submit(self, int descriptor, int64_t ticket):
        """Sync the file: `done` will have the ticket."""
        self._put(-1, descriptor, 0, NULL, 0, ticket)

    def submit_write(self, int direct, int plain, int64_t position, const uint8_t[::1] memory, int64_t ticket):
        """Write the memory durably, see `base.DurableWrite`. The caller keeps it as it is until the ticket is done."""
        self._put(direct, plain, position, &memory[0], memory.shape[0], ticket)

    cdef int _put(self, int direct, int descriptor, int64_t position, const uint8_t *memory, size_t size,
                  int64_t ticket) except -1:
        if self._pool is NULL or self._process != getpid():
            return 0
        cdef Job *job = <Job *> malloc(sizeof(Job))
        if job is NULL:
            raise MemoryError
        job.descriptor = descriptor
        job.direct = direct
        job.position = position
        job.memory = memory
        job.size = size
        job.ticket = ticket
        pthread_mutex_lock(&self._pool.mutex)
        put(&self._pool.waiting, job)
        self._pool.waiting_count += 1
        if self._pool.idle_count < self._pool.waiting_count and self._pool.thread_count < self._pool.thread_limit:
            start_thread(self._pool)  # if it cannot be, one of those there are does it later
        pthread_mutex_unlock(&self._pool.mutex)
        pthread_cond_signal(&self._pool.wanted)  # after: who wakes wants the mutex
        return 0

    def done(self):
        """What is over since the last call: (ticket, error number or 0, whether the file has no name, seconds)."""
        found = []
        if self._pool is NULL or self._process != getpid():
            return found
        cdef uint64_t count
        cdef Job *job
        cdef Job *following
        pthread_mutex_lock(&self._pool.mutex)
        read(self._pool.event, &count, sizeof(count))
        job = self._pool.done.first
        self._pool.done.first = self._pool.done.last = NULL
        pthread_mutex_unlock(&self._pool.mutex)
        while job is not NULL:
            following = job.following
            found.append((job.ticket, job.error, bool(job.is_nameless), job.seconds))
            free(job)
            job = following
        return found

    def close(self):
        """Finish what was submitted and end the threads; returns what `done` would."""
        if self._pool is NULL or self._process != getpid():
            return []
        self._end_threads()
        found = self.done()
        close(self._pool.event)
        pthread_mutex_destroy(&self._pool.mutex)
        pthread_cond_destroy(&self._pool.wanted)
        free(self._pool)
        self._pool = NULL
        return found

    cdef void _end_threads(self) noexcept:
        cdef int number
        with nogil:
            pthread_mutex_lock(&self._pool.mutex)
            self._pool.is_closing = True
            pthread_cond_broadcast(&self._pool.wanted)
            pthread_mutex_unlock(&self._pool.mutex)
            for number in range(self._pool.thread_count):
                pthread_join(self._pool.threads[number], NULL)

    def __dealloc__(self):
        self.close()
