"""The workq protocol without sockets: bytes of one connection in, commands out.

Two ways lead through a command: the quick way (quick.py) for what is right and usual, and the careful way (line.py) for
all else.

The payload of a refused line is read and thrown away, never run. If nobody can know its size, the connection is over.
Only what is left of a payload longer than announced is read as commands, as the real server does.
"""

from __future__ import annotations

from typing import Final

from lamina.server.workq import quick
from lamina.server.workq.commands import Command, Refusal
from lamina.server.workq.fields import MAX_PAYLOAD
from lamina.server.workq.line import WITH_PAYLOAD, Form, Line, split

MAX_COMMAND: Final = 10_000 + MAX_PAYLOAD  # bytes of line and payload together, with their CR LF

_CRLF: Final = b"\r\n"
_CR: Final = ord("\r")
_LF: Final = ord("\n")


class Parser:
    """Turns the bytes of one connection into commands, whatever the split.

    Order: commands and refusals come in the order of their bytes.
    Memory: ``pending`` stays below ``MAX_COMMAND``.
    """

    __slots__ = ("_cut_off", "_held", "_needed", "is_closed")

    def __init__(self) -> None:
        self.is_closed = False  # answer what was returned, then close; nothing is read any more
        self._held = bytearray()  # the start of a command, and nothing behind it that is whole
        self._needed = 0  # bytes of the held command, 0: its line has no end yet
        self._cut_off = Refusal("")  # the answer if the peer ends inside the payload of the held command

    @property
    def pending(self) -> int:
        """Bytes that wait for the rest of their command."""
        return len(self._held)

    def feed(self, data: bytes) -> list[Command]:
        """Every command that is whole with ``data``, in order."""
        if self.is_closed:
            return []
        if self._held:
            self._held += data
            if not self._is_worth_a_look(data):
                return []
            data = bytes(self._held)
            self._held.clear()
        commands: list[Command] = []
        at, end = 0, len(data)
        while at < end:
            at = quick.take(data, at, commands)
            if at < end:
                found = self._read(data, at)
                if found is None:
                    break
                command, at = found
                commands.append(command)
        if at < end and not self.is_closed:
            self._held += data[at:]
        return commands

    def end(self) -> list[Command]:
        """The peer has sent its last byte: what is left to answer. Half a line is not."""
        is_inside_payload = bool(self._held) and self._needed > 0
        self._close()
        return [self._cut_off] if is_inside_payload else []

    def _is_worth_a_look(self, news: bytes) -> bool:
        """Whether the held command may be whole now. Looks at the new bytes only: small pieces stay linear."""
        if self._needed:
            return len(self._held) >= self._needed
        return _LF in news or len(self._held) >= MAX_COMMAND

    def _read(self, data: bytes, at: int) -> tuple[Command, int] | None:
        """The command at ``at`` and where the next one starts; None if it is not whole, or the connection is over."""
        newline = data.find(b"\n", at, at + MAX_COMMAND)
        if newline < 0:
            self._needed = 0
            if len(data) - at >= MAX_COMMAND:
                self._close()
            return None
        if newline == at or data[newline - 1] != _CR:
            self._close()
            return None
        line = split(data[at : newline - 1])
        form = WITH_PAYLOAD.get(line.word)
        if form is None:
            return line.command(), newline + 1
        return self._read_payload(data, at, newline + 1, line, form)

    def _read_payload(self, data: bytes, at: int, start: int, line: Line, form: Form) -> tuple[Command, int] | None:
        """The same for a command whose line ends and whose payload starts at ``start``."""
        size = form.size(line)
        if isinstance(size, int) and start + size + len(_CRLF) - at > MAX_COMMAND:
            size = line.refusal(form.size_text)
        if isinstance(size, Refusal):
            self._close()
            return size, len(data)
        end = start + size
        behind = end + len(_CRLF)
        if behind > len(data):
            self._needed = behind - at
            self._cut_off = line.refusal(form.size_text)
            return None
        if data[end:behind] != _CRLF:
            return line.refusal(form.size_text), behind
        return form.command(line, data[start:end]), behind

    def _close(self) -> None:
        self.is_closed = True
        self._held.clear()
