# cython: language_level=3
"""The compiled twin of lock.py.

Who has the lock is a number that is looked at and set while the interpreter's own lock is held. The system's lock is
for those who have to wait: the first of them takes it in the name of who has ours, whose release then lets one go on.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport (
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_get_thread_ident,
    PyThread_release_lock,
    PyThread_type_lock,
)

from time import monotonic

from lamina.engines import loops


cdef extern from "pythread.h":
    ctypedef long long PY_TIMEOUT_T
    ctypedef enum PyLockStatus:
        PY_LOCK_FAILURE
        PY_LOCK_ACQUIRED
        PY_LOCK_INTR
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock lock, PY_TIMEOUT_T microseconds, int intr_flag) nogil


cdef class Lock:
    """As in lock.py."""

    cdef PyThread_type_lock _waited_for
    cdef unsigned long _owner
    cdef int _times, _waiting
    cdef bint _is_waited_for  # the system's lock is taken, and the owner's last release lets it go
    cdef object __weakref__

    def __cinit__(self):
        self._waited_for = PyThread_allocate_lock()
        if self._waited_for is NULL:
            raise MemoryError

    def __dealloc__(self):
        if self._waited_for is not NULL:
            if self._is_waited_for:
                PyThread_release_lock(self._waited_for)
            PyThread_free_lock(self._waited_for)

    def acquire(self, bint blocking=True, double timeout=-1):
        return self._take() or self._wait(timeout if blocking else 0)

    def release(self):
        self._let_go()

    def is_mine(self):
        return self._times > 0 and self._owner == PyThread_get_thread_ident()

    def __enter__(self):
        if not self._take():
            loops.wait_for(self._wait)

    def __exit__(self, kind, problem, trace):
        self._let_go()

    cdef bint _take(self):
        cdef unsigned long me = PyThread_get_thread_ident()
        if self._times:
            if self._owner != me:
                return False
        elif self._waiting:
            return False
        else:
            self._owner = me
        self._times += 1
        return True

    cdef int _let_go(self) except -1:
        if not self._times or self._owner != PyThread_get_thread_ident():
            raise RuntimeError("cannot release a lock that this thread does not have")
        self._times -= 1
        if not self._times and self._is_waited_for:
            self._is_waited_for = False
            PyThread_release_lock(self._waited_for)
        return 0

    cpdef bint _wait(self, double seconds) except -1:
        """Take it within so many seconds, below 0: however long it takes."""
        cdef PyLockStatus status
        cdef PY_TIMEOUT_T microseconds = -1
        cdef double until = 0
        if self._take():  # released since
            return True
        if not self._is_waited_for and not self._waiting:
            # In the name of its owner, who cannot release it meanwhile: the interpreter's lock is held.
            self._is_waited_for = PyThread_acquire_lock(self._waited_for, 0) != 0
        if seconds > 0:
            until = monotonic() + seconds
        self._waiting += 1
        try:
            while True:
                if seconds >= 0:
                    microseconds = <PY_TIMEOUT_T>(max(until - monotonic(), 0) * 1e6) if until else 0
                with nogil:
                    status = PyThread_acquire_lock_timed(self._waited_for, microseconds, 1)
                if status != PY_LOCK_INTR:
                    break
                PyErr_CheckSignals()
        finally:
            self._waiting -= 1
        if status != PY_LOCK_ACQUIRED:
            return False
        self._owner, self._times, self._is_waited_for = PyThread_get_thread_ident(), 1, True
        return True
