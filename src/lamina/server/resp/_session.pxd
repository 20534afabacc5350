# Types of session.py for the compiled twin. Without this file the same source runs as plain Python.
cdef class House:
    cdef public object topics, clock, settings, gate, changed, has_due, why, queues, store, queue_password, dump, expect_all, stops
    cdef public tuple shown
    cdef public dict sessions, taken
    cdef public long long started_ns, commands, reads_on, connections, _next_id

cdef class Session:
    cdef object __weakref__
    cdef public House house
    cdef public object topics, hang_up, queue, push, receiver, user, stranger
    cdef public long long id, came_ns, queued_bytes
    cdef public double heard_at
    cdef public bytes address, local_address, last_command, name, library_name, library_version
    cdef public bint must_close, is_waiting, asks_for_new, is_known, is_free, says_nothing, is_no_evict, is_no_touch, is_spoiled, is_in_exec
    cdef public list marks, behind
    cdef public dict seen, watched, held
    cdef public int version, database, skip_next
    cdef public Py_ssize_t most_seen
    cpdef start_over(self)
    cpdef forget_transaction(self)
    cpdef become(self, user)
    cpdef rest_on(self, engine, long long position)
