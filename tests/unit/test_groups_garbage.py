"""Groups that go with very many pending entries: nobody waits for the room they give back."""

from __future__ import annotations

import threading

import pytest

from lamina.engines.topics import garbage, ids
from lamina.engines.topics.group_state import Group
from lamina.engines.topics.ids import EntryId


def group_with(pending: int) -> Group:
    group = Group(b"g", ids.FIRST, None, is_ahead=False)
    for number in range(pending):
        group.put(group.see(b"c%d" % (number % 2), 0), EntryId(number + 1), 0, 1)
    return group


def test_a_large_group_goes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    group, left = group_with(105), list[int]()
    monkeypatch.setattr(garbage, "_LARGE", 100)
    monkeypatch.setattr(garbage, "_PIECE", 10)
    monkeypatch.setattr(garbage, "_rest", lambda: left.append(len(group.pending)))
    garbage.free([group])
    for thread in threading.enumerate():
        if thread.name == "lamina-garbage":
            thread.join()
    assert left[:11] == [95, 85, 75, 65, 55, 45, 35, 25, 15, 5, 0]
    assert not len(group.ids) and not any(len(one.ids) for one in group.consumers.values())


def test_a_small_group_goes_as_anything_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage.threading, "Thread", None)
    group = group_with(50)
    garbage.free([group])
    assert len(group.pending) == 50
