# clock.py in C, for compiled modules: the same clock as time.monotonic on Linux.

from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef inline double now() noexcept:
    cdef timespec read
    clock_gettime(CLOCK_MONOTONIC, &read)
    return <double> read.tv_sec + 1e-9 * <double> read.tv_nsec
