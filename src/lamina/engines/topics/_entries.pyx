# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of entries.py, which says what the functions promise; tests hold the two equal.

None looks behind the end of what it is given.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from lamina.engines.topics.codec import BadRecord

cdef object SEQUENCE = (1 << 64) - 1
cdef object SHIFT = 64

Picked = tuple


# -- writing ---------------------------------------------------------------------------------------------------------


cdef inline uint8_t *put_big(uint8_t *to, uint64_t value, int size) noexcept nogil:
    cdef int place
    for place in range(size - 1, -1, -1):
        to[place] = value & 0xFF
        value >>= 8
    return to + size


cdef inline uint8_t *put_number(uint8_t *to, uint64_t value) noexcept nogil:
    if value < 0x80:
        to[0] = <uint8_t> value
        return to + 1
    if value <= 0xFF:
        to[0] = 0xCC
        return put_big(to + 1, value, 1)
    if value <= 0xFFFF:
        to[0] = 0xCD
        return put_big(to + 1, value, 2)
    if not value >> 32:
        to[0] = 0xCE
        return put_big(to + 1, value, 4)
    to[0] = 0xCF
    return put_big(to + 1, value, 8)


def encode(object id, object fields):
    cdef list items = fields if type(fields) is list else list(fields)
    cdef uint64_t ms = id >> SHIFT, sequence = id & SEQUENCE
    cdef Py_ssize_t size = 24, length, count = len(items) + 3
    cdef bytes field
    for field in items:
        size += 5 + PyBytes_GET_SIZE(field)
    cdef bytes room = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t *begin = <uint8_t *> PyBytes_AS_STRING(room)
    cdef uint8_t *to = begin
    if count < 16:
        to[0] = 0x90 | <uint8_t> count
        to += 1
    elif count <= 0xFFFF:
        to[0] = 0xDC
        to = put_big(to + 1, count, 2)
    else:
        to[0] = 0xDD
        to = put_big(to + 1, count, 4)
    to[0] = 1
    to = put_number(put_number(to + 1, ms), sequence)
    for field in items:
        length = PyBytes_GET_SIZE(field)
        if length <= 0xFF:
            to[0] = 0xC4
            to = put_big(to + 1, length, 1)
        elif length <= 0xFFFF:
            to[0] = 0xC5
            to = put_big(to + 1, length, 2)
        else:
            to[0] = 0xC6
            to = put_big(to + 1, length, 4)
        memcpy(to, PyBytes_AS_STRING(field), length)
        to += length
    return PyBytes_FromStringAndSize(<char *> begin, to - begin)


cdef bytes numbers_of(list ids, bint is_claimed):
    cdef bytes room = PyBytes_FromStringAndSize(NULL, (36 if is_claimed else 18) * len(ids))
    cdef uint8_t *begin = <uint8_t *> PyBytes_AS_STRING(room)
    cdef uint8_t *to = begin
    cdef object id
    cdef uint64_t one, other
    for item in ids:
        id = (<tuple> item)[0] if is_claimed else item
        one, other = id >> SHIFT, id & SEQUENCE
        to = put_number(put_number(to, one), other)
        if is_claimed:
            one, other = (<tuple> item)[1], (<tuple> item)[2]
            to = put_number(put_number(to, one), other)
    return PyBytes_FromStringAndSize(<char *> begin, to - begin)


def encode_ids(object ids):
    return numbers_of(ids if type(ids) is list else list(ids), False)


def encode_claimed(object entries):
    return numbers_of(entries if type(entries) is list else list(entries), True)


cdef inline int put_decimal(uint8_t *to, uint64_t value) noexcept nogil:
    """How many digits."""
    cdef uint8_t digits[20]
    cdef int count = 0, place
    while True:
        digits[count] = 48 + value % 10
        value //= 10
        count += 1
        if not value:
            break
    for place in range(count):
        to[place] = digits[count - 1 - place]
    return count


cdef int put_id(uint8_t *to, uint64_t ms, uint64_t sequence) noexcept nogil:
    """At most 41 bytes; returns how many."""
    cdef int size = put_decimal(to, ms)
    to[size] = 45
    return size + 1 + put_decimal(to + size + 1, sequence)


