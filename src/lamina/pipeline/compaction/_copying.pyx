# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of copying.py, which says what the functions promise; tests hold the two equal.

None looks behind the end of what it is given.
"""

from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcmp, memcpy

import array

from lamina.engines.store._entry cimport (
    ENTRY_SIZE,
    KEY_AT,
    PUT,
    REMOVE,
    VERSION_AT,
    VERSION_SIZE,
    big,
    compare_keys,
    kind_of,
    put_big,
)

from lamina.log.scan import Batch
from lamina.pipeline.compaction.spots import Look

cdef enum:
    SPOT_SIZE = 12
    FILE_BITS = 40
    TIME = 15  # before the size in a record
    CRC = 4

cdef uint32_t REMOVED = 1 << 31
cdef array.array NUMBERS = array.array("q")
cdef array.array SPOTS = array.array("Q")
cdef array.array SIZES = array.array("I")

cdef struct Numbered:
    uint64_t spot
    uint32_t number


cdef inline Py_ssize_t head_size(Py_ssize_t length) noexcept nogil:
    """Bytes before a payload of that length."""
    cdef Py_ssize_t size = TIME + 1
    while length >= 0x80:
        length >>= 7
        size += 1
    return size


def as_spots(batch, uint64_t file):
    cdef const uint8_t[::1] data = batch.data
    cdef const int64_t[::1] offsets = batch.offsets
    cdef const int64_t[::1] lengths = batch.lengths
    cdef Py_ssize_t count = offsets.shape[0], number, offset, length, size = 0, key_end, head
    cdef uint64_t base = batch.base
    cdef const uint8_t *payload
    cdef uint8_t *to
    cdef uint8_t *start
    cdef int kind
    cdef array.array new_offsets = array.clone(NUMBERS, count, zero=False)
    cdef array.array new_lengths = array.clone(NUMBERS, count, zero=False)
    cdef int64_t *offset_to = <int64_t *> new_offsets.data.as_longlongs
    cdef int64_t *length_to = <int64_t *> new_lengths.data.as_longlongs
    cdef object made
    if lengths.shape[0] != count:
        raise ValueError("columns of different lengths")
    for number in range(count):
        offset, length = offsets[number], lengths[number]
        if offset < 0 or length < 0 or offset > data.shape[0] - length:
            raise ValueError("outside of the buffer")
        kind = kind_of(&data[offset], length) if length else 0
        if kind == PUT or kind == REMOVE:
            length = ENTRY_SIZE + <Py_ssize_t> big(&data[offset] + ENTRY_SIZE - 4, 4) + SPOT_SIZE
        offset_to[number], length_to[number] = size, length
        size += length
    made = PyByteArray_FromStringAndSize(NULL, size)
    start = <uint8_t *> PyByteArray_AS_STRING(made)
    for number in range(count):
        offset, length = offsets[number], lengths[number]
        if not length:
            continue
        payload, to = &data[offset], start + offset_to[number]
        kind = kind_of(payload, length)
        if kind == PUT or kind == REMOVE:
            key_end = length_to[number] - SPOT_SIZE
            memcpy(to, payload, key_end)
            to[0] = PUT
            head = head_size(length)
            put_big(to + key_end, file << FILE_BITS | (base + <uint64_t> (offset - head)), 8)
            put_big(to + key_end + 8, <uint32_t> (head + length + CRC) | (REMOVED if kind == REMOVE else 0), 4)
        else:
            memcpy(to, payload, length)
    return Batch(batch.base, memoryview(made), batch.times, new_offsets, new_lengths, batch.end, batch.newest)


def survivors(list items not None, uint64_t boundary):
    cdef Py_ssize_t count = PyList_GET_SIZE(items), number, kept = 0, size, value_at
    cdef array.array spots = array.clone(SPOTS, count, zero=False)
    cdef array.array sizes = array.clone(SIZES, count, zero=False)
    cdef uint64_t *spot_to = <uint64_t *> spots.data.as_ulonglongs
    cdef uint32_t *size_to = <uint32_t *> sizes.data.as_uints
    cdef const uint8_t *data
    cdef uint32_t found
    cdef bytes item
    for number in range(count):
        item = <bytes?> <object> PyList_GET_ITEM(items, number)
        size = PyBytes_GET_SIZE(item)
        data = <const uint8_t *> PyBytes_AS_STRING(item)
        value_at = KEY_AT + <Py_ssize_t> big(data + KEY_AT - 4, 4) if size >= KEY_AT else 0
        if not value_at or size != value_at + SPOT_SIZE:
            raise ValueError("this stands for no record")
        found = <uint32_t> big(data + value_at + 8, 4)
        if found & REMOVED and big(data + VERSION_AT, 8) <= boundary:
            continue
        spot_to[kept] = big(data + value_at, 8)
        size_to[kept] = found & ~REMOVED
        kept += 1
    array.resize(spots, kept)
    array.resize(sizes, kept)
    return spots, sizes


cdef int compare_spots(const void *one, const void *other) noexcept nogil:
    cdef uint64_t a = (<const Numbered *> one).spot, b = (<const Numbered *> other).spot
    return (a > b) - (a < b)


def in_file_order(const uint64_t[::1] spots):
    cdef Py_ssize_t count = spots.shape[0], number
    cdef array.array order = array.clone(SIZES, count, zero=False)
    cdef Numbered *numbered = <Numbered *> malloc(count * sizeof(Numbered) + 1)
    if numbered is NULL:
        raise MemoryError
    for number in range(count):
        numbered[number].spot, numbered[number].number = spots[number], <uint32_t> number
    with nogil:
        qsort(numbered, count, sizeof(Numbered), compare_spots)
    for number in range(count):
        order.data.as_uints[number] = numbered[number].number
    free(numbered)
    return order


def reach(const uint64_t[::1] spots, const uint32_t[::1] sizes, const uint32_t[::1] order, Py_ssize_t start,
          uint64_t most, uint64_t gap):
    cdef Py_ssize_t count = order.shape[0], number = start
    cdef uint64_t begin, end, spot, size
    if spots.shape[0] != count or sizes.shape[0] != count or not 0 <= start < count:
        raise ValueError("columns of different lengths")
    begin = spots[check(order[start], count)]
    end = begin + sizes[order[start]]
    number = start + 1
    while number < count:
        spot, size = spots[check(order[number], count)], sizes[order[number]]
        if spot < begin:
            raise ValueError("not in the order of the files")
        if (spot > end and spot - end > gap) or spot + size - begin > most or spot >> FILE_BITS != begin >> FILE_BITS:
            break
        if spot + size > end:
            end = spot + size
        number += 1
    return number, end - begin


cdef inline Py_ssize_t check(uint32_t number, Py_ssize_t count) except -1:
    if number >= count:
        raise ValueError("outside of the columns")
    return number


def place(const uint8_t[::1] window, const uint64_t[::1] spots, const uint32_t[::1] sizes, const uint32_t[::1] order,
          Py_ssize_t start, Py_ssize_t end, const uint64_t[::1] starts, bytearray out not None):
    cdef Py_ssize_t count = order.shape[0], at, number
    cdef uint64_t begin, from_, size, room = PyByteArray_GET_SIZE(out), length = window.shape[0]
    cdef uint8_t *to = <uint8_t *> PyByteArray_AS_STRING(out)
    if spots.shape[0] != count or sizes.shape[0] != count or starts.shape[0] != count:
        raise ValueError("columns of different lengths")
    if not 0 <= start < end <= count:
        raise ValueError("outside of the columns")
    begin = spots[check(order[start], count)]
    for at in range(start, end):
        number = check(order[at], count)
        from_, size = spots[number] - begin, sizes[number]
        if from_ > length or size > length - from_ or starts[number] > room or size > room - starts[number]:
            raise ValueError("outside of the buffer")
        if size:
            memcpy(to + starts[number], &window[from_], size)


def look(const uint8_t[::1] data, const int64_t[::1] offsets, const int64_t[::1] lengths, Py_ssize_t since,
         Py_ssize_t spacing):
    cdef Py_ssize_t count = offsets.shape[0], number, offset, length, record_at = 0, begun = -since
    cdef Py_ssize_t key_size, last_size = 0
    cdef bint is_open = since >= 0
    cdef int kind
    cdef const uint8_t *payload
    cdef const uint8_t *last = NULL
    cdef const uint8_t *highest = NULL
    cdef list points = [], foreign = []
    cdef bytes first = b""
    if lengths.shape[0] != count:
        raise ValueError("columns of different lengths")
    for number in range(count):
        offset, length = offsets[number], lengths[number]
        if offset < record_at + TIME or length < 0 or offset > data.shape[0] - length:
            raise ValueError("outside of the buffer")
        payload = &data[offset]
        kind = kind_of(payload, length) if length else 0
        if kind != PUT and kind != REMOVE:
            raise ValueError("this is no entry")
        key_size = <Py_ssize_t> big(payload + ENTRY_SIZE - 4, 4)
        if last is not NULL and not comes_before(last, last_size, payload, key_size):
            raise ValueError("places have to rise")
        if not is_open or record_at - begun >= spacing:
            points.append((record_at, place_of(payload, key_size)))
            begun, is_open = record_at, True
        if data[record_at + TIME - 2] != 0xFF or data[record_at + TIME - 1] != 0xFF:
            foreign.append(number)
        if highest is NULL or memcmp(payload + 9, highest, VERSION_SIZE) > 0:
            highest = payload + 9
        if last is NULL:
            first = place_of(payload, key_size)
        last, last_size = payload, key_size
        record_at = offset + length + CRC
    return Look(
        first,
        b"" if last is NULL else place_of(last, last_size),
        points,
        b"" if highest is NULL else PyBytes_FromStringAndSize(<char *> highest, VERSION_SIZE),
        foreign,
    )


cdef inline bint comes_before(const uint8_t *a, Py_ssize_t size_a, const uint8_t *b, Py_ssize_t size_b) noexcept nogil:
    """The places of two payloads rise."""
    cdef int order = memcmp(a + 1, b + 1, 8)
    if order:
        return order < 0
    return compare_keys(a + ENTRY_SIZE, size_a, b + ENTRY_SIZE, size_b) < 0


cdef bytes place_of(const uint8_t *payload, Py_ssize_t key_size):
    cdef bytes place = PyBytes_FromStringAndSize(NULL, 8 + key_size)
    memcpy(PyBytes_AS_STRING(place), payload + 1, 8)
    memcpy(PyBytes_AS_STRING(place) + 8, payload + ENTRY_SIZE, key_size)
    return place
