# What the RESP door reads records of entries with, without making anything of them in between.
from libc.stdint cimport uint8_t, uint64_t

cdef struct Items:
    const uint8_t *at
    const uint8_t *end
    uint64_t left

cdef int put_id(uint8_t *to, uint64_t ms, uint64_t sequence) noexcept nogil
cdef int begin_entry(Items *items, const uint8_t *data, Py_ssize_t size, uint64_t *ms, uint64_t *sequence) noexcept nogil
cdef Py_ssize_t take_bytes(Items *items) noexcept nogil
