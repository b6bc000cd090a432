from services.gateway cimport clock
from services.gateway.counting cimport Times
from services.gateway.requests.records.trace_contexts cimport traces_in
from services.gateway.wire.scanner.walks cimport produce

cdef tuple _BEGINS


cdef class RequestTracing:
    cdef public object _timer, _tracer
    cdef public list _noted
    cdef public dict _shapes
    cdef public double _rate
    cdef public long long _left

    cpdef tuple found(self, object frame, produce.ProduceScan scan)

    cpdef forwarded(self, object slot, Times times)

    cpdef tuple _traces(self, tuple seen)
