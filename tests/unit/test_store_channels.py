"""Channels and entries: what sessions write is what is read. Cases L1 to L10 of the store.

There are no blobs here (L6, L7): keys and values are bytes, any bytes.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable

import pytest

from lamina.engines.store import codec, engine
from lamina.engines.store.codec import ADD, CLEAR, DROP, BadRecord, Version
from lamina.errors import BadEntry, BadOption, LogClosed
from lamina.testing import MemoryFiles
from store_lab import StoreLab


def test_l01_channels_have_files_by_their_numbers() -> None:
    lab = StoreLab()
    for expected in range(3):
        channel = lab.store.channel()
        assert (channel.number, channel.name) == (expected, f"pwal_{expected:04d}")
        with channel.begin() as session:
            session.put(1, b"%d" % expected, b"v")
    lab.sw()
    assert lab.names("pwal_") == ["pwal_0000", "pwal_0001", "pwal_0002"]
    assert lab.store.channel(1) is lab.store.channel(1)
    assert lab.store.channel(9999).name == "pwal_9999"
    for number in (-1, 10_000, 1.5, "1"):
        with pytest.raises(BadEntry, match="is no channel"):
            lab.store.channel(number)  # type: ignore[arg-type]


def test_l01_a_channel_has_one_session_at_a_time() -> None:
    lab = StoreLab()
    session = lab.begin(0, a="1")
    with pytest.raises(BadEntry, match="channel 0 has a session already"):
        lab.begin(0)
    session.end()
    lab.s(0, a="2")
    lab.reopen()
    assert lab.entries() == {"a": "2"}


@pytest.mark.parametrize("is_compacted", [False, True])
def test_l02_a_key_that_was_removed_is_gone(is_compacted: bool) -> None:
    lab = StoreLab()
    with lab.begin(0) as session:
        lab.write(session, (100, 4), k1="v1", k2="v2", k3="v3")
    with lab.begin(0) as session:
        lab.write(session, (128, 0), k2=None)
    if is_compacted:
        lab.compact()
    lab.reopen()
    assert lab.entries() == {"k1": "v1", "k3": "v3"}
    assert lab.version("k1") == (100, 4)


@pytest.mark.parametrize("is_compacted", [False, True])
def test_l03_a_storage_that_was_added_filled_emptied_and_dropped_leaves_nothing(is_compacted: bool) -> None:
    lab = StoreLab()
    with lab.begin(0) as session:
        session.add_storage(42)
        session.put(42, b"k1", b"v1")
        session.put(42, b"k2", b"v2")
        session.remove(42, b"k1")
        session.clear_storage(42)
        session.remove_storage(42)
    if is_compacted:
        lab.compact()
    lab.reopen()
    assert lab.everything() == {}
    there = lab.store.snapshot().storages.there.get(42)
    assert there is None or there[1] is False


@pytest.mark.parametrize("is_compacted", [False, True])
def test_l04_dropping_a_storage_concerns_no_other(is_compacted: bool) -> None:
    lab = StoreLab()
    with lab.begin(0) as session:
        for storage in (42, 43):
            session.put(storage, b"k", b"v", version=(100, 4))
        session.remove_storage(42, version=(110, 4))
    if is_compacted:
        lab.compact()
    lab.reopen()
    assert lab.everything() == {(43, b"k"): b"v"}


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("kind", ["clear_storage", "remove_storage"])
def test_l05_entries_with_a_later_version_survive_the_clearing_of_their_storage(kind: str, is_compacted: bool) -> None:
    lab = StoreLab()
    with lab.begin(0) as session:
        session.put(42, b"before", b"v", version=(110, 3))
        session.put(42, b"equal", b"v", version=(110, 4))
        getattr(session, kind)(42, version=(110, 4))
        session.put(42, b"later", b"v", version=(120, 4))
        session.put(43, b"other", b"v", version=(1, 0))
    if is_compacted:
        lab.compact()
    lab.reopen()
    assert lab.everything() == {(42, b"equal"): b"v", (42, b"later"): b"v", (43, b"other"): b"v"}


def test_l05_the_order_in_which_files_are_read_does_not_matter() -> None:
    entries = [((7, 1), "put"), ((7, 2), "clear"), ((7, 3), "put again"), ((7, 4), "remove other")]
    found = []
    for order in itertools.permutations(range(4)):
        lab = StoreLab()
        for number in order:
            version, what = entries[number]
            with lab.begin(number) as session:
                if what == "clear":
                    session.clear_storage(1, version=version)
                elif what == "remove other":
                    session.remove(1, b"b", version=version)
                else:
                    session.put(1, b"a", what.encode(), version=version)
                    session.put(1, b"b", what.encode(), version=version)
        lab.reopen()
        found.append(lab.entries())
    assert all(each == {"a": "put again"} for each in found)


def test_l06_storage_key_and_value_are_as_they_were_written() -> None:
    rng = random.Random(6)
    lab = StoreLab()
    expected = {}
    with lab.begin(0) as session:
        for storage in (0, 1, 255, 256, 65536, 1 << 32, (1 << 64) - 1):
            for size in (0, 1, 8, 100, 5000):
                key, value = rng.randbytes(size), rng.randbytes(5000 - size)
                session.put(storage, key, value)
                expected[storage, key] = value
    lab.reopen()
    assert lab.everything() == expected
    lab.compact()
    lab.reopen()
    assert lab.everything() == expected
    for (storage, key), value in expected.items():
        entry = lab.store.view.get(storage, key)
        assert entry is not None and entry.value == value


def test_l07_keys_and_values_may_be_empty() -> None:
    lab = StoreLab()
    with lab.begin(0) as session:
        session.put(1, b"", b"empty key")
        session.put(1, b"empty value", b"")
        session.put(2, b"", b"")
    lab.compact()
    lab.reopen()
    assert lab.everything() == {(1, b""): b"empty key", (1, b"empty value"): b"", (2, b""): b""}
    with lab.begin(0) as session:
        session.remove(1, b"")
    lab.reopen()
    assert (1, b"") not in lab.everything()


def test_l08_every_kind_of_record_is_read_back_as_it_was_written() -> None:
    most = codec.MOST
    for number in (0, 1, 255, 1 << 40, most):
        assert codec.decode(codec.begin(number)).epoch == number
        end = codec.decode(codec.end(number, 7))
        assert (end.epoch, end.entries) == (number, 7)
        put = codec.decode(codec.put(number, b"key", b"value", number, 5))
        assert (put.storage, put.key, put.value, put.version) == (number, b"key", b"value", Version(number, 5))
        remove = codec.decode(codec.remove(number, b"key", 5, number))
        assert (remove.storage, remove.key, remove.version) == (number, b"key", Version(5, number))
        for kind in (CLEAR, ADD, DROP):
            about = codec.decode(codec.about_storage(kind, number, 1, number))
            assert (about.kind, about.storage, about.version) == (kind, number, Version(1, number))


def test_l08_no_cut_and_no_addition_of_a_record_is_taken_for_another() -> None:
    whole = [
        codec.begin(1),
        codec.end(1, 2),
        codec.remove(1, b"key", 2, 3),
        *(codec.about_storage(kind, 1, 2, 3) for kind in (CLEAR, ADD, DROP)),
    ]
    for payload in whole:
        for size in range(len(payload)):
            with pytest.raises(BadRecord):
                codec.decode(payload[:size])
        with pytest.raises(BadRecord):
            codec.decode(payload + b"x")


def test_l09_versions_compare_by_major_then_minor_as_unsigned_numbers() -> None:
    top = 1 << 63
    rising = [(0, 0), (1, 0), (1, 1), (1, top), (1, top + 5), (2, 0), (256, 0), (top, 0), (codec.MOST - 1, codec.MOST)]
    packed = [codec.pack_version(version) for version in rising]
    assert packed == sorted(packed) and len(set(packed)) == len(packed)
    lab = StoreLab()
    for version in (*rising, *reversed(rising)):
        with lab.begin(0) as session:
            session.put(1, b"k", repr(version).encode(), version=version)
    lab.sw()
    assert lab.entries() == {"k": repr(rising[-1])}
    lab.s(0, k="one more")  # there is always a larger one
    lab.reopen()
    assert lab.entries() == {"k": "one more"}


def test_l09_of_equal_versions_the_one_written_later_counts() -> None:
    lab = StoreLab()
    for value in ("first", "second"):
        with lab.begin(0) as session:
            session.put(1, b"k", value.encode(), version=(5, 5))
    lab.sw()
    assert lab.entries() == {"k": "second"}
    lab.restart()
    assert lab.entries() == {"k": "second"}
    lab.compact()
    lab.reopen()
    assert lab.entries() == {"k": "second"}


def test_l09_without_a_version_an_entry_is_newer_than_all_before_it() -> None:
    lab = StoreLab()
    with lab.begin(0) as session:
        session.put(1, b"k", b"far ahead", version=(1 << 40, 7))
    lab.s(1, k="later")
    lab.sw()
    assert lab.entries() == {"k": "later"}
    lab.reopen()
    lab.s(0, k="latest")
    lab.sw()
    assert lab.entries() == {"k": "latest"}
    lab.reopen()
    assert lab.entries() == {"k": "latest"}


def test_l10_opening_again_and_again_reads_the_same_and_leaves_no_more_files() -> None:
    lab = StoreLab()
    lab.s(0, 42, k1="v1")
    lab.s(1, 42, k2="v2")
    lab.reopen()
    names = []
    for _ in range(5):
        lab.reopen()
        assert lab.entries() == {"k1": "v1", "k2": "v2"}
        names.append(len(lab.names()))
    for _ in range(5):
        lab.restart()
        assert lab.entries() == {"k1": "v1", "k2": "v2"}
        names.append(len(lab.names()))
    assert len(set(names)) == 1


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", [-1, 1 << 64, "1", None, 1.0])
def test_a_storage_that_cannot_be_is_refused_and_nothing_was_taken(storage: object) -> None:
    lab = StoreLab()
    with lab.begin(0, k="v") as session:
        calls: list[Callable[[], None]] = [
            lambda: session.put(storage, b"k", b"v"),  # type: ignore[arg-type]
            lambda: session.put_many(storage, [(b"k", b"v")]),  # type: ignore[arg-type]
            lambda: session.remove(storage, b"k"),  # type: ignore[arg-type]
            lambda: session.clear_storage(storage),  # type: ignore[arg-type]
            lambda: session.add_storage(storage),  # type: ignore[arg-type]
            lambda: session.remove_storage(storage),  # type: ignore[arg-type]
        ]
        for refused in calls:
            with pytest.raises(BadEntry, match="is no storage"):
                refused()
    lab.sw()
    assert lab.everything() == {(1, b"k"): b"v"}


@pytest.mark.parametrize("version", [(-1, 0), (0, -1), (1 << 64, 0), (0, 1 << 64), ((1 << 64) - 1, 0)])
def test_a_version_that_cannot_be_is_refused(version: tuple[int, int]) -> None:
    lab = StoreLab()
    with lab.begin(0) as session, pytest.raises(BadEntry, match=r"is no version|leaves none that is larger"):
        session.put(1, b"k", b"v", version=version)
    lab.sw()
    assert lab.everything() == {}


def test_keys_and_values_that_are_no_bytes_are_a_mistake_and_nothing_was_taken() -> None:
    lab = StoreLab()
    with lab.begin(0, k="v") as session:
        for key, value in (("k", b"v"), (b"k", "v"), (1, b"v"), (b"k", None)):
            with pytest.raises(TypeError):
                session.put(1, key, value)  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                session.put_many(1, [(b"a", b"b"), (key, value)])  # type: ignore[list-item]
        with pytest.raises(TypeError):
            session.remove(1, "k")  # type: ignore[arg-type]
    lab.sw()
    assert lab.everything() == {(1, b"k"): b"v"}


def test_a_session_that_has_ended_takes_nothing_more() -> None:
    lab = StoreLab()
    session = lab.begin(0, k="v")
    session.end()
    assert session.end() == session.epoch
    with pytest.raises(BadEntry, match="the session has ended"):
        session.put(1, b"k", b"v")
    with pytest.raises(BadEntry, match="the session has ended"):
        session.put_many(1, [(b"k", b"v")])
    session.abort()
    lab.sw()
    assert lab.entries() == {"k": "v"}


def test_a_session_above_its_limit_is_refused_at_the_entry_that_is_too_much() -> None:
    lab = StoreLab(max_session_bytes=2000)
    session = lab.begin(0, a="1")
    with pytest.raises(BadEntry, match="more than 2000 bytes"):
        session.put(1, b"b", b"x" * 2000)
    with pytest.raises(BadEntry, match="more than 2000 bytes"):
        session.put_many(1, [(b"%d" % number, b"x" * 100) for number in range(20)])
    session.put(1, b"c", b"x" * 100)
    session.end()
    lab.sw()
    assert {*lab.entries()} == {"a", "c"}


def test_a_session_with_an_exception_leaves_nothing() -> None:
    lab = StoreLab()
    with pytest.raises(RuntimeError), lab.begin(0, k="v"):
        raise RuntimeError
    lab.sw()
    lab.reopen()
    assert lab.entries() == {}


def test_options_that_cannot_be_are_refused() -> None:
    for options in ({"memory_bytes": 0}, {"part_bytes": 1}, {"max_session_bytes": -1}, {"compact_dead_ratio": 2}):
        with pytest.raises(BadOption):
            StoreLab(**options)


def test_a_store_that_was_closed_takes_nothing() -> None:
    lab = StoreLab()
    channel = lab.ch(0)
    lab.store.close()
    lab.store.close()
    for refused in (channel.begin, lab.sw, lab.store.request_rotation):
        with pytest.raises(LogClosed):
            refused()


def test_closing_waits_for_a_session_that_is_being_written_and_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing comes while the session's end, which writes what has gathered, is at the disk."""
    monkeypatch.setattr(engine, "MOST_GATHERED", 0)
    for _ in range(3):
        lab = StoreLab()
        lab.s(0, 2, kept="1")
        lab.sw(3)
        is_writing, may_write = threading.Event(), threading.Event()

        def wait(operation: str, path: str, is_writing: threading.Event, may_write: threading.Event) -> None:
            if operation == "create" and path.endswith("pwal_0001"):
                is_writing.set()
                may_write.wait(0.2)

        lab.files.before = lambda operation, path: wait(operation, path, is_writing, may_write)  # noqa: B023
        session = lab.begin(1, 3, late="1")
        lab.s(2, 3, other="1")  # so that closing has something to make durable in the same epoch
        outcome: list[object] = []

        thread = threading.Thread(target=lambda: outcome.append(session.end()))  # noqa: B023
        thread.start()
        assert is_writing.wait(5)
        closing = threading.Thread(target=lab.store.close)
        closing.start()
        closing.join(0.05)
        may_write.set()
        thread.join(5)
        closing.join(5)
        assert lab.disk.lock_holder("store/lamina.lock") is None
        before = lab.disk.contents()
        after = StoreLab(MemoryFiles(before))
        assert outcome == [3] and after.entries() == {"kept": "1", "other": "1", "late": "1"}
