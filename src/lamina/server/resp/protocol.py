"""The RESP protocol without sockets: bytes of one connection in, commands out, as Redis 7 reads them.

A command is ``*<count>`` and so many ``$<size>`` with their bytes, or a line of words (inline.py). Some of what Redis
does looks like a slip and is kept, since clients were written against it: of the two bytes that end a header the second
may be any, the two behind an argument are skipped unseen, and a zero byte hides the rest of its line, which then only
ends by being too long.

Two things are stricter. Redis finds a line too long when it has read that much without seeing the end, so what it takes
depends on how the network cut the bytes; here a line whose end is not within ``max_inline`` bytes is always refused.
And it takes commands of 2147483647 arguments; ``max_args`` is what it took up to version 6.

_protocol.pyx is the compiled twin, made by hand; tests hold the two equal.
"""

from __future__ import annotations

import re
from typing import Final

from lamina.server.resp.inline import split

MAX_BULK: Final = 512 * 1024 * 1024
MAX_ARGS: Final = 1024 * 1024
MAX_INLINE: Final = 64 * 1024

_UNKNOWN: Final = -1
_STAR: Final = ord("*")
_DOLLAR: Final = ord("$")
_LARGEST: Final = 2**63 - 1
_IS_NUMBER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}").fullmatch


class Parser:
    """Turns the bytes of one connection into commands, whatever the split.

    Order: commands come in the order of their bytes; those before a mistake are returned with it.
    Memory: grows with the bytes that arrived, never with a size or count that was only announced. A command within all
        limits may still be huge: who calls looks at ``pending`` and closes.
    """

    __slots__ = (
        "_args",
        "_held",
        "_line_end",
        "_max_args",
        "_max_bulk",
        "_max_inline",
        "_missing",
        "_needed",
        "_size",
        "_taken",
        "error",
    )

    def __init__(self, max_bulk: int = MAX_BULK, max_args: int = MAX_ARGS, max_inline: int = MAX_INLINE) -> None:
        self.error: bytes | None = (
            None  # answer ``-ERR Protocol error: `` and this, then close; nothing is read any more
        )
        self._max_bulk = max_bulk
        self._max_args = max_args
        self._max_inline = max_inline
        self._args: list[bytes] = []  # of the command that is not whole yet
        self._missing = 0  # arguments it still needs, 0: no command has begun
        self._size = _UNKNOWN  # of the argument that comes next
        self._taken = 0  # bytes of that command that are not held any more: they became arguments
        self._held = bytearray()  # the start of a header, a line or an argument
        self._needed = 0  # bytes to hold before another look can be of use; 0: as soon as ``_line_end`` arrives
        self._line_end = b""

    @property
    def pending(self) -> int:
        """Bytes that arrived of the command that is not whole yet."""
        return self._taken + len(self._held)

    def feed(self, data: bytes) -> list[list[bytes]]:
        """Every command that is whole with ``data``, in order. None is empty."""
        commands: list[list[bytes]] = []
        if self.error is not None:
            return commands
        if self._held:
            self._held += data
            if not self._is_worth_a_look(data):
                return commands
            data = bytes(self._held)
            self._held.clear()
        at = 0
        while at < len(data):
            behind = self._read(data, at, commands)
            if behind is None:
                break
            at = behind
        if at < len(data) and self.error is None:
            self._held += data[at:]
        return commands

    def _is_worth_a_look(self, news: bytes) -> bool:
        """Whether what is held can be read on now. Looks at the new bytes only: small pieces stay linear."""
        if self._needed:
            return len(self._held) >= self._needed
        return self._line_end in news or len(self._held) > self._max_inline

    # -- one step: a header, a line or an argument; where the next one starts, or None if it is not whole or is wrong --

    def _read(self, data: bytes, at: int, commands: list[list[bytes]]) -> int | None:
        if self._missing:
            return self._read_size(data, at) if self._size == _UNKNOWN else self._read_argument(data, at, commands)
        return self._read_count(data, at) if data[at] == _STAR else self._read_inline(data, at, commands)

    def _read_count(self, data: bytes, at: int) -> int | None:
        end = self._header_end(data, at, b"too big mbulk count string")
        if end is None:
            return None
        count = _number(data[at + 1 : end])
        if count is None or count > self._max_args:
            self._fail(b"invalid multibulk length")
            return None
        if count > 0:  # else a command of nothing, which is passed over
            self._missing = count
            self._taken = end + 2 - at
        return end + 2

    def _read_size(self, data: bytes, at: int) -> int | None:
        end = self._header_end(data, at, b"too big bulk count string")
        if end is None:
            return None
        if data[at] != _DOLLAR:
            shown = b" " if data[at] in b"\r\n" else data[at : at + 1]  # an error is one line
            self._fail(b"expected '$', got '%b'" % shown)
            return None
        size = _number(data[at + 1 : end])
        if size is None or not 0 <= size <= self._max_bulk:
            self._fail(b"invalid bulk length")
            return None
        self._size = size
        self._taken += end + 2 - at
        return end + 2

    def _read_argument(self, data: bytes, at: int, commands: list[list[bytes]]) -> int | None:
        end = at + self._size
        if end + 2 > len(data):
            self._needed = self._size + 2
            return None
        self._args.append(data[at:end])
        self._taken += end + 2 - at
        self._size = _UNKNOWN
        self._missing -= 1
        if not self._missing:
            commands.append(self._args)
            self._args = []
            self._taken = 0
        return end + 2

    def _read_inline(self, data: bytes, at: int, commands: list[list[bytes]]) -> int | None:
        end = self._find(data, at, b"\n", b"too big inline request")
        if end is None:
            return None
        words = split(data[at:end].removesuffix(b"\r"))
        if words is None:
            self._fail(b"unbalanced quotes in request")
            return None
        if words:
            commands.append(words)
        return end + 1

    # -- lines ---------------------------------------------------------------------------------------------------------

    def _header_end(self, data: bytes, at: int, problem: bytes) -> int | None:
        """Where the CR of the header at ``at`` is, once the byte behind it is there, too."""
        end = self._find(data, at, b"\r", problem)
        if end is not None and end + 2 > len(data):
            self._needed = end + 2 - at
            return None
        return end

    def _find(self, data: bytes, at: int, line_end: bytes, problem: bytes) -> int | None:
        """Where the line at ``at`` ends; None if it does not yet, or is longer than any may be."""
        longest = self._max_inline
        end = data.find(line_end, at, at + longest + 1)
        is_hidden = end >= 0 and b"\0" in data[at:end]
        if end >= 0 and not is_hidden:
            return end
        if len(data) - at > longest:
            self._fail(problem)
            return None
        self._needed = longest + 1 if is_hidden else 0
        self._line_end = line_end
        return None

    def _fail(self, problem: bytes) -> None:
        self.error = problem
        self._args = []
        self._held.clear()
        self._taken = 0


def _number(text: bytes) -> int | None:
    """As Redis reads one: 64 bits, and written in the one shortest way."""
    if not _IS_NUMBER(text):
        return None
    number = int(text)
    return number if -_LARGEST - 1 <= number <= _LARGEST else None
