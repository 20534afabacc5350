# Types of topic.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython
from lamina.engines cimport _logged as logged
from lamina.engines cimport _loops as loops
from lamina.engines.topics cimport _state as states
from lamina.engines.topics cimport _tail as tails

cdef class Topic(logged.Logged):
    cdef dict __dict__
    cdef public states.State state
    cdef public tails.Tail tail
    cdef public states.Counts counts
    cdef public dict waiters
    cdef public object _log, _first_of_now
    cdef public long long _now_ms, _max_payload, removed_at
    cdef public bint was_used
    cpdef next_id(self, long long now_ns=*)
    @cython.locals(size="long long")
    cpdef add(self, object fields, object id=*)
    @cython.locals(size="long long")
    cpdef tuple add_many(self, object many)
    cdef long long _add(self, object id, object fields) except? -1
    cdef _has_grown(self)
    cpdef _freshen(self, long long now_ns=*)
