cimport cython

from . cimport octets, readers

cdef list _FLEXIBLE_SINCE
cdef Py_ssize_t _KEYS, _CONTROLLED_SHUTDOWN, _API_VERSIONS


@cython.final
@cython.freelist(64)
cdef class RequestHeader:
    cdef readonly Py_ssize_t api_key, api_version, correlation_id
    cdef readonly str client_id
    cdef readonly Py_ssize_t body_offset


@cython.final
@cython.freelist(64)
cdef class ResponseHeader:
    cdef readonly Py_ssize_t correlation_id, body_offset


@cython.locals(data="const unsigned char *", at=Py_ssize_t, begin=Py_ssize_t, header=RequestHeader)
cpdef RequestHeader parse_request_header(object buffer, Py_ssize_t start, Py_ssize_t end)

@cython.locals(data="const unsigned char *", at=Py_ssize_t, header=ResponseHeader)
cpdef ResponseHeader parse_response_header(
    object buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t api_key, Py_ssize_t api_version
)

cpdef Py_ssize_t int32_at(object buffer, Py_ssize_t at) except? -1

cpdef int patch_correlation_id(object buffer, Py_ssize_t offset, Py_ssize_t correlation_id) except -1

@cython.locals(since=Py_ssize_t)
cdef bint _is_flexible(Py_ssize_t api_key, Py_ssize_t api_version) except -1
