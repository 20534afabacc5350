# Types of client.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython
from lamina.engines cimport _loops as loops
from lamina.server cimport _turns as turning

cdef class Client:
    cdef public object door, answers, backlog, cancel, transport, held, _linger
    cdef public loops.Thread thread
    cdef public turning.Turns turns
    cdef public bytes _too_many
    cdef public list out, rests
    cdef public bytearray unread
    cdef public bint is_closing, has_ended, is_stopped, is_clogged, is_paused, is_in_line, is_tls, _is_leaving
    cdef public Py_ssize_t unsent, turn_bytes, most_unread
    cdef object __weakref__
    cpdef feed(self, bytes data)
    cpdef feed_end(self)
    cpdef run(self, command)
    cpdef gave_up(self)
    @cython.locals(done=Py_ssize_t, begun=double)
    cpdef work(self)
    cpdef bint _read(self) except -1
    cpdef _read_or_not(self)
    cpdef say(self, bytes reply, rest=*)
    cpdef tuple taken(self)
    cpdef bint is_done(self) except -1
