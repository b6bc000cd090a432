cdef class Count:
    cdef public long long total
