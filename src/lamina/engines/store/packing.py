"""Packing puts into the payloads of a session (log/packed.py). ``_packing.pyx`` is the compiled twin."""

from __future__ import annotations

from lamina.engines.store import codec
from lamina.log.packed import Packed

_UNSET = b"\xff" * 8
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


def stamp(packed: Packed, epoch: int, major: int, minor: int) -> tuple[int, int]:
    """Give the session an epoch, and entries whose major version is ``codec.MOST`` versions that count up, each larger
    than those before it in the session. Returns the next one."""
    payloads = list(packed)
    packed.data.clear()
    packed.length = 0
    for payload in payloads:
        if payload[0] == codec.BEGIN:
            payload = codec.begin(epoch)
        elif payload[9:17] == _UNSET:
            payload = payload[:9] + codec.pack_version((major, minor)) + payload[25:]
            minor += 1
        elif payload[0] != codec.END and (chosen := codec.version(payload[9:25])) >= (major, minor):
            major, minor = (chosen.major, chosen.minor + 1) if chosen.minor < codec.MOST else (chosen.major + 1, 0)
        packed.append(payload)
    return major, minor


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