def show(object id):
    cdef uint8_t text[41]
    cdef int size = put_id(text, id >> SHIFT, id & SEQUENCE)
    return PyBytes_FromStringAndSize(<char *> text, size)


# -- reading ---------------------------------------------------------------------------------------------------------


cdef inline uint64_t big_4(const uint8_t *at) noexcept nogil:
    return (<uint64_t> at[0] << 24) | (<uint64_t> at[1] << 16) | (<uint64_t> at[2] << 8) | at[3]


cdef inline uint64_t big(const uint8_t *at, int size) noexcept nogil:
    """Written out, for compilers make one instruction of that: ids are in each record that is passed over."""
    if size == 8:
        return big_4(at) << 32 | big_4(at + 4)
    if size == 4:
        return big_4(at)
    return at[0] if size == 1 else <uint64_t> at[0] << 8 | at[1]


cdef inline int take_number(Items *items, uint64_t *value) noexcept nogil:
    """0 if there is none."""
    cdef uint8_t head
    cdef int size
    if not items.left or items.at >= items.end:
        return 0
    items.left -= 1
    head = items.at[0]
    items.at += 1
    if head < 0x80:
        value[0] = head
        return 1
    if head < 0xCC or head > 0xCF:
        return 0
    size = 1 << (head - 0xCC)
    if items.end - items.at < size:
        return 0
    value[0] = big(items.at, size)
    items.at += size
    return 1


cdef inline int begin_items(Items *items, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """0 if it is no array."""
    cdef int width
    if size <= 0:
        return 0
    items.at, items.end = data + 1, data + size
    if data[0] & 0xF0 == 0x90:
        items.left = data[0] & 0x0F
        return 1
    if data[0] != 0xDC and data[0] != 0xDD:
        return 0
    width = 2 if data[0] == 0xDC else 4
    if items.end - items.at < width:
        return 0
    items.left = big(items.at, width)
    items.at += width
    return 1


cdef inline int begin_entry(Items *items, const uint8_t *data, Py_ssize_t size, uint64_t *ms, uint64_t *sequence) noexcept nogil:
    """1: an entry, whose fields are left. 0: a record of another kind. -1: neither."""
    cdef uint64_t kind
    cdef uint8_t head = data[0] if size > 0 else 0
    cdef Py_ssize_t kind_at = 1 if head & 0xF0 == 0x90 else 3 if head == 0xDC else 5
    if size <= kind_at or data[kind_at] != 1:
        return 0
    if not begin_items(items, data, size) or not take_number(items, &kind):
        return -1
    if not take_number(items, ms) or not take_number(items, sequence):
        return -1
    return 1


cdef Py_ssize_t take_bytes(Items *items) noexcept nogil:
    """The size of a field that begins at ``items.at`` then; -1 if there is none."""
    cdef int width
    cdef uint64_t size
    if not items.left or items.at >= items.end or items.at[0] < 0xC4 or items.at[0] > 0xC6:
        return -1
    width = 1 << (items.at[0] - 0xC4)
    if items.end - items.at - 1 < width:
        return -1
    size = big(items.at + 1, width)
    items.left -= 1
    items.at += 1 + width
    return <Py_ssize_t> size if size <= <uint64_t> (items.end - items.at) else -1


cdef object number_of(uint64_t ms, uint64_t sequence):
    return (<object> ms) << SHIFT | sequence


def entry_id(bytes payload not None):
    cdef Items items
    cdef uint64_t ms, sequence
    cdef int found = begin_entry(&items, <const uint8_t *> PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload), &ms, &sequence)
    if found < 0:
        raise BadRecord("no id where one has to be")
    return number_of(ms, sequence) if found else None


def decode(bytes payload not None):
    cdef Items items
    cdef uint64_t ms, sequence
    cdef Py_ssize_t size
    cdef list fields = []
    if begin_entry(&items, <const uint8_t *> PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload), &ms, &sequence) <= 0:
        raise BadRecord("no entry")
    while items.left:
        size = take_bytes(&items)
        if size < 0:
            raise BadRecord("no bytes where some have to be")
        fields.append(PyBytes_FromStringAndSize(<const char *> items.at, size))
        items.at += size
    if items.at != items.end:
        raise BadRecord("more than there has to be")
    return number_of(ms, sequence), fields


