"""Promises of merging: of each place the newest item, whatever the runs are cut into; and both twins do the same."""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Iterator, Mapping
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.engines import store
from lamina.engines.store import codec, merging
from lamina.engines.store.columns import Columns
from lamina.engines.store.merging import Feed, culled, merged, run_of
from lamina.engines.store.storages import Storages
from lamina.engines.store.table import Table
from lamina.errors import RecordTooLarge
from lamina.log import kernel
from pure import load_pure


def twins() -> list[ModuleType]:
    found = [load_pure(store, "columns")]
    try:
        found.append(importlib.import_module("lamina.engines.store._columns"))
    except ImportError:  # nothing was compiled here
        return found
    return found


TWINS = twins()
both = pytest.mark.parametrize("columns", TWINS, ids=lambda module: module.__name__.rpartition(".")[2])

Spec = tuple[int, bytes, int, int, bool, bytes]  # storage, key, major, minor, is it a put, value
versions = st.one_of(st.integers(0, 4), st.integers(0, codec.MOST))
specs = st.tuples(
    st.integers(0, 3), st.binary(max_size=2), versions, st.integers(0, 2), st.booleans(), st.binary(max_size=3)
)
runs_of_specs = st.lists(st.lists(specs, max_size=12), max_size=6)


def item_of(spec: Spec, time_ns: int = 5) -> tuple[bytes, bytes]:
    storage, key, major, minor, is_put, value = spec
    payload = codec.put(storage, key, value, major, minor) if is_put else codec.remove(storage, key, major, minor)
    return codec.place(storage, key), codec.item(time_ns, payload)


def sorted_run(items: list[Spec], time_ns: int) -> dict[bytes, bytes]:
    return dict(sorted(item_of(spec, time_ns) for spec in items))


def pieces(run: Mapping[bytes, bytes], cuts: list[int]) -> Iterator[Columns]:
    """A run in pieces of these sizes, over and over."""
    places = list(run)
    at = number = 0
    while at < len(places):
        size = cuts[number % len(cuts)]
        some = places[at : at + size]
        yield some, [run[place] for place in some]
        at += size
        number += 1


def joined(run: Iterator[Columns]) -> list[tuple[bytes, bytes]]:
    return [pair for places, items in run for pair in zip(places, items, strict=True)]


def newest(runs: list[dict[bytes, bytes]]) -> dict[bytes, bytes]:
    """The same the plain way."""
    model: dict[bytes, bytes] = {}
    for run in runs:
        for place, item in run.items():
            if place not in model or codec.version_of(item) >= codec.version_of(model[place]):
                model[place] = item
    return dict(sorted(model.items()))


@settings(max_examples=200, deadline=None)
@given(runs_of_specs, st.lists(st.integers(1, 5), min_size=1, max_size=4))
@pytest.mark.parametrize("columns", TWINS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_of_each_place_the_newest_item(columns: ModuleType, specs: list[list[Spec]], cuts: list[int]) -> None:
    runs = [sorted_run(each, number) for number, each in enumerate(specs)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "columns", columns)
        assert joined(merged([pieces(run, cuts) for run in runs])) == list(newest(runs).items())


def test_of_equal_versions_that_of_the_later_run() -> None:
    spec = (1, b"key", 4, 2, True, b"value")
    runs = [[([item_of(spec, time)[0]], [item_of(spec, time)[1]])] for time in range(5)]
    ((_, item),) = joined(merged([iter(run) for run in runs]))
    assert codec.time_of(item) == 4


def test_a_run_alone_passes_as_it_is() -> None:
    piece = ([item_of((1, b"a", 1, 1, True, b""))[0]], [item_of((1, b"a", 1, 1, True, b""))[1]])
    (found,) = merged([iter([piece]), iter([])])
    assert found[0] is piece[0] and found[1] is piece[1]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(specs, max_size=20),
    st.dictionaries(st.integers(0, 3), st.tuples(versions, st.integers(0, 2))),
    st.one_of(st.none(), versions),
)
@pytest.mark.parametrize("columns", TWINS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_what_is_void_is_left_out(
    columns: ModuleType, specs: list[Spec], cleared: dict[int, tuple[int, int]], boundary: int | None
) -> None:
    run = sorted_run(specs, 1)
    storages = Storages()
    for storage, (major, minor) in cleared.items():
        storages.take(codec.CLEAR, storage, codec.pack_version((major, minor)))
    expected = []
    for place, item in run.items():
        version = codec.version(codec.version_of(item))
        is_void = version < cleared.get(codec.storage_of(place), (0, 0))
        is_spent = not codec.is_put(item) and boundary is not None and version.major <= boundary
        if not is_void and not is_spent:
            expected.append((place, item))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "columns", columns)
        found = list(culled(pieces(run, [3]), storages, boundary))
    assert joined(iter(found)) == expected
    assert all(places for places, _ in found)


