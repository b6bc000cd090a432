cimport cython

from services.gateway cimport clock
from services.gateway.counting cimport Answered, Count
from services.gateway.downstream.fetch_forwarding cimport FetchForwarder
from services.gateway.downstream.fetch_in_flight cimport FetchInFlight
from services.gateway.downstream.forwarding cimport Forwarder
from services.gateway.downstream.in_flight cimport InFlight
from services.gateway.downstream.request_tracing cimport RequestTracing
from services.gateway.downstream.toll cimport Toll
from services.gateway.downstream.turns cimport Turns
from services.gateway.frame_stream cimport FrameStream
from services.gateway.quotas.accounts cimport Quotas
from services.gateway.wire.scanner.walks cimport headers

cdef Count _bytes_in, bytes_out
cdef Py_ssize_t _FETCH, _PRODUCE


cdef class ClientConnection(FrameStream):
    cdef public Py_ssize_t _most_requests
    cdef public Count _client_in, _client_out
    cdef public FetchForwarder _fetches
    cdef public Forwarder _forwarder
    cdef public object _asked_node, _connections, _follower, _gate, _introduction, _lanes, _mesh
    cdef public object _queue, _reading, _slots
    cdef public RequestTracing _tracing
    cdef public Quotas _quotas
    cdef public Toll _toll
    cdef public Turns _turns
    cdef public object entrance, session

    @cython.locals(header=headers.RequestHeader, toll=Toll, now=double)
    cpdef frame_received(self, object frame, bint owned)

    cpdef _begin(self, headers.RequestHeader header, object frame, bint owned, double now)

    @cython.locals(produce=InFlight)
    cpdef bint _is_forwarded(self, headers.RequestHeader header, object frame, double now) except -1

    @cython.locals(fetch=FetchInFlight)
    cpdef bint _is_fetch_forwarded(self, headers.RequestHeader header, object frame, double now) except -1

    @cython.locals(answers=Answered, size=Py_ssize_t, toll=Toll, turns=Turns)
    cpdef answered(self, object slot, tuple pieces)
