"""The rules that the store keeps (C1 to C14) and the defects of limestone that it must not have (W1 to W19), each by a
scenario of its own.

Elsewhere: C13 (reading a folder of limestone) with the import; W6 with compaction; W15 and W19 with rotation; W7 and
W12 with the trigger. W17 is about blobs, which are no part of the store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from lamina.engines.store import backup
from lamina.engines.store import catalog as catalogs
from lamina.engines.store.api import Store
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.options import StoreOptions
from lamina.errors import Corruption, LogFailed, Stopped, StorageError
from lamina.log.files.memory import Content
from lamina.testing import FaultyFiles, MemoryFiles, PowerLoss
from store_lab import FOLDER, StoreLab, epochs_in, everything, keys_in

# -- rules -------------------------------------------------------------------------------------------------------------


def test_rule_c01_the_durable_epoch_is_found_in_whatever_epoch_files_there_are() -> None:
    lab = StoreLab()
    for epoch in (2, 4):
        lab.s(0, epoch, k=str(epoch))
        lab.rotate()
    lab.s(0, 9, k="9")
    lab.sw()
    lab.crash()
    good = bytes(lab.data("epoch"))
    lab.data("epoch").extend(b"\x01\0\0\0\x0e")
    assert lab.ld() == 9
    lab.put_file("epoch", good[:4])
    assert lab.ld() == 4
    lab.drop("epoch")
    assert lab.ld() == 4
    lab.drop(lab.rotated("epoch")[-1])
    assert lab.ld() == 2


@pytest.mark.parametrize("left", ["parts", "former"])
def test_rule_c02_no_empty_catalog_is_made_where_one_was(left: str) -> None:
    lab = StoreLab()
    for number in range(2):
        lab.s(0, k=str(number))
        lab.compact()
    lab.store.close()
    lab.drop(catalogs.NAME)
    if left == "parts":
        lab.drop("compaction_catalog.0", "compaction_catalog.1")
    else:
        lab.drop(*lab.parts())
    error = lab.refuses_to_open(Corruption)
    assert error.facts["file"] == catalogs.NAME and "the catalog is missing" in str(error)


def test_rule_c03_the_baseline_is_what_the_catalog_names_and_nothing_that_happens_to_be_there() -> None:
    lab = StoreLab()
    lab.s(0, k="1")
    lab.compact()
    lab.s(0, k="2")
    lab.compact()
    lab.store.close()
    old, new = (bytes(lab.data(name)) for name in lab.parts())
    lab.put_file("pwal_compacted.3.0", old)
    lab.store = lab.open()
    assert lab.entries() == {"k": "2"} and bytes(lab.data("pwal_compacted.2.0")) == new
    assert "pwal_compacted.3.0" not in lab.names()


def test_rule_c04_removes_count_with_and_without_a_compacted_file() -> None:
    lab = StoreLab()
    lab.s(0, a="1", b="1", c="1")
    lab.s(1, a=None)
    lab.reopen()
    assert {*lab.entries()} == {"b", "c"}
    lab.compact()
    lab.s(1, b=None)
    lab.reopen()
    assert {*lab.entries()} == {"c"}


@pytest.mark.parametrize("rest", [b"\x01", bytes(100), b"\x99" * 30, b"\x01\0\0\0\x0e\xdc\xe5\xe8" + bytes(8)])
def test_rule_c05_a_rest_behind_what_is_durable_is_dropped_and_told(rest: bytes) -> None:
    lab = StoreLab()
    lab.s(0, k="1")
    lab.sw()
    lab.crash()
    size = len(lab.data("pwal_0000"))
    lab.data("pwal_0000").extend(rest)
    lab.store = lab.open()
    assert lab.entries() == {"k": "1"}
    assert len(lab.store.warnings) == 1 and f"pwal_0000, byte {size}" in lab.store.warnings[0]
    lab.reopen()
    assert lab.store.warnings == [] and lab.entries() == {"k": "1"}


def test_rule_c05_damage_inside_what_is_durable_is_refused_with_file_byte_and_epoch() -> None:
    lab = StoreLab()
    for epoch in (2, 3):
        lab.s(0, epoch, **{f"k{epoch}": "1"})
    lab.sw()
    lab.crash()
    lab.damage("pwal_0000", lab.data("pwal_0000").index(b"k2"))
    error = lab.refuses_to_open(Corruption)
    assert error.facts["file"] == "pwal_0000" and "epoch 2, which is durable" in str(error)


def test_rule_c06_what_is_void_is_synced_before_a_later_epoch_is_durable() -> None:
    lab = StoreLab()
    lab.s(0, 2, kept="1")
    lab.s(0, 3, void="1")
    lab.flush()
    disk = PowerLoss(MemoryFiles(lab.disk.contents()).contents())
    second = StoreLab(disk)
    second.store.waiters.add_callback(lambda epoch: disk.note(epoch))
    for epoch in (4, 5):
        second.s(1, epoch, **{f"k{epoch}": "1"})
        second.sw()
    told = 0
    for state in disk.states(per_point=25):
        found = StoreLab(state.files).entries()
        assert "void" not in found and "kept" in found, state.label
        told = max([told, *(note for note in state.notes if isinstance(note, int))])
    assert told == 5


def test_rule_c07_an_answer_comes_when_all_files_are_closed_those_without_a_channel_too() -> None:
    lab = StoreLab()
    for number in range(3):
        lab.s(number, **{f"k{number}": "1"})
    lab.reopen()
    session = lab.begin(0, late="1")
    request = lab.store.request_rotation()
    lab.sw()
    assert not request.is_answered
    session.end()
    answer = request.wait(0)
    assert keys_in(lab.disk, answer.files) == {b"k0", b"k1", b"k2", b"late"}
    for name in answer.files:
        lab.store.files.open(f"{FOLDER}/{name}").close()
    assert all(channel._log is None for channel in lab.store.channels.values())


def test_rule_c08_sessions_behind_the_boundary_are_not_in_the_parts() -> None:
    lab = StoreLab()
    lab.s(0, 2, k="2")
    lab.sw(3)
    slow = lab.begin(1, 3, slow="3")
    done = threading.Event()

    def compact() -> None:
        lab.compactions.compact()
        done.set()

    thread = threading.Thread(target=compact)
    thread.start()
    while not lab.store.is_urgent():
        pass
    lab.sw(4)
    lab.s(0, 4, k="4")
    lab.sw(5)
    assert not done.is_set()
    slow.end()
    thread.join(10)
    catalog = lab.catalog()
    assert catalog.epoch == 3
    assert all(max(epochs_in(lab.disk, name)) <= 3 for name in catalog.merged if name.startswith("pwal"))
    items = {place[8:]: codec_value for place, codec_value in lab.store.baseline.walk()}
    assert {*items} == {b"k", b"slow"} and items[b"k"].endswith(b"2")
    assert lab.entries() == {"k": "4", "slow": "3"}
    lab.restart()
    assert lab.entries() == {"k": "4", "slow": "3"}


def test_rule_c09_versions_are_kept_and_removes_as_long_as_they_hide_something() -> None:
    lab = StoreLab()
    with lab.begin(0) as session:
        lab.write(session, (77, 3), k="1")
        lab.write(session, (99, 0), gone=None)
    lab.compact()
    lab.reopen()
    assert lab.version("k") == (77, 3)
    with lab.begin(0) as session:
        lab.write(session, (98, 0), gone="older than the remove", k="newer")
    lab.reopen()
    assert lab.entries() == {"k": "newer"}


def test_rule_c10_parts_and_folder_are_synced_before_the_catalog_names_them() -> None:
    lab = StoreLab()
    lab.s(0, k="1")
    lab.rotate()
    lab.files.calls.clear()
    lab.compact()
    steps = [(operation, path.removeprefix(FOLDER + "/")) for operation, path in lab.files.calls]
    rename = steps.index(("rename", "compaction_catalog.tmp"))
    part_synced = steps.index(("sync", "pwal_compacted.1.0"))
    folders = [number for number, (operation, _) in enumerate(steps) if operation == "sync_folder"]
    assert part_synced < min(number for number in folders if number > part_synced) < rename
    assert steps[rename + 1][0] == "sync_folder"
    assert steps.index(("sync", "compaction_catalog.tmp")) < rename
    assert not any(operation == "remove" and path.startswith("pwal") for operation, path in steps)


def test_rule_c10_a_clean_up_removes_nothing_before_the_catalog_is_safe() -> None:
    disk = PowerLoss()
    lab = StoreLab(disk)
    for number in range(3):
        lab.s(0, k=str(number), **{f"k{number}": "1"})
        lab.compact()
    disk.note("written")
    lab.compactions.clean_up()
    for state in disk.states(per_point=20):
        if "written" in state.notes:
            assert StoreLab(state.files).entries() == {"k": "2", "k0": "1", "k1": "1", "k2": "1"}, state.label


def test_rule_c11_requests_queue_one_is_served_at_a_time_and_closing_fails_the_rest() -> None:
    lab = StoreLab()
    requests = [lab.store.request_rotation() for _ in range(4)]
    lab.sw()
    lab.sw()
    lab.store.close()
    assert [request.wait(0).epoch for request in requests[:2]] == [1, 2]
    for request in requests[2:]:
        with pytest.raises(Stopped):
            request.wait(0)


def test_rule_c12_an_open_that_is_refused_changes_nothing_whatever_else_it_found() -> None:
    """There is a torn tail to cut, an epoch to make void, a leftover to remove; and one file that is damaged."""
    lab = StoreLab()
    for epoch in (2, 3, 4):
        lab.s(0, epoch, k=str(epoch))
        lab.s(1, epoch, l=str(epoch))
    lab.sw()
    lab.s(0, 6, void="1")
    lab.flush()
    lab.crash()
    lab.data("pwal_0000").extend(b"\x01\0\0")
    lab.data("epoch").extend(b"\x01\0\0")
    lab.put_file("epoch.tmp", b"left")
    lab.put_file("pwal_compacted.5.0", b"left")
    lab.damage("pwal_0001", 70)
    error = lab.refuses_to_open(Corruption)
    assert error.facts["file"] == "pwal_0001"


def test_rule_c14_the_last_epoch_does_not_fall_over_a_restart() -> None:
    lab = StoreLab()
    lab.s(0, 1, k="1")
    lab.sw(20)
    assert (lab.store.last_epoch, lab.store.recorded_epoch) == (19, 1)
    lab.reopen()
    assert (lab.store.last_epoch, lab.store.epoch) == (19, 20)
    lab.reopen()
    assert lab.store.last_epoch == 19


def test_rule_c14_after_a_crash_it_is_what_was_recorded_and_no_number_is_given_to_other_entries() -> None:
    """Epochs in which nobody wrote are recorded when the store is closed. A crash forgets them: they held nothing."""
    lab = StoreLab()
    lab.s(0, 1, k="1")
    lab.sw(20)
    lab.restart()
    assert lab.store.last_epoch == 1 and lab.entries() == {"k": "1"}


# -- defects -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 10_000])
def test_w01_a_compaction_loses_no_session_that_is_open_on_any_channel(size: int) -> None:
    lab = StoreLab()
    with lab.switching():
        sessions = []
        for number in range(3):
            lab.s(number, **{f"before{number}": "1"})
        sessions = [lab.begin(number, **{f"open{number}": "v" * size}) for number in range(3)]

        def finish() -> None:
            while not lab.store._rotations.begun:
                pass
            for session in sessions:
                session.end()

        thread = threading.Thread(target=finish)
        thread.start()
        lab.compactions.compact()
        thread.join(10)
    lab.sw()
    lab.compactions.clean_up()
    lab.restart()
    assert {*lab.entries()} == {f"{word}{number}" for word in ("before", "open") for number in range(3)}


def test_w02_a_compaction_with_fewer_channels_than_before_brings_back_nothing_old() -> None:
    lab = StoreLab()
    lab.s(5, stale="old", removed="old")
    lab.reopen()
    lab.s(0, stale="new", removed=None)
    lab.compact()
    assert lab.entries() == {"stale": "new"}
    lab.compactions.clean_up()
    lab.reopen()
    assert lab.entries() == {"stale": "new"} and lab.rotated() == []


def test_w03_after_a_stop_anywhere_in_a_second_compaction_no_removed_key_comes_back() -> None:
    lab = StoreLab()
    lab.s(0, removed="1", kept="1")
    lab.compact()
    lab.s(0, removed=None)
    lab.sw()
    stops: list[dict[str, bytes]] = []

    def note(operation: str, path: str) -> None:
        stops.append(lab.disk.contents())

    lab.files.before = note
    lab.compact()
    lab.compactions.clean_up()
    assert len(stops) > 30
    for contents in stops:
        after = StoreLab(MemoryFiles(contents))
        assert after.entries() == {"kept": "1"}
        after.s(0, later="1")
        after.compact()
        after.reopen()
        assert after.entries() == {"kept": "1", "later": "1"}


def test_w04_what_is_removed_behind_an_offline_compaction_stays_removed() -> None:
    lab = StoreLab()
    lab.s(0, a="1", b="1")
    lab.reopen()
    lab.compact()
    lab.compactions.clean_up()
    lab.reopen()
    lab.s(0, b=None)
    lab.reopen()
    lab.reopen()
    assert lab.entries() == {"a": "1"}


def test_w05_a_kill_in_the_middle_of_a_session_needs_no_repair() -> None:
    lab = StoreLab()
    lab.s(0, 2, kept="1")
    lab.sw(3)
    safe = len(lab.data("pwal_0000"))
    lab.s(0, 3, torn="1" * 50, more="1")
    lab.flush()
    lab.crash()
    whole = bytes(lab.data("pwal_0000"))
    contents = lab.disk.contents()
    assert len(whole) > safe + 100
    for size in range(safe, len(whole) + 1):
        after = StoreLab(MemoryFiles({**contents, f"{FOLDER}/pwal_0000": whole[:size]}))
        assert after.entries() == {"kept": "1"}
        after.s(0, later="1")
        after.reopen()
        assert after.entries() == {"kept": "1", "later": "1"}


def test_w08_what_was_to_be_cut_is_still_there_after_an_open_that_was_refused() -> None:
    lab = StoreLab()
    lab.s(0, 2, k="1")
    lab.sw()
    lab.crash()
    lab.data("pwal_0000").extend(b"torn")
    lab.put_file("pwal_0003", b"neither")
    lab.refuses_to_open(StorageError)
    assert bytes(lab.data("pwal_0000")).endswith(b"torn")


def test_w09_epochs_go_on_behind_the_last_one_after_every_restart() -> None:
    lab = StoreLab()
    seen = [lab.store.last_epoch]
    for number in range(6):
        lab.s(0, k=str(number))
        lab.sw()
        lab.sw()
        seen.append(lab.store.last_epoch)
        lab.reopen()
        seen.append(lab.store.last_epoch)
        assert lab.store.epoch > lab.store.last_epoch
    assert seen == sorted(seen)


def test_w10_a_flipped_bit_of_a_value_is_never_returned_as_data() -> None:
    lab = StoreLab()
    lab.s(0, 2, k="value value value")
    lab.s(0, 3, l="1")
    lab.sw()
    lab.crash()
    at = bytes(lab.data("pwal_0000")).index(b"value")
    for offset in range(at, at + 17):
        copy = StoreLab.__new__(StoreLab)
        copy.disk = MemoryFiles(lab.disk.contents())
        copy.files, copy.clock, copy.options = FaultyFiles(copy.disk), lab.clock, lab.options
        copy.damage("pwal_0000", offset)
        assert copy.refuses_to_open(Corruption).facts["file"] == "pwal_0000"


def test_w10_absurd_lengths_are_no_reason_to_ask_for_memory() -> None:
    lab = StoreLab()
    lab.s(0, 2, k="v")
    lab.sw()
    lab.crash()
    good = bytes(lab.data("pwal_0000"))
    for offset in range(8, len(good)):
        copy = MemoryFiles(lab.disk.contents())
        copy.names[f"{FOLDER}/pwal_0000"].data[offset] = 0xFF
        if bytes(copy.names[f"{FOLDER}/pwal_0000"].data) != good:
            with pytest.raises(StorageError):
                StoreLab(copy)


def test_w11_startup_reads_only_what_no_compaction_has_taken() -> None:
    lab = StoreLab()
    with lab.begin(0) as session:
        session.put_many(1, [(b"%05d" % number, b"v") for number in range(5000)])
    lab.compact()
    lab.s(0, one="1")
    lab.reopen()
    assert lab.store.entries_read == 1 and len(lab.everything()) == 5001


def test_w13_errors_of_the_disk_end_no_process_and_a_session_can_be_given_up() -> None:
    lab = StoreLab()
    session = lab.begin(0, k="1")
    session.abort()
    lab.s(0, k="2")
    lab.flush()
    lab.files.fail("sync", only="pwal")
    lab.sw()
    with pytest.raises(LogFailed):
        lab.begin(0)
    assert lab.store.snapshot().get(1, b"k") is None
    lab.store.close()


def test_w14_a_compaction_rewrites_only_the_ranges_that_changed() -> None:
    lab = StoreLab(part_bytes=1024)
    with lab.begin(0) as session:
        session.put_many(1, [(b"%05d" % number, b"v" * 20) for number in range(1000)])
    first = lab.compact()
    assert first.parts_written > 10
    before = {name: bytes(lab.data(name)) for name in lab.parts()}
    with lab.begin(0) as session:
        session.put(1, b"00500", b"changed")
    second = lab.compact()
    assert second.parts_written <= 2 and second.parts_kept >= first.parts_written - 2
    assert {name: bytes(lab.data(name)) for name in before} == before
    lab.compactions.clean_up()
    lab.reopen()
    assert len(lab.everything()) == 1000 and lab.everything()[1, b"00500"] == b"changed"


def test_w16_a_backup_holds_no_file_that_is_in_the_parts() -> None:
    files = MemoryFiles()
    with Store.open(FOLDER, files=files, options=StoreOptions(epoch_ms=1)) as store:
        store.put(1, b"a", b"1")
        report = store.compact()
        store.put(1, b"b", b"2")
        manifest = store.back_up("backup")
        names = {file.name for file in manifest.files}
        assert not names & {*report.inputs}
        assert "pwal_compacted.1.0" in names
    backup.restore(files, "backup", "restored")
    with Store.open("restored", files=files) as store:
        assert [(found.key, found.value) for found in store.scan(1)] == [(b"a", b"1"), (b"b", b"2")]


def test_w18_readers_that_stall_do_not_end_the_process_nor_hold_up_writers() -> None:
    lab = StoreLab()
    with lab.begin(0) as session:
        session.put_many(1, [(b"%04d" % number, b"old") for number in range(3000)])
    lab.sw()
    readers = [lab.store.snapshot().scan(1) for _ in range(10)]
    for reader in readers:
        next(reader)
    for number in range(20):
        lab.s(0, **{f"k{number}": "new"})
        lab.sw()
    lab.compact()
    assert [sum(1 for _ in reader) for reader in readers] == [2999] * 10


# -- going on from where it was cut short ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_more_written", [False, True])
def test_a_compaction_that_was_cut_short_is_gone_on_with(is_more_written: bool) -> None:
    lab = StoreLab(part_bytes=1024)
    with lab.begin(0) as session:
        session.put_many(1, [(b"%05d" % number, b"v" * 20) for number in range(1000)])
    lab.sw()
    stops: list[dict[str, bytes]] = []
    lab.files.before = lambda operation, path: stops.append(lab.disk.contents())
    lab.compact()
    done = [contents for contents in stops if f"{FOLDER}/pwal_compacted.1.8" in contents]
    after = StoreLab(MemoryFiles(done[len(done) // 4]), part_bytes=1024)
    assert after.catalog().generation == 0 and len(after.parts()) > 8
    kept = {name: after.disk.names[f"{FOLDER}/{name}"] for name in after.parts()[:5]}
    if is_more_written:
        after.s(0, more="1")
    after.compact()
    assert all(after.disk.names.get(f"{FOLDER}/{name}") is content for name, content in kept.items())
    expected = 1000 + is_more_written
    assert len(after.everything()) == expected
    after.reopen()
    assert len(after.everything()) == expected


# -- everything at once ------------------------------------------------------------------------------------------------


class SharedDisk(MemoryFiles):
    """A disk of which a copy can be taken between two steps of several threads."""

    def __init__(self) -> None:
        super().__init__()
        self.guard = threading.RLock()

    def do_append(self, content: Content, data: bytes) -> None:
        with self.guard:
            super().do_append(content, data)

    def do_truncate(self, content: Content, size: int) -> None:
        with self.guard:
            super().do_truncate(content, size)

    def do_link(self, path: str, content: Content) -> None:
        with self.guard:
            super().do_link(path, content)

    def do_rename(self, old: str, new: str) -> None:
        with self.guard:
            super().do_rename(old, new)

    def do_remove(self, path: str) -> None:
        with self.guard:
            super().do_remove(path)


def test_a_kill_at_any_moment_of_writing_rotating_compacting_and_cleaning_up_loses_nothing(rounds: int = 40) -> None:
    disk = SharedDisk()
    told = dict.fromkeys(range(4), 0)  # by writer: the last session that is durable
    copies: list[tuple[dict[str, bytes], dict[int, int]]] = []
    problems: list[BaseException] = []
    is_over = threading.Event()
    options = StoreOptions(epoch_ms=1, part_bytes=2048, memory_bytes=8192)
    with Store.open(FOLDER, files=disk, options=options) as store:

        def write(number: int) -> None:
            count = 0
            while not is_over.is_set():
                count += 1
                with store.session() as session:
                    session.put(1, b"%d" % number, b"%d" % count)
                    session.put(2, b"%d.%d" % (number, count), b"v" * 20)
                    session.remove(2, b"%d.%d" % (number, count - 20))
                with disk.guard:
                    told[number] = count

        def look_after() -> None:
            while not is_over.is_set():
                store.compact()
                store.clean_up()

        def rotate() -> None:
            while not is_over.is_set():
                store.rotate(timeout=30)
                is_over.wait(0.005)

        def guarded(what: Callable[[], None]) -> None:
            try:
                what()
            except BaseException as error:
                problems.append(error)

        work = [partial(write, number) for number in told] + [look_after, rotate]
        threads = [threading.Thread(target=guarded, args=(what,)) for what in work]
        for thread in threads:
            thread.start()
        for _ in range(rounds):
            is_over.wait(0.01)
            with disk.guard:
                copies.append((disk.contents(), dict(told)))
        is_over.set()
        for thread in threads:
            thread.join()
    assert problems == []
    copies.append((disk.contents(), dict(told)))
    for contents, safe in copies:
        with StoreEngine.open(FOLDER, files=MemoryFiles(contents), options=options) as after:
            found = everything(after)
        for number, count in safe.items():
            last = int(found.get((1, b"%d" % number), b"0"))
            assert last >= count
            there = {key for storage, key in found if storage == 2 and key.startswith(b"%d." % number)}
            assert there == {b"%d.%d" % (number, each) for each in range(max(last - 19, 1), last + 1)}
    assert min(told.values()) > 5
