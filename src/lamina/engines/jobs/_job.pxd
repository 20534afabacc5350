# Types of job.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython

cdef class JobList

cdef class Counts:
    cdef public long long added, leased, completed, again, failed, timed_out, dead, waited

cdef class Queue:
    cdef public str name
    cdef public bint is_paused
    cdef public list lists
    cdef public dict uniques
    cdef readonly JobList ready
    cdef public Counts counts

cdef class Job:
    cdef public bytes id
    cdef public Queue queue
    cdef public bytes payload
    cdef public bytes result
    cdef public object time
    cdef public str unique
    cdef public long long ttr, ttl, priority, backoff
    cdef public long long max_attempts, max_fails, attempts, fails, given_back
    cdef public int state, at
    cdef public int beyond
    cdef public long long created, order, added, changed, ready_at, lease_until, expires, due, key
    cdef public Py_ssize_t slot
    cpdef bint comes_before(self, Job other)

cdef class JobList:
    cdef public list chunks
    cdef public Py_ssize_t size
    @cython.locals(chunks=list, chunk=list, number=Py_ssize_t)
    cpdef add(self, Job job)
    cpdef Job first(self)
    @cython.locals(chunks=list, chunk=list, number=Py_ssize_t)
    cpdef remove(self, Job job)
    @cython.locals(chunks=list, low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cdef Py_ssize_t _find(self, Job job)

cdef class Agenda:
    cdef public list heap
    cpdef put(self, Job job, long long due)
    @cython.locals(heap=list, job=Job)
    cpdef Job first(self)
    @cython.locals(heap=list, slot=Py_ssize_t, last=Job)
    cpdef take(self, Job job)
    @cython.locals(heap=list, up=Py_ssize_t, other=Job)
    cdef _rise(self, Job job, Py_ssize_t slot)
    @cython.locals(heap=list, size=Py_ssize_t, down=Py_ssize_t, other=Job, right=Job)
    cdef _sink(self, Job job, Py_ssize_t slot)
