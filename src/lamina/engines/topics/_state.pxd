# Types of state.py for the compiled twin. Without this file the same source runs as plain Python.
cdef long long _MOST_COUNTED

cdef class Counts:
    cdef public long long added, read

cdef class State:
    cdef public object last_id, max_deleted, trimmed_to, let_go_to, deleted, watch
    cdef public long long added, length
    cdef public bint exists
    cpdef add(self, object id, long long count=*)
