"""The ways themselves: each has the same names."""

from __future__ import annotations

from typing import Any


def test_every_way_has_topics_queues_and_a_store(lm: Any, name: str) -> None:
    for part in ("jobs", "topics", "queues", "store"):
        assert getattr(lm, part) is not None
    assert lm.topic(name) is not None
