cimport cython

from services.gateway.downstream.fetch_in_flight cimport FetchInFlight
from services.gateway.downstream.fetch_questions cimport Part, Way
from services.gateway.downstream.following cimport Following
from services.gateway.requests.records.broker_fetches cimport BrokerFetches, Limits, limits_of
from services.gateway.requests.records.fetch_routes cimport Route
from services.gateway.requests.records.fetch_sessions cimport FetchSession, FetchSessions, Position
from services.gateway.requests.traffic.tally cimport Tally
from services.gateway.wire.scanner.walks cimport headers
from services.gateway.wire.scanner.walks.fetch_request cimport FetchPartitionScan, FetchRequestScan, FetchTopicScan


cdef class FetchPlacing(Following):
    cdef public FetchSessions _sessions
    cdef public object _lanes
    cdef public Tally idle

    @cython.locals(
        scan=FetchRequestScan, fetch=FetchInFlight, version=Py_ssize_t, epoch=Py_ssize_t, named=dict,
        ours=FetchSession,
    )
    cpdef FetchInFlight placed(self, object forwarder, headers.RequestHeader header, object frame, double now)

    cpdef _follow(self, object client_id)

    @cython.locals(route=Route)
    cpdef Route _route(self, object key, double now)

    @cython.locals(
        session=FetchSession, by_ids=bint, topic=FetchTopicScan, each=FetchPartitionScan, route=Route, part=Part,
        tenant=object,
    )
    cpdef dict _positions(self, FetchInFlight fetch, FetchRequestScan scan, double now)

    @cython.locals(part=Part, route=Route)
    cpdef bint _is_session_placed(
        self, FetchInFlight fetch, FetchSession session, dict named, double now
    ) except -1

    @cython.locals(part=Part)
    cpdef Part _part_of(self, FetchInFlight fetch, Part last, Route route, Py_ssize_t number)

    @cython.locals(version=Py_ssize_t, fetches=BrokerFetches, way=Way, part=Part)
    cpdef Part _new_part(self, FetchInFlight fetch, Route route, Py_ssize_t leader)

    @cython.locals(brokers=Py_ssize_t, part=Part, limits=Limits)
    cpdef _limit(self, FetchInFlight fetch, FetchRequestScan scan)


cdef Position _there(FetchInFlight fetch, Route route, Py_ssize_t partition, Position position)
