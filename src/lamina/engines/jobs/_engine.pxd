# Types of engine.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython
from lamina.engines.jobs cimport _core as typed

cdef class JobEngine:
    cdef public object log, folder, files, clock, workers, results, on_due, lock
    cdef public typed.State state
    cdef public long long evicted, checkpointed
    cdef public bint _is_careful
    cdef public list _pending
    cdef public long long _first, _known_due, _stuck_until, replayed
    cdef object __weakref__
    cdef long long _now(self) except? -1
    cdef _look_at_due(self)
    @cython.locals(pending=list, position="long long")
    cdef long long _append(self, bytes record) except? -1
    cdef long long _log(self, typed.Job job, bytes record, long long now=*) except? -1
    @cython.locals(position="long long")
    cdef long long _start(self, typed.Job job, long long now) except? -1
    cdef typed.Job _known(self, bytes id)
    cdef typed.Job _unprocessed(self, bytes id)
    cdef typed.Job _leased(self, bytes id)
    cdef _serve(self, typed.Queue queue)
    cdef _after_return(self, typed.Job job)
    @cython.locals(job=typed.Job)
    cdef _do_due(self, long long now, long long most)
    cdef _do(self, typed.Job job, long long now)
    cdef _push_or_undo(self)
