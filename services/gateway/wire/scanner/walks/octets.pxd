# octets.py in C, for the compiled walks.

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t


cdef inline const unsigned char *of(const unsigned char[::1] buffer) noexcept:
    return &buffer[0]


cdef inline int16_t int16(const unsigned char *octets, Py_ssize_t at) noexcept:
    return <int16_t> (<uint16_t> octets[at] << 8 | octets[at + 1])


cdef inline int32_t int32(const unsigned char *octets, Py_ssize_t at) noexcept:
    return <int32_t> (
        <uint32_t> octets[at] << 24 | <uint32_t> octets[at + 1] << 16 | <uint32_t> octets[at + 2] << 8 | octets[at + 3]
    )


cdef inline int64_t int64(const unsigned char *octets, Py_ssize_t at) noexcept:
    return <int64_t> (<uint64_t> <uint32_t> int32(octets, at) << 32 | <uint32_t> int32(octets, at + 4))


cdef inline str text(const unsigned char *octets, Py_ssize_t start, Py_ssize_t stop):
    return octets[start:stop].decode("utf-8")


cdef inline bytes copy(const unsigned char *octets, Py_ssize_t start, Py_ssize_t stop):
    return octets[start:stop]
