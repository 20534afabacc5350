# cython: boundscheck=False, wraparound=False
"""The compiled twin of ids.py: the same functions, character by character. tests/property/test_queue_ids.py holds them
equal."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from base64 import b32encode
from hashlib import blake2b

ID_BYTES = 24

cdef const unsigned char* LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
cdef unsigned char VALUES[256]


cdef void _fill():
    cdef int at
    for at in range(256):
        VALUES[at] = 255
    for at in range(64):
        VALUES[LETTERS[at]] = at


_fill()


def show(bytes id not None):
    return wire(id).decode()


cpdef bytes wire(bytes id):
    """The same as bytes."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(id)
    if size % 3:
        raise ValueError("no id")
    cdef bytes text = PyBytes_FromStringAndSize(NULL, size // 3 * 4)
    cdef const unsigned char* given = <const unsigned char*>PyBytes_AS_STRING(id)
    cdef unsigned char* out = <unsigned char*>PyBytes_AS_STRING(text)
    cdef Py_ssize_t at
    cdef unsigned int three
    for at in range(size // 3):
        three = (given[3 * at] << 16) | (given[3 * at + 1] << 8) | given[3 * at + 2]
        out[4 * at] = LETTERS[three >> 18]
        out[4 * at + 1] = LETTERS[(three >> 12) & 63]
        out[4 * at + 2] = LETTERS[(three >> 6) & 63]
        out[4 * at + 3] = LETTERS[three & 63]
    return text


cpdef bytes parse(bytes text):
    """The id that ``text`` shows, or None if it shows none: a path is never made from anything else."""
    if PyBytes_GET_SIZE(text) != 32:
        return None
    cdef bytes id = PyBytes_FromStringAndSize(NULL, 24)
    cdef const unsigned char* given = <const unsigned char*>PyBytes_AS_STRING(text)
    cdef unsigned char* out = <unsigned char*>PyBytes_AS_STRING(id)
    cdef Py_ssize_t at
    cdef unsigned char wrong = 0
    cdef unsigned char a, b, c, d
    for at in range(8):
        a, b, c, d = VALUES[given[4 * at]], VALUES[given[4 * at + 1]], VALUES[given[4 * at + 2]], VALUES[given[4 * at + 3]]
        wrong |= a | b | c | d
        out[3 * at] = (a << 2) | (b >> 4)
        out[3 * at + 1] = ((b & 15) << 4) | (c >> 2)
        out[3 * at + 2] = ((c & 3) << 6) | d
    return None if wrong & 192 else id


def handle(bytes rid not None):
    """What operators call the queue: 16 letters and digits, the same after every restart, and no use to a client."""
    return b32encode(blake2b(rid, digest_size=10, person=b"lamina handle").digest()).decode().lower()
