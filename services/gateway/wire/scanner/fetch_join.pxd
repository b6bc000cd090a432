cimport cython

from services.gateway.wire.scanner.walks cimport octets
from services.gateway.wire.scanner.walks.fetch_response cimport FetchedTopic, FetchResponseScan

cdef Py_ssize_t _FLEXIBLE, _SESSIONS_SINCE, IDS_SINCE, SMALL


cpdef Py_ssize_t _form(Py_ssize_t version) except -1

@cython.locals(flexible=bint, head=bytearray, pieces=list)
cpdef list join_fetch_response(
    Py_ssize_t version, object topics, Py_ssize_t throttle_time_ms=*, Py_ssize_t session_id=*
)

@cython.locals(head=bytearray, pieces=list, topic=FetchedTopic)
cpdef list with_topic_ids(object frame, FetchResponseScan scan, object topic_ids, Py_ssize_t session_id)
