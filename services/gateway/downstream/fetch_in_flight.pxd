cimport cython

from services.gateway.counting cimport Count
from services.gateway.downstream.fetch_questions cimport Part
from services.gateway.wire.scanner.walks cimport fetch_response, headers

cdef Py_ssize_t _FETCH


cdef class FetchInFlight:
    cdef public bint alone, careful, done, ended, passes
    cdef public Py_ssize_t clients_id, epoch, isolation_level, record_bytes, version
    cdef public double arrived, began
    cdef public dict found, routes
    cdef public list answer, parts
    cdef public Count answers
    cdef public object brought, client_id, close, clusters, each, exchange, forwarder, limits, session, table, wanted

    @cython.locals(scan=fetch_response.FetchResponseScan, each=Part)
    cpdef come(self, Part part, object outcome)

    cpdef _take(self, Part part, object outcome, fetch_response.FetchResponseScan scan)

    @cython.locals(part=Part, scan=fetch_response.FetchResponseScan, sent_version=Py_ssize_t)
    cpdef told(self)

    @cython.locals(told=list, slots=list, marks=dict, part=Part)
    cpdef list _news(self)


@cython.locals(topic=fetch_response.FetchedTopic, part=fetch_response.FetchedPartition)
cpdef bint _has_pressing(fetch_response.FetchResponseScan scan) except -1

@cython.locals(topic=fetch_response.FetchedTopic, each=fetch_response.FetchedPartition)
cpdef bint _serves(Part part, fetch_response.FetchResponseScan scan) except -1
