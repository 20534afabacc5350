"""The workq protocol as a client speaks it, without a socket: a command as bytes, and its answer read piece by piece.

A *reading* is a generator: it yields how much it needs next, a line (``LINE``) or so many bytes with the line end
behind them, is sent them without the line end, and returns what the answer says. Whoever has the connection holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from lamina.errors import (
    BadJob,
    Disconnected,
    DiskFull,
    DuplicateJob,
    DuplicateResult,
    JobNotFound,
    LaminaError,
    NotAllowed,
    NotLeased,
    StorageError,
    WireError,
)

T = TypeVar("T")
Reading: TypeAlias = Generator[int, bytes, T]

LINE: Final = -1
LONGEST_LINE: Final = 1 << 16
LARGEST_BODY: Final = 1 << 24  # far above what a server may send; a wrong size must not take all memory

_REFUSALS: Final[dict[str, tuple[type[LaminaError], str]]] = {
    "CLIENT-ERROR Duplicate job": (DuplicateJob, "its id, or its unique key, is taken"),
    "CLIENT-ERROR Duplicate result": (DuplicateResult, "it was completed or failed before"),
    "CLIENT-ERROR Not leased": (NotLeased, "its time to run has passed, or it is done"),
    "CLIENT-ERROR Not failed": (BadJob, "only a failed job can be driven again"),
    "CLIENT-ERROR Invalid Time": (BadJob, "its life would be over before it starts: time + ttl is past"),
    "CLIENT-ERROR Unknown command": (WireError, "the server does not know it: is it an older one?"),
    "CLIENT-ERROR Invalid command args": (WireError, "the server does not take it so: is it an older one?"),
    "SERVER-ERROR Too many connections": (Disconnected, "try again later"),
    "SERVER-ERROR Too many connections that are not authenticated": (Disconnected, "try again later"),
    "SERVER-ERROR Disk full, nothing was changed, try again": (DiskFull, "make room; writing resumes by itself"),
}
_NOT_ALLOWED: Final = ("Authentication", "Permission denied")  # how such refusals begin
_NO_NAME: Final = "default"  # of whoever knows the one password of a server


class NoAnswer(ValueError):
    """What came is no answer of a workq server."""


class Command(NamedTuple):
    """What is sent, and how its answer is read."""

    line: str
    payload: bytes | None
    wait_s: float
    """How long it may wait by itself."""
    read: Callable[[int], Reading[Any]]
    """Takes the count behind ``+OK``."""

    def encode(self) -> bytes:
        return self.line.encode() + b"\r\n" + (b"" if self.payload is None else self.payload + b"\r\n")


def reading(command: Command) -> Reading[Any]:
    """The whole answer: its value, None for ``-TIMEOUT``, or the refusal as an error that is not raised.

    Raises: NoAnswer, ValueError.
    """
    answer = (yield LINE).decode()
    if answer == "-TIMEOUT":
        return None
    if answer.startswith("-"):
        return refusal(answer)
    if not answer.startswith("+OK"):
        raise NoAnswer(answer)
    return (yield from command.read(int(answer[3:] or 0)))


def whole(data: bytes) -> bytes:
    """A line or a body without its line end. Raises: ConnectionError, NoAnswer."""
    if not data:
        raise ConnectionError("the server hung up")
    if not data.endswith(b"\r\n"):
        raise NoAnswer(f"{data[:60]!r}")
    return data[:-2]


def check_size(size: int) -> int:
    """Raises: NoAnswer."""
    if not 0 <= size <= LARGEST_BODY:
        raise NoAnswer(f"a body of {size} bytes")
    return size


def no_answer(server: object, problem: Exception) -> WireError:
    """What to raise when something else than a workq server talks there."""
    hint = "check the address: is it a workq server that listens there?"
    return WireError(f"{server}: no answer of a workq server: {problem}"[:200], hint=hint)


def refusal(answer: str) -> LaminaError:
    """The error that an answer with a leading ``-`` stands for."""
    code, _, text = answer[1:].partition(" ")
    if code == "NOT-FOUND":
        return JobNotFound("the server has no such job or queue")
    if (known := _REFUSALS.get(answer[1:])) is not None:
        return known[0](text, hint=known[1])
    if text.startswith(_NOT_ALLOWED):
        is_known = text.startswith("Permission")
        hint = "ask for the right" if is_known else "log in: give a user and its token (LAMINA_TOKEN)"
        return NotAllowed(f"the server says: {text}", hint=hint, refusal=text)
    if code == "SERVER-ERROR":
        return StorageError(f"the server says: {text}", hint="its disk refused to write; see what the server reports")
    return BadJob(f"the server says: {text or code}")


def login(user: str | None, token: str) -> Command:
    """The first command of a connection. Raises: BadJob."""
    words = ["auth", _NO_NAME if user is None else user, token]
    if not all(word.isprintable() and " " not in word and word for word in words):
        raise BadJob("a user and its token are one word each", hint='as "lamina user add" printed them')
    return Command(" ".join(words), None, 0, nothing)


def login_refused(problem: LaminaError) -> LaminaError:
    """Why we were not let in."""
    if isinstance(problem, WireError) and "Unknown command" in problem.message:
        return WireError("the server knows no users", hint="connect without user and token, or use a newer server")
    return problem


def welcome(answer: T) -> T:
    """The answer. Raises: Disconnected, if the server had no room for us and did nothing."""
    if isinstance(answer, Disconnected):
        raise Disconnected(answer.message, hint=answer.hint, sent=False)
    return answer


def has_to_log_in(answer: object) -> bool:
    return isinstance(answer, NotAllowed) and str(answer.facts.get("refusal", "")).startswith(_NOT_ALLOWED[0])


def nothing(count: int) -> Reading[None]:
    """Of a command whose answer is ``+OK``."""
    yield from ()  # a generator like the others


def just_count(count: int) -> Reading[int]:
    yield from ()
    return count
