# Types of waiting.py for the compiled twin. Without this file the same source runs as plain Python.
cdef class Waiting:
    cdef object __weakref__
    cdef dict __dict__
    cdef dict _idle, _changed
    cpdef changed(self, bytes key)
