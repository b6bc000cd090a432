# octets.py in C, for the compiled walks.

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy


cdef inline const unsigned char *of(object buffer) except? NULL:
    # whoever calls keeps the buffer alive, and nothing resizes it meanwhile
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    PyBuffer_Release(&view)
    return <const unsigned char *> view.buf


cdef inline int put32(object buffer, Py_ssize_t at, int32_t value) except -1:
    cdef Py_buffer view
    cdef unsigned char *octets
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    octets = <unsigned char *> view.buf + at
    octets[0], octets[1] = <uint32_t> value >> 24, <uint32_t> value >> 16 & 0xFF
    octets[2], octets[3] = <uint32_t> value >> 8 & 0xFF, <uint32_t> value & 0xFF
    PyBuffer_Release(&view)
    return 0


cdef inline int put64(object buffer, Py_ssize_t at, int64_t value) except -1:
    put32(buffer, at, <int32_t> (value >> 32))
    put32(buffer, at + 4, <int32_t> value)
    return 0


cdef inline Py_ssize_t extend(bytearray out, Py_ssize_t size) except -1:
    cdef Py_ssize_t at = PyByteArray_GET_SIZE(out)
    PyByteArray_Resize(out, at + size)
    return at


cdef inline void set32(bytearray out, Py_ssize_t at, int32_t value) noexcept:
    cdef unsigned char *octets = <unsigned char *> PyByteArray_AS_STRING(out) + at
    octets[0], octets[1] = <uint32_t> value >> 24, <uint32_t> value >> 16 & 0xFF
    octets[2], octets[3] = <uint32_t> value >> 8 & 0xFF, <uint32_t> value & 0xFF


cdef inline void set64(bytearray out, Py_ssize_t at, int64_t value) noexcept:
    set32(out, at, <int32_t> (value >> 32))
    set32(out, at + 4, <int32_t> value)


cdef inline int add32(bytearray out, int32_t value) except -1:
    set32(out, extend(out, 4), value)
    return 0


cdef inline int add_float32(bytearray out, double value) except -1:
    # as the machine has floats, not the protocol
    cdef float written = <float> value
    cdef Py_ssize_t at = extend(out, 4)
    memcpy(PyByteArray_AS_STRING(out) + at, &written, 4)
    return 0


cdef inline int add_count(bytearray out, bint flexible, Py_ssize_t count) except -1:
    cdef uint64_t left = <uint64_t> count + 1
    if not flexible:
        return add32(out, <int32_t> count)
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return 0


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


cdef inline bint holds(const unsigned char *octets, Py_ssize_t start, Py_ssize_t stop, bytes word) noexcept:
    # memchr passes over bytes many at a time, so a word whose first byte is rare costs least
    cdef const unsigned char *sought = word
    cdef Py_ssize_t size = len(word)
    cdef const unsigned char *at = octets + start
    cdef const unsigned char *last = octets + stop - size
    while at <= last:
        at = <const unsigned char *> memchr(at, sought[0], last - at + 1)
        if at == NULL:
            return False
        if at[1] == sought[1] and memcmp(at, sought, size) == 0:
            return True
        at += 1
    return False
