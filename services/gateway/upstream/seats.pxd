from services.gateway.upstream.connection cimport BrokerConnection


cdef class Seat:
    cdef public bint _leaving
    cdef public double _rests_until, _slow_rest_s
    cdef public Py_ssize_t unanswered
    cdef public object _pool, shared
    cdef public BrokerConnection own

    cpdef BrokerConnection connection(self, Py_ssize_t size, double now, bint quick)
