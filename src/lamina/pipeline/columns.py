"""From the records of a batch to columns of Arrow, as plain buffers. The hot part of every read.

A batch is what a scan found: times, and where payloads are in a buffer (log/scan.py). Results are what Arrow lays out:
numbers in native order, and for bytes their 32-bit offsets and then the bytes. _columns.pyx is the compiled twin, made
by hand; tests hold the two equal. Here nothing of Arrow is needed.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from lamina.engines.topics.codec import ENTRY, BadRecord, Items

Buffer = bytes | bytearray | memoryview


class Strings(NamedTuple):
    """A column of bytes: offsets (one more than there are values) and the values one behind the other."""

    offsets: bytes
    values: bytes


class Topic(NamedTuple):
    """Records of a topic, taken apart. Of a record that is no entry: its first id, and no fields."""

    kinds: bytes
    """One byte each."""
    milliseconds: bytes
    sequences: bytes
    fields: bytes
    """Offsets into names and values."""
    names: Strings
    values: Strings
    is_text: bool
    """All names are UTF-8."""


class Entries(NamedTuple):
    """Entries of a store, taken apart; sessions' begins and ends are left out."""

    places: bytes
    """Which records of the batch these are."""
    kinds: bytes
    epochs: bytes
    storages: bytes
    majors: bytes
    minors: bytes
    keys: Strings
    values: Strings
    epoch: int
    """Of the session that is open behind the batch; 0: none is."""


def micros(times: array[int]) -> bytes:
    """Nanoseconds to microseconds, rounded down."""
    return array("q", (time_ns // 1000 for time_ns in times)).tobytes()


def without_marks(
    data: Buffer, times: array[int], offsets: array[int], lengths: array[int], watermark: bytes, gap: bytes
) -> tuple[array[int], array[int], array[int]]:
    """The records that are no marks of the kernel (log/formats.py): the very same columns if there is no mark."""
    sizes = (len(watermark) + 8, len(gap) + 8)
    stays = [
        number
        for number, (at, size) in enumerate(zip(offsets, lengths, strict=True))
        if size not in sizes or not _is_mark(bytes(data[at : at + size]), watermark, gap)
    ]
    if len(stays) == len(times):
        return times, offsets, lengths
    columns = (times, offsets, lengths)
    kept_times, kept_offsets, kept_lengths = (array("q", [column[at] for at in stays]) for column in columns)
    return kept_times, kept_offsets, kept_lengths


def _is_mark(payload: bytes, watermark: bytes, gap: bytes) -> bool:
    return any(len(payload) == len(prefix) + 8 and payload.startswith(prefix) for prefix in (watermark, gap))


def gather(data: Buffer, offsets: array[int], lengths: array[int]) -> Strings:
    """The payloads, one behind the other."""
    view = memoryview(data)
    return _strings([bytes(view[at : at + size]) for at, size in zip(offsets, lengths, strict=True)])


def positions(base: int, offsets: array[int], lengths: array[int]) -> bytes:
    """Where each record starts in its file: the window begins at ``base``, and the payload at its offset in there."""
    found = array("q")
    for at, size in zip(offsets, lengths, strict=True):
        found.append(base + at - 15 - max(1, (size.bit_length() + 6) // 7))
    return found.tobytes()


def topic(data: Buffer, offsets: array[int], lengths: array[int]) -> Topic:
    """Raises: BadRecord, with the number of the record as its second argument."""
    kinds = bytearray()
    milliseconds, sequences = array("Q"), array("Q")
    fields = array("i", [0])
    names: list[bytes] = []
    values: list[bytes] = []
    view = memoryview(data)
    for number, (at, size) in enumerate(zip(offsets, lengths, strict=True)):
        try:
            items = Items(bytes(view[at : at + size]))
            kind = items.number()
            first, second = items.number(), items.number()
            if kind == ENTRY:
                found = [items.bytes() for _ in range(items.left)]
                items.end()
                if len(found) % 2:
                    raise BadRecord("a field without a value")
                names += found[::2]
                values += found[1::2]
            elif kind > 4:
                raise BadRecord(f"there is no record of kind {kind}")
        except BadRecord as error:
            raise BadRecord(str(error), number) from None
        kinds.append(kind)
        milliseconds.append(first)
        sequences.append(second)
        fields.append(len(names))
    return Topic(
        bytes(kinds),
        milliseconds.tobytes(),
        sequences.tobytes(),
        fields.tobytes(),
        _strings(names),
        _strings(values),
        _is_text(names),
    )


_ENTRY = struct.Struct(">BQQQI")
_STORAGE = struct.Struct(">BQQQ")
_BEGIN = struct.Struct(">BQ")


def entries(data: Buffer, offsets: array[int], lengths: array[int], epoch: int) -> Entries:
    """``epoch``: of the session that is open in front of the batch; negative: not known, records are passed over until
    a session begins. Marks and the records of sorted files that are no entries are passed over.

    Raises: BadRecord, with the number of the record as its second argument.
    """
    places = array("q")
    kinds = bytearray()
    epochs, storages, majors, minors = array("q"), array("Q"), array("Q"), array("Q")
    keys: list[bytes] = []
    values: list[bytes] = []
    view = memoryview(data)
    for number, (at, size) in enumerate(zip(offsets, lengths, strict=True)):
        payload = bytes(view[at : at + size])
        kind = payload[0] if payload else 0
        try:
            if kind == 1:
                epoch = _BEGIN.unpack(payload)[1]
                if epoch >> 63:
                    raise BadRecord("an epoch that cannot be", number)
                continue
            if kind == 2:
                epoch = 0
                continue
            if epoch < 0 or 8 <= kind <= 10 or kind in (0x92, 0x93):
                continue
            key = value = b""
            if kind in (3, 4):
                _, storage, major, minor, key_size = _ENTRY.unpack_from(payload)
                key, value = payload[29 : 29 + key_size], payload[29 + key_size :]
                if len(key) < key_size or (kind == 4 and value):
                    raise BadRecord("a key does not fit into its entry", number)
            elif 5 <= kind <= 7:
                _, storage, major, minor = _STORAGE.unpack(payload)
            else:
                raise BadRecord(f"there is no entry of kind {kind}", number)
        except struct.error:
            raise BadRecord(f"an entry of kind {kind} cannot have {size} bytes", number) from None
        places.append(number)
        kinds.append(kind)
        epochs.append(epoch)
        storages.append(storage)
        majors.append(major)
        minors.append(minor)
        keys.append(key)
        values.append(value)
    return Entries(
        places.tobytes(),
        bytes(kinds),
        epochs.tobytes(),
        storages.tobytes(),
        majors.tobytes(),
        minors.tobytes(),
        _strings(keys),
        _strings(values),
        epoch,
    )


def _strings(values: Sequence[bytes]) -> Strings:
    offsets = array("i", [0])
    at = 0
    for value in values:
        at += len(value)
        offsets.append(at)
    return Strings(offsets.tobytes(), b"".join(values))


def _is_text(names: Sequence[bytes]) -> bool:
    try:
        for name in names:
            name.decode()
    except UnicodeDecodeError:
        return False
    return True


assert sys.byteorder in ("little", "big") and array("i").itemsize == 4
