"""The compiled modules of the store do what the Python ones say, with whole, random and damaged input."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina.engines.store as package
from lamina.engines.store import codec
from lamina.engines.store.codec import ADD, CLEAR, DROP, BadRecord
from lamina.engines.store.fold import Fold
from lamina.log.packed import Packed
from pure import load_pure

plain = load_pure(package, "table")
plain_columns = load_pure(package, "columns")
plain_packing = load_pure(package, "packing")

SMALL = st.integers(0, 3)
LARGE = st.sampled_from([0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
NUMBER = SMALL | LARGE
KEY = st.sampled_from(
    [b"", b"\0", b"a", b"a\0", b"ab", b"abcdefgh", b"abcdefgh\0", b"abcdefghi", b"\xff" * 8, b"\xff" * 9]
)
ANY_KEY = KEY | st.binary(max_size=20)
VALUE = st.binary(max_size=12) | st.sampled_from([b"v" * 300, b"w" * 301])
PUTS = st.builds(codec.put, NUMBER, ANY_KEY, VALUE, NUMBER, NUMBER)
REMOVES = st.builds(codec.remove, NUMBER, ANY_KEY, NUMBER, NUMBER)
ABOUT = st.builds(codec.about_storage, st.sampled_from([CLEAR, ADD, DROP]), NUMBER, NUMBER, NUMBER)
ENTRIES = st.one_of(PUTS, PUTS, REMOVES, ABOUT)
MARKS = st.builds(lambda first, rest: bytes([first]) + rest, st.sampled_from([0x92, 0x93]), st.binary(max_size=12))
EPOCH = st.integers(1, 9)


def compiled(name: str) -> Any:
    return pytest.importorskip(f"lamina.engines.store.{name}", reason="the compiled twin is not built here")


# -- what to compare -------------------------------------------------------------------------------------------------


def outcome(call: Callable[..., object], *arguments: object) -> object:
    """What it returns, or the kind of its error."""
    try:
        return call(*arguments)
    except (TypeError, ValueError, OverflowError) as error:  # BadRecord is a ValueError
        return type(error)


def shown(table: Any) -> tuple[object, ...]:
    storages = table.storages
    return len(table), table.highest, list(table.walk()), storages.cleared, storages.there


def told(fold: Fold) -> dict[str, object]:
    return dict(vars(fold))


def damaged(payload: bytes, at: int, bit: int, cut: int) -> bytes:
    """One bit of it is another, or its end is missing."""
    if not payload:
        return payload
    if cut:
        return payload[: at % len(payload)]
    changed = bytearray(payload)
    changed[at % len(payload)] ^= 1 << bit
    return bytes(changed)


DAMAGED = st.builds(damaged, ENTRIES, st.integers(0, 100), st.integers(0, 7), st.integers(0, 1))


@st.composite
def sessions(draw: st.DrawFn) -> list[bytes]:
    """Records of a file: sessions, most of them whole."""
    payloads: list[bytes] = []
    epoch = 1
    for _ in range(draw(st.integers(0, 4))):
        epoch = epoch + draw(st.integers(0, 3))
        entries = draw(st.lists(ENTRIES, max_size=6))
        payloads += draw(st.lists(MARKS, max_size=1))
        payloads += [codec.begin(epoch), *entries, codec.end(epoch, len(entries))]
    if draw(st.integers(0, 2)) == 0:
        wrong = draw(st.one_of(DAMAGED, st.binary(max_size=40), ENTRIES, st.builds(codec.begin, EPOCH)))
        payloads.insert(draw(st.integers(0, len(payloads))), wrong)
    return payloads


def scanned(payloads: Iterable[bytes]) -> tuple[memoryview, array[int], array[int], array[int]]:
    """As log/scan.py gives them."""
    data, offsets, lengths = bytearray(b"xyz"), array("q"), array("q")
    for payload in payloads:
        offsets.append(len(data))
        lengths.append(len(payload))
        data += payload + b"crc!"
    return memoryview(bytes(data)), array("q", range(5, 5 + len(offsets))), offsets, lengths


# -- tables ----------------------------------------------------------------------------------------------------------


@given(sessions(), st.integers(0, 4), st.integers(0, 12), st.lists(st.tuples(EPOCH, EPOCH), max_size=2), st.data())
def test_fold(payloads: list[bytes], after: int, until: int, voids: list[tuple[int, int]], data: st.DataObject) -> None:
    twin = compiled("_table").Table()
    source = plain.Table()
    folds = Fold(after, until, voids), Fold(after, until, voids)
    batch = scanned(payloads)
    cut = data.draw(st.integers(0, len(payloads)))
    for first, last in ((0, cut), (cut, len(payloads))):
        columns = [array("q", column[first:last]) for column in batch[1:]]
        found = [table.fold(batch[0], *columns, fold) for table, fold in zip((source, twin), folds, strict=True)]
        assert found[0] == found[1]
        assert told(folds[0]) == told(folds[1])
        assert shown(source) == shown(twin)
        if found[0] < last - first:
            break


@given(
    st.lists(st.lists(st.one_of(ENTRIES, ENTRIES, ENTRIES, DAMAGED), max_size=6), max_size=4), st.integers(0, 1 << 62)
)
def test_take(taken: list[list[bytes]], first_ns: int) -> None:
    packed = []
    for payloads in taken:
        one = Packed()
        for payload in [codec.begin(1), *payloads, codec.end(1, len(payloads))]:
            one.append(payload)
        packed.append((first_ns, one))
    source, twin = plain.Table(), compiled("_table").Table()
    found = outcome(source.take, packed)
    assert outcome(twin.take, packed) == found
    if found is None:  # what a refused session leaves is not said
        assert shown(source) == shown(twin)


@given(st.binary(max_size=60), st.integers(0, 3))
def test_take_of_bytes_that_are_no_payloads_does_not_look_behind_them(data: bytes, length: int) -> None:
    packed = Packed()
    packed.data += data
    packed.length = length
    assert outcome(compiled("_table").Table().take, [(1, packed)]) in (None, BadRecord)


def filled(table: Any, payloads: Iterable[bytes]) -> Any:
    packed = Packed()
    for payload in payloads:
        packed.append(payload)
    table.take([(7, packed)])
    return table


@given(st.lists(ENTRIES, max_size=12), st.lists(ENTRIES, max_size=12))
def test_with_newer(older: list[bytes], newer: list[bytes]) -> None:
    made = []
    for module in (plain, compiled("_table")):
        both = [filled(module.Table(), payloads) for payloads in (older, newer)]
        before = [shown(each) for each in both]
        made.append(shown(both[0].with_newer(both[1])))
        assert [shown(each) for each in both] == before
    assert made[0] == made[1]


@given(
    st.lists(ENTRIES, max_size=30), st.binary(max_size=12), st.none() | st.binary(max_size=12), NUMBER, ANY_KEY, ANY_KEY
)
def test_looking(
    payloads: list[bytes], start: bytes, end: bytes | None, storage: int, key: bytes, other: bytes
) -> None:
    source, twin = (filled(module.Table(), payloads) for module in (plain, compiled("_table")))
    place, behind = codec.place(storage, key), codec.place(storage, other)
    for each in (place, start, behind):
        assert source.find(each) == twin.find(each)
    for first, last in ((start, end), (place, behind), (place, None), (b"", place)):
        assert list(source.walk(first, last)) == list(twin.walk(first, last))
        assert source.between(first, last) == twin.between(first, last)
    assert source.columns(1, 4) == twin.columns(1, 4)


@given(st.lists(st.one_of(PUTS, REMOVES), max_size=12), st.data())
def test_put_item(payloads: list[bytes], data: st.DataObject) -> None:
    source, twin = plain.Table(), compiled("_table").Table()
    for number, payload in enumerate(payloads):
        item = codec.item(number, payload)
        for table in (source, twin):
            table.put_item(codec.place_of(item), item)
        if data.draw(st.integers(0, 3)) == 0:  # looked at in between, and changed again
            assert shown(source) == shown(twin)
    assert shown(source) == shown(twin)


@given(NUMBER, st.lists(st.tuples(ANY_KEY, VALUE), max_size=5), NUMBER, st.integers(0, 1 << 63), st.integers(0, 320))
def test_packing(storage: int, pairs: list[tuple[bytes, bytes]], major: int, minor: int, largest: int) -> None:
    made = []
    for module in (plain_packing, compiled("_packing")):
        packed = Packed()
        module.put_many(packed, storage, pairs, major, minor)
        for key, value in pairs:
            module.put(packed, storage, key, value, major, minor)
        made.append((bytes(packed.data), packed.length, module.size_of(pairs, largest)))
    assert made[0] == made[1]


@given(
    st.lists(
        st.tuples(
            st.sampled_from((codec.PUT, codec.REMOVE, codec.CLEAR)),
            st.one_of(st.just((codec.MOST, 0)), st.tuples(NUMBER, NUMBER).filter(lambda each: each[0] != codec.MOST)),
        ),
        max_size=12,
    ),
    st.integers(0, 1 << 40),
    NUMBER,
)
def test_stamping(entries: list[tuple[int, tuple[int, int]]], major: int, minor: int) -> None:
    made = []
    for module in (plain_packing, compiled("_packing")):
        packed = Packed()
        packed.append(codec.begin(0))
        for kind, (its_major, its_minor) in entries:
            if kind == codec.PUT:
                packed.append(codec.put(7, b"key", b"value", its_major, its_minor))
            elif kind == codec.REMOVE:
                packed.append(codec.remove(7, b"key", its_major, its_minor))
            else:
                packed.append(codec.about_storage(kind, 7, its_major, its_minor))
        following = module.stamp(packed, 42, major, min(minor, 1 << 62))
        made.append((bytes(packed.data), packed.length, following))
    assert made[0] == made[1]
    assert codec.decode(next(iter(packed))).epoch == 42
    stamped = [codec.decode(payload).version for payload in list(packed)[1:]]
    for at, ((_, chosen), version) in enumerate(zip(entries, stamped, strict=True)):
        if chosen[0] == codec.MOST:
            assert all(version > before for before in stamped[:at])
        else:
            assert version == chosen


@pytest.mark.parametrize("pairs", [[("a", b"b")], [(b"a", None)], [(b"a",)], [(b"a", bytearray(b"b"))], 5, [3]])
def test_pairs_that_are_none(pairs: Any) -> None:
    for module in (plain_packing, compiled("_packing")):
        with pytest.raises((TypeError, ValueError)):
            module.size_of(pairs, 100)


def test_many_entries_and_many_that_are_written_again() -> None:
    """So many that slots grow, blocks are full, and dead items are tidied away."""
    source, twin = plain.Table(), compiled("_table").Table()
    for turn in range(6):
        payloads = [
            codec.put(key % 3, b"key %d" % (key % 1700), b"v" * (key * (turn + 7) % 2000), turn, key)
            for key in range(2000)
        ]
        for table in (source, twin):
            filled(table, payloads)
        assert len(source) == len(twin)
    assert shown(source) == shown(twin)


# -- columns -----------------------------------------------------------------------------------------------------------

ITEMS = st.builds(
    lambda payload, time_ns: codec.item(time_ns, payload), st.one_of(PUTS, REMOVES), st.integers(0, 1 << 62)
)


def sorted_columns(items: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    by_place = {codec.place_of(item): item for item in items}
    places = sorted(by_place)
    return places, [by_place[place] for place in places]


COLUMNS = st.lists(ITEMS, max_size=10).map(sorted_columns)


@given(COLUMNS, COLUMNS)
def test_merge(older: Any, newer: Any) -> None:
    assert plain_columns.merge(older, newer) == compiled("_columns").merge(older, newer)


@given(
    COLUMNS, st.dictionaries(NUMBER.map(codec.NUMBER.pack), st.tuples(NUMBER, NUMBER).map(codec.pack_version)), NUMBER
)
def test_cull(columns: Any, cleared: dict[bytes, bytes], boundary: int) -> None:
    for limit in (b"", codec.NUMBER.pack(boundary)):
        expected = plain_columns.cull(columns, cleared, limit)
        assert compiled("_columns").cull(columns, cleared, limit) == expected


@given(COLUMNS, st.binary(max_size=12), st.data())
def test_rises(columns: Any, after: bytes, data: st.DataObject) -> None:
    places = columns[0]
    shuffled = data.draw(st.permutations(places))
    for some in (places, shuffled, places + places[-1:]):
        assert plain_columns.rises(some, after) == compiled("_columns").rises(some, after)


@given(st.lists(st.one_of(PUTS, REMOVES, PUTS, REMOVES, DAMAGED), max_size=8))
def test_read(payloads: list[bytes]) -> None:
    data, times, offsets, lengths = scanned(payloads)
    expected = outcome(plain_columns.read, data, times, offsets, lengths)
    assert outcome(compiled("_columns").read, data, times, offsets, lengths) == expected


@given(
    st.lists(ITEMS, max_size=8), st.integers(0, 20), st.integers(0, 3), st.integers(0, 900), st.integers(-1, 80), SMALL
)
def test_write(items: list[bytes], at: int, start: int, until: int, since: int, spacing: int) -> None:
    made = []
    for module in (plain_columns, compiled("_columns")):
        buffer = bytearray(64)
        found = outcome(module.write, buffer, at, items, start, until, since, spacing * 40 + 1)
        end = found[1] if isinstance(found, tuple) else 0
        made.append((found, bytes(buffer[:end])))
    assert made[0] == made[1]
