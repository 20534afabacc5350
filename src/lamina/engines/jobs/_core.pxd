# Types of core.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython
from lamina.engines.jobs cimport _job as typed

cdef class State:
    cdef public dict jobs
    cdef public dict queues
    cdef public typed.Agenda agenda
    cdef public long long resumes_after, ahead
    cdef public tuple _traits
    cdef public bint is_fenced
    cpdef long long expiry(self, typed.Job job)
    cdef _change(self, long long position, typed.Job job, int kind, bytes result)
    @cython.locals(kind=int)
    cpdef apply(self, long long position, bytes payload)
    @cython.locals(number=Py_ssize_t, start=Py_ssize_t)
    cpdef apply_batch(self, bytes data, const long long[:] times, const long long[:] offsets, const long long[:] lengths, long long after)
    @cython.locals(old=typed.Job, job=typed.Job)
    cdef _apply_job(self, long long position, bytes payload)
    @cython.locals(job=typed.Job)
    cdef _apply_note(self, long long position, bytes payload)
    @cython.locals(job=typed.Job)
    cpdef typed.Job add(self, long long position, bytes id, str name, long long ttr, long long ttl, long long priority, long long max_attempts, long long max_fails, bytes payload, object time, object created)
    cpdef start(self, long long position, typed.Job job)
    cdef _compare_with_workq(self, typed.Job job)
    cpdef timeout(self, long long position, typed.Job job)
    cpdef complete(self, long long position, typed.Job job, bytes result)
    cpdef fail(self, long long position, typed.Job job, bytes result)
    cdef _finish(self, long long position, typed.Job job, bytes result, int at)
    cpdef remove(self, typed.Job job)
    cpdef typed.Queue queue(self, str name)
    @cython.locals(job=typed.Job)
    cpdef long long next_due(self)
    cdef _wait_again(self, long long position, typed.Job job, long long delay)
    @cython.locals(lists=list)
    cdef _move(self, long long position, typed.Job job, int at)
    cdef long long _due(self, typed.Job job)
    cdef _forget_unique(self, typed.Job job)
