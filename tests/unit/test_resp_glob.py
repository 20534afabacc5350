"""Patterns of names: as Redis has them, corners and all, and never slow."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration.redis_peer import MISSING, PROGRAM, RedisPeer
from integration.resp_wire import Wire
from lamina.server.resp.glob import compile_glob, matches

TABLE: list[tuple[bytes, bytes, bool]] = [
    (b"", b"", True),
    (b"", b"a", False),
    (b"abc", b"abc", True),
    (b"abc", b"abcd", False),
    (b"*", b"", True),
    (b"**", b"", False),
    (b"*", b"a\r\n\0", True),
    (b"a*", b"a", True),
    (b"a*", b"ba", False),
    (b"*a", b"ba", True),
    (b"*a*", b"a", True),
    (b"a*a", b"a", False),
    (b"a**b", b"ab", True),
    (b"a*bc*d", b"aXbcYbcZd", True),
    (b"?", b"", False),
    (b"h?llo", b"hello", True),
    (b"h[ae]llo", b"hallo", True),
    (b"h[^e]llo", b"hello", False),
    (b"h[a-c]llo", b"hbllo", True),
    (b"h[c-a]llo", b"hbllo", True),
    (b"\\*", b"*", True),
    (b"\\*", b"a", False),
    (b"a\\", b"a\\", True),
    (b"[\\]]", b"]", True),
    (b"[\\^]", b"^", True),
    (b"[]", b"]", False),
    (b"[^]", b"x", True),
    (b"[]a]", b"a", False),
    (b"[ab", b"b", True),
    (b"[", b"[", False),
    (b"[^", b"a", True),
    (b"[a-", b"-", True),
    (b"[a-]", b"]", True),
    (b"[a-]", b"^", True),
    (b"[a-\xff]", b"b", False),
    (b"[a-\xff]", b"A", True),
    (b"[\x80-\xff]", b"\xf0", True),
]


@pytest.mark.parametrize(("pattern", "name", "fits"), TABLE)
def test_a_pattern_fits_what_it_fits_in_redis(pattern: bytes, name: bytes, fits: bool) -> None:
    assert matches(pattern, name) is fits


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        (b"MaxC*", b"maxclients", True),
        (b"[A-C]x", b"bX", True),
        (b"[abc]", b"C", True),
        (b"[\\A]", b"a", False),
        (b"[Z-a]", b"z", False),
        (b"\xc4", b"\xe4", False),
    ],
)
def test_the_case_of_letters_is_ignored_when_asked_to(pattern: bytes, name: bytes, fits: bool) -> None:
    assert matches(pattern, name, ignore_case=True) is fits


def reference(pattern: bytes, name: bytes, ignore_case: bool) -> bool:
    """The meaning of a pattern, written down as simply as it can be; takes for ever where there are many stars."""
    if pattern == b"*":
        return True
    if not name:
        return not pattern
    return simple(pattern, name, ignore_case)


def simple(pattern: bytes, name: bytes, ignore_case: bool) -> bool:
    if not pattern:
        return not name
    head, tail = pattern[:1], pattern[1:]
    if head == b"*":
        return any(simple(tail, name[skipped:], ignore_case) for skipped in range(len(name) + 1))
    if not name:
        return False
    if head == b"?":
        return simple(tail, name[1:], ignore_case)
    if head == b"[":
        is_in, tail = in_class(tail, name[0], ignore_case)
        return is_in and simple(tail, name[1:], ignore_case)
    if head == b"\\" and tail:
        head, tail = tail[:1], tail[1:]
    same = head.lower() == name[:1].lower() if ignore_case else head == name[:1]
    return same and simple(tail, name[1:], ignore_case)


def in_class(rest: bytes, byte: int, ignore_case: bool) -> tuple[bool, bytes]:
    """Whether ``byte`` is in the class that begins with ``rest``, and what is behind the class."""
    fold = (lambda one: bytes((one,)).lower()[0]) if ignore_case else (lambda one: one)
    negated = rest.startswith(b"^")
    rest = rest[1:] if negated else rest
    found = False
    while rest and rest[:1] != b"]":
        if rest[:1] == b"\\" and len(rest) > 1:
            found, rest = found or rest[1] == byte, rest[2:]
        elif rest[1:2] == b"-" and len(rest) > 2:
            least, most = sorted((rest[0], rest[2]), key=signed)
            found, rest = found or signed(fold(least)) <= signed(fold(byte)) <= signed(fold(most)), rest[3:]
        else:
            found, rest = found or fold(rest[0]) == fold(byte), rest[1:]
    return found is not negated, rest[1:]


def signed(byte: int) -> int:
    return int.from_bytes(bytes((byte,)), "big", signed=True)


LETTERS = [b"a", b"b", b"B", b"-", b"^", b"]", b"[", b"*", b"?", b"\\", b"\xff", b"\x80"]
PATTERNS = st.lists(st.sampled_from(LETTERS), max_size=9).map(b"".join)
NAMES = st.lists(st.sampled_from(LETTERS), max_size=7).map(b"".join)


@given(PATTERNS, NAMES, st.booleans())
def test_any_pattern_fits_what_the_simple_meaning_says(pattern: bytes, name: bytes, ignore_case: bool) -> None:
    assert matches(pattern, name, ignore_case=ignore_case) is reference(pattern, name, ignore_case)


@given(st.binary(max_size=300))
def test_any_name_fits_itself_when_every_byte_is_taken_as_it_is(name: bytes) -> None:
    assert matches(b"".join(b"\\%c" % byte for byte in name), name)


@pytest.mark.parametrize("star", [b"a*", b"[ab]*", b"*?*"])
@pytest.mark.parametrize("ignore_case", [False, True])
def test_a_pattern_of_many_stars_takes_no_time(star: bytes, ignore_case: bool) -> None:
    fits = compile_glob(star * 100 + b"x", ignore_case=ignore_case)
    started = time.process_time()
    assert not fits(b"a" * 5000)
    assert not fits(b"a" * 5000 + b"xy")
    assert time.process_time() - started < 1


@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
def test_redis_fits_the_same_names() -> None:
    """KEYS of many patterns, against names of all kinds; CONFIG GET would not tell a name from a pattern."""
    chance = random.Random(7)
    names = sorted({b"".join(chance.choices(LETTERS, k=chance.randint(0, 5))) for _ in range(300)})
    patterns = [b"".join(chance.choices(LETTERS, k=chance.randint(0, 7))) for _ in range(2000)]
    patterns += [pattern for pattern, _, _ in TABLE]
    with RedisPeer() as peer, Wire(peer.port) as wire:
        wire.ask_all([("XADD", name, "1-1", "a", "b") for name in names])
        told = wire.ask_all([("KEYS", pattern) for pattern in patterns])
    for pattern, found in zip(patterns, told, strict=True):
        assert sorted(found) == list(filter(compile_glob(pattern), names)), pattern
