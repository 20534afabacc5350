"""What was wrong once, and must not be again: found by looking for it, not by a case of the design."""

from __future__ import annotations

import errno
import os
import threading
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from lamina.engines.store import codec, compaction_progress
from lamina.engines.store.api import Store
from lamina.engines.store.compactions import Compactions
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.entries import LARGEST
from lamina.engines.store.options import StoreOptions
from lamina.engines.store.table import Table
from lamina.engines.store.verifying import verify
from lamina.engines.store.view import Layer, View
from lamina.errors import BadEntry, Corruption, DiskFull, LogClosed, Stopped, StorageError
from lamina.log import kernel
from lamina.log.files.faulty import FaultyFiles
from lamina.log.files.memory import MemoryFiles
from lamina.log.packed import Packed
from lamina.log.scan import HEADER_SIZE
from lamina.units import KIB
from store_lab import FOLDER, StoreLab


@pytest.fixture
def store() -> Any:
    with Store.open("store", files=MemoryFiles(), options=StoreOptions(epoch_ms=1)) as store:
        yield store


# -- sessions --------------------------------------------------------------------------------------------------------


def test_a_session_that_is_being_made_holds_nobody_up(store: Store) -> None:
    with store.session() as outer:
        outer.put(1, b"a", b"outer")
        store.put(1, b"a", b"inner")  # hung for ever when a session joined its epoch at once
        store.rotate(10)
        assert store.get(1, b"a") == b"inner"
    assert store.get(1, b"a") == b"outer"  # it ended later: it is newer
    assert outer.epoch == store.last_epoch


def test_of_a_session_that_is_given_up_nothing_is_there(store: Store) -> None:
    with pytest.raises(KeyError), store.session() as session:
        session.put_many(1, [(b"a", b"1"), (b"b", b"2")])
        raise KeyError
    assert store.get(1, b"a") is None
    with pytest.raises(BadEntry, match="ended"):
        session.put(1, b"a", b"1")


def test_an_empty_session_is_durable_at_once(store: Store) -> None:
    with store.session() as session:
        pass
    assert session.epoch == store.last_epoch


def test_all_kinds_of_entries_get_the_versions_of_their_end(store: Store) -> None:
    with store.session() as session:
        session.put(1, b"a", b"1")
        session.clear_storage(1)
        session.put_many(1, [(b"b", b"2"), (b"c", b"3")])
        session.remove(1, b"c")
        session.put(1, b"d", b"chosen", version=(session._store.epoch + 5, 7))
        session.add_storage(9)
    found = {entry.key: entry for entry in store.scan(1)}
    assert {key: entry.value for key, entry in found.items()} == {b"b": b"2", b"d": b"chosen"}
    assert found[b"b"].version.major == session.epoch
    assert [each.storage for each in store.storages()] == [1, 9]


def test_a_chosen_version_that_became_too_old_while_the_session_was_made_is_refused(store: Store) -> None:
    store.put(1, b"a", b"1")
    with pytest.raises(BadEntry, match="too old"), store.session() as session:
        session.put(1, b"a", b"zombie", version=(store.epoch, 0))
        store.remove(1, b"a")
        store.compact()
    assert store.get(1, b"a") is None
    store.put(1, b"b", b"2")  # it goes on
    assert store.get(1, b"b") == b"2"


def test_keys_are_bytes_and_nothing_that_has_bytes(store: Store) -> None:
    for wrong in (array("I", [1, 2]), memoryview(b"abc"), bytearray(b"a"), "a"):
        key = cast(bytes, wrong)
        with pytest.raises(TypeError), store.session() as session:
            session.remove(1, key)
        with pytest.raises(TypeError), store.session() as session:
            session.put(1, key, b"v")
        with pytest.raises(TypeError), store.session() as session:
            session.put_many(1, [(key, b"v")])
        with pytest.raises(TypeError), store.session() as session:
            session.put(1, b"k", key)
    with pytest.raises(BadEntry, match="no version"), store.session() as session:
        session.put(1, b"k", b"v", version=cast("tuple[int, int]", (1.5, 0)))
    for storage in (-1, 1 << 64, True, "1"):
        with pytest.raises(BadEntry):
            store.get(cast(int, storage), b"k")
    store.put(1, b"k", b"v")
    assert store.get(1, b"k") == b"v"


