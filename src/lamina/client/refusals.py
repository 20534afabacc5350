"""The errors that error replies of the RESP door stand for: those that the same call inside the process raises.

A reply has a code in capitals and a text, mostly a message, ``; `` and a hint. What ``ERR`` means depends on the
command that was asked: so the reader gives a refusal as it came (``Refused``), and whoever asked has it understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from lamina.errors import (
    BadEntry,
    BadName,
    BadOption,
    BadTopic,
    Corruption,
    Disconnected,
    DiskFull,
    Gap,
    GroupExists,
    LaminaError,
    MessageTooLarge,
    MissingExtra,
    NoGroup,
    NoMessage,
    NotAllowed,
    Prohibited,
    QueueRefused,
    QuotaMet,
    RecordTooLarge,
    Stopped,
    StorageError,
    TooOld,
    WireError,
)

if TYPE_CHECKING:
    import hiredis

    from lamina.client.talking import Reply, Word

_LOG_IN: Final = "log in: give a user and its token, or the password (LAMINA_PASSWORD)"
_RIGHTS: Final = 'ask who runs the server for the right: "lamina user add"'
_FAMILIES: Final[dict[str, type[BadOption | BadEntry | BadTopic]]] = {"Q.": BadOption, "S.": BadEntry}
_NOT_SERVED: Final = (
    "unknown command",
    "Protocol error",
    "queues are switched off",
    "the store is switched off",
    "there is nothing of that name to dump",
    "internal error",
    "AUTH <password> called without",
)
"""How texts begin, or what is in them, that say nothing of what was handed in."""


class Refused(Exception):
    """A refusal, as it came."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class NoReply(Exception):
    """What came is no RESP."""


def new_reader() -> hiredis.Reader:
    """Its refusals are ``Refused``. Raises: MissingExtra."""
    try:
        import hiredis
    except ImportError:
        raise MissingExtra(
            "to speak to a server one more package is needed", hint='pip install "lamina[client]"'
        ) from None

    return hiredis.Reader(protocolError=NoReply, replyError=Refused, notEnoughData=False)


def understood(reply: Reply, command: Sequence[Word]) -> Reply:
    """The reply to a command, with errors for the refusals in it."""
    if isinstance(reply, Refused):
        name = command[0] if command else ""
        return refusal(reply.text, name.decode() if isinstance(name, bytes) else str(name))
    if isinstance(reply, list) and any(isinstance(each, Refused) for each in reply):  # of EXEC
        return [understood(each, ()) for each in reply]
    return reply


def welcome(reply: Reply) -> Reply:
    """The reply. Raises: Disconnected, if the server had no room for us, or is not ready, and did nothing."""
    if isinstance(reply, Disconnected):
        raise reply
    return reply


def refusal(text: str, command: str = "") -> LaminaError:
    """The error that an error reply to a command stands for."""
    code, _, rest = text.partition(" ")
    known = _BY_CODE.get(code)
    if known is not None:
        return known(code, rest)
    if code == "ERR":
        return _of_input(rest, command)
    return WireError(f"the server says: {text}", hint="is it a server of lamina, and a recent one?", refusal=code)


def _of_input(rest: str, command: str) -> LaminaError:
    """What ``ERR`` is said of: something that cannot be, or a server that cannot do it."""
    message, hint = _halves(rest)
    if rest.startswith("max number of clients"):
        return _later("ERR", rest)
    if "AUTH <password> called without" in rest:
        return WireError("the server asks for no login", hint="connect without user, token and password")
    if any(word in rest for word in _NOT_SERVED):
        return WireError(f"the server says: {message}", hint=hint or "is it a recent one, and does it serve that?")
    if found := re.match(r"payload (\d+) of the batch has (\d+) bytes, the limit is (\d+)", rest):
        return RecordTooLarge(int(found[1]), int(found[2]), int(found[3]))
    if "cannot be a name here" in rest:
        return BadName(message, hint=hint)
    return _FAMILIES.get(command[:2].upper(), BadTopic)(message, hint=hint)


def _halves(text: str) -> tuple[str, str]:
    """Message and hint."""
    message, _, hint = text.partition("; ")
    return message, hint


# -- by code ----------------------------------------------------------------------------------------------------------


def _not_allowed(code: str, rest: str) -> LaminaError:
    hint = _RIGHTS if code == "NOPERM" else _LOG_IN
    return NotAllowed(f"the server says: {rest or code}", hint=hint, refusal=code)


def _of_the_disk(code: str, rest: str) -> LaminaError:
    message, hint = _halves(rest)
    if "disk is full" in rest or "make room" in rest:
        return DiskFull(message, hint=hint)
    if found := re.fullmatch(r"(.+), byte (\d+): (.*)", message):
        return Corruption(found[1], int(found[2]), found[3], hint=hint)
    return StorageError(message, hint=hint or "the disk of the server refused; see what the server reports")


def _no_message(code: str, rest: str) -> LaminaError:
    return NoMessage()


def _queue_refused(code: str, rest: str) -> LaminaError:
    return QueueRefused()


def _quota_met(code: str, rest: str) -> LaminaError:
    found = re.search(r"\d+", rest)
    return QuotaMet(int(found[0]) if found else 0)


def _too_large(code: str, rest: str) -> LaminaError:
    found = re.match(r"(.*) of (\d+) bytes cannot be sent: (\d+) bytes at most", rest)
    return MessageTooLarge(int(found[2]), int(found[3]), found[1]) if found else MessageTooLarge(0, 0)


def _too_old(code: str, rest: str) -> LaminaError:
    numbers = [int(each) for each in re.findall(r"\d+", rest)]
    return TooOld(numbers[0], numbers[1], 0) if len(numbers) >= 2 else TooOld(0, 0, 0)


def _gap(code: str, rest: str) -> LaminaError:
    found = re.match(r"entries behind (\S+) up to (\S+) of ", rest)
    after, until = (found[1], found[2]) if found else ("?", "?")
    return Gap(after, until, why="retention let them go unread", hint="ask for the next message to go on behind it")


def _later(code: str, rest: str) -> LaminaError:
    return Disconnected(f"the server says: {rest}", hint="nothing was done: try again", sent=False, refusal=code)


def _prohibited(code: str, rest: str) -> LaminaError:
    message, hint = _halves(rest)
    return Prohibited(message, hint=hint)


def _stopped(code: str, rest: str) -> LaminaError:
    message, hint = _halves(rest)
    return Stopped(message, hint=hint)


_BY_CODE: Final[dict[str, Callable[[str, str], LaminaError]]] = {
    "NOAUTH": _not_allowed,
    "WRONGPASS": _not_allowed,
    "NOPERM": _not_allowed,
    "NOGROUP": lambda code, rest: NoGroup(rest),
    "BUSYGROUP": lambda code, rest: GroupExists(rest),
    "UNBLOCKED": lambda code, rest: NoGroup(rest),
    "EXECABORT": lambda code, rest: BadTopic(rest),
    "MISCONF": _of_the_disk,
    "LOADING": _later,
    "GAP": _gap,
    "AUTH": _queue_refused,
    "QUOTA": _quota_met,
    "LARGE": _too_large,
    "NOMSG": _no_message,
    "PROHIBITED": _prohibited,
    "TOOOLD": _too_old,
    "TRYAGAIN": _stopped,
}
