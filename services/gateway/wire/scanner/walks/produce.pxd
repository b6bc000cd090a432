cimport cython

from . cimport octets, readers

cdef Py_ssize_t _IDS_SINCE, _MAX_ENTRIES, _HEADER_BYTES, _MOST_COUNTED, _FLEXIBLE, _CLOSED, _SMALL_BYTES


@cython.final
@cython.freelist(64)
cdef class ProducePartition:
    cdef readonly Py_ssize_t partition, start, end, records_start, records_end
    cdef public long long records


@cython.final
@cython.freelist(16)
cdef class ProduceTopic:
    cdef readonly str name
    cdef readonly bytes topic_id
    cdef readonly Py_ssize_t start, partitions_at, tags_at, end
    cdef public long long records, record_bytes
    cdef readonly list partitions

    @cython.locals(topic=ProduceTopic)
    cpdef ProduceTopic named(self, str name)


@cython.final
@cython.freelist(16)
cdef class ProduceScan:
    cdef readonly Py_ssize_t version
    cdef readonly str transactional_id
    cdef readonly Py_ssize_t acks, timeout_ms, start, topics_at, tags_at, end
    cdef readonly list topics

    @cython.locals(scan=ProduceScan)
    cpdef ProduceScan of(self, list topics)


@cython.locals(
    data="const unsigned char *", flexible=bint, at=Py_ssize_t, count=Py_ssize_t, left=Py_ssize_t, scan=ProduceScan,
    topic=ProduceTopic, topics=list,
)
cpdef ProduceScan scan_produce(object buffer, Py_ssize_t version, Py_ssize_t offset, Py_ssize_t end)

@cython.locals(
    data="const unsigned char *", topic=ProduceTopic, part=ProducePartition, start=Py_ssize_t, found=list,
    records="long long", size="long long",
)
cpdef bytes first_headers(object buffer, ProduceScan scan)

@cython.locals(known=Py_ssize_t, part=ProducePartition)
cpdef object led_by(ProduceTopic topic, tuple leaders)


@cython.locals(records=Py_ssize_t, at=Py_ssize_t, length=Py_ssize_t, stop=Py_ssize_t, counted=object)
cdef long long _count_records(const unsigned char *data, Py_ssize_t start, Py_ssize_t end) except? -1

@cython.locals(count=Py_ssize_t, at=Py_ssize_t, place=Py_ssize_t)
cdef bint may_have_headers(const unsigned char *data, Py_ssize_t start, Py_ssize_t end, Py_ssize_t most) except -1

cdef Py_ssize_t _behind_varint(const unsigned char *data, Py_ssize_t at, Py_ssize_t end) noexcept

@cython.locals(found=Py_ssize_t, shift=Py_ssize_t)
cdef Py_ssize_t _length(const unsigned char *data, Py_ssize_t at, Py_ssize_t end) noexcept

cdef Py_ssize_t _head(
    const unsigned char *data, ProduceScan scan, Py_ssize_t version, Py_ssize_t offset, Py_ssize_t end
) except -1

@cython.locals(begin=Py_ssize_t)
cdef Py_ssize_t _named(
    const unsigned char *data, ProduceTopic topic, Py_ssize_t version, Py_ssize_t at, Py_ssize_t end
) except -1

@cython.locals(
    data="const unsigned char *", flexible=bint, at=Py_ssize_t, count=Py_ssize_t, length=Py_ssize_t, scan=ProduceScan,
    topic=ProduceTopic, part=ProducePartition,
)
cpdef ProduceScan scan_produce_beginning(
    object buffer, Py_ssize_t version, Py_ssize_t offset, Py_ssize_t end, Py_ssize_t size
)

@cython.locals(
    least=Py_ssize_t, head=Py_ssize_t, count=Py_ssize_t, length=Py_ssize_t, begin=Py_ssize_t, stop=Py_ssize_t,
    part=ProducePartition,
)
cdef Py_ssize_t _produce_partitions(
    const unsigned char *data, Py_ssize_t at, Py_ssize_t end, bint flexible, Py_ssize_t left, list found
) except -1
