"""The sorted list: in order whatever comes and goes, and no change touches more than a block."""

from __future__ import annotations

import random

import pytest

from lamina.engines.topics import sorted_list
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.sorted_list import SortedList


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_list, "_BLOCK", 4)


def ids(*numbers: int) -> list[EntryId]:
    return [EntryId(number) for number in numbers]


def check(listed: SortedList[EntryId], there: set[EntryId], start: EntryId) -> None:
    assert len(listed) == len(there)
    assert list(listed.since()) == sorted(there)
    assert list(listed.since(start)) == sorted(each for each in there if each >= start)
    assert (listed.first(), listed.last()) == (min(there, default=None), max(there, default=None))
    blocks = listed._blocks
    assert all(blocks) or (len(blocks) == 1 and not there)
    assert max(map(len, blocks)) <= 2 * sorted_list._BLOCK


@pytest.mark.parametrize("seed", range(8))
def test_items_are_in_order_however_they_came_and_went(seed: int) -> None:
    rng, there = random.Random(seed), set(ids(*range(0, 30, 3)))
    listed = SortedList(there)
    for step in range(600):
        item = EntryId(rng.randrange(60 if step < 400 else 1000))
        if item in there and rng.random() < 0.7:
            there.remove(item)
            listed.remove(item)
        elif item not in there:
            there.add(item)
            listed.add(item)
        if rng.random() < 0.02:
            gone = rng.sample(sorted(there), rng.randrange(len(there) + 1))
            there.difference_update(gone)
            listed.remove_all(gone)
        check(listed, there, EntryId(rng.randrange(70)))


def test_a_few_of_many_are_taken_out_one_by_one() -> None:
    listed = SortedList(ids(*range(1000)))
    blocks = listed._blocks
    listed.remove_all(ids(0, 500, 999))
    assert listed._blocks is blocks  # not all of them were looked at
    check(listed, {*ids(*range(1000))} - {*ids(0, 500, 999)}, EntryId(499))


def test_all_may_go_and_come_again() -> None:
    listed = SortedList(ids(*range(20)))
    listed.remove_all(ids(*range(20)))
    check(listed, set(), EntryId(0))
    for item in ids(7, 3, 5):
        listed.add(item)
    check(listed, set(ids(3, 5, 7)), EntryId(4))
    for item in ids(5, 3, 7):
        listed.remove(item)
    check(listed, set(), EntryId(0))


def test_what_nobody_uses_any_more_goes_block_by_block() -> None:
    listed = SortedList(ids(*range(10)))
    steps = 1
    while listed.shrink():
        steps += 1
    assert steps == 3
    check(listed, set(), EntryId(0))


def test_no_change_of_a_long_list_moves_more_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """However an item comes or goes, all blocks but one or two are what they were."""
    listed, rng = SortedList(ids(*range(0, 4000, 2))), random.Random(1)
    there = set(listed.since())
    for _ in range(500):
        before = [tuple(block) for block in listed._blocks]
        item = EntryId(rng.randrange(4000))
        if item in there:
            there.remove(item)
            listed.remove(item)
        else:
            there.add(item)
            listed.add(item)
        after = [tuple(block) for block in listed._blocks]
        assert len({*before} ^ {*after}) <= 3
