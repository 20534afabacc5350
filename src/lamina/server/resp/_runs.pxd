# Types of runs.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython
from lamina.server.resp cimport _session as sessions

cdef class Run:
    cdef public bytes key
    cdef public list commands

cdef class Writes:
    cdef public list commands

cdef class Added:
    cdef public object topic
    cdef public list ids, positions
    cpdef bytes answer(self)

@cython.locals(found=list, run=Run, writes=Writes, args=list, words=Py_ssize_t)
cpdef list grouped(list commands)

@cython.locals(args=list)
cpdef Added add(sessions.Session session, Run run)
