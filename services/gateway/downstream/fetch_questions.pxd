cimport cython

from services.gateway.counting cimport Count
from services.gateway.requests.records.broker_fetches cimport BrokerFetches
from services.gateway.requests.records.log_ends cimport BrokerLogEnds
from services.gateway.upstream.connection cimport BrokerConnection
from services.gateway.upstream.left_behind cimport LeftBehind
from services.gateway.wire.scanner.walks cimport fetch_response, headers

cdef Py_ssize_t _FETCH


@cython.final
cdef class Way:
    cdef public Py_ssize_t broker_id, version
    cdef public bytes header
    cdef public str cluster
    cdef public BrokerConnection connection
    cdef public Count calls
    cdef public object kept_at
    cdef public BrokerLogEnds log_ends


@cython.final
@cython.freelist(64)
cdef class Part:
    cdef public dict wanted
    cdef public BrokerFetches fetches
    cdef public fetch_response.FetchResponseScan scan
    cdef public LeftBehind left
    cdef public Way way
    cdef public object outcome


cdef class Question(LeftBehind):
    cdef public Py_ssize_t correlation_id
    cdef public double deadline
    cdef public dict _waiting
    cdef public Part _part
    cdef public object _fetch

    @cython.locals(header=headers.ResponseHeader, version=Py_ssize_t)
    cpdef answered(self, object frame, bint owned)

    cpdef leave(self)

    @cython.locals(part=Part)
    cpdef _settled(self, object outcome, bint owned)
