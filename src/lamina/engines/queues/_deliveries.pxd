# Types of deliveries.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython
from lamina.engines.queues cimport _engine as engines
from lamina.engines.queues cimport _message as kinds

cdef class Receiver:
    cdef public object push
    cdef public dict given, gets
    cdef object __weakref__

cdef class Deliveries:
    cdef public engines.QueueEngine engine
    cdef public object lock, _deleted
    cdef public long long deleted_at, delivered, redelivered
    cdef public dict subscribers
    cpdef get(self, Receiver receiver, kinds.Queue queue)
    @cython.locals(engine=engines.QueueEngine, head=kinds.Message, position="long long")
    cpdef tuple acknowledge(self, Receiver receiver, kinds.Queue queue, bytes id)
    cpdef _give(self, Receiver receiver, kinds.Queue queue, kinds.Message message)
    @cython.locals(receiver=Receiver)
    cpdef was_sent(self, kinds.Queue queue)
