"""What readers see: layers in memory and in files, read as one, whole epochs at a time, staying as it is while it is
read. Cases C19 to C28, rules R-SNP1 and R-SNP2 of the store."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lamina.engines.store import as_of, codec
from lamina.engines.store import catalog as catalogs
from lamina.engines.store.api import Store
from lamina.engines.store.catalog import Catalog
from lamina.engines.store.codec import CLEAR
from lamina.engines.store.options import StoreOptions
from lamina.engines.store.sorted_file import SortedWriter
from lamina.engines.store.storages import Storages
from lamina.engines.store.table import Table
from lamina.engines.store.view import Snapshot, View
from lamina.errors import BadEntry, Corruption, LogClosed, StorageError
from lamina.log.formats import PWAL
from lamina.log.packed import Packed
from lamina.log.scan import FileScan
from lamina.testing import MemoryFiles
from store_folder_lab import part
from store_lab import FOLDER, StoreLab


def table(*payloads: bytes) -> Table:
    made = Table()
    made.take([(1, packed(*payloads))])
    return made


def packed(*payloads: bytes) -> Packed:
    session = Packed()
    for payload in payloads:
        session.append(payload)
    return session


def pairs(snapshot: Snapshot) -> list[tuple[bytes, bytes]]:
    """get and scan agree."""
    found = [(each.key, each.value) for each in snapshot.scan()]
    for each in snapshot.scan():
        assert snapshot.entry(each.storage, each.key) == each
    return found


def put(key: bytes, value: bytes, major: int = 1, minor: int = 0) -> bytes:
    return codec.put(1, key, value, major, minor)


# -- layers ------------------------------------------------------------------------------------------------------------


def test_c19_entries_of_memory_of_parts_and_of_both_are_seen_and_the_newer_one_counts() -> None:
    lab = StoreLab()
    lab.s(0, 1, memory="1")
    lab.sw()
    assert lab.entries() == {"memory": "1"}
    lab.compact()
    lab.reopen()
    assert lab.entries() == {"memory": "1"}  # from the parts only
    lab.s(0, memory="2", both="1")
    lab.sw()
    assert lab.entries() == {"memory": "2", "both": "1"}


def test_c19_the_version_decides_in_whichever_layer_the_entry_is() -> None:
    newer_below = Snapshot([table(put(b"k", b"older", 1)), table(put(b"k", b"newer", 2))], Storages())
    assert pairs(newer_below) == [(b"k", b"newer")]
    equal = Snapshot([table(put(b"k", b"first", 1)), table(put(b"k", b"second", 1))], Storages())
    assert pairs(equal) == [(b"k", b"first")]


def test_c20_a_remove_hides_the_entry_below_it() -> None:
    removed = Snapshot([table(codec.remove(1, b"k", 2, 0)), table(put(b"k", b"v"), put(b"l", b"v"))], Storages())
    assert pairs(removed) == [(b"l", b"v")]
    assert removed.get(1, b"k") is None


def test_c21_a_remove_of_nothing_is_nothing() -> None:
    only = Snapshot([table(codec.remove(1, b"k", 2, 0))], Storages())
    assert pairs(only) == [] and only.get(1, b"k") is None


def test_c22_a_clear_drops_what_is_older_in_every_layer_and_keeps_what_is_equal() -> None:
    storages = Storages()
    storages.take(CLEAR, 1, codec.pack_version((1, 1)))
    layers = [
        table(put(b"a", b"old", 1, 0), put(b"b", b"equal", 1, 1)),
        table(put(b"c", b"old"), put(b"d", b"v", 1, 1)),
    ]
    found = Snapshot(layers, storages)
    assert pairs(found) == [(b"b", b"equal"), (b"d", b"v")]
    assert found.get(1, b"a") is None and found.get(1, b"c") is None


def test_c23_each_key_is_seen_once() -> None:
    lab = StoreLab()
    for number in range(30):
        lab.s(number % 3, k=str(number), **{f"k{number % 5}": str(number)})
        if number % 7 == 0:
            lab.sw()
            lab.store.snapshot()
        if number == 15:
            lab.compact()
    lab.sw()
    keys = [found.key for found in lab.store.snapshot().scan(1)]
    assert keys == sorted({*keys}) == [b"k", b"k0", b"k1", b"k2", b"k3", b"k4"]


def test_c24_a_part_whose_keys_do_not_rise_is_never_written() -> None:
    files = MemoryFiles()
    files.make_folder(FOLDER)
    writer = SortedWriter(files, f"{FOLDER}/{catalogs.part_name(1, 0)}", generation=1, part=0)
    writer.add(codec.place(1, b"b"), codec.item(1, put(b"b", b"v")))
    with pytest.raises((ValueError, AssertionError)):
        writer.add(codec.place(1, b"a"), codec.item(1, put(b"a", b"v")))


def test_c24_parts_that_overlap_are_refused() -> None:
    lab = StoreLab()
    lab.store.close()
    parts = (part(lab.disk, 1, 0, [put(b"a", b"v"), put(b"m", b"v")]), part(lab.disk, 1, 1, [put(b"k", b"v")]))
    lab.drop(catalogs.NAME)
    lab.put_file(catalogs.NAME, catalogs.encode(Catalog(1, 0, parts)))
    assert "begins before pwal_compacted.1.0 ends" in str(lab.refuses_to_open(Corruption))


def test_c25_a_part_that_is_empty_missing_or_a_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with Store.open(str(folder), options=StoreOptions(epoch_ms=1)) as store:
        store.put(1, b"k", b"v")
        store.compact()
    name = folder / "pwal_compacted.1.0"
    good = name.read_bytes()
    name.unlink()
    name.mkdir()
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(StorageError, match=r"pwal_compacted\.1\.0"):
        Store.open(str(folder))
    name.rmdir()
    for data in (b"", good[:7]):
        name.write_bytes(data)
        with pytest.raises(Corruption, match=r"pwal_compacted\.1\.0"):
            Store.open(str(folder))
    assert sorted(path.name for path in folder.iterdir()) == before
    name.write_bytes(good)
    with Store.open(str(folder)) as store:
        assert store.get(1, b"k") == b"v"


def test_c26_marks_of_the_kernel_and_of_sessions_are_no_entries() -> None:
    lab = StoreLab()
    for number in range(5):
        lab.s(0, **{f"k{number}": "v"})
        lab.sw()
    file = lab.disk.open(f"{FOLDER}/pwal_0000")
    payloads = [batch.payload(at) for batch in FileScan(file) for at in range(len(batch.times))]
    assert sum(PWAL.is_mark(payload) for payload in payloads) >= 4
    lab.restart()
    assert len(lab.entries()) == 5 and lab.store.entries_read == 5


@pytest.mark.parametrize("pieces", [1, 2, 3, 7])
def test_c27_ranges_together_give_every_entry_once(pieces: int) -> None:
    lab = StoreLab(part_bytes=1024)
    with lab.begin(0) as session:
        session.put_many(1, [(b"%04d" % number, b"v" * 20) for number in range(300)])
    lab.compact()
    with lab.begin(0) as session:
        session.put_many(1, [(b"%04d" % number, b"new") for number in range(0, 400, 3)])
        session.remove(1, b"0001")
    lab.sw()
    snapshot = lab.store.snapshot()
    everything = list(snapshot.scan(1))
    assert len(lab.catalog().parts) > 3
    borders = [b"%04d" % (400 * number // pieces) for number in range(1, pieces)]
    starts, ends = [b"", *borders], [*borders, None]
    ranges = [list(snapshot.scan(1, start, end)) for start, end in zip(starts, ends, strict=True)]
    assert [found for one in ranges for found in one] == everything
    assert list(snapshot.scan(1, b"0100", b"0100")) == [] == list(snapshot.scan(1, b"9", b"1"))
    cursors = [list(cursor) for cursor in snapshot.cursors(pieces)]
    assert len(cursors) == pieces and [found for one in cursors for found in one] == everything


def test_c27_no_cursor_at_all_is_refused_and_cursors_of_nothing_are_empty() -> None:
    lab = StoreLab()
    for count in (0, -1, 1 << 40):
        with pytest.raises(BadEntry):
            lab.store.snapshot().cursors(count)
    assert [list(cursor) for cursor in lab.store.snapshot().cursors(3)] == [[], [], []]


def test_c28_a_reader_that_stalls_holds_nobody_up_and_reads_on_what_it_began() -> None:
    """Better than limestone, whose process ends: nothing waits for a reader, and what it reads stays."""
    lab = StoreLab(part_bytes=1024)
    with lab.begin(0) as session:
        session.put_many(1, [(b"%04d" % number, b"old") for number in range(500)])
    lab.compact()
    stalled: Iterator[object] = lab.store.snapshot().scan(1)
    first = next(stalled)
    for number in range(3):
        with lab.begin(0) as session:
            session.put_many(1, [(b"%04d" % each, b"new %d" % number) for each in range(0, 500, 2)])
            session.remove(1, b"0499")
        lab.compact()
        lab.compactions.clean_up()
    found = [first, *stalled]
    assert len(found) == 500 and {each.value for each in found} == {b"old"}  # type: ignore[attr-defined]
    assert len(lab.everything()) == 499


# -- whole epochs ------------------------------------------------------------------------------------------------------


def test_an_epoch_is_seen_whole_or_not_at_all_by_readers_in_other_threads() -> None:
    problems: list[object] = []
    is_over = threading.Event()
    with Store.open(FOLDER, files=MemoryFiles(), options=StoreOptions(epoch_ms=1)) as store:

        def write(number: int) -> None:
            count = 0
            while not is_over.is_set():
                count += 1
                with store.session(wait=count % 10 == 0) as session:
                    session.put_many(number, [(b"a", b"%d" % count), (b"b", b"%d" % count), (b"c", b"%d" % count)])

        def read() -> None:
            for _ in range(300):
                snapshot = store.snapshot()
                for number in (1, 2):
                    values = {found.value for found in snapshot.scan(number)}
                    again = {found.value for found in snapshot.scan(number)}
                    if len(values) > 1 or values != again:
                        problems.append((values, again))

        writers = [threading.Thread(target=write, args=(number,)) for number in (1, 2)]
        readers = [threading.Thread(target=read) for _ in range(2)]
        for thread in (*writers, *readers):
            thread.start()
        for _ in range(3):
            store.compact()
            store.clean_up()
        for thread in readers:
            thread.join()
        is_over.set()
        for thread in writers:
            thread.join()
    assert problems == []


def test_what_is_not_durable_is_not_seen() -> None:
    lab = StoreLab()
    lab.s(0, 2, k="1")
    session = lab.begin(1, 2, l="1")
    assert lab.entries() == {}
    lab.sw(3)
    assert lab.entries() == {}  # the other session of the epoch is open
    session.end()
    assert lab.entries() == {"k": "1", "l": "1"}


def test_a_snapshot_stays_as_it_is() -> None:
    lab = StoreLab()
    lab.s(0, 2, k="1", gone="1")
    lab.sw()
    before = lab.store.snapshot()
    with lab.begin(0, k="2", gone=None) as session:
        session.clear_storage(2)
    with lab.begin(1) as session:
        session.remove_storage(1)
    lab.sw()
    assert lab.entries() == {}
    assert pairs(before) == [(b"gone", b"1"), (b"k", b"1")]
    lab.compact()
    lab.compactions.clean_up()
    assert pairs(before) == [(b"gone", b"1"), (b"k", b"1")]


def test_snp1_the_snapshot_at_startup_is_made_of_active_rotated_and_compacted_files() -> None:
    lab = StoreLab()
    lab.s(0, 1, compacted="1", a="1")
    lab.compact()
    lab.s(0, rotated="1", a="2")
    lab.rotate()
    lab.s(0, active="1", a="3")
    lab.sw()
    lab.restart()
    assert lab.entries() == {"compacted": "1", "rotated": "1", "active": "1", "a": "3"}
    assert lab.store.entries_read == 4


def test_snp2_rotated_files_are_found_in_the_folder_and_chosen_by_the_catalog() -> None:
    lab = StoreLab()
    lab.s(0, 1, a="1")
    lab.compact()
    for value in ("2", "3"):
        lab.s(0, a=value, **{f"k{value}": "1"})
        lab.rotate()
    lab.crash()
    lab.drop("epoch")  # and with it the list of rotated files that it has
    lab.store = lab.open()
    assert lab.entries() == {"a": "3", "k2": "1", "k3": "1"}
    assert lab.store.entries_read == 4


def test_entries_beyond_the_memory_are_spilled_and_read_all_the_same() -> None:
    lab = StoreLab(memory_bytes=20_000)
    expected = {}
    for number in range(20):
        with lab.begin(number % 3) as session:
            for each in range(30):
                key, value = b"%03d" % (each * 7 % 50 + number), b"%d" % number * 400
                session.put(1, key, value)
                expected[1, key] = value
            session.remove(1, b"%03d" % number)
            expected.pop((1, b"%03d" % number), None)
        lab.sw()
        assert lab.everything() == expected  # who reads all the time does not keep it in memory
        assert sum(table.bytes for table in lab.store.view.tables()) < 20_000
    assert 1 <= len(lab.names("run.")) < 40
    lab.restart()
    assert lab.everything() == expected
    assert lab.names("run.s") == []
    lab.compact()
    lab.reopen()
    assert lab.everything() == expected and lab.names("run.") == []


def test_a_spill_that_finds_no_room_leaves_the_entries_in_memory() -> None:
    lab = StoreLab(memory_bytes=1000)
    fault = lab.files.fail("create", only="run.", times=1000, error=28)
    for number in range(10):
        lab.s(0, **{f"k{number}": "v" * 300})
        lab.sw()
    assert fault.struck > 0 and len(lab.entries()) == 10 and lab.names("run.") == []
    lab.files.heal()
    lab.s(0, more="v" * 1000)
    lab.sw()
    assert len(lab.entries()) == 11


@pytest.mark.parametrize("operation", ["create", "append", "sync"])
def test_opening_that_finds_no_room_to_spill_keeps_entries_in_memory(operation: str) -> None:
    lab = StoreLab()
    for number in range(50):
        lab.s(0, **{f"k{number}": "v" * 300})
    lab.store.close()
    lab.options = StoreOptions(epoch_ms=0, memory_bytes=1000)
    fault = lab.files.fail(operation, only="run.", error=errno.ENOSPC, times=1 << 30)
    lab.store = lab.open()
    assert fault.struck == 1, "it is not tried again and again"
    assert len(lab.entries()) == 50 and not any("run." in name for name in lab.disk.contents())


def test_opening_that_cannot_spill_refuses_and_changes_nothing() -> None:
    lab = StoreLab()
    for number in range(50):
        lab.s(0, **{f"k{number}": "v" * 300})
    lab.store.close()
    lab.options = StoreOptions(epoch_ms=0, memory_bytes=1000)
    before = lab.disk.contents()
    for operation in ("create", "append", "sync"):
        lab.files.fail(operation, only="run.", error=errno.EIO)
        with pytest.raises(StorageError):
            lab.open()
        lab.files.heal()
        assert lab.disk.contents() == before
    lab.store = lab.open()
    assert len(lab.entries()) == 50


def test_as_of_an_epoch_and_a_moment() -> None:
    lab = StoreLab()
    moments = {}
    for epoch in (2, 4, 6):
        lab.clock.advance(10)
        lab.s(0, epoch, k=str(epoch))
        lab.sw(epoch + 1)
        moments[epoch] = lab.clock.now_ns()
    for epoch in (2, 4, 6):
        for snapshot in (
            as_of.as_of_epoch(lab.store, epoch),
            as_of.as_of_epoch(lab.store, epoch + (epoch < 6)),
            as_of.as_of_time(lab.store, min(moments[epoch] + 5_000_000_000, lab.clock.now_ns())),
        ):
            assert pairs(snapshot) == [(b"k", b"%d" % epoch)]
    assert pairs(as_of.as_of_time(lab.store, moments[2] - 5_000_000_000)) == []
    with pytest.raises(BadEntry, match="yet to come"):
        as_of.as_of_time(lab.store, lab.clock.now_ns() + 1)


def test_a_view_takes_what_a_compaction_replaces_by_identity_and_loses_nothing_later() -> None:
    view = View()
    with view.lock:
        view.take([(1, packed(put(b"a", b"1")))])
    frozen = view.freeze()
    with view.lock:
        view.take([(2, packed(put(b"b", b"2", 2)))])
    view.snapshot()
    view.replace(frozen, [table(put(b"a", b"1"))])
    assert pairs(view.snapshot()) == [(b"a", b"1"), (b"b", b"2")]
    assert [len(layer) for layer in view.tables() if len(layer)] == [1, 1]  # what is in the parts leaves the memory


def test_a_store_that_was_closed_is_not_read() -> None:
    store = Store.open(FOLDER, files=MemoryFiles(), options=StoreOptions(epoch_ms=1))
    store.put(1, b"k", b"v")
    store.close()
    for refused in (lambda: store.get(1, b"k"), store.snapshot, lambda: store.as_of(epoch=1), store.clean_up):
        with pytest.raises(LogClosed):
            refused()
