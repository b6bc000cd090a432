cimport cython

from services.gateway cimport clock
from services.gateway.counting cimport Answered
from services.gateway.requests.records.produce_routes cimport Route
from services.gateway.upstream.connection cimport BrokerConnection
from services.gateway.upstream.seats cimport Seat
from services.gateway.wire.scanner.walks cimport headers, produce, produce_response


cdef class InFlight:
    cdef public bint done, stitched, under_standby
    cdef public Py_ssize_t clients_id, correlation_id, sent_version, version
    cdef public double asked_at, began, deadline, sent_at, timeout_s, upstream_s
    cdef public bytes headers
    cdef public list answer, routes
    cdef public object sole
    cdef public object client, client_id, close, forwarder, outcome, table, tenant, traces
    cdef public BrokerConnection connection
    cdef public Answered answers
    cdef public Seat seat
    cdef public produce.ProduceScan scan

    @cython.locals(flexible=bint, body_at=Py_ssize_t)
    cpdef answered(self, object frame, bint owned)

    @cython.locals(
        found=dict, route=Route, topic=produce.ProduceTopic, part=produce.ProducePartition, shifts=tuple,
        number=Py_ssize_t, offset=cython.longlong,
    )
    cpdef _note_ends(self, object frame, Py_ssize_t body_at)
