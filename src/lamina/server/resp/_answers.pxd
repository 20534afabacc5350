# Types of answers.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython
from lamina.server cimport _client as client

cdef class Answers:
    cdef object __weakref__
    cdef object _loop, _lane, _late
    cdef public object _held
    cdef dict _speaking
    cdef object _rebuilds
    cdef public dict _in_late
    cdef bint _is_scheduled, _has_synced
    cdef double _sync_s, _syncing_s, _heard_at, _begun
    cdef Py_ssize_t _crowd
    cdef long long _doubts, _doubts_before
    cpdef flush_soon(self, connection=*)
    @cython.locals(dirty=dict, speaking=dict, needs=dict, unsafe=set, connection=client.Client)
    cpdef _flush(self)
    cdef bint _is_safe(self, engine) except -1
    cdef bint _write(self, engine) except -1
    cdef _sync_here(self, log)
    cdef _notice_rebuilds(self, engines)
    cpdef _send(self, client.Client connection, list out)

cdef bint _need(dict needs, set unsafe) except -1