# -- reading ---------------------------------------------------------------------------------------------------------


def test_a_reader_never_sees_the_clear_of_a_session_without_its_put(store: Store) -> None:
    store.put(1, b"k", b"0")
    is_over = threading.Event()
    missing = 0

    def read() -> None:
        nonlocal missing
        while not is_over.is_set():
            missing += store.get(1, b"k") is None

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(300):
        with store.session(wait=number % 10 == 0) as session:
            session.clear_storage(1)
            session.put(1, b"k", b"%d" % number)
    is_over.set()
    for reader in readers:
        reader.join()
    assert missing == 0


def test_how_much_is_dead_can_be_asked_while_others_write(store: Store) -> None:
    """It walked the table that grows: the compiled one was freed under it."""
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            store.compactions.dead_bytes()

    asking = threading.Thread(target=ask)
    asking.start()
    written = 0
    for number in range(60):
        with store.session(wait=False) as session:
            session.put_many(1, [(b"%d-%d" % (number, each), b"v" * 50) for each in range(300)])
            written += 300
    store.wait_durable(session.epoch)
    is_over.set()
    asking.join()
    assert sum(1 for _ in store.scan(1)) == written


def test_tables_that_are_made_one_hold_what_both_held() -> None:
    older, newer = Table(), Table()
    for table, numbers in ((older, range(5000)), (newer, range(2500, 6000))):
        packed = Packed()
        for number in numbers:
            packed.append(codec.put(1, b"%05d" % number, b"v", 1, 0))
        table.take([(1, packed)])
    both = older.with_newer(newer)
    assert len(both) == 6000
    assert [place[8:] for place, _ in both.walk()] == [b"%05d" % number for number in range(6000)]


# -- files -----------------------------------------------------------------------------------------------------------


def test_files_that_compactions_replace_are_closed_and_runs_removed(tmp_path: Path) -> None:
    def handles() -> int:
        return len(os.listdir("/proc/self/fd"))

    options = StoreOptions(epoch_ms=1, memory_bytes=2 * KIB, part_bytes=4 * KIB)
    with Store.open(str(tmp_path), options=options) as store:
        counts = []
        for round_ in range(4):
            for number in range(5):
                with store.session() as session:
                    session.put_many(1, [(b"%d-%d" % (number, each), b"%d" % round_ * 50) for each in range(50)])
            store.compact()
            store.clean_up()
            counts.append((handles(), len([name for name in os.listdir(tmp_path) if name.startswith("run.")])))
    assert counts[-1][0] <= counts[0][0] + 2
    assert counts[-1][1] <= 1


def test_a_key_as_large_as_can_be_is_compacted() -> None:
    lab = StoreLab()
    channel = lab.store.channel(0)
    with channel.begin() as session:
        session.put(1, b"a" * 200, b"v")
        session.put(1, b"b" * LARGEST, b"")
    lab.store.switch_epoch()
    lab.compact()
    found = lab.store.view.get(1, b"b" * LARGEST)
    assert found is not None and found.value == b""


def test_idle_compactions_leave_no_files(store: Store) -> None:
    store.put(1, b"k", b"v")
    store.compact()
    store.clean_up()
    before = sorted(store.engine.files.list("store"))
    for _ in range(5):
        report = store.compact()
        assert report.inputs == () and report.entries_live == 1 and report.bytes_after > 0
    assert sorted(store.engine.files.list("store")) == before


def test_a_compaction_that_was_cut_short_keeps_its_floor() -> None:
    """What it may have dropped the removes of is not written any more, though it is not committed yet."""
    files = MemoryFiles()
    options = StoreOptions(epoch_ms=1, part_bytes=1 * KIB)
    with Store.open("store", files=files, options=options) as store:
        with store.session() as session:
            session.put_many(1, [(b"%04d" % number, b"v" * 100) for number in range(200)])
        version = (store.epoch + 1, 9)
        with store.session() as session:
            session.remove(1, b"0005", version=version)

        def stop(done: int, total: int) -> None:
            if compaction_progress.unfinished(files, "store") is not None:
                raise Stopped("enough")

        with pytest.raises(Stopped):
            store.compact(stop)
        assert compaction_progress.unfinished(files, "store") is not None
    with Store.open("store", files=files, options=options) as store:
        assert store.engine.floor > store.engine.catalog.epoch
        with pytest.raises(BadEntry, match="too old"), store.session() as session:
            session.put(1, b"0005", b"zombie", version=(store.engine.floor, 0))
        store.compact()
        assert store.get(1, b"0005") is None


