cimport cython

from . cimport octets, readers

cdef Py_ssize_t _IDS_SINCE, _MAX_ENTRIES, _FLEXIBLE


@cython.final
@cython.freelist(64)
cdef class FetchPartitionScan:
    cdef readonly Py_ssize_t partition
    cdef readonly long long fetch_offset
    cdef readonly Py_ssize_t max_bytes, current_leader_epoch, start, end


@cython.final
@cython.freelist(16)
cdef class FetchTopicScan:
    cdef readonly str name
    cdef readonly bytes topic_id
    cdef readonly list partitions


@cython.final
@cython.freelist(16)
cdef class FetchRequestScan:
    cdef readonly Py_ssize_t version, replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level
    cdef readonly Py_ssize_t session_id, session_epoch, waits_at
    cdef readonly list topics
    cdef readonly Py_ssize_t forgotten_topics
    cdef readonly str rack_id


@cython.locals(
    data="const unsigned char *", flexible=bint, at=Py_ssize_t, size=Py_ssize_t, begin=Py_ssize_t, count=Py_ssize_t,
    left=Py_ssize_t, scan=FetchRequestScan, topic=FetchTopicScan, topics=list,
)
cpdef FetchRequestScan scan_fetch_request(
    object buffer, Py_ssize_t version, Py_ssize_t offset, Py_ssize_t end
)

@cython.locals(flexible=bint, offset_at=Py_ssize_t, size=Py_ssize_t, count=Py_ssize_t, part=FetchPartitionScan)
cdef Py_ssize_t _fetch_partitions(
    const unsigned char *data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t version, Py_ssize_t left, list found
) except -1

@cython.locals(flexible=bint, count=Py_ssize_t, begin=Py_ssize_t, partitions=Py_ssize_t)
cdef (Py_ssize_t, Py_ssize_t) _skip_forgotten(
    const unsigned char *data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t version
)
