# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of entry_replies.py: two walks over the records, one to know how much room the answer takes."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from lamina.engines.topics._entries cimport Items, begin_entry, put_id, take_bytes

from lamina.engines.topics.codec import BadRecord

cdef object SEQUENCE = (1 << 64) - 1
cdef object SHIFT = 64

cdef enum:
    HEAD = 24  # bytes that a count or size takes at most, with its sign and line end
    ENTRY = 4 + 3 * HEAD + 43


cdef uint8_t *put_head(uint8_t *to, uint8_t sign, uint64_t value) noexcept nogil:
    cdef uint8_t digits[20]
    cdef int count = 0
    to[0] = sign
    to += 1
    while True:
        digits[count] = 48 + value % 10
        value //= 10
        count += 1
        if not value:
            break
    while count:
        count -= 1
        to[0] = digits[count]
        to += 1
    to[0], to[1] = 13, 10
    return to + 2


cdef uint8_t *put_entry(uint8_t *to, bytes payload) except NULL:
    cdef Items items
    cdef uint64_t ms, sequence
    cdef Py_ssize_t size
    cdef uint8_t id[41]
    cdef int id_size
    if begin_entry(&items, <const uint8_t *> PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload), &ms, &sequence) <= 0:
        raise BadRecord("no entry")
    id_size = put_id(id, ms, sequence)
    to = put_head(put_head(to, 42, 2), 36, id_size)
    memcpy(to, id, id_size)
    to += id_size
    to[0], to[1] = 13, 10
    to = put_head(to + 2, 42, items.left)
    while items.left:
        size = take_bytes(&items)
        if size < 0:
            raise BadRecord("no bytes where some have to be")
        to = put_head(to, 36, size)
        memcpy(to, items.at, size)
        to += size
        to[0], to[1] = 13, 10
        to += 2
        items.at += size
    if items.at != items.end:
        raise BadRecord("more than there has to be")
    return to


def show_all(object payloads):
    cdef list records = payloads if type(payloads) is list else list(payloads)
    cdef bytes payload
    cdef Py_ssize_t room = HEAD
    for payload in records:
        # A field takes two bytes at least in the record, and HEAD more than that at most in the answer.
        room += ENTRY + PyBytes_GET_SIZE(payload) + HEAD * fields_of(payload)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, room)
    cdef uint8_t *begin = <uint8_t *> PyBytes_AS_STRING(out)
    cdef uint8_t *to = put_head(begin, 42, len(records))
    for payload in records:
        to = put_entry(to, payload)
    return PyBytes_FromStringAndSize(<char *> begin, to - begin)


cdef Py_ssize_t fields_of(bytes payload) except -1:
    """How many items come behind the id, and no more than there can be in so many bytes."""
    cdef Items items
    cdef uint64_t ms, sequence
    if begin_entry(&items, <const uint8_t *> PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload), &ms, &sequence) <= 0:
        raise BadRecord("no entry")
    return min(<Py_ssize_t> items.left, PyBytes_GET_SIZE(payload))


cdef enum:
    ID = 64  # bytes that the answer of one takes at most


cdef uint8_t *put_id_reply(uint8_t *to, object id) except NULL:
    cdef uint8_t shown[41]
    cdef int size = put_id(shown, id >> SHIFT, id & SEQUENCE)
    to = put_head(to, 36, size)
    memcpy(to, shown, size)
    to += size
    to[0], to[1] = 13, 10
    return to + 2


def show_id(object id):
    cdef uint8_t text[ID]
    cdef uint8_t *end = put_id_reply(text, id)
    return PyBytes_FromStringAndSize(<char *> text, end - text)


def show_ids(object ids):
    cdef list all_ids = ids if type(ids) is list else list(ids)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, ID * len(all_ids))
    cdef uint8_t *begin = <uint8_t *> PyBytes_AS_STRING(out)
    cdef uint8_t *to = begin
    for id in all_ids:
        to = put_id_reply(to, id)
    return PyBytes_FromStringAndSize(<char *> begin, to - begin)


def show_pending(object entries, int64_t now):
    cdef Py_ssize_t room = HEAD
    cdef bytes consumer
    for entry in entries:
        room += 4 + ID + 3 * HEAD + 2 + PyBytes_GET_SIZE((<tuple> entry)[1])
    cdef bytes out = PyBytes_FromStringAndSize(NULL, room)
    cdef uint8_t *begin = <uint8_t *> PyBytes_AS_STRING(out)
    cdef uint8_t *to = put_head(begin, 42, len(entries))
    cdef int64_t time
    for entry in entries:
        consumer, time = (<tuple> entry)[1], (<tuple> entry)[2]
        to = put_id_reply(put_head(to, 42, 4), (<tuple> entry)[0])
        to = put_head(to, 36, PyBytes_GET_SIZE(consumer))
        memcpy(to, PyBytes_AS_STRING(consumer), PyBytes_GET_SIZE(consumer))
        to += PyBytes_GET_SIZE(consumer)
        to[0], to[1] = 13, 10
        to = put_head(to + 2, 58, <uint64_t> (now - time) if now > time else 0)
        to = put_head(to, 58, (<tuple> entry)[3])
    return PyBytes_FromStringAndSize(<char *> begin, to - begin)