def test_a_compaction_can_be_given_up_and_the_next_goes_on_from_there() -> None:
    files = MemoryFiles()
    with Store.open("store", files=files, options=StoreOptions(epoch_ms=1, part_bytes=1 * KIB)) as store:
        assert not store.cancel_compaction()
        with store.session() as session:
            session.put_many(1, [(b"%04d" % number, b"v" * 100) for number in range(6000)])
        cancelled = 0

        def cancel(done: int, total: int) -> None:
            nonlocal cancelled
            if compaction_progress.unfinished(files, "store") is not None:
                cancelled += store.cancel_compaction()

        with pytest.raises(Stopped):
            store.compact(cancel)
        assert cancelled and store.engine.catalog.generation == 0
        unfinished = compaction_progress.unfinished(files, "store")
        assert unfinished is not None and unfinished.parts
        finished = unfinished.parts[0].name
        before = files.contents()[f"store/{finished}"]

        store.put(1, b"later", b"v")
        report = store.compact()
        assert report.entries_live == 6001 and store.engine.catalog.generation == 2  # what was cut short, and the rest
        assert files.contents()[f"store/{finished}"] == before  # not made again
        assert sum(1 for _ in store.scan(1)) == 6001


def test_nobody_cleans_up_behind_the_back_of_the_next_one() -> None:
    lab = StoreLab()
    compactions = Compactions(lab.store)
    compactions.stop()
    with pytest.raises(LogClosed):
        compactions.clean_up()


def test_clean_up_refuses_to_keep_what_is_yet_to_come(store: Store) -> None:
    with pytest.raises(BadEntry, match="not durable yet"):
        store.clean_up(10**6)


# -- a disk that refuses ---------------------------------------------------------------------------------------------


def test_a_disk_that_is_full_for_long_leaves_one_void_range_and_all_are_told() -> None:
    files = FaultyFiles(MemoryFiles())
    engine = StoreEngine.open("store", files=files, options=StoreOptions(epoch_ms=0))
    channel = engine.channel()
    with channel.begin() as session:
        session.put(1, b"k", b"v")
    engine.switch_epoch()
    epochs = []
    for _ in range(1100):
        files.fail("append", error=errno.ENOSPC, only="store/pwal")
        with channel.begin() as session:
            session.put(1, b"k", b"lost")
        engine.switch_epoch()
        epochs.append(session.epoch)
    files.heal()
    assert engine.voids == [(epochs[0], epochs[-1])]
    assert engine.refusals == len(epochs)
    outcome: list[object] = []
    engine.waiters.add(epochs[0], outcome.append)  # long forgotten what it was, but not that
    assert isinstance(outcome[0], StorageError)
    with channel.begin() as session:
        session.put(1, b"l", b"v")
    engine.switch_epoch()
    engine.close()
    with StoreEngine.open("store", files=files, options=StoreOptions(epoch_ms=0)) as engine:
        assert [(each.key, each.value) for each in engine.snapshot().scan()] == [(b"k", b"v"), (b"l", b"v")]
        engine.waiters.add(epochs[5], outcome.append)
        assert isinstance(outcome[1], StorageError)


def test_a_refused_spill_is_not_tried_again_at_once() -> None:
    files = FaultyFiles(MemoryFiles())
    engine = StoreEngine.open("store", files=files, options=StoreOptions(epoch_ms=0, memory_bytes=1 * KIB))
    channel = engine.channel()
    for number in range(50):
        files.fail("create", error=errno.ENOSPC, only="store/run")
        with channel.begin() as session:
            session.put(1, b"%d" % number, b"v" * 200)
        engine.switch_epoch()
    files.heal()
    assert len(engine.view.layers) <= 3
    assert len(list(engine.snapshot().scan())) == 50
    engine.close()


