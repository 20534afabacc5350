"""Groups that go with very many pending entries: nobody waits for the room they give back."""

from __future__ import annotations

import threading

import pytest

from lamina.engines.topics import garbage, ids, sorted_map
from lamina.engines.topics.group_state import Group
from lamina.engines.topics.ids import EntryId


def group_with(pending: int) -> Group:
    group = Group(b"g", ids.FIRST, None, is_ahead=False)
    for number in range(pending):
        group.put(group.see(b"c%d" % (number % 2), 0), EntryId(number + 1), 0, 1)
    return group


def blocks_of(group: Group) -> int:
    return sum(len(each.pending._keys) for each in (group, *group.consumers.values()))


def test_a_large_group_goes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_map, "_BLOCK", 10)
    group, left = group_with(105), list[int]()
    blocks = blocks_of(group)
    assert blocks > 20
    monkeypatch.setattr(garbage, "LARGE", 100)
    monkeypatch.setattr(garbage.time, "sleep", lambda seconds: left.append(blocks_of(group)))
    garbage.free([group])
    for thread in threading.enumerate():
        if thread.name == "lamina-garbage":
            thread.join()
    assert left == [*range(blocks - 1, 2, -1)]  # the last of a map is let go without a rest
    assert not len(group.pending) and not any(len(one.pending) for one in group.consumers.values())


def test_a_small_group_goes_as_anything_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage.threading, "Thread", None)
    group = group_with(50)
    garbage.free([group])
    assert len(group.pending) == 50
