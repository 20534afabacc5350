# Types of memory.py for the compiled twin. Without this file the same source runs as plain Python.
from lamina.engines.queues cimport _engine as engines
from lamina.engines.queues cimport _message as kinds

cdef class MemoryMessages:
    cdef public engines.QueueEngine engine
    cpdef head(self, kinds.Queue queue)
    cpdef long long size(self, kinds.Queue queue)
    cpdef bint is_closed(self, kinds.Queue queue)
    cpdef long long put(self, kinds.Queue queue, kinds.Message message) except? -1
    cpdef long long drop_head(self, kinds.Queue queue) except? -1
