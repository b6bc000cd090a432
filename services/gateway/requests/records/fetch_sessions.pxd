cimport cython


@cython.final
@cython.freelist(64)
cdef class Position:
    cdef readonly Py_ssize_t max_bytes
    cdef readonly long long offset


@cython.final
@cython.freelist(64)
cdef class Marks:
    cdef readonly long long high_watermark, last_stable_offset, log_start_offset


@cython.final
cdef class FetchSession:
    cdef public bint by_ids
    cdef public Py_ssize_t epoch, session_id
    cdef public double created, used
    cdef public dict told, wanted

    cpdef update(self, object changed, object forgotten)

    @cython.locals(last=Marks)
    cpdef bint must_tell(self, object slot, Marks marks, Py_ssize_t error_code, Py_ssize_t record_bytes) except -1


cdef class FetchSessions:
    cdef public Py_ssize_t _partitions_held, _sessions_held, partitions
    cdef public object _sessions, on_made_way

    cpdef FetchSession get(self, Py_ssize_t session_id)

    @cython.locals(size=Py_ssize_t, grown=Py_ssize_t)
    cpdef bint update(self, FetchSession session, object changed, object forgotten, double now) except -1


cpdef Py_ssize_t next_epoch(Py_ssize_t epoch) except -2
