# Types of reserve.py for the compiled twin. Without this file the same source runs as plain Python.
cdef long long _AROUND

cdef class Reserve:
    cdef dict __dict__
    cdef object __weakref__
    cdef public bint is_held, is_short
    cdef public long long _above, _credit, _fresh
    cpdef bint takes(self, long long size) except -1
    cpdef bint fits(self, long long size) except -1
