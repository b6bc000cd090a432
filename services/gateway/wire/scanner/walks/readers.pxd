cimport cython

from . cimport octets

cdef Py_ssize_t _MAX_STRING_BYTES

@cython.locals(start=Py_ssize_t, value=Py_ssize_t, shift=Py_ssize_t, byte=Py_ssize_t)
cdef (Py_ssize_t, Py_ssize_t) uvarint(const unsigned char *data, Py_ssize_t at, Py_ssize_t end, str field)

@cython.locals(found=Py_ssize_t, after=Py_ssize_t)
cdef (Py_ssize_t, Py_ssize_t) nullable_count(
    const unsigned char *data, Py_ssize_t at, Py_ssize_t end, bint flexible, Py_ssize_t least, str field
)

@cython.locals(found=Py_ssize_t, after=Py_ssize_t)
cdef (Py_ssize_t, Py_ssize_t) count(
    const unsigned char *data, Py_ssize_t at, Py_ssize_t end, bint flexible, Py_ssize_t least, str field
)

@cython.locals(length=Py_ssize_t, start=Py_ssize_t)
cdef (Py_ssize_t, Py_ssize_t) nullable_text(
    const unsigned char *data, Py_ssize_t at, Py_ssize_t end, bint flexible, str field
)

@cython.locals(start=Py_ssize_t, stop=Py_ssize_t)
cdef (Py_ssize_t, Py_ssize_t) text(
    const unsigned char *data, Py_ssize_t at, Py_ssize_t end, bint flexible, str field
)

cdef str decoded(const unsigned char *data, Py_ssize_t start, Py_ssize_t stop, str field)

cdef Py_ssize_t topic_id(Py_ssize_t at, Py_ssize_t end, str field) except -1

@cython.locals(tags=Py_ssize_t, size=Py_ssize_t, start=Py_ssize_t)
cdef Py_ssize_t skip_tags(const unsigned char *data, Py_ssize_t at, Py_ssize_t end, str field) except -1

cdef Py_ssize_t take(Py_ssize_t left, Py_ssize_t entries, str field, Py_ssize_t at) except -1

cdef lying(str field, Py_ssize_t at, Py_ssize_t length, Py_ssize_t left)

cdef int finish(str message, Py_ssize_t at, Py_ssize_t end) except -1

cdef int enclose(str message, object buffer, Py_ssize_t start, Py_ssize_t end) except -1
