# Types of codec.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython

cdef class Fields:
    cdef bytes data
    cdef public Py_ssize_t at
    @cython.locals(data=bytes, at=Py_ssize_t, number="unsigned long long", byte="unsigned long long", shift=int)
    cdef unsigned long long number(self) except? 0
    @cython.locals(number="unsigned long long")
    cdef unsigned long long up_to(self, unsigned long long most) except? 0
    @cython.locals(end=Py_ssize_t)
    cdef bytes text(self, unsigned long long size)

@cython.locals(fields=Fields, zigzag="long long")
cpdef tuple decode_job(bytes payload)

@cython.locals(fields=Fields)
cpdef bytes decode_result(bytes payload)

@cython.locals(fields=Fields)
cpdef tuple decode_note(bytes payload)

cpdef object read_time(bytes data, Py_ssize_t at)

@cython.locals(number="unsigned long long", place=Py_ssize_t)
cdef unsigned long long _big_endian(bytes data, Py_ssize_t at, Py_ssize_t size)
