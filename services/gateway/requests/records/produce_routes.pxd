from services.gateway.requests.traffic.tally cimport Tally


cdef class Route:
    cdef public bint is_single
    cdef public Py_ssize_t edition, highest, lowest
    cdef public bytes called, written
    cdef public str cluster, name
    cdef public tuple leaders, shifts
    cdef public object acknowledged, before, knowledge, route
    cdef public Tally tally
