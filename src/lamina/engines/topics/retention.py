"""How long a topic keeps its entries: limits, and the text that people write them in.

    age:7d,bytes:10GiB,length:1000000,acknowledged,hold:30d        keep        (keep everything)

A file goes as soon as any limit says so, unless a group still needs entries of it, or a consumer of the log its records
(log/consumers.py). Rejected: to keep a file while any
limit allows it. Then the loosest limit would rule, and no other would bound anything.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lamina.errors import BadOption
from lamina.units import GIB, KIB, MIB, parse_bytes, parse_duration

KEEP: Final = "keep"
_HINT: Final = "write age:7d,bytes:10GiB,length:1000000,acknowledged,hold:30d (any of them), or keep"
_PIECES: Final = 4  # files that a limit is spread over, at least: so much finer than the limit itself it is kept
_SMALLEST: Final = 64 * KIB  # a file is not sealed for its size below this
_FEWEST: Final = 1000  # nor for its records


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """Limits of one topic; None: no such limit."""

    age_s: float | None = None
    """What was written longer ago may go. Counted from when it was written, whatever id it has."""
    bytes: int | None = None
    """All files together may have so many."""
    length: int | None = None
    """More entries than these need not be kept."""
    acknowledged: bool = False
    """What all groups have acknowledged may go; as long as there is no group, nothing does."""
    hold_s: float | None = None
    """So long a group nobody of which is seen keeps what it has not acknowledged; None: for ever."""

    def __post_init__(self) -> None:
        for name, value in (("age", self.age_s), ("bytes", self.bytes), ("length", self.length), ("hold", self.hold_s)):
            if value is not None and not value >= 0:
                raise BadOption(f"{name}:{value} cannot be", hint="give what is not below 0", option=name)

    @property
    def has_limits(self) -> bool:
        """Something may go that clients did not take away themselves."""
        return self.acknowledged or any(limit is not None for limit in (self.age_s, self.bytes, self.length))

    def wants_seal(self, size: int, records: int, age_s: float) -> bool:
        """The newest file should not grow on, so that it can go when its time has come: only sealed files do."""
        return (
            (self.age_s is not None and age_s * _PIECES >= self.age_s)
            or (self.bytes is not None and size >= max(self.bytes // _PIECES, _SMALLEST))
            or (self.length is not None and records >= max(self.length // _PIECES, _FEWEST))
        )

    def __str__(self) -> str:
        """As ``parse`` takes it."""
        words = [
            None if self.age_s is None else f"age:{_show_seconds(self.age_s)}",
            None if self.bytes is None else f"bytes:{_show_size(self.bytes)}",
            None if self.length is None else f"length:{self.length}",
            "acknowledged" if self.acknowledged else None,
            None if self.hold_s is None else f"hold:{_show_seconds(self.hold_s)}",
        ]
        return ",".join(word for word in words if word is not None) or KEEP


def parse(text: str) -> Retention:
    """``age:7d,bytes:10GiB`` and so on, in any order. Raises: BadOption."""
    words = [word.strip() for word in text.split(",")]
    if words == [KEEP]:
        return Retention()
    given: dict[str, str] = {}
    for word in words:
        name, _, value = word.partition(":")
        if name in given:
            raise BadOption(f"{name} is given twice in {text!r}", hint=_HINT, option=name)
        given[name] = value
    age, size, length, hold = (given.pop(name, None) for name in ("age", "bytes", "length", "hold"))
    is_acknowledged = given.pop("acknowledged", None)
    if given or is_acknowledged:
        raise BadOption(f"{text!r} is no retention: {', '.join(given) or 'acknowledged takes no value'}", hint=_HINT)
    return Retention(
        age_s=None if age is None else parse_duration(age),
        bytes=None if size is None else parse_bytes(size),
        length=None if length is None else _parse_count(length),
        acknowledged=is_acknowledged is not None,
        hold_s=None if hold is None else parse_duration(hold),
    )


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise BadOption(f"length:{text} is no number of entries", hint=_HINT, option="length")
    return int(text)


def _show_seconds(seconds: float) -> str:
    """Exactly, in the largest unit that does it."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and not seconds % size:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def _show_size(size: int) -> str:
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size and not size % factor:
            return f"{size // factor}{unit}"
    return f"{size}B"


class Retentions:
    """Which topic has which: patterns with ``*``, ``?`` and ``[...]``; the first that fits the name counts."""

    def __init__(self, rules: Sequence[tuple[str, Retention]] = ()) -> None:
        self.rules = tuple(rules)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Retentions:
        """Of ``PATTERN=RETENTION``, one each. Raises: BadOption."""
        rules = []
        for text in texts:
            pattern, _, wanted = text.rpartition("=")
            if not pattern:
                raise BadOption(f"{text!r} names no topics", hint="write 'logs-*=age:7d,bytes:10GiB', or '*=age:7d'")
            rules.append((pattern, parse(wanted)))
        return cls(rules)

    def of(self, name: bytes) -> Retention:
        """Of the topic with this name; where no pattern fits, everything is kept."""
        shown = name.decode("utf-8", "surrogateescape")
        fitting = (retention for pattern, retention in self.rules if fnmatch.fnmatchcase(shown, pattern))
        return next(fitting, _EVERYTHING)


_EVERYTHING: Final = Retention()
