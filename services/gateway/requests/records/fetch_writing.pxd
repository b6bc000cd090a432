cimport cython

from services.gateway.requests.records.fetch_routes cimport Route

cdef Py_ssize_t _FLEXIBLE, _MOST_IN_A_BYTE


@cython.locals(flexible=bint, entries=dict, out=bytearray, route=Route)
cpdef bytes written_fetch(Py_ssize_t version, object request, dict routes)

cpdef entry_of(Py_ssize_t version, object partition, object offset, object max_bytes)

cpdef _count_to(bytearray out, bint flexible, Py_ssize_t count)
