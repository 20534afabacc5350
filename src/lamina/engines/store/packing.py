"""Packing puts into the payloads of a session (log/packed.py). ``_packing.pyx`` is the compiled twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamina.engines.store import codec
from lamina.log.packed import Packed

if TYPE_CHECKING:
    from lamina.engines.store.entries import Change

_UNSET = b"\xff" * 8
_NO_PAIR = "pairs are tuples of two bytes"
_NO_BYTES = "keys and values are bytes"


def measure(changes: list[Change]) -> tuple[int, int, int]:
    """How many entries they are, bytes of all keys and values, and those of the largest entry. Raises: TypeError."""
    sizes: list[int] = []
    for kind, _, what in changes:
        if kind == codec.PUT:
            sizes += [len(key) + len(value) for key, value in _pairs(what)]
        elif type(what) is bytes:
            sizes.append(len(what))
        else:
            raise TypeError(_NO_BYTES)
    return len(sizes), sum(sizes), max(sizes, default=0)


def sessions(epoch: int, changes: list[list[Change]], major: int, minor: int) -> Packed:
    """Whole sessions, begin and end of each marked, with versions that count up from (major, minor).

    Raises: TypeError.
    """
    packed = Packed()
    for each in changes:
        packed.append(codec.begin(epoch))
        first = minor
        for kind, storage, what in each:
            if kind == codec.PUT:
                put_many(packed, storage, _pairs(what), major, minor)
                minor += len(what)
                continue
            if type(what) is not bytes:
                raise TypeError(_NO_BYTES)
            if kind == codec.REMOVE:
                packed.append(codec.remove(storage, what, major, minor))
            else:
                packed.append(codec.about_storage(kind, storage, major, minor))
            minor += 1
        packed.append(codec.end(epoch, minor - first))
    return packed


def _pairs(what: object) -> list[tuple[bytes, bytes]]:
    if type(what) is not list:
        raise TypeError(_NO_PAIR)
    size_of(what, 1 << 62)
    return what


def put(packed: Packed, storage: int, key: bytes, value: bytes, major: int, minor: int) -> None:
    """Pack a put. Raises: TypeError, and nothing was packed."""
    if type(key) is not bytes or type(value) is not bytes:
        raise TypeError(_NO_BYTES)
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
