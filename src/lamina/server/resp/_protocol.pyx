# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of protocol.py, which says what the rules and the fields mean; the two are held equal by tests.

Steps move a cursor over the bytes: True if a step was made, False if what is there is not whole or is wrong. None looks
behind ``end``.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t
from libc.string cimport memchr

from lamina.server.resp.inline import split

MAX_BULK = 512 * 1024 * 1024
MAX_ARGS = 1024 * 1024
MAX_INLINE = 64 * 1024

cdef enum:
    UNKNOWN = -1
    LONGEST_NUMBER = 19


cdef class Parser:
    cdef readonly object error
    cdef Py_ssize_t _max_bulk, _max_args, _max_inline
    cdef list _args
    cdef Py_ssize_t _missing, _size, _taken, _needed
    cdef bytearray _held  # None: nothing
    cdef uint8_t _line_end

    def __init__(self, Py_ssize_t max_bulk=MAX_BULK, Py_ssize_t max_args=MAX_ARGS, Py_ssize_t max_inline=MAX_INLINE):
        self._max_bulk = max_bulk
        self._max_args = max_args
        self._max_inline = max_inline
        self._size = UNKNOWN

    @property
    def pending(self):
        return self._taken + (PyByteArray_GET_SIZE(self._held) if self._held is not None else 0)

    def feed(self, bytes data not None):
        cdef list commands = []
        cdef bytearray held
        if self.error is not None:
            return commands
        if self._held is None:
            self._read_all(<const uint8_t *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), commands)
            return commands
        self._held += data
        if self._is_worth_a_look(data):
            held = self._held
            self._held = None
            self._read_all(<const uint8_t *> PyByteArray_AS_STRING(held), PyByteArray_GET_SIZE(held), commands)
        return commands

    cdef bint _is_worth_a_look(self, bytes news):
        cdef Py_ssize_t held = PyByteArray_GET_SIZE(self._held)
        if self._needed:
            return held >= self._needed
        return memchr(PyBytes_AS_STRING(news), self._line_end, PyBytes_GET_SIZE(news)) != NULL or held > self._max_inline

    cdef int _read_all(self, const uint8_t *at, Py_ssize_t size, list commands) except -1:
        cdef const uint8_t *end = at + size
        cdef bint goes_on = True
        while goes_on and at < end:
            if self._missing:
                goes_on = self._read_arguments(&at, end, commands)
            elif at[0] == c"*":
                goes_on = self._read_count(&at, end)
            else:
                goes_on = self._read_inline(&at, end, commands)
        if at < end and self.error is None:
            self._held = bytearray(PyBytes_FromStringAndSize(<const char *> at, end - at))
        return 0

    # -- steps ---------------------------------------------------------------------------------------------------------

    cdef bint _read_count(self, const uint8_t **cursor, const uint8_t *end) except -1:
        cdef const uint8_t *at = cursor[0]
        cdef const uint8_t *line_end = self._header_end(at, end, b"too big mbulk count string")
        cdef int64_t count
        if line_end == NULL:
            return False
        if not _read_number(at + 1, line_end, &count) or count > self._max_args:
            return self._fail(b"invalid multibulk length")
        if count > 0:
            self._args = []
            self._missing = count
            self._taken = line_end + 2 - at
        cursor[0] = line_end + 2
        return True

    cdef bint _read_arguments(self, const uint8_t **cursor, const uint8_t *end, list commands) except -1:
        """All that are there: in one loop, since nearly all time is spent in it."""
        cdef const uint8_t *at
        cdef const uint8_t *line_end
        cdef int64_t size
        cdef list args = self._args
        while True:
            at = cursor[0]
            if self._size == UNKNOWN:
                if at == end:
                    return True
                line_end = self._header_end(at, end, b"too big bulk count string")
                if line_end == NULL:
                    return False
                if at[0] != c"$":
                    return self._fail(b"expected '$', got '%c'" % (c" " if at[0] == c"\r" or at[0] == c"\n" else at[0]))
                if not _read_number(at + 1, line_end, &size) or not 0 <= size <= self._max_bulk:
                    return self._fail(b"invalid bulk length")
                self._size = size
                self._taken += line_end + 2 - at
                at = cursor[0] = line_end + 2
            if end - at < self._size + 2:
                self._needed = self._size + 2
                return False
            args.append(PyBytes_FromStringAndSize(<const char *> at, self._size))
            cursor[0] = at + self._size + 2
            self._taken += self._size + 2
            self._size = UNKNOWN
            self._missing -= 1
            if not self._missing:
                commands.append(args)
                self._args = None
                self._taken = 0
                return True

    cdef bint _read_inline(self, const uint8_t **cursor, const uint8_t *end, list commands) except -1:
        cdef const uint8_t *at = cursor[0]
        cdef const uint8_t *line_end = self._find(at, end, c"\n", b"too big inline request")
        cdef Py_ssize_t size
        if line_end == NULL:
            return False
        size = line_end - at
        if size and at[size - 1] == c"\r":
            size -= 1
        words = split(PyBytes_FromStringAndSize(<const char *> at, size))
        if words is None:
            return self._fail(b"unbalanced quotes in request")
        if words:
            commands.append(words)
        cursor[0] = line_end + 1
        return True

    # -- lines ---------------------------------------------------------------------------------------------------------

    cdef inline const uint8_t *_header_end(self, const uint8_t *at, const uint8_t *end, bytes problem) noexcept:
        cdef const uint8_t *line_end = self._find(at, end, c"\r", problem)
        if line_end != NULL and end - line_end < 2:
            self._needed = line_end + 2 - at
            return NULL
        return line_end

    cdef inline const uint8_t *_find(
        self, const uint8_t *at, const uint8_t *end, uint8_t line_end, bytes problem
    ) noexcept:
        cdef const uint8_t *limit = end if end - at <= self._max_inline else at + self._max_inline + 1
        cdef const uint8_t *place = at
        while place < limit and place[0] != line_end and place[0] != 0:
            place += 1
        if place < limit and place[0] == line_end:
            return place
        if end - at > self._max_inline:
            self._fail(problem)
        self._needed = self._max_inline + 1 if place < limit else 0
        self._line_end = line_end
        return NULL

    cdef bint _fail(self, bytes problem) noexcept:
        self.error = problem
        self._args = None
        self._taken = 0
        return False


cdef bint _read_number(const uint8_t *at, const uint8_t *end, int64_t *number) noexcept:
    cdef bint is_negative = at < end and at[0] == c"-"
    cdef uint64_t value = 0
    if end - at == 1 and at[0] == c"0":
        number[0] = 0
        return True
    at += is_negative
    if at == end or at[0] == c"0" or end - at > LONGEST_NUMBER:
        return False
    while at < end:
        if not c"0" <= at[0] <= c"9":
            return False
        value = value * 10 + (at[0] - c"0")
        at += 1
    if value > <uint64_t> INT64_MAX + is_negative:
        return False
    number[0] = <int64_t> (0 - value if is_negative else value)
    return True
