cimport cython


cdef class Account:
    cdef object __weakref__
    cdef public double last, paused_until, pending, room, until
    cdef public object key, rate
    cdef public tuple sharers

    @cython.locals(pending=double)
    cpdef double charge(self, double amount, double now) except -1.0

    @cython.locals(pause=double)
    cpdef double _measure(self, double amount, double now) except -1.0


cdef class Quotas:
    cdef public bint counts
    cdef public Py_ssize_t edition, _gateways, _revision
    cdef public dict _kept
    cdef public double _swept_at
    cdef public set on_change
    cdef public object _accounts, _policy, _shares
