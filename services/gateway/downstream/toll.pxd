cimport cython

from services.gateway cimport clock
from services.gateway.quotas.accounts cimport Account, Quotas
from services.gateway.wire.scanner.walks cimport headers

cdef Py_ssize_t _FETCH, _PRODUCE


cdef class Toll:
    cdef public Quotas _quotas
    cdef public Py_ssize_t _edition
    cdef public object _client_id, _loop, _proved, _reading, _session, _timer
    cdef public Account fetched, produced, worked
    cdef public bint _closed, is_due
    cdef public double until

    cpdef came(self, headers.RequestHeader header, object frame, double now)

    @cython.locals(quotas=Quotas)
    cpdef _follow(self, object client_id)

    @cython.locals(pause=double)
    cpdef _charge(self, Account account, double amount, double now)
