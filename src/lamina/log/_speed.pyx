# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of frame.py's hot functions.  frame.py says what they mean; the two are held equal by tests."""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

import array

from lamina.errors import RecordTooLarge, ReservedPayload
from lamina.log.frame import Scan, Stop

cdef extern from "_crc32c.h" nogil:
    void lamina_crc_prepare()
    int lamina_crc_use_cpu
    uint32_t lamina_crc32c(uint32_t crc, const uint8_t *data, size_t size)
    uint32_t lamina_crc32c_table_only(uint32_t crc, const uint8_t *data, size_t size)

cdef enum:
    TIME_SIZE = 15
    CRC_SIZE = 4
    MIN_RECORD = 20
    END = 0
    TRUNCATED = 1
    BAD_TIME = 2
    BAD_SIZE = 3
    BAD_CRC = 4

cdef int64_t YEAR_ONE = 62135596800
cdef int64_t SECOND = 1000000000
cdef int64_t FIRST_SECOND = -9223372036
cdef int64_t LAST_SECOND = 9223372035

lamina_crc_prepare()
CRC_INSTRUCTION = bool(lamina_crc_use_cpu)

cdef array.array COLUMN = array.array("q")
cdef tuple STOPS = tuple(Stop)


def crc32c(data, uint32_t crc=0):
    cdef const uint8_t[::1] view = data
    if view.shape[0] == 0:
        return crc
    return lamina_crc32c(crc, &view[0], view.shape[0])


def crc32c_by_table(data, uint32_t crc=0):
    """The same without the CPU's instruction, so that tests reach it on any machine."""
    cdef const uint8_t[::1] view = data
    if view.shape[0] == 0:
        return crc
    return lamina_crc32c_table_only(crc, &view[0], view.shape[0])


cdef inline void put_u32(uint8_t *at, uint32_t value) noexcept nogil:
    at[0] = value >> 24
    at[1] = value >> 16
    at[2] = value >> 8
    at[3] = value


