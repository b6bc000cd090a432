from services.gateway.counting cimport Count
from services.gateway.frame_stream cimport FrameStream
from services.gateway.upstream.deadlines cimport Deadlines
from services.gateway.wire.scanner.walks cimport headers


cdef class BrokerConnection(FrameStream):
    cdef public bint _ready, _severed, heard, superseded, unheard
    cdef public Py_ssize_t _max_in_flight, _next_id
    cdef public Count _received_bytes, _sent_bytes
    cdef public Deadlines _deadlines
    cdef public object _admission, _loop, _memory, _midway, _pending, _retired, _through, _waiting
    cdef public object address, cluster, ended, fault, on_broken, on_congestion

    cpdef bint takes_more(self)
    cpdef pass_on(self, object frame, object awaiting)
    cpdef Py_ssize_t _numbered(self, object awaiting) except -1
