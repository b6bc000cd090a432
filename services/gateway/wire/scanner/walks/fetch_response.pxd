cimport cython

from . cimport octets, readers

cdef Py_ssize_t _IDS_SINCE, _LENGTH_FROM, _MAX_ENTRIES, _FLEXIBLE


@cython.final
@cython.freelist(64)
cdef class FetchedPartition:
    cdef readonly Py_ssize_t partition, error_code
    cdef readonly long long high_watermark, last_stable_offset, log_start_offset
    cdef readonly Py_ssize_t aborted_at, preferred_read_replica, replica_at
    cdef readonly bint hints
    cdef readonly Py_ssize_t start, end, records_start, records_end, record_bytes


@cython.final
@cython.freelist(16)
cdef class FetchedTopic:
    cdef readonly str name
    cdef readonly bytes topic_id
    cdef readonly list partitions
    cdef readonly Py_ssize_t start, partitions_at, end


@cython.final
@cython.freelist(16)
cdef class FetchResponseScan:
    cdef readonly Py_ssize_t version, throttle_time_ms, error_code, session_id, record_bytes
    cdef readonly bint untouched
    cdef readonly list topics


@cython.locals(
    data="const unsigned char *", flexible=bint, at=Py_ssize_t, head=Py_ssize_t, begin=Py_ssize_t, count=Py_ssize_t,
    left=Py_ssize_t, tags_at=Py_ssize_t, scan=FetchResponseScan, topic=FetchedTopic, topics=list,
)
cpdef FetchResponseScan scan_fetch_response(
    object buffer, Py_ssize_t version, Py_ssize_t offset, Py_ssize_t end
)

@cython.locals(
    version=Py_ssize_t, flexible=bint, head=Py_ssize_t, count=Py_ssize_t, length=Py_ssize_t, begin=Py_ssize_t,
    part=FetchedPartition,
)
cdef Py_ssize_t _fetched_partitions(
    const unsigned char *data, Py_ssize_t at, Py_ssize_t end, FetchResponseScan scan, Py_ssize_t left, list found
) except -1

@cython.locals(count=Py_ssize_t)
cdef Py_ssize_t _skip_aborted(const unsigned char *data, Py_ssize_t at, Py_ssize_t end, bint flexible) except -1

@cython.locals(
    data="const unsigned char *", flexible=bint, count=Py_ssize_t, at=Py_ssize_t, length=Py_ssize_t, field=str,
)
cpdef show_offsets(
    object buffer, Py_ssize_t version, FetchedPartition part, long long shift, long long high_watermark,
    long long last_stable_offset, long long log_start_offset
)