cdef inline uint32_t get_u32(const uint8_t *at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline void put_u64(uint8_t *at, uint64_t value) noexcept nogil:
    put_u32(at, value >> 32)
    put_u32(at + 4, <uint32_t>value)


cdef inline uint64_t get_u64(const uint8_t *at) noexcept nogil:
    return (<uint64_t>get_u32(at) << 32) | get_u32(at + 4)


cdef inline int uvarint_size(uint64_t value) noexcept nogil:
    cdef int size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline bint has_form(const char *data, Py_ssize_t size, bytes prefix) noexcept:
    cdef Py_ssize_t length = PyBytes_GET_SIZE(prefix)
    return length > 0 and size == length + 8 and memcmp(data, PyBytes_AS_STRING(prefix), length) == 0


def encode_many(int64_t first_ns, payloads, Py_ssize_t max_payload=64 << 20, tuple reserved=(b"", b"")):
    cdef bytes watermark = reserved[0]
    cdef bytes gap = reserved[1]
    cdef Py_ssize_t size, index = 0, total = 0
    cdef bytes payload
    cdef uint64_t rest
    if not all_bytes(payloads):
        payloads = [bytes(each) for each in payloads]
    for payload in payloads:
        size = PyBytes_GET_SIZE(payload)
        if size > max_payload:
            raise RecordTooLarge(index, size, max_payload)
        if has_form(PyBytes_AS_STRING(payload), size, watermark) or has_form(
            PyBytes_AS_STRING(payload), size, gap
        ):
            raise ReservedPayload(index)
        total += TIME_SIZE + uvarint_size(size) + size + CRC_SIZE
        index += 1

    out = PyBytes_FromStringAndSize(NULL, total)
    cdef uint8_t *at = <uint8_t *>PyBytes_AS_STRING(out)
    cdef uint8_t *start
    # Floor division: times before 1970 have negative seconds and positive nanoseconds.
    cdef int64_t seconds = first_ns // SECOND
    cdef int64_t nanos = first_ns - seconds * SECOND
    if nanos < 0:
        seconds -= 1
        nanos += SECOND
    for payload in payloads:
        size = PyBytes_GET_SIZE(payload)
        start = at
        at[0] = 1
        put_u64(at + 1, <uint64_t>(seconds + YEAR_ONE))
        put_u32(at + 9, <uint32_t>nanos)
        at[13] = 0xFF
        at[14] = 0xFF
        at += TIME_SIZE
        rest = size
        while rest >= 0x80:
            at[0] = (rest & 0x7F) | 0x80
            rest >>= 7
            at += 1
        at[0] = rest
        at += 1
        memcpy(at, PyBytes_AS_STRING(payload), size)
        at += size
        put_u32(at, lamina_crc32c(0, start, at - start))
        at += CRC_SIZE
        nanos += 1
        if nanos == SECOND:
            seconds += 1
            nanos = 0
    return out


cdef bint all_bytes(payloads):
    if not isinstance(payloads, (list, tuple)):
        return False
    for each in payloads:
        if type(each) is not bytes:
            return False
    return True


def scan(data, Py_ssize_t start, Py_ssize_t end, int64_t max_payload=64 << 20):
    cdef const uint8_t[::1] view = data
    if start < 0 or end > view.shape[0] or start > end:
        raise ValueError("scan outside of the buffer")
    cdef Py_ssize_t room = (end - start) // MIN_RECORD + 1
    cdef array.array times = array.clone(COLUMN, room, zero=False)
    cdef array.array offsets = array.clone(COLUMN, room, zero=False)
    cdef array.array lengths = array.clone(COLUMN, room, zero=False)
    cdef int64_t *time_column = <int64_t *>times.data.as_longlongs
    cdef int64_t *offset_column = <int64_t *>offsets.data.as_longlongs
    cdef int64_t *length_column = <int64_t *>lengths.data.as_longlongs
    cdef const uint8_t *base = &view[0] if view.shape[0] else NULL
    cdef Py_ssize_t at = start, cursor, count = 0
    cdef int64_t seconds, body_end
    cdef uint64_t size
    cdef uint32_t nanos
    cdef int shift, why
    cdef uint8_t byte

    with nogil:
        while True:
            if at == end:
                why = END
                break
            if base[at] != 1:
                why = BAD_TIME
                break
            if end - at < TIME_SIZE:
                why = TRUNCATED
                break
            # Unsigned subtraction wraps as the checks below expect: a far-off second stays far off.
            seconds = <int64_t>(get_u64(base + at + 1) - <uint64_t>YEAR_ONE)
            nanos = get_u32(base + at + 9)
            if nanos >= SECOND or seconds < FIRST_SECOND or seconds > LAST_SECOND:
                why = BAD_TIME
                break
            cursor = at + TIME_SIZE
            size = 0
            shift = 0
            why = END
            while True:
                if cursor == end:
                    why = TRUNCATED
                    break
                byte = base[cursor]
                cursor += 1
                if shift == 63 and byte > 1:
                    why = BAD_SIZE
                    break
                size |= <uint64_t>(byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
            if why != END:
                break
            if size > <uint64_t>max_payload:
                why = BAD_SIZE
                break
            body_end = cursor + <int64_t>size
            if body_end + CRC_SIZE > end:
                why = TRUNCATED
                break
            if lamina_crc32c(0, base + at, body_end - at) != get_u32(base + body_end):
                why = BAD_CRC
                break
            time_column[count] = seconds * SECOND + nanos
            offset_column[count] = cursor
            length_column[count] = <int64_t>size
            count += 1
            at = body_end + CRC_SIZE

    array.resize(times, count)
    array.resize(offsets, count)
    array.resize(lengths, count)
    return Scan(times, offsets, lengths, at, STOPS[why])
