# Types of tail.py for the compiled twin. Without this file the same source runs as plain Python.
cdef class Tail:
    cdef public object first_id
    cdef public Py_ssize_t most_bytes, bytes
    cdef list _ids, _positions, _payloads
    cpdef add(self, object id, long long position, bytes payload)
