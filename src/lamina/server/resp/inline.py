"""Inline commands: a line of words, as somebody types it into a terminal.

The rules are those of Redis, odd ones included. A quoted part ends its word, so ``a"b c"`` is the one word ``ab c`` and
``"a"b`` is an error. Six blanks stand between words, but only four of them end a word without quotes: a vertical tab or
a form feed inside one belongs to it.
"""

from __future__ import annotations

import re
from typing import Final

# Each part takes all it can and gives nothing back (``*+``): time is linear in the line whatever it holds.
_WORD: Final = re.compile(
    rb"""[ \t\n\v\f\r]*+
    (?P<plain> [^ \t\n\r"']*+ )
    (?:
        " (?P<double> [^"\\]*+ (?: \\. [^"\\]*+ )*+ ) " (?= [ \t\n\v\f\r] | \Z )
      | ' (?P<single> [^'\\]*+ (?: \\'? [^'\\]*+ )*+ ) ' (?= [ \t\n\v\f\r] | \Z )
      | (?! ["'] )
    )
    """,
    re.VERBOSE | re.DOTALL,
).match
_IS_ODD: Final = re.compile(rb"[\"'\v\f]").search
_ESCAPE: Final = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|(.))", re.DOTALL).sub
_MEANT: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def split(line: bytes) -> list[bytes] | None:
    """The words of ``line``, which has no line end and no zero byte in it; None if its quotes are not balanced."""
    if not _IS_ODD(line):
        return line.split()
    words: list[bytes] = []
    at = 0
    while at < len(line):
        match = _WORD(line, at)
        if match is None:
            return None
        plain, double, single = match.group("plain", "double", "single")
        if double is not None:
            words.append(plain + _ESCAPE(_meant, double))
        elif single is not None:
            words.append(plain + single.replace(b"\\'", b"'"))
        elif plain:  # without it, only blanks were left
            words.append(plain)
        at = match.end()
    return words


def _meant(escape: re.Match[bytes]) -> bytes:
    digits, letter = escape.groups()
    return bytes.fromhex(digits.decode()) if digits else _MEANT.get(letter, letter)
