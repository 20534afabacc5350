# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of packing.py, which says what the functions promise; tests hold the two equal."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from lamina.engines.store._entry cimport BEGIN, BEGIN_SIZE, ENTRY_SIZE, PUT, STORAGE_SIZE, big, put_big


cdef uint64_t MOST = 0xFFFFFFFFFFFFFFFF


cdef inline uint8_t *put_entry(uint8_t *to, uint64_t storage, uint64_t major, uint64_t minor, bytes key, bytes value):
    cdef Py_ssize_t key_size = PyBytes_GET_SIZE(key), value_size = PyBytes_GET_SIZE(value)
    put_big(to, ENTRY_SIZE + key_size + value_size, 4)
    to[4] = PUT
    put_big(to + 5, storage, 8)
    put_big(to + 13, major, 8)
    put_big(to + 21, minor, 8)
    put_big(to + 29, key_size, 4)
    to += 4 + ENTRY_SIZE
    memcpy(to, PyBytes_AS_STRING(key), key_size)
    memcpy(to + key_size, PyBytes_AS_STRING(value), value_size)
    return to + key_size + value_size


cdef uint8_t *more(bytearray data, Py_ssize_t size) except NULL:
    """Room for so many bytes behind what is there."""
    cdef Py_ssize_t filled = PyByteArray_GET_SIZE(data)
    if filled < 64 and size > 1024:  # so that the record which ends the session does not move all of it
        PyByteArray_Resize(data, filled + size + 64)
    PyByteArray_Resize(data, filled + size)
    return <uint8_t *> PyByteArray_AS_STRING(data) + filled


def put(packed, uint64_t storage, bytes key not None, bytes value not None, uint64_t major, uint64_t minor):
    cdef Py_ssize_t size = 4 + ENTRY_SIZE + PyBytes_GET_SIZE(key) + PyBytes_GET_SIZE(value)
    put_entry(more(packed.data, size), storage, major, minor, key, value)
    packed.length += 1


def put_many(packed, uint64_t storage, list pairs not None, uint64_t major, uint64_t minor):
    cdef Py_ssize_t size = 0
    cdef bytes key, value
    cdef uint8_t *to
    # Nothing below runs code of others, so what was measured is what is packed.
    for pair in pairs:
        if not is_pair(pair):
            raise TypeError("pairs are tuples of two bytes")
        key, value = pair
        size += 4 + ENTRY_SIZE + PyBytes_GET_SIZE(key) + PyBytes_GET_SIZE(value)
    to = more(packed.data, size)
    for key, value in pairs:
        to = put_entry(to, storage, major, minor, key, value)
        minor += 1
    packed.length += len(pairs)


def stamp(packed, uint64_t epoch, uint64_t major, uint64_t minor):
    cdef bytearray data = packed.data
    cdef uint8_t *at = <uint8_t *> PyByteArray_AS_STRING(data)
    cdef uint8_t *end = at + PyByteArray_GET_SIZE(data)
    cdef uint64_t size, chosen, its_minor
    while end - at >= 4 + BEGIN_SIZE:
        size = big(at, 4)
        at += 4
        if size > <uint64_t> (end - at):
            raise ValueError("a payload does not fit into the buffer")
        if at[0] == BEGIN:
            put_big(at + 1, epoch, 8)
        elif size >= STORAGE_SIZE:
            chosen, its_minor = big(at + 9, 8), big(at + 17, 8)
            if chosen == MOST:
                put_big(at + 9, major, 8)
                put_big(at + 17, minor, 8)
                minor += 1
            elif chosen > major or (chosen == major and its_minor >= minor):
                major = chosen + (its_minor == MOST)
                minor = its_minor + 1  # 0 behind the largest
        at += size
    return major, minor


cdef inline bint is_pair(pair):
    return (
        PyTuple_CheckExact(pair)
        and PyTuple_GET_SIZE(pair) == 2
        and PyBytes_CheckExact((<tuple> pair)[0])
        and PyBytes_CheckExact((<tuple> pair)[1])
    )


def size_of(list pairs not None, Py_ssize_t largest):
    cdef Py_ssize_t total = 0, size
    cdef bytes key, value
    for pair in pairs:
        if not is_pair(pair):
            raise TypeError("pairs are tuples of two bytes")
        key, value = pair
        size = PyBytes_GET_SIZE(key) + PyBytes_GET_SIZE(value)
        if size > largest:
            return -1
        total += size
    return total
