cimport cython

from services.gateway.counting cimport Answered


cdef class Following:
    cdef public Py_ssize_t _edition, _highest, _lowest, _operation, _renamed_since, _since
    cdef public dict _answers, _routes, _ways
    cdef public tuple _software
    cdef public object _api_key, _client_id, _clusters, _follower, _known, _memory, _mesh, _route_to, _session, _table
    cdef public object _access, _names, _proved, _tables, _tenant

    cpdef bint _forwards(self, object client_id, Py_ssize_t version) except -1

    cpdef _follow(self, object client_id)

    cpdef _look_up(self, object key, double now)

    cpdef Answered _answers_of(self, Py_ssize_t version)
