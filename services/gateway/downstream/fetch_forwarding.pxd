cimport cython

from services.gateway cimport clock
from services.gateway.downstream.fetch_in_flight cimport FetchInFlight
from services.gateway.downstream.fetch_placing cimport FetchPlacing
from services.gateway.downstream.fetch_questions cimport Part, Question, Way
from services.gateway.requests.records.broker_fetches cimport BrokerRequest
from services.gateway.wire.scanner.walks cimport headers


cdef class FetchForwarder:
    cdef public double _asked_at, _quiet_since, _renewed_after_s, _timer_at
    cdef public FetchInFlight _current
    cdef public FetchPlacing _placing
    cdef public object client, _clusters, _lanes, _loop, _memory, _mesh, _room, _session, _slots, _tables, _timer

    @cython.locals(fetch=FetchInFlight)
    cpdef FetchInFlight place(self, headers.RequestHeader header, object frame, double now)

    cpdef ask(self, FetchInFlight fetch)

    @cython.locals(began=double, is_renewed=bint)
    cpdef bint _waits(self, FetchInFlight fetch) except -1

    @cython.locals(parts=list, part=Part)
    cpdef _send(self, FetchInFlight fetch, double now)

    @cython.locals(way=Way, question=Question, in_session=bint, request=BrokerRequest, frame=bytearray)
    cpdef _ask(self, FetchInFlight fetch, Part part, double now)

    cpdef came(self, FetchInFlight fetch, Part part, object outcome, bint owned)

    cpdef _answer(self, FetchInFlight fetch)

    @cython.locals(part=Part)
    cpdef _end(self, FetchInFlight fetch)
