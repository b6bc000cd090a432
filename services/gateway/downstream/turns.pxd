from services.gateway cimport clock
from services.gateway.downstream.toll cimport Toll


cdef class Turns:
    cdef public bint _commit_held, _held, _pumping
    cdef public object client, _follower, _lanes, _mesh, sharing, asking, pipelined, running, serial
    cdef public Toll _toll

    cpdef bint is_free_for_produce(self) except -1

    cpdef bint is_free_for_fetch(self) except -1

    cpdef pump(self)

    cpdef ended(self, object slot)
