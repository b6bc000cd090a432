cdef class Deadlines:
    cdef public double at
    cdef public Py_ssize_t missing_before
    cdef public object _connection, _loop, _memory, _timer, held_back_at

    cpdef watch(self, double deadline)
