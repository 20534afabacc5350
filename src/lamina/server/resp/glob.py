r"""Patterns of names, as KEYS, SCAN, CONFIG GET and COMMAND LIST take them.

``*`` any bytes, ``?`` one byte, ``[abc]`` ``[a-c]`` ``[^a]`` one of these or none of them, ``\`` takes the next byte as
it is. Redis gives every sequence of bytes a meaning and never an error; the corners are here as they are there: a class
that is not closed ends with the pattern, ``[]`` fits nothing, the ends of a range may be in either order and are signed
bytes, and no pattern with a star fits the empty name, except ``*`` alone, for which Redis asks for no match at all.

Time: what stands between two stars is looked for once, from left to right, and stays where it is first found: another
place further right could only leave less for the rest. So ``a*a*a*a*b`` takes the length of the name times that of the
pattern at worst.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_Part = bytes | tuple[bytes, ...]
"""Without stars: bytes as they are, or for every place the bytes that fit there."""

_ANY: Final = bytes(range(256))
_ONE: Final = [bytes((byte,)) for byte in range(256)]


def compile_glob(pattern: bytes, *, ignore_case: bool = False) -> Callable[[bytes], bool]:
    """What tells whether a name fits ``pattern``."""
    if pattern == b"*":
        return lambda name: True
    parts = _parse(pattern, ignore_case)
    if len(parts) == 1:
        only = parts[0]
        return lambda name: len(name) == len(only) and _fits(only, name, 0)
    return lambda name: _fits_all(parts, name)


def matches(pattern: bytes, name: bytes, *, ignore_case: bool = False) -> bool:
    return compile_glob(pattern, ignore_case=ignore_case)(name)


# -- matching ------------------------------------------------------------------------------------------------------


def _fits_all(parts: list[_Part], name: bytes) -> bool:
    """The first part at the begin, the last one at the end, the others between them in order."""
    first, last = parts[0], parts[-1]
    place, end = len(first), len(name) - len(last)
    if not name or place > end or not (_fits(first, name, 0) and _fits(last, name, end)):
        return False
    for part in parts[1:-1]:
        place = _find(part, name, place, end)
        if place < 0:
            return False
        place += len(part)
    return True


def _fits(part: _Part, name: bytes, place: int) -> bool:
    if isinstance(part, bytes):
        return name.startswith(part, place)
    return all(name[place + offset] in allowed for offset, allowed in enumerate(part))


def _find(part: _Part, name: bytes, start: int, end: int) -> int:
    """Where ``part`` is first, whole, between ``start`` and ``end``; -1: nowhere."""
    if isinstance(part, bytes):
        return name.find(part, start, end)
    return next((place for place in range(start, end - len(part) + 1) if _fits(part, name, place)), -1)


# -- parsing -------------------------------------------------------------------------------------------------------


def _parse(pattern: bytes, ignore_case: bool) -> list[_Part]:
    """What is between the stars; a run of stars is one."""
    runs: list[list[bytes]] = [[]]
    place, was_star = 0, False
    while place < len(pattern):
        byte = pattern[place]
        is_star = byte == 0x2A
        if is_star:
            if not was_star:
                runs.append([])
            place += 1
        elif byte == 0x3F:
            runs[-1].append(_ANY)
            place += 1
        elif byte == 0x5B:
            allowed, place = _class(pattern, place + 1, ignore_case)
            runs[-1].append(allowed)
        else:
            if byte == 0x5C and place + 1 < len(pattern):
                place += 1
            runs[-1].append(_both_cases(pattern[place]) if ignore_case else _ONE[pattern[place]])
            place += 1
        was_star = is_star
    return [b"".join(run) if all(len(allowed) == 1 for allowed in run) else tuple(run) for run in runs]


def _class(pattern: bytes, place: int, ignore_case: bool) -> tuple[bytes, int]:
    """What fits the class that begins at ``place``, behind its bracket; and the place behind it."""
    is_none_of = pattern[place : place + 1] == b"^"
    place += is_none_of
    named: set[int] = set()
    while place < len(pattern) and pattern[place] != 0x5D:
        if pattern[place] == 0x5C and place + 1 < len(pattern):
            named.add(pattern[place + 1])  # Redis takes this one as it is, whatever becomes of the case of others
            place += 2
        elif pattern[place + 1 : place + 2] == b"-" and place + 2 < len(pattern):
            named.update(_range(pattern[place], pattern[place + 2], ignore_case))
            place += 3
        else:
            named.update(_both_cases(pattern[place]) if ignore_case else _ONE[pattern[place]])
            place += 1
    allowed = bytes(byte for byte in range(256) if (byte in named) != is_none_of)
    return allowed, place + 1


def _range(one: int, other: int, ignore_case: bool) -> set[int]:
    least, most = sorted((_signed(one), _signed(other)))
    if not ignore_case:
        return {value & 0xFF for value in range(least, most + 1)}
    low, high = _lower(least & 0xFF), _lower(most & 0xFF)  # in this order: [Z-a] then ends before it begins
    return {byte for byte in range(256) if _signed(low) <= _signed(_lower(byte)) <= _signed(high)}


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _lower(byte: int) -> int:
    return byte + 32 if 65 <= byte <= 90 else byte


def _both_cases(byte: int) -> bytes:
    return bytes({*_ONE[byte].lower(), *_ONE[byte].upper()})
