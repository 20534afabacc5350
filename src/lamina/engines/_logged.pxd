# Types of logged.py for the compiled twin. Without this file the same source runs as plain Python.
from lamina.engines cimport _journal as journals
from lamina.engines cimport _loops as loops

cdef class Logged:
    cdef public object log, clock, lock, reserve, refusal, unready
    cdef public long rebuilds
    cdef public journals.Journal journal
    cdef object __weakref__
    cpdef long long _append(self, bytes record, bytes before=*) except? -1
    cdef long long _put(self, bytes record, bytes before=*) except? -1
