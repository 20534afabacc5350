# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of columns.py, which says what the functions promise; tests hold the two equal.

None looks behind the end of what it is given.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from lamina.engines.store._entry cimport big

from lamina.engines.store.codec import BadRecord
from lamina.errors import RecordTooLarge

cdef extern from "../../log/_crc32c.h" nogil:
    void lamina_crc_prepare()
    int lamina_crc_use_cpu
    uint8_t *lamina_put_by_cpu(uint8_t *at, uint64_t seconds, uint32_t nanos, const uint8_t *data, size_t size)
    uint8_t *lamina_put_by_table(uint8_t *at, uint64_t seconds, uint32_t nanos, const uint8_t *data, size_t size)

cdef enum:
    PUT = 3
    REMOVE = 4
    TIME = 8  # before the payload in an item
    ENTRY = 29  # before the key in a payload
    VERSION_AT = 17
    VERSION = 16
    KEY_AT = 37
    MOST_AROUND = 29  # time, the longest size, checksum of a record
    MAX_PAYLOAD = 67108864

cdef uint64_t SECOND = 1000000000
cdef uint64_t YEAR_ONE = 62135596800

lamina_crc_prepare()

Columns = tuple[list[bytes], list[bytes]]


cdef inline int compare(bytes a, bytes b) noexcept:
    cdef Py_ssize_t size_a = PyBytes_GET_SIZE(a), size_b = PyBytes_GET_SIZE(b)
    cdef int order = memcmp(PyBytes_AS_STRING(a), PyBytes_AS_STRING(b), size_a if size_a < size_b else size_b)
    if order:
        return order
    return 1 if size_a > size_b else -1 if size_a < size_b else 0


cdef const uint8_t *checked(bytes item) except NULL:
    """The bytes of an item that is long enough to be one."""
    if item is None or PyBytes_GET_SIZE(item) < KEY_AT:
        raise ValueError("this is no item")
    return <const uint8_t *> PyBytes_AS_STRING(item)


def rises(places, bytes after not None):
    cdef bytes place
    for place in places:
        if place is None or compare(after, place) >= 0:
            return False
        after = place
    return True


def read(data, const int64_t[::1] times, const int64_t[::1] offsets, const int64_t[::1] lengths):
    cdef const uint8_t[::1] view = data
    cdef Py_ssize_t count = times.shape[0], number, offset, length
    cdef Py_ssize_t key
    cdef const uint8_t *payload
    cdef uint8_t *to
    cdef int byte
    cdef bytes place, item
    cdef list places = [], items = []
    if offsets.shape[0] != count or lengths.shape[0] != count:
        raise ValueError("columns of different lengths")
    for number in range(count):
        offset, length = offsets[number], lengths[number]
        if offset < 0 or length < 0 or offset > view.shape[0] - length:
            raise ValueError("outside of the buffer")
        if length < ENTRY:
            raise BadRecord(f"entry {number} is neither put nor remove")
        payload = &view[offset]
        key = <Py_ssize_t> big(payload + ENTRY - 4, 4)
        if (key > length - ENTRY or (payload[0] != PUT and payload[0] != REMOVE)
                or (payload[0] == REMOVE and key != length - ENTRY)):
            raise BadRecord(f"entry {number} is neither put nor remove")
        place = PyBytes_FromStringAndSize(NULL, 8 + key)
        to = <uint8_t *> PyBytes_AS_STRING(place)
        memcpy(to, payload + 1, 8)
        memcpy(to + 8, payload + ENTRY, key)
        item = PyBytes_FromStringAndSize(NULL, TIME + length)
        to = <uint8_t *> PyBytes_AS_STRING(item)
        for byte in range(8):
            to[byte] = <uint8_t> (<uint64_t> times[number] >> (56 - 8 * byte))
        memcpy(to + TIME, payload, length)
        places.append(place)
        items.append(item)
    return places, items


