"""Packing puts into the payloads of a session (log/packed.py). ``_packing.pyx`` is the compiled twin."""

from __future__ import annotations

from lamina.engines.store import codec
from lamina.log.packed import Packed

_NO_PAIR = "pairs are tuples of two bytes"


def put(packed: Packed, storage: int, key: bytes, value: bytes, major: int, minor: int) -> None:
    """Pack a put. Raises: TypeError, and nothing was packed."""
    if type(key) is not bytes or type(value) is not bytes:
        raise TypeError("keys and values are bytes")
    packed.append(codec.put(storage, key, value, major, minor))


def put_many(packed: Packed, storage: int, pairs: list[tuple[bytes, bytes]], major: int, minor: int) -> None:
    """Pack puts with versions that count up from (major, minor). Raises: TypeError, and nothing was packed."""
    size_of(pairs, 1 << 62)
    for number, (key, value) in enumerate(pairs):
        packed.append(codec.put(storage, key, value, major, minor + number))


def size_of(pairs: list[tuple[bytes, bytes]], largest: int) -> int:
    """Bytes of all keys and values; -1 if one pair has more than ``largest``. Raises: TypeError."""
    total = 0
    for pair in pairs:
        if type(pair) is not tuple or len(pair) != 2 or any(type(each) is not bytes for each in pair):
            raise TypeError(_NO_PAIR)
        size = len(pair[0]) + len(pair[1])
        if size > largest:
            return -1
        total += size
    return total
