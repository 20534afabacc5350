"""Queues and messages as callers inside the process have them: ids as text, times in UTC, and nothing secret shown.

``repr`` has neither an id nor what a message says: both end up in logs, and an id is half of what one needs to send or
to receive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from lamina.engines.queues import ids
from lamina.engines.queues.message import LOST, NO_TTL, Message, Queue
from lamina.errors import BadOption

if TYPE_CHECKING:
    from lamina.engines.queues.engine import QueueEngine

Key: TypeAlias = bytes | str
"""Text stands for its bytes in UTF-8."""
Seconds: TypeAlias = float | timedelta

_MOST_TTL: Final = 1 << 40
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class NewQueue(NamedTuple):
    """The two ids of a new queue: ``rid`` for who receives, ``sid`` for who sends. Neither leads to the other."""

    rid: str
    sid: str

    def __repr__(self) -> str:
        rid = ids.parse(self.rid.encode())
        return f"<NewQueue {ids.handle(rid or b'')}>"


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """One message, or a mark: that the queue met its quota, so what was sent then was refused, until all is received;
    or that messages were lost here, since what was stored of them cannot be read."""

    id: str = field(repr=False)
    time_s: int
    """When it was sent, in seconds since 1970."""
    flags: bytes = field(repr=False)
    body: bytes | None = field(repr=False)
    """None: a mark. It is acknowledged as any message is."""

    @property
    def is_quota(self) -> bool:
        return self.body is None and self.flags != LOST

    @property
    def is_loss(self) -> bool:
        return self.body is None and self.flags == LOST

    @property
    def time(self) -> datetime:
        """When it was sent, in UTC."""
        return to_time(self.time_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """One queue, as its recipient may know it."""

    handle: str
    """What operators call it: no use to a client."""
    size: int
    """Messages that wait, the mark of the quota included."""
    is_closed: bool
    """A sender met the quota: nothing is taken until all was received."""
    is_secured: bool
    """Senders have to show a key."""
    is_suspended: bool
    """Nothing is taken any more."""
    has_subscriber: bool
    head_id: str | None = field(repr=False)
    head_time: datetime | None
    """When the message was sent that is next."""
    ttl_s: int
    """Seconds that a message is kept unless it says otherwise; 0: for ever."""
    created: date
    """The day on which it was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """All queues of a folder."""

    queues: int
    messages: int
    """That wait, marks included. In the store ``journal``: of the queues that somebody has looked at."""
    expired: int
    """Messages that expired since the folder was opened, and while it was."""


# -- to callers --------------------------------------------------------------------------------------------------------


def shown(message: Message) -> QueueMessage:
    return QueueMessage(ids.show(message.id), message.ts, message.flags, message.body)


def info(engine: QueueEngine, queue: Queue, *, has_subscriber: bool) -> QueueInfo:
    """Holds the engine's lock."""
    head = engine.head(queue)
    return QueueInfo(
        handle=ids.handle(queue.rid),
        size=engine.messages.size(queue),
        is_closed=engine.messages.is_closed(queue),
        is_secured=queue.skey is not None,
        is_suspended=queue.is_off,
        has_subscriber=has_subscriber,
        head_id=None if head is None else ids.show(head.id),
        head_time=None if head is None else to_time(head.ts),
        ttl_s=engine.options.ttl_s if queue.ttl == NO_TTL else queue.ttl,
        created=to_time(queue.created_day).date(),
    )


def stats(engine: QueueEngine) -> QueueStats:
    """Holds the engine's lock."""
    queues = engine.state.queues
    in_memory = engine.keeper is engine
    messages = engine.state.messages if in_memory else sum(max(queue.size, 0) for queue in queues.values())
    return QueueStats(queues=len(queues), messages=messages, expired=engine.expired)


def to_time(seconds: int) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


# -- from callers ------------------------------------------------------------------------------------------------------


def to_id(text: str) -> bytes | None:
    """None for what shows no id: it is refused as one that nobody has is."""
    if not isinstance(text, str):
        raise TypeError(f"an id is text, not {type(text).__name__}")
    return ids.parse(text.encode("utf-8", "replace"))


def to_key(key: Key | None) -> bytes | None:
    if key is None or isinstance(key, bytes):
        return key
    if not isinstance(key, str):
        raise TypeError(f"a key is bytes or text, not {type(key).__name__}")
    try:
        return key.encode()
    except UnicodeEncodeError:
        raise BadOption("this text cannot be a key", hint="it is no text that UTF-8 can hold", option="key") from None


def to_body(what: str, value: bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"{what} has to be bytes, not {type(value).__name__}")
    return value


def to_ttl(ttl: int | timedelta | None) -> int:
    """Whole seconds, rounded up; 0: for ever. Raises: BadOption."""
    if ttl is None:
        return NO_TTL
    seconds = -(-(ttl // timedelta(microseconds=1)) // 1_000_000) if isinstance(ttl, timedelta) else ttl
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds <= _MOST_TTL:
        hint = f"whole seconds, 0 (for ever) to {_MOST_TTL}, or a timedelta"
        raise BadOption(f"ttl of {ttl!r} cannot be", hint=hint, option="ttl")
    return seconds


def to_timeout(timeout: Seconds | None) -> float | None:
    """Seconds; None: for ever. Raises: BadOption."""
    if timeout is None:
        return None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
        hint = "seconds, 0 or more, or None for ever"
        raise BadOption(f"timeout of {timeout!r} cannot be", hint=hint, option="timeout")
    return float(seconds)
