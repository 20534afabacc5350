"""The store, in the process and behind a server, for threads and for coroutines: one text for all."""

from __future__ import annotations

import inspect
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from lamina.errors import BadEntry, BadOption, TooOld

MOST = (1 << 64) - 1
LARGEST = (64 << 20) - 64
ODD = [b"", b"\0", b"\0\0", b"\r\n", b"\xff", b"\xff\xff", "ключ".encode(), b" a b ", b"PUT", b"k" * 5000]
_numbers = itertools.count(int.from_bytes(os.urandom(5), "big") << 8, 4)


@pytest.fixture
def storage() -> int:
    """One that no other test has, nor the three behind it: the server is one for all."""
    return next(_numbers)


def pairs(entries: Any) -> list[tuple[bytes, bytes]]:
    return [(each.key, each.value) for each in entries]


def number(lm: Any, name: str) -> int:
    """``epoch`` or ``last_epoch``: behind a server coroutines have to wait for them."""
    target = lm.store
    value = getattr(getattr(target, "_target", target), name)
    return int(target._thread.run(value) if inspect.isawaitable(value) else value)


def test_a_value_is_there_when_the_call_returns(lm: Any, storage: int) -> None:
    assert lm.store.get(storage, b"k") is None
    before = time.time_ns()
    epoch = lm.store.put(storage, b"k", b"v")
    assert lm.store.get(storage, b"k") == b"v"
    found = lm.store.entry(storage, b"k")
    assert (found.storage, found.key, found.value, found.version.major) == (storage, b"k", b"v", epoch)
    assert before - 10**9 <= found.time_ns <= time.time_ns() + 10**9
    later = lm.store.put(storage, b"k", b"w")
    assert later > epoch and lm.store.entry(storage, b"k").version > found.version
    assert lm.store.remove(storage, b"k") > later
    assert lm.store.get(storage, b"k") is None and lm.store.entry(storage, b"k") is None
    assert lm.store.remove(storage, b"never there") > 0


def test_keys_and_values_are_any_bytes(lm: Any, storage: int) -> None:
    with lm.store.session() as session:
        for key in ODD:
            session.put(storage, key, key[::-1] + b"\0\r\n")
    assert pairs(lm.store.scan(storage)) == sorted((key, key[::-1] + b"\0\r\n") for key in ODD)
    for key in ODD:
        assert lm.store.get(storage, key) == key[::-1] + b"\0\r\n"
    large = os.urandom(1 << 20) * 8
    lm.store.put(storage, b"large", large)
    assert lm.store.get(storage, b"large") == large


def test_a_session_is_all_or_nothing(lm: Any, storage: int) -> None:
    lm.store.put(storage, b"gone", b"1")
    with lm.store.session() as session:
        session.put(storage, b"a", b"1")
        session.put_many(storage, iter([(b"b", b"2"), (b"c", b"3"), (b"b", b"4")]))
        session.remove(storage, b"gone")
        session.put(storage + 1, b"other", b"5")
        session.put(storage, b"c", b"6")
        assert lm.store.get(storage, b"a") is None
    assert session.epoch <= number(lm, "last_epoch")
    assert pairs(lm.store.scan(storage)) == [(b"a", b"1"), (b"b", b"4"), (b"c", b"6")]
    assert pairs(lm.store.scan(storage + 1)) == [(b"other", b"5")]
    assert len({each.version.major for each in lm.store.scan(storage)}) == 1
    with pytest.raises(BadEntry, match="has ended"):
        session.put(storage, b"late", b"x")


def test_a_session_that_is_left_by_an_error_never_was(lm: Any, storage: int) -> None:
    with pytest.raises(ZeroDivisionError), lm.store.session() as session:
        session.put(storage, b"a", b"1")
        raise ZeroDivisionError
    assert lm.store.get(storage, b"a") is None
    with pytest.raises(BadEntry, match="has ended"):
        session.put(storage, b"late", b"x")
    with pytest.raises(BadEntry), lm.store.session() as session:
        session.put(storage, b"a", b"1")
        session.put(storage, b"b", b"v" * LARGEST)
    assert list(lm.store.scan(storage)) == []


def test_a_session_without_anything_is_none(lm: Any, storage: int) -> None:
    lm.store.put(storage, b"a", b"1")
    with lm.store.session() as session:
        pass
    assert 0 < session.epoch <= number(lm, "last_epoch")
    with lm.store.session() as session:
        session.put_many(storage, [])
    assert pairs(lm.store.scan(storage)) == [(b"a", b"1")]


def test_a_session_need_not_be_waited_for(lm: Any, storage: int) -> None:
    with lm.store.session(wait=False) as session:
        session.put(storage, b"a", b"1")
    lm.store.wait_durable(session.epoch, timeout=60)
    assert lm.store.get(storage, b"a") == b"1"
    with lm.store.session(timeout=60) as session:
        session.put(storage, b"a", b"2")
    assert lm.store.get(storage, b"a") == b"2"


