# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of frame.py's hot functions.  frame.py says what they mean; the two are held equal by tests."""

from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

import array

from lamina.errors import RecordTooLarge, ReservedPayload
from lamina.log.frame import Scan, Stop
from lamina.log.packed import Packed

cdef extern from "_crc32c.h" nogil:
    void lamina_crc_prepare()
    int lamina_crc_use_cpu
    uint32_t lamina_crc32c(uint32_t crc, const uint8_t *data, size_t size)
    uint32_t lamina_crc32c_table_only(uint32_t crc, const uint8_t *data, size_t size)
    uint8_t *lamina_put_by_cpu(uint8_t *at, uint64_t seconds, uint32_t nanos, const uint8_t *data, size_t size)
    uint8_t *lamina_put_by_table(uint8_t *at, uint64_t seconds, uint32_t nanos, const uint8_t *data, size_t size)

cdef extern from "Python.h":
    PyObject **PySequence_Fast_ITEMS(object)
    Py_ssize_t PySequence_Fast_GET_SIZE(object)
    bint is_bytes "PyBytes_CheckExact"(PyObject *)
    Py_ssize_t size_of "PyBytes_GET_SIZE"(PyObject *)
    char *data_of "PyBytes_AS_STRING"(PyObject *)

cdef enum:
    TIME_SIZE = 15
    CRC_SIZE = 4
    MIN_RECORD = 20
    MOST_AROUND = 29  # time, the longest size, checksum
    SPACING = 65536
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


