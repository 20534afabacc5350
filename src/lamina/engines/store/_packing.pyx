# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of packing.py, which says what the functions promise; tests hold the two equal."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from lamina.engines.store._entry cimport (
    BEGIN, BEGIN_SIZE, END, END_SIZE, ENTRY_SIZE, PUT, REMOVE, STORAGE_SIZE, big, put_big,
)
from lamina.log.packed import Packed


cdef uint64_t MOST = 0xFFFFFFFFFFFFFFFF


cdef inline uint8_t *put_head(uint8_t *to, Py_ssize_t size, int kind, uint64_t storage, uint64_t major, uint64_t minor):
    put_big(to, size, 4)
    to[4] = kind
    put_big(to + 5, storage, 8)
    put_big(to + 13, major, 8)
    put_big(to + 21, minor, 8)
    return to + 4 + STORAGE_SIZE


cdef inline uint8_t *put_key(uint8_t *to, bytes key):
    cdef Py_ssize_t size = PyBytes_GET_SIZE(key)
    put_big(to, size, 4)
    memcpy(to + 4, PyBytes_AS_STRING(key), size)
    return to + 4 + size


cdef inline uint8_t *put_entry(uint8_t *to, uint64_t storage, uint64_t major, uint64_t minor, bytes key, bytes value):
    cdef Py_ssize_t value_size = PyBytes_GET_SIZE(value)
    to = put_head(to, ENTRY_SIZE + PyBytes_GET_SIZE(key) + value_size, PUT, storage, major, minor)
    to = put_key(to, key)
    memcpy(to, PyBytes_AS_STRING(value), value_size)
    return to + value_size


cdef uint8_t *more(bytearray data, Py_ssize_t size) except NULL:
    """Room for so many bytes behind what is there."""
    cdef Py_ssize_t filled = PyByteArray_GET_SIZE(data)
    if filled < 64 and size > 1024:  # so that the record which ends the session does not move all of it
        PyByteArray_Resize(data, filled + size + 64)
    PyByteArray_Resize(data, filled + size)
    return <uint8_t *> PyByteArray_AS_STRING(data) + filled


cdef Py_ssize_t size_of_puts(list pairs) except -1:
    """Bytes of their payloads, sizes included."""
    cdef Py_ssize_t size = 0
    for pair in pairs:
        if not is_pair(pair):
            raise TypeError("pairs are tuples of two bytes")
        size += 4 + ENTRY_SIZE
        size += PyBytes_GET_SIZE((<tuple> pair)[0]) + PyBytes_GET_SIZE((<tuple> pair)[1])
    return size


def measure(list changes not None):
    cdef Py_ssize_t count = 0, total = 0, largest = 0, size
    cdef int kind
    cdef uint64_t storage
    for kind, storage, what in changes:
        if kind == PUT:
            count += len(<list?> what)
            for pair in <list> what:
                if not is_pair(pair):
                    raise TypeError("pairs are tuples of two bytes")
                size = PyBytes_GET_SIZE((<tuple> pair)[0]) + PyBytes_GET_SIZE((<tuple> pair)[1])
                total += size
                largest = max(largest, size)
            continue
        if not PyBytes_CheckExact(what):
            raise TypeError("keys and values are bytes")
        count += 1
        size = PyBytes_GET_SIZE(what)
        total += size
        largest = max(largest, size)
    return count, total, largest


def sessions(uint64_t epoch, list changes not None, uint64_t major, uint64_t minor):
    cdef Py_ssize_t size = 0, length = 0
    cdef uint64_t first, storage
    cdef int kind
    cdef bytes key, value
    cdef uint8_t *to
    packed = Packed()
    # Nothing below runs code of others, so what was measured is what is packed.
    for each in changes:
        size += 4 + BEGIN_SIZE + 4 + END_SIZE
        length += 2
        for kind, storage, what in <list?> each:
            if kind == PUT:
                size += size_of_puts(what)
                length += len(<list> what)
                continue
            if not PyBytes_CheckExact(what):
                raise TypeError("keys and values are bytes")
            size += 4 + ENTRY_SIZE + PyBytes_GET_SIZE(what) if kind == REMOVE else 4 + STORAGE_SIZE
            length += 1
    to = more(packed.data, size)
    for each in changes:
        put_big(to, BEGIN_SIZE, 4)
        to[4] = BEGIN
        put_big(to + 5, epoch, 8)
        to += 4 + BEGIN_SIZE
        first = minor
        for kind, storage, what in <list> each:
            if kind == PUT:
                for key, value in <list> what:
                    to = put_entry(to, storage, major, minor, key, value)
                    minor += 1
                continue
            if kind == REMOVE:
                key = what
                to = put_head(to, ENTRY_SIZE + PyBytes_GET_SIZE(key), kind, storage, major, minor)
                to = put_key(to, key)
            else:
                to = put_head(to, STORAGE_SIZE, kind, storage, major, minor)
            minor += 1
        put_big(to, END_SIZE, 4)
        to[4] = END
        put_big(to + 5, epoch, 8)
        put_big(to + 13, minor - first, 4)
        to += 4 + END_SIZE
    packed.length = length
    return packed


def put(packed, uint64_t storage, bytes key not None, bytes value not None, uint64_t major, uint64_t minor):
    cdef Py_ssize_t size = 4 + ENTRY_SIZE + PyBytes_GET_SIZE(key) + PyBytes_GET_SIZE(value)
    put_entry(more(packed.data, size), storage, major, minor, key, value)
    packed.length += 1


def put_many(packed, uint64_t storage, list pairs not None, uint64_t major, uint64_t minor):
    cdef bytes key, value
    # Nothing below runs code of others, so what was measured is what is packed.
    cdef uint8_t *to = more(packed.data, size_of_puts(pairs))
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
