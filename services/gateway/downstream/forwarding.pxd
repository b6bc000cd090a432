cimport cython

from services.gateway cimport clock
from services.gateway.counting cimport Count
from services.gateway.downstream.following cimport Following
from services.gateway.downstream.in_flight cimport InFlight
from services.gateway.downstream.request_tracing cimport RequestTracing
from services.gateway.requests.records.produce_routes cimport Route
from services.gateway.requests.traffic.tally cimport Tally
from services.gateway.upstream.connection cimport BrokerConnection
from services.gateway.upstream.seats cimport Seat
from services.gateway.wire.scanner.walks cimport headers, produce


cdef class Way:
    cdef public Count calls
    cdef public object place
    cdef public Seat seat


cdef class Forwarder(Following):
    cdef public dict _underway
    cdef public list _producing
    cdef public object client, _lanes, _refused
    cdef public RequestTracing _tracing

    @cython.locals(
        scan=produce.ProduceScan, request=InFlight, way=Way, connection=BrokerConnection,
    )
    cpdef InFlight forward(self, headers.RequestHeader header, object frame, double now)

    @cython.locals(
        scan=produce.ProduceScan, topic=produce.ProduceTopic, route=Route, first=Route, way=Way, version=Py_ssize_t,
        entries=Py_ssize_t, sent_version=Py_ssize_t, by_id=bint, tenant=object,
    )
    cpdef Way _choose_broker(self, InFlight request, double now)

    cpdef bint _overtakes(self, InFlight request, object place) except -1

    @cython.locals(quick=bint, route=Route, scan=produce.ProduceScan, connection=BrokerConnection)
    cpdef BrokerConnection _connection(self, InFlight request, Way way, Py_ssize_t size, double now)

    cpdef _taken(self, InFlight request, Way way)

    cpdef stored(self, InFlight request, object frame)

    @cython.locals(
        ms=double, topics=list, routes=list, place=Py_ssize_t, topic=produce.ProduceTopic, route=Route, tally=Tally,
    )
    cpdef _count(self, object traffic, InFlight request)
