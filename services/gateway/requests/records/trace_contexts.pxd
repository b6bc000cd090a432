cimport cython

from services.gateway.wire.scanner.walks cimport produce

cdef Py_ssize_t LOOK_BYTES
cdef bytes _WORD


@cython.locals(
    left=Py_ssize_t, start=Py_ssize_t, piece=bytes, topic=produce.ProduceTopic, part=produce.ProducePartition,
)
cpdef tuple traces_in(object frame, produce.ProduceScan scan)
