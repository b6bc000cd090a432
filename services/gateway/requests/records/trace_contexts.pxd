cimport cython

from services.gateway.wire.scanner.walks cimport octets, produce

cdef Py_ssize_t LOOK_BYTES, MOST_RECORDS
cdef bytes _WORD


@cython.locals(
    data="const unsigned char *", limit=Py_ssize_t, start=Py_ssize_t, stop=Py_ssize_t, topic=produce.ProduceTopic,
    part=produce.ProducePartition,
)
cpdef tuple traces_in(object frame, produce.ProduceScan scan)
