# Types of engine.py for the compiled twin. Without this file the same source runs as plain Python.
cimport cython
from lamina.engines.jobs cimport _core as machine
from lamina.engines.jobs cimport _job as typed
from lamina.engines cimport _logged as logged

cdef class JobEngine(logged.Logged):
    cdef public object folder, files, workers, results, on_due
    cdef public machine.State state
    cdef public long long evicted, checkpointed, replayed, ahead
    cdef public long long _known_due, _stuck_until
    cdef public dict counts
    cdef public list waits
    cdef long long _now(self) except? -1
    cdef _look_at_due(self)
    cdef long long _next_due(self)
    cdef long long _log(self, typed.Job job, int kind, bytes result=*) except? -1
    cdef long long _note(self, typed.Job job, int kind, long long number=*, bytes text=*) except? -1
    cdef typed.Counts _counts(self, typed.Queue queue)
    @cython.locals(position="long long", waited="long long", counts=typed.Counts)
    cdef long long _start(self, typed.Job job) except? -1
    @cython.locals(state=machine.State, queue=typed.Queue, job=typed.Job)
    cdef tuple _hand_out(self, object names, long long most)
    cdef typed.Job _known(self, bytes id)
    cdef typed.Job _unprocessed(self, bytes id)
    cdef typed.Job _leased(self, bytes id)
    cdef _serve(self, typed.Queue queue)
    cdef _serve_all(self)
    cdef _after_return(self, typed.Job job)
    @cython.locals(job=typed.Job)
    cdef _do_due(self, long long now, long long most)
    cdef _do(self, typed.Job job, long long now)
