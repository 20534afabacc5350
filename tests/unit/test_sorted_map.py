"""The sorted map: in order whatever comes and goes, and no change touches more than a block."""

from __future__ import annotations

import random

import pytest

from lamina.engines.topics import sorted_map
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.sorted_map import SortedMap


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_map, "_BLOCK", 4)


def made(*numbers: int) -> SortedMap[EntryId, int]:
    """Each of them with twice itself."""
    return SortedMap((EntryId(number), 2 * number) for number in numbers)


def check(mapped: SortedMap[EntryId, int], there: dict[EntryId, int], start: EntryId) -> None:
    assert len(mapped) == len(there)
    assert list(mapped.items()) == sorted(there.items())
    assert list(mapped.keys(start)) == sorted(key for key in there if key >= start)
    assert list(mapped.values(start)) == [there[key] for key in sorted(there) if key >= start]
    assert (mapped.first(), mapped.last()) == (min(there, default=None), max(there, default=None))
    assert mapped.get(start) == there.get(start) and (start in mapped) == (start in there)
    blocks = mapped._keys
    assert all(blocks) or (len(blocks) == 1 and not there)
    assert [*map(len, blocks)] == [*map(len, mapped._values)]
    assert max(map(len, blocks)) <= 2 * sorted_map._BLOCK


@pytest.mark.parametrize("seed", range(8))
def test_keys_are_in_order_however_they_came_and_went(seed: int) -> None:
    rng, there = random.Random(seed), {EntryId(key): key for key in range(0, 30, 3)}
    mapped = SortedMap(there.items())
    for step in range(600):
        key = EntryId(rng.randrange(60 if step < 400 else 1000))
        if rng.random() < 0.5:
            assert mapped.pop(key) == there.pop(key, None)
        elif key not in there:
            there[key] = step
            mapped.add(key, step)
        check(mapped, there, EntryId(rng.randrange(70)))


def test_all_may_go_and_come_again() -> None:
    mapped = made(*range(20))
    for key in range(20):
        assert mapped.pop(EntryId(key)) == 2 * key
    check(mapped, {}, EntryId(0))
    for key in (7, 3, 5):
        mapped.add(EntryId(key), key)
    check(mapped, {EntryId(key): key for key in (3, 5, 7)}, EntryId(4))


def test_what_nobody_uses_any_more_goes_block_by_block() -> None:
    mapped = made(*range(10))
    steps = 1
    while mapped.shrink():
        steps += 1
    assert steps == 3
    check(mapped, {}, EntryId(0))


def test_no_change_of_a_large_map_moves_more_than_a_block() -> None:
    """However a key comes or goes, all blocks but one or two are what they were."""
    mapped, rng = made(*range(0, 4000, 2)), random.Random(1)
    for _ in range(500):
        before = [tuple(block) for block in mapped._keys]
        key = EntryId(rng.randrange(4000))
        if key in mapped:
            mapped.pop(key)
        else:
            mapped.add(key, 0)
        after = [tuple(block) for block in mapped._keys]
        assert len({*before} ^ {*after}) <= 3


class Compared(int):
    """A key that counts how often it is compared with others."""

    times = 0

    def __lt__(self, other: int) -> bool:
        Compared.times += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        Compared.times += 1
        return int(self) > int(other)

    def __le__(self, other: int) -> bool:
        Compared.times += 1
        return int(self) <= int(other)

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return isinstance(other, int) and int(self) == int(other)

    def __hash__(self) -> int:
        return int.__hash__(self)


def test_keys_of_the_same_hash_are_compared_as_seldom_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # blocks as they are
    same = [Compared(ms << 64 | (1 << 40) - 8 * ms) for ms in range(10_000)]
    assert len({hash(key) for key in same}) == 1
    mapped: SortedMap[EntryId, None] = SortedMap()
    Compared.times = 0
    for key in same:
        mapped.add(EntryId(key), None)
    assert all(key in mapped for key in same)
    assert Compared.times < 40 * len(same)  # in a dict: half of all the others, each time
