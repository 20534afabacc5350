"""The compiled functions about entries do what the Python ones say, with anything that is or is not an entry."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina.engines.topics as package
import lamina.server.resp as resp_package
from lamina.engines.topics import entries as compiled
from lamina.engines.topics import ids
from lamina.engines.topics.codec import BadRecord, encode_set, encode_trimmed
from lamina.server.resp import entry_replies as compiled_replies
from pure import load_pure

pytestmark = pytest.mark.skipif(
    not (package.IS_COMPILED and resp_package.IS_COMPILED), reason="the compiled twins are not built here"
)


plain = load_pure(package, "entries")
plain_replies = load_pure(resp_package, "entry_replies")

some_ids = st.one_of(
    st.integers(0, (1 << 128) - 1),
    st.builds(ids.make, st.integers(0, 1 << 20), st.integers(0, 300)),
).map(ids.EntryId)
words = st.one_of(st.binary(max_size=20), st.sampled_from([b"x" * 255, b"x" * 256, b"y" * 65536]))
fields = st.lists(words, max_size=20)
records = st.builds(plain.encode, some_ids, fields)
others = st.one_of(
    st.builds(encode_trimmed, some_ids, st.integers(0, 1 << 40)),
    st.builds(encode_set, some_ids, st.integers(0, 1 << 40), some_ids),
)


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """A record with a byte changed, cut, or put in."""
    record = bytearray(draw(records))
    at = draw(st.integers(0, len(record) - 1))
    how = draw(st.sampled_from(["change", "cut", "put"]))
    if how == "change":
        record[at] = draw(st.integers(0, 255))
    elif how == "cut":
        del record[at:]
    else:
        record.insert(at, draw(st.integers(0, 255)))
    return bytes(record)


def outcome(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except BadRecord:
        return BadRecord


def test_the_two_are_two() -> None:
    assert plain.__file__ != compiled.__file__ and plain_replies.__file__ != compiled_replies.__file__


@given(some_ids, fields)
def test_an_entry_is_written_and_read_the_same(id: ids.EntryId, words: list[bytes]) -> None:
    record = compiled.encode(id, words)
    assert record == plain.encode(id, words) == compiled.encode(id, tuple(words))
    assert compiled.decode(record) == (id, words)
    assert compiled.entry_id(record) == id
    assert compiled.show(id) == plain.show(id)
    assert compiled_replies.show_id(id) == plain_replies.show_id(id)


numbers = st.integers(0, (1 << 63) - 1)


@given(st.lists(some_ids), st.lists(st.tuples(some_ids, numbers, numbers)))
def test_ids_are_written_the_same(some: list[ids.EntryId], claimed: list[tuple[ids.EntryId, int, int]]) -> None:
    assert compiled.encode_ids(some) == plain.encode_ids(some)
    assert compiled.encode_claimed(claimed) == plain.encode_claimed(claimed)


@given(st.lists(st.tuples(some_ids, words, numbers, numbers)), numbers)
def test_what_is_pending_is_shown_the_same(some: list[tuple[ids.EntryId, bytes, int, int]], now: int) -> None:
    assert compiled_replies.show_pending(some, now) == plain_replies.show_pending(some, now)


@given(st.one_of(records, others, spoiled(), st.binary(max_size=30)))
def test_what_is_no_entry_is_refused_by_both(record: bytes) -> None:
    for name in ("decode", "entry_id"):
        assert outcome(getattr(compiled, name), record) == outcome(getattr(plain, name), record)
    shown = outcome(compiled_replies.show_all, [record])
    assert shown == outcome(plain_replies.show_all, [record])


@given(st.lists(records, max_size=8), st.lists(some_ids, max_size=8))
def test_answers_are_the_same(payloads: list[bytes], found: list[ids.EntryId]) -> None:
    assert compiled_replies.show_all(payloads) == plain_replies.show_all(payloads)
    assert compiled_replies.show_ids(found) == plain_replies.show_ids(found)


class EvenIds:
    """Stands for ranges in which nothing is alive."""

    def __contains__(self, id: int) -> bool:
        return id % 2 == 0


Batch = tuple[memoryview, "array[int]", "array[int]"]


def batch_of(payloads: Iterable[bytes], apart: bytes = b"-") -> Batch:
    """As a scan gives them: data, offsets and lengths."""
    offsets, lengths, data = array("q"), array("q"), bytearray(2 * apart)
    for payload in payloads:
        offsets.append(len(data))
        lengths.append(len(payload))
        data += payload + apart
    return memoryview(data), offsets, lengths


batches = st.lists(st.one_of(records, others, spoiled()), max_size=12)


@given(batches, some_ids, some_ids, st.integers(0, 14), st.sampled_from([None, EvenIds()]))
def test_the_same_are_picked(payloads: list[bytes], start: ids.EntryId, end: ids.EntryId, most: int, gone: Any) -> None:
    batch = batch_of(payloads)
    words = (*batch, start, end, most, gone)
    assert outcome(compiled.pick, *words) == outcome(plain.pick, *words)
    assert outcome(compiled.entry_ids, *batch) == outcome(plain.entry_ids, *batch)
    for first in range(len(payloads)):
        assert outcome(compiled.run_from, *batch, first) == outcome(plain.run_from, *batch, first)


@given(st.lists(records, max_size=12, unique_by=plain.entry_id), st.sampled_from([None, EvenIds()]))
def test_ids_are_those_of_all_entries_and_none_is_picked_that_is_gone(payloads: list[bytes], gone: Any) -> None:
    batch = batch_of(sorted(payloads, key=plain.entry_id))
    found = plain.entry_ids(*batch)
    assert found == sorted(map(plain.entry_id, payloads))
    picked, _, _, _ = plain.pick(*batch, ids.FIRST, ids.LAST, 12, gone)
    assert list(map(plain.entry_id, picked)) == [id for id in found if gone is None or id % 2]


@given(
    batches,
    st.lists(some_ids, max_size=6),
    st.sets(st.integers(0, 11)),
    st.integers(0, 3),
    st.one_of(st.none(), some_ids),
)
def test_the_same_that_are_wanted_are_picked(
    payloads: list[bytes],
    beside: list[ids.EntryId],
    which: set[int],
    first: int,
    previous: ids.EntryId | None,
) -> None:
    known = [outcome(plain.entry_id, payload) for number, payload in enumerate(payloads) if number in which]
    wanted = sorted({*beside, *(id for id in known if isinstance(id, int))})

    def of(module: Any, batch: Batch, first: int) -> Any:
        return outcome(module.pick_wanted, *batch, wanted, first, previous)

    batch = batch_of(payloads)
    assert of(compiled, batch, min(first, len(wanted))) == of(plain, batch, min(first, len(wanted)))
    in_order = sorted({id: record for record in payloads if type(id := outcome(plain.entry_id, record)) is int}.items())
    batch = batch_of((record for _, record in in_order), b"")
    found, done, _ = of(plain, batch, 0)
    assert of(compiled, batch, 0) == of(plain, batch, 0)
    in_front = [previous, *(id for id, _ in in_order)]
    assert found == [(*pair, front) for pair, front in zip(in_order, in_front, strict=False) if pair[0] in wanted]
    assert done == len([id for id in wanted if in_order and id <= in_order[-1][0]])
