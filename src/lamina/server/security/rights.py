"""Rights: what a user may do with which names, written ``ENGINE:RIGHT[:PATTERN]``.

A user has what its rights say and nothing else. ``read`` changes nothing, ``write`` uses what is there and adds to it,
``admin`` also takes away and stops; each includes those before it. A pattern is of the kind of file names
(``orders.*``, ``?``, ``[a-c]``), over the bytes of a name, large and small letters apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from typing import Final

from lamina.errors import BadOption

ENGINES: Final = ("jobs", "topics", "queues", "store", "admin")
"""``admin`` is the server itself: its clients, its settings."""
LEVELS: Final = ("read", "write", "admin")
ANY: Final = "*"
"""As an engine: each of them. As a pattern: every name."""

_HINT: Final = "write ENGINE:RIGHT[:PATTERN], such as jobs:write:mail.* or topics:read; engines are {}; rights are {}"
_MOST_PATTERN: Final = 512


@dataclass(frozen=True, slots=True)
class Right:
    """One of the rights of a user."""

    engine: str
    level: str
    pattern: str = ANY
    _rank: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rank", LEVELS.index(self.level))

    @classmethod
    def parse(cls, text: str) -> Right:
        """``jobs:write:mail.*``; without a pattern every name is meant. Raises: BadOption."""
        engine, _, rest = text.partition(":")
        level, colon, pattern = rest.partition(":")
        if engine not in (*ENGINES, ANY) or level not in LEVELS or (colon and not pattern):
            raise BadOption(
                f"{text!r} is no right", hint=_HINT.format(", ".join((*ENGINES, ANY)), ", ".join(LEVELS)), option=text
            )
        if len(pattern) > _MOST_PATTERN:
            raise BadOption(f"a pattern of {len(pattern)} letters is too long", hint=f"{_MOST_PATTERN} are allowed")
        return cls(engine, level, pattern or ANY)

    def __str__(self) -> str:
        return f"{self.engine}:{self.level}" + ("" if self.pattern == ANY else f":{self.pattern}")

    def is_for(self, engine: str, level: str) -> bool:
        """Whether it gives ``level``, for some name at least."""
        return self._rank >= LEVELS.index(level) and self.engine in (engine, ANY)

    def is_for_all(self, engine: str, level: str) -> bool:
        """Whether it gives ``level`` for every name."""
        return self.pattern == ANY and self.is_for(engine, level)

    def may(self, engine: str, level: str, name: bytes | str) -> bool:
        """Whether it gives ``level`` for ``name``."""
        if not self.is_for(engine, level):
            return False
        return self.pattern == ANY or _compiled(self.pattern).match(_bytes(name)) is not None


def _bytes(name: bytes | str) -> bytes:
    return name if isinstance(name, bytes) else name.encode()


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[bytes]:
    # As fnmatch does it with bytes, which have no letters beyond 255: each byte is one letter.
    return re.compile(translate(pattern.encode().decode("latin-1")).encode("latin-1"))
