cimport cython

from services.gateway cimport clock
from services.gateway.counting cimport Answered
from services.gateway.downstream.fetch_questions cimport Part
from services.gateway.requests.records.broker_fetches cimport Found, Limits
from services.gateway.requests.records.fetch_routes cimport Route
from services.gateway.requests.records.fetch_sessions cimport FetchSession, Marks, Position
from services.gateway.wire.scanner.walks cimport fetch_response, headers, octets

cdef Py_ssize_t _FETCH, _NO_TAGS, FLEXIBLE, NAMES_UNTIL, NO_SESSION


@cython.final
@cython.freelist(64)
cdef class FetchInFlight:
    cdef public bint alone, careful, done, ended, passes, stitched
    cdef public Py_ssize_t clients_id, epoch, isolation_level, record_bytes, version
    cdef public double asked_at, began, heard_at, upstream_s
    cdef public dict found, routes
    cdef public list answer, parts, stay
    cdef public Answered answers
    cdef public FetchSession session
    cdef public Limits each, limits
    cdef public object brought, client_id, close, clusters, exchange, forwarder, table, tenant, wanted

    cpdef waited(self)

    @cython.locals(scan=fetch_response.FetchResponseScan, each=Part, session=FetchSession)
    cpdef come(self, Part part, object outcome)

    @cython.locals(
        found=dict, wanted=dict, asked=dict, topic=fetch_response.FetchedTopic, each=fetch_response.FetchedPartition,
        position=Position, before=Position,
    )
    cpdef _find(self, Part part, object outcome, fetch_response.FetchResponseScan scan)

    @cython.locals(
        part=Part, scan=fetch_response.FetchResponseScan, sent_version=Py_ssize_t, session=FetchSession,
        session_id=Py_ssize_t, throttle_time_ms=Py_ssize_t, slots=list, fits=bint,
    )
    cpdef told(self)

    @cython.locals(
        told=list, slots=list, marks=dict, found=dict, part=Part, session=FetchSession, came=Found,
    )
    cpdef list _news(self)

    @cython.locals(topic=fetch_response.FetchedTopic, each=fetch_response.FetchedPartition)
    cpdef _show_answer(self, Part part, fetch_response.FetchResponseScan scan)

    @cython.locals(route=Route)
    cpdef _show(self, object frame, Py_ssize_t version, str name, fetch_response.FetchedPartition each)

    @cython.locals(topic=fetch_response.FetchedTopic, route=Route)
    cpdef _whole(self, object outcome, fetch_response.FetchResponseScan scan, Py_ssize_t session_id)

    @cython.locals(flexible=bint, size=Py_ssize_t, out=bytearray)
    cpdef _framed(self, list body)


@cython.locals(topic=fetch_response.FetchedTopic, part=fetch_response.FetchedPartition)
cpdef bint _has_pressing(fetch_response.FetchResponseScan scan) except -1

@cython.locals(
    wanted=dict, asked=dict, topic=fetch_response.FetchedTopic, each=fetch_response.FetchedPartition,
    position=Position, before=Position,
)
cpdef bint _serves(Part part, fetch_response.FetchResponseScan scan) except -1
