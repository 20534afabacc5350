# Types of engine.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython
from lamina.engines cimport _logged as logged
from lamina.engines.queues cimport _message as kinds
from lamina.engines.queues cimport _state as states

cdef class QueueEngine(logged.Logged):
    cdef dict __dict__
    cdef public states.State state
    cdef public object messages, keeper, options, files, restored
    cdef public long long quota, expired, sent, sent_bytes, acknowledged, waited
    cdef public list waits
    cdef public list _drawn
    cpdef bytes new_id(self)
    cpdef kinds.Queue _current(self, kinds.Queue queue)
    cpdef kinds.Queue recipient(self, rid, held)
    cpdef kinds.Queue sender(self, sid, held)
    @cython.locals(size="long long", position="long long", id=bytes)
    cpdef tuple send(self, kinds.Queue queue, bytes body, bytes flags=*, long long ttl=*)
    @cython.locals(message=kinds.Message)
    cpdef head_now(self, kinds.Queue queue)
    @cython.locals(message=kinds.Message, waited="long long")
    cpdef acknowledge(self, kinds.Queue queue, bytes id)
    cpdef position_of(self, kinds.Queue queue)
    cpdef long long _ttl(self, kinds.Queue queue)