def run_from(const uint8_t[:] data, const long long[:] offsets, const long long[:] lengths, Py_ssize_t first):
    cdef Items items
    cdef uint64_t ms, sequence, last_ms, last_sequence
    cdef Py_ssize_t at, count = len(offsets), found = 0
    cdef int kind
    for at in range(first, count):
        kind = begin_entry(&items, &data[0] + offsets[at], lengths[at], &ms, &sequence)
        if kind < 0:
            raise BadRecord("no id where one has to be")
        if kind == 0:
            break
        found += 1
        last_ms, last_sequence = ms, sequence
    return found, number_of(last_ms, last_sequence) if found else None


def entry_ids(const uint8_t[:] data, const long long[:] offsets, const long long[:] lengths):
    cdef Items items
    cdef uint64_t ms, sequence
    cdef Py_ssize_t at, count = len(offsets)
    cdef int kind
    cdef list found = []
    for at in range(count):
        kind = begin_entry(&items, &data[0] + offsets[at], lengths[at], &ms, &sequence)
        if kind < 0:
            raise BadRecord("no id where one has to be")
        if kind:
            found.append(number_of(ms, sequence))
    return found


def pick(const uint8_t[:] data, const long long[:] offsets, const long long[:] lengths, object start, object end,
         Py_ssize_t most, object gone):
    cdef Items items
    cdef uint64_t ms, sequence
    cdef uint64_t start_ms = start >> SHIFT, start_sequence = start & SEQUENCE
    cdef uint64_t end_ms = end >> SHIFT, end_sequence = end & SEQUENCE
    cdef Py_ssize_t at, count = len(offsets), length, last = -1
    cdef const uint8_t *payload
    cdef int kind
    cdef list found = []
    for at in range(count):
        if len(found) == most:
            return found, last, at, False
        payload, length = &data[0] + offsets[at], lengths[at]
        kind = begin_entry(&items, payload, length, &ms, &sequence)
        if kind < 0:
            raise BadRecord("no id where one has to be")
        if kind == 0 or ms < start_ms or (ms == start_ms and sequence < start_sequence):
            continue
        if ms > end_ms or (ms == end_ms and sequence > end_sequence):
            return found, last, at + 1, True
        if gone is None or number_of(ms, sequence) not in gone:
            found.append(PyBytes_FromStringAndSize(<const char *> payload, length))
            last = at
    return found, last, count, False


def pick_wanted(const uint8_t[:] data, const long long[:] offsets, const long long[:] lengths, object wanted,
                Py_ssize_t first, object previous=None):
    cdef Items items
    cdef uint64_t ms, sequence, next_ms, next_sequence, previous_ms = 0, previous_sequence = 0
    cdef bint is_known = previous is not None
    cdef Py_ssize_t at, count = len(offsets), length, last = -1
    cdef const uint8_t *payload
    cdef int kind
    cdef list ids = wanted if type(wanted) is list else list(wanted)
    cdef Py_ssize_t most = len(ids)
    cdef list found = []
    if is_known:
        previous_ms, previous_sequence = previous >> SHIFT, previous & SEQUENCE
    if first < most:
        next_ms, next_sequence = ids[first] >> SHIFT, ids[first] & SEQUENCE
    for at in range(count):
        if first == most:
            break
        payload, length = &data[0] + offsets[at], lengths[at]
        kind = begin_entry(&items, payload, length, &ms, &sequence)
        if kind < 0:
            raise BadRecord("no id where one has to be")
        if kind == 0:
            continue
        while next_ms < ms or (next_ms == ms and next_sequence <= sequence):
            if next_ms == ms and next_sequence == sequence:
                found.append((
                    ids[first], PyBytes_FromStringAndSize(<const char *> payload, length),
                    number_of(previous_ms, previous_sequence) if is_known else None,
                ))
                last = at
            first += 1
            if first == most:
                break
            next_ms, next_sequence = ids[first] >> SHIFT, ids[first] & SEQUENCE
        previous_ms, previous_sequence, is_known = ms, sequence, True
    return found, first, last
