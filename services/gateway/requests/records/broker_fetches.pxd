cimport cython

from services.gateway.wire.scanner.walks cimport fetch_response


cdef class BrokerFetches:
    cdef public Py_ssize_t epoch, requests, session_id
    cdef public dict asked, marks
    cdef public object on_its_way, table, terms

    @cython.locals(asked=dict, forgotten=list)
    cpdef ask(self, object wanted, object limits, bint in_session=*)

    @cython.locals(topic=fetch_response.FetchedTopic, part=fetch_response.FetchedPartition)
    cpdef bint answered(self, fetch_response.FetchResponseScan scan) except -1

    cpdef lost(self)
