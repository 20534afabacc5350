"""What the words of S.* commands mean: changes of a session, and ranges of keys."""

from __future__ import annotations

from typing import Final, NamedTuple

from lamina.engines.store.codec import ADD, CLEAR, DROP, MOST, PUT, REMOVE
from lamina.engines.store.entries import Change
from lamina.server.resp.session import Args, Refusal
from lamina.server.resp.store_past import Moment

SYNTAX: Final = b"ERR syntax error"
_NOT_A_NUMBER: Final = b"ERR value is not an integer or out of range"
_NO_STORAGE: Final = b"ERR a storage is a number from 0 to 18446744073709551615"
COUNT: Final = 100
"""Entries in one answer of S.SCAN, unless another number is asked for."""
MOST_COUNT: Final = 10_000
_MOST_WAIT_MS: Final = 10**13

_IN, _NOWAIT = -1, -2
_UNKNOWN: Final = (0, 1 << 62)
_MORE: Final = {b"put": 2, b"del": 1, b"clear": 0, b"add": 0, b"drop": 0, b"in": 1, b"nowait": 0}
_KINDS: Final = dict(zip(_MORE, (PUT, REMOVE, CLEAR, ADD, DROP, _IN, _NOWAIT), strict=True))
_WORDS: Final = {way(word): (_KINDS[word], more) for word, more in _MORE.items() for way in (bytes.lower, bytes.upper)}
"""What changes are called, as nearly everybody types it: their kinds, and how many words follow."""


def changes(args: Args) -> tuple[list[Change], bool]:
    """Of S.WRITE; and whether the answer has to wait. All words are looked at. Raises: Refusal."""
    current = storage(args[1])
    found: list[Change] = []
    pairs: list[tuple[bytes, bytes]] | None = None  # of the change before, if that puts entries here
    waits = True
    at, end = 2, len(args)
    while at < end:
        word = args[at]
        kind, more = _WORDS.get(word) or _WORDS.get(word.lower(), _UNKNOWN)
        following = at + 1 + more
        if following > end:
            raise Refusal(SYNTAX)
        if kind == PUT:
            if pairs is None:
                pairs = []
                found.append((PUT, current, pairs))
            pairs.append((args[at + 1], args[at + 2]))
        elif kind == _NOWAIT:
            waits = False
        elif kind == _IN:
            current, pairs = storage(args[at + 1]), None
        else:
            pairs = None
            found.append((kind, current, args[at + 1] if more else b""))
        at = following
    if not found:
        raise Refusal(SYNTAX)
    return found, waits


class Range(NamedTuple):
    """What S.SCAN goes through."""

    storage: int
    start: bytes
    end: bytes | None
    most: int
    """Entries in one answer."""
    moment: Moment | None
    is_full: bool = False
    """Versions and times, too."""


def scanned(args: Args) -> Range:
    """Raises: Refusal."""
    start, end, count, moment, is_full = b"", None, COUNT, None, False
    words = iter(args[2:])
    for word in words:
        option = word.lower()
        if option == b"full":
            is_full = True
            continue
        value = next(words, None)
        if value is None:
            raise Refusal(SYNTAX)
        if option == b"from":
            start = value
        elif option == b"to":
            end = value
        elif option == b"count":
            count = number(value)
            if not 1 <= count <= MOST_COUNT:
                raise Refusal(f"ERR COUNT is from 1 to {MOST_COUNT}")
        elif option == b"asof":
            moment = Moment.parse(value)
        else:
            raise Refusal(SYNTAX)
    return Range(storage(args[1]), start, end, count, moment, is_full)


def looked_at(args: Args, at: int) -> tuple[Moment | None, bool]:
    """``[ASOF moment] [FULL]`` from word ``at`` on. Raises: Refusal."""
    moment, is_full = None, False
    words = iter(args[at:])
    for word in words:
        option = word.lower()
        if option == b"full":
            is_full = True
        elif option == b"asof" and (value := next(words, None)) is not None:
            moment = Moment.parse(value)
        else:
            raise Refusal(SYNTAX)
    return moment, is_full


def waited(args: Args, at: int) -> float | None:
    """Seconds of ``[BLOCK milliseconds]`` from word ``at`` on; None: for ever. Raises: Refusal."""
    if len(args) == at:
        return None
    if len(args) != at + 2 or args[at].lower() != b"block":
        raise Refusal(SYNTAX)
    milliseconds = number(args[at + 1])
    if milliseconds >= _MOST_WAIT_MS:
        raise Refusal(_NOT_A_NUMBER)
    return milliseconds / 1000 if milliseconds else None


def storage(word: bytes) -> int:
    """Raises: Refusal."""
    return number(word, _NO_STORAGE)


def number(word: bytes, problem: bytes = _NOT_A_NUMBER) -> int:
    """A whole number of 64 bits without a sign. Raises: Refusal."""
    if not word.isdigit() or len(word) > 20 or int(word) > MOST:
        raise Refusal(problem)
    return int(word)
