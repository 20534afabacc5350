# Types of door.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython
from lamina.engines cimport _loops as loops
from lamina.server cimport _client as client
from lamina.server.resp cimport _runs as runs_types
from lamina.server.resp cimport _session as sessions

cdef class Connection(client.Client):
    cdef public sessions.House house
    cdef public sessions.Session session
    cdef public object parser, waiter, stream
    cdef public double heard_at
    cdef public dict needs
    cpdef feed(self, bytes data)
    cpdef run(self, command)
    cpdef work(self)
    @cython.locals(session=sessions.Session)
    cpdef _run_many(self, runs_types.Run run)
    @cython.locals(session=sessions.Session, done=Py_ssize_t)
    cpdef _have_added(self, runs_types.Run run, added)
    @cython.locals(session=sessions.Session, done=Py_ssize_t)
    cpdef _run_writes(self, list commands)
    @cython.locals(session=sessions.Session)
    cpdef _run_one(self, list command)
    @cython.locals(session=sessions.Session, marks=list)
    cpdef answer(self, bytes reply)
