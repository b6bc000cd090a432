cimport cython

cdef double UNIT_S
cdef Py_ssize_t BUCKETS


cdef class Count:
    cdef public long long total


cdef class Histogram:
    cdef public dict exemplars
    cdef public list buckets
    cdef public double seconds

    @cython.locals(units=cython.longlong, place=Py_ssize_t)
    cpdef observe(self, double seconds)


cdef class Times:
    cdef public Histogram gateway, upstream

    cpdef took(self, double seconds, double upstream_s)


cdef class Answered(Count):
    cdef public Count of_all
    cdef public Times times
