# Types of state.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython
from lamina.engines.queues cimport _message as kinds

cdef class State:
    cdef public dict queues, senders
    cdef public long long messages, records
    cdef public dict _ids
    cpdef apply_values(self, list values)
    cpdef put(self, kinds.Queue queue)
    cpdef remove(self, kinds.Queue queue)
    @cython.locals(queue=kinds.Queue, messages=list, each=kinds.Message, id=bytes)
    cpdef add(self, bytes rid, kinds.Message message)
    cpdef append(self, kinds.Queue queue, kinds.Message message)
    @cython.locals(queue=kinds.Queue, messages=list, head=kinds.Message)
    cpdef drop_head(self, bytes rid, bytes id)
    @cython.locals(queue=kinds.Queue, messages=list, each=kinds.Message, at=cython.Py_ssize_t)
    cpdef drop(self, bytes rid, bytes id)
