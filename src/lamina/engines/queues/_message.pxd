# Types of message.py for the compiled twin. Without this file the same source runs as plain Python.
cdef class Message:
    cdef public bytes id, flags, body
    cdef public long long ts, ttl
    cpdef bint has_expired(self, long long now, long long ttl)

cdef class Queue:
    cdef public bytes rid, rkey, sid, skey, given
    cdef public bint is_off, is_worn
    cdef public long long created_day, ttl, size
    cdef public list messages
