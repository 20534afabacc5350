# Types of logged.py for the compiled twin. Without this file the same source runs as plain Python.
from lamina.engines cimport _journal as journals
from lamina.engines cimport _loops as loops
from lamina.log cimport _reserve as reserves

cpdef check_room(reserves.Reserve reserve, long long size)

cdef class Logged:
    cdef public object log, clock, lock, refusal, unready
    cdef public reserves.Reserve reserve
    cdef public long rebuilds
    cdef public journals.Journal journal
    cdef object __weakref__
    cpdef long long _append(self, bytes record, bytes before=*) except? -1
    cdef long long _put(self, bytes record, bytes before=*) except? -1
