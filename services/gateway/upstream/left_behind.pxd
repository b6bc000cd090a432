cdef class LeftBehind:
    cdef object __weakref__
    cdef public double arrived
    cdef public object key, outcome, taker

    cpdef leave(self)
