cimport cython

from . cimport octets, readers

cdef Py_ssize_t _FLEXIBLE, _FIRST, _LAST


@cython.final
cdef class AnsweredTopic:
    cdef readonly Py_ssize_t start, name_at, partitions_at


cpdef bint produce_response_is_clean(
    object buffer, Py_ssize_t version, Py_ssize_t offset, Py_ssize_t end
) except -1

cpdef list topics_of_clean_response(
    object buffer, Py_ssize_t version, Py_ssize_t offset, Py_ssize_t end
)

@cython.locals(
    topics=Py_ssize_t, start=Py_ssize_t, length=Py_ssize_t, name_at=Py_ssize_t, partitions=Py_ssize_t,
    topic=AnsweredTopic,
)
cdef bint _flexible(const unsigned char *data, Py_ssize_t at, Py_ssize_t end, list found) except -1

@cython.locals(
    size=Py_ssize_t, topics=Py_ssize_t, start=Py_ssize_t, length=Py_ssize_t, partitions=Py_ssize_t, topic=AnsweredTopic,
)
cdef bint _classic(
    const unsigned char *data, Py_ssize_t version, Py_ssize_t at, Py_ssize_t end, list found
) except -1

@cython.locals(
    data="const unsigned char *", flexible=bint, size=Py_ssize_t, topic=AnsweredTopic, found=dict,
    name=bytes, partitions=Py_ssize_t, at=Py_ssize_t,
)
cpdef dict base_offsets(object buffer, Py_ssize_t version, Py_ssize_t offset, Py_ssize_t end)

@cython.locals(
    data="const unsigned char *", flexible=bint, size=Py_ssize_t, topic=AnsweredTopic, of_topic=tuple,
    known=Py_ssize_t, partitions=Py_ssize_t, at=Py_ssize_t, number=Py_ssize_t, shift=cython.longlong,
)
cpdef shift_offsets(object buffer, Py_ssize_t version, Py_ssize_t offset, Py_ssize_t end, dict shifts)

@cython.locals(found=list)
cdef list _topics(const unsigned char *data, Py_ssize_t version, Py_ssize_t offset, Py_ssize_t end)

cdef Py_ssize_t _partition_bytes(Py_ssize_t version)

@cython.locals(offset=cython.longlong)
cdef _shift(object buffer, const unsigned char *data, Py_ssize_t at, long long shift)

cdef (Py_ssize_t, Py_ssize_t) _int32(const unsigned char *data, Py_ssize_t at, Py_ssize_t end, str field)
