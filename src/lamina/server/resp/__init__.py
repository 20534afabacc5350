"""The RESP door: the protocol of Redis, in its versions 2 and 3."""

from __future__ import annotations

from lamina.twins import stand_in

IS_COMPILED = stand_in(
    __name__,
    *("protocol", "entry_replies", "replies", "session", "dispatch", "runs", "stream_adding", "stream_reading"),
    *("group_pending", "group_reading"),
    *("queue_commands", "answers", "waiting", "door"),
)