def write(bytearray buffer not None, Py_ssize_t at, list items not None, Py_ssize_t start, Py_ssize_t until,
          Py_ssize_t since, Py_ssize_t spacing):
    cdef list points = []
    cdef Py_ssize_t number = start, size, begun = at - since, count = PyList_GET_SIZE(items)
    cdef bint is_open = since >= 0
    cdef uint8_t *base = <uint8_t *> PyByteArray_AS_STRING(buffer)
    cdef const uint8_t *payload
    cdef const uint8_t *highest = NULL
    cdef uint8_t *end
    cdef uint64_t time_ns
    cdef bytes item, best
    if not 0 <= at <= PyByteArray_GET_SIZE(buffer) or start < 0:
        raise ValueError("write outside of the buffer")
    while number < count and at < until:
        item = <bytes?> <object> PyList_GET_ITEM(items, number)
        payload = checked(item) + TIME
        size = PyBytes_GET_SIZE(item) - TIME
        if size > MAX_PAYLOAD:
            raise RecordTooLarge(number, size, MAX_PAYLOAD)
        if PyByteArray_GET_SIZE(buffer) - at < size + MOST_AROUND:
            PyByteArray_Resize(buffer, 2 * (at + size + MOST_AROUND))
            base = <uint8_t *> PyByteArray_AS_STRING(buffer)
        if not is_open or at - begun >= spacing:
            points.append((number, at))
            begun, is_open = at, True
        time_ns = big(payload - TIME, TIME)
        if lamina_crc_use_cpu:
            end = lamina_put_by_cpu(base + at, time_ns // SECOND + YEAR_ONE, time_ns % SECOND, payload, size)
        else:
            end = lamina_put_by_table(base + at, time_ns // SECOND + YEAR_ONE, time_ns % SECOND, payload, size)
        at = end - base
        payload += VERSION_AT - TIME
        if highest == NULL or memcmp(payload, highest, VERSION) > 0:
            highest, best = payload, item
        number += 1
    return number, at, points, b"" if highest == NULL else PyBytes_FromStringAndSize(<char *> highest, VERSION)


def merge(tuple older not None, tuple newer not None):
    cdef list old_places = older[0], old_items = older[1], new_places = newer[0], new_items = newer[1]
    cdef Py_ssize_t old = 0, old_count = PyList_GET_SIZE(old_places)
    cdef Py_ssize_t new = 0, new_count = PyList_GET_SIZE(new_places)
    cdef int order
    cdef list places, items
    cdef bytes old_place, new_place, old_item, new_item
    if PyList_GET_SIZE(old_items) != old_count or PyList_GET_SIZE(new_items) != new_count:
        raise ValueError("columns of different lengths")
    if not old_count or not new_count:
        return newer if new_count else older
    if compare(<bytes?> old_places[old_count - 1], <bytes?> new_places[0]) < 0:
        return old_places + new_places, old_items + new_items
    places, items = [], []
    old_place, new_place = <bytes?> old_places[0], <bytes?> new_places[0]
    while True:
        order = compare(old_place, new_place)
        if order < 0:
            places.append(old_place)
            items.append(old_items[old])
            old += 1
        elif order > 0:
            places.append(new_place)
            items.append(new_items[new])
            new += 1
        else:
            old_item, new_item = <bytes?> old_items[old], <bytes?> new_items[new]
            places.append(new_place)
            if memcmp(checked(new_item) + VERSION_AT, checked(old_item) + VERSION_AT, VERSION) >= 0:
                items.append(new_item)
            else:
                items.append(old_item)
            old += 1
            new += 1
        if old == old_count or new == new_count:
            break
        if order <= 0:
            old_place = <bytes?> old_places[old]
        if order >= 0:
            new_place = <bytes?> new_places[new]
    if old < old_count:
        places += old_places[old:]
        items += old_items[old:]
    elif new < new_count:
        places += new_places[new:]
        items += new_items[new:]
    return places, items


def cull(tuple columns not None, cleared, bytes boundary not None):
    cdef list places = columns[0], items = columns[1]
    cdef Py_ssize_t number, count = PyList_GET_SIZE(items)
    cdef list left_places = None, left_items = None
    cdef bint has_cleared = bool(cleared), has_boundary = PyBytes_GET_SIZE(boundary) == 8, stays
    cdef const uint8_t *data
    cdef bytes item, place, storage = b"", version = None
    if PyList_GET_SIZE(places) != count:
        raise ValueError("columns of different lengths")
    if boundary and not has_boundary:
        raise ValueError("a boundary has 8 bytes")
    for number in range(count):
        item = <bytes?> items[number]
        data = checked(item)
        stays = data[TIME] == PUT or not has_boundary or (
            memcmp(data + VERSION_AT, PyBytes_AS_STRING(boundary), 8) > 0
        )
        if stays and has_cleared:
            if not storage or memcmp(PyBytes_AS_STRING(storage), data + TIME + 1, 8):
                storage = PyBytes_FromStringAndSize(<char *> data + TIME + 1, 8)
                version = cleared.get(storage)
                if version is not None and PyBytes_GET_SIZE(version) != VERSION:
                    raise ValueError("a version has 16 bytes")
            stays = version is None or memcmp(data + VERSION_AT, PyBytes_AS_STRING(version), VERSION) >= 0
        if stays:
            if left_places is not None:
                left_places.append(places[number])
                left_items.append(item)
        elif left_places is None:
            left_places, left_items = places[:number], items[:number]
    return columns if left_places is None else (left_places, left_items)