def test_what_cannot_be_is_refused(lm: Any, storage: int) -> None:
    for bad in (-1, MOST + 1, "1", None, 1.0):
        with pytest.raises(BadEntry, match="is no storage"):
            lm.store.put(bad, b"k", b"v")
        with pytest.raises(BadEntry, match="is no storage"):
            lm.store.get(bad, b"k")
    with pytest.raises(TypeError):
        lm.store.put(storage, "k", b"v")
    with pytest.raises(TypeError):
        lm.store.put(storage, b"k", "v")
    with pytest.raises(TypeError):
        lm.store.remove(storage, "k")
    with pytest.raises(TypeError):
        lm.store.get(storage, "k")
    with pytest.raises(BadEntry, match="too large"):
        lm.store.put(storage, b"k", b"v" * LARGEST)
    assert list(lm.store.scan(storage)) == []


def test_a_session_that_is_too_large_is_refused_whole(lm: Any, storage: int) -> None:
    piece = b"v" * (40 << 20)
    with pytest.raises(BadEntry, match="the session has more than"), lm.store.session() as session:
        for each in range(8):
            session.put(storage, b"%d" % each, piece)
    assert list(lm.store.scan(storage)) == []


def test_the_last_storage_is_one_as_any(lm: Any) -> None:
    key = os.urandom(8)
    lm.store.put(MOST, key, b"v")
    assert lm.store.get(MOST, key) == b"v"
    assert (key, b"v") in pairs(lm.store.scan(MOST))
    lm.store.remove(MOST, key)


def test_storages_can_be_added_cleared_and_removed(lm: Any, storage: int) -> None:
    def facts() -> dict[int, tuple[int, bool]]:
        found = {each.storage: (each.entries, each.is_added) for each in lm.store.storages()}
        return {each: found[each] for each in (storage, storage + 1) if each in found}

    with lm.store.session() as session:
        session.add_storage(storage)
        session.put(storage + 1, b"a", b"1")
        session.put(storage + 1, b"b", b"2")
    assert facts() == {storage: (0, True), storage + 1: (2, False)}
    with lm.store.session() as session:
        session.put(storage, b"a", b"1")
        session.clear_storage(storage + 1)
        session.put(storage + 1, b"c", b"3")
    assert facts() == {storage: (1, True), storage + 1: (1, False)}
    with lm.store.session() as session:
        session.remove_storage(storage)
        session.clear_storage(storage + 1)
    assert facts() == {}


def test_scans_give_ranges_of_thousands(lm: Any, storage: int) -> None:
    keys = [b"%06d" % each for each in range(5000)]
    with lm.store.session() as session:
        session.put_many(storage, [(key, key * 2) for key in keys])
    assert pairs(lm.store.scan(storage)) == [(key, key * 2) for key in keys]
    ranges = [(b"000999", b"003001"), (b"001000", None), (b"", b"000001"), (b"x", None), (b"3", b"1"), (b"", b"")]
    for start, end in ranges:
        expected = [key for key in keys if key >= start and (end is None or key < end)]
        assert [each.key for each in lm.store.scan(storage, start, end)] == expected
    first = next(iter(lm.store.scan(storage)))
    assert first.key == keys[0]
    assert list(lm.store.scan(storage + 1)) == []


def test_pages_of_a_scan_are_of_one_moment(lm: Any, storage: int) -> None:
    keys = [b"%05d" % each for each in range(3000)]
    with lm.store.session() as session:
        session.put_many(storage, [(key, b"old") for key in keys])
    entries = iter(lm.store.scan(storage))
    found = [next(entries) for _ in range(10)]
    with lm.store.session() as session:
        session.put_many(storage, [(key, b"new") for key in keys])
        session.put(storage, b"00000-more", b"new")
    found += entries
    assert pairs(found) == [(key, b"old") for key in keys]
    assert {each.value for each in lm.store.scan(storage)} == {b"new"}


def test_a_snapshot_stays_as_it_was(lm: Any, storage: int) -> None:
    lm.store.put(storage, b"a", b"1")
    lm.store.put(storage + 1, b"b", b"2")
    snapshot = lm.store.snapshot()
    with lm.store.session() as session:
        session.put(storage, b"a", b"new")
        session.put(storage, b"c", b"new")
        session.clear_storage(storage + 1)
    assert snapshot.get(storage, b"a") == b"1" and snapshot.get(storage, b"c") is None
    assert snapshot.entry(storage + 1, b"b").value == b"2"
    assert pairs(snapshot.scan(storage)) == [(b"a", b"1")]
    everything = [each for each in snapshot.scan() if each.storage in (storage, storage + 1)]
    assert pairs(everything) == [(b"a", b"1"), (b"b", b"2")]


