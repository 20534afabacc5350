# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of table.py, which says what everything promises; tests hold the two equal.

Items lie in blocks of memory, one behind the other, found through slots of an open hash table. So they are taken
without the interpreter's lock: an epoch becomes visible while others go on writing. The lock of the view keeps readers
away meanwhile; a table that is sealed does not change any more, and may be read by all.

Nothing looks behind the end of what it is given.
"""

import threading

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memset

from lamina.engines.store._entry cimport *

from lamina.engines.store import codec
from lamina.engines.store.codec import BadRecord
from lamina.engines.store.fold import Fold
from lamina.engines.store.storages import Storages


cdef class Table:
    cdef public object storages
    cdef uint8_t _highest[VERSION_SIZE]
    cdef Entry **_slots
    cdef size_t _mask
    cdef size_t _count
    cdef Block *_block
    cdef size_t _used  # bytes of all items
    cdef size_t _dead  # of those, bytes of items that newer ones took the place of
    cdef Placed *_order
    cdef bint _is_ordered  # the order is that of all entries, where they are now
    cdef object _ordering

    def __cinit__(self):
        self._slots = <Entry **> calloc(FEWEST, sizeof(Entry *))
        if self._slots is NULL:
            raise MemoryError
        self._mask = FEWEST - 1

    def __init__(self):
        self.storages = Storages()
        self._ordering = threading.Lock()

    def __dealloc__(self):
        free_blocks(self._block)
        free(self._slots)
        free(self._order)

    def __len__(self):
        return self._count

    @property
    def highest(self):
        return PyBytes_FromStringAndSize(<char *> self._highest, VERSION_SIZE)

    # -- taking entries ----------------------------------------------------------------------------------------------

    def fold(
        self,
        data,
        const int64_t[::1] times,
        const int64_t[::1] offsets,
        const int64_t[::1] lengths,
        fold,
        Py_ssize_t start=0,
    ):
        cdef const uint8_t[::1] view = data
        cdef Py_ssize_t count = times.shape[0], at = start, offset, size, limit = view.shape[0]
        cdef const uint8_t *base = &view[0] if limit else NULL
        cdef const uint8_t *payload
        cdef uint64_t epoch = fold.epoch, newest = fold.newest_epoch, number
        cdef uint64_t entries = fold.entries, taken = 0
        cdef bint counts = fold.counts
        cdef int kind = BAD, problem = 0, waits = 0
        cdef Waiting waiting[AHEAD]
        if offsets.shape[0] != count or lengths.shape[0] != count:
            raise ValueError("columns of different lengths")
        try:
            while at < count:
                with nogil:  # through puts and removes
                    while at < count:
                        offset, size = offsets[at], lengths[at]
                        if offset < 0 or size < 0 or offset > limit - size:
                            problem = 1
                            break
                        payload = base + offset
                        if size and (payload[0] == WATERMARK or payload[0] == GAP):
                            at += 1
                            continue
                        kind = kind_of(payload, size)
                        if kind != PUT and kind != REMOVE or epoch == 0:
                            break
                        if counts:
                            waiting[waits].payload, waiting[waits].size = payload, size
                            waiting[waits].time_ns = <uint64_t> times[at]
                            waits += 1
                            if waits == AHEAD:
                                if self._put_all(waiting, waits) < 0:
                                    problem = 2
                                    break
                                waits = 0
                            taken += 1
                        entries += 1
                        at += 1
                    if problem == 0 and self._put_all(waiting, waits) < 0:
                        problem = 2
                    waits = 0
                if problem == 1:
                    raise ValueError("outside of the buffer")
                if problem == 2:
                    raise MemoryError
                if at == count:
                    break
                if kind == BEGIN:
                    number = big(payload + 1, 8)
                    if epoch != 0 or number == 0 or number < newest:
                        break
                    fold.records += at - start  # what a message about this session would name
                    start = at
                    fold.begins(number)
                    epoch = newest = number
                    counts = fold.counts
                    entries = 0
                elif kind == END:
                    number = big(payload + 1, 8)
                    if number == 0 or number != epoch or big(payload + 9, 4) != entries:
                        break
                    fold.entries = entries
                    fold.ends(number, entries)
                    epoch = 0
                elif kind >= CLEAR and epoch != 0:
                    entries += 1
                    if counts:
                        taken += 1
                        self._take_storage(payload, kind)
                else:
                    break
                at += 1
        finally:
            fold.entries = entries
            fold.taken += taken
            fold.records += at - start
        return at

    def take(self, sessions):
        cdef bytearray data
        cdef list held = []  # so that nothing of it goes away meanwhile
        cdef Taken *taken
        cdef Py_ssize_t count = 0
        cdef int problem
        for first_ns, packed in sessions:
            held.append((first_ns, packed.data))
        taken = <Taken *> malloc(len(held) * sizeof(Taken) + 1)
        if taken is NULL:
            raise MemoryError
        try:
            for first_ns, data in held:
                taken[count].start = <const uint8_t *> PyByteArray_AS_STRING(data)
                taken[count].size = PyByteArray_GET_SIZE(data)
                taken[count].time_ns = first_ns
                count += 1
            with nogil:
                problem = self._take(taken, count)
            if problem == 1:
                raise BadRecord("not an entry of a store")
            if problem == 2:
                raise MemoryError
        finally:
            free(taken)

    cdef int _take(self, Taken *taken, Py_ssize_t count) noexcept nogil:
        """0; 1: a payload is none of the store's; 2: there is no memory."""
        cdef Py_ssize_t number, left, size
        cdef const uint8_t *payload
        cdef uint64_t time_ns
        cdef int kind
        cdef Waiting waiting[AHEAD]
        cdef int waits = 0
        for number in range(count):
            payload, left, time_ns = taken[number].start, taken[number].size, taken[number].time_ns
            while left > 0:
                size = <Py_ssize_t> big(payload, 4) if left >= 4 else left
                if left < 4 or size > left - 4:
                    return 1
                payload += 4
                kind = kind_of(payload, size)
                if kind == PUT or kind == REMOVE:
                    waiting[waits].time_ns, waiting[waits].payload, waiting[waits].size = time_ns, payload, size
                    waits += 1
                    if waits == AHEAD:
                        if self._put_all(waiting, waits) < 0:
                            return 2
                        waits = 0
                elif kind >= CLEAR:
                    with gil:
                        self._take_storage(payload, kind)
                elif kind == BAD:
                    return 1
                payload += size
                left -= 4 + size
                time_ns += 1
        return 2 if self._put_all(waiting, waits) < 0 else 0

    cdef int _put_all(self, Waiting *waiting, int count) noexcept nogil:
        """Several at once: what each needs from memory is asked for before the first is waited for."""
        cdef int number
        cdef Py_ssize_t key_size
        cdef const uint8_t *payload
        cdef Entry *entry
        cdef Waiting *one
        for number in range(count):
            payload = waiting[number].payload
            key_size = <Py_ssize_t> big(payload + ENTRY_SIZE - 4, 4)
            waiting[number].hash = hash_of(payload + 1, payload + ENTRY_SIZE, key_size)
            prefetch(&self._slots[waiting[number].hash & self._mask])
        for number in range(count):
            entry = self._slots[waiting[number].hash & self._mask]
            if entry is not NULL:
                prefetch(entry)
                prefetch(<uint8_t *> entry + 64)
        for number in range(count):
            one = &waiting[number]
            if self._put(one.time_ns, one.payload, one.size, one.hash) < 0:
                return -1
        return 0

    cdef int _take_storage(self, const uint8_t *payload, int kind) except -1:
        cdef bytes version = PyBytes_FromStringAndSize(<char *> payload + 9, VERSION_SIZE)
        self.storages.take(kind, big(payload + 1, 8), version)
        self._note(payload + 9)
        return 0

    cdef void _note(self, const uint8_t *version) noexcept nogil:
        if memcmp(version, self._highest, VERSION_SIZE) > 0:
            memcpy(self._highest, version, VERSION_SIZE)

    cdef int _put(self, uint64_t time_ns, const uint8_t *payload, Py_ssize_t size, uint32_t hashed) noexcept nogil:
        """Take a put or remove whose sizes fit. -1: there is no memory."""
        cdef const uint8_t *key = payload + ENTRY_SIZE
        cdef uint32_t key_size = <uint32_t> big(payload + ENTRY_SIZE - 4, 4)
        cdef Entry **slot = self._find(hashed, payload + 1, key, key_size)
        cdef Entry *entry = slot[0]
        cdef Entry *before = entry
        cdef uint8_t *to
        self._note(payload + 9)
        if before is not NULL and memcmp(payload + 9, item_of(before) + VERSION_AT, VERSION_SIZE) < 0:
            return 0
        if before is NULL or room_of(before.size) != room_of(TIME_SIZE + size):
            entry = self._room(TIME_SIZE + size)
            if entry is NULL:
                return -1
            self._is_ordered = False
            if before is not NULL:
                self._dead += room_of(before.size)
        entry.size = <uint32_t> (TIME_SIZE + size)
        entry.hash = hashed
        to = item_of(entry)
        put_big(to, time_ns, 8)
        memcpy(to + TIME_SIZE, payload, size)
        slot[0] = entry
        if before is NULL:
            self._count += 1
            if self._count * 3 > (self._mask + 1) * 2:
                return self._grow()
        elif self._dead > BLOCK and self._dead * 2 > self._used:
            return self._tidy()
        return 0

    cdef Entry **_find(self, uint32_t hashed, const uint8_t *storage, const uint8_t *key, uint32_t size) noexcept nogil:
        """The slot of a place, an empty one if it is not there."""
        cdef size_t at = hashed & self._mask
        cdef Entry *entry
        cdef const uint8_t *item
        while True:
            entry = self._slots[at]
            if entry is NULL:
                return &self._slots[at]
            if entry.hash == hashed:
                item = item_of(entry)
                if (
                    key_size_of(item) == size
                    and memcmp(item + TIME_SIZE + 1, storage, 8) == 0
                    and memcmp(item + KEY_AT, key, size) == 0
                ):
                    return &self._slots[at]
            at = (at + 1) & self._mask

    cdef int _grow_for(self, size_t count) noexcept nogil:
        while count * 3 > (self._mask + 1) * 2:
            if self._grow() < 0:
                return -1
        return 0

    cdef int _grow(self) noexcept nogil:
        cdef size_t mask = 2 * self._mask + 1, at, to
        cdef Entry **slots = <Entry **> calloc(mask + 1, sizeof(Entry *))
        if slots is NULL:
            return -1
        for at in range(self._mask + 1):
            if self._slots[at] is not NULL:
                to = self._slots[at].hash & mask
                while slots[to] is not NULL:
                    to = (to + 1) & mask
                slots[to] = self._slots[at]
        free(self._slots)
        self._slots, self._mask = slots, mask
        return 0

    cdef Entry *_room(self, size_t item_size) noexcept nogil:
        cdef size_t size = room_of(item_size), block_size
        cdef Block *block = self._block
        if block is NULL or block.size - block.used < size:
            block_size = BLOCK if size <= BLOCK else size
            block = <Block *> malloc(sizeof(Block) + block_size)
            if block is NULL:
                return NULL
            block.size, block.used, block.before = block_size, 0, self._block
            self._block = block
        block.used += size
        self._used += size
        return <Entry *> (<uint8_t *> block + sizeof(Block) + block.used - size)

    cdef int _tidy(self) noexcept nogil:
        """Move what is alive to new blocks, and let the old ones go."""
        cdef Block *old = self._block
        cdef size_t used = self._used, dead = self._dead, at
        cdef Entry *entry
        self._block, self._used, self._dead = NULL, 0, 0
        self._is_ordered = False
        for at in range(self._mask + 1):
            if self._slots[at] is not NULL:
                entry = self._room(self._slots[at].size)
                if entry is NULL:  # both are there: nothing is lost
                    return self._put_back(old, used, dead)
                memcpy(entry, self._slots[at], sizeof(Entry) + self._slots[at].size)
                self._slots[at] = entry
        free_blocks(old)
        return 0

    cdef int _put_back(self, Block *old, size_t used, size_t dead) noexcept nogil:
        cdef Block *last = self._block
        if last is NULL:
            self._block = old
        else:
            while last.before is not NULL:
                last = last.before
            last.before = old
        self._used += used
        self._dead += dead
        return -1

    def put_item(self, bytes place not None, bytes item not None):
        cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(item)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(item)
        cdef int kind = kind_of(start + TIME_SIZE, size - TIME_SIZE) if size > TIME_SIZE else BAD
        cdef uint8_t highest[VERSION_SIZE]
        if (kind != PUT and kind != REMOVE) or codec.place_of(item) != place:
            raise ValueError("this is no item of that place")
        memcpy(highest, self._highest, VERSION_SIZE)
        if self._put_item(start, size) < 0:
            raise MemoryError
        memcpy(self._highest, highest, VERSION_SIZE)

    def with_newer(self, Table newer not None):
        cdef Table both = Table()
        cdef bint is_full
        both.storages = newer.storages
        with nogil:
            # Room for all first: put in the order of the old slots, they would crowd in a smaller table.
            is_full = both._grow_for(self._count + newer._count) < 0 or both._add(self) < 0 or both._add(newer) < 0
        if is_full:
            raise MemoryError
        both._note(self._highest)
        both._note(newer._highest)
        return both

    cdef int _add(self, Table other) noexcept nogil:
        cdef size_t at
        cdef Entry *entry
        for at in range(other._mask + 1):
            entry = other._slots[at]
            if entry is not NULL and self._put_item(item_of(entry), entry.size) < 0:
                return -1
        return 0

    cdef int _put_item(self, const uint8_t *item, Py_ssize_t size) noexcept nogil:
        cdef uint32_t hashed = hash_of(item + TIME_SIZE + 1, item + KEY_AT, key_size_of(item))
        return self._put(big(item, 8), item + TIME_SIZE, size - TIME_SIZE, hashed)

    # -- looking -----------------------------------------------------------------------------------------------------

    def find(self, bytes place not None):
        cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(place)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(place) - 8
        cdef Entry *entry
        if size < 0:
            return None
        entry = self._find(hash_of(start, start + 8, size), start, start + 8, <uint32_t> size)[0]
        return None if entry is NULL else PyBytes_FromStringAndSize(<char *> item_of(entry), entry.size)

    cdef int _put_in_order(self) except -1:
        cdef Placed *order
        cdef size_t at, to = 0
        cdef const uint8_t *item
        with self._ordering:
            if self._is_ordered:
                return 0
            order = <Placed *> realloc(self._order, (self._count + 1) * sizeof(Placed))
            if order is NULL:
                raise MemoryError
            self._order = order
            with nogil:
                for at in range(self._mask + 1):
                    if self._slots[at] is not NULL:
                        item = item_of(self._slots[at])
                        order[to].storage = big(item + TIME_SIZE + 1, 8)
                        order[to].prefix = prefix_of(item + KEY_AT, key_size_of(item))
                        order[to].entry = self._slots[at]
                        to += 1
                qsort(order, to, sizeof(Placed), compare_placed)
            self._is_ordered = True
        return 0

    cdef size_t _number(self, bytes place) except? 0:
        """Of the first entry at ``place`` or behind."""
        cdef size_t low = 0, high = self._count, middle
        cdef bytes padded = place.ljust(8, b"\0")
        cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(padded)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(padded) - 8
        cdef uint64_t storage = big(start, 8)
        cdef const uint8_t *item
        cdef bint is_before
        while low < high:
            middle = (low + high) // 2
            if self._order[middle].storage != storage:
                is_before = self._order[middle].storage < storage
            else:
                item = item_of(self._order[middle].entry)
                is_before = compare_keys(item + KEY_AT, key_size_of(item), start + 8, size) < 0
            if is_before:
                low = middle + 1
            else:
                high = middle
        return low

    cdef bytes _place(self, size_t number):
        cdef const uint8_t *item = item_of(self._order[number].entry)
        cdef uint32_t size = key_size_of(item)
        cdef bytes place = PyBytes_FromStringAndSize(NULL, 8 + size)
        memcpy(PyBytes_AS_STRING(place), item + TIME_SIZE + 1, 8)
        memcpy(PyBytes_AS_STRING(place) + 8, item + KEY_AT, size)
        return place

    cdef bytes _item(self, size_t number):
        cdef Entry *entry = self._order[number].entry
        return PyBytes_FromStringAndSize(<char *> item_of(entry), entry.size)

    def between(self, start=b"", end=None):
        self._put_in_order()
        first = self._number(start)
        return first, max(first, self._count if end is None else self._number(end))

    def columns(self, size_t start, size_t end):
        cdef size_t number
        cdef list places = [], items = []
        self._put_in_order()
        for number in range(start, min(end, self._count)):
            places.append(self._place(number))
            items.append(self._item(number))
        return places, items

    def sample(self, count):
        length = len(self)
        numbers = range(0, length, max(length // count, 1))[:count]
        return [self.columns(number, number + 1)[0][0] for number in numbers]

    def walk(self, start=b"", end=None):
        number, last = self.between(start, end)
        while number < last:
            until = min(number + 256, last)
            yield from zip(*self.columns(number, until))
            number = until

    @property
    def bytes(self):
        return self._used - self._dead + AROUND * self._count
