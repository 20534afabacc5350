"""A message, a queue, and the one rule both stores share: when a message has expired.

Compiled as it stands (setup.py, _message.pxd gives the types) and run as plain Python where it is not.
"""

from __future__ import annotations

NO_TTL = -1
"""Not said: the queue's counts, or the server's. 0 means for ever."""
LOST = b"lost"
"""Flags of the marker of a loss."""


class Message:
    """One message; without a body it is a marker: where a sender met the quota, or where messages were lost."""

    def __init__(self, id: bytes, ts: int, flags: bytes, body: bytes | None, ttl: int = NO_TTL) -> None:
        self.id = id
        self.ts = ts
        """Seconds since 1970, when it was sent."""
        self.flags = flags
        self.body = body
        self.ttl = ttl

    @property
    def is_marker(self) -> bool:
        return self.body is None

    @property
    def is_loss(self) -> bool:
        """The marker that says that what stood here cannot be read any more."""
        return self.body is None and self.flags == LOST

    def has_expired(self, now: int, ttl: int) -> bool:
        """``ttl`` is what counts for its queue, in seconds; 0: for ever. A message that is just so old stays."""
        if self.body is None:
            return False
        if self.ttl != NO_TTL:
            ttl = self.ttl
        return ttl > 0 and self.ts < now - ttl

    def __repr__(self) -> str:
        return f"<{'marker' if self.body is None else 'message'} of {self.ts}>"  # neither its id nor what it says


class Queue:
    """What is known of a queue. In the store ``journal``, its messages are elsewhere."""

    def __init__(
        self,
        rid: bytes,
        rkey: bytes | None,
        sid: bytes,
        skey: bytes | None,
        is_off: bool = False,
        created_day: int = 0,
        ttl: int = NO_TTL,
    ) -> None:
        self.rid = rid
        self.rkey = rkey
        """Hash of the recipient's key (keys.py); None: its id is all that is asked for."""
        self.sid = sid
        self.skey = skey
        """Hash of the sender's key; None: the queue is not secured."""
        self.is_off = is_off
        """Suspended: nothing more is accepted."""
        self.created_day = created_day
        """Seconds since 1970, rounded down to a day."""
        self.ttl = ttl
        self.messages: list[Message] = []
        self.size = -1
        """In the store ``journal``: how many messages its folder holds, markers included; -1: nobody has looked yet."""
        self.given: bytes | None = None
        """Id of the message that was last given to a receiver."""
        self.is_worn = False
        """There: files hold what was received, and are to be cleaned."""

    @property
    def is_closed(self) -> bool:
        """A sender met the quota, and the queue was not empty since: nothing is put behind the marker."""
        return bool(self.messages) and self.messages[-1].body is None

    def __repr__(self) -> str:
        return f"<queue of {len(self.messages)} messages>"
