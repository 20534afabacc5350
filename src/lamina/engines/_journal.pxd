# Types of journal.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython

cdef class Journal:
    cdef public object log, clock
    cdef public list pending
    cdef public long long first, newest, _free
    cdef public bint is_careful
    @cython.locals(pending=list, position="long long")
    cpdef long long append(self, bytes record, bytes before=*) except? -1
    @cython.locals(pending=list)
    cpdef push(self)
    cpdef bint is_old(self, long long now_ns)
