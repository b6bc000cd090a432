cimport cython

from services.gateway.wire.scanner.walks cimport headers


cdef class LoopShare:
    cdef public object buffer
    cdef public list unflushed
    cdef public bint is_reading

    @cython.locals(stream=FrameStream)
    cpdef flush(self)


cdef class FrameStream:
    cdef object __weakref__
    cdef public bint _direct, _paused, _queued
    cdef public Py_ssize_t _expected, _fd, _filled, _least, _missing, _most
    cdef public object _gathered, _passage, _splitter, _transport
    cdef public bytes _rest
    cdef public list _pieces
    cdef public LoopShare _share

    @cython.locals(share=LoopShare, end=Py_ssize_t)
    cpdef buffer_updated(self, Py_ssize_t nbytes)

    @cython.locals(size=Py_ssize_t)
    cpdef _walk(self, object buffer, Py_ssize_t start, Py_ssize_t end)

    @cython.locals(pieces=list)
    cpdef _flush(self)

    cpdef _sent(self, object pieces)