def test_a_feed_is_looked_at_and_taken_up_to_a_place() -> None:
    run = sorted_run([(1, b"%d" % number, 1, 1, True, b"") for number in range(9)], 1)
    places = list(run)
    feed = Feed(pieces(run, [2]))
    assert joined(feed.before(places[0])) == []
    assert feed.first() == places[0]
    assert [place for place, _ in joined(feed.before(places[3]))] == places[:3]
    assert feed.first() == places[3]
    assert [place for place, _ in joined(feed.before(None))] == places[3:]
    assert feed.first() is None


def test_a_table_is_a_run() -> None:
    table = Table()
    for number in range(5000):
        table.put_item(*item_of((1, b"%d" % (number * 7919 % 5000), 1, number, True, b"")))
    assert joined(run_of(table)) == list(table.walk())
    some = codec.place(1, b"3")
    assert joined(run_of(table, some)) == list(table.walk(some))


# -- the twins by themselves -----------------------------------------------------------------------------------------


@both
@settings(max_examples=100, deadline=None)
@given(st.lists(specs, max_size=20), st.integers(0, 3), st.integers(1, 400), st.integers(-1, 90), st.integers(0, 500))
def test_records_are_written_and_read(
    columns: ModuleType, specs: list[Spec], start: int, spacing: int, since: int, until: int
) -> None:
    run = sorted_run(specs, 1_700_000_000_123_456_789)
    items = list(run.values())
    buffer = bytearray(b"before")
    done, end, points, highest = columns.write(buffer, 6, items, start, 6 + until, since, spacing)
    written = bytes(buffer[6:end])
    assert buffer[:6] == b"before"
    some = items[start:done]
    assert written == b"".join(kernel.encode_many(codec.time_of(item), [item[8:]]) for item in some)
    assert done == len(items) or done == start or end >= 6 + until
    assert highest == max(map(codec.version_of, some), default=b"")
    # The blocks, the plain way.
    expected, at, begun = [], 6, None if since < 0 else 6 - since
    for number in range(start, done):
        if begun is None or at - begun >= spacing:
            expected.append((number, at))
            begun = at
        at += len(kernel.encode_many(1, [items[number][8:]]))
    assert points == expected
    found = kernel.scan(written, 0, len(written))
    assert found.stop == len(written)
    read = columns.read(memoryview(written), found.times, found.offsets, found.lengths)
    assert read == (list(run)[start:done], some)


@both
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        codec.begin(1),
        codec.about_storage(codec.CLEAR, 1, 2, 3),
        codec.put(1, b"key", b"", 1, 1)[:-1],
        codec.remove(1, b"key", 1, 1) + b"?",
        codec.put(1, b"key", b"", 1, 1).replace(b"\x03key", b"\xffkey"),
        b"\x09" + codec.put(1, b"key", b"", 1, 1)[1:],
        bytes(200),
    ],
)
def test_what_is_no_entry_is_refused(columns: ModuleType, payload: bytes) -> None:
    good = codec.put(1, b"a", b"b", 1, 1)
    data = memoryview(good + payload)
    times, offsets = array("q", [1, 2]), array("q", [0, len(good)])
    with pytest.raises(codec.BadRecord, match="entry 1"):
        columns.read(data, times, offsets, array("q", [len(good), len(payload)]))


@both
def test_order_is_told(columns: ModuleType) -> None:
    assert columns.rises([], b"z")
    assert columns.rises([b"a", b"aa", b"b"], b"")
    assert not columns.rises([b"a", b"b"], b"a")
    assert not columns.rises([b"a", b"a"], b"")
    assert not columns.rises([b"b", b"a\xff"], b"")


@both
def test_an_item_that_fits_no_record_is_refused(columns: ModuleType) -> None:
    with pytest.raises(RecordTooLarge):
        columns.write(bytearray(), 0, [item_of((1, b"", 1, 1, True, bytes((64 << 20) - 28)))[1]], 0, 1 << 40, -1, 1)
    with pytest.raises(ValueError, match="buffer"):
        columns.write(bytearray(), 5, [item_of((1, b"", 1, 1, True, b""))[1]], 0, 1 << 40, -1, 1)