# -- callbacks -------------------------------------------------------------------------------------------------------


def test_a_callback_that_would_wait_for_the_store_is_told(store: Store) -> None:
    told: list[BaseException] = []

    def callback(epoch: int) -> None:
        for call in (lambda: store.put(1, b"x", b"y"), store.rotate, store.compact, store.close):
            try:
                call()
            except BadEntry as error:
                told.append(error)

    forget = store.on_durable(callback)
    store.put(1, b"k", b"v")
    forget()
    assert len(told) >= 4
    store.put(1, b"k", b"w")
    assert store.get(1, b"k") == b"w"


def test_an_epoch_beyond_reason_is_refused() -> None:
    lab = StoreLab()
    with pytest.raises(BadEntry):
        lab.store.switch_epoch((1 << 64) - 1)
    lab.store.close()


def test_disk_full_is_told_to_who_writes() -> None:
    files = FaultyFiles(MemoryFiles())
    with Store.open("store", files=files, options=StoreOptions(epoch_ms=1)) as store:
        store.put(1, b"k", b"v")
        files.fail("append", error=errno.ENOSPC, only="store/pwal")
        with pytest.raises(DiskFull):
            store.put(1, b"k", b"w")
        assert store.get(1, b"k") == b"v"
        store.put(1, b"k", b"x")
        assert store.get(1, b"k") == b"x"


def test_a_rotated_file_that_lost_its_last_session_is_refused() -> None:
    """Also one that is not the newest of its channel, and cut exactly between two records."""
    lab = StoreLab()
    for epoch in (1, 2, 3):
        for key in ("a", "b"):
            lab.s(0, epoch, **{key: str(epoch)})
        lab.rotate()
    names = [name for name in lab.store.rotated if name.startswith("pwal_")]
    assert len(names) == 3
    lab.store.close()
    data = lab.data(names[0])
    found = kernel.scan(bytes(data), HEADER_SIZE, len(data))
    begins = [at - 16 for at, size in zip(found.offsets, found.lengths, strict=True) if size == 9]  # of sessions
    assert len(begins) == 2
    del data[begins[-1] :]
    problem = lab.refuses_to_open(Corruption)
    assert str(problem).startswith(f"{names[0]}, byte {begins[-1]}: the end of the file is gone")
    damage = verify(lab.disk, FOLDER, lambda done, total: None).damage
    assert [(each.file, each.offset) for each in damage] == [(names[0], begins[-1])]


# -- layers that are made one ------------------------------------------------------------------------------------------


class _Interrupted(Table):
    """Something happens while it is made one with a newer one."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self.then = then

    def with_newer(self, newer: Table) -> Table:
        meanwhile = threading.Thread(target=self.then, daemon=True)
        meanwhile.start()
        meanwhile.join(10)
        assert not meanwhile.is_alive(), "it waited for the tables to be made one"
        return super().with_newer(newer)


def _take(view: View, key: bytes) -> None:
    packed = Packed()
    packed.append(codec.put(1, key, b"v", 1, 0))
    with view.lock:
        view.take([(1, packed)])


@pytest.mark.parametrize("is_frozen", [False, True])
def test_entries_are_taken_and_read_while_layers_are_made_one(*, is_frozen: bool) -> None:
    """It held up every epoch, for most of a second where there are a million entries."""
    frozen: list[Layer] = []

    def meanwhile() -> None:
        assert view.get(1, b"a") is not None
        _take(view, b"c")
        if is_frozen:
            frozen.extend(view.freeze())

    view = View()
    view.table = _Interrupted(meanwhile)
    _take(view, b"a")
    with view.lock:
        view.seal()
    _take(view, b"b")
    found = view.snapshot()
    assert [each.key for each in found.scan(1)] == [b"a", b"b", b"c"]
    assert [each.key for each in view.snapshot().scan(1)] == [b"a", b"b", b"c"]
    if is_frozen:
        assert frozen == list(found.layers), "those that were frozen stay what they are"
    else:
        assert len(view.snapshot().layers) == 1