cdef inline uint32_t get_u32(const uint8_t *at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline uint64_t get_u64(const uint8_t *at) noexcept nogil:
    return (<uint64_t>get_u32(at) << 32) | get_u32(at + 4)


cdef inline bint has_form(const uint8_t *data, Py_ssize_t size, bytes prefix) noexcept:
    cdef Py_ssize_t length = PyBytes_GET_SIZE(prefix)
    return length > 0 and size == length + 8 and memcmp(data, PyBytes_AS_STRING(prefix), length) == 0


def encode_into(
    bytearray buffer,
    Py_ssize_t at,
    int64_t first_ns,
    payloads,
    Py_ssize_t max_payload=64 << 20,
    tuple reserved=(b"", b""),
):
    return put_records(buffer, at, first_ns, payloads, max_payload, reserved, lamina_crc_use_cpu)


def encode_into_by_table(
    bytearray buffer,
    Py_ssize_t at,
    int64_t first_ns,
    payloads,
    Py_ssize_t max_payload=64 << 20,
    tuple reserved=(b"", b""),
):
    """The same without the CPU's instruction, so that tests reach it on any machine."""
    return put_records(buffer, at, first_ns, payloads, max_payload, reserved, False)


def encode_many(int64_t first_ns, payloads, Py_ssize_t max_payload=64 << 20, tuple reserved=(b"", b"")):
    cdef bytearray buffer = bytearray()
    end, _ = put_records(buffer, 0, first_ns, payloads, max_payload, reserved, lamina_crc_use_cpu)
    return bytes(buffer[:end])


cdef put_records(
    bytearray buffer,
    Py_ssize_t at,
    int64_t first_ns,
    payloads,
    Py_ssize_t max_payload,
    tuple reserved,
    bint use_cpu,
):
    cdef bytes watermark = reserved[0]
    cdef bytes gap = reserved[1]
    if not 0 <= at <= PyByteArray_GET_SIZE(buffer):
        raise ValueError("encode outside of the buffer")
    if type(payloads) is Packed:
        return put_packed(buffer, at, first_ns, payloads.data, max_payload, watermark, gap, use_cpu)
    # A tuple of our own: a finalizer that runs in between may change the caller's list.
    cdef tuple held = tuple(payloads)
    cdef Py_ssize_t count = PySequence_Fast_GET_SIZE(held)
    cdef PyObject **items = PySequence_Fast_ITEMS(held)
    cdef Py_ssize_t size, index, done, last_point = at
    cdef uint8_t *base = <uint8_t *>PyByteArray_AS_STRING(buffer)
    cdef uint8_t *room = base + PyByteArray_GET_SIZE(buffer)
    cdef uint8_t *here = base + at
    cdef const uint8_t *payload
    cdef list points = []
    # Floor division: times before 1970 have negative seconds and positive nanoseconds.
    cdef int64_t seconds = first_ns // SECOND
    cdef int64_t nanos = first_ns - seconds * SECOND
    if nanos < 0:
        seconds -= 1
        nanos += SECOND
    for index in range(count):
        if not is_bytes(items[index]):
            converted = [as_bytes(place, each) for place, each in enumerate(held)]
            return put_records(buffer, at, first_ns, converted, max_payload, reserved, use_cpu)
        payload = <const uint8_t *>data_of(items[index])
        size = size_of(items[index])
        if size > max_payload:
            raise RecordTooLarge(index, size, max_payload)
        if has_form(payload, size, watermark) or has_form(payload, size, gap):
            raise ReservedPayload(index)
        if room - here < size + MOST_AROUND:
            done = here - base
            PyByteArray_Resize(buffer, 2 * (done + size + MOST_AROUND))
            base = <uint8_t *>PyByteArray_AS_STRING(buffer)
            room = base + PyByteArray_GET_SIZE(buffer)
            here = base + done
        if here - base - last_point >= SPACING:
            last_point = here - base
            points.append((index, last_point))
        if use_cpu:
            here = lamina_put_by_cpu(here, <uint64_t>(seconds + YEAR_ONE), <uint32_t>nanos, payload, size)
        else:
            here = lamina_put_by_table(here, <uint64_t>(seconds + YEAR_ONE), <uint32_t>nanos, payload, size)
        nanos += 1
        if nanos == SECOND:
            seconds += 1
            nanos = 0
    return here - base, points


cdef put_packed(
    bytearray buffer,
    Py_ssize_t at,
    int64_t first_ns,
    bytearray data,
    Py_ssize_t max_payload,
    bytes watermark,
    bytes gap,
    bint use_cpu,
):
    cdef Py_ssize_t left = PyByteArray_GET_SIZE(data), size, done, last_point = at, index = 0
    cdef const uint8_t *payload = <const uint8_t *>PyByteArray_AS_STRING(data)
    cdef uint8_t *base = <uint8_t *>PyByteArray_AS_STRING(buffer)
    cdef uint8_t *room = base + PyByteArray_GET_SIZE(buffer)
    cdef uint8_t *here = base + at
    cdef list points = []
    cdef int64_t seconds = first_ns // SECOND
    cdef int64_t nanos = first_ns - seconds * SECOND
    if nanos < 0:
        seconds -= 1
        nanos += SECOND
    while left > 0:
        size = get_u32(payload) if left >= 4 else left
        if left < 4 or size > left - 4:
            raise ValueError(f"payload {index} does not fit into the buffer")
        payload += 4
        left -= 4 + size
        if size > max_payload:
            raise RecordTooLarge(index, size, max_payload)
        if has_form(payload, size, watermark) or has_form(payload, size, gap):
            raise ReservedPayload(index)
        if room - here < size + MOST_AROUND:
            done = here - base
            PyByteArray_Resize(buffer, 2 * (done + size + MOST_AROUND))
            base = <uint8_t *>PyByteArray_AS_STRING(buffer)
            room = base + PyByteArray_GET_SIZE(buffer)
            here = base + done
        if here - base - last_point >= SPACING:
            last_point = here - base
            points.append((index, last_point))
        if use_cpu:
            here = lamina_put_by_cpu(here, <uint64_t>(seconds + YEAR_ONE), <uint32_t>nanos, payload, size)
        else:
            here = lamina_put_by_table(here, <uint64_t>(seconds + YEAR_ONE), <uint32_t>nanos, payload, size)
        payload += size
        index += 1
        nanos += 1
        if nanos == SECOND:
            seconds += 1
            nanos = 0
    return here - base, points


cdef bytes as_bytes(Py_ssize_t index, each):
    if not isinstance(each, (bytes, bytearray, memoryview)):
        raise TypeError(f"payload {index} of the batch is {type(each).__name__}, not bytes")
    return bytes(memoryview(each))  # not bytes(each): a subclass may answer with itself


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
    cdef int64_t seconds, body_end, time, newest = 0
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
                if byte == 0 and shift:
                    why = BAD_SIZE
                    break
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
            time = seconds * SECOND + nanos
            if count == 0 or time > newest:
                newest = time
            time_column[count] = time
            offset_column[count] = cursor
            length_column[count] = <int64_t>size
            count += 1
            at = body_end + CRC_SIZE

    array.resize(times, count)
    array.resize(offsets, count)
    array.resize(lengths, count)
    return Scan(times, offsets, lengths, at, STOPS[why], newest)
