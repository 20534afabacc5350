# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of packing.py, which says what the functions mean; the two are held equal by tests."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

YEAR_1 = 62135596800
SECOND = 1_000_000_000

cdef enum:
    ID_SIZE = 16
    TIME_SIZE = 15
    MOST_OF_NUMBER = 10
    UTC = 0xFFFF  # -1, as Go writes it


def encode_job(
    bytes id not None,
    str name not None,
    uint64_t ttr,
    uint64_t ttl,
    int64_t priority,
    uint64_t max_attempts,
    uint64_t max_fails,
    bytes payload not None,
    object time,
    object created,
):
    cdef Py_ssize_t name_size, payload_size = PyBytes_GET_SIZE(payload)
    cdef const char *raw = PyUnicode_AsUTF8AndSize(name, &name_size)
    _check_id(id)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, _size_of_job(
        name_size, ttr, ttl, priority, max_attempts, max_fails, payload_size))
    cdef uint8_t *at = <uint8_t *> PyBytes_AS_STRING(out)
    at[0] = 1 if time is None else 2
    memcpy(at + 1, PyBytes_AS_STRING(id), ID_SIZE)
    at = _put_number(at + 1 + ID_SIZE, name_size)
    memcpy(at, raw, name_size)
    at = _put_number(at + name_size, ttr)
    at = _put_number(at, ttl)
    at = _put_number(at, _zigzag(priority))
    at = _put_number(at, max_attempts)
    at = _put_number(at, max_fails)
    at = _put_number(at, payload_size)
    memcpy(at, PyBytes_AS_STRING(payload), payload_size)
    at += payload_size
    if time is None:
        at = _put_time(at, 0, 0)
    else:
        at = _put_time(at, time // SECOND + YEAR_1, time % SECOND)
    _put_ns(at, created)
    return out


def encode_result(int kind, bytes id not None, bytes result not None):
    cdef Py_ssize_t size = PyBytes_GET_SIZE(result)
    _check_id(id)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, 1 + ID_SIZE + _size_of(size) + size)
    cdef uint8_t *at = <uint8_t *> PyBytes_AS_STRING(out)
    at[0] = kind
    memcpy(at + 1, PyBytes_AS_STRING(id), ID_SIZE)
    memcpy(_put_number(at + 1 + ID_SIZE, size), PyBytes_AS_STRING(result), size)
    return out


def encode_plain(int kind, bytes id not None):
    _check_id(id)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, 1 + ID_SIZE)
    cdef uint8_t *at = <uint8_t *> PyBytes_AS_STRING(out)
    at[0] = kind
    memcpy(at + 1, PyBytes_AS_STRING(id), ID_SIZE)
    return out


def encode_time(ns):
    cdef bytes out = PyBytes_FromStringAndSize(NULL, TIME_SIZE)
    _put_ns(<uint8_t *> PyBytes_AS_STRING(out), ns)
    return out


def uvarint(uint64_t number):
    cdef uint8_t out[MOST_OF_NUMBER]
    return PyBytes_FromStringAndSize(<char *> out, _put_number(out, number) - out)


cdef int _check_id(bytes id) except -1:
    if PyBytes_GET_SIZE(id) != ID_SIZE:
        raise ValueError("an id has 16 bytes")


cdef Py_ssize_t _size_of_job(
    uint64_t name, uint64_t ttr, uint64_t ttl, int64_t priority, uint64_t attempts, uint64_t fails, uint64_t payload
) noexcept:
    cdef Py_ssize_t numbers = _size_of(name) + _size_of(ttr) + _size_of(ttl) + _size_of(_zigzag(priority))
    numbers += _size_of(attempts) + _size_of(fails) + _size_of(payload)
    return 1 + ID_SIZE + numbers + <Py_ssize_t> (name + payload) + 2 * TIME_SIZE


cdef inline uint64_t _zigzag(int64_t number) noexcept:
    return (<uint64_t> number << 1) ^ <uint64_t> (number >> 63)


cdef inline Py_ssize_t _size_of(uint64_t number) noexcept:
    cdef Py_ssize_t size = 1
    while number >= 0x80:
        number >>= 7
        size += 1
    return size


cdef inline uint8_t *_put_number(uint8_t *at, uint64_t number) noexcept:
    while number >= 0x80:
        at[0] = <uint8_t> (number | 0x80)
        at += 1
        number >>= 7
    at[0] = <uint8_t> number
    return at + 1


cdef uint8_t *_put_ns(uint8_t *at, object ns) except NULL:
    cdef int64_t number
    try:
        number = ns
    except OverflowError:
        return _put_time(at, ns // SECOND + YEAR_1, ns % SECOND)
    return _put_time(at, number // 1_000_000_000 + 62135596800, <uint32_t> (number % 1_000_000_000))


cdef inline uint8_t *_put_time(uint8_t *at, int64_t seconds, uint32_t nanos) noexcept:
    """Version 1, seconds since the year 1, nanoseconds, zone."""
    cdef int byte
    at[0] = 1
    for byte in range(8):
        at[1 + byte] = <uint8_t> (<uint64_t> seconds >> (56 - 8 * byte))
    for byte in range(4):
        at[9 + byte] = <uint8_t> (nanos >> (24 - 8 * byte))
    at[13] = UTC >> 8
    at[14] = UTC & 0xFF
    return at + TIME_SIZE
