from services.gateway.requests.traffic.tally cimport Tally


cdef class Route:
    cdef public Py_ssize_t edition, highest, lowest
    cdef public bytes compact, plain, topic_id
    cdef public str cluster, name
    cdef public tuple leaders, presents, receipts
    cdef public object knowledge, rule_id
    cdef public Tally tally

    cpdef object present(self, Py_ssize_t partition)
