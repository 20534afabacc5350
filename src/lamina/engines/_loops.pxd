# Types of loops.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython

cdef class Thread:
    cdef public int may
    cpdef int begin_at_once(self) except -1
    cpdef end_at_once(self, int was)
    cpdef begin_command(self)

cdef dict _threads

@cython.locals(thread=Thread)
cpdef must_wait()
@cython.locals(thread=Thread)
cpdef has_changed()
@cython.locals(thread=Thread)
cpdef bint is_at_once() except -1
@cython.locals(thread=Thread)
cpdef wait_for(acquire)
