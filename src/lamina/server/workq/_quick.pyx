# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of quick.py, which says what the functions mean; the two are held equal by tests.

Readers of a line move a cursor over it. Bytes objects have a zero behind their end, which no rule takes for its own:
what compares byte by byte stops there.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeASCII
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from lamina.engines.jobs cimport _job as typed

from lamina.server.workq.commands import Add, Complete, Lease
from lamina.server.workq.fields import DAY_MS, MAX_NAME, MAX_PAYLOAD, MAX_TTL, MAX_TTR

cdef enum:
    ID_SIZE = 16
    SHOWN_ID = 36

cdef int64_t MOST_WAIT = DAY_MS
cdef int64_t MOST_TTR = MAX_TTR
cdef int64_t MOST_TTL = MAX_TTL
cdef int64_t MOST_PAYLOAD = MAX_PAYLOAD
cdef Py_ssize_t LONGEST_NAME = MAX_NAME
cdef object new = tuple.__new__  # of a named tuple: its own __new__ is slower
cdef const char *DIGITS = "0123456789abcdef"
cdef uint8_t[256] IS_OF_NAME
cdef signed char[256] DIGIT  # of a small hexadecimal number; -1

cdef int _number
for _number in range(256):
    IS_OF_NAME[_number] = chr(_number).isascii() and (chr(_number).isalnum() or chr(_number) in "_.-")
    DIGIT[_number] = "0123456789abcdef".find(chr(_number))


def take(bytes data not None, Py_ssize_t at, list commands not None):
    cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef const uint8_t *end = start + PyBytes_GET_SIZE(data)
    cdef const uint8_t *cursor = start + at
    cdef object command
    while cursor < end:
        at = cursor - start
        if cursor[0] == c"a":
            command = _add(&cursor, end)
        elif cursor[0] == c"l":
            command = _lease(&cursor)
        elif cursor[0] == c"c":
            command = _complete(&cursor, end)
        else:
            return at
        if command is None:
            return at
        commands.append(command)
    return cursor - start


cdef object _add(const uint8_t **cursor, const uint8_t *end):
    cdef uint8_t[ID_SIZE] id
    cdef const uint8_t *at = cursor[0]
    cdef int64_t ttr, ttl, size, priority = 0
    cdef bint is_negative
    if end - at < 4 or memcmp(at, b"add ", 4):
        return None
    at += 4
    if not _read_id(&at, id) or at[0] != c" ":
        return None
    at += 1
    cdef const uint8_t *name = at
    cdef Py_ssize_t name_size = _read_name(&at)
    if name_size == 0 or at[0] != c" ":
        return None
    at += 1
    ttr = _read_number(&at, 8)
    if not 0 < ttr <= MOST_TTR or at[0] != c" ":
        return None
    at += 1
    ttl = _read_number(&at, 10)
    if not 0 < ttl <= MOST_TTL or at[0] != c" ":
        return None
    at += 1
    size = _read_number(&at, 7)
    if not 0 <= size <= MOST_PAYLOAD:
        return None
    if at[0] == c" ":
        if end - at < 11 or memcmp(at, b" -priority=", 11):
            return None
        at += 11
        is_negative = at[0] == c"-"
        at += is_negative
        priority = _read_number(&at, 9)
        if priority < 0:
            return None
        if is_negative:
            priority = -priority
    if not _read_line_end(&at) or end - at < size + 2:
        return None
    payload = PyBytes_FromStringAndSize(<const char *> at, size)
    at += size
    if not _read_line_end(&at):
        return None
    cursor[0] = at
    raw_id = PyBytes_FromStringAndSize(<char *> id, ID_SIZE)
    text = PyUnicode_DecodeASCII(<const char *> name, name_size, NULL)
    return new(Add, (raw_id, text, ttr, ttl, payload, priority, 0, 0, None, "", 0))


cdef object _lease(const uint8_t **cursor):
    cdef const uint8_t *at = cursor[0]
    cdef const char *word = "lease "
    while word[0]:
        if at[0] != <uint8_t> word[0]:
            return None
        word += 1
        at += 1
    cdef const uint8_t *name = at
    cdef Py_ssize_t name_size = _read_name(&at)
    if name_size == 0 or at[0] != c" ":
        return None
    at += 1
    cdef int64_t wait = _read_number(&at, 8)
    if not 0 <= wait <= MOST_WAIT or not _read_line_end(&at):
        return None
    cursor[0] = at
    return new(Lease, ((PyUnicode_DecodeASCII(<const char *> name, name_size, NULL),), wait, 1, False))


