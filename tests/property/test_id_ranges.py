"""Ranges of deleted ids against a set of them: whatever is known of the neighbours, and in whatever order it comes."""

from __future__ import annotations

from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.engines.topics import ranges
from lamina.engines.topics.ids import FIRST, LAST, EntryId
from lamina.engines.topics.ranges import PACKED, IdRanges

MOST = 60
everything = [EntryId(number) for number in range(MOST + 2)]
some_ids = st.integers(1, MOST).map(EntryId)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_BLOCK", 2)


class Model:
    """Some ids are entries, some of those are dead."""

    def __init__(self, entries: set[EntryId]) -> None:
        self.entries = sorted(entries)
        self.dead: set[EntryId] = set()
        self.floor = FIRST
        self.is_cut = False
        self.ranges = IdRanges()

    def before(self, id: EntryId) -> EntryId:
        return max((other for other in self.entries if other < id), default=FIRST)

    def delete(self, which: set[EntryId], knows_neighbours: bool) -> None:
        new = sorted(id for id in which if id in self.entries and id not in self.dead and id > self.floor)
        self.ranges.add_all([(self.before(id) if knows_neighbours else EntryId(id - 1), id) for id in new])
        self.dead.update(new)

    def learn(self, first: EntryId, last: EntryId) -> None:
        seen = [id for id in self.entries if max(first, EntryId(self.floor + 1)) <= id <= last]
        if seen:
            assert self.ranges.learn(seen, EntryId(seen[0] - 1)) == seen[-1]

    def learn_all(self) -> None:
        self.ranges.learn([id for id in self.entries if id > self.floor], self.floor)

    def forget_to(self, id: EntryId) -> None:
        if id > self.floor:
            self.is_cut = self.is_cut or id in self.ranges
            self.ranges.forget_to(id)
            self.floor = id

    @property
    def alive(self) -> list[EntryId]:
        return [id for id in self.entries if id > self.floor and id not in self.dead]

    def check(self) -> None:
        kept = self.ranges
        there = {id: id in kept for id in everything}
        for id in self.entries:
            assert id <= self.floor or there[id] == (id in self.dead)
        found = list(kept)
        assert len(kept) == len(found) == len(list(kept.packed()))
        assert bool(kept) == bool(found)
        assert kept.last() == (found[-1].last if found else None)
        assert all(each.after < each.last for each in found)
        assert all(one.last < other.after for one, other in pairwise(found)), "those that touch are one"
        assert {id for each in found for id in everything if each.after < id <= each.last} == {
            id for id in everything if there[id]
        }
        dead = len([id for id in self.dead if id > self.floor])
        assert kept.ids == sum(each.ids for each in found)
        assert kept.ids <= dead if self.is_cut else kept.ids == dead

    def check_searches(self) -> None:
        kept = self.ranges
        for id in everything:
            assert kept.next_outside(id) == next(n for n in range(id, MOST + 3) if n not in kept)
            assert kept.last_outside(id) == next(n for n in range(id, -1, -1) if n not in kept)
            assert kept.next_inside(id) == next((n for n in everything[id:] if n in kept), LAST + 1)
            assert kept.last_inside(id) == next((n for n in reversed(everything[: id + 1]) if n in kept), FIRST)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("delete"), st.sets(some_ids, max_size=8), st.booleans()),
        st.tuples(st.just("learn"), some_ids, some_ids),
        st.tuples(st.just("forget_to"), some_ids),
        st.tuples(st.just("learn_all")),
    ),
    max_size=12,
)
models = st.builds(Model, st.sets(some_ids))


def go(model: Model, doings: list[tuple[object, ...]]) -> None:
    for name, *words in doings:
        getattr(model, str(name))(*words)
        model.check()


@given(models, steps)
def test_the_same_are_deleted(model: Model, doings: list[tuple[object, ...]]) -> None:
    go(model, doings)
    model.check_searches()


@given(models, steps)
def test_neighbours_become_one_range_once_they_are_known(model: Model, doings: list[tuple[object, ...]]) -> None:
    go(model, doings)
    model.learn_all()
    model.check()
    there = [id in model.dead for id in model.entries if id > model.floor]
    runs = len([is_dead for is_dead, _ in groupby(there) if is_dead])
    # A range that retention cut may have lost all of its entries.
    assert runs <= len(model.ranges) <= runs + model.is_cut


@given(st.sets(some_ids), st.permutations(range(1, MOST + 1)))
def test_neighbours_that_are_told_touch_in_whatever_order_they_go(living: set[EntryId], order: list[int]) -> None:
    model = Model(set(everything[1:-1]))
    for id in map(EntryId, order):
        if id not in living:
            model.delete({id}, knows_neighbours=True)
    runs = len([is_dead for is_dead, _ in groupby(id in model.dead for id in model.entries) if is_dead])
    assert len(model.ranges) == runs
    model.check()


@given(models, steps, some_ids, some_ids)
def test_a_part_a_copy_and_what_was_kept_say_the_same(
    model: Model, doings: list[tuple[object, ...]], after: EntryId, last: EntryId
) -> None:
    go(model, doings)
    kept = list(model.ranges.packed())
    assert all(len(each) == PACKED for each in kept)
    again = IdRanges(kept)
    assert list(again) == list(model.ranges) and again.ids == model.ranges.ids
    part = model.ranges.part(after, last)
    assert [id in part for id in everything if after < id <= last] == [
        id in model.ranges for id in everything if after < id <= last
    ]
    whole = [each for each in model.ranges if each.after >= after and each.last <= last]
    assert model.ranges.between(after, last) == sum(each.ids for each in whole)
    copy = model.ranges.copy()
    model.delete(set(model.entries), knows_neighbours=True)
    assert list(copy) == list(again) and copy.ids == again.ids
    model.check()


def test_what_was_looked_up_is_forgotten_with_every_change() -> None:
    kept = IdRanges()
    assert EntryId(5) not in kept
    kept.add(EntryId(4), EntryId(5))
    assert EntryId(5) in kept and EntryId(6) not in kept
    kept.add(EntryId(5), EntryId(9), 2)
    assert EntryId(6) in kept and kept.ids == 3 and len(kept) == 1
    kept.forget_to(EntryId(9))
    assert EntryId(9) not in kept and not kept and not kept.ids


def test_the_very_last_id_can_be_deleted() -> None:
    kept = IdRanges()
    kept.add(EntryId(LAST - 1), LAST)
    assert LAST in kept and kept.last_outside(LAST) == LAST - 1 and kept.next_outside(LAST) == LAST + 1
    assert kept.next_inside(FIRST) == LAST and kept.part(FIRST, LAST).last() == LAST
    kept.forget_to(LAST)
    assert not kept
