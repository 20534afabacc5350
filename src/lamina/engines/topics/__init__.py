"""Topics: append-only streams of entries, one log each, that Redis Streams clients can use."""

from __future__ import annotations

from lamina.twins import stand_in

IS_COMPILED = stand_in(
    __name__,
    *("ids", "ranges", "entries", "state", "sorted_map", "group_codec", "group_state", "group_claims"),
    *("tail", "finding", "contents", "topic", "groups", "group_views", "topics"),
)
