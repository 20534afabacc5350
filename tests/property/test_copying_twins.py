"""The compiled module of compaction in tasks does what the Python one says, with whole, random and damaged input."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina.pipeline.compaction as package
from lamina.engines.store import codec, columns
from lamina.log import kernel
from lamina.log.scan import Batch
from lamina.pipeline.compaction.spots import MOST_BYTES, MOST_FILES, Look, file_of, position_of
from pure import load_pure

plain: Any = load_pure(package, "copying")
quick: Any = pytest.importorskip("lamina.pipeline.compaction._copying", reason="the compiled twin is not built here")

NUMBER = st.integers(0, 3) | st.sampled_from([(1 << 63) - 1, 1 << 63, (1 << 64) - 1])
KEY = st.sampled_from([b"", b"\0", b"a", b"a\0", b"ab", b"abcdefgh", b"\xff" * 9]) | st.binary(max_size=12)
VALUE = st.binary(max_size=12) | st.sampled_from([b"v" * 90, b"w" * 300, b"x" * 20_000])
PUTS = st.builds(codec.put, NUMBER, KEY, VALUE, NUMBER, NUMBER)
REMOVES = st.builds(codec.remove, NUMBER, KEY, NUMBER, NUMBER)
ENTRIES = PUTS | PUTS | REMOVES
OTHERS = st.builds(codec.begin, NUMBER) | st.builds(codec.end, NUMBER, st.integers(0, 9)) | st.binary(max_size=40)
CUT = st.builds(lambda payload, size: payload[:size], ENTRIES, st.integers(0, 60))
FILES = st.sampled_from([0, 1, 77, MOST_FILES - 1])


def same(call: Callable[[Any], object]) -> object:
    """What both of them return, or the kind of their error."""
    results = []
    for module in (plain, quick):
        try:
            results.append(call(module))
        except (TypeError, ValueError, OverflowError) as error:
            results.append(type(error))
    assert results[0] == results[1]
    return results[0]


def batch_of(payloads: list[bytes], base: int = 0) -> Batch:
    data = kernel.encode_many(5, payloads)
    found = kernel.scan(data, 0, len(data))
    return Batch(base, memoryview(data), found.times, found.offsets, found.lengths, base + len(data), found.newest)


def shown(batch: Batch) -> tuple[object, ...]:
    return (*batch[2:], batch.base, bytes(batch.data))


@given(st.lists(ENTRIES | OTHERS | CUT, max_size=20), FILES, st.sampled_from([0, 16, MOST_BYTES - (1 << 20)]))
def test_entries_that_stand_for_records(payloads: list[bytes], file: int, base: int) -> None:
    batch = batch_of(payloads, base)
    same(lambda module: shown(module.as_spots(batch, file)))
    data = bytes(batch.data)
    made = quick.as_spots(batch, file)
    entries = [number for number, payload in enumerate(payloads) if is_entry(payload)]
    for number, payload in enumerate(payloads):
        seen = made.payload(number)
        if number not in entries:
            assert seen == payload
            continue
        place = codec.place_of(codec.item(0, payload))
        item = codec.item(5 + number, seen)
        assert codec.is_put(item) and codec.place_of(item) == place
        assert codec.version_of(item) == payload[9:25]
        spots, sizes = quick.survivors([item], 0)
        if len(spots):
            assert file_of(spots[0]) == file
            at = position_of(spots[0]) - base
            assert data[at : at + sizes[0]] == kernel.encode_many(5 + number, [payload])
        else:
            assert payload[0] == codec.REMOVE and payload[9:17] == bytes(8)


def is_entry(payload: bytes) -> bool:
    try:
        return codec.decode(payload).kind in (codec.PUT, codec.REMOVE)
    except codec.BadRecord:
        return False


@given(st.lists(ENTRIES, max_size=20), NUMBER, st.binary(max_size=60) | st.none())
def test_what_stays(payloads: list[bytes], boundary: int, other: bytes | None) -> None:
    batch = quick.as_spots(batch_of(payloads), 3)
    _, items = columns.read(batch.data, batch.times, batch.offsets, batch.lengths)
    found = same(lambda module: module.survivors([*items, *([] if other is None else [other])], boundary))
    if other is None:
        stays = [p for p in payloads if p[0] == codec.PUT or int.from_bytes(p[9:17], "big") > boundary]
        assert isinstance(found, tuple) and len(found[0]) == len(stays)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 30)), min_size=1, max_size=30))
def test_copying(records: list[tuple[int, int, int]]) -> None:
    at = 0
    spots, sizes = array("Q"), array("I")
    for file, gap, size in records:
        at += gap
        spots.append(file << 40 | at)
        sizes.append(size)
        at += size
    content = bytes(number * 7 % 256 for number in range(at))
    shuffled = sorted(range(len(spots)), key=lambda number: hash((number, at)))
    spots, sizes = array("Q", [spots[n] for n in shuffled]), array("I", [sizes[n] for n in shuffled])
    order = same(lambda module: module.in_file_order(spots))
    assert isinstance(order, array)
    starts = array("Q", accumulate(sizes, initial=0))
    outs = [bytearray(starts[-1]), bytearray(starts.pop())]
    done = 0
    while done < len(order):
        found = same(lambda module: module.reach(spots, sizes, order, done, 50, 20))  # noqa: B023
        assert isinstance(found, tuple)
        end, length = found
        assert done < end <= len(order)
        begin = position_of(spots[order[done]])
        for module, out in zip((plain, quick), outs, strict=True):
            module.place(content[begin : begin + length], spots, sizes, order, done, end, starts, out)
            with pytest.raises(ValueError, match="outside"):
                module.place(content[begin : begin + length - 1], spots, sizes, order, done, end, starts, out)
        done = end
    assert (
        outs[0]
        == outs[1]
        == b"".join(
            content[position_of(spot) : position_of(spot) + size] for spot, size in zip(spots, sizes, strict=True)
        )
    )


@given(
    st.lists(ENTRIES, max_size=20),
    st.booleans(),
    st.integers(-1, 400),
    st.sampled_from([1, 200, 1 << 15]),
    st.sets(st.integers(0, 19)),
    OTHERS | st.none(),
)
def test_a_look_at_records(
    payloads: list[bytes], is_sorted: bool, since: int, spacing: int, zones: set[int], other: bytes | None
) -> None:
    if is_sorted:
        by_place = {codec.place_of(codec.item(0, payload)): payload for payload in payloads}
        payloads = [by_place[place] for place in sorted(by_place)]
    if other is not None:
        payloads.append(other)
    data = bytearray(kernel.encode_many(5, payloads))
    found = kernel.scan(bytes(data), 0, len(data))
    at = 0
    for number, (offset, length) in enumerate(zip(found.offsets, found.lengths, strict=True)):
        if number in zones:
            data[at + 13] ^= 1
        at = offset + length + 4
    seen = same(lambda module: module.look(data, found.offsets, found.lengths, since, spacing))
    if is_sorted and other is None and payloads:
        assert isinstance(seen, Look)
        assert seen.first == codec.place_of(codec.item(0, payloads[0]))
        assert seen.highest == max(payload[9:25] for payload in payloads)
        assert seen.foreign == sorted(zones & set(range(len(payloads))))
