# Types of dispatch.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython
from lamina.server.resp cimport _session as sessions

@cython.locals(plain=tuple)
cpdef run(sessions.Session session, list args)
cpdef call(sessions.Session session, handler, list args)
