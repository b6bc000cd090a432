cimport cython

cdef double EDGE, FIRST_S, ROOT
cdef Py_ssize_t CELLS, LAST_OCTAVE, PER_OCTAVE


cdef class Count:
    cdef public long long total


cdef class Histogram:
    cdef public dict exemplars
    cdef public object cells
    cdef long long[::1] _numbers
    cdef public double seconds

    @cython.locals(part=double, octave=Py_ssize_t, cell=Py_ssize_t, edge=double)
    cpdef observe(self, double seconds)


cdef class Times:
    cdef public Histogram gateway, upstream

    cpdef took(self, double seconds, double upstream_s)


cdef class Answered(Count):
    cdef public Count of_all
    cdef public Times times