cdef object _complete(const uint8_t **cursor, const uint8_t *end):
    cdef uint8_t[ID_SIZE] id
    cdef const uint8_t *at = cursor[0]
    if end - at < 9 or memcmp(at, b"complete ", 9):
        return None
    at += 9
    if not _read_id(&at, id) or at[0] != c" ":
        return None
    at += 1
    cdef int64_t size = _read_number(&at, 7)
    if not 0 <= size <= MOST_PAYLOAD or not _read_line_end(&at) or end - at < size + 2:
        return None
    result = PyBytes_FromStringAndSize(<const char *> at, size)
    at += size
    if not _read_line_end(&at):
        return None
    cursor[0] = at
    return new(Complete, (PyBytes_FromStringAndSize(<char *> id, ID_SIZE), result))


# -- what a line is made of ----------------------------------------------------------------------------------------


cdef bint _read_id(const uint8_t **cursor, uint8_t *id) noexcept:
    """8-4-4-4-12 small hexadecimal digits of a UUID of version 4 and the usual variant."""
    cdef const uint8_t *at = cursor[0]
    cdef int number, high, low
    for number in range(ID_SIZE):
        if number == 4 or number == 6 or number == 8 or number == 10:
            if at[0] != c"-":
                return False
            at += 1
        high = DIGIT[at[0]]
        if high < 0:
            return False
        low = DIGIT[at[1]]
        if low < 0:
            return False
        id[number] = high << 4 | low
        at += 2
    cursor[0] = at
    return id[6] >> 4 == 4 and id[8] >> 6 == 2


cdef Py_ssize_t _read_name(const uint8_t **cursor) noexcept:
    """Its size; 0 if it is none."""
    cdef const uint8_t *at = cursor[0]
    while IS_OF_NAME[at[0]]:
        at += 1
    cdef Py_ssize_t size = at - cursor[0]
    cursor[0] = at
    return size if size <= LONGEST_NAME else 0


cdef int64_t _read_number(const uint8_t **cursor, int most) noexcept:
    """A number of so many digits; -1 if there is none. A digit more is left for the next rule, which stops there."""
    cdef const uint8_t *at = cursor[0]
    cdef int64_t number = 0
    while most and c"0" <= at[0] <= c"9":
        number = number * 10 + (at[0] - c"0")
        at += 1
        most -= 1
    if at == cursor[0]:
        return -1
    cursor[0] = at
    return number


cdef bint _read_line_end(const uint8_t **cursor) noexcept:
    if cursor[0][0] != c"\r" or cursor[0][1] != c"\n":
        return False
    cursor[0] += 2
    return True


# -- the answer to a lease -----------------------------------------------------------------------------------------


def leased(jobs):
    cdef typed.Job job
    cdef Py_ssize_t size, name_size
    if len(jobs) != 1:
        return b"+OK %d\r\n" % len(jobs) + b"".join([leased((job,))[7:] for job in jobs])
    job = jobs[0]
    cdef bytes payload = job.payload
    cdef const char *name = PyUnicode_AsUTF8AndSize(job.queue.name, &name_size)
    cdef Py_ssize_t payload_size = PyBytes_GET_SIZE(payload)
    size = 7 + SHOWN_ID + 1 + name_size + 1 + _digits(job.ttr) + 1 + _digits(payload_size) + 2 + payload_size + 2
    cdef bytes out = PyBytes_FromStringAndSize(NULL, size)
    cdef char *at = PyBytes_AS_STRING(out)
    at = _put(at, b"+OK 1\r\n", 7)
    at = _put_id(at, <const uint8_t *> PyBytes_AS_STRING(job.id))
    at = _put(at, b" ", 1)
    at = _put(at, name, name_size)
    at = _put(at, b" ", 1)
    at = _put_number(at, job.ttr)
    at = _put(at, b" ", 1)
    at = _put_number(at, payload_size)
    at = _put(at, b"\r\n", 2)
    at = _put(at, PyBytes_AS_STRING(payload), payload_size)
    _put(at, b"\r\n", 2)
    return out


def show_id(bytes id not None):
    cdef char[SHOWN_ID] out
    if PyBytes_GET_SIZE(id) != ID_SIZE:
        raise ValueError("an id has 16 bytes")
    _put_id(out, <const uint8_t *> PyBytes_AS_STRING(id))
    return PyUnicode_DecodeASCII(out, SHOWN_ID, NULL)


cdef inline char *_put(char *at, const char *data, Py_ssize_t size) noexcept:
    memcpy(at, data, size)
    return at + size


cdef char *_put_id(char *at, const uint8_t *id) noexcept:
    cdef int number
    for number in range(ID_SIZE):
        if number == 4 or number == 6 or number == 8 or number == 10:
            at[0] = c"-"
            at += 1
        at[0] = DIGITS[id[number] >> 4]
        at[1] = DIGITS[id[number] & 15]
        at += 2
    return at


cdef inline int _digits(int64_t number) noexcept:
    cdef int count = 1
    while number >= 10:
        number //= 10
        count += 1
    return count


cdef char *_put_number(char *at, int64_t number) noexcept:
    cdef int place, count = _digits(number)
    for place in range(count - 1, -1, -1):
        at[place] = <char> (c"0" + number % 10)
        number //= 10
    return at + count
