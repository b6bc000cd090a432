cdef class Count:
    cdef public long long total


cdef class Histogram:
    cdef public list buckets
    cdef public double seconds

    cpdef observe(self, double seconds)


cdef class Times:
    cdef public Histogram gateway, upstream

    cpdef took(self, double seconds, double upstream_s)


cdef class Answered(Count):
    cdef public Count of_all
    cdef public Times times
