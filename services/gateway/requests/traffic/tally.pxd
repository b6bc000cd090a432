from services.gateway.wire.scanner.walks cimport octets

cdef Py_ssize_t _FOLDED_BYTES


cdef class Tally:
    cdef public bint ended
    cdef public long long bytes, calls, errors, records
    cdef bytearray _recent
    cdef object _new_sketch, _sketch

    cpdef add(self, long long records, long long size, long long errors)

    cpdef took(self, double milliseconds)

    cpdef _fold(self)
