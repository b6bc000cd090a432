cimport cython

from services.gateway.downstream.fetch_in_flight cimport FetchInFlight
from services.gateway.downstream.fetch_questions cimport Part, Way
from services.gateway.requests.records.broker_fetches cimport Limits
from services.gateway.requests.records.log_ends cimport BrokerLogEnds, LogEnd


cdef class WaitingRoom:
    cdef public bint _goes_on
    cdef public Py_ssize_t waiting
    cdef public dict _brokers, _buckets, _resting, _watched
    cdef public object _clusters, _loop, _no_client, _over, _woken

    @cython.locals(limits=Limits, now=double, ends=list, found=list, part=Part, broker=BrokerLogEnds, end=LogEnd, stay=list)
    cpdef bint takes(self, FetchInFlight fetch) except -1

    @cython.locals(stay=list, each=dict)
    cpdef leave(self, FetchInFlight fetch)

    @cython.locals(tick=Py_ssize_t, bucket=dict)
    cpdef dict _bucket(self, double over_at)

    @cython.locals(fetch=FetchInFlight)
    cpdef _go_on(self)

    cpdef BrokerLogEnds _broker(self, Way way, double now)
