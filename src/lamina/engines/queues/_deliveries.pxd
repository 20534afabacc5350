# Types of deliveries.py for the compiled twin. Without this file the same source runs as plain Python.
from lamina.engines.queues cimport _message as kinds

cdef class Receiver:
    cdef public object push
    cdef public dict given, gets
    cdef object __weakref__

cdef class Deliveries:
    cdef public object engine, lock
    cdef public dict subscribers
    cpdef get(self, Receiver receiver, kinds.Queue queue)
    cpdef tuple acknowledge(self, Receiver receiver, kinds.Queue queue, bytes id)
    cpdef _give(self, Receiver receiver, bytes rid, kinds.Message message)
    cpdef was_sent(self, kinds.Queue queue)
