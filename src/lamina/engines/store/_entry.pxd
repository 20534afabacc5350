# cython: language_level=3
# What the compiled modules of the store know of entries (codec.py) and of how a table keeps them.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

cdef enum:
    BEGIN = 1
    END = 2
    PUT = 3
    REMOVE = 4
    CLEAR = 5
    DROP = 7
    WATERMARK = 0x92
    GAP = 0x93
    BEGIN_SIZE = 9
    END_SIZE = 13
    STORAGE_SIZE = 25
    ENTRY_SIZE = 29
    TIME_SIZE = 8
    VERSION_AT = 17
    VERSION_SIZE = 16
    KEY_AT = 37  # in an item
    BAD = 0
    BLOCK = 1 << 20
    AHEAD = 16  # entries that are looked up together
    FEWEST = 64  # slots
    AROUND = 48  # bytes that an entry takes beside its own: its head, its slots, its place in the order

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void *) nogil

cdef extern from "Python.h":
    Py_hash_t _Py_HashBytes(const void *data, Py_ssize_t size) nogil


cdef inline uint64_t big(const uint8_t *at, int size) noexcept nogil:
    cdef uint64_t value = 0
    cdef int place
    for place in range(size):
        value = value << 8 | at[place]
    return value


cdef inline void put_big(uint8_t *to, uint64_t value, int size) noexcept nogil:
    cdef int place
    for place in range(size - 1, -1, -1):
        to[place] = value & 0xFF
        value >>= 8


cdef inline int kind_of(const uint8_t *payload, Py_ssize_t size) noexcept nogil:
    """The kind of an entry whose sizes fit, else BAD. Marks of the kernel are none."""
    cdef int kind
    if size < BEGIN_SIZE:
        return BAD
    kind = payload[0]
    if kind == PUT or kind == REMOVE:
        if size < ENTRY_SIZE:
            return BAD
        if <uint64_t> (size - ENTRY_SIZE) < big(payload + ENTRY_SIZE - 4, 4):
            return BAD
        if kind == REMOVE and <uint64_t> (size - ENTRY_SIZE) != big(payload + ENTRY_SIZE - 4, 4):
            return BAD
        return kind
    if kind == BEGIN:
        return kind if size == BEGIN_SIZE else BAD
    if kind == END:
        return kind if size == END_SIZE else BAD
    if CLEAR <= kind <= DROP:
        return kind if size == STORAGE_SIZE else BAD
    return BAD


cdef struct Entry:
    uint32_t size  # of the item
    uint32_t hash
    # The item follows.


cdef struct Placed:
    uint64_t storage
    uint64_t prefix  # the first bytes of the key
    Entry *entry


cdef struct Taken:
    const uint8_t *start
    Py_ssize_t size
    uint64_t time_ns


cdef struct Waiting:
    const uint8_t *payload
    Py_ssize_t size
    uint64_t time_ns
    uint32_t hash


cdef struct Block:
    Block *before
    size_t size
    size_t used


cdef inline uint8_t *item_of(Entry *entry) noexcept nogil:
    return <uint8_t *> entry + sizeof(Entry)


cdef inline uint32_t key_size_of(const uint8_t *item) noexcept nogil:
    return <uint32_t> big(item + KEY_AT - 4, 4)


cdef inline size_t room_of(size_t item_size) noexcept nogil:
    return (sizeof(Entry) + item_size + 7) & ~<size_t> 7


cdef inline uint32_t hash_of(const uint8_t *storage, const uint8_t *key, Py_ssize_t size) noexcept nogil:
    # The interpreter's own, which is keyed: nobody can choose keys that collide.
    cdef uint64_t hashed = <uint64_t> _Py_HashBytes(key, size) ^ (big(storage, 8) * <uint64_t> 0x9E3779B97F4A7C15)
    return <uint32_t> (hashed ^ (hashed >> 32))


cdef inline uint64_t prefix_of(const uint8_t *key, Py_ssize_t size) noexcept nogil:
    if size >= 8:
        return big(key, 8)
    return big(key, <int> size) << (8 * (8 - size)) if size else 0


cdef inline int compare_keys(const uint8_t *a, Py_ssize_t size_a, const uint8_t *b, Py_ssize_t size_b) noexcept nogil:
    cdef int order = memcmp(a, b, size_a if size_a < size_b else size_b)
    if order:
        return order
    return (size_a > size_b) - (size_a < size_b)


cdef inline int compare_placed(const void *one, const void *other) noexcept nogil:
    cdef const Placed *a = <const Placed *> one
    cdef const Placed *b = <const Placed *> other
    cdef const uint8_t *item_a
    cdef const uint8_t *item_b
    if a.storage != b.storage:
        return 1 if a.storage > b.storage else -1
    if a.prefix != b.prefix:
        return 1 if a.prefix > b.prefix else -1
    item_a, item_b = item_of(a.entry), item_of(b.entry)
    return compare_keys(item_a + KEY_AT, key_size_of(item_a), item_b + KEY_AT, key_size_of(item_b))


cdef inline void free_blocks(Block *block) noexcept nogil:
    cdef Block *before
    while block is not NULL:
        before = block.before
        free(block)
        block = before
