"""Topics: append-only streams of entries, one log each, that Redis Streams clients can use."""

from __future__ import annotations
