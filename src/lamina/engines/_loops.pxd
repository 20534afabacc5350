# Types of loops.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython

cdef class State:
    cdef public int may

cdef class Lock:
    cdef public object acquire, release, is_mine
    cdef object __weakref__

cpdef must_wait()
@cython.locals(state=State)
cpdef begin_command()
@cython.locals(state=State)
cpdef has_changed()
cpdef bint is_at_once() except -1
@cython.locals(state=State, was=int)
cpdef int begin_at_once() except -1
cpdef end_at_once(int was)