def test_reads_as_of_an_epoch_and_of_a_time(lm: Any, storage: int) -> None:
    first = lm.store.put(storage, b"a", b"1")
    lm.store.put(storage, b"b", b"kept")
    second = lm.store.put(storage, b"a", b"2")
    between = lm.store.entry(storage, b"a").time_ns
    while time.time_ns() <= between + 5_000_000:  # the moment is behind it, whatever the clock's steps
        time.sleep(0.001)
    moment = time.time_ns()
    time.sleep(0.002)
    third = lm.store.remove(storage, b"a")
    assert lm.store.as_of(epoch=first).get(storage, b"a") == b"1"
    assert lm.store.as_of(epoch=first).get(storage, b"b") is None
    assert pairs(lm.store.as_of(epoch=second).scan(storage)) == [(b"a", b"2"), (b"b", b"kept")]
    assert lm.store.as_of(epoch=second).entry(storage, b"a").version.major == second
    assert pairs(lm.store.as_of(epoch=third).scan(storage)) == [(b"b", b"kept")]
    assert pairs(lm.store.as_of(time_ns=moment).scan(storage)) == [(b"a", b"2"), (b"b", b"kept")]
    assert list(lm.store.as_of(epoch=0).scan(storage)) == []


def test_reads_as_of_what_cannot_be(lm: Any, storage: int) -> None:
    lm.store.put(storage, b"a", b"1")
    for wrong in ({}, {"epoch": 1, "time_ns": 1}):
        with pytest.raises(BadEntry, match="as of what"):
            lm.store.as_of(**wrong)
    with pytest.raises(BadEntry, match="not durable yet"):
        lm.store.as_of(epoch=number(lm, "epoch") + 10**6)
    with pytest.raises(BadEntry, match="yet to come"):
        lm.store.as_of(time_ns=time.time_ns() + 10**15)


def test_epochs_are_switched_and_waited_for(lm: Any, storage: int) -> None:
    before = number(lm, "epoch")
    following = lm.store.switch_epoch()
    assert following > before
    lm.store.wait_durable(following - 1, timeout=60)
    assert number(lm, "last_epoch") >= following - 1
    jump = lm.store.switch_epoch(number(lm, "epoch") + 1000)
    assert number(lm, "epoch") >= jump > following
    with pytest.raises(BadEntry):
        lm.store.switch_epoch(1)
    with pytest.raises(TimeoutError):
        lm.store.wait_durable(number(lm, "epoch") + 10**6, timeout=0.05)
    assert lm.store.put(storage, b"a", b"1") >= jump


def test_files_are_rotated_compacted_and_cleaned_up(lm: Any, storage: int) -> None:
    first, _, epoch = (lm.store.put(storage, b"a", value) for value in (b"1", b"2", b"3"))
    rotated = lm.store.rotate(timeout=60)
    assert rotated.epoch >= epoch and rotated.new and set(rotated.new) <= set(rotated.files)
    report = lm.store.compact()
    assert report.epoch >= epoch and report.inputs and report.entries_live >= 1 and report.seconds > 0
    assert lm.store.cancel_compaction() is False
    assert lm.store.get(storage, b"a") == b"3"
    done = lm.store.clean_up()
    assert isinstance(done.removed, list) and isinstance(done.kept, list) and done.bytes >= 0
    assert done.catalog.epoch == report.epoch and done.catalog.generation == report.generation
    assert lm.store.get(storage, b"a") == b"3"
    with pytest.raises(TooOld) as caught:
        lm.store.as_of(epoch=first)  # one that nobody has asked for: such are kept for a while
    assert caught.value.facts["oldest_epoch"] == report.epoch
    with pytest.raises(BadEntry, match="not durable yet"):
        lm.store.clean_up(keep_after_epoch=number(lm, "epoch") + 10**6)


def test_what_is_only_inside_the_process_says_so(lm: Any, way: str, storage: int) -> None:
    if not way.startswith("remote"):
        pytest.skip("it is inside")
    calls: list[Callable[[], Any]] = [
        lambda: lm.store.back_up("folder"),
        lambda: lm.store.compact(progress=lambda done, total: None),
    ]
    if way == "remote":
        calls += [lambda: lm.store.channel(1), lambda: lm.store.on_durable(print)]
    for call in calls:
        with pytest.raises(BadOption, match="only to be had inside the process"):
            call()
    with pytest.raises(BadOption, match="only to be had"), lm.store.session() as session:
        session.put(storage, b"a", b"1", version=(1, 1))
    with pytest.raises(BadEntry, match="of one storage"):
        list(lm.store.snapshot().scan(None, b"a"))
