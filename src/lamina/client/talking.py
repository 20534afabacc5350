"""What is said to a server and what its answers mean, without a socket: written once for callers and coroutines.

A *talk* is a generator. It yields what to ask, is sent the replies, and returns what the caller wants to know:

    def length(name: str) -> Talk[int]:
        (reply,) = yield Ask([("XLEN", name)], may_repeat=True)
        return int(fine(reply))

``lines.Lines.do(talk)`` holds it over sockets, ``lines_aio.AsyncLines.do(talk)`` on a loop. Both repeat an ask that may
be repeated when the connection breaks, or when nothing was sent yet; any other is told: nobody knows if it was done.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from lamina.client.endpoint import Endpoint
from lamina.errors import Disconnected, LaminaError

T = TypeVar("T")
Word: TypeAlias = bytes | str | int
Reply: TypeAlias = Any
"""Bytes, a number, None, a list of replies, or the LaminaError of a refusal."""

_PAUSES_S: Final = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Ask:
    """Commands that are sent at once; the replies come in the same order."""

    commands: Sequence[Sequence[Word]]
    wait: float = 0
    """Seconds that they may wait by themselves."""
    may_repeat: bool = False
    """Asking twice does no harm."""


Talk: TypeAlias = Generator[Ask, list[Reply], T]


def ask(*words: Word, wait: float = 0, may_repeat: bool = False) -> Talk[Reply]:
    """One command: ``reply = yield from ask(...)``. Raises: the refusal."""
    (reply,) = yield Ask([words], wait, may_repeat)
    return fine(reply)


def fine(reply: Reply) -> Reply:
    """The reply. Raises: the refusal that it is."""
    if isinstance(reply, LaminaError):
        raise reply
    return reply


class Patience:
    """How often an ask is tried again."""

    def __init__(self, endpoint: Endpoint, now: Callable[[], float]) -> None:
        self._now = now
        self._until = now() + endpoint.retry_s
        self._tries = 0

    def pause_before_next(self, asked: Ask, problem: Disconnected) -> float:
        """Seconds. Raises: ``problem`` if it must not be tried again."""
        was_sent = problem.facts.get("sent", True)
        if (was_sent and not asked.may_repeat) or self._now() >= self._until:
            raise problem
        self._tries += 1
        return _PAUSES_S[min(self._tries, len(_PAUSES_S)) - 1]


def encode(commands: Sequence[Sequence[Word]]) -> bytes:
    """As they are sent."""
    return b"".join(map(_encode_one, commands))


def _encode_one(words: Sequence[Word]) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        if isinstance(word, str):
            word = word.encode("utf-8", "surrogateescape")
        elif isinstance(word, int):
            word = b"%d" % word
        parts.append(b"$%d\r\n%b\r\n" % (len(word), word))
    return b"".join(parts)
