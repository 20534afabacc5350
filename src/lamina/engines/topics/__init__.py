"""Topics: append-only streams of entries, one log each, that Redis Streams clients can use."""

from __future__ import annotations

from lamina.twins import stand_in

IS_COMPILED = stand_in(__name__, "ranges", "entries", "state", "tail", "contents", "topic", "topics")
