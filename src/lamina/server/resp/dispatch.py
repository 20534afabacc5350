"""From the words of a command to its answer: who may run it, with how many words, now or in a transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from lamina.errors import (
    BadName,
    BadTopic,
    GroupExists,
    InputError,
    LaminaError,
    MessageTooLarge,
    NoGroup,
    NoMessage,
    Prohibited,
    QueueError,
    QueueRefused,
    QuotaMet,
    Stopped,
    TooOld,
)
from lamina.server.resp import replies
from lamina.server.resp.guard import admit, names_of
from lamina.server.resp.protocol import MAX_ARGS
from lamina.server.resp.session import Args, Large, Refusal, Session, Wait
from lamina.server.resp.table import FACTS, Facts
from lamina.server.security.strangers import MOST_BYTES
from lamina.units import MIB

Handler: TypeAlias = Callable[[Session, Args], "bytes | Wait | Large"]

_MOST_QUEUED = 64 * MIB  # of all commands behind MULTI
_WORD = 64  # bytes that a word takes beside its own
_AROUND = 6  # bytes that a command, and each of its words, takes on the wire beside its own
_SHOWN = 128  # bytes of an unknown command, and of its arguments, that are told
_OF_QUEUES: dict[type[QueueError], bytes] = {
    QueueRefused: b"AUTH ",
    QuotaMet: b"QUOTA ",
    MessageTooLarge: b"LARGE ",
    NoMessage: b"NOMSG ",
    Prohibited: b"PROHIBITED ",
}
_NOT_QUEUED = frozenset((b"exec", b"discard", b"multi", b"watch", b"quit", b"reset"))

_BY_NAME = {name: facts for facts in FACTS.values() for name in (facts.name, facts.name.upper())}

_PLAIN: dict[bytes, tuple[int, int, bytes]] = {
    name: (abs(facts.arity), facts.arity if facts.arity > 0 else MAX_ARGS, facts.name)
    for name, facts in _BY_NAME.items()
    if not facts.subcommands
}
"""Commands that have none below them, as nearly everybody types them: fewest words, most words, name."""

EVERY_QUEUE = b"\0queues"
"""A key for workers, of which no topic has the name: the queues share one lock."""
HANDLERS: dict[bytes, Handler] = {}
"""By name in small letters; ``xgroup|create`` for a command that has others below it."""


def run(session: Session, args: Args) -> bytes | Wait | Large:
    """Run a command, or put it behind MULTI. What it rests on is in ``session.marks``, which the caller takes."""
    plain = _PLAIN.get(args[0])
    if plain is not None and session.is_free and session.queue is None and plain[0] <= len(args) <= plain[1]:
        return call(session, HANDLERS[plain[2]], args)
    if session.stranger is not None and session.stranger.sent(_AROUND + sum(map(len, args)) + _AROUND * len(args)):
        session.must_close = True
        return replies.error(b"NOAUTH Authentication required, in no more than %d bytes." % MOST_BYTES)
    try:
        facts, handler = find(args)
        if not session.is_free:
            admit(session, facts, args)
        if session.queue is not None and facts.name not in _NOT_QUEUED:
            session.queued_bytes += sum(map(len, args)) + _WORD * len(args)
            if session.queued_bytes > _MOST_QUEUED:
                raise Refusal(f"ERR a transaction of more than {_MOST_QUEUED} bytes")
            session.queue.append(args)
            return replies.QUEUED
    except Refusal as problem:
        if args[0].lower() == b"exec":  # it ends the transaction all the same
            session.forget_transaction()
            reason = problem.text.partition(b" ")[2]
            return replies.error(b"EXECABORT Transaction discarded because of: " + reason)
        session.is_spoiled = session.queue is not None
        return replies.error(problem.text)
    return call(session, handler, args)


def call(session: Session, handler: Handler, args: Args) -> bytes | Wait | Large:
    """Its answer, or the error it has for one."""
    try:
        return handler(session, args)
    except (Refusal, LaminaError) as problem:
        return replies.error(text_of(problem))


def find(args: Args) -> tuple[Facts, Handler]:
    """Raises: Refusal for a command that is not known, or not with so many words."""
    facts = _BY_NAME.get(args[0]) or FACTS.get(args[0].lower())
    if facts is None:
        raise Refusal(_unknown(args))
    if facts.subcommands and len(args) > 1:
        below = facts.subcommands.get(args[1].lower())
        if below is None:
            name = args[1][:_SHOWN]
            raise Refusal(b"ERR unknown subcommand '%b'. Try %b HELP." % (name, facts.name.upper()))
        facts = below
    if len(args) != facts.arity if facts.arity > 0 else len(args) < -facts.arity:
        raise Refusal(b"ERR wrong number of arguments for '%b' command" % facts.name)
    return facts, HANDLERS[facts.name]


def keys_of(session: Session, args: Args) -> list[bytes]:
    """The topics that a command works on, all those of a transaction; and EVERY_QUEUE, if it works on queues."""
    commands = [args]
    if args[0].lower() == b"exec":
        commands = [*(session.queue or ()), *([b"watch", key] for key in session.watched)]
    found: dict[bytes, None] = {}
    for each in commands:
        with suppress(Refusal):
            facts, _ = find(each)
            if facts.name.startswith(b"q."):
                found[EVERY_QUEUE] = None
            elif not facts.name.startswith(b"s."):
                found.update(dict.fromkeys(names_of(facts, each)))
    return list(found)


def only_reads(args: Args, keys: Sequence[bytes]) -> bool:
    """A command that changes nothing and works on one topic at most: it may run beside others."""
    if len(keys) > 1:
        return False
    with suppress(Refusal):
        facts, _ = find(args)
        return b"readonly" in facts.flags
    return False


def _unknown(args: Args) -> bytes:
    shown = b""
    for arg in args[1:]:
        if len(shown) >= _SHOWN:
            break
        shown += b"'%b' " % _text(arg)[: _SHOWN - len(shown)]
    return b"ERR unknown command '%b', with args beginning with: %b" % (_text(args[0]), shown)


def _text(word: bytes) -> bytes:
    """As much of it as is told: a zero byte ends a text in Redis."""
    return word.partition(b"\0")[0][:_SHOWN]


def text_of(problem: Refusal | LaminaError) -> bytes:
    """The error as Redis would say it."""
    if isinstance(problem, Refusal):
        return problem.text
    if isinstance(problem, NoGroup):
        return b"NOGROUP " + problem.message.encode()
    if isinstance(problem, GroupExists):
        return b"BUSYGROUP " + problem.message.encode()
    if isinstance(problem, BadTopic):
        return b"ERR " + problem.message.encode()
    if isinstance(problem, QueueError):
        return _OF_QUEUES[type(problem)] + str(problem).encode()
    if isinstance(problem, TooOld):
        return b"TOOOLD " + str(problem).encode()
    if isinstance(problem, Stopped):
        return b"TRYAGAIN " + str(problem).encode()
    code = b"ERR " if isinstance(problem, InputError | BadName) else b"MISCONF "
    return code + str(problem).encode()
