"""What is said to a server about queues, without a socket (talking.py).

A queue in somebody's hands is an id and perhaps a key. Connections are shared, so nothing is tied to one: the key is
shown with each command (``KEY``), never to a connection, and what was given is remembered here, not there
(``ANYWHERE``). So a key is of no use to whoever has the connection next, and any connection may acknowledge. To
acknowledge twice does no harm: a message that is not the head any more was acknowledged before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from lamina.client.talking import Ask, Reply, Talk, Word, ask, fine
from lamina.engines.queues import views
from lamina.engines.queues.dumping import DumpReport
from lamina.engines.queues.message import LOST, NO_TTL
from lamina.engines.queues.views import NewQueue, QueueInfo, QueueMessage, QueueStats, to_time
from lamina.errors import BadOption, MessageTooLarge, WireError
from lamina.units import MIB

WAIT_S: Final = 20.0
"""The longest that is waited in one go: so that a server that is gone is noticed."""
_LARGEST: Final = 64 * MIB  # what a command can hold, whatever the server is told to take


class Hand:
    """An id, perhaps a key, and which message was given last. Threads: safe from any."""

    def __init__(self, id: str, key: views.Key | None) -> None:
        views.to_id(id)  # TypeError
        self.id: Final = id.encode("utf-8", "replace")
        shown = views.to_key(key)
        self.shown: Final[tuple[Word, ...]] = () if shown is None else ("KEY", shown)
        self.given: str | None = None
        """That has not been acknowledged here."""


# -- all queues -------------------------------------------------------------------------------------------------------


def create(key: bytes | None, sender_key: bytes | None, ttl: int, password: bytes | None) -> Talk[NewQueue]:
    words: list[Word] = ["Q.NEW", "ANYWHERE"]
    for name, value in (("KEY", key), ("SKEY", sender_key), ("PASSWORD", password)):
        if value is not None:
            words += name, value
    if ttl != NO_TTL:
        words += "TTL", ttl
    rid, sid = _list_of(2, (yield from ask(*words)))
    return NewQueue(rid.decode(), sid.decode())


def dump() -> Talk[DumpReport | None]:
    reply = yield from ask("L.DUMP", "queues", wait=_A_DUMP_S)
    return None if reply is None else DumpReport(**json.loads(reply))


def stats() -> Talk[QueueStats]:
    return QueueStats(**json.loads((yield from ask("L.QUEUES", may_repeat=True))))


_A_DUMP_S: Final = 3600.0


# -- one queue --------------------------------------------------------------------------------------------------------


def send(hand: Hand, body: bytes, flags: bytes, ttl: int) -> Talk[str]:
    """Asked once: nobody can tell a message that was sent twice from two."""
    if len(body) > _LARGEST:
        raise MessageTooLarge(len(body), _LARGEST)
    words: list[Word] = ["Q.SEND", hand.id, body]
    if flags:
        words += "FLAGS", flags
    if ttl != NO_TTL:
        words += "TTL", ttl
    reply: bytes = yield from ask(*words, *hand.shown)
    return reply.decode()


def receive(hand: Hand, seconds: float | None, now: Callable[[], float]) -> Talk[QueueMessage | None]:
    end = None if seconds is None else now() + seconds
    while True:
        left = WAIT_S if end is None else min(max(end - now(), 0.0), WAIT_S)
        block: tuple[Word, ...] = ("BLOCK", max(math.ceil(left * 1000), 1)) if seconds != 0 else ()
        words = ("Q.GET", hand.id, "ANYWHERE", *block, *hand.shown)
        (reply,) = yield Ask([words], left, may_repeat=True)
        if fine(reply) is not None or (end is not None and now() >= end):
            found = None if reply is None else message_of(reply)
            hand.given = None if found is None else found.id
            return found


def acknowledge(hand: Hand, given: QueueMessage | str) -> Talk[QueueMessage | None]:
    id = id_of(given)
    is_given = id == hand.given
    # What was not given here is asked for all the same: the answer depends on who may know of the queue.
    anywhere: tuple[Word, ...] = ("ANYWHERE",) if is_given else ()
    reply = yield from ask("Q.ACK", hand.id, id, *anywhere, *hand.shown, may_repeat=is_given)
    following = next_of(reply)
    hand.given = None if following is None else following.id
    return following


def info(hand: Hand) -> Talk[QueueInfo]:
    facts = pairs_of((yield from ask("Q.INFO", hand.id, *hand.shown, may_repeat=True)))
    head, head_time = facts["head-id"], facts["head-time"]
    return QueueInfo(
        handle=facts["handle"].decode(),
        size=facts["size"],
        is_closed=bool(facts["closed"]),
        is_secured=bool(facts["secured"]),
        is_suspended=facts["status"] == b"off",
        has_subscriber=facts["subscribed"] != b"no",
        head_id=None if head is None else head.decode(),
        head_time=None if head_time is None else to_time(head_time),
        ttl_s=facts["ttl"],
        created=to_time(facts["created"]).date(),
    )


def secure(hand: Hand, sender_key: bytes) -> Talk[None]:
    yield from ask("Q.KEY", hand.id, sender_key, *hand.shown, may_repeat=True)


def suspend(hand: Hand) -> Talk[None]:
    yield from ask("Q.OFF", hand.id, *hand.shown, may_repeat=True)


def delete(hand: Hand) -> Talk[None]:
    """Asked once: a second time it would be refused."""
    yield from ask("Q.DEL", hand.id, *hand.shown)


# -- what replies mean ------------------------------------------------------------------------------------------------


def message_of(reply: Reply) -> QueueMessage:
    id, seconds, flags, body = _list_of(4, reply)
    is_quota = body is None and flags != LOST
    return QueueMessage(id.decode(), seconds, b"" if is_quota else flags, body)  # the mark of the quota has none


def next_of(reply: Reply) -> QueueMessage | None:
    """Of Q.ACK."""
    return None if reply == b"OK" else message_of(reply)


def id_of(given: QueueMessage | str) -> str:
    if isinstance(given, QueueMessage):
        return given.id
    views.to_id(given)  # TypeError
    return given.encode("utf-8", "replace").decode()


def pairs_of(reply: Reply) -> dict[str, Any]:
    """Of a map, which RESP2 gives flat. Raises: WireError."""
    if not isinstance(reply, list) or len(reply) % 2:
        raise _no_answer()
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _list_of(count: int, reply: Reply) -> Sequence[Any]:
    if not isinstance(reply, list) or len(reply) != count:
        raise _no_answer()
    return reply


def _no_answer() -> WireError:
    return WireError("that is no answer of lamina", hint="is it a server of lamina, and a recent one?")


def sender_key_of(key: views.Key) -> bytes:
    found = views.to_key(key)
    if found is None:
        raise TypeError("a key is bytes or text, not None")
    return found


def only_inside(what: str, hint: str) -> BadOption:
    """For what a server is not asked for."""
    return BadOption(f"{what} is only to be had inside the process", hint=hint)
