cimport cython

from services.gateway.requests.records.broker_fetches cimport BrokerRequest, Limits
from services.gateway.requests.records.fetch_routes cimport Route
from services.gateway.requests.records.fetch_sessions cimport Position
from services.gateway.wire.scanner.walks cimport octets

cdef Py_ssize_t _FLEXIBLE, _NO_REPLICA, _NO_TAGS, _RACKS_SINCE, _UNKNOWN


@cython.locals(
    flexible=bint, limits=Limits, out=bytearray, entries=dict, size=Py_ssize_t, at=Py_ssize_t, of_topic=bytearray, route=Route,
)
cpdef bytearray written_fetch(bytes header, Py_ssize_t version, BrokerRequest request, dict routes)

@cython.locals(entries=dict, out=bytearray, position=Position)
cdef dict _entries_of(Py_ssize_t version, BrokerRequest request)

@cython.locals(at=Py_ssize_t)
cpdef _write_entry(bytearray out, Py_ssize_t version, Py_ssize_t partition, Position position)

cdef Py_ssize_t _entry_bytes(Py_ssize_t version) except -1
