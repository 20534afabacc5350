# Types of door.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython
from lamina.server cimport _client as client
from lamina.server.resp cimport _runs as runs
from lamina.server.resp cimport _session as sessions
from lamina.server.resp cimport _waiting as waits

cpdef runs.Added _added(sessions.Session session, runs.Run run)

cdef class Connection(client.Client):
    cdef public sessions.House house
    cdef public sessions.Session session
    cdef public object parser, waiter, stream
    cdef public waits.Waiting waiting
    cdef public dict needs
    cpdef feed(self, bytes data)
    cpdef run(self, command)
    @cython.locals(session=sessions.Session)
    cpdef _run_many(self, runs.Run run)
    @cython.locals(session=sessions.Session, done=Py_ssize_t)
    cpdef _have_added(self, runs.Run run, added)
    @cython.locals(session=sessions.Session, done=Py_ssize_t)
    cpdef _run_writes(self, list commands)
    @cython.locals(session=sessions.Session)
    cpdef _run_one(self, list command)
    @cython.locals(session=sessions.Session, marks=list)
    cpdef answer(self, bytes reply)
