cimport cython

from services.gateway.requests.records.fetch_sessions cimport Marks, Position
from services.gateway.wire.scanner.walks cimport fetch_response


@cython.final
cdef class Limits:
    cdef readonly Py_ssize_t least_bytes, max_bytes, max_wait_ms, min_bytes
    cdef readonly double wait_s
    cdef readonly str rack_id

    @cython.locals(max_bytes=Py_ssize_t)
    cpdef Limits within(self, Py_ssize_t poll_bytes)
    cpdef Limits for_each_of(self, Py_ssize_t brokers)


cpdef Limits limits_of(Py_ssize_t max_wait_ms, Py_ssize_t min_bytes, Py_ssize_t max_bytes, object rack_id)


@cython.final
cdef class BrokerRequest:
    cdef readonly Py_ssize_t epoch, isolation_level, session_id
    cdef readonly Limits limits
    cdef readonly dict changed
    cdef readonly list forgotten


@cython.final
@cython.freelist(64)
cdef class Found:
    cdef readonly Py_ssize_t version
    cdef readonly fetch_response.FetchedPartition part
    cdef readonly object buffer


cdef class BrokerFetches:
    cdef public Py_ssize_t epoch, requests, session_id
    cdef public dict asked, marks
    cdef public BrokerRequest on_its_way
    cdef public object table, terms

    @cython.locals(asked=dict, changed=dict, forgotten=list, worth_it=bint, epoch=Py_ssize_t, before=Position, position=Position)
    cpdef BrokerRequest ask(self, dict wanted, Limits limits, bint in_session=*)

    @cython.locals(request=BrokerRequest)
    cpdef bint answered(self, fetch_response.FetchResponseScan scan) except -1

    @cython.locals(topic=fetch_response.FetchedTopic, part=fetch_response.FetchedPartition)
    cpdef mark(self, fetch_response.FetchResponseScan scan)

    cpdef passed(self)

    cpdef lost(self)
