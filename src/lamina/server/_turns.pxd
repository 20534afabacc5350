# Types of turns.py for the compiled twin. Without this file the same source runs as plain Python.
cdef class Turns:
    cdef object _loop, _line
    cdef bint _is_scheduled
    cdef public double spent
    cpdef wait(self, client)
    cpdef come(self, client)
