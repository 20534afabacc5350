# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of columns.py, which says what the functions promise; tests hold the two equal.

Sizes are found in a first pass, so that each buffer is made once; none looks behind the end of what it is given.
"""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

import array

from lamina.engines.topics.codec import BadRecord
from lamina.pipeline.columns import Entries, Strings, Topic

cdef array.array COLUMN = array.array("q")


def micros(array.array times):
    cdef Py_ssize_t count = len(times), at
    cdef bytes found = PyBytes_FromStringAndSize(NULL, count * 8)
    cdef int64_t *to = <int64_t *> PyBytes_AS_STRING(found)
    cdef int64_t *source = <int64_t *> times.data.as_longlongs
    for at in range(count):
        to[at] = source[at] // 1000
    return found


cdef inline bint has_form(const uint8_t *payload, int64_t size, bytes prefix) noexcept:
    cdef Py_ssize_t length = len(prefix)
    return size == length + 8 and memcmp(payload, PyBytes_AS_STRING(prefix), length) == 0


def without_marks(data, array.array times, array.array offsets, array.array lengths, bytes watermark, bytes gap):
    cdef const uint8_t[::1] view = data
    cdef const uint8_t *base = &view[0] if view.shape[0] else NULL
    cdef Py_ssize_t count = len(times), at, kept = 0
    cdef int64_t *time_column = <int64_t *> times.data.as_longlongs
    cdef int64_t *offset_column = <int64_t *> offsets.data.as_longlongs
    cdef int64_t *length_column = <int64_t *> lengths.data.as_longlongs
    cdef int64_t first = len(watermark) + 8, second = len(gap) + 8, size
    cdef Py_ssize_t marks = 0
    for at in range(count):
        size = length_column[at]
        if (size == first or size == second) and (
            has_form(base + offset_column[at], size, watermark) or has_form(base + offset_column[at], size, gap)
        ):
            marks += 1
    if not marks:
        return times, offsets, lengths
    cdef array.array new_times = array.clone(COLUMN, count - marks, zero=False)
    cdef array.array new_offsets = array.clone(COLUMN, count - marks, zero=False)
    cdef array.array new_lengths = array.clone(COLUMN, count - marks, zero=False)
    for at in range(count):
        size = length_column[at]
        if (size == first or size == second) and (
            has_form(base + offset_column[at], size, watermark) or has_form(base + offset_column[at], size, gap)
        ):
            continue
        new_times.data.as_longlongs[kept] = time_column[at]
        new_offsets.data.as_longlongs[kept] = offset_column[at]
        new_lengths.data.as_longlongs[kept] = size
        kept += 1
    return new_times, new_offsets, new_lengths


def gather(data, array.array offsets, array.array lengths):
    cdef const uint8_t[::1] view = data
    cdef const uint8_t *base = &view[0] if view.shape[0] else NULL
    cdef Py_ssize_t count = len(offsets), at
    cdef int64_t *offset_column = <int64_t *> offsets.data.as_longlongs
    cdef int64_t *length_column = <int64_t *> lengths.data.as_longlongs
    cdef int64_t total = 0
    for at in range(count):
        total += length_column[at]
    cdef bytes ends = PyBytes_FromStringAndSize(NULL, (count + 1) * 4)
    cdef bytes values = PyBytes_FromStringAndSize(NULL, total)
    cdef int32_t *end = <int32_t *> PyBytes_AS_STRING(ends)
    cdef char *to = PyBytes_AS_STRING(values)
    cdef int64_t done = 0
    end[0] = 0
    for at in range(count):
        memcpy(to + done, base + offset_column[at], length_column[at])
        done += length_column[at]
        end[at + 1] = <int32_t> done
    return Strings(ends, values)


def positions(int64_t base, array.array offsets, array.array lengths):
    cdef Py_ssize_t count = len(offsets), at
    cdef bytes found = PyBytes_FromStringAndSize(NULL, count * 8)
    cdef int64_t *to = <int64_t *> PyBytes_AS_STRING(found)
    cdef uint64_t size
    cdef int head
    for at in range(count):
        size = <uint64_t> lengths.data.as_longlongs[at]
        head = 16
        while size >= 0x80:
            size >>= 7
            head += 1
        to[at] = base + offsets.data.as_longlongs[at] - head
    return found


# -- topics ----------------------------------------------------------------------------------------------------------


cdef inline const uint8_t *take_number(const uint8_t *at, const uint8_t *end, uint64_t *value) noexcept nogil:
    """Behind the number; NULL if there is none."""
    cdef int size, place
    cdef uint64_t number = 0
    if at >= end:
        return NULL
    if at[0] < 0x80:
        value[0] = at[0]
        return at + 1
    if at[0] == 0xCC:
        size = 1
    elif at[0] == 0xCD:
        size = 2
    elif at[0] == 0xCE:
        size = 4
    elif at[0] == 0xCF:
        size = 8
    else:
        return NULL
    if end - at < size + 1:
        return NULL
    for place in range(1, size + 1):
        number = number << 8 | at[place]
    value[0] = number
    return at + size + 1


cdef inline const uint8_t *take_bytes(const uint8_t *at, const uint8_t *end, uint64_t *size) noexcept nogil:
    """Where the bytes begin; NULL if there are none."""
    cdef int head, place
    cdef uint64_t number = 0
    if at >= end:
        return NULL
    if at[0] == 0xC4:
        head = 1
    elif at[0] == 0xC5:
        head = 2
    elif at[0] == 0xC6:
        head = 4
    else:
        return NULL
    if end - at < head + 1:
        return NULL
    for place in range(1, head + 1):
        number = number << 8 | at[place]
    at += head + 1
    if <uint64_t> (end - at) < number:
        return NULL
    size[0] = number
    return at


cdef inline const uint8_t *take_head(const uint8_t *at, const uint8_t *end, uint64_t *count) noexcept nogil:
    """Behind the head of an array; NULL if there is none."""
    if at >= end:
        return NULL
    if at[0] & 0xF0 == 0x90:
        count[0] = at[0] & 0x0F
        return at + 1
    if at[0] == 0xDC and end - at >= 3:
        count[0] = <uint64_t> at[1] << 8 | at[2]
        return at + 3
    if at[0] == 0xDD and end - at >= 5:
        count[0] = <uint64_t> at[1] << 24 | <uint64_t> at[2] << 16 | <uint64_t> at[3] << 8 | at[4]
        return at + 5
    return NULL


cdef inline bint is_text(const uint8_t *at, uint64_t size) noexcept nogil:
    """Nothing but ASCII: all other names are looked at by Python."""
    cdef uint64_t place
    for place in range(size):
        if at[place] >= 0x80:
            return False
    return True


def topic(data, array.array offsets, array.array lengths):
    cdef const uint8_t[::1] view = data
    cdef const uint8_t *base = &view[0] if view.shape[0] else NULL
    cdef Py_ssize_t count = len(offsets), number
    cdef int64_t *offset_column = <int64_t *> offsets.data.as_longlongs
    cdef int64_t *length_column = <int64_t *> lengths.data.as_longlongs
    cdef int64_t pairs = 0, name_bytes = 0, value_bytes = 0, pair
    cdef uint64_t items, kind = 0, first = 0, second = 0, size = 0, item
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef bint is_ascii = True
    # The first pass checks every record, and counts.
    for number in range(count):
        at = base + offset_column[number]
        end = at + length_column[number]
        at = take_head(at, end, &items)
        if at == NULL:
            raise BadRecord("no array", number)
        if items < 3:
            raise BadRecord("cut short", number)
        at = take_number(at, end, &kind)
        if at != NULL:
            at = take_number(at, end, &first)
        if at != NULL:
            at = take_number(at, end, &second)
        if at == NULL:
            raise BadRecord("no number where one has to be", number)
        if kind != 1:
            if kind > 4:
                raise BadRecord(f"there is no record of kind {kind}", number)
            continue
        if items % 2 == 0:
            raise BadRecord("a field without a value", number)
        for item in range(3, items):
            at = take_bytes(at, end, &size)
            if at == NULL:
                raise BadRecord("no bytes where some have to be", number)
            if item % 2:
                name_bytes += size
                if is_ascii and not is_text(at, size):
                    is_ascii = False
            else:
                value_bytes += size
            at += size
        if at != end:
            raise BadRecord("more than there has to be", number)
        pairs += (items - 3) // 2
    cdef bytes kinds = PyBytes_FromStringAndSize(NULL, count)
    cdef bytes milliseconds = PyBytes_FromStringAndSize(NULL, count * 8)
    cdef bytes sequences = PyBytes_FromStringAndSize(NULL, count * 8)
    cdef bytes fields = PyBytes_FromStringAndSize(NULL, (count + 1) * 4)
    cdef bytes name_ends = PyBytes_FromStringAndSize(NULL, (pairs + 1) * 4)
    cdef bytes value_ends = PyBytes_FromStringAndSize(NULL, (pairs + 1) * 4)
    cdef bytes names = PyBytes_FromStringAndSize(NULL, name_bytes)
    cdef bytes values = PyBytes_FromStringAndSize(NULL, value_bytes)
    cdef uint8_t *to_kind = <uint8_t *> PyBytes_AS_STRING(kinds)
    cdef uint64_t *to_first = <uint64_t *> PyBytes_AS_STRING(milliseconds)
    cdef uint64_t *to_second = <uint64_t *> PyBytes_AS_STRING(sequences)
    cdef int32_t *to_field = <int32_t *> PyBytes_AS_STRING(fields)
    cdef int32_t *to_name_end = <int32_t *> PyBytes_AS_STRING(name_ends)
    cdef int32_t *to_value_end = <int32_t *> PyBytes_AS_STRING(value_ends)
    cdef char *to_name = PyBytes_AS_STRING(names)
    cdef char *to_value = PyBytes_AS_STRING(values)
    pair = name_bytes = value_bytes = 0
    to_field[0] = to_name_end[0] = to_value_end[0] = 0
    for number in range(count):
        at = base + offset_column[number]
        end = at + length_column[number]
        at = take_number(take_head(at, end, &items), end, &kind)
        at = take_number(take_number(at, end, &first), end, &second)
        to_kind[number] = <uint8_t> kind
        to_first[number] = first
        to_second[number] = second
        if kind == 1:
            for item in range((items - 3) // 2):
                at = take_bytes(at, end, &size)
                memcpy(to_name + name_bytes, at, size)
                name_bytes += size
                at = take_bytes(at + size, end, &size)
                memcpy(to_value + value_bytes, at, size)
                value_bytes += size
                at += size
                pair += 1
                to_name_end[pair] = <int32_t> name_bytes
                to_value_end[pair] = <int32_t> value_bytes
        to_field[number + 1] = <int32_t> pair
    if not is_ascii:
        is_ascii = are_text(name_ends, names, pairs)
    found_names, found_values = Strings(name_ends, names), Strings(value_ends, values)
    return Topic(kinds, milliseconds, sequences, fields, found_names, found_values, is_ascii)


cdef bint are_text(bytes ends, bytes names, Py_ssize_t count) except -1:
    cdef int32_t *end = <int32_t *> PyBytes_AS_STRING(ends)
    cdef Py_ssize_t at
    for at in range(count):
        try:
            names[end[at] : end[at + 1]].decode()
        except UnicodeDecodeError:
            return False
    return True


# -- the store -------------------------------------------------------------------------------------------------------


cdef inline uint64_t big64(const uint8_t *at) noexcept nogil:
    cdef uint64_t number = 0
    cdef int place
    for place in range(8):
        number = number << 8 | at[place]
    return number


cdef inline uint32_t big32(const uint8_t *at) noexcept nogil:
    return <uint32_t> at[0] << 24 | <uint32_t> at[1] << 16 | <uint32_t> at[2] << 8 | at[3]


def entries(data, array.array offsets, array.array lengths, int64_t epoch):
    cdef const uint8_t[::1] view = data
    cdef const uint8_t *base = &view[0] if view.shape[0] else NULL
    cdef Py_ssize_t count = len(offsets), number, found = 0
    cdef int64_t *offset_column = <int64_t *> offsets.data.as_longlongs
    cdef int64_t *length_column = <int64_t *> lengths.data.as_longlongs
    cdef int64_t key_bytes = 0, value_bytes = 0, size, before = epoch
    cdef uint64_t key_size
    cdef const uint8_t *at
    cdef uint8_t kind
    for number in range(count):
        at = base + offset_column[number]
        size = length_column[number]
        kind = at[0] if size else 0
        if kind == 1 or kind == 2:
            if kind == 1 and size != 9:
                raise BadRecord(f"an entry of kind {kind} cannot have {size} bytes", number)
            if kind == 1 and at[1] >= 0x80:
                raise BadRecord("an epoch that cannot be", number)
            epoch = <int64_t> big64(at + 1) if kind == 1 else 0
            continue
        if epoch < 0 or 8 <= kind <= 10 or kind == 0x92 or kind == 0x93:
            continue
        if kind == 3 or kind == 4:
            if size < 29:
                raise BadRecord(f"an entry of kind {kind} cannot have {size} bytes", number)
            key_size = big32(at + 25)
            if <uint64_t> (size - 29) < key_size or (kind == 4 and <uint64_t> (size - 29) > key_size):
                raise BadRecord("a key does not fit into its entry", number)
            key_bytes += key_size
            value_bytes += size - 29 - key_size
        elif 5 <= kind <= 7:
            if size != 25:
                raise BadRecord(f"an entry of kind {kind} cannot have {size} bytes", number)
        else:
            raise BadRecord(f"there is no entry of kind {kind}", number)
        found += 1
    cdef bytes places = PyBytes_FromStringAndSize(NULL, found * 8)
    cdef bytes kinds = PyBytes_FromStringAndSize(NULL, found)
    cdef bytes epochs = PyBytes_FromStringAndSize(NULL, found * 8)
    cdef bytes storages = PyBytes_FromStringAndSize(NULL, found * 8)
    cdef bytes majors = PyBytes_FromStringAndSize(NULL, found * 8)
    cdef bytes minors = PyBytes_FromStringAndSize(NULL, found * 8)
    cdef bytes key_ends = PyBytes_FromStringAndSize(NULL, (found + 1) * 4)
    cdef bytes value_ends = PyBytes_FromStringAndSize(NULL, (found + 1) * 4)
    cdef bytes keys = PyBytes_FromStringAndSize(NULL, key_bytes)
    cdef bytes values = PyBytes_FromStringAndSize(NULL, value_bytes)
    cdef int64_t *to_place = <int64_t *> PyBytes_AS_STRING(places)
    cdef uint8_t *to_kind = <uint8_t *> PyBytes_AS_STRING(kinds)
    cdef int64_t *to_epoch = <int64_t *> PyBytes_AS_STRING(epochs)
    cdef uint64_t *to_storage = <uint64_t *> PyBytes_AS_STRING(storages)
    cdef uint64_t *to_major = <uint64_t *> PyBytes_AS_STRING(majors)
    cdef uint64_t *to_minor = <uint64_t *> PyBytes_AS_STRING(minors)
    cdef int32_t *to_key_end = <int32_t *> PyBytes_AS_STRING(key_ends)
    cdef int32_t *to_value_end = <int32_t *> PyBytes_AS_STRING(value_ends)
    cdef char *to_key = PyBytes_AS_STRING(keys)
    cdef char *to_value = PyBytes_AS_STRING(values)
    epoch = before
    found = 0
    key_bytes = value_bytes = 0
    to_key_end[0] = to_value_end[0] = 0
    for number in range(count):
        at = base + offset_column[number]
        size = length_column[number]
        kind = at[0] if size else 0
        if kind == 1 or kind == 2:
            epoch = <int64_t> big64(at + 1) if kind == 1 else 0
            continue
        if epoch < 0 or 8 <= kind <= 10 or kind == 0x92 or kind == 0x93:
            continue
        to_place[found] = number
        to_kind[found] = kind
        to_epoch[found] = epoch
        to_storage[found] = big64(at + 1)
        to_major[found] = big64(at + 9)
        to_minor[found] = big64(at + 17)
        if kind <= 4:
            key_size = big32(at + 25)
            memcpy(to_key + key_bytes, at + 29, key_size)
            key_bytes += key_size
            memcpy(to_value + value_bytes, at + 29 + key_size, size - 29 - key_size)
            value_bytes += size - 29 - key_size
        found += 1
        to_key_end[found] = <int32_t> key_bytes
        to_value_end[found] = <int32_t> value_bytes
    found_keys, found_values = Strings(key_ends, keys), Strings(value_ends, values)
    return Entries(places, kinds, epochs, storages, majors, minors, found_keys, found_values, epoch)
