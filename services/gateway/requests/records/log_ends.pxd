cimport cython

from services.gateway.requests.records.broker_fetches cimport BrokerFetches
from services.gateway.requests.records.fetch_sessions cimport Marks, Position


@cython.final
cdef class LogEnd:
    cdef public Position position
    cdef public dict waiting
    cdef public object log_start
    cdef public double used_at


cdef class LogEndWatch:
    cdef public bint goes_on
    cdef public double _empty_since
    cdef public dict ends
    cdef public BrokerFetches _fetches
    cdef public BrokerLogEnds broker


cdef class BrokerLogEnds:
    cdef public Py_ssize_t version
    cdef public dict ends
    cdef public list watches
    cdef public object _begin

    @cython.locals(found=list, known=Marks, position=Position, end=LogEnd, offset=cython.longlong)
    cpdef list standing(self, dict wanted, dict marks, bint committed, double now)
